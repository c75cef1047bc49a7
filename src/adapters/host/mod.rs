//! The machine under this process: processors, memory, disk, network, processes, people, files,
//! time and power.

pub mod files;
pub(crate) mod kernel_file;
pub(crate) mod keyboard_activity;
pub(crate) mod logins;
pub(crate) mod monotonic_counter;
pub(crate) mod network;
pub(crate) mod nvml;
pub mod poweroff;
pub(crate) mod process_scope;
pub mod process_tree;
pub(crate) mod process_usage;
pub(crate) mod remove_tree;
pub(crate) mod resources;
pub mod sensor_thread;
pub mod sensors;
pub mod service_manager;
pub mod stack_dump;
pub mod system_clock;
pub mod terminals;
pub(crate) mod watched_fd;
