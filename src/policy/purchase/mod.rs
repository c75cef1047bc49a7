//! Which offer is bought, at which bid, within which cost.

pub(crate) mod ask;
pub mod bid;
pub mod bid_backtest;
pub(crate) mod candidate;
pub mod fallback_limit;
pub mod hard_end;
pub mod job_cost_bound;
pub(crate) mod no_offer;
pub(crate) mod offer_reasons;
pub mod placement;
pub mod ranking;
pub mod refusal_backoff;
pub mod spending_cap;
