//! The end of a log, or the lines of it with a text.

use maud::{Markup, html};

use crate::app::log_tail::LogTail;
use crate::app::text::{counted, readable};
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError};

/// Lines of the end.
const SHOWN: usize = 200;

/// Lines that are searched, from the end.
const SEARCHED: usize = 20_000;

/// Lines that are found.
const FOUND_MAX: usize = 500;

/// # Errors
/// Fails when the job root is unreachable.
pub async fn tail(dir: &JobDir, attempt: AttemptNo, find: &str) -> Result<Markup, JobDirError> {
    let is_search = !find.is_empty();
    let lines = if is_search { SEARCHED } else { SHOWN };
    let (bytes, _) = LogTail::last(dir, attempt, lines).await?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(if is_search { found(&text, find) } else { end(&text) })
}

fn end(text: &str) -> Markup {
    if text.is_empty() {
        return html! { p.muted { "The log is empty." } };
    }
    html! { pre.log tabindex="0" aria-label="The end of the log" { (readable(text)) } }
}

fn found(text: &str, find: &str) -> Markup {
    let lowered = find.to_lowercase();
    let all = text.lines().count();
    let found: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.to_lowercase().contains(&lowered))
        .collect();
    let words = format!("{} of the last {all} with ", counted(found.len() as u64, "line"));
    html! {
        p { (words) code { (find) } @if found.len() > FOUND_MAX { "; the first " (FOUND_MAX) " are here" } }
        @if !found.is_empty() {
            pre.log tabindex="0" aria-label="Lines that were found" {
                @for (at, line) in found.iter().take(FOUND_MAX) {
                    span.muted { (format!("{:>6}  ", at + 1)) } (readable(line)) "\n"
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_colours_become_text() {
        assert_eq!(readable("a\r\n10%\r20%\r\n\u{1b}[31mred\u{1b}[0m\u{7}\tx"), "a\n20%\nred\tx");
    }

    #[test]
    fn found_lines_have_their_number_and_are_text() {
        let shown = found("one\nan ERROR <b>\ntwo\n", "error").into_string();
        assert!(shown.contains("1 line of the last 3"), "{shown}");
        assert!(shown.contains("     2  ") && shown.contains("an ERROR &lt;b&gt;"), "{shown}");
        assert!(!shown.contains("two") && !shown.contains("<b>"), "{shown}");
    }
}
