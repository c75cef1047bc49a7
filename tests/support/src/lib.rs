//! Stand-ins that several test programs share. Not here: expectations of one subject.

#![allow(clippy::disallowed_methods, reason = "stand-ins for the world: files, clocks, processes")]

pub mod counting_store;
pub mod ec2;
pub mod fake_nvml;
pub mod faulty_store;
pub mod fleet;
pub mod imds;
pub mod inline_files;
#[cfg(feature = "lamp")]
pub mod job_context;
pub mod live_check;
pub mod moto;
mod skipped;
pub mod small_agent;
pub mod virtual_clock;

pub use skipped::skipped;
