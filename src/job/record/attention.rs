//! What stands in the way of a job, by who drives it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `jobs/<job>/attention.json`: what a person must know of a job and its agent cannot say. Overwritten when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    pub format: u32,
    /// Since when it is so.
    pub at: Timestamp,
    /// Which controller.
    pub by: String,
    /// `None`: it is over.
    pub text: Option<String>,
}
