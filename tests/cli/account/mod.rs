//! The set-up of an account, and its permissions.

pub(crate) mod check;
pub(crate) mod check_market;
#[cfg(feature = "aws")]
pub(crate) mod credentials;
pub(crate) mod doctor;
pub(crate) mod doctor_subnets;
pub(crate) mod init;
#[cfg(feature = "aws")]
pub(crate) mod live_check;
#[cfg(feature = "aws")]
pub(crate) mod no_credentials;
pub(crate) mod permissions;
pub(crate) mod permissions_setup;
pub(crate) mod setup;
pub(crate) mod setup_bucket;
pub(crate) mod setup_race;
pub(crate) mod setup_root;
pub(crate) mod setup_subnets;
#[cfg(feature = "aws")]
pub(crate) mod sign_on;
#[cfg(feature = "aws")]
pub(crate) mod uninit;
