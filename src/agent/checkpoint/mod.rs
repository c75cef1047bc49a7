//! Checkpoints on the machine: find complete ones, ask for a save, upload, restore.

pub(crate) mod completeness;
#[cfg(test)]
pub(crate) mod completeness_laws;
pub(crate) mod content_names;
pub(crate) mod declared;
pub(crate) mod failed_resume;
pub(crate) mod file_names;
pub(crate) mod folder_diff;
pub mod handle;
pub(crate) mod quiet_period;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod rotation;
pub(crate) mod save_request;
pub(crate) mod torn_writes;
pub(crate) mod units;
pub(crate) mod upload;
pub(crate) mod worker;
pub(crate) mod workload_signals;
