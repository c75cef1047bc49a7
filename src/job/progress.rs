//! What the workload says of itself: one JSON object a line, appended to the file named by `LAMP_PROGRESS`.
//!
//! ```json
//! {"step": 120, "total": 1000, "loss": 0.31}
//! {"checkpoint": "step-120"}
//! {"done": true}
//! ```
//! Every field is optional. `checkpoint` says that everything in the checkpoint folder is complete at this moment.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One line of the progress file.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ProgressLine {
    #[serde(default)]
    pub step: Option<f64>,
    #[serde(default)]
    pub total: Option<f64>,
    #[serde(default)]
    pub loss: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub checkpoint: Option<String>,
    #[serde(default)]
    pub done: Option<bool>,
}

/// Where the work stands.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    pub step: Option<f64>,
    pub total: Option<f64>,
    #[serde(default)]
    pub loss: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
    /// When the step last changed.
    pub at: Option<Timestamp>,
    /// The median time between steps so far, in seconds for one unit of `step`.
    #[serde(default)]
    pub secs_per_step: Option<f64>,
}

/// Why a line of the progress file was not understood. Such a line still counts as a sign of life.
#[derive(Debug, thiserror::Error)]
#[error("a line of the progress file is not a JSON object with step, total, checkpoint or done")]
pub struct ProgressError(#[source] serde_json::Error);

impl ProgressLine {
    /// # Errors
    /// When the line is not a JSON object of the form above.
    pub fn parse(line: &str) -> Result<Self, ProgressError> {
        serde_json::from_str(line.trim()).map_err(ProgressError)
    }
}

impl Progress {
    /// The share of the work that is done, in [0, 1], when the total is known.
    pub fn fraction(&self) -> Option<f64> {
        match (self.step, self.total) {
            (Some(step), Some(total)) if total > 0.0 => Some((step / total).clamp(0.0, 1.0)),
            _ => None,
        }
    }

    /// Seconds until the total at the pace so far.
    pub fn secs_left(&self) -> Option<f64> {
        let (step, total, pace) = (self.step?, self.total?, self.secs_per_step?);
        Some(((total - step) * pace).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_say_little_and_must_be_an_object() {
        assert_eq!(ProgressLine::parse(r#"{"step": 3, "extra": [1]}"#).unwrap().step, Some(3.0));
        assert!(ProgressLine::parse("{}").is_ok());
        for wrong in ["", "3", "step 3", r#"{"step": "three"}"#] {
            assert!(ProgressLine::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_rest_is_estimated_from_the_pace() {
        let progress = Progress { step: Some(25.0), total: Some(100.0), secs_per_step: Some(2.0), ..Progress::default() };
        assert_eq!(progress.fraction(), Some(0.25));
        assert_eq!(progress.secs_left(), Some(150.0));
        assert_eq!(Progress::default().secs_left(), None);
    }
}
