//! When a job is due, and the changes of `lamp apply`.

pub mod apply_diff;
#[cfg(feature = "lamp")]
pub mod calendar;
#[cfg(feature = "lamp")]
pub(crate) mod cron_field;
