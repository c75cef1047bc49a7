//! `lamp init aws`: makes an account ready for machines.
//!
//! ```text
//!   look -> plan (setup_plan) -> the table -> a question -> the steps -> the configuration
//! ```
//!
//! Existing resources are left alone, so the command can be repeated. Not here: which steps are
//! right (`policy::account::setup_plan`).

use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::json;

use super::setup_steps::{
    Carried, ConfigChange, SetupArgs, carry_out, confirm, edited, fault, open, refuse_blocked,
    settings, show, write,
};
use crate::account::lookup::SetupFound;
use crate::account::setup::bucket_of;
use crate::app::launch::region_hint;
use crate::cli::output::printer::shell_word;
use crate::cli::output::progress::with_progress;
use crate::cli::status::other_job_root::Lying;
use crate::cli::{Context, ExitCode, Fault};
use crate::config::config_edit::{self, Setting};
use crate::market::{Catalog, Region};
use crate::policy::account::doctor::unpriced_disks;
use crate::policy::account::setup_plan::{Rebind, SetupLine, other_root, plan_setup};
use crate::policy::account::sweeper_plan::plan_sweeper;
use crate::wire::setup::AwsSetup;

/// Make an AWS account ready: bucket, role of the machines, security group, service-linked roles
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub place: SetupArgs,

    /// Let `lamp ssh` open shells on the machines through Session Manager; who may,
    /// `lamp iam session` prints
    ///
    /// Not by default: a machine that trains does not need it, every process on it may use what its
    /// role may, and every user of the account who may start sessions gets a shell there.
    #[arg(long)]
    pub session_manager: bool,

    /// A security group for jobs of several machines, which lets in its own machines alone
    #[arg(long)]
    pub gangs: bool,

    /// A sweeper in the cloud: every five minutes it ends machines of yours that no job needs, also
    /// while every workstation sleeps; five to twenty-five cents a month
    ///
    /// A function of AWS Lambda that runs this very program, a schedule that calls it, their roles
    /// and a log. Said again after an update of `lamp`, it sends the new program.
    #[arg(long)]
    pub sweeper: bool,

    /// Bind the machines' role to this bucket instead of the one that it is for, and write it into
    /// the configuration
    ///
    /// Jobs stay where they are: `--job-root` still shows the jobs of the old bucket. It is refused
    /// while a machine of yours is not terminated, because the role would take its job away from
    /// it.
    #[arg(long)]
    pub instead: bool,
}

/// Jobs in the previous job root: later commands would not find them.
async fn left_behind(context: &Context, changed: &[String], next: &str) -> Option<Lying> {
    let moves = changed.iter().any(|line| line.starts_with("job_root"));
    let lying = if moves { Lying::behind(context, next).await? } else { return None };
    if lying.has_work() {
        context.printer.warn(lying.stays())
    } else {
        context.printer.note(lying.stays())
    }
    Some(lying)
}

/// Prefixes of regions outside AWS's ordinary partition. They have other endpoints, price lists and
/// accounts.
const ELSEWHERE: [&str; 5] = ["cn-", "us-gov-", "us-iso", "eusc-", "eu-isoe-"];

/// No machine can be bought there, so a bucket and roles are useless.
fn refuse_elsewhere(regions: &[String]) -> Result<(), Fault> {
    let Some(region) =
        regions.iter().find(|region| ELSEWHERE.iter().any(|other| region.starts_with(other)))
    else {
        return Ok(());
    };
    let what = format!(
        "`{region}` is in a partition of AWS of its own, whose prices and addresses of S3 this version does not know"
    );
    Err(Fault::new(ExitCode::REFUSED, what)
        .meaning("nothing was changed; no machine could be bought there")
        .hint("--region names another"))
}

