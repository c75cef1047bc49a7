//! A wish in the job directory: the only way to talk to a running job.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::AttemptNo;
use crate::market::{FallbackCost, Market, Span, Usd};

/// `requests/<n>.json`, written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Request {
    pub format: u32,
    pub number: u32,
    pub at: Timestamp,
    /// The person, for the receipt: `user@host`.
    pub by: String,
    pub wish: Wish,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// Save a checkpoint, keep the outputs, end. The job can be continued later.
    Stop,
    /// End now, without a checkpoint.
    Cancel,
    /// More time or money, added to the spec's limit. It also postpones the end of an idle or kept
    /// machine.
    Extend {
        time: Option<Span>,
        budget: Option<Usd>,
        /// Allows a more expensive machine from now on, beside what the spec allows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "web", schema(value_type = Option<serde_json::Value>))]
        fallback_cost: Option<FallbackCost>,
    },
    /// For so long, the job is not ended as idle or stalled. An older agent ignores it.
    Keep { time: Span },
    /// Save a checkpoint now and go on.
    Checkpoint,
    /// The controller's own, `market = "auto"`: the attempt saves and ends, and the job continues
    /// on this market.
    Move {
        #[cfg_attr(feature = "web", schema(value_type = u32))]
        attempt: AttemptNo,
        to: Market,
    },
    /// Rehearse an interruption with this much notice. Only the local cloud can grant it.
    Interrupt { notice: Span },
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Stop => f.write_str("stop"),
            Wish::Cancel => f.write_str("cancel"),
            Wish::Keep { time } => write!(f, "keep for {time}"),
            Wish::Checkpoint => f.write_str("checkpoint now"),
            Wish::Move { attempt, to } => {
                write!(f, "move from attempt {} to {to}", attempt.number())
            }
            Wish::Interrupt { notice } => {
                write!(f, "rehearse an interruption with {notice} of notice")
            }
            Wish::Extend { time, budget, fallback_cost } => {
                let dearer = fallback_cost.map(|cost| format!("a fallback_cost of {cost}"));
                let more = [
                    time.map(|time| time.to_string()),
                    budget.map(|budget| budget.to_string()),
                    dearer,
                ];
                let more: Vec<String> = more.into_iter().flatten().collect();
                write!(
                    f,
                    "extend by {}",
                    if more.is_empty() { "nothing".to_owned() } else { more.join(" and ") }
                )
            }
        }
    }
}
