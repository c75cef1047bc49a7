//! `lamp apply`: makes the jobs match the job files of a directory.
//!
//! ```text
//!   files ─┐
//!          ├─ apply_diff ─ shown, confirmed ─ stop ─ make jobs ─ hand schedules to the daemon
//!   set ───┘                                  (execute.rs)
//! ```
//!
//! The set is everything in the job root with its label and our owner name. Not here: what follows
//! from a changed file (`policy::schedule::apply_diff`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;

use super::caps_cost::{self, Capped};
use super::cost::Costs;
use super::execute;
use super::job_files::files_of;
use super::ready_file::{self, ReadyFile, Scheduled};
use super::shortfall::Short;
use crate::app::drive;
use crate::app::launch::preflight::{
    self, PreflightCheck, PreflightFacts, PreflightFinding, preflight,
};
use crate::app::launch::proof_gate::{self, Proofs};
use crate::app::launch::submission::Submission;
use crate::app::record_errors;
use crate::app::session::Session;
use crate::app::text::counted;
use crate::cli::output::printer::shell_word;
use crate::cli::run::run;
use crate::cli::shell::confirm;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault, JobArgs, render_table};
use crate::controller::Controller;
use crate::job::{JobId, Receipt, Schedule};
use crate::jobdir::{self, JobDir, JobDirError, ScheduleDir};
use crate::policy::schedule::apply_diff::{
    Applies, ApplyWishes, ChangeKind, FileChange, FileFact, JobFact, changes, newest_of,
};
use crate::wire::StoreHandle;

/// Make the jobs be what the job files in a directory say
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A directory with job files (`*.toml`, `*.json`), or single files
    #[arg(required = true, value_name = "DIR|FILE")]
    pub paths: Vec<PathBuf>,

    /// Show what would be done; do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Stop the job of a changed file before the new one is made, and older ones that an earlier
    /// call left running
    #[arg(long)]
    pub replace: bool,

    /// Stop what is left of files that are gone
    #[arg(long)]
    pub prune: bool,

    /// Make a job again of an unchanged file whose last job was stopped, has failed or came to a
    /// limit
    #[arg(long)]
    pub again: bool,

    /// Do not ask before something is stopped
    #[arg(short, long)]
    pub yes: bool,

    /// Hand jobs at AWS to the daemon although nothing has shown lately that their machines end by
    /// themselves
    #[arg(long)]
    pub unproven: bool,

    /// The name of the set that the files belong to [default: the directory's name]
    #[arg(long, value_name = "NAME")]
    pub set: Option<String>,
}

const READS_IN_FLIGHT: usize = 16;

/// The meaning of a fault before anything is done. Other jobs of the user may run and bill.
const UNCHANGED: &str = "nothing was changed: what runs goes on";

/// The same after some files were applied.
const AS_FAR: &str = "what was done before that stays, and what runs goes on";

/// # Errors
/// Fails when a file has errors, the user declines, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let mut means = UNCHANGED;
    apply(args, context, &mut means).await.map_err(|fault| of_a_set(fault, means))
}

/// A fault for a single job says that nothing bills. For a set, `means` replaces that.
fn of_a_set(mut fault: Fault, means: &str) -> Fault {
    let meaning = fault.meaning.take().unwrap_or_else(|| means.to_owned());
    let meaning =
        ["no job was made: nothing was started or billed", "nothing was started or billed"]
            .iter()
            .fold(meaning, |meaning, alone| meaning.replace(alone, means));
    let is_said = means != UNCHANGED || meaning.contains("nothing was changed");
    let meaning = if is_said { meaning } else { format!("{meaning}; {means}") };
    let others = std::mem::take(&mut fault.others);
    fault.others = others.into_iter().map(|other| of_a_set(other, means)).collect();
    fault.meaning(meaning)
}

