//! Hyperparameter tuning: what the user asks for, and the records of a tuning and its trials.
//!
//! ```text
//!   [tune] ──> TuneSpec ──> Tuning (record) ──> TuneTrial (one record each) ──> TrialFate
//! ```
//! Not here: which trial comes next (`policy::tune`).

pub mod metric_series;
pub mod param;
pub mod records;
pub mod tune_spec;
pub mod tuned_trial;
