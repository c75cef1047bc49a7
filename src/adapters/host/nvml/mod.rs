//! NVIDIA GPUs through NVML: the library, one GPU, its utilisation and its errors.

pub(crate) mod gpu;
pub(crate) mod library;
pub(crate) mod utilization;
pub(crate) mod xid_events;
