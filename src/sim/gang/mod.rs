//! One job on several machines in the simulated world: its ranks, their engines and their faults.
//!
//! ```text
//!   gang_play ──> a job for each rank ──> shipped controller, shipped agents
//!                                                  │ starts as the workload
//!   gang_faults ──> gang_world <── training <── rank_program: the shipped program of a rank
//! ```
//! Not here: its laws (`super::laws::gang_laws`).

pub(crate) mod gang_faults;
pub(crate) mod gang_play;
pub(crate) mod gang_world;
pub(crate) mod rank_program;
pub(crate) mod training;
