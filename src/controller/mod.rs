//! The controller: on the workstation, from a submitted job to its receipt.
//!
//! ```text
//!   submit ──> spec.json                                   the job exists
//!   drive  ──> observe (records, the cloud's answer) ──> policy::lifecycle::reconcile ──> act ──> again, until the receipt
//!   drive_all ─ the same for every job of the root, and what is scheduled becomes a job         the daemon
//!   sweep  ──> machines that no job needs, every five minutes and for `lamp sweep`
//!   visit     ─ the same in the cloud, without memory between two rounds
//!   round     ─ reads the jobs with news, out of ten thousand; the others rest
//!   clocks    ─ the job root's clock counts, where this one is wrong
//!   bootstrap ─ what a new machine runs first: the dead-man's switch, then the agent
//! ```
//! All state is in the job directory and in the machines' tags. A controller may be killed at any
//! moment, and another one continues. Two at once do no harm: a plan is created once, and a launch
//! is idempotent. Memory holds only a controller's own observations and a cache of constant
//! records. Adapters and decisions belong elsewhere.

mod act;
mod attempt_memory;
mod cloud_answers;
mod daemon_round;
mod drive;
mod job_memory;
pub(crate) mod launch;
pub(crate) mod notify;
mod observe;
mod retry_delay;
pub(crate) mod settle;
pub(crate) mod sweep;

pub use act::ActError;
pub use drive::{Controller, DriveError, Ticked};
pub use job_memory::JobMemory;
pub use launch::agent_shipping::{SYSTEMD_MIN, ShipError, Shipper};
pub use launch::continue_job::{Kept, continuation_of};
pub use launch::current_caps::CapsInForce;
pub use launch::launchable::Unready;
pub use launch::market_memory::{NotNow, Outlook};
pub use launch::plan::Planned;
pub use launch::scheduled_runs::ScheduleMemory;
pub use launch::submit::{Archive, SubmitError, WORTH_WAITING, applied_id, submit, upload_code};
pub use launch::user_data::{Bootstrap, BootstrapError, BoxEndpoint};
pub use settle::release_kept::GaveUp;
pub use sweep::sweep::{EndAsked, Everywhere, Found, Judged, SECOND_LOOK};
