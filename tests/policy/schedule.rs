//! When a schedule is due, and what keeps it from running.

use jiff::Timestamp;
use jiff::civil::time;
use lamplighter::job::{CatchUp, JobId, Overlap, ScheduleSpec};
use lamplighter::market::UsdPerHour;
use lamplighter::policy::schedule::calendar::{
    Calendar, CalendarError, DueVerdict, ScheduleFacts, Spot, check, judge,
};
use proptest::prelude::*;

fn spec(cron: &str, timezone: &str) -> ScheduleSpec {
    ScheduleSpec {
        cron: Some(cron.into()),
        timezone: timezone.into(),
        only_between: None,
        only_while_spot_under: None,
        overlap: Overlap::Skip,
        catch_up: CatchUp::Latest,
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn usd(text: &str) -> UsdPerHour {
    UsdPerHour::new(text.parse().unwrap())
}

/// One schedule and what is known of it.
struct Case {
    spec: ScheduleSpec,
    since: Timestamp,
    decided: Option<Timestamp>,
    running: Option<JobId>,
    seen: Option<Timestamp>,
    spot: Spot,
}

impl Case {
    fn of(spec: ScheduleSpec, since: &str) -> Case {
        Case {
            spec,
            since: at(since),
            decided: None,
            running: None,
            seen: None,
            spot: Spot::NotAsked,
        }
    }

    fn at(&self, now: Timestamp) -> DueVerdict {
        let calendar = Calendar::of(&self.spec).unwrap();
        judge(&ScheduleFacts {
            spec: &self.spec,
            calendar: &calendar,
            since: self.since,
            decided: self.decided,
            running: self.running.as_ref(),
            seen: self.seen,
            spot: &self.spot,
            now,
        })
    }

    /// The verdict in a line.
    fn says(&self, now: &str) -> String {
        match self.at(at(now)) {
            DueVerdict::Rest { next } => {
                format!("rest until {}", next.map_or("never".into(), |next| next.to_string()))
            }
            DueVerdict::Run { due, reason } => format!("run {due}: {}", reason.text),
            DueVerdict::Skip { due, reason } => format!("skip {due}: {}", reason.text),
            DueVerdict::Wait { due, until, reason } => {
                format!(
                    "wait {due} until {}: {}",
                    until.map_or("?".into(), |until| until.to_string()),
                    reason.text
                )
            }
            DueVerdict::AskPrice { due } => format!("ask {due}"),
        }
    }

    /// Every run between two moments, looked at every so many minutes; each ends at once.
    fn runs(&mut self, from: &str, to: &str, step_minutes: i64) -> Vec<String> {
        let (mut now, to) = (at(from), at(to));
        let mut runs = Vec::new();
        while now <= to {
            match self.at(now) {
                DueVerdict::Run { due, .. } => {
                    runs.push(due.to_string());
                    self.decided = Some(due);
                }
                DueVerdict::Skip { due, .. } => self.decided = Some(due),
                _ => now += jiff::SignedDuration::from_mins(step_minutes),
            }
        }
        runs
    }
}

#[test]
fn schedule_runs_at_its_zone_time_and_not_before_it_is_applied() {
    // In Berlin it is an hour later in winter.
    let mut nightly = Case::of(spec("0 22 * * *", "Europe/Berlin"), "2026-11-20T12:00:00Z");
    assert_eq!(nightly.says("2026-11-20T20:59:59Z"), "rest until 2026-11-20T21:00:00Z");
    assert_eq!(
        nightly.says("2026-11-20T21:00:00Z"),
        "run 2026-11-20T21:00:00Z: it was due 2026-11-20 22:00 CET"
    );
    nightly.decided = Some(at("2026-11-20T21:00:00Z"));
    assert_eq!(nightly.says("2026-11-20T21:00:10Z"), "rest until 2026-11-21T21:00:00Z");
    // Applied a minute after: that night is over.
    let late = Case::of(spec("0 22 * * *", "Europe/Berlin"), "2026-11-20T21:01:00Z");
    assert_eq!(late.says("2026-11-20T21:01:00Z"), "rest until 2026-11-21T21:00:00Z");
}

/// The time that is shown is the one at which a run begins: the daemon lets what is due outside of
/// its hours wait for them.
#[test]
fn next_run_is_the_next_moment_that_is_in_its_hours_too() {
    let mut noon = spec("0 12 * * *", "UTC");
    noon.only_between = Some((time(22, 0, 0, 0), time(6, 0, 0, 0)));
    let calendar = Calendar::of(&noon).unwrap();
    let now = at("2026-11-20T11:00:00Z");
    let begins = calendar.begins_after(now).unwrap();
    assert_eq!(begins, at("2026-11-20T22:00:00Z"));
    assert!(calendar.is_never_in_its_hours(now));
    let case = Case::of(noon.clone(), "2026-11-20T11:00:00Z");
    assert!(
        case.says("2026-11-20T12:00:00Z")
            .starts_with("wait 2026-11-20T12:00:00Z until 2026-11-20T22:00:00Z")
    );
    assert!(case.says("2026-11-20T22:00:00Z").starts_with("run 2026-11-20T12:00:00Z"));
    let hourly =
        Calendar::of(&ScheduleSpec { cron: Some("0 * * * *".into()), ..noon.clone() }).unwrap();
    assert_eq!(hourly.begins_after(at("2026-11-20T22:30:00Z")), Some(at("2026-11-20T23:00:00Z")));
    assert!(!hourly.is_never_in_its_hours(now));
    let once = Calendar::of(&ScheduleSpec { cron: None, ..noon }).unwrap();
    assert_eq!(once.begins_after(now), Some(begins));
    assert!(!once.is_never_in_its_hours(now), "it has no times that could");
}

#[test]
fn of_runs_that_were_missed_the_latest_is_run_once_or_none() {
    let mut hourly = Case::of(spec("0 * * * *", "UTC"), "2026-11-20T00:30:00Z");
    assert_eq!(
        hourly.says("2026-11-20T05:50:00Z"),
        "run 2026-11-20T05:00:00Z: it was due 2026-11-20 05:00 UTC; 4 earlier times were missed, and are not made up for"
    );
    hourly.decided = Some(at("2026-11-20T05:00:00Z"));
    assert_eq!(hourly.says("2026-11-20T05:50:00Z"), "rest until 2026-11-20T06:00:00Z");

    hourly.spec.catch_up = CatchUp::None;
    hourly.decided = None;
    assert_eq!(
        hourly.says("2026-11-20T05:50:00Z"),
        "skip 2026-11-20T05:00:00Z: it was due 2026-11-20 05:00 UTC, 50 minutes ago, and nobody drove"
    );
    assert!(
        hourly.says("2026-11-20T05:09:00Z").starts_with("run 2026-11-20T05:00:00Z"),
        "a restart of the daemon misses nothing"
    );
    // It was seen in time, and has waited for something else since.
    hourly.seen = Some(at("2026-11-20T05:00:00Z"));
    assert!(hourly.says("2026-11-20T05:50:00Z").starts_with("run 2026-11-20T05:00:00Z"));
}

#[test]
fn run_that_still_runs_is_skipped_over_or_waited_for() {
    let mut hourly = Case::of(spec("0 * * * *", "UTC"), "2026-11-20T00:30:00Z");
    hourly.running = Some("x-222222".parse().unwrap());
    assert_eq!(
        hourly.says("2026-11-20T01:00:00Z"),
        "skip 2026-11-20T01:00:00Z: its last run, x-222222, has not ended"
    );
    hourly.spec.overlap = Overlap::Queue;
    assert_eq!(
        hourly.says("2026-11-20T01:00:00Z"),
        "wait 2026-11-20T01:00:00Z until ?: its last run, x-222222, has not ended"
    );
    hourly.running = None;
    assert!(
        hourly.says("2026-11-20T03:05:00Z").starts_with("run 2026-11-20T03:00:00Z"),
        "what has waited is one run"
    );
}

#[test]
fn schedule_without_times_runs_once_for_each_apply() {
    let once = ScheduleSpec {
        cron: None,
        only_between: Some((time(22, 0, 0, 0), time(6, 0, 0, 0))),
        ..spec("* * * * *", "UTC")
    };
    let mut once = Case::of(once, "2026-11-20T12:00:00Z");
    once.spec.catch_up = CatchUp::None;
    let waits = "wait 2026-11-20T12:00:00Z until 2026-11-20T22:00:00Z: outside of its hours; they begin 2026-11-20 22:00 UTC";
    assert_eq!(once.says("2026-11-20T12:00:00Z"), waits);
    assert_eq!(once.says("2026-11-21T03:00:00Z"), "run 2026-11-20T12:00:00Z: it was applied");
    once.running = Some("x-222222".parse().unwrap());
    assert!(once.says("2026-11-21T03:00:00Z").starts_with("wait"), "its only run is not left out");
    (once.running, once.decided) = (None, Some(once.since));
    assert_eq!(once.says("2026-11-25T03:00:00Z"), "rest until never");
}

#[test]
fn hours_go_over_midnight_and_by_the_clock_on_the_wall() {
    let night = ScheduleSpec {
        only_between: Some((time(22, 0, 0, 0), time(6, 0, 0, 0))),
        ..spec("0 12 * * *", "Europe/Berlin")
    };
    let night = Case::of(night, "2026-11-20T00:00:00Z");
    assert!(
        night
            .says("2026-11-20T11:00:00Z")
            .starts_with("wait 2026-11-20T11:00:00Z until 2026-11-20T21:00:00Z")
    );
    for open in ["2026-11-20T21:00:00Z", "2026-11-21T04:59:59Z"] {
        assert!(night.says(open).starts_with("run 2026-11-20T11:00:00Z"), "{open}");
    }
    assert!(
        night.says("2026-11-21T05:00:00Z").starts_with("wait"),
        "six in the morning is outside"
    );
    let day = ScheduleSpec {
        only_between: Some((time(9, 0, 0, 0), time(17, 0, 0, 0))),
        ..spec("0 20 * * *", "UTC")
    };
    let day = Case::of(day, "2026-11-20T00:00:00Z");
    assert!(
        day.says("2026-11-20T20:00:00Z")
            .starts_with("wait 2026-11-20T20:00:00Z until 2026-11-21T09:00:00Z")
    );
    // Hours that begin in the hour that a gap leaves out begin after it: 02:30 is 03:30 in summer
    // time.
    let gap = ScheduleSpec {
        only_between: Some((time(2, 30, 0, 0), time(5, 0, 0, 0))),
        ..spec("0 1 * * *", "Europe/Berlin")
    };
    let gap = Case::of(gap, "2026-03-28T12:00:00Z");
    assert!(
        gap.says("2026-03-29T00:10:00Z")
            .starts_with("wait 2026-03-29T00:00:00Z until 2026-03-29T01:30:00Z"),
        "{}",
        gap.says("2026-03-29T00:10:00Z")
    );
}

#[test]
fn price_is_asked_last_and_waited_for() {
    let cheap =
        ScheduleSpec { only_while_spot_under: Some(usd("0.5")), ..spec("0 * * * *", "UTC") };
    let mut cheap = Case::of(cheap, "2026-11-20T00:30:00Z");
    assert_eq!(
        cheap.says("2026-11-20T00:59:00Z"),
        "rest until 2026-11-20T01:00:00Z",
        "nobody is asked for nothing"
    );
    assert_eq!(cheap.says("2026-11-20T01:00:00Z"), "ask 2026-11-20T01:00:00Z");
    cheap.spot = Spot::Costs(usd("0.5"));
    assert_eq!(
        cheap.says("2026-11-20T01:00:00Z"),
        "wait 2026-11-20T01:00:00Z until ?: spot costs $0.50/h, and it waits for less than $0.50/h"
    );
    cheap.spot = Spot::Costs(usd("0.49"));
    assert!(cheap.says("2026-11-20T01:00:00Z").starts_with("run"));
    cheap.spot = Spot::Unknown("nothing is on offer".into());
    let unknown =
        "it waits for spot under $0.50/h, and the price is not known: nothing is on offer";
    assert_eq!(
        cheap.says("2026-11-20T01:00:00Z"),
        format!("wait 2026-11-20T01:00:00Z until ?: {unknown}")
    );
    cheap.spot = Spot::NoneFits("each has a quota of 0".into());
    let none = "it waits for spot under $0.50/h, and no machine of that market would do: each has a quota of 0";
    assert_eq!(
        cheap.says("2026-11-20T01:00:00Z"),
        format!("wait 2026-11-20T01:00:00Z until ?: {none}")
    );
    cheap.running = Some("x-222222".parse().unwrap());
    assert!(cheap.says("2026-11-20T01:00:00Z").starts_with("skip"));
}

#[test]
fn gap_and_a_fold_of_the_clock_run_a_daily_job_once() {
    // Berlin, 2026: from 02:00 to 03:00 on 29 March, and from 03:00 back to 02:00 on 25 October.
    let mut gap = Case::of(spec("30 2 * * *", "Europe/Berlin"), "2026-03-27T12:00:00Z");
    let runs = gap.runs("2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z", 1);
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert_eq!(
        (runs[0].as_str(), runs[2].as_str()),
        ("2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z")
    );
    assert!(runs[1].starts_with("2026-03-29T01:"), "at the end of the gap: {runs:?}");

    let mut fold = Case::of(spec("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z");
    let runs = fold.runs("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", 1);
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(
        ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"].contains(&runs[0].as_str()),
        "{runs:?}"
    );
    assert_eq!(runs[1], "2026-10-26T01:30:00Z");

    // What runs every half hour runs every half hour, whatever the clock shows.
    let mut often = Case::of(spec("*/30 * * * *", "Europe/Berlin"), "2026-10-24T22:00:00Z");
    assert_eq!(often.runs("2026-10-24T22:00:00Z", "2026-10-25T04:00:00Z", 1).len(), 12);
    let mut often = Case::of(spec("*/30 * * * *", "Europe/Berlin"), "2026-03-28T22:00:00Z");
    assert_eq!(often.runs("2026-03-28T22:00:00Z", "2026-03-29T04:00:00Z", 1).len(), 12);
}

#[test]
fn words_that_are_none_are_said() {
    let now = at("2026-11-20T00:00:00Z");
    assert!(matches!(check(&spec("0 22 * *", "UTC"), now), Err(CalendarError::CronField { .. })));
    assert!(
        matches!(check(&spec("0 0 22 * * *", "UTC"), now), Err(CalendarError::CronField { .. })),
        "seconds are not offered"
    );
    assert!(matches!(check(&spec("0 25 * * *", "UTC"), now), Err(CalendarError::CronField { .. })));
    assert!(matches!(check(&spec("0 22 * * NOD", "UTC"), now), Err(CalendarError::Cron { .. })));
    assert_eq!(
        check(&spec("0 22 * * *", "Mars/Olympus"), now).unwrap_err().to_string(),
        "`Mars/Olympus` is not a time zone that this machine knows"
    );
    assert!(check(&spec("0 0 30 2 *", "UTC"), now).is_err(), "the thirtieth of February");
    assert!(check(&spec("0 0 29 2 *", "UTC"), now).is_ok());
    assert!(check(&spec("@daily", "UTC"), now).is_ok());
}

fn patterns() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "0 22 * * *",
        "30 2 * * *",
        "*/7 * * * *",
        "15 */5 * * *",
        "0 3 * * SUN",
        "59 23 L * *",
        "0 0 29 2 *",
        "0 1-4 * * *",
    ])
}

