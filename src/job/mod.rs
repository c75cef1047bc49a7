//! What we promise and what happened: the nouns of one job and their records.
//!
//! A **job** is what the user wants done, once. Its **spec** is immutable. Every try on one machine is an **attempt**;
//! each attempt starts from a **plan**, ends with an **outcome**, and the job ends with a **receipt**.
//!
//! Records that are written to the job directory derive `Serialize` and carry a `format` number; readers ignore fields
//! that they do not know. What must never live here: a clock, a file, a decision (those are in `policy`).

mod alarm;
mod attempt;
mod attention;
mod check;
mod check_fit;
mod check_market;
mod check_script;
mod checkpoint;
mod checkpoint_step;
mod continuation;
mod discarded;
mod format;
mod given_up;
mod glob;
pub mod harmless;
mod id;
mod image;
mod launcher;
mod limits;
mod market_log;
mod numbers;
mod outcome;
mod phase;
mod plan;
mod progress;
mod proof;
mod reason;
mod receipt;
mod request;
mod schedule;
mod script;
mod secret;
mod shell;
mod signal;
mod spec;

pub use alarm::{AlarmError, AlarmRule};
pub use attempt::{AttemptPhase, Ending, Lease, Refusal, Settled};
pub use attention::Attention;
pub use check::{CHECKPOINT_SIGNALS, COMMAND_PLACEHOLDER, Finding, Severity, check, name_problem};
pub use checkpoint::{CheckpointFile, CheckpointLink, CheckpointSummary, Manifest, NEVER_RESTS, link_depth};
pub use checkpoint_step::{STEP_FILE_BYTES_MAX, checkpoint_step, is_log_name, may_tell_step};
pub use continuation::{Continues, Inherited, KeptMachine, Starts};
pub use discarded::{Discarded, KindError, StoredKind};
pub use format::RECORD_FORMAT;
pub use given_up::GivenUp;
pub use glob::{GLOB_LETTERS, OutputGlob, plain_path};
pub use id::{AttemptNo, CheckpointNo, IdError, JobId};
pub use image::{ImageChoice, ImageError, Release, System, contents as image_contents};
pub use launcher::is_launchers;
pub use limits::{BOOT, LEASE, LimitsSpec, SETUP};
pub use market_log::MarketLog;
pub use numbers::Numbers;
pub use outcome::{EndedBecause, ExitStatus, JobOutcome, Outcome};
pub use phase::JobState;
pub use plan::{LaunchRequest, Plan, RejectedOffer, Shutdown};
pub use progress::{Progress, ProgressError, ProgressLine};
pub use proof::{EndedBy, Proof, Switch, Trial, Tried};
pub use reason::Reason;
pub use receipt::{AttemptRecord, Leaving, LeavingFate, Receipt, ReceiptAttempt, is_absence};
pub use request::{Request, Wish};
pub use schedule::{Applied, CatchUp, Overlap, Schedule, ScheduleRun, ScheduleSpec, Waiting};
pub use secret::{SECRET_BYTES_MAX, SECRET_WORDS, SecretSource};
pub use shell::{setup_argv, shell_word, shown};
pub use signal::signal_name;
pub use spec::{
    ALONE_WRITER, CheckpointSpec, CodeArchive, CodeSource, Command, GpuSelection, IdleSpec, InterruptionsSpec, MachineSpec, MarketChoice, NotifySpec,
    OnSpec, REHEARSAL, Reaction, ResolvedSpec, RetriesSpec, Spec, StallSpec, WatchSpec,
};
