//! `lamp simulate` and `lamp replay`: a job in a simulated world, and rules on a recording.

pub(crate) mod replay_idle;
pub(crate) mod replay_market;
pub(crate) mod simulate;
pub(crate) mod text;
pub(crate) mod world;
