//! The process between agent and workload: it starts the workload, keeps its output and records its
//! end.

pub(crate) mod cgroup;
pub(crate) mod echo;
pub(crate) mod log_segments;
pub mod main;
pub(crate) mod pseudo_terminal;
pub(crate) mod records;
pub(crate) mod redrawn_lines;
pub(crate) mod signals;
pub(crate) mod spawn;
pub mod start;
pub(crate) mod terminal_rows;
