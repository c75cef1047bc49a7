//! The job file as it is written: every key optional, nothing filled in.
//!
//! The doc comments are the documentation of each key: they become the JSON schema and
//! `docs/job-file.md`. `default` and `examples` in the schema are tested against what the program
//! does. Flags become the same fragment, so that a file and a command line are merged key by key.
//! Not here: a default that is not also in `job::Spec`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::automation::{CapsFile, PurseFile, ScheduleFile};
use super::gang::GangFile;
use super::notify::NotifyFile;
use super::tune::TuneFile;
use super::union_values::{CommandWord, EnvValue, GpusWatched, ScriptWord};
use super::values::{
    AlarmWord, Bytes, CloudWord, CountOrUnlimited, CudaWord, DiskGib, Dollars, FallbackCostWord,
    Gpus, Hourly, ListenWord, MarketWord, Moment, NodesWord, Price, Rate, ReactionWord, SecretWord,
    SpanOrOff, SpanWord,
};
use crate::job::{CHECKPOINT_SIGNALS, SecretSource};

/// A job: what to run, on which machine, how it is watched, and when it must end.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Lamplighter job file")]
pub struct JobFile {
    /// The schema of this file, for editors. Ignored.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// Name of the job. Without it, the name of the file.
    #[schemars(extend("examples" = ["digits"]))]
    pub name: Option<String>,
    /// The command. A list runs as it is, a string in `/bin/sh -c`, or in bash if it has a pipe: a
    /// failed part of a pipe fails the command. Words after `--` on the command line replace it.
    #[schemars(extend("examples" = [["python", "train.py", "--epochs", "10"], "python train.py | tee train.txt"]))]
    pub command: Option<CommandWord>,
    /// The folder to ship, relative to this file.
    #[schemars(extend("default" = ".", "examples" = ["../trainer"]))]
    pub workdir: Option<String>,
    /// A shell script, or a list of lines, that runs once per attempt before the command.
    #[schemars(extend("examples" = ["pip install -r requirements.txt"]))]
    pub setup: Option<ScriptWord>,
    /// Environment variables of `setup` and the command. `LAMP_` names are reserved.
    #[schemars(extend("examples" = [{"SEED": 1, "WANDB_MODE": "offline"}]))]
    pub env: Option<BTreeMap<String, EnvValue>>,
    /// Secret variables and their places. On this workstation: `env`, `env:NAME` or `file:PATH`. At
    /// AWS: `ssm:NAME` or `secretsmanager:NAME`, with `#FIELD` for one field.
    #[schemars(extend("examples" = [{"HF_TOKEN": "env", "WANDB_API_KEY": "ssm:/secrets/WANDB_API_KEY"}]))]
    pub secrets: Option<BTreeMap<String, SecretWord>>,
    /// Your own tags on its machines and volumes, which `lamp costs --by tag:KEY` adds up.
    #[schemars(extend("examples" = [{"team": "vision"}]))]
    pub tags: Option<BTreeMap<String, EnvValue>>,
    /// Paths or patterns below the workdir to keep after every attempt: `*`, `?`, `[0-9]` and
    /// `{a,b}` in one folder, `**` across folders.
    #[schemars(extend("default" = [], "examples" = [["model.pt", "metrics/*.json"]]))]
    pub outputs: Option<Vec<String>>,
    /// Files that may look like secrets: they ship without a scan.
    #[schemars(extend("default" = [], "examples" = [["tests/fixtures/key.pem"]]))]
    pub secrets_allowed: Option<Vec<String>>,
    /// Maximum size of the shipped files before compression.
    #[schemars(extend("default" = "2GiB", "examples" = ["500MiB"]))]
    pub workdir_max: Option<Bytes>,
    /// How many machines work on it as one, each a rank: a number, or the fewest and the most.
    #[schemars(extend("default" = 1, "examples" = [4, "2..4"]))]
    pub nodes: Option<NodesWord>,
    pub machine: Option<MachineFile>,
    pub gang: Option<GangFile>,
    pub watch: Option<WatchFile>,
    pub limits: Option<LimitsFile>,
    pub checkpoint: Option<CheckpointFile>,
    pub on: Option<OnFile>,
    pub retries: Option<RetriesFile>,
    pub interruptions: Option<InterruptionsFile>,
    pub schedule: Option<ScheduleFile>,
    pub tune: Option<TuneFile>,
}

