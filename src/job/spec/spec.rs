//! The user's description of a job, immutable, with every default filled in.
//!
//! `config` builds it from the file and the flags. The controller writes it once as `spec.json`;
//! the agent obeys it. Lengths of time are [`Span`]s, so records read like the file (`"15m"`).
//! `None` means `off`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{
    AlarmRule, Continues, GangMember, GangSpec, Inherited, JobId, LimitsSpec, ListenAddress,
    SecretSource, Trial, TunedTrial,
};
use crate::market::{
    CloudKind, Cuda, FallbackCost, GpuRequirement, PriceRule, Span, Speeds, UsdPerHour,
};

/// `spec.json`: the spec as submitted, with facts found on the workstation at that moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedSpec {
    pub format: u32,
    pub job: JobId,
    pub created: Timestamp,
    /// The version of the program that wrote it.
    pub written_by: String,
    pub spec: Spec,
    /// The archive `code/<sha256>.tar.zst`; `None`: the job has no code.
    #[serde(default)]
    pub code: Option<CodeArchive>,
    /// The source of each setting that can cost money, by its dotted path: `flag`, `file`,
    /// `default`, `environment`.
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    /// The file that `lamp apply` made it from; `None`: a user ran it.
    #[serde(default)]
    pub applied: Option<Applied>,
    /// The submitter, if `applied` does not name one ([`ResolvedSpec::owner`]).
    #[serde(default)]
    pub owner: Option<String>,
    /// The job that it continues; `None`: it does not continue one.
    #[serde(default)]
    pub continues: Option<Continues>,
    /// The trial of a switch, without an agent; `None`: an ordinary job.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// The trial of a tuning; `None`: an ordinary job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<TunedTrial>,
}

/// The suffix of a rehearsal's job name.
pub const REHEARSAL: &str = "-rehearsal";

/// The beginning of `written_by` in the spec of an agent that runs alone.
pub const ALONE_WRITER: &str = "lamp-agent ";

impl ResolvedSpec {
    /// Whether its agent runs without a controller: it has no plan, and its machine is already
    /// there.
    pub fn is_alone(&self) -> bool {
        self.written_by.starts_with(ALONE_WRITER)
    }

    /// The owner until a plan names one: the first machine is bought with the owner's money.
    /// `None`: an older version wrote it, and the first planner owns it.
    pub fn owner(&self) -> Option<&str> {
        self.applied
            .as_ref()
            .map(|applied| &applied.owner)
            .or(self.owner.as_ref())
            .map(String::as_str)
    }

    /// Its place in a gang; `None`: one machine does the job.
    pub fn member(&self) -> Option<&GangMember> {
        self.spec.gang.as_ref()?.member.as_ref().filter(|member| member.is_sound())
    }

    /// The jobs of all ranks, rank 0 first; of a job with one machine, itself.
    pub fn rank_jobs(&self) -> Vec<JobId> {
        let Some(member) = self.member() else { return vec![self.job.clone()] };
        member.seats.iter().map(|seat| seat.job.clone()).collect()
    }

    /// The checkpoint of the earlier job, until the job has its own.
    pub fn inherited(&self) -> Option<&Inherited> {
        self.continues.as_ref()?.checkpoint.as_ref()
    }
}

/// The job file and directory that a job came from. `lamp apply` changes only jobs with its own
/// label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The name of the directory, or the value of `--set`.
    pub set: String,
    /// Relative to the directory.
    pub file: String,
    /// SHA-256 of the file's bytes, lower-case hex.
    pub sha256: String,
    /// The user who applied it: users of one job root may have sets of the same name.
    pub owner: String,
    /// The due time of a scheduled run.
    #[serde(default)]
    pub due: Option<Timestamp>,
}

/// The packed workdir.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeArchive {
    pub files: u64,
    /// Bytes before and after compression.
    pub bytes: u64,
    pub packed_bytes: u64,
    /// SHA-256 of the archive, lower-case hex.
    pub sha256: String,
    /// SHA-256 of its files' names and contents, without dates and folders; `None`: an older
    /// version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Where it was packed; `None`: an older version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CodeSource>,
}

