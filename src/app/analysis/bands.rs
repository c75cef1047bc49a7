//! Busy, idle, stalled and unknown time of an attempt, from its verdicts and its samples.
//!
//! A verdict comes after the quiet time that it judged, so its band begins with that time. Not
//! here: the verdict itself (`policy::watch`), or a drawing.

use jiff::Timestamp;
use serde::Serialize;

use crate::job::Reason;
use crate::jobdir::{Event, EventDetail};

/// An agent samples every few seconds. Shorter, and a slow sensor makes a gap; longer, and a
/// minute without samples looks measured.
pub const BLIND_SECS: f64 = 90.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub enum BandKind {
    /// Too early for a verdict.
    Starting,
    Busy,
    Idle,
    Stalled,
    /// A signal could not be read, or the samples are missing.
    Unknown,
}

impl BandKind {
    pub fn word(self) -> &'static str {
        match self {
            BandKind::Starting => "starting",
            BandKind::Busy => "busy",
            BandKind::Idle => "idle",
            BandKind::Stalled => "stalled",
            BandKind::Unknown => "unknown",
        }
    }

    fn of(verdict: &str) -> Option<BandKind> {
        let all = [
            BandKind::Starting,
            BandKind::Busy,
            BandKind::Idle,
            BandKind::Stalled,
            BandKind::Unknown,
        ];
        all.into_iter().find(|kind| kind.word() == verdict)
    }
}

/// A stretch of time of one kind, in seconds since the first sample. The field names are an
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Band {
    pub from_secs: f64,
    pub to_secs: f64,
    pub kind: BandKind,
}

/// A stretch of the time axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SecsRange {
    pub from: f64,
    pub to: f64,
}

/// The bands of an attempt whose samples began at `began` and whose plots end at `end_secs`.
/// `blind`: stretches without samples.
pub fn bands(events: &[Event], began: Timestamp, end_secs: f64, blind: &[SecsRange]) -> Vec<Band> {
    let mut changes: Vec<VerdictChange> =
        events.iter().filter_map(|event| VerdictChange::of(event, began)).collect();
    // An event may be recorded later than it was judged.
    changes.sort_by(|one, other| one.secs.total_cmp(&other.secs));
    let mut drawn = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let to = changes.get(at + 1).map_or(end_secs, |next| next.secs).min(end_secs);
        let from = (change.secs - change.quiet_secs).max(0.0);
        if let Some(kind) = change.kind {
            paint(&mut drawn, Band { from_secs: from, to_secs: to, kind });
        }
    }
    for gap in blind {
        let (from_secs, to_secs) = (gap.from.max(0.0), gap.to.min(end_secs));
        paint(&mut drawn, Band { from_secs, to_secs, kind: BandKind::Unknown });
    }
    joined(drawn)
}

/// A change of what is known about the workload.
struct VerdictChange {
    secs: f64,
    /// `None`: the workload has ended, and there is nothing to judge.
    kind: Option<BandKind>,
    /// The time before the verdict that it judged.
    quiet_secs: f64,
}

impl VerdictChange {
    fn of(event: &Event, began: Timestamp) -> Option<VerdictChange> {
        let secs = |at: Timestamp| at.duration_since(began).as_secs_f64();
        match &event.what {
            EventDetail::Verdict { reason } => {
                let kind = BandKind::of(&reason.verdict)?;
                let quiet_secs = judged_secs(kind, reason);
                Some(VerdictChange { secs: secs(reason.at), kind: Some(kind), quiet_secs })
            }
            EventDetail::WorkloadStarted { .. } => {
                let kind = Some(BandKind::Starting);
                Some(VerdictChange { secs: secs(event.at), kind, quiet_secs: 0.0 })
            }
            EventDetail::WorkloadEnded { .. } => {
                Some(VerdictChange { secs: secs(event.at), kind: None, quiet_secs: 0.0 })
            }
            _ => None,
        }
    }
}

fn judged_secs(kind: BandKind, reason: &Reason) -> f64 {
    let number = match kind {
        BandKind::Idle => "quiet_secs",
        BandKind::Stalled => "silent_secs",
        _ => return 0.0,
    };
    reason.numbers.get(number).copied().filter(|secs| *secs > 0.0).unwrap_or(0.0)
}