/// Which machine, and how to buy it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MachineFile {
    /// `local` is this workstation; `aws` buys machines.
    #[schemars(extend("default" = "local", "examples" = ["aws"]))]
    pub cloud: Option<CloudWord>,
    /// The GPUs: model and number, or minimum memory of each.
    #[schemars(extend("default" = "none", "examples" = ["A10G:1", "H100:8", "at least 24GiB", "2 x 24GiB"]))]
    pub gpus: Option<Gpus>,
    /// The script's CUDA version. An older driver ends the attempt before it begins.
    #[schemars(extend("examples" = ["12.4"]))]
    pub cuda: Option<CudaWord>,
    /// Only these instance types.
    #[schemars(extend("default" = [], "examples" = [["g5.xlarge", "g6.xlarge"]]))]
    pub instance_types: Option<Vec<String>>,
    /// Only these regions.
    #[schemars(extend("default" = [], "examples" = [["us-east-2", "us-west-2"]]))]
    pub regions: Option<Vec<String>>,
    /// `dlami` is AWS's deep learning image on Ubuntu 22.04; `dlami:pytorch` has PyTorch. Or an
    /// image id, `ssm:` and a parameter, or `name:` with pattern and owner.
    #[schemars(extend(
        "default" = "dlami",
        "examples" = ["dlami:pytorch", "dlami:amazon-linux-2023", "ami-0123456789abcdef0", "ssm:/lamplighter/my-image", "name:my-image-*;owner=self"]
    ))]
    pub image: Option<String>,
    /// Disk size, rounded up to whole GiB.
    #[schemars(extend("default" = "100GiB", "examples" = ["1TiB"]))]
    pub disk: Option<DiskGib>,
    /// `on-demand` is never interrupted; `spot` is cheaper; `auto` takes the cheaper one that meets
    /// the deadline.
    #[schemars(extend("default" = "on-demand", "examples" = ["spot", "auto"]))]
    pub market: Option<MarketWord>,
    /// Maximum spot price an hour: dollars, a share of on-demand, a quantile of the history, or
    /// `auto`.
    #[schemars(extend("default" = "auto", "examples" = [0.65, "80% of on-demand", "p95 of 14d"]))]
    pub max_price: Option<Price>,
    /// How many times the cheapest machine's cost for the same work a replacement may have, on the
    /// same market; `any`: no limit. Above it the job waits.
    #[schemars(extend("default" = 2, "examples" = [3.5, "any"]))]
    pub fallback_cost: Option<FallbackCostWord>,
    /// Relative speed of this work, by GPU model or instance type; default 1. Offers are then
    /// ranked by cost of work. Measured speeds come first.
    #[schemars(extend("examples" = [{"A10G": 1.0, "L4": 0.6, "g5.12xlarge": 3.5}]))]
    pub speed: Option<BTreeMap<String, f64>>,
    /// Cost of this workstation an hour, with `cloud = "local"`.
    #[schemars(extend("default" = 0, "examples" = [0.25]))]
    pub usd_per_hour: Option<Hourly>,
}

/// When the machine is no longer useful.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WatchFile {
    /// Idle after this time without activity, later while little is known of the job
    /// (docs/idle.md); `off`: never. A lost sensor is never idle.
    #[schemars(extend("default" = "5m", "examples" = ["30m", "off"]))]
    pub idle: Option<SpanOrOff>,
    /// At most this GPU utilisation and memory traffic is quiet, in percent of one GPU.
    #[schemars(extend("default" = 1, "examples" = [5]))]
    pub idle_gpu_percent: Option<f64>,
    /// At most this CPU is quiet, in percent of one core.
    #[schemars(extend("default" = 5, "examples" = [10]))]
    pub idle_cpu_percent: Option<f64>,
    /// At most this disk and network traffic is quiet.
    #[schemars(extend("default" = "100kB/s", "examples" = ["1MB/s"]))]
    pub idle_io: Option<Rate>,
    /// No idle verdict before this run time or the first GPU use or progress. A shorter `idle`
    /// shortens this default.
    #[schemars(extend("default" = "15m", "examples" = ["1h"]))]
    pub idle_grace: Option<SpanWord>,
    /// Stalled after this time and `stall_steps` median steps without step, log line or checkpoint;
    /// `off`: never.
    #[schemars(extend("default" = "20m", "examples" = ["1h", "off"]))]
    pub stall: Option<SpanOrOff>,
    /// Number of median steps that make a stall.
    #[schemars(extend("default" = 10, "examples" = [20]))]
    pub stall_steps: Option<f64>,
    /// Restarts of a stalled command before `on.stall`.
    #[schemars(extend("default" = 2, "examples" = [0]))]
    pub stall_restarts: Option<u32>,
    /// GPUs that count: `workload` (those in use by the command), `all`, or indices.
    #[schemars(extend("default" = "workload", "examples" = ["all", [0, 1]]))]
    pub gpus: Option<GpusWatched>,
    /// Regular expression on log lines: a match is progress, its first group the step.
    #[schemars(extend("examples" = ["^step (\\d+)"]))]
    pub log_pattern: Option<String>,
    /// A file below the workdir, or a log line, that says the work is done. Five billed minutes
    /// later the agent ends what still runs, and the job has succeeded.
    #[schemars(extend("examples" = ["DONE"]))]
    pub done_marker: Option<String>,
    /// Whether the command prints to a pseudo-terminal, so that lines appear at once. Behind a pipe
    /// most programs hold back 4 to 8 KiB.
    #[schemars(extend("default" = true, "examples" = [false]))]
    pub terminal: Option<bool>,
    /// Time from SIGTERM to SIGKILL.
    #[schemars(extend("default" = "30s", "examples" = ["2m"]))]
    pub grace: Option<SpanWord>,
    /// Publish measurements to CloudWatch once a minute; each costs cents a month.
    #[schemars(extend("default" = true, "examples" = [false]))]
    pub metrics: Option<bool>,
    /// Where the agent serves its measurements as OpenMetrics: a port of its own machine, or an
    /// address. Without it, nowhere.
    #[schemars(extend("examples" = [9400, "0.0.0.0:9400"]))]
    pub metrics_listen: Option<ListenWord>,
    /// CloudWatch alarm that ends the machine: no heartbeat for this time (default: the lease, at
    /// least 30 minutes), low CPU, or `off`. If metrics fail while no controller runs, it may end a
    /// healthy machine.
    #[schemars(extend("default" = "heartbeat", "examples" = ["heartbeat for 1h", "cpu<=0.3 for 5m", "off"]))]
    pub alarm: Option<AlarmWord>,
}

