//! From a job file that was read to a job in the job root, for `run`, `plan`, `start` and `apply`.
//!
//! ```text
//! Loaded ── submission ──> Submission ── first_plan, preflight ── packed_job ──> ResolvedSpec
//!           + workdir                    + account, cost, limits   + code        in the job root
//! ```
//!
//! Not here: the launch itself (`controller::launch`), or the words of a plan (`cli::plan`).

pub mod account_ready;
pub mod checkpoint_cadence;
pub mod continuation;
pub mod first_plan;
pub mod gang_cost;
pub mod gang_start;
pub mod limit_check;
mod no_image_hints;
mod no_offer_hints;
pub mod packed_job;
pub mod preflight;
pub mod proof_gate;
pub mod region_hint;
pub mod resumed_upload;
pub mod run_from;
pub mod saved_files;
pub mod submission;
