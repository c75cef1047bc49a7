//! Hyperparameter tuning: one step of a driver, and what the faces show.
//!
//! ```text
//!   records ──> TuneMemory ──> policy::tune ──> start a trial, stop one early, or end
//!                    └──────────────────────────> TuneView ──> cli, web
//! ```
//! Every record is created only if absent, so several drivers of one tuning do no harm, and a
//! driver that is killed leaves nothing that another one needs to repair.

pub mod begin;
pub mod engine_question;
pub mod importance;
pub mod memory;
pub mod param_places;
pub mod pause;
mod reuse;
pub mod step;
mod trial_cost;
pub mod view;
