//! The nouns of one job and their records: what was promised and what happened.
//!
//! A **job** is work that the user wants done once. Its **spec** is immutable. Each try on one
//! machine is an **attempt**. An attempt starts from a **plan** and ends with an **outcome**. The
//! job ends with a **receipt**.
//!
//! Records in the job directory derive `Serialize` and carry a `format` number. Readers ignore
//! unknown fields. Clocks, files and decisions belong elsewhere (`policy` decides).

mod id;
mod listen_address;
mod model;
pub(crate) mod record;
pub(crate) mod spec;
pub mod terminal_safe;
mod tf_config;
pub(crate) mod tune;

pub use id::{AttemptNo, CheckpointNo, IdError, JobId};
pub use listen_address::{ListenAddress, ListenAddressError};
pub use model::{
    DefaultVersion, ModelFile, ModelFramework, ModelFrameworkError, ModelName, ModelNameError,
    ModelRecord, ModelVersion, ServeCommand,
};
pub use record::attempt::{AttemptPhase, Ending, Lease, Refusal, Settled};
pub use record::attention::Attention;
pub use record::checkpoint::{
    CheckpointLink, CheckpointSummary, Manifest, ManifestEntry, NEVER_RESTS, link_depth,
};
pub use record::checkpoint_step::{
    STEP_FILE_BYTES_MAX, checkpoint_step, counts_pieces, is_log_name, may_tell_step,
};
pub use record::continuation::{Continues, Inherited, KeptMachine};
pub use record::discarded::{Discarded, GivenUp, KindError, StoredKind};
pub use record::format::RECORD_FORMAT;
pub use record::gang::membership::{
    EpochCause, EpochOver, EpochRecord, Formation, GangEnd, GangEndCause, GangReady, RankMark,
    RankStart,
};
pub use record::market_log::MarketLog;
pub use record::numbers::Numbers;
pub use record::outcome::{EndedBecause, ExitStatus, JobOutcome, Outcome};
pub use record::phase::JobState;
pub use record::plan::{GangLaunch, LaunchRequest, Plan, RejectedOffer, Shutdown, Starts};
pub use record::progress::{Progress, ProgressError, ProgressLine};
pub use record::proof::{EndedBy, Proof, Switch, Trial, Tried};
pub use record::reason::Reason;
pub use record::receipt::{
    AttemptRecord, Leaving, LeavingFate, Receipt, ReceiptAttempt, absence, is_absence,
};
pub use record::request::{Request, Wish};
pub use spec::alarm::{AlarmError, AlarmRule};
pub use spec::check::{CHECKPOINT_SIGNALS, COMMAND_PLACEHOLDER, JOB_DIR_URL, check, name_problem};
pub use spec::finding::{Finding, FindingCause, KeySuggestion, Severity};
pub use spec::gang::gang_member::{
    GangKey, GangMember, GangSeat, leader_key, member_job, member_key, member_name, seats_of,
};
pub use spec::gang::gang_role::GangRole;
pub use spec::gang::gang_spec::{
    DoneRule, GangEngine, GangSaves, GangSpec, NODES_MAX, NodeCount, NodeCountError, RoleCount,
    RoleMachine,
};
pub use spec::gang::member_specs::{machine_kinds, other_members, seat_leader};
pub use spec::glob::{GLOB_LETTERS, OutputGlob, plain_path};
pub use spec::image::{ImageChoice, ImageError, Release, System, contents as image_contents};
pub use spec::launcher::is_launchers;
pub use spec::limits::{BOOT, LEASE, LimitsSpec, SETUP};
pub use spec::notify::{ChannelSecret, ChannelSpec, EmailSpec, EventKind, NotifySpec};
pub use spec::schedule::{CatchUp, Overlap, Schedule, ScheduleRun, ScheduleSpec, Waiting};
pub use spec::secret::{SECRET_BYTES_MAX, SECRET_WORDS, SecretSource};
pub use spec::shell::{setup_argv, shell_word, shown};
pub use spec::signal::signal_name;
pub use spec::spec::{
    ALONE_WRITER, Applied, CheckpointSpec, CodeArchive, CodeSource, Command, GpuSelection,
    IdleSpec, InterruptionsSpec, MachineSpec, MarketChoice, OnSpec, REHEARSAL, Reaction,
    ResolvedSpec, RetriesSpec, Spec, StallSpec, WatchSpec,
};
pub use tf_config::{ClusterJob, ClusterRole, ClusterTask, PrimaryRole, TfCluster};
pub use tune::metric_series::{MetricPoint, MetricSeries};
pub use tune::param::{ParamScale, ParamValue, TuneParam};
pub use tune::records::{
    TrialFate, TrialPaused, TrialPruned, TrialResumed, TuneTrial, TuneTrialEnd, Tuning, TuningEnd,
    TuningEndedBecause,
};
pub use tune::tune_spec::{EarlyStop, METRIC_TAG, TuneAlgorithm, TuneGoal, TuneSpec};
pub use tune::tuned_trial::{ParamValues, TunedTrial};
