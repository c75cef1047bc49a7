//! Decides which files of the checkpoint folder are complete, and which step they hold.
//!
//! ```text
//!   looks at the folder, signs of the workload ──> FolderWatch ──> the complete files, or none yet
//! ```
//! No module here reads a file or a clock: the worker looks, and the upload sends.

pub(crate) mod checkpoint_unit;
pub(crate) mod complete_set;
#[cfg(test)]
mod completeness_tests;
pub(crate) mod cut_files;
pub(crate) mod declared;
pub(crate) mod file_motion;
pub(crate) mod file_names;
pub(crate) mod folder_diff;
pub(crate) mod folder_watch;
#[cfg(test)]
mod folder_watch_tests;
pub(crate) mod inner_saves;
#[cfg(test)]
mod layout_tests;
pub(crate) mod saved_steps;
#[cfg(test)]
mod script_tests;
pub(crate) mod torn_writes;
pub(crate) mod unit_snapshot;
pub(crate) mod units;
pub(crate) mod workload_signals;
