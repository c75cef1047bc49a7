//! One link of a reason chain: what was judged, when, and the numbers behind it.
//!
//! The same value is logged, shown by `lamp explain`, written in the outcome and compared in tests.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::Numbers;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Reason {
    pub at: Timestamp,
    /// The policy: `idle`, `stall`, `budget`, `interruption`, `request`, `workload`, `relaunch`.
    pub policy: String,
    /// The verdict in one word: `busy`, `idle`, `stalled`, `stop`, ...
    pub verdict: String,
    /// The sentence for people.
    pub text: String,
    /// The numbers it used, with the unit last in each name: `gpu_percent`, `quiet_secs`,
    /// `window_secs`.
    #[serde(default)]
    #[cfg_attr(feature = "web", schema(value_type = std::collections::BTreeMap<String, f64>))]
    pub numbers: Numbers,
}

impl Reason {
    pub fn new(at: Timestamp, policy: &str, verdict: &str, text: impl Into<String>) -> Self {
        Reason {
            at,
            policy: policy.into(),
            verdict: verdict.into(),
            text: text.into(),
            numbers: Numbers::default(),
        }
    }

    /// Leaves out a number that is not finite: JSON cannot hold it.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, number: f64) -> Self {
        if number.is_finite() {
            self.numbers.insert(name, number);
        }
        self
    }

    /// The clock of a watching policy, in seconds: the time without a sign, and the time that is
    /// enough for its verdict. `None`: this policy counts no time.
    pub fn clock(&self) -> Option<(f64, f64)> {
        let number = |name: &str| self.numbers.get(name).copied();
        Some((number("quiet_secs").or(number("silent_secs"))?, number("window_secs")?))
    }
}
