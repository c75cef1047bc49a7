//! Training jobs as Cloud ML Engine took them: their file, their packages, their states.
//!
//! ```text
//! config.yaml + flags ─ config_yaml ─> training_job ─┬─ job_text ─> job file ─> a job like others
//!                        hyperparameters ─> [tune] ──┤                        or a tuning
//!                         setup.py ─ package_build ──┘
//! ```
//!
//! Not here: flags and printing (`cli::ml_engine`).

pub mod config_yaml;
pub mod gcloud_region;
pub mod hyperparameters;
pub mod job_text;
pub mod job_view;
pub mod local_train;
pub mod package_build;
pub mod scale_tier;
pub mod search_view;
pub mod training_job;
pub mod training_state;
pub mod user_python;
