//! The agent: on the machine that trains, from the lease to the power switch.
//!
//! ```text
//!   boot ──> tick (wake, observe, decide, act) ──> drain ──> power off
//!              │ observe: senses, workload, notices, wishes, marks
//!              │ decide:  policy::watch::supervise, alone
//!              └ act:     save, restart, stacks, notify, end
//!   beside it, each a task that never blocks the loop: heartbeat, journal, samples, metrics, logship, checkpoints
//! ```
//! The workload is not ours to touch except through a decision: it runs in a group of its own and outlives the agent.
//! What must never live here: a file, a clock, a driver (those are ports), or an opinion (those are policies).

mod act;
pub mod activity_board;
pub mod checkpoint;
mod decide;
mod fetch_wait;
pub mod log;
pub mod report;
mod run_loop;
mod runtime_clock;
pub mod shutdown;
mod spot_notice;
pub mod startup;
mod wake;
mod watch_workload;

pub use run_loop::{Agent, Finish, MEMORY, World};
pub use startup::attempt::{Attempt, Ending, Folders, Memory, Mode, start_dir};
