//! The end of a log, what was printed around a moment, or the lines of it with a text.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::app::log_tail::{LogAround, LogPiece, LogTail, is_error, last_lines};
use crate::app::text::{counted, local_time, readable};
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError};

/// Lines of the end.
const SHOWN: usize = 200;

/// Lines that are searched, from the end.
const SEARCHED: usize = 20_000;

/// Lines that are found.
const FOUND_MAX: usize = 500;

/// Lines before the first error, and from it on.
const BEFORE_ERROR: usize = 15;
const FROM_ERROR: usize = 100;

/// Lines before the asked moment, and from its piece on.
const BEFORE_MOMENT: usize = 50;
const FROM_MOMENT: usize = 400;

/// The part of a log that is asked for.
pub enum LogPart<'a> {
    End,
    Around(Timestamp),
    FirstError,
    With(&'a str),
}

/// # Errors
/// Fails when the job root is unreachable.
pub async fn part(
    dir: &JobDir,
    attempt: AttemptNo,
    asked: LogPart<'_>,
) -> Result<Markup, JobDirError> {
    let lines = match asked {
        LogPart::Around(at) => {
            return Ok(around_moment(at, &LogTail::around(dir, attempt, at).await?));
        }
        LogPart::End => SHOWN,
        LogPart::FirstError | LogPart::With(_) => SEARCHED,
    };
    let end = LogTail::last(dir, attempt, lines).await?;
    let text = String::from_utf8_lossy(&end.bytes);
    Ok(match asked {
        LogPart::With(find) => found(&text, find),
        LogPart::FirstError => around_error(&text),
        LogPart::End | LogPart::Around(_) => end_part(&text, &end.pieces),
    })
}

fn around_moment(at: Timestamp, found: &LogAround) -> Markup {
    let before = String::from_utf8_lossy(last_lines(&found.before, BEFORE_MOMENT));
    let here = String::from_utf8_lossy(&found.here);
    let shown: Vec<&str> = here.split_inclusive('\n').take(FROM_MOMENT).collect();
    let left = here.lines().count() - shown.len();
    html! {
        p { "Printed around " (local_time(at)) @if left > 0 { "; " (counted(left as u64, "line")) " of it not shown" } }
        pre.log tabindex="0" aria-label="The log around the moment" {
            span.muted { (readable(&before)) }
            (readable(&shown.concat()))
        }
    }
}

fn around_error(text: &str) -> Markup {
    let all = text.lines().count();
    let Some(first) = text.lines().position(is_error) else {
        return html! { p.muted { "None of the last " (all) " lines looks like an error." } };
    };
    let from = first.saturating_sub(BEFORE_ERROR);
    let lines = text.lines().enumerate().skip(from).take(first - from + FROM_ERROR);
    html! {
        p { "The first of the last " (all) " lines that looks like an error is line " (first + 1) "." }
        pre.log tabindex="0" aria-label="The first error" {
            @for (at, line) in lines {
                span.muted { (format!("{:>6}  ", at + 1)) }
                @if at == first { mark { (readable(line)) } } @else { (readable(line)) }
                "\n"
            }
        }
    }
}

/// `data-pieces` tells an open page which lines are new, by the pieces that it has not seen.
fn end_part(text: &str, pieces: &[LogPiece]) -> Markup {
    if text.is_empty() {
        return html! { p.muted { "The log is empty." } };
    }
    let told = |piece: &LogPiece| format!("{}:{}", piece.name, piece.line_ends);
    let told: Vec<String> = pieces.iter().map(told).collect();
    html! {
        pre.log data-pieces=(told.join(" ")) data-open[!text.ends_with('\n')] tabindex="0"
            aria-label="The end of the log" { (readable(text)) }
    }
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
    fn moment_has_a_few_lines_before_it_and_says_what_is_left_out() {
        let lines = |from: usize, to: usize| -> Vec<u8> {
            (from..to).flat_map(|at| format!("line {at}\n").into_bytes()).collect()
        };
        let found = LogAround { before: lines(0, 100), here: lines(100, 1000) };
        let shown = around_moment(Timestamp::UNIX_EPOCH, &found).into_string();
        assert!(shown.contains("500 lines of it not shown"), "{shown}");
        assert!(shown.contains("line 50\n") && !shown.contains("line 49\n"), "{shown}");
        assert!(shown.contains("line 499<") && !shown.contains("line 500"), "{shown}");
    }

    #[test]
    fn first_error_stands_among_its_lines() {
        let log = "step 1\nTraceback (most recent call last):\n  File \"a.py\"\nKeyError: 'x'\n";
        let shown = around_error(log).into_string();
        assert!(shown.contains("is line 2."), "{shown}");
        assert!(shown.contains("<mark>Traceback (most recent call last):</mark>"), "{shown}");
        assert!(shown.contains("step 1") && shown.contains("KeyError"), "{shown}");
        assert!(around_error("Killed\n").into_string().contains("<mark>Killed"));
        assert!(around_error("step 1\n").into_string().contains("None of the last 1 lines"));
    }

    #[test]
    fn found_lines_have_their_number_and_are_text() {
        let shown = found("one\nan ERROR <b>\ntwo\n", "error").into_string();
        assert!(shown.contains("1 line of the last 3"), "{shown}");
        assert!(shown.contains("     2  ") && shown.contains("an ERROR &lt;b&gt;"), "{shown}");
        assert!(!shown.contains("two") && !shown.contains("<b>"), "{shown}");
    }
}
