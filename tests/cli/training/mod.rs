//! Gangs, tunings, models, and the commands of other services.

pub(crate) mod gang;
#[cfg(feature = "aws")]
pub(crate) mod gang_aws;
pub(crate) mod import;
pub(crate) mod ml_engine;
pub(crate) mod models;
pub(crate) mod tune;
#[cfg(feature = "aws")]
pub(crate) mod tune_aws;
pub(crate) mod tune_gang;
pub(crate) mod tune_pause;
#[cfg(feature = "aws")]
pub(crate) mod tune_reuse;
