//! `lamp simulate` and `lamp replay`: a job in the simulated world, rules over a recording.

pub(crate) mod replay_idle;
pub(crate) mod replay_market;
pub(crate) mod simulate;
pub(crate) mod text;
pub(crate) mod world;
