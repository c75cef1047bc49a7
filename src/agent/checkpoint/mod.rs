//! Checkpoints on the machine: find complete ones, ask for a save, upload, restore.

pub(crate) mod complete_set;
pub(crate) mod completeness;
#[cfg(test)]
pub(crate) mod completeness_tests;
pub(crate) mod declared;
pub(crate) mod file_motion;
pub(crate) mod file_names;
pub(crate) mod folder_diff;
pub mod handle;
pub(crate) mod persisted_state;
pub mod restore;
pub(crate) mod rollback;
pub mod save_request;
pub(crate) mod saved_steps;
pub(crate) mod torn_writes;
pub(crate) mod units;
pub(crate) mod upload;
pub(crate) mod worker;
pub(crate) mod worker_state;
pub(crate) mod workload_signals;
