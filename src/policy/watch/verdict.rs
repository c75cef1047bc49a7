//! The result of a watching policy at one moment.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{Numbers, Reason};

/// The state of the workload in one word. The words are an interface (`lamp replay idle -o jsonl`,
/// `status.json`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Too early to tell.
    Starting,
    Busy,
    /// Every known signal was quiet for the whole window.
    Idle,
    /// Running, but without progress for too long.
    Stalled,
    /// A signal could not be read. Never leads to a stop.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchAction {
    None,
    Notify,
    /// Record what the processes wait for.
    Stacks,
    /// SIGTERM, grace, SIGKILL, start again from the last checkpoint.
    Restart,
    Stop,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WatchVerdict {
    pub standing: Activity,
    pub action: WatchAction,
    /// The sentence for people.
    pub text: String,
    /// The numbers used, unit last: `quiet_secs`, `window_secs`, `gpu_percent`, ...
    pub numbers: Numbers,
}

impl WatchVerdict {
    pub fn new(standing: Activity, action: WatchAction, text: impl Into<String>) -> Self {
        WatchVerdict { standing, action, text: text.into(), numbers: Numbers::default() }
    }

    /// Adds a number; infinite or NaN is skipped, because JSON cannot hold it.
    #[must_use]
    pub fn with(mut self, name: &'static str, number: f64) -> Self {
        if number.is_finite() {
            self.numbers.insert(name, number);
        }
        self
    }

    #[must_use]
    pub fn with_all<const N: usize>(mut self, numbers: [(&'static str, f64); N]) -> Self {
        self.numbers.reserve(N);
        numbers.into_iter().fold(self, |verdict, (name, number)| verdict.with(name, number))
    }

    pub fn reason(&self, at: Timestamp, policy: &str) -> Reason {
        Reason {
            at,
            policy: policy.into(),
            verdict: self.standing.word().into(),
            text: self.text.clone(),
            numbers: self.numbers.clone(),
        }
    }
}

impl Activity {
    pub fn word(self) -> &'static str {
        match self {
            Activity::Starting => "starting",
            Activity::Busy => "busy",
            Activity::Idle => "idle",
            Activity::Stalled => "stalled",
            Activity::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
