//! The user's words for a job, complete and immutable: every default is already filled in.
//!
//! `config` reads the file and the flags and builds this; the controller writes it once as `spec.json`; the agent
//! obeys it. Lengths of time are [`Span`]s, so that records read like the file (`"15m"`). `None` means `off`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AlarmRule, Applied, Continues, Inherited, JobId, LimitsSpec, SecretSource, Trial};
use crate::market::{Cloud, Cuda, FallbackCost, GpuRequirement, PriceRule, Span, Speeds, UsdPerHour};

/// `spec.json`: the spec as submitted, with what was found out on the workstation at that moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedSpec {
    pub format: u32,
    pub job: JobId,
    pub created: Timestamp,
    /// The version of the program that wrote it.
    pub written_by: String,
    pub spec: Spec,
    /// Whether `code/<sha256>.tar.zst` exists, and what it holds.
    #[serde(default)]
    pub code: Option<CodeArchive>,
    /// Where each setting that can cost money came from, by its dotted path: `flag`, `file`, `default`, `environment`.
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    /// The file that `lamp apply` made it from; `None`: somebody ran it.
    #[serde(default)]
    pub applied: Option<Applied>,
    /// Who submitted it, where `applied` does not say so ([`ResolvedSpec::owner`]).
    #[serde(default)]
    pub owner: Option<String>,
    /// The job that it goes on from; `None`: it begins by itself.
    #[serde(default)]
    pub continues: Option<Continues>,
    /// It only proves that its machine ends: no agent is fetched there; `None`: a job like any other.
    #[serde(default)]
    pub trial: Option<Trial>,
}

/// How the name of a rehearsal's job ends, to tell it from the job itself.
pub const REHEARSAL: &str = "-rehearsal";

/// How `written_by` begins in the spec of a run of the agent alone.
pub const ALONE_WRITER: &str = "lamp-agent ";

impl ResolvedSpec {
    /// Whether its agent runs without a controller: there is no plan, and nobody launches anything for it.
    pub fn is_alone(&self) -> bool {
        self.written_by.starts_with(ALONE_WRITER)
    }

    /// Whose job it is as long as no plan says so: with whose money its first machine is bought. `None`: of an older version, and
    /// whoever plans it first has it.
    pub fn owner(&self) -> Option<&str> {
        self.applied.as_ref().map(|applied| &applied.owner).or(self.owner.as_ref()).map(String::as_str)
    }

    /// What it goes on from as long as it has no checkpoint of its own.
    pub fn inherited(&self) -> Option<&Inherited> {
        self.continues.as_ref()?.checkpoint.as_ref()
    }
}

/// What was packed from the workdir.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeArchive {
    pub files: u64,
    /// Bytes before and after compression.
    pub bytes: u64,
    pub packed_bytes: u64,
    /// SHA-256 of the archive, lower-case hex.
    pub sha256: String,
    /// SHA-256 of the names and contents of its files, without dates and folders; `None`: of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Where it was packed; `None`: of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CodeSource>,
}

/// The folder that was packed. `lamp start` looks there whether it has changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSource {
    /// The name of the workstation among those that share a job root: the same path elsewhere is another folder.
    pub workstation: String,
    pub folder: String,
    /// The job file; `None`: the command line was all.
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
    /// Variables of the command whose values stand in no record, and where each is read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretSource>,
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
}

