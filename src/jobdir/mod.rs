//! The job directory: the only channel between controller and agent, and the truth about a job.
//!
//! ```text
//!   jobs/<job>/spec.json  receipt.json  code/<sha256>.tar.zst     controller, once
//!   jobs/<job>/requests/<n>.json                                  anyone, once each
//!   jobs/<job>/attempts/<n>/plan.json  ending.json  settled.json  controller, once
//!   jobs/<job>/attempts/<n>/lease.json  outcome.json              agent, once
//!   jobs/<job>/attempts/<n>/status.json                           agent, overwritten
//!   jobs/<job>/attempts/<n>/{events,samples,log,stacks}/...       agent, once each
//!   jobs/<job>/checkpoints/<n>/...  manifest.json                 agent, once, manifest last
//!   jobs/<job>/told/<what>.json                                   controller, once each
//!   jobs/<job>/waiting.json  market.json  attention.json          controller, overwritten
//!   jobs/<job>/given-up.json                                      lamp, once, when resources are given up
//!   jobs/<job>/outputs/...                                        agent
//!   jobs/<job>/discarded.json                                     lamp, overwritten (stored_data.rs)
//!   news/<job>/...                                                every writer (change_markers.rs)
//!   schedules/<set>/<name>...                                     lamp apply, daemon (schedule_dir.rs)
//!   sweeper/<name>/suspects.json  visit.json                      sweeper, overwritten (sweeper_dir.rs)
//!   jobs-over.json                                                controller, overwritten (finished_jobs.rs)
//!   market/<zone>/<type>.json                                     controller, overwritten: spot pools
//!   agents/<sha256>/lamp-agent  checked                           controller: the program for machines
//!   clock                                                         any reader of the store's time; empty
//!   proofs/<account>/<region>.json                                each prover, overwritten (proof_dir.rs)
//! ```
//! Each key has one writer. Create-if-absent is the only primitive for agreement. Records carry a
//! format number: readers ignore unknown fields and refuse a newer format with an error that says
//! so. Not here: a decision, or a particular store.

mod change_markers;
mod finished_jobs;
mod job_dir;
mod journal;
pub mod layout;
mod proof_dir;
mod record;
mod retry_write;
mod schedule_dir;
mod stored_data;
mod sweeper_dir;

pub use change_markers::{JobNews, News, has_news, news};
pub use finished_jobs::{JobsOver, jobs_over, put_jobs_over};
pub use job_dir::{JobDir, JobDirError, jobs, unless_damaged};
pub use journal::{Event, What};
pub use proof_dir::{ProofDir, proof_keys};
pub use record::{RecordError, decode, encode};
pub use retry_write::{insist, is_silence};
pub use schedule_dir::{ScheduleDir, schedules};
pub use stored_data::{is_code_alone, stored_kind};
pub use sweeper_dir::SweeperDir;
