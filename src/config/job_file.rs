//! The job file as it is written: every key optional, nothing filled in.
//!
//! The doc comments are the documentation of each key: they become the JSON schema and `docs/job-file.md`. `default` and
//! `examples` in the schema are tested against what the program does. Flags become the same fragment, so that a file and a
//! command line are merged key by key. What must never live here: a default that is not also in `job::Spec`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::automation::{CapsFile, ScheduleFile};
use super::union_values::{CommandWord, EnvValue, GpusWatched, ScriptWord};
use super::values::{
    AlarmWord, Bytes, CloudWord, CountOrUnlimited, CudaWord, DiskGib, Dollars, FallbackCostWord, Gpus, Hourly, MarketWord, Moment, Price, Rate,
    ReactionWord, SecretWord, SpanOrOff, SpanWord,
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
    /// The job's name; its id is this and six random letters and digits. Without it, the name of the file.
    #[schemars(extend("examples" = ["digits"]))]
    pub name: Option<String>,
    /// What is run in the workdir: a list is executed as it is, a string by `/bin/sh -c`, and by bash where it has a pipe: a part
    /// of a pipe that fails fails the command. What stands after `--` on the command line replaces it.
    #[schemars(extend("examples" = [["python", "train.py", "--epochs", "10"], "python train.py | tee train.txt"]))]
    pub command: Option<CommandWord>,
    /// The folder that is packed and shipped, relative to this file. `.gitignore` and `.lampignore` are honoured and `.git`
    /// never ships.
    #[schemars(extend("default" = ".", "examples" = ["../trainer"]))]
    pub workdir: Option<String>,
    /// A shell script, or a list of lines, that runs once per attempt in the workdir before the
    /// command.
    #[schemars(extend("examples" = ["pip install -r requirements.txt"]))]
    pub setup: Option<ScriptWord>,
    /// Environment variables of `setup` and the command. Names with `LAMP_` are the agent's.
    #[schemars(extend("examples" = [{"SEED": 1, "WANDB_MODE": "offline"}]))]
    pub env: Option<BTreeMap<String, EnvValue>>,
    /// Secret variables of `setup` and the command, each with the place where it is read; no value ever stands in a record. On this
    /// workstation: `env`, `env:NAME` or `file:PATH`. At AWS, by the machine's own role: `ssm:NAME` or `secretsmanager:NAME`, with `#FIELD` for
    /// one field of a pair.
    #[schemars(extend("examples" = [{"HF_TOKEN": "env", "WANDB_API_KEY": "ssm:/secrets/WANDB_API_KEY"}]))]
    pub secrets: Option<BTreeMap<String, SecretWord>>,
    /// Paths or globs below the workdir that are kept at the end of every attempt: `*`, `?`, `[0-9]` and `{a,b}` within a folder, `**` through all below.
    #[schemars(extend("default" = [], "examples" = [["model.pt", "metrics/*.json"]]))]
    pub outputs: Option<Vec<String>>,
    /// Files of the workdir that may hold what looks like a secret. They are shipped and not scanned.
    #[schemars(extend("default" = [], "examples" = [["tests/fixtures/key.pem"]]))]
    pub secrets_allowed: Option<Vec<String>>,
    /// The most that the workdir may hold after ignoring, before compression.
    #[schemars(extend("default" = "2GiB", "examples" = ["500MiB"]))]
    pub workdir_max: Option<Bytes>,
    pub machine: Option<MachineFile>,
    pub watch: Option<WatchFile>,
    pub limits: Option<LimitsFile>,
    pub checkpoint: Option<CheckpointFile>,
    pub on: Option<OnFile>,
    pub retries: Option<RetriesFile>,
    pub interruptions: Option<InterruptionsFile>,
    pub schedule: Option<ScheduleFile>,
}

