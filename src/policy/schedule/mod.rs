//! When a job is due, and what `lamp apply` changes.

pub mod apply_diff;
#[cfg(feature = "lamp")]
pub mod calendar;
#[cfg(feature = "lamp")]
pub(crate) mod cron_field;
