//! The agent: on the machine that trains, from the lease to the power switch.
//!
//! ```text
//!   boot ──> tick (wake, observe, decide, act) ──> drain ──> power off
//!              │ observe: senses, workload, notices, wishes, marks
//!              │ decide:  policy::supervise, alone
//!              └ act:     save, restart, stacks, notify, end
//!   beside it, each a task that never blocks the loop: heartbeat, journal, samples, metrics, logship, checkpoints
//! ```
//! The workload is not ours to touch except through a decision: it runs in a group of its own and outlives the agent.
//! What must never live here: a file, a clock, a driver (those are ports), or an opinion (those are policies).

mod act;
mod ahead;
pub mod alone;
mod attempt;
pub mod boot;
mod checkpoint_back;
mod checkpoint_doubt;
mod checkpoint_held;
#[cfg(test)]
mod checkpoint_laws;
mod checkpoint_mark;
mod checkpoint_motion;
mod checkpoint_names;
mod checkpoint_picture;
mod checkpoint_restore;
mod checkpoint_ripe;
mod checkpoint_signs;
mod checkpoint_units;
mod checkpoint_upload;
mod checkpoint_watch;
mod checkpoint_worker;
pub mod checkpoints;
pub mod cli;
pub mod deadman;
mod drain;
pub mod environment;
pub mod fetching;
mod going_back;
pub mod heartbeat;
pub mod journal;
mod judge;
mod last_lives;
mod log_scan;
mod log_shipper;
pub mod logship;
pub mod marks;
pub mod metrics;
pub mod notices;
mod observe;
pub mod outbox;
mod output;
pub mod outputs;
mod packer;
mod patience;
pub mod preflight;
mod prepare;
mod printed;
mod printed_steps;
pub mod progress_tail;
mod ran;
mod requests;
mod rest;
pub mod samples;
mod saving;
mod short_lives;
pub mod stacks;
mod tick;
mod troubles;
mod unkept;
mod wake;
mod warning;

pub use attempt::{Attempt, Ending, Folders, Memory, Mode, start_dir};
pub use tick::{Agent, Finish, MEMORY, World};
