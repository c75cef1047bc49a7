//! Checkpoints on the machine: find complete ones, ask for a save, upload, restore.

pub(crate) mod completeness;
pub mod handle;
pub(crate) mod persisted_state;
pub mod restore;
pub(crate) mod rollback;
pub mod save_request;
pub(crate) mod upload;
pub(crate) mod worker;
pub(crate) mod worker_state;