/// Which machine, and how it is bought.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MachineFile {
    /// `local` is this workstation; no account is needed.
    #[schemars(extend("default" = "local", "examples" = ["aws"]))]
    pub cloud: Option<CloudWord>,
    /// The GPUs that the job needs: a model and a number, or the least memory of each.
    #[schemars(extend("default" = "none", "examples" = ["A10G:1", "H100:8", "at least 24GiB", "2 x 24GiB"]))]
    pub gpus: Option<Gpus>,
    /// The CUDA that the script was built for: a driver that is older ends the attempt before it begins.
    #[schemars(extend("examples" = ["12.4"]))]
    pub cuda: Option<CudaWord>,
    /// Only these instance types.
    #[schemars(extend("default" = [], "examples" = [["g5.xlarge", "g6.xlarge"]]))]
    pub instance_types: Option<Vec<String>>,
    /// Only these regions.
    #[schemars(extend("default" = [], "examples" = [["us-east-2", "us-west-2"]]))]
    pub regions: Option<Vec<String>>,
    /// The machine image: `dlami` is AWS's deep learning base image on Ubuntu 22.04 (`dlami:ubuntu-24.04` and
    /// `dlami:amazon-linux-2023` are the others), `dlami:pytorch` the one with PyTorch (`dlami:pytorch-2.7` names its release);
    /// or an image id; or `ssm:` and the name of a parameter that holds one; or
    /// `name:` and a pattern with an owner, of which the newest is taken. Its architecture must be the machine's, its hours
    /// billed as those of plain Linux, and its root disk its only one.
    #[schemars(extend(
        "default" = "dlami",
        "examples" = ["dlami:pytorch", "dlami:amazon-linux-2023", "ami-0123456789abcdef0", "ssm:/lamplighter/my-image", "name:my-image-*;owner=self"]
    ))]
    pub image: Option<String>,
    /// The size of the disk; a fraction of a GiB is rounded up.
    #[schemars(extend("default" = "100GiB", "examples" = ["1TiB"]))]
    pub disk: Option<DiskGib>,
    /// `on-demand` is the full price and is never taken back; `spot` costs less and can be interrupted; `auto` is whichever
    /// finishes before the deadline for less.
    #[schemars(extend("default" = "on-demand", "examples" = ["spot", "auto"]))]
    pub market: Option<MarketWord>,
    /// The most a spot machine may cost an hour, in dollars: a number, a share of the on-demand price, a quantile of its
    /// history, or `auto`.
    #[schemars(extend("default" = "auto", "examples" = [0.65, "80% of on-demand", "p95 of 14d"]))]
    pub max_price: Option<Price>,
    /// How many times as much as on the cheapest machine that would do an hour of work may cost on one that is bought in its
    /// place, on the same market, when it is not to be had; `any` buys whatever fits. Beyond it the job waits. A type that
    /// `instance_types` names is held to its own cheapest place, and a spot machine to `max_price` alone where that is in dollars.
    #[schemars(extend("default" = 2, "examples" = [3.5, "any"]))]
    pub fallback_cost: Option<FallbackCostWord>,
    /// How fast this work is on one kind of machine beside another: a GPU model, or an instance type, which goes before its
    /// model (and is the way to say it of a number of GPUs), and a number; only what they are beside one another counts. Offers
    /// are then ranked by what an hour of *work* costs. What is not named works at 1; what earlier attempts of the job measured
    /// goes before what is said here. `limits.work` is then the work at 1.
    #[schemars(extend("examples" = [{"A10G": 1.0, "L4": 0.6, "g5.12xlarge": 3.5}]))]
    pub speed: Option<BTreeMap<String, f64>>,
    /// What an hour of this workstation costs, in dollars, for `cloud = "local"`: electricity, a share of its price.
    #[schemars(extend("default" = 0, "examples" = [0.25]))]
    pub usd_per_hour: Option<Hourly>,
}

