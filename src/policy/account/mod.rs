//! Decisions on an account: what its setup needs, what a proof shows, what `doctor` says.

pub mod active_drivers;
pub mod doctor;
pub mod setup_plan;
pub mod shutdown_proof;
#[cfg(feature = "lamp")]
pub mod subnet_egress;
pub mod sweeper_plan;
pub mod sweeper_proof;