async fn apply(
    args: &Args,
    context: &Context,
    means: &mut &'static str,
) -> Result<ExitCode, Fault> {
    let (files, whole) = files_of(&args.paths, context)?;
    let set = match &args.set {
        Some(set) => JobId::slug(set),
        None => set_of(&args.paths[0], whole, context),
    };
    let store = if args.dry_run {
        job_root::open_existing(context).await?
    } else {
        job_root::open(context).await?
    };
    let terminal = Terminal::new(context, args.yes);
    let session = terminal.session(&store)?;
    let mut ready = Vec::new();
    for file in &prepare_all(&files, context)? {
        ready.push(ready_file::read(context, &session, &set, file).await?);
    }
    let (jobs, short) = jobs_of(&store, &set, context)
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
    let kept = schedules_of(&store, &set, context)
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
    let scheduled: BTreeSet<String> =
        kept.iter().map(|(_, record)| record.applied.file.clone()).collect();
    let facts: Vec<FileFact> = ready.iter().map(fact).collect();
    let wishes = ApplyWishes { replace: args.replace, prune: args.prune, again: args.again, whole };
    let planned = changes(&facts, &jobs, &scheduled, wishes);
    let controller = drive::controller(&job_root::workstation(context)?, &store)?;
    let costs = Costs::of(&session, context, &controller, &planned, &ready).await;
    let capped = caps_cost::of(context, &store, &planned, &costs).await?;
    if !context.is_machine_output() {
        let falls_short = |change: &FileChange| {
            let scheduled = ready
                .iter()
                .find(|one| one.applied.file == change.file)
                .and_then(|one| one.scheduled.as_ref());
            if scheduled.is_some_and(Scheduled::is_of_another_workdir) {
                return Some("another file in its workdir, the same words".to_owned());
            }
            let newest = newest_of(&change.file, &jobs).filter(|_| {
                change.change == ChangeKind::Unchanged && change.kind == Applies::Job
            })?;
            short
                .get(&newest.job)
                .map(|short| short.told(&again(&args.paths, whole, &change.file, &set, context)))
        };
        let ends = |job: &JobId| matches!(short.get(job), Some(Short::Ends));
        show(context, &session, &set, &planned, &costs, (falls_short, ends));
        capped.iter().for_each(|capped| capped.tell(context));
    }
    let costs = (costs, capped);
    if args.dry_run {
        let findings = check(args, &session, &controller, &planned, &ready, &costs.0).await;
        for finding in findings.iter().filter(|_| !context.is_machine_output()) {
            let refused = &finding.fault;
            context.printer.warn(format!("it would be refused: {}", refused.sentence()));
            refused.hint.iter().for_each(|hint| context.printer.hint(hint));
        }
        tell(context, &set, &planned, &costs, &[], true);
        return Ok(findings.first().map_or(ExitCode::SUCCESS, |finding| finding.fault.code));
    }
    if planned.iter().all(FileChange::is_nothing) {
        tell(context, &set, &planned, &costs, &[], false);
        return Ok(ExitCode::SUCCESS);
    }
    let findings = check(args, &session, &controller, &planned, &ready, &costs.0).await;
    preflight::refuse(&findings)?;
    confirm(args, context, &planned)?;
    *means = AS_FAR;
    let made =
        execute::carry_out(context, &store, &controller, &planned, &ready, &jobs, &kept).await?;
    tell(context, &set, &planned, &costs, &made, false);
    Ok(made
        .iter()
        .find_map(|made| made.refused.as_ref())
        .map_or(ExitCode::SUCCESS, ExitCode::of_receipt))
}

fn fact(ready: &ReadyFile) -> FileFact {
    FileFact {
        file: ready.applied.file.clone(),
        sha256: ready.applied.sha256.clone(),
        is_scheduled: ready.scheduled.is_some(),
        is_as_kept: ready.scheduled.as_ref().is_some_and(Scheduled::is_as_kept),
    }
}

/// The name of the directory; for files, the name of their parent.
fn set_of(path: &Path, whole: bool, context: &Context) -> String {
    let path = context.current_dir.join(path);
    let path = path.canonicalize().unwrap_or(path);
    let folder = if whole { Some(path.as_path()) } else { path.parent() };
    JobId::slug(
        &folder
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
    )
}

/// Reads all files before anything is done, and reports all errors at once.
fn prepare_all(files: &[PathBuf], context: &Context) -> Result<Vec<Submission>, Fault> {
    let (mut submissions, mut faults) = (Vec::new(), Vec::new());
    for file in files {
        match (JobArgs { file: Some(file.clone()), ..JobArgs::default() }).prepare(context) {
            Ok(job) => submissions.push(job),
            Err(fault) => faults.push(fault),
        }
    }
    let count = faults.len();
    match faults.pop() {
        None => Ok(submissions),
        Some(mut last) => {
            if context.is_machine_output() {
                last.others = faults;
            } else {
                faults
                    .into_iter()
                    .for_each(|fault| context.printer.fault(&of_a_set(fault, UNCHANGED)));
            }
            Err(if count == 1 {
                last
            } else {
                last.also(format!("{count} of {} files cannot be applied", files.len()))
            })
        }
    }
}

fn typed(paths: &[PathBuf], whole: bool, file: &str) -> PathBuf {
    let named = || paths.iter().find(|path| path.file_name().is_some_and(|name| name == file));
    if whole {
        paths[0].join(file)
    } else {
        named().cloned().unwrap_or_else(|| PathBuf::from(file))
    }
}

/// The command that makes one file's job again, as the user would type it.
fn again(paths: &[PathBuf], whole: bool, file: &str, set: &str, context: &Context) -> String {
    let path = typed(paths, whole, file);
    // A link alone belongs to the set of the directory that it points to.
    let set =
        if set_of(&path, false, context) == set { String::new() } else { format!(" --set {set}") };
    format!("lamp apply {}{set} --again", shell_word(&path.to_string_lossy()))
}

