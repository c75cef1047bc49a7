//! Parts of sentences that every face uses: local times, counts and lists.

use std::borrow::Cow;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::{Captures, Regex};

use crate::job::Wish;
use crate::market::{Span, UsdPerHour};

/// The reason and the time, after "waits for".
pub fn waits_text(why: &str, until: Option<Timestamp>) -> String {
    until
        .map_or(why.to_owned(), |until| format!("{why}; until {} at the latest", local_time(until)))
}

/// Local time for people, to the second, with its zone.
pub fn local_time(at: Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

static MOMENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z").expect("a constant pattern, tested")
});

/// `in 2h 3m`, or `now` once it is due.
pub fn countdown(at: Timestamp, now: Timestamp) -> String {
    match u64::try_from(at.duration_since(now).as_secs()) {
        // Seconds would only flicker.
        Ok(secs @ 3600..) => format!("in {}", Span::from_secs(secs - secs % 60)),
        Ok(secs @ 1..) => format!("in {}", Span::from_secs(secs)),
        _ => "now".to_owned(),
    }
}

/// Records have UTC; people read local time.
pub fn in_local_time(text: &str) -> Cow<'_, str> {
    MOMENT.replace_all(text, |found: &Captures<'_>| {
        let moment = &found[0];
        moment.parse::<Timestamp>().map_or_else(|_| moment.to_owned(), local_time)
    })
}

/// The command that asks for an end.
pub fn verb(wish: Wish) -> &'static str {
    if wish == Wish::Stop { "stop" } else { "cancel" }
}

/// `1 file`, `2 files`.
pub fn counted(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// `5m to 8m`, or `5m` where both ends read the same.
pub fn range_text((low, high): (String, String)) -> String {
    if low == high { low } else { format!("{low} to {high}") }
}

/// `a, b, c and 36 more`: at most `named` names.
pub fn some_of(names: &[&str], named: usize) -> String {
    match names.len().saturating_sub(named) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..named].join(", ")),
    }
}

/// `1.5 times`: a price as a multiple of another.
pub fn times(price: UsdPerHour, of: UsdPerHour) -> String {
    let times = price.per_hour().dollars() / of.per_hour().dollars().max(1e-6);
    format!("{} times", (times * 10.0).round() / 10.0)
}

/// A value of a series with a unit that people read: `14.8 MiB`, `1.2 GB/s`, `93 %`.
pub fn measure(value: f64, unit: &str) -> String {
    let (value, base, words): (f64, f64, &[&str]) = match unit {
        "B" => (value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "MiB" => (value, 1024.0, &["MiB", "GiB", "TiB"]),
        "B/s" => (value, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s"]),
        _ => (value, 1.0, &[]),
    };
    let mut scaled = value;
    let mut word = words.first().copied().unwrap_or(unit);
    for larger in words.iter().skip(1) {
        // 1,023.9 MiB would be written as 1024 MiB.
        if scaled.abs() < base - 0.5 {
            break;
        }
        (scaled, word) = (scaled / base, larger);
    }
    let is_whole = scaled.abs() >= 100.0 || scaled.fract() == 0.0;
    if is_whole { format!("{scaled:.0} {word}") } else { format!("{scaled:.1} {word}") }
}

/// A progress bar writes each state over the last one: only the newest counts.
pub fn newest_state(line: &str) -> &str {
    let line = line.strip_suffix('\r').unwrap_or(line);
    line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default()
}

static TERMINAL_SEQUENCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b.")
        .expect("a constant pattern, tested")
});

/// A log as text: without the colours and moves of a terminal, and with the newest state of each
/// line.
pub fn readable(log: &str) -> String {
    let log = TERMINAL_SEQUENCE.replace_all(log, "");
    let kept = |letter: &char| *letter == '\t' || !letter.is_control();
    let line = |line: &str| newest_state(line).chars().filter(kept).collect::<String>();
    log.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// `--network, --account have no meaning here`, of what was given. `None`: nothing was.
pub fn without_meaning(given: &[(&str, bool)]) -> Option<String> {
    let names: Vec<&str> =
        given.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| format!("{} {verb} no meaning here", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_have_units_that_people_read() {
        for (value, unit, text) in [
            (15_518_924.8, "B", "14.8 MiB"),
            (1_200_000_000.0, "B/s", "1.2 GB/s"),
            (10_240.0, "MiB", "10 GiB"),
            (1023.9, "MiB", "1.0 GiB"),
            (512.0, "B", "512 B"),
            (0.0, "B/s", "0 B/s"),
            (92.75, "%", "92.8 %"),
            (1700.0, "MHz", "1700 MHz"),
        ] {
            assert_eq!(measure(value, unit), text);
        }
    }

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

    #[test]
    fn log_is_text_without_moves() {
        assert_eq!(readable("a\x1b[31mred\x1b[0m\n10%\r20%\r\nend"), "ared\n20%\nend");
        assert_eq!(newest_state("10%\r20%\r"), "20%");
    }
}
