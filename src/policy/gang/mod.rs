//! Decisions of a gang: when it forms, what a failed epoch counts as, and how a rank is started.

pub mod engine_probe;
pub mod epoch_decision;
pub mod gang_verdict;
pub mod mpi_engine;
pub mod rank_command;
pub mod rank_environment;
pub mod rank_launch;
pub mod rank_place;
pub mod ray_engine;
