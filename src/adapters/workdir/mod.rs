//! The code archive of a job: packed on the workstation, searched for secrets, unpacked on the
//! machine.

#[cfg(feature = "lamp")]
pub(crate) mod default_ignores;
#[cfg(feature = "lamp")]
pub(crate) mod git_tracked;
#[cfg(feature = "lamp")]
pub mod pack;
#[cfg(feature = "lamp")]
pub(crate) mod secret_rules;
#[cfg(feature = "lamp")]
pub mod secret_scan;
pub mod unpack;
