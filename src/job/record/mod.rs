//! The records of a job and of its attempts.

pub(crate) mod attempt;
pub(crate) mod attention;
pub(crate) mod checkpoint;
pub(crate) mod checkpoint_step;
pub(crate) mod continuation;
pub(crate) mod discarded;
pub(crate) mod format;
pub(crate) mod gang;
pub(crate) mod market_log;
pub(crate) mod numbers;
pub(crate) mod outcome;
pub(crate) mod phase;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod proof;
pub(crate) mod reason;
pub(crate) mod receipt;
pub(crate) mod request;