/// The jobs of this set and owner, and which of them fall short.
async fn jobs_of(
    store: &StoreHandle,
    set: &str,
    context: &Context,
) -> Result<(Vec<JobFact>, BTreeMap<JobId, Short>), JobDirError> {
    let all = jobdir::jobs(store.as_ref()).await?;
    let facts = stream::iter(all).map(|job| {
        let dir = JobDir::new(Arc::clone(store), job);
        async move {
            match job_fact(&dir, set, &context.config.user.owner).await {
                Err(error) => match record_errors::one_job_only(&dir, &error) {
                    Some(why) => {
                        context.printer.warn(format!("left out: {why}"));
                        Ok(None)
                    }
                    None => Err(error),
                },
                found => found,
            }
        }
    });
    let facts: Vec<Option<(JobFact, Option<Short>)>> =
        facts.buffered(READS_IN_FLIGHT).try_collect().await?;
    let (mut jobs, mut short) = (Vec::new(), BTreeMap::new());
    for (fact, falls_short) in facts.into_iter().flatten() {
        short.extend(falls_short.map(|how| (fact.job.clone(), how)));
        jobs.push(fact);
    }
    Ok((jobs, short))
}

async fn job_fact(
    dir: &JobDir,
    set: &str,
    owner: &str,
) -> Result<Option<(JobFact, Option<Short>)>, JobDirError> {
    // This version did not make a job that it cannot read.
    let spec = match dir.spec().await {
        Err(JobDirError::Store(error)) => return Err(error.into()),
        Err(_) => None,
        Ok(spec) => spec,
    };
    let Some(spec) = spec else { return Ok(None) };
    let Some(applied) = spec.applied.filter(|applied| applied.set == set && applied.owner == owner)
    else {
        return Ok(None);
    };
    let receipt = jobdir::unless_damaged(dir.receipt().await)?;
    let short = Short::of(dir, receipt.as_ref()).await?;
    let fell_short = short.as_ref().is_some_and(Short::is_over);
    Ok(Some((
        JobFact {
            job: spec.job,
            applied,
            created: spec.created,
            has_ended: receipt.is_some(),
            fell_short,
        },
        short,
    )))
}

async fn schedules_of(
    store: &StoreHandle,
    set: &str,
    context: &Context,
) -> Result<Vec<(ScheduleDir, Schedule)>, JobDirError> {
    let mut kept = Vec::new();
    for dir in jobdir::schedules(store, Some(set)).await? {
        let record = dir.record().await?.filter(|record| {
            record.removed.is_none() && record.applied.owner == context.config.user.owner
        });
        kept.extend(record.map(|record| (dir, record)));
    }
    Ok(kept)
}

/// `short`: what to say about a file whose job fell short. `ends`: which jobs were asked to end.
fn show(
    context: &Context,
    session: &Session<'_>,
    set: &str,
    planned: &[FileChange],
    costs: &Costs,
    (short, ends): (impl Fn(&FileChange) -> Option<String>, impl Fn(&JobId) -> bool),
) {
    if planned.is_empty() {
        context.printer.note(format!("no job files, and the set `{set}` is empty"));
        return;
    }
    let names =
        |jobs: &[JobId]| jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let rows: Vec<Vec<String>> = planned
        .iter()
        .map(|change| {
            let mut also: Vec<String> =
                short(change).iter().map(|short| context.printer.in_root(short)).collect();
            if !change.stops.is_empty() {
                also.push(format!("stops {}", names(&change.stops)));
            }
            let (ending, running): (Vec<JobId>, Vec<JobId>) =
                change.leaves.iter().cloned().partition(|job| ends(job));
            if !running.is_empty() {
                also.push(format!("leaves {} running", names(&running)));
            }
            if !ending.is_empty() {
                also.push(format!("{} ends already", names(&ending)));
            }
            if change.unschedules {
                also.push("ends its schedule".to_owned());
            } else if change.change == ChangeKind::Gone && change.kind == Applies::Schedule {
                also.push("leaves its schedule".to_owned());
            }
            let kind = if change.kind == Applies::Schedule { "schedule" } else { "job" };
            vec![
                change.file.clone(),
                kind.to_owned(),
                word(change.change).to_owned(),
                costs.word(&change.file),
                also.join("; "),
            ]
        })
        .collect();
    context.printer.line(render_table(&["file", "kind", "change", "at most", "also"], &rows, &[]));
    costs.tell(session);
    if planned.iter().any(|change| change.change == ChangeKind::Gone && change.is_nothing()) {
        context.printer.hint("`--prune` stops what is left of files that are gone");
    }
    let leaves = |kind: ChangeKind| {
        planned
            .iter()
            .any(|change| change.change == kind && change.leaves.iter().any(|job| !ends(job)))
    };
    if leaves(ChangeKind::Changed) {
        context
            .printer
            .hint("`--replace` stops the job of a changed file before the new one is made");
    } else if leaves(ChangeKind::Unchanged) {
        context.printer.hint("`--replace` stops the older jobs of a file");
    }
}

