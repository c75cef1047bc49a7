//! Makes untrusted text safe for a terminal or a chat. Text of a job, a record or a cloud must not
//! move the cursor, rename the window or type for the user.
//!
//! The printer calls this for all that it prints, and the notifier for all that it sends. The
//! workload's own log is shown as it is (docs/decisions.md, 25).

use std::borrow::Cow;

/// The printer's own colours, without the escape. Other text with one of these can only colour a
/// word.
const COLORS: [&str; 7] = ["[0m", "[1m", "[2m", "[32m", "[36m", "[1;31m", "[1;33m"];

/// The text with its control characters visible, as `cat -v` shows them: `^[` for an escape. Lines
/// and tabs stay; so do the printer's colours if `colored`.
pub fn harmless(text: &str, colored: bool) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_harmful) {
        shown.push_str(&rest[..at]);
        let mut letters = rest[at..].chars();
        let letter = letters.next().unwrap_or_default();
        let after = letters.as_str();
        match COLORS.iter().find(|color| colored && letter == ESCAPE && after.starts_with(**color))
        {
            Some(color) => {
                shown.push(ESCAPE);
                shown.push_str(color);
                rest = &after[color.len()..];
            }
            None => {
                push_visible(&mut shown, letter);
                rest = after;
            }
        }
    }
    shown.push_str(rest);
    shown.into()
}

/// For a value on one line: a name with a line break must not begin a line that looks like ours.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(ENDS_LINE) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    text.chars().for_each(|letter| {
        if ENDS_LINE.contains(&letter) {
            push_visible(&mut shown, letter)
        } else {
            shown.push(letter)
        }
    });
    shown.into()
}

/// Characters that end a line on some terminals.
const ENDS_LINE: [char; 5] = ['\n', '\r', '\u{b}', '\u{2028}', '\u{2029}'];

/// A JSON document without characters that a terminal obeys. It means the same: serde leaves some
/// unescaped.
pub fn controls_escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(is_harmful) {
        return json.into();
    }
    let escaped = |letter: char| {
        if is_harmful(letter) {
            format!("\\u{:04x}", u32::from(letter))
        } else {
            letter.to_string()
        }
    };
    json.chars().map(escaped).collect::<String>().into()
}

const ESCAPE: char = '\u{1b}';

/// Control characters, characters that reverse the direction of text, and other line ends.
fn is_harmful(letter: char) -> bool {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && letter != '\n' && letter != '\t')
}

fn push_visible(shown: &mut String, letter: char) {
    match u32::from(letter) {
        code @ 0..0x20 => shown.extend(['^', char::from(b'@' + code as u8)]),
        0x7f => shown.push_str("^?"),
        _ => shown.push('\u{fffd}'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kubernetes#101695
    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        let message = "a\u{1b}[2J\u{1b}]0;owned\u{7}b\rc\u{9b}31md\u{7f}\u{202e}";
        assert_eq!(harmless(message, false), "a^[[2J^[]0;owned^Gb^Mc\u{fffd}31md^?\u{fffd}");
        assert_eq!(harmless(message, true), harmless(message, false));
        assert_eq!(harmless("two\nlines\tand ümläute", false), "two\nlines\tand ümläute");
        for code in (0..0xa0).filter(|code| ![9, 10].contains(code)) {
            let Some(letter) = char::from_u32(code).filter(|letter| letter.is_control()) else {
                continue;
            };
            assert!(!harmless(&letter.to_string(), true).contains(char::is_control), "{code:x}");
        }
    }

    #[test]
    fn value_never_begins_line_of_its_own() {
        let name = "a.pt\nhint: `curl x | sh`\u{2028}b\rc";
        assert_eq!(one_line(name), "a.pt^Jhint: `curl x | sh`\u{fffd}b^Mc");
        assert_eq!(one_line("a\tb"), "a\tb");
    }

    #[test]
    fn our_own_colours_stay_where_there_are_any() {
        let painted = "\u{1b}[1;31merror:\u{1b}[0m no \u{1b}[5mblinking";
        assert_eq!(harmless(painted, true), "\u{1b}[1;31merror:\u{1b}[0m no ^[[5mblinking");
        assert_eq!(harmless(painted, false), "^[[1;31merror:^[[0m no ^[[5mblinking");
    }

    #[test]
    fn document_means_the_same() {
        let text = "a\u{7f}\u{9b}2J\u{1b}[2J";
        let json = serde_json::to_string(text).unwrap();
        let shown = controls_escaped(&json);
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
