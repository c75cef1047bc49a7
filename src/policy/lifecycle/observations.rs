//! What is known of an attempt beside its plain records: what one controller has seen, and what was looked for at its end.
//!
//! Facts for `reconcile` and `settlement`, gathered by the controller. What must never live here: a conclusion.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{CheckpointSummary, Ending, Refusal};

/// What the journal of an attempt says of its checkpoints: it knows more than the last heartbeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    pub resumed_from: Option<CheckpointSummary>,
    /// Why from that one and not from a newer.
    pub went_back: Option<String>,
    pub checkpoints: u32,
    pub last_checkpoint: Option<CheckpointSummary>,
}

/// What one controller has seen with its own eyes, measured on its steady clock. Gone when the controller goes, and then
/// seen anew: lengths only ever start too short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// The launch call, or the start of a kept machine, has answered with this machine.
    pub launched: Option<String>,
    /// The machine of this launch that the cloud has shown here, whoever launched it; none of a plan that starts a kept one.
    pub shown: Option<String>,
    /// How long ago the cloud last showed it billing.
    pub lit_for: Option<Duration>,
    /// How long ago this controller asked last for the machine in a way that may have made it: answered with a machine, or not
    /// answered. `None`: never.
    pub asked_for: Option<Duration>,
    /// How long ago this controller was first told that the machine starts.
    pub starts_for: Option<Duration>,
    /// The launch call was refused: there (with why), or for good.
    pub refused: Option<(Option<Refusal>, String)>,
    /// How long ago that was.
    pub refused_for: Duration,
    /// How many times in a row since the last launch that may have made it.
    pub refusals: u32,
    /// A launch may have come through of which this controller knows nothing: its answer was lost, or another made the plan.
    pub unclear: bool,
    /// From the first to the last of successive answers of the cloud in which the machine was missing.
    pub missing_for: Duration,
    /// How long ago this controller first read that somebody wants the job to end.
    pub wished_for: Duration,
    /// How long the heartbeat has not changed.
    pub silent_for: Duration,
    /// How long it has come without a pause, in looks without one.
    pub beats_for: Duration,
    /// For how long the cloud has said, since that, that the host below the machine fails.
    pub host_fails_for: Duration,
    /// The silence at the last answer of the cloud in which the machine billed.
    pub billed_after_beat: Duration,
    /// Since the first answer in which it did no more; `None`: there was none.
    pub dark_for: Option<Duration>,
    /// From the last answer in which it billed to that; `None`: one of them is not known here.
    pub unlooked: Option<Duration>,
    /// When the cloud launched the machine, as it said while it showed it.
    pub launched_at: Option<Timestamp>,
    /// Since when it billed no more, the first that the cloud said of that launch: it dates a machine by its last change alone.
    pub stood: Option<Timestamp>,
    /// Of a machine that the cloud does not show any more, or of which it does not say since when it is out.
    pub unshown: Option<Unshown>,
    /// It has beaten since this controller first heard of it: what it says is of now.
    pub beats_on: bool,
    /// When the newest heartbeat came, by the store's clock: the machine's own may be an hour off.
    pub heard_at: Option<Timestamp>,
    /// How long this controller has known it to be settled.
    pub settled_for: Duration,
    /// How long the outcome has been there.
    pub outcome_for: Duration,
    /// The number of the last rehearsed interruption that was served.
    pub interrupt_served: u32,
    /// What watches the machine from outside, as this controller left it.
    pub guard: GuardLeft,
    /// Arming it, or taking it off, has failed, and is not tried again yet.
    pub guard_waits: bool,
    pub damaged: Damaged,
    pub ended: Ended,
    /// The cloud has said that it never stops this machine.
    pub unstoppable: bool,
}

/// How a controller left the alarm of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardLeft {
    /// It has done nothing yet, an answer was lost, or it has slept, and others may have done what it does not know.
    #[default]
    Unknown,
    Armed,
    Off,
}

/// What the store's clock says of an attempt whose machine is not shown any more, or out since nobody knows when: the workstation's own
/// may be a day off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unshown {
    /// The present, at that look.
    pub now: Timestamp,
    /// When its plan was written, its outcome, and why one of ours ends it, where these are known.
    pub planned: Option<Timestamp>,
    pub outcome: Option<Timestamp>,
    pub ending: Option<Timestamp>,
}

/// What tells who ended a machine of which the cloud says only that a user did, and since when it had stood. Looked for only then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    pub ending: Option<Ending>,
    pub alarm: AlarmSeen,
}

/// The alarm of a machine, by the cloud that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlarmSeen {
    /// It was not asked, or did not say.
    #[default]
    Unknown,
    Quiet,
    RangAt(Timestamp),
}

/// Records of an agent that are there and cannot be read. That they are there says something: a damaged lease, that the
/// machine has come up; a damaged outcome, that the attempt was at its end, but not whether its machine is. So neither ends
/// a machine, and neither keeps one that is gone from being settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damaged {
    pub lease: bool,
    pub outcome: bool,
}
