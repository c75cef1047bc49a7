//! Decisions about an account: the steps of its setup, the meaning of a proof, the checks of
//! `doctor`.

pub mod active_drivers;
pub mod doctor;
pub mod setup_plan;
pub mod shutdown_proof;
#[cfg(feature = "lamp")]
pub mod subnet_egress;
pub mod sweeper_plan;
pub mod sweeper_proof;
