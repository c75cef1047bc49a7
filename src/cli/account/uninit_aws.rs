//! `lamp uninit aws`: removes what `lamp init aws` made, and nothing else.
//!
//! Only resources with our owner tag go. A job root with jobs stays unless `--delete-jobs` is given
//! and their number is typed. A bucket with other objects stays.

use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::setup_steps::{
    ConfigChange, SetupArgs, carry_out, confirm, edited, fault, open, refuse_blocked, settings,
    show, write,
};
use crate::account::lookup::SetupFound;
use crate::account::setup::{InUse, SetupStep};
use crate::app::find_job;
use crate::app::record_errors;
use crate::app::text::counted;
use crate::cli::output::progress::with_progress;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::config::config_edit;
use crate::job::JobId;
use crate::jobdir::{self, JobDir, JobDirError, unless_damaged};
use crate::policy::account::active_drivers::{DrivenHere, in_the_way};
use crate::policy::account::setup_plan::{SetupLine, jobs_without_an_end, plan_removal};
use crate::policy::account::sweeper_plan::plan_sweeper_removal;
use crate::wire::setup::AwsSetup;

/// Take away what `lamp init aws` made
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub what: UninitTarget,
}

#[derive(Clone, Debug, Subcommand)]
pub enum UninitTarget {
    Aws(AwsArgs),
}

/// The bucket, the roles, the instance profile, the security group and the sweeper that carry our
/// owner tag
#[derive(Clone, Debug, ClapArgs)]
pub struct AwsArgs {
    #[command(flatten)]
    pub place: SetupArgs,

    /// Delete the jobs of the job root too, and the bucket with them where it holds nothing else
    #[arg(long)]
    pub delete_jobs: bool,

    /// How many jobs are in the job root (the table says it), instead of typing it when asked; with
    /// --yes, jobs go only by this
    #[arg(long, value_name = "JOBS", requires = "delete_jobs")]
    pub count: Option<u64>,
}

