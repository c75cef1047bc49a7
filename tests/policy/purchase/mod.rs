//! Which machine, on which market, at which price.

pub(crate) mod auto;
pub(crate) mod fallback;
pub(crate) mod job_most;
pub(crate) mod market_choice;
pub(crate) mod market_laws;
pub(crate) mod market_run;
#[cfg(feature = "lamp")]
pub(crate) mod placement;
pub(crate) mod speed;
