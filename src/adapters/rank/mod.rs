//! The machine of one rank of a gang: its address, and the engine as a process.

pub mod local_rank_host;
mod rank_process;
