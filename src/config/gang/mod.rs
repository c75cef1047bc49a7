//! The table `[gang]` of a job file.

mod gang_file;
mod gang_settings;

pub use gang_file::{GangFile, RoleFile};
pub(crate) use gang_settings::{GangWords, gang_of};
