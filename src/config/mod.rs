//! Everything between the user's words and an immutable `job::Spec`.
//!
//! ```text
//! environment ─┐
//! user config ─┼─ settings, each with its origin ─ findings, all at once ─ job::Spec
//! job file ────┤
//! flags ───────┘
//! ```
//!
//! `values` reads single values, `job_file` has the files as written, `decode` finds every mistake,
//! `settings` merges, `workstation_checks` asks this workstation. Not here: a decision about a
//! running job, a store, or a cloud.

mod automation;
pub mod config_edit;
mod decode;
mod document;
mod env;
mod error;
mod file_suggest;
mod gang;
mod job_file;
mod job_root;
mod key_suggest;
mod load;
mod notify;
mod schema;
mod schema_patterns;
mod settings;
mod source_file;
mod tune;
mod union_values;
mod user;
mod values;
mod workstation_checks;

pub use automation::{CapsFile, CatchUpWord, OverlapWord, PurseFile, ScheduleFile};
pub use document::JOB_FILE;
pub use env::Environment;
pub use error::ConfigError;
pub use gang::{GangFile, RoleFile};
pub use job_file::{
    AwsFile, CheckpointFile, InterruptionsFile, JobFile, LimitsFile, MachineFile, OnFile,
    RetriesFile, UserFile, WatchFile,
};
pub use job_root::{JobRoot, job_root};
pub use key_suggest::{closest, did_you_mean};
pub use load::{COMMAND_LINE, Loaded, load_job, read_job, shown};
pub use notify::NotifyFile;
pub use schema::{job_schema, key_paths, user_schema};
pub use settings::{Inputs, WORKDIR_BYTES_MAX};
pub use tune::{
    AlgorithmWord, EarlyStopWord, GoalWord, ParamFile, ParamTypeWord, ScaleWord, TuneFile,
};
pub use union_values::{CommandWord, EnvPair, EnvValue, ScriptWord, SecretPair};
pub use user::{CapsReader, UserConfig, load_user, load_user_all_the_same};
pub use values::{
    Bytes, CloudWord, CountOrUnlimited, DiskGib, Dollars, FallbackCostWord, Gpus, Hourly,
    MarketWord, Moment, NodesWord, Price, Rate, ReactionWord, SecretWord, SpanOrOff, SpanWord,
    WordError,
};
pub use workstation_checks::is_made_by_setup;
