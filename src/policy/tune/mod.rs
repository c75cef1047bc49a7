//! Decisions of a tuning: which trial comes next, with which values, and when it ends.
//!
//! ```text
//!   TrialStand ──> next_trial ──> start n, wait, or end
//!   start n ─────> grid | random | the engine ──> values ──> trial_command ──> a job's spec
//!   reuse ───────> the stopped machine that a trial begins on, or a new one
//!   receipt and metric ──> trial_fate ──> complete, pruned, failed, interrupted, stopped
//! ```
//! Not here: Optuna (`adapters::tuner`), or a record.

pub mod grid;
pub mod halving;
pub mod next_trial;
pub mod random;
pub mod reuse;
pub mod space_check;
pub mod trial_command;
pub mod trial_fate;
pub mod tuning_cost;
