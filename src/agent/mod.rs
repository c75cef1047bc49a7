//! The agent: on the machine that trains, from the lease to power-off.
//!
//! ```text
//!   boot ──> tick (wake, observe, decide, act) ──> drain ──> power off
//!              │ observe: sensors, workload, notices, requests, marks
//!              │ decide:  policy::watch::supervise, alone
//!              └ act:     save, restart, stacks, notify, end
//!   beside it, tasks that never block the loop: heartbeat, journal, samples, log, checkpoints, ...
//! ```
//! The agent touches the workload only after a decision: it runs in its own group and outlives the
//! agent. Not here: a file, a clock, a driver (these are ports), or a judgement (these are
//! policies).

mod act;
pub mod activity_counters;
#[expect(clippy::module_inception, reason = "the type that the folder is named for")]
mod agent;
pub mod checkpoint;
mod decide;
pub mod gang;
mod guarded_wait;
mod limits;
pub mod log;
mod notice_tracker;
mod observe;
pub mod report;
mod run_loop;
pub mod shutdown;
pub mod startup;
mod timers;
mod wake;
mod watch_workload;
mod workload_start;
mod workload_stop;

pub use agent::{Agent, AgentPorts, Finish};
pub use startup::attempt::{
    AGENT_STATE_FILE, AgentState, Attempt, Folders, Mode, PendingEnd, start_dir,
};