/// # Errors
/// Fails when AWS does not answer, a machine of ours still runs, or the user declines.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let UninitTarget::Aws(args) = &args.what;
    let place = &args.place;
    let setup = open(context, place, false, false).await?;
    let looking = || "looking at what is there".to_owned();
    let found = with_progress(context, looking, setup.look()).await;
    if let Some(bucket) = found.bucket.there().filter(|bucket| bucket.region != setup.names.home())
    {
        let (region, asked) =
            (&bucket.region, setup.names.regions.iter().filter(|asked| **asked != bucket.region));
        let named =
            place.bucket.as_ref().map(|bucket| format!(" --bucket {bucket}")).unwrap_or_default();
        let all: Vec<&str> =
            std::iter::once(region.as_str()).chain(asked.map(String::as_str)).collect();
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("the bucket {} is in {region}, which is not the first region that is asked for", setup.names.bucket),
        )
        .meaning("nothing was changed")
        .hint(format!("`lamp uninit aws --region {}{named}` names it first; without --region, the regions of the configuration count", all.join(","))));
    }
    let used = with_progress(context, looking, setup.in_use(&found))
        .await
        .map_err(|error| fault(&error).meaning("nothing was changed"))?;
    let stands = with_progress(context, looking, setup.look_at_sweeper()).await;
    let LeftInRoot { schedules, tunings, jobs: waiting } =
        left_in_root(args, context, &setup, &found).await?;
    let mut lines = plan_sweeper_removal(&setup.names, &stands, &used);
    lines.extend(plan_removal(&setup.names, &found, &used, args.delete_jobs));
    // A job root that stays keeps its name and regions in the configuration: otherwise its jobs are
    // not found.
    let root_goes = [SetupStep::DeleteBucket, SetupStep::EmptyRoot, SetupStep::ForgetHouse]
        .iter()
        .any(|step| does(&lines, step));
    if lines.iter().any(|line| !line.steps.is_empty()) {
        lines.splice(0..0, in_the_way(&driven_here(context, &setup, &waiting)?, root_goes));
    }
    lines.splice(0..0, jobs_without_an_end(&waiting));
    // Warn about what blocks before the table of what would be done.
    if !context.is_machine_output()
        && let Some(blocked) = lines.iter().find(|line| line.blocks)
    {
        context.printer.warn(format!(
            "the permissions stay as long as this is so: {}: {}",
            blocked.thing, blocked.found
        ));
    }
    show(context, &setup, &lines);
    let stays = |key: &str| !root_goes && ["job_root", "regions"].contains(&key);
    let wanted: Vec<_> =
        settings(&setup.names, false).into_iter().filter(|setting| !stays(setting.key)).collect();
    let wanted = if lines.iter().any(|line| !line.steps.is_empty()) { wanted } else { Vec::new() };
    let configuration = edited(context, |text| config_edit::take_away(text, &wanted))?;
    let tell = |done: bool| {
        if context.is_machine_output() {
            context.printer.json(&json!({ "account": setup.account, "owner": setup.names.owner, "in_use": used, "schedules": schedules, "tunings": tunings, "lines": lines, "done": done }));
        }
    };
    let is_blocked = lines.iter().any(|line| line.blocks);
    if let Some(gone) = configuration
        .as_ref()
        .map(|edited| &edited.changed)
        .filter(|changed| !changed.is_empty() && !is_blocked)
    {
        context.printer.note(format!("the configuration will no longer say {}", gone.join(", ")));
    }
    let is_emptied = does(&lines, &SetupStep::EmptyRoot);
    let schedule = ("schedule", "goes on with them");
    tell_left(context, schedule, &schedules, is_emptied, |first| {
        let set = first.split('/').next().unwrap_or_default();
        format!("`lamp apply DIR --set {set} --prune` with their files taken out of DIR ends them")
    });
    tell_left(context, ("tuning", "starts more trials"), &tunings, is_emptied, |first| {
        format!("`lamp tune stop {first}` ends it")
    });
    if place.dry_run {
        tell(false);
        refuse_blocked(&lines)?;
        context.printer.note("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    refuse_blocked(&lines)?;
    if lines.iter().all(|line| line.steps.is_empty()) {
        tell(true);
        context.printer.note("there is nothing of ours to take away");
        return Ok(ExitCode::SUCCESS);
    }
    if does(&lines, &SetupStep::EmptyRoot) {
        confirm_count(args, context, &setup.names.job_root(), &used)?;
    } else if !place.yes {
        confirm(context, "Take it away? [y/N]", "y")?;
    }
    carry_out(context, &setup, &lines, "lamp uninit aws").await?;
    write(context, ConfigChange::TakenOut, configuration.as_ref(), &[]);
    tell(true);
    Ok(ExitCode::SUCCESS)
}

fn does(lines: &[SetupLine], step: &SetupStep) -> bool {
    lines.iter().any(|line| line.steps.contains(step))
}

/// By the locks in this user's state folder. The jobs in `told` are reported anyway.
fn driven_here(context: &Context, setup: &AwsSetup, told: &[JobId]) -> Result<DrivenHere, Fault> {
    let there = job_root::workstation(context)?.at(&setup.names.job_root());
    let jobs =
        there.driven().into_iter().filter(|job| !told.iter().any(|told| told.as_str() == job));
    Ok(DrivenHere { daemon: there.daemon_runs(), jobs: jobs.collect() })
}

/// Records that may still need a daemon: schedules in force, as `SET/NAME`, tunings and jobs
/// without an end.
#[derive(Debug, Default)]
struct LeftInRoot {
    schedules: Vec<String>,
    tunings: Vec<String>,
    jobs: Vec<JobId>,
}

async fn left_in_root(
    args: &AwsArgs,
    context: &Context,
    setup: &AwsSetup,
    found: &SetupFound,
) -> Result<LeftInRoot, Fault> {
    if found.bucket.there().is_none() {
        return Ok(LeftInRoot::default());
    }
    let there = job_root::workstation(context)?
        .at(&setup.names.job_root())
        .in_regions(&setup.names.regions);
    let store = there.open_root(true).await;
    let store = store.map_err(|error| job_root::open_fault(context, &error))?;
    let told =
        |error: &JobDirError| record_errors::record_fault(error).meaning("nothing was changed");
    let mut named = Vec::new();
    for dir in jobdir::schedules(&store, None).await.map_err(|error| told(&error.into()))? {
        // A schedule that this version cannot read may be in force.
        if unless_damaged(dir.record().await)
            .map_err(|error| told(&error))?
            .is_none_or(|record| record.removed.is_none())
        {
            named.push(format!("{}/{}", dir.set(), dir.name()));
        }
    }
    let mut tunings = Vec::new();
    for dir in jobdir::tunings(&store).await.map_err(|error| told(&error.into()))? {
        // One whose end cannot be read may still be driven.
        if unless_damaged(dir.end().await).map_err(|error| told(&error))?.is_some() {
            continue;
        }
        let record = unless_damaged(dir.record().await).map_err(|error| told(&error))?;
        // Deleting the job root affects the tunings of every owner.
        if args.delete_jobs || record.is_none_or(|record| record.owner == setup.names.owner) {
            tunings.push(dir.name().to_owned());
        }
    }
    let nothing_done = |fault: Fault| fault.meaning("nothing was changed");
    let (mut open, mut nobodys) = (Vec::new(), Vec::new());
    for job in find_job::all_that_may_be_open(&store).await.map_err(nothing_done)? {
        let dir = JobDir::new(Arc::clone(&store), job.clone());
        match find_job::owner_of(&dir).await.map_err(nothing_done)? {
            // Deleting the job root affects the jobs of every owner.
            _ if args.delete_jobs => open.push(job),
            Some(owner) if owner == setup.names.owner => open.push(job),
            // Another owner's permissions stay.
            Some(_) => {}
            None => nobodys.push(job),
        }
    }
    if let Some(first) = nobodys.first() {
        let number = counted(nobodys.len() as u64, "job");
        let all = nobodys.iter().map(JobId::as_str).collect::<Vec<_>>().join(", ");
        context
            .printer
            .warn(format!("{number} without an end and without a recorded owner ({all}): end your jobs first, since they need these permissions"));
        context.printer.hint(format!("`lamp cancel {first}`"));
    }
    Ok(LeftInRoot { schedules: named, tunings, jobs: open })
}

/// `kind`: its name, and what a daemon does with it. `end`: how the first of them is ended.
fn tell_left(
    context: &Context,
    (kind, driven): (&str, &str),
    names: &[String],
    goes: bool,
    end: impl FnOnce(&str) -> String,
) {
    let Some(first) = names.first() else { return };
    let (number, all) = (counted(names.len() as u64, kind), names.join(", "));
    if goes {
        context.printer.warn(format!("{number} will be gone with the job root: {all}"));
        return;
    }
    context.printer.warn(format!("left in the job root, where a daemon {driven}: {number}, {all}"));
    context.printer.hint(format!("{}; stop the daemon too", end(first)));
}

/// `--yes` alone never deletes a job: the number shows that the user looked.
fn confirm_count(args: &AwsArgs, context: &Context, root: &str, used: &InUse) -> Result<(), Fault> {
    let refused = |what: String| Fault::new(ExitCode::REFUSED, what).meaning("nothing was changed");
    let held =
        format!("{} with {} in {root}", counted(used.jobs, "job"), counted(used.objects, "object"));
    match args.count {
        Some(count) if count == used.jobs => Ok(()),
        Some(count) => Err(refused(format!("there are {held}, not {count}"))),
        None if args.place.yes => Err(refused(format!("there are {held}"))
            .hint(format!("`--count {}` says that they may go", used.jobs))),
        None => confirm(
            context,
            &format!("{held} will be gone for ever. Type the number of jobs:"),
            &used.jobs.to_string(),
        ),
    }
}
