//! The controller: on the workstation, from a submitted job to its receipt.
//!
//! ```text
//!   submit ──> spec.json                                   the job exists
//!   drive  ──> observe (records, the cloud's answer) ──> policy::reconcile ──> act ──> again, until the receipt
//!   drive_all ─ the same for every job of the root, and what is scheduled becomes a job         the daemon
//!   sweep  ──> machines that no job needs, every five minutes and for `lamp sweep`
//!   visit     ─ the same from within the cloud, where nothing is remembered between two rounds
//!   round     ─ of ten thousand jobs, those in which something is new are read, the others rest
//!   clocks    ─ the job root's clock counts, where this one is wrong
//!   bootstrap ─ what a new machine runs first: the dead-man's switch, then the agent
//! ```
//! Everything that matters is in the job directory and in the machines' tags: a controller may be killed at any moment and
//! another one goes on, and two at once do no harm, because the plan is created only once and a launch is idempotent. What
//! one controller keeps in memory is what it watched with its own eyes, and a cache of records that never change. What must
//! never live here: an adapter, a decision.

mod act;
mod alert;
mod answers;
mod attempt_memory;
mod backoff;
mod beats;
mod begin;
mod billed;
pub mod bootstrap;
mod cap;
mod caps_in_force;
mod certainty;
mod clocks;
mod continuation;
mod drive;
mod ending;
mod give_up;
mod guarding;
mod hosts;
mod keeping;
mod launch;
mod leavings;
mod ledger;
mod market;
mod memory;
mod notify;
mod observe;
mod pace;
mod permitted;
mod planning;
mod ready;
mod round;
mod schedule;
pub mod ship;
mod submit;
mod sweep;
mod sweeping;
mod visit;

pub use act::ActError;
pub use bootstrap::{Bootstrap, BootstrapError, BoxEndpoint};
pub use caps_in_force::CapsInForce;
pub use continuation::{Kept, continuation_of};
pub use drive::{Controller, DriveError, Ticked};
pub use give_up::GaveUp;
pub use market::{NotNow, Outlook};
pub use memory::JobMemory;
pub use planning::Planned;
pub use ready::Unready;
pub use schedule::ScheduleMemory;
pub use ship::{SYSTEMD_MIN, ShipError, Shipper};
pub use submit::{Archive, SubmitError, WORTH_WAITING, applied_id, submit, upload_code};
pub use sweep::{EndAsked, Everywhere, Found, Judged, SECOND_LOOK};
