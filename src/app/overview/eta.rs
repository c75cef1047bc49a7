//! When the progress of a job is complete, at the speed of its recent steps.

use std::time::Duration;

use jiff::Timestamp;

use crate::app::text::local_time;
use crate::app::view::job_summary::Summary;
use crate::job::JobState;

/// The time of the end. The range is the one of `Progress::secs_left_range`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eta {
    pub at: Timestamp,
    pub range: Option<(Timestamp, Timestamp)>,
}

impl Eta {
    /// `None`: the end is unknown.
    pub fn of(summary: &Summary, now: Timestamp) -> Option<Eta> {
        let is_heard = summary.state == JobState::Running && summary.silence.is_none();
        let progress = summary.progress.as_ref().filter(|_| is_heard)?;
        let after = |secs: f64| now.checked_add(Duration::try_from_secs_f64(secs).ok()?).ok();
        let range = progress.secs_left_range();
        let range = range.and_then(|(low, high)| Some((after(low)?, after(high)?)));
        Some(Eta { at: after(progress.secs_left()?)?, range })
    }

    /// `done 2026-01-02 14:10 to 2026-01-02 14:40`, or `done about 2026-01-02 14:20`
    pub fn text(&self) -> String {
        match self.range.map(|(from, to)| (local_time(from), local_time(to))) {
            Some((from, to)) if from != to => format!("done {from} to {to}"),
            _ => format!("done about {}", local_time(self.at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Progress;

    #[test]
    fn end_has_a_range_while_the_job_runs() {
        let now = Timestamp::from_second(1_700_000_000).expect("a moment");
        let mut summary = Summary::example(JobState::Running);
        assert_eq!(Eta::of(&summary, now), None, "no progress");
        summary.progress = Some(Progress {
            step: Some(0.0),
            total: Some(100.0),
            secs_per_step: Some(36.0),
            secs_per_step_low: Some(30.0),
            secs_per_step_high: Some(72.0),
            ..Progress::default()
        });
        let eta = Eta::of(&summary, now).expect("it is known");
        let secs = |at: Timestamp| at.as_second() - now.as_second();
        let range = eta.range.map(|(from, to)| (secs(from), secs(to)));
        assert_eq!((secs(eta.at), range), (3600, Some((3000, 7200))));
        assert!(eta.text().starts_with("done 20") && eta.text().contains(" to 20"), "{eta:?}");
        summary.state = JobState::Stopped;
        assert_eq!(Eta::of(&summary, now), None);
    }
}