fn word(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Create => "create",
        ChangeKind::Unchanged => "unchanged",
        ChangeKind::Again => "again",
        ChangeKind::Changed => "changed",
        ChangeKind::Gone => "gone",
    }
}

/// The checks before anything is made. The clock matters only to jobs that are made now.
async fn check(
    args: &Args,
    session: &Session<'_>,
    controller: &Controller,
    planned: &[FileChange],
    ready: &[ReadyFile],
    costs: &Costs,
) -> Vec<PreflightFinding> {
    let found = |check, fault| PreflightFinding { check, fault };
    let mut findings: Vec<PreflightFinding> =
        costs.refused().map(|fault| found(PreflightCheck::Account, fault)).into_iter().collect();
    let makes_job =
        planned.iter().any(|change| change.makes() && change.kind == Applies::Job) && !args.dry_run;
    let clock = if makes_job { controller.check_clock().await.err() } else { None };
    let (proofs, unknown) = match proofs(args, session, planned, ready).await {
        Ok(proofs) => (proofs, None),
        Err(fault) => (None, Some(found(PreflightCheck::Proof, fault))),
    };
    let facts = PreflightFacts {
        clock,
        proofs: proofs.as_ref().map(|(proofs, regions)| (proofs, regions)),
        ..PreflightFacts::default()
    };
    findings.extend(preflight(controller, facts, session.clock.now()).await);
    findings.extend(unknown);
    if let (Some((proofs, regions)), None) =
        (&proofs, preflight::finding(&findings, PreflightCheck::Proof))
    {
        proofs.tell_what_was_not_tried(session, regions);
    }
    findings
}

/// Jobs made here run while this workstation is off, so they need a proof.
async fn proofs(
    args: &Args,
    session: &Session<'_>,
    planned: &[FileChange],
    ready: &[ReadyFile],
) -> Result<Option<(Proofs, BTreeSet<String>)>, Fault> {
    let is_made = |file: &str| planned.iter().any(|change| change.file == file && change.makes());
    let machines = ready
        .iter()
        .filter(|one| is_made(&one.applied.file))
        .map(|one| &one.submission.loaded.spec.machine);
    let machines: Vec<_> =
        machines.filter(|machine| proof_gate::is_asked(machine.cloud, args.unproven)).collect();
    if machines.is_empty() {
        return Ok(None);
    }
    let mut regions = BTreeSet::new();
    for machine in machines {
        regions.extend(session.workstation.aws_regions(&machine.regions).await);
    }
    Ok(Some((proof_gate::look(session.workstation, session.store).await?, regions)))
}

fn confirm(args: &Args, context: &Context, planned: &[FileChange]) -> Result<(), Fault> {
    let jobs: usize = planned.iter().map(|change| change.stops.len()).sum();
    let schedules = planned.iter().filter(|change| change.unschedules).count();
    if args.yes || jobs + schedules == 0 {
        return Ok(());
    }
    let what = format!(
        "this stops {} and ends {}",
        counted(jobs as u64, "job"),
        counted(schedules as u64, "schedule")
    );
    confirm::confirm(context, &what, args.yes, "nothing was changed")
}

fn tell(
    context: &Context,
    set: &str,
    planned: &[FileChange],
    (costs, capped): &(Costs, Option<Capped>),
    made: &[execute::Made],
    dry_run: bool,
) {
    if context.is_machine_output() {
        let changes: Vec<serde_json::Value> = planned
            .iter()
            .map(|change| {
                let mut value = json!(change);
                let made = made.iter().find(|made| made.file == change.file);
                let refused = made.and_then(|made| made.refused.as_ref());
                value["made"] = json!(made.map(|made| &made.name));
                value["refused"] = json!(refused.map(|receipt: &Receipt| &receipt.reason));
                value["waits_for"] =
                    json!(capped.as_ref().and_then(|capped| capped.waits.get(&change.file)));
                for (name, field) in costs.fields(&change.file) {
                    value[name] = field;
                }
                value
            })
            .collect();
        context.printer.json(&json!({ "set": set, "dry_run": dry_run, "changes": changes, "caps": capped.as_ref().map(|capped| &capped.shown) }));
    } else if dry_run {
        context.printer.note("nothing was done");
    } else if planned.iter().all(FileChange::is_nothing) {
        context.printer.note("nothing to do");
    }
    if !made.is_empty() {
        run::note_daemon(context, made.iter().any(|made| made.kind == Applies::Schedule));
    }
}