/// Puts a band over those that are there.
fn paint(drawn: &mut Vec<Band>, band: Band) {
    if band.to_secs <= band.from_secs {
        return;
    }
    let mut kept = Vec::with_capacity(drawn.len() + 2);
    for old in drawn.drain(..) {
        let before = Band { to_secs: old.to_secs.min(band.from_secs), ..old };
        let after = Band { from_secs: old.from_secs.max(band.to_secs), ..old };
        kept.extend([before, after].into_iter().filter(|part| part.from_secs < part.to_secs));
    }
    let place = kept.partition_point(|old| old.from_secs < band.from_secs);
    kept.insert(place, band);
    *drawn = kept;
}

fn joined(drawn: Vec<Band>) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::with_capacity(drawn.len());
    for band in drawn {
        match bands.last_mut() {
            Some(last) if last.kind == band.kind && last.to_secs >= band.from_secs => {
                last.to_secs = band.to_secs;
            }
            _ => bands.push(band),
        }
    }
    bands
}

/// `busy 3h 2m, unknown 4m`: the time of each kind, the longest first.
pub fn sums_text(bands: &[Band]) -> String {
    let kinds =
        [BandKind::Busy, BandKind::Starting, BandKind::Idle, BandKind::Stalled, BandKind::Unknown];
    let secs = |kind: BandKind| {
        let of_kind = bands.iter().filter(|band| band.kind == kind);
        of_kind.map(|band| band.to_secs - band.from_secs).sum::<f64>()
    };
    let mut sums: Vec<(BandKind, f64)> = kinds.into_iter().map(|kind| (kind, secs(kind))).collect();
    sums.retain(|(_, secs)| *secs >= 0.5);
    sums.sort_by(|one, other| other.1.total_cmp(&one.1));
    let told = |(kind, secs): &(BandKind, f64)| {
        format!("{} {}", kind.word(), crate::market::Span::from_secs(secs.round() as u64))
    };
    sums.iter().map(told).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ExitStatus;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a moment")
    }

    fn event(second: i64, what: EventDetail) -> Event {
        Event { seq: 1, at: at(second), what }
    }

    fn verdict(second: i64, policy: &str, word: &str, number: &'static str, secs: f64) -> Event {
        let reason = Reason::new(at(second), policy, word, "said").with(number, secs);
        event(second, EventDetail::Verdict { reason })
    }

    fn told(bands: &[Band]) -> Vec<String> {
        let one = |band: &Band| format!("{}-{} {}", band.from_secs, band.to_secs, band.kind.word());
        bands.iter().map(one).collect()
    }

    #[test]
    fn verdict_covers_the_quiet_time_that_it_judged() {
        let started = EventDetail::WorkloadStarted { start: 1, pid: 1, command: "train".into() };
        let ended =
            EventDetail::WorkloadEnded { start: 1, exit: ExitStatus::default(), orphans: 0 };
        let events = [
            event(-5, started),
            verdict(60, "idle", "busy", "quiet_secs", 0.0),
            verdict(900, "idle", "idle", "quiet_secs", 300.0),
            // Not a verdict on the workload.
            verdict(905, "request", "stop", "left_secs", 1.0),
            event(910, ended),
        ];
        let drawn = bands(&events, at(0), 1000.0, &[]);
        assert_eq!(told(&drawn), ["0-60 starting", "60-600 busy", "600-910 idle"]);
        assert_eq!(sums_text(&drawn), "busy 9m, idle 5m 10s, starting 1m");
    }

    #[test]
    fn time_without_samples_is_unknown_whatever_was_said_before() {
        let events = [
            verdict(0, "idle", "busy", "quiet_secs", 0.0),
            verdict(800, "stall", "stalled", "silent_secs", 1e9),
        ];
        let gap = SecsRange { from: 100.0, to: 400.0 };
        let late = SecsRange { from: 990.0, to: 2000.0 };
        let drawn = bands(&events, at(0), 1000.0, &[gap, late]);
        assert_eq!(
            told(&drawn),
            ["0-100 stalled", "100-400 unknown", "400-990 stalled", "990-1000 unknown"]
        );
    }

    #[test]
    fn attempt_without_events_has_no_bands_but_its_gaps() {
        assert!(bands(&[], at(0), 10.0, &[]).is_empty());
        let gap = SecsRange { from: 2.0, to: 4.0 };
        assert_eq!(told(&bands(&[], at(0), 10.0, &[gap])), ["2-4 unknown"]);
    }
}
