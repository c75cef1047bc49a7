//! How often the plan's bid would have been exceeded, by the past prices of its pool.
//!
//! ```text
//!   Plan ── has a bid? ── Controller::past_prices ── Exceeded ── a line, and `-o json`
//! ```
//!
//! Only a quantile rule needs a price history for its bid. For the others the history costs one
//! more call, so it is read only where a plan is shown, never in a launch.

use jiff::Timestamp;
use serde::Serialize;

use crate::controller::Controller;
use crate::job::Plan;
use crate::market::{Span, elapsed};
use crate::policy::purchase::bid::{Exceeded, HONEST, WINDOW, back};

/// How often the price was above the bid; the field names are an interface.
#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct BidExceeded<'a> {
    /// The beginning of the known prices.
    since: Option<Timestamp>,
    share_above: Option<f64>,
    crossings: Option<usize>,
    /// Why it is unknown.
    unknown: Option<&'a String>,
}

pub struct BidHistory {
    /// `Err`: why it is not known.
    exceeded: Result<Exceeded, String>,
    now: Timestamp,
}

impl BidHistory {
    /// `None`: it has no bid.
    pub async fn asked(controller: &Controller, plan: &Plan, now: Timestamp) -> Option<BidHistory> {
        let bid = plan.bid?;
        let exceeded = match controller.past_prices(plan, WINDOW).await {
            Ok(history) => Exceeded::of(bid, &history, back(now, WINDOW), now)
                .ok_or_else(|| "EC2 tells no price of that time".to_owned()),
            Err(why) => Err(why),
        };
        Some(BidHistory { exceeded, now })
    }

    pub fn document(&self) -> BidExceeded<'_> {
        let exceeded = self.exceeded.as_ref();
        let known = exceeded.ok();
        BidExceeded {
            since: known.map(|known| known.since),
            share_above: known.map(|known| known.share_above),
            crossings: known.map(|known| known.crossings),
            unknown: exceeded.err(),
        }
    }

    /// Inserts the line before the one that says what a bid cannot promise.
    pub fn stand_in(&self, lines: &mut Vec<String>) {
        let Ok(exceeded) = &self.exceeded else { return };
        // Rounded to whole hours.
        let secs = elapsed(exceeded.since, self.now).as_secs();
        let time = format!(
            "the last {}",
            Span::from_secs(if secs < 3600 { secs } else { secs / 3600 * 3600 })
        );
        let place = lines.iter().position(|line| line == HONEST).unwrap_or(lines.len());
        lines.insert(place, exceeded.told(&time));
    }

    pub fn unknown(&self) -> Option<String> {
        self.exceeded
            .as_ref()
            .err()
            .map(|why| format!("how often the bid would have been exceeded is not known: {why}"))
    }
}
