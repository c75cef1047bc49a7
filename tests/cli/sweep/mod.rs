//! Machines that no job needs, and what ends a machine.

pub(crate) mod alarms;
pub(crate) mod kept_machines;
#[cfg(feature = "aws")]
pub(crate) mod prove;
#[cfg(feature = "aws")]
pub(crate) mod prove_sweeper;
pub(crate) mod stray_machines;
#[cfg(feature = "aws")]
pub(crate) mod sweep;
#[cfg(feature = "aws")]
pub(crate) mod sweeper;
#[cfg(feature = "aws")]
pub(crate) mod sweeper_setup;
#[cfg(feature = "aws")]
pub(crate) mod unanswered_root;
