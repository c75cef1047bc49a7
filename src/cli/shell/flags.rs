//! A job on the command line: the flags of `run`, `plan`, `rehearse` and `check` as a fragment of a
//! job file.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use super::deadline_arg::DeadlineArg;
use crate::cli::{Context, Fault};
use crate::config::{
    self, CheckpointFile, CloudWord, CommandWord, CountOrUnlimited, DiskGib, Dollars, EnvPair,
    EnvValue, FallbackCostWord, Gpus, Hourly, InterruptionsFile, JobFile, LimitsFile, Loaded,
    MachineFile, MarketWord, NodesWord, OnFile, Price, ReactionWord, RetriesFile, SecretPair,
    SecretWord, SpanOrOff, SpanWord, WatchFile,
};
use crate::job::{Command, MarketChoice, name_problem};

/// Which job: a file, flags, or both; a flag comes before the file's key.
#[derive(Clone, Debug, Default, Args)]
pub struct JobArgs {
    /// The job file (TOML, or JSON by its extension) [default: lamp.toml, unless a command follows
    /// `--`]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub flags: JobFlags,

    /// What to run; everything after `--` is the program's
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Job options")]
pub struct JobFlags {
    /// Name of the job
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// Folder to pack and ship [default: the job file's folder, or this one]
    #[arg(long, value_name = "FOLDER")]
    pub workdir: Option<String>,
    /// Shell script to run before the command, once per attempt
    #[arg(long, value_name = "SCRIPT")]
    pub setup: Option<String>,
    /// Environment variable of the job; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<EnvPair>,
    /// Secret variable of the job, kept in no record: NAME alone is taken from the environment; may
    /// be repeated
    #[arg(long, value_name = "NAME[=PLACE]")]
    pub secret: Vec<SecretPair>,
    /// Path or glob below the workdir to keep at the end; may be repeated
    #[arg(long, value_name = "PATH")]
    pub keep: Vec<String>,
    /// Ship this file (or `env.NAME`, `setup`, `command`) though it looks like it holds a secret;
    /// may be repeated
    #[arg(long, value_name = "PATH[:RULE]")]
    pub allow_secret: Vec<String>,
    #[command(flatten)]
    pub machine: MachineFlags,
    #[command(flatten)]
    pub ends: EndFlags,
    #[command(flatten)]
    pub checkpoint: CheckpointFlags,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Machine options")]
pub struct MachineFlags {
    /// `local` (this workstation) or `aws`
    #[arg(long, value_name = "CLOUD")]
    pub cloud: Option<CloudWord>,
    /// How many machines work on it as one, like `4`, or `2..4` with the fewest first
    #[arg(long, value_name = "N")]
    pub nodes: Option<NodesWord>,
    /// GPUs, like `A10G:1` or `at least 24GiB`
    #[arg(long, visible_alias = "gpu", value_name = "GPUS")]
    pub gpus: Option<Gpus>,
    /// Only this instance type; may be repeated
    #[arg(long, value_name = "TYPE", value_parser = one_name)]
    pub instance_type: Vec<String>,
    /// Only this region; may be repeated; before `regions` of the job file, of [aws] in the
    /// configuration, and AWS_REGION
    #[arg(long, value_name = "REGION", value_parser = one_name)]
    pub region: Vec<String>,
    /// Machine image
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Disk size, like `100GiB`
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<DiskGib>,
    /// `on-demand`, `spot` or `auto`
    #[arg(long, value_name = "MARKET", conflicts_with_all = ["spot", "on_demand", "spot_auto"])]
    pub market: Option<MarketWord>,
    /// Same as --market spot
    #[arg(long, alias = "use-spot", conflicts_with_all = ["on_demand", "spot_auto"])]
    pub spot: bool,
    /// Same as --market on-demand
    #[arg(long, conflicts_with = "spot_auto")]
    pub on_demand: bool,
    /// Same as --market auto
    #[arg(long)]
    pub spot_auto: bool,
    /// The most a spot machine may cost an hour: 0.65, `80% of on-demand`, `p95 of 14d` or `auto`
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true)]
    pub max_price: Option<Price>,
    /// How many times as much as the cheapest machine one may cost that is bought in its place,
    /// like 3.5, or `any`
    #[arg(long, value_name = "TIMES", allow_negative_numbers = true)]
    pub fallback_cost: Option<FallbackCostWord>,
    /// The price of an hour of this workstation, in dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub usd_per_hour: Option<Hourly>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "When to end")]
pub struct EndFlags {
    /// End after this much idleness, like `15m`, or `off`
    #[arg(short, long, alias = "idle-duration", value_name = "TIME")]
    pub idle: Option<SpanOrOff>,
    /// Act after this much time without progress, like `20m`, or `off`
    #[arg(long, value_name = "TIME")]
    pub stall: Option<SpanOrOff>,
    /// The longest one attempt may run, like `12h`
    #[arg(long, visible_alias = "max-duration", alias = "ttl", value_name = "TIME")]
    pub max_runtime: Option<SpanWord>,
    /// The most that all attempts together may cost, in dollars; `lamp extend --budget` adds to it
    #[arg(long, visible_alias = "cost-limit", value_name = "USD", allow_negative_numbers = true)]
    pub budget: Option<Dollars>,
    /// When the job must have ended: a moment, or like `30h` from now
    #[arg(long, value_name = "MOMENT")]
    pub deadline: Option<DeadlineArg>,
    /// How long the whole job works on such a machine, like `20h`; for `--market auto` with a
    /// deadline
    #[arg(long, value_name = "TIME")]
    pub work: Option<SpanWord>,
    /// From SIGTERM to SIGKILL when the workload must end, like `30s`
    #[arg(long, value_name = "TIME")]
    pub grace: Option<SpanWord>,
    /// `terminate`, `stop`, `keep 2h` or `notify`
    #[arg(long, value_name = "ACTION")]
    pub on_success: Option<ReactionWord>,
    /// As --on-success, when the workload failed
    #[arg(long, value_name = "ACTION")]
    pub on_failure: Option<ReactionWord>,
    /// As --on-success, when the workload was idle
    #[arg(long, value_name = "ACTION")]
    pub on_idle: Option<ReactionWord>,
    /// As --on-success, when the workload was stalled
    #[arg(long, value_name = "ACTION")]
    pub on_stall: Option<ReactionWord>,
    /// If a user types on the machine when it would be terminated: `keep 30m`, the default, or
    /// `terminate`
    #[arg(long, value_name = "ACTION")]
    pub on_in_use: Option<ReactionWord>,
    /// Restarts of a workload that failed
    #[arg(long, visible_alias = "retry", value_name = "N")]
    pub retries: Option<u32>,
    /// New attempts after interruptions: a number or `unlimited`
    #[arg(long, value_name = "N")]
    pub interruptions: Option<CountOrUnlimited>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Checkpoint options")]
pub struct CheckpointFlags {
    /// Folder below the workdir that the script saves to
    #[arg(long, value_name = "PATH")]
    pub checkpoint: Option<String>,
    /// At most one upload in this time, like `10m`
    #[arg(long, value_name = "TIME")]
    pub checkpoint_interval: Option<SpanWord>,
    /// Signal that asks the script to save: SIGUSR1, SIGUSR2, SIGTERM, SIGINT or SIGHUP
    #[arg(long, value_name = "SIGNAL")]
    pub checkpoint_signal: Option<String>,
    /// How long a save may take, like `90s`
    #[arg(long, value_name = "TIME")]
    pub checkpoint_grace: Option<SpanWord>,
}

impl JobArgs {
    /// Reads the job as far as possible; its errors and warnings are in the result.
    ///
    /// # Errors
    /// Fails when the file is missing or unreadable.
    pub fn read(&self, context: &Context) -> Result<Loaded, Fault> {
        let flags = self.fragment(context.clock.now());
        let inputs = context.job_inputs(&flags);
        Ok(config::read_job(self.file.as_deref(), &inputs)?)
    }

