//! From the verdict to power-off: save, upload the rest, write the outcome, power off.

pub mod deadman;
pub(crate) mod drain;
pub(crate) mod final_upload;
pub mod outputs;
pub(crate) mod shutdown_deadline;
pub(crate) mod unsaved_files;