/// When the job must end. A job that buys machines needs `max_runtime`, `budget` or `deadline`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Maximum time of one attempt from launch, last save and outputs included. A plan counts up to
    /// seven minutes more for a machine that does not stop.
    #[schemars(extend("examples" = ["12h"]))]
    pub max_runtime: Option<SpanWord>,
    /// Maximum cost of all attempts, in dollars. With `cloud = "local"` up to five minutes of
    /// power-off are extra.
    #[schemars(extend("examples" = [5, "$5"]))]
    pub budget: Option<Dollars>,
    /// When the job must have ended: with a zone or an offset, or in local time.
    #[schemars(extend("examples" = ["2026-11-21T18:00:00Z", "2026-11-21 18:00", "2026-11-21T18:00[Europe/Berlin]"]))]
    pub deadline: Option<Moment>,
    /// Working time of the whole job, for `market = "auto"` and cost estimates. Without it the
    /// progress file must have `step` and `total`.
    #[schemars(extend("examples" = ["20h"]))]
    pub work: Option<SpanWord>,
    /// Maximum time of `setup`. An idle `setup` ends after `watch.idle`.
    #[schemars(extend("default" = "1h", "examples" = ["10m", "3h"]))]
    pub setup: Option<SpanWord>,
    /// Maximum time without a heartbeat: 2 minutes to 1 day. The agent sends one every 15 seconds.
    #[schemars(extend("default" = "30m", "examples" = ["2m", "2h"]))]
    pub lease: Option<SpanWord>,
    /// Maximum time from launch to the first heartbeat: 2 minutes to 1 hour.
    #[schemars(extend("default" = "15m", "examples" = ["5m"]))]
    pub boot: Option<SpanWord>,
}

/// Where the script saves, so that an interruption costs at most one interval.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointFile {
    /// The script's checkpoint folder below the workdir, also in `LAMP_CHECKPOINT_DIR`. Required in
    /// this table.
    #[schemars(extend("examples" = ["checkpoints"]))]
    pub path: Option<String>,
    /// At most one upload in this time, if the folder has changed.
    #[schemars(extend("default" = "10m", "examples" = ["30s"]))]
    pub interval: Option<SpanWord>,
    /// Signal that asks for a save: `SIGUSR1` if the script then goes on, `SIGTERM` if it exits.
    /// Without it the agent never asks.
    #[schemars(extend("enum" = CHECKPOINT_SIGNALS, "examples" = ["SIGUSR1", "SIGTERM"]))]
    pub signal: Option<String>,
    /// How long a save may take.
    #[schemars(extend("default" = "90s", "examples" = ["30s"]))]
    pub grace: Option<SpanWord>,
}

