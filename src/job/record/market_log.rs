//! The repeated decisions about the market, for `market = "auto"`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::Reason;

/// `jobs/<job>/market.json`: the decisions that changed something, oldest first, and the newest.
/// Overwritten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarketLog {
    pub format: u32,
    /// The newest look.
    pub at: Timestamp,
    /// The controller's name.
    pub by: String,
    pub decisions: Vec<Reason>,
}