/// When the machine is no longer useful.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WatchFile {
    /// Idle when every known signal was quiet for this long, and longer while less is known of the job (docs/policies.md);
    /// `off` never judges. A lost sensor is never idle.
    #[schemars(extend("default" = "5m", "examples" = ["30m", "off"]))]
    pub idle: Option<SpanOrOff>,
    /// GPU utilisation and memory traffic at or below this are quiet, in percent of one GPU.
    #[schemars(extend("default" = 1, "examples" = [5]))]
    pub idle_gpu_percent: Option<f64>,
    /// CPU of the workload's processes at or below this is quiet, in percent of one core.
    #[schemars(extend("default" = 5, "examples" = [10]))]
    pub idle_cpu_percent: Option<f64>,
    /// Disk and network traffic of the workload at or below this is quiet.
    #[schemars(extend("default" = "100kB/s", "examples" = ["1MB/s"]))]
    pub idle_io: Option<Rate>,
    /// No idle verdict before the workload has run this long, unless it used a GPU or made progress earlier. Where an
    /// `idle` shorter than its default is given and this is not, it is as short as that.
    #[schemars(extend("default" = "15m", "examples" = ["1h"]))]
    pub idle_grace: Option<SpanWord>,
    /// Stalled when alive without a step, a log line or a checkpoint for this long, and for `stall_steps` median steps;
    /// `off` never judges.
    #[schemars(extend("default" = "20m", "examples" = ["1h", "off"]))]
    pub stall: Option<SpanOrOff>,
    /// How many median steps without progress are a stall.
    #[schemars(extend("default" = 10, "examples" = [20]))]
    pub stall_steps: Option<f64>,
    /// Restarts of a stalled workload before `on.stall` is done.
    #[schemars(extend("default" = 2, "examples" = [0]))]
    pub stall_restarts: Option<u32>,
    /// Which GPUs count: those that the workload uses (`workload`), `all`, or a list of indices.
    #[schemars(extend("default" = "workload", "examples" = ["all", [0, 1]]))]
    pub gpus: Option<GpusWatched>,
    /// A regular expression on a log line: a match is progress, and its first capture group is the step.
    #[schemars(extend("examples" = ["^step (\\d+)"]))]
    pub log_pattern: Option<String>,
    /// A file below the workdir, or a line of the log, that says that the work is done even if the process is not. Five minutes
    /// later, which bill, what still runs is ended and the job has succeeded.
    #[schemars(extend("examples" = ["DONE"]))]
    pub done_marker: Option<String>,
    /// Whether the command prints to a pseudo-terminal: then each line is seen when it is printed, and a progress bar is one
    /// line of the log. `false` is a pipe: the log has each byte, and most programs print 4 to 8 KiB at a time.
    #[schemars(extend("default" = true, "examples" = [false]))]
    pub terminal: Option<bool>,
    /// From SIGTERM to SIGKILL when the workload is told to end.
    #[schemars(extend("default" = "30s", "examples" = ["2m"]))]
    pub grace: Option<SpanWord>,
    /// Whether a machine in the cloud publishes its measurements there, once a minute; each costs cents a month.
    #[schemars(extend("default" = true, "examples" = [false]))]
    pub metrics: Option<bool>,
    /// What the cloud itself watches of the machine, and then ends it with nobody's help: its heartbeat, missing for the
    /// time that is said, or else for as long as the lease (`limits.lease`) and half an hour at least; the classic CPU
    /// utilisation of the whole machine; or nothing. It stops an on-demand machine whose disk some end of the job keeps
    /// (`[on]`), and terminates any other. It knows no cause: where metrics alone are lost, whoever drives the job
    /// takes it off until they arrive again; where nobody is awake to do so, it ends a machine that works, and the job goes on elsewhere
    /// from its newest checkpoint.
    #[schemars(extend("default" = "heartbeat", "examples" = ["heartbeat for 1h", "cpu<=0.3 for 5m", "off"]))]
    pub alarm: Option<AlarmWord>,
}

/// When the job must end, whatever it does. A job that buys machines names `max_runtime`, `budget` or `deadline`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// The longest one attempt may run, from its launch on: its end is begun so that the last save and the outputs fit. What ends a
    /// machine that does not obey comes five minutes later, and is what a plan reckons with, with two more for a power-off.
    #[schemars(extend("examples" = ["12h"]))]
    pub max_runtime: Option<SpanWord>,
    /// The most that all attempts together may cost, in dollars. With `cloud = "local"` up to five minutes of power-off come on
    /// top.
    #[schemars(extend("examples" = [5, "$5"]))]
    pub budget: Option<Dollars>,
    /// The moment by which the job must have ended: with a zone or an offset, or in this workstation's local time.
    #[schemars(extend("examples" = ["2026-11-21T18:00:00Z", "2026-11-21 18:00", "2026-11-21T18:00[Europe/Berlin]"]))]
    pub deadline: Option<Moment>,
    /// How long the whole job works on such a machine, for `market = "auto"` with a deadline, and for what a plan expects it to
    /// cost. Without it the progress file must say so: `step`, `total`.
    #[schemars(extend("examples" = ["20h"]))]
    pub work: Option<SpanWord>,
    /// The longest that `setup` may run; then it has failed. A setup that hangs is ended sooner where it is idle for as long as
    /// `watch.idle` says.
    #[schemars(extend("default" = "1h", "examples" = ["10m", "3h"]))]
    pub setup: Option<SpanWord>,
    /// How long a launched machine may live without a heartbeat of its agent, which beats every 15 seconds at the
    /// latest: between 2 minutes and a day, the longest that an alarm of CloudWatch can watch. Shorter ends a dead machine
    /// sooner, and a healthy one behind a broken line too. `watch.alarm` waits for it where it has no time of its own.
    #[schemars(extend("default" = "30m", "examples" = ["2m", "2h"]))]
    pub lease: Option<SpanWord>,
    /// How long a launched machine may live before its agent has said its first word: between 2 minutes and an hour.
    #[schemars(extend("default" = "15m", "examples" = ["5m"]))]
    pub boot: Option<SpanWord>,
}