/// The machine after an attempt: `terminate`, `stop` (the disk stays; on-demand only), `keep 2h`
/// (terminate later) or `notify`. With `notify` an idle or stalled job runs on and bills; an ended
/// one terminates.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OnFile {
    /// The command ended with exit code 0.
    #[schemars(extend("default" = "terminate", "examples" = ["stop"]))]
    pub success: Option<ReactionWord>,
    /// The command failed, without a retry left.
    #[schemars(extend("default" = "terminate", "examples" = ["keep 2h"]))]
    pub failure: Option<ReactionWord>,
    /// The command was idle for the whole window.
    #[schemars(extend("default" = "terminate", "examples" = ["notify"]))]
    pub idle: Option<ReactionWord>,
    /// The command stalled, without a restart left.
    #[schemars(extend("default" = "terminate", "examples" = ["keep 1h"]))]
    pub stall: Option<ReactionWord>,
    /// A user typed at a terminal there in the last 15 minutes: the machine stays so long, up to
    /// its hard end.
    #[schemars(extend("default" = "keep 30m", "examples" = ["keep 2h", "terminate"]))]
    pub in_use: Option<ReactionWord>,
}

/// Restarts of a failed command on the same machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetriesFile {
    /// How often the command is restarted.
    #[schemars(extend("default" = 0, "examples" = [3]))]
    pub max: Option<u32>,
    /// Only after these exit codes; empty: any failure.
    #[schemars(extend("default" = [], "examples" = [[75, 137]]))]
    pub exit_codes: Option<Vec<i32>>,
    /// Wait before a restart.
    #[schemars(extend("default" = "0s", "examples" = ["30s"]))]
    pub delay: Option<SpanWord>,
}

/// New attempts after an interruption or a lost machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptionsFile {
    /// How often the job continues on another machine.
    #[schemars(extend("default" = 100, "examples" = [3, "unlimited"]))]
    pub max: Option<CountOrUnlimited>,
}

/// Settings for all jobs of a user: `~/.config/lamplighter/config.toml`. A job file and flags
/// override them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Lamplighter user configuration")]
pub struct UserFile {
    /// The schema of this file, for editors. Ignored.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// Where jobs are kept: a folder, `file:///...` or `s3://bucket/prefix`. `LAMP_JOB_ROOT` and
    /// `--job-root` come before it.
    #[schemars(extend("examples" = ["s3://my-bucket/lamp", "~/lamp-jobs"]))]
    pub job_root: Option<String>,
    /// The owner tag of everything that is launched. Default: the login name.
    #[schemars(extend("examples" = ["alice"]))]
    pub owner: Option<String>,
    pub notify: Option<NotifyFile>,
    pub aws: Option<AwsFile>,
    /// Defaults for every job's `[machine]`.
    pub machine: Option<MachineFile>,
    /// Defaults for every job's `[watch]`.
    pub watch: Option<WatchFile>,
    /// Defaults for every job's `[limits]`.
    pub limits: Option<LimitsFile>,
    pub caps: Option<CapsFile>,
    pub purse: Option<PurseFile>,
}

/// How AWS is reached, and what the machines there get. Nothing here is needed: the AWS tools' own
/// settings count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AwsFile {
    /// A profile of `~/.aws/config`. `AWS_PROFILE` is read without it.
    #[schemars(extend("examples" = ["research"]))]
    pub profile: Option<String>,
    /// Where machines may be bought when a job names no region; the first is home.
    #[schemars(extend("examples" = [["us-east-2", "us-west-2"]]))]
    pub regions: Option<Vec<String>>,
    /// Stands in for AWS: an emulator. `AWS_ENDPOINT_URL` is read without it.
    pub endpoint_url: Option<String>,
    /// The same as the machines reach it: an emulator behind a relay; without an emulator, the
    /// endpoint of S3 that their network has.
    pub box_endpoint_url: Option<String>,
    /// The instance profile of the machines; `lamp init aws` makes `lamplighter-box`.
    pub instance_profile: Option<String>,
    /// The security group of the machines, by name or id; `lamp init aws` makes `lamplighter`,
    /// without any way in.
    pub security_group: Option<String>,
    /// Subnets that machines may stand in; without them, the default subnet of each zone.
    pub subnets: Option<Vec<String>>,
    /// The secrets that machines may read, as `[secrets]` of a job names them: `lamp init aws`
    /// allows their role these alone.
    #[schemars(extend("examples" = [["ssm:/secrets/HF_TOKEN", "secretsmanager:wandb"]]))]
    pub secrets: Option<Vec<SecretWord>>,
    /// A key pair, for those who want SSH; none is needed.
    pub key_name: Option<String>,
}

impl AwsFile {
    /// The secrets that machines may read.
    pub fn secrets(&self) -> Vec<SecretSource> {
        self.secrets.iter().flatten().map(|word| word.0.clone()).collect()
    }
}