    pub fn fragment(&self, now: Timestamp) -> JobFile {
        let flags = &self.flags;
        let env = flags
            .env
            .iter()
            .map(|pair| (pair.name.clone(), EnvValue(pair.value.clone())))
            .collect();
        JobFile {
            name: flags.name.clone(),
            command: list(&self.command).map(|args| CommandWord(Command::Args(args))),
            workdir: flags.workdir.clone(),
            setup: flags.setup.clone().map(config::ScriptWord),
            env: Some(env),
            secrets: Some(
                flags
                    .secret
                    .iter()
                    .map(|pair| (pair.name.clone(), SecretWord(pair.source.clone())))
                    .collect(),
            ),
            outputs: list(&flags.keep),
            secrets_allowed: list(&flags.allow_secret),
            nodes: flags.machine.nodes.clone(),
            machine: Some(flags.machine.fragment()),
            watch: Some(flags.ends.watch()),
            limits: Some(flags.ends.limits(now)),
            checkpoint: flags.checkpoint.fragment(),
            on: Some(flags.ends.on()),
            retries: Some(RetriesFile { max: flags.ends.retries, ..RetriesFile::default() }),
            interruptions: Some(InterruptionsFile { max: flags.ends.interruptions.clone() }),
            ..JobFile::default()
        }
    }
}

impl MachineFlags {
    fn fragment(&self) -> MachineFile {
        let chosen = match (self.spot, self.on_demand, self.spot_auto) {
            (true, _, _) => Some(MarketChoice::Spot),
            (_, true, _) => Some(MarketChoice::OnDemand),
            (_, _, true) => Some(MarketChoice::Auto),
            _ => None,
        };
        MachineFile {
            cuda: None,
            cloud: self.cloud.clone(),
            gpus: self.gpus.clone(),
            instance_types: list(&self.instance_type),
            regions: list(&self.region),
            image: self.image.clone(),
            disk: self.disk.clone(),
            market: self.market.clone().or(chosen.map(MarketWord)),
            // Only a job file can have such a table.
            speed: None,
            max_price: self.max_price.clone(),
            fallback_cost: self.fallback_cost.clone(),
            usd_per_hour: self.usd_per_hour.clone(),
        }
    }
}

impl EndFlags {
    fn watch(&self) -> WatchFile {
        WatchFile {
            idle: self.idle.clone(),
            stall: self.stall.clone(),
            grace: self.grace.clone(),
            ..WatchFile::default()
        }
    }

