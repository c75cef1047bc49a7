//! Which market, decided again and again, for `market = "auto"`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::Reason;

/// `jobs/<job>/market.json`: the newest decision, and those that changed something before it, oldest first. Overwritten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarketLog {
    pub format: u32,
    /// The newest look.
    pub at: Timestamp,
    /// Which controller looked.
    pub by: String,
    pub decisions: Vec<Reason>,
}
