//! The world: every implementation of a port, and the small readers they share.
//!
//! The only folder that asks the operating system for time, environment, files, processes or randomness. What must never
//! live here: a decision; an adapter answers what is, and does what it is told.

pub mod child_workload;
mod held_workload;
pub mod holder;
mod holder_cgroup;
mod holder_echo;
mod holder_log;
mod holder_records;
mod holder_signals;
mod holder_spawn;
pub mod holder_start;
pub mod local_files;
pub mod notify;
mod object_file;
mod object_s3;
pub mod objects;
pub mod poweroff;
pub mod proc_tree;
pub mod system_clock;
pub mod unit_workload;
