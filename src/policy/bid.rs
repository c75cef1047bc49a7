//! From a rule and a price history to the most that an hour of a spot machine may cost.
//!
//! A bid is a ceiling on cost, not a place in a queue: since 2017 EC2 sells spot machines at its own slow price, and takes
//! them back mostly for want of capacity. A higher bid does not keep a machine. What must never live here: a call.

use jiff::Timestamp;

use crate::market::{Offer, PriceHistory, PriceRule, Span, UsdPerHour};

/// A bid and what can be said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bid {
    pub price: UsdPerHour,
    /// For which share of the window the price was above it, 0 to 1; `None`: no history is known.
    pub share_above: Option<f64>,
    /// How often the price rose above it in the window.
    pub crossings: Option<usize>,
    /// How the rule came to it, in a sentence.
    pub because: String,
}

/// Why a rule gives no bid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoBid {
    #[error("no on-demand price is known, and the bid is a share of it")]
    OnDemandUnknown,
    #[error("no price history is known, and the bid is a quantile of it")]
    NoHistory,
}

/// What is looked back on where the rule does not say: the longest that EC2 keeps.
pub const WINDOW: Span = Span::from_secs(90 * 86_400);

/// The sentence that belongs beside every bid.
pub const HONEST: &str = "most interruptions come from capacity, not from price: a higher bid pays more and keeps little longer";

/// The bid of a rule for an offer. Never above the on-demand price where that is known, unless the user names the price or
/// the share.
///
/// # Errors
/// When what the rule needs is not known.
pub fn bid(rule: PriceRule, offer: &Offer, history: Option<&PriceHistory>, now: Timestamp) -> Result<Bid, NoBid> {
    let (price, window, because) = match rule {
        PriceRule::Fixed(price) => (UsdPerHour::new(price), WINDOW, "as it was asked for".to_owned()),
        PriceRule::PercentOfOnDemand(percent) => {
            let full = offer.on_demand.ok_or(NoBid::OnDemandUnknown)?;
            (scaled(full, percent / 100.0), WINDOW, format!("{percent}% of the on-demand price of {full}"))
        }
        PriceRule::Quantile { percentile, window } => {
            let history = history.ok_or(NoBid::NoHistory)?;
            let quantile = history.quantile(percentile, back(now, window), now).ok_or(NoBid::NoHistory)?;
            let (price, capped) = capped(quantile, offer.on_demand);
            (price, window, format!("at or above the price {percentile}% of the time of the last {window}{capped}"))
        }
        PriceRule::Auto => {
            // The ceiling that EC2 itself takes where none is named. The price paid is the market's, not the bid's.
            let full = offer.on_demand.ok_or(NoBid::OnDemandUnknown)?;
            (full, WINDOW, "the on-demand price: what is paid is the market's price, and above this ceiling spot would be no bargain".to_owned())
        }
    };
    let from = back(now, window);
    Ok(Bid {
        price,
        share_above: history.and_then(|history| history.share_above(price, from, now)),
        crossings: history.map(|history| history.crossings(price, from, now)),
        because,
    })
}

/// Whether a rule cannot be followed without a price history.
pub fn needs_history(rule: PriceRule) -> bool {
    rule.looks_back().is_some()
}

fn capped(price: UsdPerHour, on_demand: Option<UsdPerHour>) -> (UsdPerHour, &'static str) {
    match on_demand {
        Some(full) if full < price => (full, ", cut to the on-demand price"),
        _ => (price, ""),
    }
}

/// Rounded up to EC2's hundredth of a cent: a ceiling of exactly the price must not fall below it.
fn scaled(price: UsdPerHour, factor: f64) -> UsdPerHour {
    let ten_thousandths = (price.per_hour().micros() as f64 * factor / 100.0).ceil() as i64;
    UsdPerHour::new(crate::market::Usd::from_micros(ten_thousandths * 100))
}

fn back(now: Timestamp, window: Span) -> Timestamp {
    now.saturating_sub(window.duration()).unwrap_or(Timestamp::MIN)
}
