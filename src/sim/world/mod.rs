//! The simulated world: cloud, instances, store, processes, sensors, bills.

pub(crate) mod active_faults;
pub(crate) mod billing;
pub(crate) mod cloud_port;
pub(crate) mod disk;
pub(crate) mod foreign_machines;
pub(crate) mod host;
pub(crate) mod host_ports;
pub(crate) mod machines;
pub(crate) mod offers;
pub(crate) mod process;
pub(crate) mod process_ports;
pub(crate) mod sensors;
pub(crate) mod store;
pub(crate) mod training_checkpoints;
pub(crate) mod watchdog;
pub(crate) mod workload;
pub(crate) mod world;
