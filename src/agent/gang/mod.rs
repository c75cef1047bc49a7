//! The program of one rank, between the agent and the engine that the user's command runs under.
//!
//! ```text
//!   ready ──> formed ──> engine runs ──┬─ all finished ──────────────> the gang is done
//!     ^                                └─ a rank failed or was lost ─> the epoch is over ─┐
//!     └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! The agent starts it as the workload, watches it and saves checkpoints as for one machine. It
//! talks to the other ranks through the job directory only, and opens no port for them.

mod gathering;
mod peers;
mod rank_run;
mod rank_state;
mod remote_start;
mod shared_checkpoint;

pub use rank_run::{PROCESS_MARK, RANK_PROGRAM, RankRun};
pub use rank_state::{RankPaths, RankPorts, RankSelf, read_resolved};
