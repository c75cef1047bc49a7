//! NVIDIA GPUs through NVML: the library, one GPU, its utilisation, its health and its errors.

pub(crate) mod gpu;
mod health;
pub(crate) mod library;
pub(crate) mod utilization;
pub(crate) mod xid_events;
