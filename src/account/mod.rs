//! The setup of a cloud account: roles, permissions, bucket, sweeper, and the state found
//! there.

mod inventory;
pub mod lookup;
pub mod permissions;
pub mod setup;
pub mod sweeper;
pub mod sweeper_visit;

pub use inventory::{ForeignMachine, Residue};
