//! The job directory: the only channel between controller and agent, and the truth about a job.
//!
//! ```text
//!   jobs/<job>/spec.json  receipt.json  code/<sha256>.tar.zst   controller, once
//!   jobs/<job>/requests/<n>.json                                anyone, once each
//!   jobs/<job>/attempts/<n>/{plan,ending,settled}.json          controller, once
//!   jobs/<job>/attempts/<n>/{lease,outcome}.json                agent, once
//!   jobs/<job>/attempts/<n>/status.json                         agent, overwritten
//!   jobs/<job>/attempts/<n>/{events,samples,log,stacks}/...     agent, once each
//!   jobs/<job>/checkpoints/<n>/...  manifest.json               agent, once, manifest last
//!   jobs/<job>/told/<what>.json                                 controller, once each
//!   jobs/<job>/{waiting,market,attention}.json                  controller, overwritten
//!   jobs/<job>/given-up.json                                    lamp, once
//!   jobs/<job>/outputs/...                                      agent
//!   jobs/<job>/discarded.json                                   lamp, overwritten
//!   news/<job>/...                                              every writer of records
//!   schedules/<set>/<name>...                                   lamp apply, daemon
//!   tunings/<name>/...                                          lamp tune, controller
//!   models/<model>/{model,versions/<version>}.json              lamp models, once
//!   models/<model>/files/<version>/<upload>/...                 lamp models, once each
//!   models/<model>/default.json                                 lamp models, overwritten
//!   sweeper/<name>/{suspects,visit}.json                        sweeper, overwritten
//!   jobs-over.json                                              controller, overwritten
//!   market/<zone>/<type>.json                                   controller, overwritten
//!   agents/<sha256>/lamp-agent  checked                         controller
//!   clock                                                       any clock reader; empty
//!   proofs/<account>/<region>.json                              prover, overwritten
//! ```
//! Each key has one writer. Create-if-absent is the only primitive for agreement. Records carry a
//! format number: readers ignore unknown fields and refuse a newer format with an error that says
//! so. Not here: a decision, or a particular store.

mod change_markers;
mod error;
mod finished_jobs;
mod gang_dir;
mod job_dir;
mod journal;
pub mod layout;
mod model_dir;
mod proof_dir;
mod record;
mod retry_write;
mod schedule_dir;
mod stored_data;
mod sweeper_dir;
mod tuning_dir;

pub use change_markers::{JobNews, News, has_news, news};
pub use error::{JobDirError, RecordError, unless_damaged};
pub use finished_jobs::{JobsOver, jobs_over, put_jobs_over};
pub use gang_dir::GangDir;
pub use job_dir::{JobDir, jobs};
pub use journal::{Event, EventDetail};
pub use model_dir::{ModelDir, models};
pub use proof_dir::{ProofDir, proof_keys};
pub use record::{decode, encode};
pub use retry_write::{insist, is_silence};
pub use schedule_dir::{ScheduleDir, schedules};
pub use stored_data::{is_code_alone, stored_kind};
pub use sweeper_dir::SweeperDir;
pub use tuning_dir::{TuningDir, tunings};