fn zones() -> impl Strategy<Value = &'static str> {
    // A gap at midnight, a fold of half an hour, none, and the usual.
    prop::sample::select(vec![
        "Europe/Berlin",
        "America/Santiago",
        "Australia/Lord_Howe",
        "UTC",
        "America/New_York",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Two daemons with their own looks, and one place for decisions: each due time is decided
    /// once, in order, never early, and whoever looks last finds nothing left.
    #[test]
    fn no_due_time_is_run_twice_or_early(
        cron in patterns(), zone in zones(), start in 1_700_000_000_i64..1_900_000_000,
        looks in prop::collection::vec((1_i64..200_000, any::<bool>()), 1..60), queue in any::<bool>(), none in any::<bool>(),
    ) {
        let since = Timestamp::from_second(start).unwrap();
        let mut case = Case::of(spec(cron, zone), "2026-01-01T00:00:00Z");
        case.since = since;
        case.spec.overlap = if queue { Overlap::Queue } else { Overlap::Skip };
        case.spec.catch_up = if none { CatchUp::None } else { CatchUp::Latest };
        let mut decided: Vec<Timestamp> = Vec::new();
        let mut now = since;
        for (gap, runs) in looks {
            now = Timestamp::from_second(now.as_second() + gap).unwrap();
            case.running = runs.then(|| "x-222222".parse().unwrap());
            // Each of the two has read the decisions before; the second of them finds the record
            // there.
            let both = [case.at(now), case.at(now)];
            for verdict in &both {
                if let DueVerdict::Run { due, .. } | DueVerdict::Skip { due, .. } = verdict {
                    prop_assert!(*due > since && *due <= now);
                    prop_assert!(case.decided.is_none_or(|last| last < *due) || decided.last() == Some(due));
                    if decided.last() != Some(due) { decided.push(*due); }
                }
            }
            case.decided = decided.last().copied();
            prop_assert!(!matches!(case.at(now), DueVerdict::Run { .. } | DueVerdict::Skip { .. }), "a due time is decided once");
        }
        prop_assert!(decided.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// What is run is what is shown as next, whenever somebody looks.
    #[test]
    fn what_was_next_is_due_when_its_time_has_come(cron in patterns(), zone in zones(), start in 1_700_000_000_i64..1_900_000_000) {
        let mut case = Case::of(spec(cron, zone), "2026-01-01T00:00:00Z");
        case.since = Timestamp::from_second(start).unwrap();
        let DueVerdict::Rest { next: Some(next) } = case.at(case.since) else { return Err(TestCaseError::fail("something is due at once")) };
        let DueVerdict::Run { due, .. } = case.at(next) else { return Err(TestCaseError::fail("the next run is not due at its time")) };
        prop_assert_eq!(due, next);
        let before = next - jiff::SignedDuration::from_secs(1);
        let rests = matches!(case.at(before), DueVerdict::Rest { .. });
        prop_assert!(before < case.since || rests);
    }
}
