//! The agent without a controller: the spec, the first and the last messages. Pure, except one
//! record.

use std::path::Path;

use jiff::Timestamp;

use super::attempt::{Attempt, Folders, Mode};
use super::cli::{Alone, Then};
use crate::agent::agent::Finish;
use crate::agent::report::retry_sender::Outbox;
use crate::instance::{Reading, Sample};
use crate::job::{
    ALONE_WRITER, AttemptNo, Command, EndedBecause, GpuSelection, IdleSpec, JobId, LimitsSpec,
    MachineSpec, OnSpec, RECORD_FORMAT, ResolvedSpec, Spec, StallSpec, WatchSpec,
};
use crate::jobdir::JobDirError;
use crate::market::{GpuRequirement, Span, Usd, UsdPerHour};

/// The exit code of `timeout(1)` when it ended its command: here a rule or a limit ended it.
const ENDED_BY_US: i32 = 124;

pub fn resolved(call: &Alone, now: Timestamp, random: [u8; 6]) -> ResolvedSpec {
    let program =
        call.argv.first().map_or("watch", |program| program.rsplit('/').next().unwrap_or(program));
    let name = call.name.clone().unwrap_or_else(|| program.to_owned());
    let idle = IdleSpec {
        window: call.idle,
        grace: call.idle_grace.unwrap_or_else(|| {
            IdleSpec::default().grace.min(call.idle.unwrap_or(Span::from_secs(u64::MAX / 2000)))
        }),
        ..IdleSpec::default()
    };
    let stall = StallSpec { window: call.stall, ..StallSpec::default() };
    let watch = WatchSpec {
        idle,
        stall,
        gpus: call.gpus.clone(),
        log_pattern: call.log_pattern.clone(),
        term_grace: call.grace,
        metrics_listen: call.metrics_listen,
        ..WatchSpec::default()
    };
    let spec = Spec {
        name: name.clone(),
        command: Command::Args(call.argv.clone()),
        setup: None,
        env: Default::default(),
        secrets: Default::default(),
        tags: Default::default(),
        outputs: Vec::new(),
        machine: MachineSpec { gpus: asked(&call.gpus), ..MachineSpec::default() },
        watch,
        limits: LimitsSpec { max_runtime: call.max_runtime, ..LimitsSpec::default() },
        checkpoint: None,
        on: OnSpec::default(),
        retries: Default::default(),
        interruptions: Default::default(),
        gang: None,
    };
    ResolvedSpec {
        format: RECORD_FORMAT,
        job: JobId::from_name(&name, random),
        created: now,
        written_by: format!("{ALONE_WRITER}{}", env!("CARGO_PKG_VERSION")),
        spec,
        code: None,
        origins: Default::default(),
        applied: None,
        owner: None,
        continues: None,
        trial: None,
        tuned: None,
    }
}

/// A user who names GPUs needs them: if none is visible, a sensor is lost.
fn asked(selection: &GpuSelection) -> GpuRequirement {
    match selection {
        GpuSelection::Indices(indices) => GpuRequirement {
            count: u32::try_from(indices.len()).unwrap_or(u32::MAX),
            model: None,
            memory_mib_min: None,
        },
        GpuSelection::Workload | GpuSelection::All => GpuRequirement::NONE,
    }
}

pub fn attempt(
    resolved: &ResolvedSpec,
    now: Timestamp,
    work: &Path,
    state: &Path,
    cache: &Path,
) -> Attempt {
    Attempt {
        resolved: resolved.clone(),
        no: AttemptNo::FIRST,
        instance: "here".into(),
        launched: now,
        price: UsdPerHour::ZERO,
        spent_before: Usd::ZERO,
        kill_at: None,
        folders: Folders {
            work: work.to_owned(),
            state: state.to_owned(),
            cache: cache.to_owned(),
        },
        mode: Mode::Alone,
    }
}

/// Writes the spec beside the run's other records, so that the same tools can read them.
pub async fn record(outbox: &Outbox, resolved: &ResolvedSpec) -> Result<(), JobDirError> {
    outbox.files.create_folder(&outbox.state).map_err(|error| {
        crate::ports::StoreError::Unavailable {
            act: "create",
            key: outbox.state.display().to_string(),
            cause: Box::new(error),
        }
    })?;
    // The id is new and random, so no other spec is there.
    outbox.dir.create_spec(resolved).await.map(|_| ())
}