/// Where the script saves, so that an interruption costs at most one interval.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointFile {
    /// The folder below the workdir that the script saves to. Required in this table. The script also finds it in
    /// `LAMP_CHECKPOINT_DIR`.
    #[schemars(extend("examples" = ["checkpoints"]))]
    pub path: Option<String>,
    /// At most one upload in this time, when the folder has changed.
    #[schemars(extend("default" = "10m", "examples" = ["30s"]))]
    pub interval: Option<SpanWord>,
    /// The signal that asks the script to save: `SIGUSR1` for one that saves and goes on, `SIGTERM` for one that saves and
    /// exits. Without it the script is never asked; what it saves by itself counts.
    #[schemars(extend("enum" = CHECKPOINT_SIGNALS, "examples" = ["SIGUSR1", "SIGTERM"]))]
    pub signal: Option<String>,
    /// How long a save may take.
    #[schemars(extend("default" = "90s", "examples" = ["30s"]))]
    pub grace: Option<SpanWord>,
}

/// What to do with the machine at the end of an attempt: `terminate`, `stop` (its disk is kept; not of a spot machine), `keep 2h` (for
/// a look, then terminate) or `notify`. `notify` tells; a job that is idle or stalled then goes on, and bills, and one that has ended is
/// terminated.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OnFile {
    /// The workload ended with exit code 0.
    #[schemars(extend("default" = "terminate", "examples" = ["stop"]))]
    pub success: Option<ReactionWord>,
    /// The workload failed, and no retry is left.
    #[schemars(extend("default" = "terminate", "examples" = ["keep 2h"]))]
    pub failure: Option<ReactionWord>,
    /// The workload was idle for the whole window.
    #[schemars(extend("default" = "terminate", "examples" = ["notify"]))]
    pub idle: Option<ReactionWord>,
    /// The workload was stalled, and no restart is left.
    #[schemars(extend("default" = "terminate", "examples" = ["keep 1h"]))]
    pub stall: Option<ReactionWord>,
    /// The work is over and the machine would be terminated, and somebody has typed at a terminal there within the last quarter of an
    /// hour: it is kept for so long, never beyond its hard cap, and each terminal is told. `terminate`: it goes all the same.
    #[schemars(extend("default" = "keep 30m", "examples" = ["keep 2h", "terminate"]))]
    pub in_use: Option<ReactionWord>,
}

/// Restarts of a workload that failed, on the same machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetriesFile {
    /// How often it is restarted.
    #[schemars(extend("default" = 0, "examples" = [3]))]
    pub max: Option<u32>,
    /// Only after these exit codes; empty means after any failure.
    #[schemars(extend("default" = [], "examples" = [[75, 137]]))]
    pub exit_codes: Option<Vec<i32>>,
    /// Wait before a restart.
    #[schemars(extend("default" = "0s", "examples" = ["30s"]))]
    pub delay: Option<SpanWord>,
}

/// New attempts after the machine was taken away or lost.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptionsFile {
    /// How often the job is continued on another machine.
    #[schemars(extend("default" = 100, "examples" = [3, "unlimited"]))]
    pub max: Option<CountOrUnlimited>,
}

/// What holds for every job of a user: `~/.config/lamplighter/config.toml`. A job file and flags come before it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Lamplighter user configuration")]
pub struct UserFile {
    /// The schema of this file, for editors. Ignored.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// Where jobs are kept: a folder, `file:///...` or `s3://bucket/prefix`. `LAMP_JOB_ROOT` and `--job-root` come before it.
    #[schemars(extend("examples" = ["s3://my-bucket/lamp", "~/lamp-jobs"]))]
    pub job_root: Option<String>,
    /// Whose machines these are: the owner tag of everything that is launched. Without it, the login name.
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
}

/// How AWS is reached, and what the machines there get. Nothing here is needed: the AWS tools' own settings count.
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
    /// The same as the machines reach it: an emulator behind a relay; without an emulator, the endpoint of S3 that their network has.
    pub box_endpoint_url: Option<String>,
    /// The instance profile of the machines; `lamp init aws` makes `lamplighter-box`.
    pub instance_profile: Option<String>,
    /// The security group of the machines, by name or id; `lamp init aws` makes `lamplighter`, without any way in.
    pub security_group: Option<String>,
    /// Subnets that machines may stand in; without them, the default subnet of each zone.
    pub subnets: Option<Vec<String>>,
    /// The secrets that machines may read, as `[secrets]` of a job names them: `lamp init aws` allows their role these alone.
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

/// How somebody is told.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyFile {
    /// A program with its arguments. It has the sentence in LAMP_TEXT, the job in LAMP_JOB, and the event as one line of JSON on its
    /// standard input.
    #[schemars(extend("examples" = [["sh", "-c", "notify-send \"$LAMP_JOB\" \"$LAMP_TEXT\""]]))]
    pub command: Option<Vec<String>>,
}
