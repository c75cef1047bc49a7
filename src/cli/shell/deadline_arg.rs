//! `--deadline`: a moment, or a span from now, which is fixed when the command line is read.
//!
//! A job file cannot have a span: it would mean another moment at each reading. Not here: the
//! clock.

use std::str::FromStr;

use jiff::Timestamp;

use crate::config::Moment;
use crate::market::Span;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeadlineArg {
    At(Timestamp),
    In(Span),
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "`{word}` is no moment and no length of time, write it like \"2026-11-21T18:00:00Z\", \"2026-11-21 18:00\" for your local time, or `30h` for so long from now"
)]
pub struct UntilError {
    word: String,
}

impl FromStr for DeadlineArg {
    type Err = UntilError;

    fn from_str(word: &str) -> Result<Self, UntilError> {
        if let Ok(moment) = word.parse::<Moment>() {
            return Ok(DeadlineArg::At(moment.0));
        }
        word.parse().map(DeadlineArg::In).map_err(|_| UntilError { word: word.to_owned() })
    }
}

impl DeadlineArg {
    pub fn moment(self, now: Timestamp) -> Moment {
        match self {
            DeadlineArg::At(moment) => Moment(moment),
            DeadlineArg::In(span) => {
                Moment(now.saturating_add(span.duration()).unwrap_or(Timestamp::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_is_a_moment_or_a_span_from_now() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let at =
            |word: &str| word.parse::<DeadlineArg>().map(|until| until.moment(now).0.to_string());
        assert_eq!(at("2026-11-22T18:00:00Z").as_deref(), Ok("2026-11-22T18:00:00Z"));
        assert_eq!(at("30h").as_deref(), Ok("2026-11-22T18:00:00Z"));
        assert_eq!(at("1h30m").as_deref(), Ok("2026-11-21T13:30:00Z"));
        for wrong in ["30", "tomorrow", "2026-11-21", ""] {
            assert!(
                at(wrong).is_err_and(|error| error
                    .to_string()
                    .contains("or `30h` for so long from now")),
                "{wrong}"
            );
        }
    }
}