/// # Errors
/// Fails when AWS does not answer, another owner's resource is in the way, or the user declines.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let place = &args.place;
    let setup = open(context, place, args.session_manager, args.gangs).await?;
    refuse_elsewhere(&setup.names.regions)?;
    let found =
        with_progress(context, || "looking at what is there".to_owned(), setup.look()).await;
    let rebind = if args.instead { Rebind::Asked } else { Rebind::Refused };
    let mut lines = planned(args, context, &setup, &found, rebind).await;
    let wanted: Vec<Setting> = settings(&setup.names, !place.region.is_empty())
        .into_iter()
        .map(
            |setting| {
                if setting.key == "job_root" { setting.replacing(args.instead) } else { setting }
            },
        )
        .collect();
    let configuration = edited(context, |text| config_edit::add(text, &wanted))?;
    show(context, &setup, &lines);
    warn_unpriced(context, &setup.names.regions);
    keep_one_bucket(args, context, &setup, &found).await?;
    let changed = configuration.as_ref().map(|edited| edited.changed.clone()).unwrap_or_default();
    let is_ready = lines.iter().all(|line| line.steps.is_empty());
    if !changed.is_empty() {
        context.printer.note(format!("the configuration will say {}", changed.join(", ")));
    }
    let left_behind = left_behind(context, &changed, &setup.names.job_root()).await;
    let tell = |lines: &[SetupLine], done: bool| {
        if context.is_machine_output() {
            context.printer.json(&json!({
                "account": setup.account, "owner": setup.names.owner, "regions": setup.names.regions, "job_root": setup.names.job_root(),
                "lines": lines, "configuration": changed, "done": done,
            }));
        }
    };
    if place.dry_run {
        tell(&lines, false);
        refuse_blocked(&lines)?;
        context.printer.note("nothing was changed");
        return Ok(left_undone(context, &lines));
    }
    refuse_blocked(&lines)?;
    if is_ready && changed.is_empty() {
        tell(&lines, true);
        write(context, ConfigChange::Added, configuration.as_ref(), &wanted);
        let is_otherwise = configuration.as_ref().is_none_or(|edited| !edited.kept.is_empty());
        context.printer.note(
            match lines.iter().any(|line| line.remark.is_some()) || is_otherwise {
                true => "nothing is left to do here; what the warnings name is for you to decide",
                false => "everything is ready",
            },
        );
        return Ok(left_undone(context, &lines));
    }
    let beside = if args.sweeper { "beside the sweeper, none of it" } else { "none of it" };
    context
        .printer
        .note(format!("{beside} costs anything until it is used; stored jobs do, by the size"));
    if args.sweeper {
        tell_of_sweeper(context, &setup);
    }
    if !place.yes {
        confirm(context, "Go on? [y/N]", "y")?;
    }
    if let Carried::Overtaken(thing) = carry_out(context, &setup, &lines, AGAIN).await? {
        lines = go_on_beside(args, context, &setup, &thing).await?;
    }
    write(context, ConfigChange::Added, configuration.as_ref(), &wanted);
    tell(&lines, true);
    // The question and the steps have scrolled it off the screen.
    left_behind.iter().for_each(|lying| context.printer.note(lying.stays()));
    context.printer.note("next: `lamp doctor` looks at all of it; `lamp iam controller` prints what a user of it must be allowed");
    if !args.sweeper {
        context.printer.hint("`lamp init aws --sweeper` adds a sweeper in the cloud, which ends what hangs also while this workstation sleeps");
    }
    Ok(left_undone(context, &lines))
}

fn left_undone(context: &Context, lines: &[SetupLine]) -> ExitCode {
    let lacking: Vec<&SetupLine> = lines.iter().filter(|line| line.lacks).collect();
    for line in &lacking {
        let remark = line.remark.as_deref().map(|remark| format!("; {remark}")).unwrap_or_default();
        context.printer.warn(format!(
            "not ready: {}: {}, so that no machine is bought there{remark}",
            line.thing, line.found
        ));
    }
    if lacking.is_empty() { ExitCode::SUCCESS } else { ExitCode::FINDINGS }
}

async fn planned(
    args: &Args,
    context: &Context,
    setup: &AwsSetup,
    found: &SetupFound,
    rebind: Rebind,
) -> Vec<SetupLine> {
    let mut lines = plan_setup(&setup.names, found, rebind);
    if args.sweeper {
        let stands =
            with_progress(context, || "looking at the sweeper".to_owned(), setup.look_at_sweeper())
                .await;
        lines.extend(plan_sweeper(&setup.names, &setup.wanted_sweeper(), &stands));
    }
    lines
}

/// The command that continues after a failed step.
const AGAIN: &str = "lamp init aws";

