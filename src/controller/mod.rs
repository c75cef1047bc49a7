//! The controller: on the workstation, from a submitted job to its receipt.
//!
//! ```text
//!   drive, daemon_round ──> tick: observe ──> policy::lifecycle::reconcile ──> act ──> again
//!                                                                              │
//!        ┌──────────────────┬───────────────────┬──────────────────────────────┤
//!   JobLauncher         Settler           OrphanSweeper                   JobNotifier
//!   launch/             settle/           sweep/                          notify/
//!   plans, launches     ends, bills       machines that no job needs      messages to the user
//! ```
//! `drive` follows one job until its receipt, or all jobs of the root (the daemon). `daemon_round`
//! reads the jobs with news, out of ten thousand. Each of the four parts has the job root
//! (`Store`), the `Clouds`, the `Clocks`, and the name of this controller. `entry_points` lists the
//! calls from outside.
//!
//! All state is in the job directory and in the machines' tags. A controller may be killed at any
//! moment, and another one continues. Two at once do no harm: a plan is created once, and a launch
//! is idempotent. Memory holds only a controller's own observations and a cache of constant
//! records. Adapters and decisions belong elsewhere.

mod act;
mod act_result;
mod attempt_memory;
mod clocks;
mod cloud_answers;
mod clouds;
#[expect(clippy::module_inception, reason = "the type that the folder is named for")]
mod controller;
mod daemon_round;
mod drive;
mod entry_points;
mod job_memory;
pub(crate) mod launch;
pub(crate) mod notify;
mod observe;
mod retry_delay;
mod root_memory;
pub(crate) mod settle;
pub(crate) mod sweep;
mod tick;

pub use act_result::{ActError, DriveError, NotNow, Ticked, Unready};
pub use controller::Controller;
pub use job_memory::JobMemory;
pub use launch::agent_shipping::{SYSTEMD_MIN, ShipError, Shipper};
pub use launch::continue_job::{Kept, continuation_of};
pub use launch::current_caps::CapsInForce;
pub use launch::market_memory::Outlook;
pub use launch::plan::Planned;
pub use launch::scheduled_runs::ScheduleMemory;
pub use launch::submit::{Archive, SubmitError, WORTH_WAITING, applied_id, submit, upload_code};
pub use launch::user_data::{Bootstrap, BootstrapError, BoxEndpoint};
pub use settle::release_kept::GaveUp;
pub use sweep::sweeper::{EndAnswer, Everywhere, Judged, SECOND_LOOK, SweepFindings};
