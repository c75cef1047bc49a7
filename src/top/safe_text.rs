//! Text of jobs without anything that a terminal obeys: escape sequences, control letters, and
//! letters that change the direction of writing.

/// One line of text, safe to print. A tab becomes a space.
pub fn safe(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_sequence(&mut letters),
            // The same as ESC [, in one letter.
            '\u{9b}' => skip_to_final(&mut letters),
            '\t' | '\n' | '\r' => kept.push(' '),
            _ if letter.is_control() || turns(letter) => {}
            _ => kept.push(letter),
        }
    }
    kept
}

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_sequence(letters: &mut Letters<'_>) {
    match letters.next() {
        Some('[') => skip_to_final(letters),
        // A title, a link, a clipboard: it ends with BEL or ESC \.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(letter) = letters.next() {
                if letter == '\u{7}' || letter == '\u{9c}' {
                    return;
                }
                if letter == '\u{1b}' {
                    letters.next_if_eq(&'\\');
                    return;
                }
            }
        }
        _ => {}
    }
}

/// A control sequence ends with a letter from `@` to `~`.
fn skip_to_final(letters: &mut Letters<'_>) {
    for letter in letters.by_ref() {
        if ('@'..='~').contains(&letter) {
            return;
        }
    }
}

fn turns(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_is_not_told_anything_by_a_job() {
        let cases = [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}a", "a"),
            ("\u{1b}]52;c;aGk=\u{1b}\\b", "b"),
            ("\u{9b}2Jc\u{7}\u{8}", "c"),
            ("a\tb\nc", "a b c"),
            ("\u{202e}evil", "evil"),
            ("\u{1b}[", ""),
            ("plain ä 日本", "plain ä 日本"),
        ];
        for (text, shown) in cases {
            assert_eq!(safe(text), shown, "{text:?}");
        }
    }
}
