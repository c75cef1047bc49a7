//! Real workloads behind real holders.

pub(crate) mod workload;
pub(crate) mod workload_ask;
pub(crate) mod workload_end;
pub(crate) mod workload_memory;
pub(crate) mod workload_output;
pub(crate) mod workload_tree;
pub(crate) mod workload_unheard;
pub(crate) mod workload_units;
