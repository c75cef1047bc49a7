//! `lamp run`, `start` and `attach`: from a job file to a running job.

pub(crate) mod attach;
pub(crate) mod duplicate_name;
pub(crate) mod nested_run;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod start_code;
#[cfg(feature = "top")]
pub(crate) mod view_key;
