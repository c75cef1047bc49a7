//! The records of a rehearsal's two attempts, and one line of the checklist that judges them.

use jiff::Timestamp;
use serde::Serialize;

use crate::instance::{Notice, NoticeKind};
use crate::job::{CheckpointNo, CheckpointSpec, CheckpointSummary, Settled};
use crate::jobdir::{Event, EventDetail};
use crate::market::Span;

#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub checkpoint: Option<CheckpointSpec>,
    /// How much notice was given.
    pub notice: Span,
    pub first: Vec<Event>,
    pub second: Vec<Event>,
    pub first_settled: Option<Settled>,
    pub last_step: Option<f64>,
    pub again: Again,
    pub ended_early: Option<String>,
}

impl Evidence {
    /// The power is cut without a notice.
    pub(crate) fn is_cut(&self) -> bool {
        self.notice == Span::ZERO
    }
}

/// The checkpoint that an attempt began from. If it went back to an earlier one: to which, and why.
pub(crate) fn resumed_from(events: &[Event]) -> Option<(&CheckpointSummary, Option<&str>)> {
    events.iter().rev().find_map(|event| match &event.what {
        EventDetail::Resumed { checkpoint, went_back } => Some((checkpoint, went_back.as_deref())),
        _ => None,
    })
}

/// The signs of how the second attempt went on.
#[derive(Clone, Debug, Default)]
pub struct Again {
    pub step: Option<f64>,
    /// The step is from LAMP_PROGRESS or `watch.log_pattern`. A progress bar may count from 0 in
    /// each epoch.
    pub is_told: bool,
    /// The step is from LAMP_PROGRESS. A log line may count this attempt alone.
    pub is_reported: bool,
    /// The step in the file names of its starting checkpoint.
    pub from: Option<f64>,
    /// Its first own save, and the step in the names of its new files.
    pub saved: Option<(CheckpointNo, Option<f64>)>,
    /// A name in its first own save that continues or restarts a row of its checkpoint: both names,
    /// and whether it continues.
    pub row: Option<(String, String, bool)>,
    /// How many files of the checkpoint it read, and their number. `None`: the file system does not
    /// tell.
    pub read: Option<(usize, usize)>,
    /// How its script ended: normally or not, and in words.
    pub ended: Option<(bool, String)>,
    /// Seconds that its script was seen to run.
    pub ran_secs: f64,
}

pub fn notice(events: &[Event]) -> Option<(Timestamp, Notice)> {
    events.iter().find_map(|event| match &event.what {
        EventDetail::Notice { notice } if notice.kind == NoticeKind::Interruption => {
            Some((event.at, notice.clone()))
        }
        _ => None,
    })
}

pub(crate) fn secs(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// One line of the checklist. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RehearsalCheck {
    /// `checkpoint_spec`, `interrupted`, `asked`, `saved`, `cadence`, `resumed`, `went_on`.
    pub name: &'static str,
    pub passed: bool,
    pub text: String,
    /// How long it took, if that was measured.
    pub seconds: Option<f64>,
    pub hint: Option<String>,
}

pub(crate) fn good(name: &'static str, text: String) -> RehearsalCheck {
    RehearsalCheck { name, passed: true, text, seconds: None, hint: None }
}

pub(crate) fn bad(
    name: &'static str,
    text: impl Into<String>,
    hint: impl Into<String>,
) -> RehearsalCheck {
    RehearsalCheck {
        name,
        passed: false,
        text: text.into(),
        seconds: None,
        hint: Some(hint.into()),
    }
}

impl RehearsalCheck {
    pub(crate) fn took(mut self, seconds: f64) -> Self {
        self.seconds = Some(seconds);
        self
    }
}