#[cfg(test)]
impl Spec {
    /// A command, and nothing else that a job file says.
    pub(crate) fn bare() -> Spec {
        serde_json::from_str(r#"{"name": "x", "command": {"args": ["true"]}}"#).expect("the rest has defaults")
    }
}

/// What is run: a list is executed as it is, a string by a shell (the module `shell` says which).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    Args(Vec<String>),
    Shell(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSpec {
    pub cloud: Cloud,
    pub gpus: GpuRequirement,
    /// The driver must run programs of this CUDA.
    pub cuda: Option<Cuda>,
    pub instance_types: Vec<String>,
    pub regions: Vec<String>,
    /// `dlami`, `ami-...`, an SSM path or a name filter.
    pub image: String,
    pub disk_gib: u32,
    pub market: MarketChoice,
    pub max_price: PriceRule,
    /// How many times as much as the cheapest a machine may cost that is bought in its place.
    pub fallback_cost: FallbackCost,
    /// How fast the work is on one kind of machine beside another.
    #[serde(skip_serializing_if = "Speeds::is_empty")]
    pub speed: Speeds,
    /// What an hour of this machine costs, for `cloud = "local"`: electricity, a share of the purchase, a rehearsal's price.
    pub usd_per_hour: UsdPerHour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarketChoice {
    #[default]
    OnDemand,
    Spot,
    /// Whichever finishes in time for less.
    Auto,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchSpec {
    pub idle: IdleSpec,
    pub stall: StallSpec,
    /// Which GPUs count; `Workload` means those that the workload's processes use, and all while that is unknown.
    pub gpus: GpuSelection,
    /// A regular expression on a log line; its first capture group is the step. Lines that match are progress.
    pub log_pattern: Option<String>,
    /// A file below the workdir, or a line of the log, that says: the work is done even if the process is not.
    pub done_marker: Option<String>,
    /// It prints to a pseudo-terminal; else to a pipe, at which most programs hold their lines back.
    pub terminal: bool,
    /// From SIGTERM to SIGKILL when the workload is told to end.
    pub term_grace: Span,
    /// Whether a launched machine publishes its measurements where people and alarms see them.
    pub metrics: bool,
    /// What the cloud itself watches of the machine.
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

/// When is it idle: every known signal quiet for the whole window, and longer where less is known (`policy::watch::idle`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleSpec {
    /// The least quiet time: enough for a job that is seen whole and has shown its rhythm. `None`: never judged idle.
    pub window: Option<Span>,
    /// At or below these a signal is quiet. GPU utilisation and memory traffic in percent of one GPU.
    pub gpu_percent: f64,
    /// CPU of the workload's tree in percent of **one** core.
    pub cpu_percent: f64,
    /// Disk and network of the tree, bytes per second, read and written together.
    pub io_bytes_per_sec: f64,
    /// No verdict before the workload has run this long, unless it used a GPU or made progress earlier.
    pub grace: Span,
}

/// When is it stalled: alive, but no step, log line or checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallSpec {
    /// The least time without progress; the rule takes the longer of this and `steps` times the median step.
    /// `None`: never judged stalled.
    pub window: Option<Span>,
    pub steps: f64,
    /// Restarts of the workload before the ladder's last step.
    pub restarts_max: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// A folder below the workdir; the workload also finds it in `LAMP_CHECKPOINT_DIR`.
    pub path: String,
    /// At most one upload in this time, when the folder has changed.
    pub interval: Span,
    /// The signal that asks the workload to save: `SIGUSR1` (saves and goes on) or `SIGTERM` (saves and exits).
    /// `None`: it is never asked, what it saves by itself counts.
    #[serde(default)]
    pub signal: Option<String>,
    /// How long a save may take.
    pub grace: Span,
}

/// What to do when the attempt ends in one of four ways, and with somebody at work on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnSpec {
    pub success: Reaction,
    pub failure: Reaction,
    pub idle: Reaction,
    pub stall: Reaction,
    /// Somebody types there when it would be given back: `Keep`, or `Terminate`.
    pub in_use: Reaction,
}

impl OnSpec {
    /// Whether one of them keeps the disk, where the market allows that: then a power-off from within stops the machine.
    pub fn may_stop(&self) -> bool {
        [self.success, self.failure, self.idle, self.stall].contains(&Reaction::Stop)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The machine is given back, disk and all.
    Terminate,
    /// The machine is stopped; its disk stays and is billed.
    Stop,
    /// The machine is kept this long for a look, billing, then terminated.
    Keep(Span),
    /// Somebody is told. For idle and stall the work goes on; after the end the machine is terminated all the same.
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

/// New attempts after the machine was taken away or lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterruptionsSpec {
    pub max: u32,
}

/// How somebody is told. The command gets the event as JSON on its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NotifySpec {
    pub command: Vec<String>,
}

impl Command {
    /// The arguments to execute.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Args(args) => args.clone(),
            Command::Shell(script) => super::shell::command_argv(script),
        }
    }

    /// Its program and arguments as far as they can be told without a shell; of a text its first simple command, where it is all or only a
    /// pipe follows.
    pub fn plain_words(&self) -> Vec<&str> {
        match self {
            Command::Args(args) => args.iter().map(String::as_str).collect(),
            Command::Shell(script) => super::script::plain_words(script),
        }
    }

    /// As one would type it, for people.
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
            cloud: Cloud::Local,
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
    /// Thirty seconds to end after SIGTERM: dstack gives 10, which cuts a checkpoint of a few GB in half; SageMaker gives
    /// 120, which is the whole of a spot notice and leaves nothing for the upload. A workload that ignores SIGTERM bills
    /// half a minute.
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
            alarm: AlarmRule::default(),
        }
    }
}

impl Default for IdleSpec {
    /// Five minutes of nothing at all, for a job that has worked a quarter of an hour without such a pause; the rule
    /// itself asks for up to an hour while it knows less, and for three times the job's own longest pause.
    /// Of 223 recorded jobs none was stopped by mistake at this setting; docs/policies.md has the figures of others.
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
    /// Twenty minutes is twice torch's own ten-minute collective timeout: the framework gets to report first.
    fn default() -> Self {
        StallSpec { window: Some(Span::from_secs(20 * 60)), steps: 10.0, restarts_max: 2 }
    }
}

impl Default for OnSpec {
    fn default() -> Self {
        let end = Reaction::Terminate;
        OnSpec { success: end, failure: end, idle: end, stall: end, in_use: Reaction::Keep(Span::from_secs(30 * 60)) }
    }
}

impl Default for InterruptionsSpec {
    /// A hundred: a spot job that was interrupted this often does not fit its market; unlimited would hide that.
    fn default() -> Self {
        InterruptionsSpec { max: 100 }
    }
}