/// The other caller writes the role's policy next, and IAM shows it within seconds. Later, that
/// caller must have stopped.
const POLICY_FOLLOWS_WITHIN: Duration = Duration::from_secs(12);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Two calls ran at once, and the other one chose the job root. This one looks again and does the
/// rest, or is refused. `--instead` was meant for the earlier state.
///
/// # Errors
/// Fails when the role is for another job root, or this happens twice.
async fn go_on_beside(
    args: &Args,
    context: &Context,
    setup: &AwsSetup,
    thing: &str,
) -> Result<Vec<SetupLine>, Fault> {
    context
        .printer
        .note(format!("{thing}: another user has just made it, so the account is read again"));
    let until = context.clock.mono() + POLICY_FOLLOWS_WITHIN;
    let found = loop {
        let found = with_progress(context, || "looking again".to_owned(), setup.look()).await;
        if found.role.there().is_some_and(|role| role.policy.is_some())
            || context.clock.mono() >= until
        {
            break found;
        }
        context.clock.sleep(LOOK_AGAIN).await;
    };
    let lines = planned(args, context, setup, &found, Rebind::Refused).await;
    show(context, setup, &lines);
    if let Err(fault) = refuse_blocked(&lines) {
        return Err(fault
            .meaning("it was made while this command ran; what this one made before stays, costs nothing, and the configuration is as it was")
            .hint(format!("`{AGAIN} --dry-run` shows what is there; ask the other user who sets this account up")));
    }
    match carry_out(context, setup, &lines, AGAIN).await? {
        Carried::All => Ok(lines),
        Carried::Overtaken(thing) => Err(Fault::new(
            ExitCode::UNREACHABLE,
            format!("{thing}: another user has just made it, once more"),
        )
        .meaning("what was done before it stays")
        .hint(format!("`{AGAIN}` goes on where it stopped"))),
    }
}

fn warn_unpriced(context: &Context, regions: &[String]) {
    // An unknown region was reported before.
    let unpriced = |name: &&String| {
        Catalog::shipped().disk_gib_month(&Region::new(name.as_str())).is_none()
            && region_hint::unknown(name).is_none()
    };
    let unpriced: Vec<String> = regions.iter().filter(unpriced).cloned().collect();
    if !unpriced.is_empty() {
        context.printer.warn(unpriced_disks(&unpriced));
    }
}

/// The machines' role and the configuration must name one bucket: a machine cannot reach a job in
/// another.
async fn keep_one_bucket(
    args: &Args,
    context: &Context,
    setup: &AwsSetup,
    found: &SetupFound,
) -> Result<(), Fault> {
    let wanted = setup.names.job_root();
    let said = context
        .config
        .user
        .job_root
        .as_deref()
        .filter(|root| bucket_of(root).is_some())
        .map(|root| root.trim_end_matches('/').to_owned());
    let said = said.filter(|said| *said != wanted);
    if args.instead {
        let bound = || other_root(&setup.names, found.role.there()?.policy.as_ref());
        let Some(said) = said.or_else(bound) else { return Ok(()) };
        let running =
            with_progress(context, || "looking for machines of yours".to_owned(), setup.machines())
                .await;
        let running = running.map_err(|error| fault(&error).meaning("nothing was changed"))?;
        let Some(first) = running.first() else { return Ok(()) };
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("{first} is not terminated, and would lose its job in {said}"),
        )
        .meaning("nothing was changed")
        .hint("`lamp stop` ends what runs, `lamp cancel` what an ended job keeps"));
    }
    let Some(said) = said else { return Ok(()) };
    Err(Fault::new(
        ExitCode::REFUSED,
        format!("the configuration says `job_root = \"{said}\"`, and {wanted} is asked for"),
    )
    .meaning(
        "nothing was changed: jobs in the one would be out of reach for the machines of the other",
    )
    .hint(format!(
        "`lamp init aws --bucket {}{} --instead` changes both",
        setup.names.bucket,
        prefix_flag(&setup.names.prefix)
    )))
}

fn prefix_flag(prefix: &str) -> String {
    if prefix.is_empty() {
        String::new()
    } else {
        format!(" --prefix {}", shell_word(prefix.trim_end_matches('/')))
    }
}

fn tell_of_sweeper(context: &Context, setup: &AwsSetup) {
    if let Some((path, bytes)) = setup.sweeper_program() {
        let megabytes = bytes as f64 / 1e6;
        context.printer.note(format!(
            "the sweeper is `{}` ({megabytes:.1} MB); it costs five to twenty-five cents a month",
            path.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_aws_partition_is_refused_before_anything_is_made() {
        for region in ["cn-north-1", "us-gov-west-1", "eusc-de-east-1"] {
            let fault = refuse_elsewhere(&["us-east-1".into(), region.into()]).unwrap_err();
            assert!(fault.sentence().contains(region), "{}", fault.sentence());
        }
        assert!(
            refuse_elsewhere(&["us-east-1".into(), "eu-central-1".into(), "ca-central-1".into()])
                .is_ok()
        );
    }
}
