//! The world: every implementation of a port, and the small readers they share.
//!
//! The only folder that asks the operating system for time, environment, files, processes or randomness. What must never
//! live here: a decision; an adapter answers what is, and does what it is told.

#[cfg(feature = "lamp")]
pub mod local_cloud;
pub mod local_files;
pub mod local_folder;
pub mod local_machine;
pub mod local_metadata;
pub mod local_power;
pub mod notify;
mod object_file;
mod object_s3;
pub mod objects;
pub mod poweroff;
pub mod proc_tree;
pub mod system_clock;
