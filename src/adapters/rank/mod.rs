//! The machine of one rank of a gang: its address, and the engine as a process.

pub mod rank_machine;
pub mod rank_network;
mod rank_process;