/// The folder that was packed. `lamp start` checks it for changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSource {
    /// The name of the workstation: the same path on another workstation is another folder.
    pub workstation: String,
    pub folder: String,
    /// The job file; `None`: only the command line.
    #[serde(default)]
    pub file: Option<String>,
    pub packed: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub name: String,
    pub command: Command,
    /// A shell script that runs once per attempt in the workdir before the command.
    #[serde(default)]
    pub setup: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secret variables of the command, and where each is read. Records never hold their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretSource>,
    /// The user's own tags of its machines and volumes, for costs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Paths or globs below the workdir that are kept at the end of every attempt.
    #[serde(default)]
    pub outputs: Vec<String>,
    #[serde(default)]
    pub machine: MachineSpec,
    #[serde(default)]
    pub watch: WatchSpec,
    #[serde(default)]
    pub limits: LimitsSpec,
    #[serde(default)]
    pub checkpoint: Option<CheckpointSpec>,
    #[serde(default)]
    pub on: OnSpec,
    #[serde(default)]
    pub retries: RetriesSpec,
    #[serde(default)]
    pub interruptions: InterruptionsSpec,
    /// Several machines that work as one; `None`: one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<Box<GangSpec>>,
}

#[cfg(test)]
impl Spec {
    /// A spec with a command and defaults.
    pub(crate) fn bare() -> Spec {
        serde_json::from_str(r#"{"name": "x", "command": {"args": ["true"]}}"#)
            .expect("the rest has defaults")
    }
}

/// A list is executed as it is; a shell runs a string (module `shell` says which shell).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    Args(Vec<String>),
    Shell(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSpec {
    pub cloud: CloudKind,
    pub gpus: GpuRequirement,
    /// The driver must run programs of this CUDA version.
    pub cuda: Option<Cuda>,
    pub instance_types: Vec<String>,
    pub regions: Vec<String>,
    /// `dlami`, `ami-...`, an SSM path or a name filter.
    pub image: String,
    pub disk_gib: u32,
    pub market: MarketChoice,
    pub max_price: PriceRule,
    /// How much a fallback machine may cost, as a multiple of the cheapest.
    pub fallback_cost: FallbackCost,
    /// The relative speed of the work on kinds of machines.
    #[serde(skip_serializing_if = "Speeds::is_empty")]
    pub speed: Speeds,
    /// The hourly cost of this machine, for `cloud = "local"`: electricity, a share of the
    /// purchase, a rehearsal's price.
    pub usd_per_hour: UsdPerHour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarketChoice {
    #[default]
    OnDemand,
    Spot,
    /// The market that finishes in time for less.
    Auto,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchSpec {
    pub idle: IdleSpec,
    pub stall: StallSpec,
    /// Which GPUs count; `Workload`: those that the workload uses, and all until that is known.
    pub gpus: GpuSelection,
    /// A regular expression for log lines. A match is progress; its first group is the step.
    pub log_pattern: Option<String>,
    /// A file below the workdir, or a line of the log: it means the work is done even if the
    /// process runs.
    pub done_marker: Option<String>,
    /// Whether it prints to a pseudo-terminal. Most programs buffer lines that they print to a
    /// pipe.
    pub terminal: bool,
    /// From SIGTERM to SIGKILL when the workload is told to end.
    pub term_grace: Span,
    /// Whether a launched machine publishes its measurements for people and alarms.
    pub metrics: bool,
    /// Where the agent serves OpenMetrics; `None`: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_listen: Option<ListenAddress>,
    /// The cloud's alarm on the machine.
    pub alarm: AlarmRule,
}

#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuSelection {
    #[default]
    Workload,
    All,
    Indices(Vec<u32>),
}

/// Idle: every known signal is quiet for the whole window, or longer if less is known
/// (`policy::watch::idle`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleSpec {
    /// The shortest quiet time, for a job that is fully visible and has shown its rhythm. `None`:
    /// never judged idle.
    pub window: Option<Span>,
    /// At or below these a signal is quiet. GPU utilisation and memory traffic in percent of one
    /// GPU.
    pub gpu_percent: f64,
    /// CPU of the workload's tree in percent of **one** core.
    pub cpu_percent: f64,
    /// Disk and network of the tree, bytes per second, read and written together.
    pub io_bytes_per_sec: f64,
    /// No verdict in this time after the start, except after GPU use or progress.
    pub grace: Span,
}

/// Stalled: it runs, but reports no step, log line or checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallSpec {
    /// The least time without progress: the rule takes the longer of it and `steps` times the
    /// median step. `None`: never judged stalled.
    pub window: Option<Span>,
    pub steps: f64,
    /// Restarts of the workload before the last reaction.
    pub restarts_max: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// A folder below the workdir; the workload also finds it in `LAMP_CHECKPOINT_DIR`.
    pub path: String,
    /// At most one upload in this time, if the folder has changed.
    pub interval: Span,
    /// The signal that asks the workload to save: `SIGUSR1` (saves and continues) or `SIGTERM`
    /// (saves and exits). `None`: it is never asked and saves by itself.
    #[serde(default)]
    pub signal: Option<String>,
    /// How long a save may take.
    pub grace: Span,
}

/// Reactions to the four ends of an attempt, and to a user who works on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnSpec {
    pub success: Reaction,
    pub failure: Reaction,
    pub idle: Reaction,
    pub stall: Reaction,
    /// When a user types on a machine that would be terminated: `Keep` or `Terminate`.
    pub in_use: Reaction,
}

