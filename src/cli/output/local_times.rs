//! Times in a sentence: records have UTC, people read local time.

use std::borrow::Cow;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::{Captures, Regex};

use crate::cli::status::status::local_time;

static MOMENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z").expect("a constant pattern, tested")
});

pub fn in_local_time(text: &str) -> Cow<'_, str> {
    MOMENT.replace_all(text, |found: &Captures<'_>| {
        let moment = &found[0];
        moment.parse::<Timestamp>().map_or_else(|_| moment.to_owned(), local_time)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_records_are_told_in_local_time() {
        let at: Timestamp = "2026-11-28T13:58:08Z".parse().unwrap();
        let local = local_time(at);
        assert_eq!(
            in_local_time("was reached at 2026-11-28T13:58:08Z"),
            format!("was reached at {local}")
        );
        assert_eq!(
            in_local_time("from 2026-11-28T13:58:08.25Z, and on"),
            format!("from {local}, and on")
        );
        for text in ["nothing", "2026-11-28", "i-2026-11-28T13:58Z", "2026-99-28T13:58:08Z"] {
            assert_eq!(in_local_time(text), text);
        }
    }
}
