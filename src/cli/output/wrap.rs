//! Wraps text to a terminal's width: at blanks, never inside a word.
//!
//! Not here: the width of the terminal (the printer). Piped text is never wrapped.

/// Wraps each line to at most `width` columns; later lines begin with `hang` blanks. A longer word
/// stays whole: a cut path cannot be pasted.
pub fn wrap(text: &str, width: usize, hang: usize) -> String {
    let hang = " ".repeat(hang.min(width / 3));
    text.split('\n').map(|line| wrap_line(line, width, &hang)).collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, width: usize, hang: &str) -> String {
    if columns(line) <= width {
        return line.to_owned();
    }
    let (mut wrapped, mut used, mut begun) = (String::new(), 0, false);
    let mut rest = line;
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        let word = gap + rest[gap..].find(' ').unwrap_or(rest.len() - gap);
        let wide = columns(&rest[gap..word]);
        if begun && wide > 0 && used + gap + wide > width {
            wrapped.push('\n');
            wrapped.push_str(hang);
            wrapped.push_str(&rest[gap..word]);
            used = hang.len() + wide;
        } else {
            wrapped.push_str(&rest[..word]);
            used += gap + wide;
        }
        begun |= wide > 0;
        rest = &rest[word..];
    }
    wrapped
}

/// The columns of a text without its colour codes.
pub fn columns(text: &str) -> usize {
    let mut coloring = false;
    let visible = text.chars().filter(|c| {
        let was = coloring;
        coloring = if was { *c != 'm' } else { *c == '\u{1b}' };
        !was && !coloring
    });
    visible.count()
}

/// The text in at most `width` columns, with an ellipsis if it was cut.
pub fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_blanks_and_hang() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("short", 9, 2), "short");
        assert_eq!(
            wrap("  +1s  word       a text that is long", 24, 4),
            "  +1s  word       a text\n    that is long"
        );
        assert_eq!(
            wrap("a https://example.org/very/long b", 10, 0),
            "a\nhttps://example.org/very/long\nb"
        );
        assert_eq!(wrap("one two\n\nthree four", 7, 0), "one two\n\nthree\nfour");
    }

    #[test]
    fn colour_takes_no_room() {
        assert_eq!(columns("\u{1b}[1;31merror:\u{1b}[0m x"), 8);
        assert_eq!(
            wrap("\u{1b}[36mhint:\u{1b}[0m yes no", 9, 2),
            "\u{1b}[36mhint:\u{1b}[0m yes\n  no"
        );
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(
            (cut("step 12 of 30", 8).as_str(), cut("step", 8).as_str()),
            ("step 12…", "step")
        );
    }

    #[test]
    fn no_line_is_wider_than_it_may_be() {
        let text = "what runs goes on, and its machine puts itself out when it is done; `lamp status` shows it";
        for width in 12..90 {
            assert!(wrap(text, width, 6).lines().all(|line| columns(line) <= width), "{width}");
            assert_eq!(wrap(text, width, 0).replace('\n', " "), text, "{width}");
        }
    }
}
