//! Facts about an attempt beside its records: observations of one controller, and look-ups at its
//! end.
//!
//! The controller gathers them for `reconcile` and `settlement`, which draw the conclusions.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{CheckpointSummary, Ending, Refusal};

/// The journal's data on checkpoints, which is more complete than the last heartbeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointSummaries {
    pub resumed_from: Option<CheckpointSummary>,
    /// Why it resumed from this one instead of a newer one.
    pub went_back: Option<String>,
    pub checkpoints: u32,
    pub last_checkpoint: Option<CheckpointSummary>,
}

/// Observations of one controller, on its steady clock. A new controller starts again, so durations
/// are only ever too short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// The launch call, or the start of a kept machine, returned this machine.
    pub launched: Option<String>,
    /// The machine of this launch that the cloud has shown, whichever controller launched it;
    /// `None` for a plan that starts a kept one.
    pub shown: Option<String>,
    /// Time since the cloud last showed it billing.
    pub lit_for: Option<Duration>,
    /// Time since this controller's last request that may have made the machine: it returned one,
    /// or got no answer. `None`: never.
    pub asked_for: Option<Duration>,
    /// Time since this controller first learned that the machine starts.
    pub starts_for: Option<Duration>,
    /// The launch call was refused: in that pool (with why), or for good.
    pub refused: Option<(Option<Refusal>, String)>,
    pub refused_for: Duration,
    /// Refusals in a row since the last launch that may have made it.
    pub refusals: u32,
    /// A launch may have succeeded unknown to this controller: its answer was lost, or another made
    /// the plan.
    pub unclear: bool,
    /// Time between the first and last of successive answers of the cloud without the machine.
    pub missing_for: Duration,
    /// Time since this controller first read a wish to end the job.
    pub wished_for: Duration,
    /// Time since the heartbeat last changed.
    pub silent_for: Duration,
    /// How long heartbeats have come without a pause.
    pub beats_for: Duration,
    /// How long since then the cloud has reported a failing host.
    pub host_fails_for: Duration,
    /// Time without a heartbeat at the last answer that showed the machine billing.
    pub billed_after_beat: Duration,
    /// Time since the first answer that showed it no longer billing; `None`: there was none.
    pub dark_for: Option<Duration>,
    /// Time between the last billing answer and that one; `None`: one of them is unknown.
    pub unlooked: Option<Duration>,
    /// The cloud's launch time, from when it showed the machine.
    pub launched_at: Option<Timestamp>,
    /// When it stopped billing, from the cloud's first report for that launch. The cloud dates only
    /// the last change of a machine.
    pub stood: Option<Timestamp>,
    /// For a hidden machine, or an end without a date.
    pub unshown: Option<Unshown>,
    /// A heartbeat came after this controller first saw one, so its content is current.
    pub beats_on: bool,
    /// Time of the newest heartbeat, by the store's clock: the machine's may be an hour off.
    pub heard_at: Option<Timestamp>,
    pub settled_for: Duration,
    pub outcome_for: Duration,
    /// Number of the last rehearsed interruption that was done.
    pub interrupt_served: u32,
    pub guard: GuardLeft,
    /// Arming or removing it failed, and the retry must wait.
    pub guard_waits: bool,
    pub damaged: Damaged,
    pub ended: EndEvidence,
    /// The cloud refuses to stop this machine, for good.
    pub unstoppable: bool,
}

/// How a controller left the alarm of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardLeft {
    /// It has done nothing yet, an answer was lost, or it slept: others may have changed it.
    #[default]
    Unknown,
    Armed,
    Off,
}

/// Dates by the store's clock, for a hidden machine or an end without a date. The workstation's
/// clock may be a day off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unshown {
    /// The time of that look.
    pub now: Timestamp,
    /// When the plan, the outcome and our record of its end were written, if known.
    pub planned: Option<Timestamp>,
    pub outcome: Option<Timestamp>,
    pub ending: Option<Timestamp>,
}

/// Evidence about an end that the cloud attributes to a user, looked up only then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndEvidence {
    pub ending: Option<Ending>,
    pub alarm: AlarmSeen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlarmSeen {
    /// Not looked up, or the answer is missing.
    #[default]
    Unknown,
    Quiet,
    RangAt(Timestamp),
}

/// Records of the agent that exist but cannot be read. A damaged lease proves that the machine
/// booted. A damaged outcome proves that the attempt ended, but not its machine. Neither ends a
/// machine, and neither delays the settlement of one that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damaged {
    pub lease: bool,
    pub outcome: bool,
}
