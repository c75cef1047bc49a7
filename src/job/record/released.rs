//! The record that the kept machine or disk of an ended job was given up.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `jobs/<job>/given-up.json`: the job has nothing in the cloud any more, even if its receipt says
/// kept. Written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    pub format: u32,
    pub at: Timestamp,
    /// The person's name, for people.
    pub by: String,
    /// The machine that was ended; `None`: it was gone already.
    pub instance: Option<String>,
}
