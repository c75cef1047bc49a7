//! One simulated job from submit to receipt.

pub(crate) mod continue_job;
pub(crate) mod drivers;
pub(crate) mod play;
pub(crate) mod user_job;