    fn limits(&self, now: Timestamp) -> LimitsFile {
        LimitsFile {
            max_runtime: self.max_runtime.clone(),
            budget: self.budget.clone(),
            deadline: self.deadline.map(|until| until.moment(now)),
            work: self.work.clone(),
            ..LimitsFile::default()
        }
    }

    fn on(&self) -> OnFile {
        OnFile {
            success: self.on_success.clone(),
            failure: self.on_failure.clone(),
            idle: self.on_idle.clone(),
            stall: self.on_stall.clone(),
            in_use: self.on_in_use.clone(),
        }
    }
}

impl CheckpointFlags {
    fn fragment(&self) -> Option<CheckpointFile> {
        let fragment = CheckpointFile {
            path: self.checkpoint.clone(),
            interval: self.checkpoint_interval.clone(),
            signal: self.checkpoint_signal.clone(),
            grace: self.checkpoint_grace.clone(),
        };
        (fragment != CheckpointFile::default()).then_some(fragment)
    }
}

/// A region or an instance type: names without commas or blanks. An unset variable gives an empty
/// text.
///
/// # Errors
/// Fails when it is empty, or more than one name.
pub fn one_name(text: &str) -> Result<String, String> {
    name_problem(text).map_or_else(
        || Ok(text.to_owned()),
        |problem| Err(format!("{problem}; the flag may be repeated, with one name each")),
    )
}

fn list(values: &[String]) -> Option<Vec<String>> {
    (!values.is_empty()).then(|| values.to_vec())
}
