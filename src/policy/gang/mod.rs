//! Decisions of a gang: when it forms, what a failed epoch counts as, and how a rank is started.

pub mod epoch_decision;
pub mod rank_command;
pub mod rank_environment;
pub mod rank_launch;
