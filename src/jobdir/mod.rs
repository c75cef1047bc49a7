//! The job directory: the only channel between controller and agent, and the truth about a job.
//!
//! ```text
//!   jobs/<job>/spec.json  receipt.json  code/<sha256>.tar.zst   controller, once
//!   jobs/<job>/requests/<n>.json                                anybody, once each
//!   jobs/<job>/attempts/<n>/plan.json  ending.json  settled.json   controller, once
//!   jobs/<job>/attempts/<n>/lease.json  outcome.json            agent, once
//!   jobs/<job>/attempts/<n>/status.json                         agent, overwritten
//!   jobs/<job>/attempts/<n>/{events,samples,log,stacks}/...     agent, once each
//!   jobs/<job>/checkpoints/<n>/...  manifest.json               agent, once, manifest last
//!   jobs/<job>/told/<what>.json                                 controller, once each
//!   jobs/<job>/waiting.json  market.json  attention.json        controller, overwritten
//!   jobs/<job>/given-up.json                                    whoever gave up what an ended job kept, once
//!   jobs/<job>/outputs/...                                      agent
//!   jobs/<job>/discarded.json                                   whoever discards what an ended job has stored, overwritten (stored.rs)
//!   news/<job>/...                                              whoever wrote something new, where a look costs money (news.rs)
//!   schedules/<set>/<name>...                                   lamp apply and the daemon (schedules.rs)
//!   sweeper/<name>/suspects.json  visit.json                    the sweeper in the cloud, overwritten (sweeper.rs)
//!   jobs-over.json                                              who launches under a cap, overwritten (over.rs)
//!   market/<zone>/<type>.json                                   what is known of a spot pool, a controller, overwritten
//!   agents/<sha256>/lamp-agent  checked                         the program that machines run, controller
//!   clock                                                       who asks the store for the time; empty, overwritten
//!   proofs/<account>/<region>.json                              whoever proves that machines end, overwritten (proofs.rs)
//! ```
//! One writer per key; create-if-absent is the only primitive for agreement. Records carry a format number: readers
//! ignore unknown fields and refuse a newer format with a sentence that says so. What must never live here: a decision,
//! a particular store.

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
