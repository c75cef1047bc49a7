//! From a job to its launch: the first plan, its cost, and the checks before anything is bought.
//!
//! ```text
//! account_ready ─ first_plan ─> gang_cost, limit_check, checkpoint_cadence, proof_gate ─> preflight
//! ```
//!
//! Not here: the launch itself (`controller::launch`), or the words of a plan (`cli::plan`).

pub mod account_ready;
pub mod checkpoint_cadence;
pub mod first_plan;
pub mod gang_cost;
pub mod limit_check;
mod no_image_hints;
mod no_offer_hints;
pub mod preflight;
pub mod proof_gate;
pub mod region_hint;
