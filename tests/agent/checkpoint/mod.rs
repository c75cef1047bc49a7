//! Checkpoints and outputs.

pub(crate) mod busy_folders;
pub(crate) mod checkpoint_doubts;
pub(crate) mod checkpoint_numbers;
pub(crate) mod checkpoints;
pub(crate) mod durable_sets;
pub(crate) mod last_save;
pub(crate) mod no_save_signal;
pub(crate) mod outputs;
pub(crate) mod rollback;