impl OnSpec {
    /// Whether a reaction keeps the disk, where the market allows that: then a power-off from
    /// within stops the machine.
    pub fn may_stop(&self) -> bool {
        [self.success, self.failure, self.idle, self.stall].contains(&Reaction::Stop)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The machine is terminated and its disk deleted.
    Terminate,
    /// The machine is stopped; its disk stays and is billed.
    Stop,
    /// The machine is kept this long for a look, billing, then terminated.
    Keep(Span),
    /// The user is notified. An idle or stalled job continues; after its end the machine is
    /// terminated.
    Notify,
}

/// Restarts of a workload that failed, on the same machine.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RetriesSpec {
    pub max: u32,
    /// Only for these exit codes; empty means any failure.
    pub exit_codes: Vec<i32>,
    /// Wait before a restart.
    pub delay: Span,
}

impl RetriesSpec {
    /// Whether a failure with this exit code may be retried. `None`: a signal ended the workload.
    pub fn counts(&self, code: Option<i32>) -> bool {
        self.exit_codes.is_empty() || code.is_some_and(|code| self.exit_codes.contains(&code))
    }
}

/// New attempts after the machine was interrupted or lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterruptionsSpec {
    pub max: u32,
}

impl Command {
    /// The arguments to execute.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Args(args) => args.clone(),
            Command::Shell(script) => super::shell::command_argv(script),
        }
    }

    /// Its program and arguments, found without a shell. For a text: its only simple command, or
    /// the first before pipes.
    pub fn plain_words(&self) -> Vec<&str> {
        match self {
            Command::Args(args) => args.iter().map(String::as_str).collect(),
            Command::Shell(script) => super::script::plain_words(script),
        }
    }

    /// As a user would type it.
    pub fn display(&self) -> String {
        match self {
            Command::Args(args) => args.join(" "),
            Command::Shell(script) => script.clone(),
        }
    }
}

impl Default for MachineSpec {
    fn default() -> Self {
        MachineSpec {
            cloud: CloudKind::Local,
            gpus: GpuRequirement::NONE,
            cuda: None,
            instance_types: Vec::new(),
            regions: Vec::new(),
            image: "dlami".into(),
            disk_gib: 100,
            market: MarketChoice::OnDemand,
            max_price: PriceRule::Auto,
            fallback_cost: FallbackCost::default(),
            speed: Speeds::default(),
            usd_per_hour: UsdPerHour::ZERO,
        }
    }
}

impl Default for WatchSpec {
    /// Thirty seconds from SIGTERM to SIGKILL. dstack gives 10, too few to save a checkpoint of a
    /// few GB. SageMaker gives 120, a whole spot notice, and leaves no time for the upload. A
    /// workload that ignores SIGTERM bills half a minute.
    fn default() -> Self {
        WatchSpec {
            idle: IdleSpec::default(),
            stall: StallSpec::default(),
            gpus: GpuSelection::default(),
            log_pattern: None,
            done_marker: None,
            terminal: true,
            term_grace: Span::from_secs(30),
            metrics: true,
            metrics_listen: None,
            alarm: AlarmRule::default(),
        }
    }
}

impl Default for IdleSpec {
    /// Five quiet minutes, for a job that has worked a quarter of an hour without such a pause. The
    /// rule asks for up to an hour if it knows less, and for three times the job's longest pause.
    /// At this setting it stopped none of 223 recorded jobs by mistake; docs/policies.md compares
    /// other tools.
    fn default() -> Self {
        IdleSpec {
            window: Some(Span::from_secs(5 * 60)),
            gpu_percent: 1.0,
            cpu_percent: 5.0,
            io_bytes_per_sec: 100_000.0,
            grace: Span::from_secs(15 * 60),
        }
    }
}

impl Default for StallSpec {
    /// Twenty minutes, twice torch's collective timeout of ten minutes: the framework can report
    /// first.
    fn default() -> Self {
        StallSpec { window: Some(Span::from_secs(20 * 60)), steps: 10.0, restarts_max: 2 }
    }
}

impl Default for OnSpec {
    fn default() -> Self {
        let end = Reaction::Terminate;
        OnSpec {
            success: end,
            failure: end,
            idle: end,
            stall: end,
            in_use: Reaction::Keep(Span::from_secs(30 * 60)),
        }
    }
}

impl Default for InterruptionsSpec {
    /// A hundred. A spot job with more interruptions does not fit its market; unlimited would hide
    /// that.
    fn default() -> Self {
        InterruptionsSpec { max: 100 }
    }
}
