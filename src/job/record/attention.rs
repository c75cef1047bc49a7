//! A trouble that blocks a job, recorded by the controller that drives it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `jobs/<job>/attention.json`: what a person must know and the job's agent cannot say. Overwritten
/// when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    pub format: u32,
    /// Since when.
    pub at: Timestamp,
    /// The controller's name.
    pub by: String,
    /// `None`: it is over.
    pub text: Option<String>,
}
