//! The lines of one screen, and how text gets into them.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::safe_text::safe;

/// All lines of a screen; the frame shows as many as fit.
#[derive(Debug, Default)]
pub struct Sheet {
    pub lines: Vec<Line<'static>>,
    /// The lines that must stay in view: the first, and the one after the last.
    pub focus: Option<(usize, usize)>,
    /// The end is shown first, as in a log.
    pub is_from_end: bool,
}

impl Sheet {
    pub fn push(&mut self, spans: Vec<Span<'static>>) {
        self.lines.push(Line::from(spans));
    }

    pub fn text(&mut self, text: &str, style: Style) {
        self.push(vec![part(text, style)]);
    }

    /// A heading with an empty line before it.
    pub fn heading(&mut self, text: &str, style: Style) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.text(text, style);
    }

    /// A text in as many lines as it needs, each with the indent.
    pub fn wrapped(&mut self, text: &str, style: Style, indent: usize, width: usize) {
        for line in wrap(text, width.saturating_sub(indent)) {
            self.push(vec![Span::raw(" ".repeat(indent)), Span::styled(line, style)]);
        }
    }

    /// A name and its value in as many lines as it needs.
    pub fn fact(&mut self, name: &str, text: &str, quiet: Style, width: usize) {
        for (at, line) in wrap(text, width.saturating_sub(FACT)).into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            self.push(vec![part(&format!("{name:<FACT$}"), quiet), part(&line, Style::new())]);
        }
    }
}

/// The columns of a fact's name.
const FACT: usize = 12;

/// The only way of text into a line.
pub fn part(text: &str, style: Style) -> Span<'static> {
    Span::styled(safe(text), style)
}

pub fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in exactly `width` columns: cut with `…`, or filled with spaces.
pub fn fitted(text: &str, width: usize) -> String {
    let text = safe(text);
    let cut = cut(&text, width);
    let fill = width.saturating_sub(width_of(&cut));
    cut + &" ".repeat(fill)
}

/// The same, at the right edge.
pub fn fitted_right(text: &str, width: usize) -> String {
    let text = safe(text);
    let cut = cut(&text, width);
    " ".repeat(width.saturating_sub(width_of(&cut))) + &cut
}

fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width_of(&kept) + 1 > width {
            kept.pop();
            break;
        }
    }
    if width > 0 { kept + "…" } else { kept }
}

/// Breaks between words; a longer word is broken inside.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let text = safe(text);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest = word.to_owned();
        loop {
            let line = lines.last_mut().expect("there is always a line");
            let gap = usize::from(!line.is_empty());
            if width_of(line) + gap + width_of(&rest) <= width {
                line.push_str(if gap == 1 { " " } else { "" });
                line.push_str(&rest);
                break;
            }
            if line.is_empty() {
                let (head, tail) = rest.split_at(head_that_fits(&rest, width));
                line.push_str(head);
                rest = tail.to_owned();
                if rest.is_empty() {
                    break;
                }
            }
            lines.push(String::new());
        }
    }
    lines
}

/// Bytes; at least one letter, so that the loop ends.
fn head_that_fits(word: &str, width: usize) -> usize {
    let first = word.chars().next().map_or(0, char::len_utf8);
    let ends = word.char_indices().map(|(at, letter)| at + letter.len_utf8());
    ends.take_while(|end| width_of(&word[..*end]) <= width).last().unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_its_columns() {
        assert_eq!(fitted("abc", 5), "abc  ");
        assert_eq!(fitted("abcdef", 4), "abc…");
        assert_eq!(fitted("日本語", 4), "日… ");
        assert_eq!(fitted_right("ab", 4), "  ab");
        assert_eq!(fitted("abc", 0), "");
    }

    #[test]
    fn words_wrap_and_long_ones_break() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh x", 3), ["abc", "def", "gh", "x"]);
        assert_eq!(wrap("日本", 1), ["日", "本"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
