//! The workload of a job: a process, a systemd unit or a whole machine; its signals, environment,
//! files and containers.

pub(crate) mod containers;
pub(crate) mod foreign_links;
pub(crate) mod held_signals;
pub(crate) mod held_workload;
pub mod holder;
pub(crate) mod kill_rounds;
#[cfg(feature = "lamp")]
pub(crate) mod local_environment;
pub mod login_environment;
pub(crate) mod open_files;
pub mod process;
pub mod saved_environment;
pub mod secret_workloads;
pub(crate) mod signal_request;
pub(crate) mod signal_targets;
pub mod systemd_unit;
pub mod then_command;
pub mod whole_machine;
