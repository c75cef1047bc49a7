//! The agent: on the machine that trains, from the lease to the power switch.
//!
//! ```text
//!   boot ──> tick (wake, observe, decide, act) ──> drain ──> power off
//!              │ observe: senses, workload, notices, wishes, marks
//!              │ decide:  policy::supervise, alone
//!              └ act:     save, restart, stacks, notify, end
//!   beside it, each a task that never blocks the loop: heartbeat, journal, samples, logship, checkpoints
//! ```
//! The workload is not ours to touch except through a decision: it runs in a group of its own and outlives the agent.
//! What must never live here: a file, a clock, a driver (those are ports), or an opinion (those are policies).

mod checkpoint_restore;
mod checkpoint_upload;
mod checkpoint_watch;
pub mod checkpoints;
pub mod cli;
pub mod environment;
pub mod heartbeat;
pub mod journal;
pub mod logship;
pub mod marks;
pub mod notices;
pub mod outbox;
pub mod outputs;
pub mod preflight;
pub mod samples;
pub mod stacks;
