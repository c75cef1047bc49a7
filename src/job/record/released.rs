//! That what an ended job kept was given up.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `jobs/<job>/given-up.json`: nothing of the job stands in the cloud any more, whatever its receipt says was kept. Written
/// once, by whoever saw to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    pub format: u32,
    pub at: Timestamp,
    /// Who, for people.
    pub by: String,
    /// The machine that was ended; `None`: it was gone already.
    pub instance: Option<String>,
}