/// `--dry-run`: what would be watched, and what would be done.
pub fn describe(call: &Alone, sample: Option<&Sample>, gpu_problem: Option<&str>) -> String {
    let span = |span: Option<Span>| span.map_or("never".to_owned(), |span| format!("after {span}"));
    let stretched = call.idle.map_or("", |_| "; longer while little is seen or known of the work, up to an hour, and after long pauses of its own");
    let what = if call.argv.is_empty() {
        "this machine, whatever runs on it".to_owned()
    } else {
        format!("`{}`", call.argv.join(" "))
    };
    let then = match &call.then {
        Then::Exit => "nothing: this program exits and the machine stays on".to_owned(),
        Then::Poweroff => "power this machine off: `systemctl poweroff`, after 60 s `--force`, after 30 s more `--force --force`".to_owned(),
        Then::Command(command) => format!("run `{command}` in the shell"),
    };
    format!(
        "would watch   {what}\nGPUs          {}\nidle          {}{stretched}\nstalled       {}\nlongest run   {}\nafterwards    {then}\n",
        gpus(sample, gpu_problem),
        span(call.idle),
        span(call.stall),
        call.max_runtime.map_or("no limit".to_owned(), |most| most.to_string()),
    )
}

fn gpus(sample: Option<&Sample>, problem: Option<&str>) -> String {
    match sample.map(|sample| &sample.gpus) {
        Some(Reading::Known(gpus)) => {
            let each = gpus.iter().map(|gpu| match gpu.util_percent.known() {
                Some(percent) => format!("{} {} at {percent:.0} %", gpu.index, gpu.name),
                None => format!("{} {}, utilisation unknown", gpu.index, gpu.name),
            });
            each.collect::<Vec<_>>().join("; ")
        }
        Some(Reading::Unknown(why)) => {
            format!("unknown ({why}): no verdict will ever call this idle")
        }
        Some(Reading::Absent) => match problem {
            Some(problem) => format!("none seen ({problem}): judged by the other signals"),
            None => "none: judged by the other signals".to_owned(),
        },
        None => "unknown: the sensors do not answer".to_owned(),
    }
}

/// The command's own exit code, or 124 when a rule or a limit ended it.
pub fn exit_code(finish: &Finish) -> i32 {
    match finish.because {
        EndedBecause::Idle
        | EndedBecause::Stalled
        | EndedBecause::MaxRuntime
        | EndedBecause::Budget
        | EndedBecause::Deadline
        | EndedBecause::HardEnd => ENDED_BY_US,
        _ => finish.exit.map_or(1, |exit| exit.shell_code()),
    }
}

pub fn last_words(finish: &Finish, root: &Path, job: &JobId) -> String {
    let still_on = finish.still_on.as_ref().map_or(String::new(), |why| {
        format!("lamp-agent: {why}\nlamp-agent: the machine is still on, and a rented one still bills: `sudo poweroff` puts it out\n")
    });
    format!(
        "lamp-agent: {} ({})\nlamp-agent: why, with numbers: `lamp --job-root {} explain {job}`\n{still_on}",
        finish.because,
        finish.reason.text,
        root.display()
    )
}

/// The message for a second run under a name in use.
pub fn taken(name: &str, held_by: &str, root: &Path) -> String {
    // The first run wrote its process and its job into the lock.
    let mut words = held_by.split_whitespace();
    let (process, job) = (words.next(), words.next());
    let who = match (process, job) {
        (Some(process), Some(job)) => format!("process {process} watches it as `{job}`"),
        _ => "another `lamp-agent` has just begun it".to_owned(),
    };
    let root = root.display();
    let watch = job.map_or(format!("`lamp --job-root {root} status` shows it"), |job| {
        format!("`lamp --job-root {root} logs -f {job}` shows its output and `lamp --job-root {root} status {job}` how it is")
    });
    format!(
        "a run named `{name}` is alive: {who}, and nothing was started\nhint: {watch}; another --name starts a second one"
    )
}
