//! `lamp init aws`: an account made ready for machines, once.
//!
//! ```text
//!   look -> plan (policy::setup) -> the table -> a question -> the steps -> the configuration
//! ```
//! What is there already is left alone, so that it can be run again at any time. What must never live here: which step is
//! right.

use clap::Args as ClapArgs;
use serde_json::json;

use super::fetch::with_progress;
use super::setup_steps::{Place, carry_out, confirm, edited, open, refuse_blocked, settings, show, write};
use super::{Context, ExitCode, Fault};
use crate::config::edit;
use crate::policy::setup::plan_setup;
use crate::policy::sweeper::plan_sweeper;
use crate::wire::setup::AwsSetup;

/// Make an AWS account ready: bucket, role of the machines, security group, service-linked roles
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub place: Place,

    /// Let `lamp ssh` open shells on the machines through Session Manager; who may, `lamp iam session` prints
    ///
    /// Not by default: a machine that trains does not need it, every process on it may use what its role may, and whoever in
    /// the account may start sessions anywhere gets a shell there.
    #[arg(long)]
    pub session_manager: bool,

    /// A sweeper in the cloud: every five minutes it ends machines of yours that no job needs, also while every workstation
    /// sleeps; five to twenty cents a month
    ///
    /// A function of AWS Lambda that runs this very program, a schedule that calls it, their roles and a log. Said again after
    /// an update of `lamp`, it sends the new program.
    #[arg(long)]
    pub sweeper: bool,
}

/// # Errors
/// Nobody answers, something of somebody else's is in the way, or it is not confirmed.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let place = &args.place;
    let setup = open(context, place, args.session_manager).await?;
    let found = with_progress(context, || "looking at what is there".to_owned(), setup.look()).await;
    let mut lines = plan_setup(&setup.names, &found);
    if args.sweeper {
        let stands = with_progress(context, || "looking at the sweeper".to_owned(), setup.look_at_sweeper()).await;
        lines.extend(plan_sweeper(&setup.names, &setup.wanted_sweeper(), &stands));
    }
    let wanted = settings(&setup.names, !place.region.is_empty());
    let configuration = edited(context, |text| edit::add(text, &wanted))?;
    show(context, &setup, &lines);
    let changed = configuration.as_ref().map(|edited| edited.changed.clone()).unwrap_or_default();
    let is_ready = lines.iter().all(|line| line.steps.is_empty());
    if !changed.is_empty() {
        context.printer.note(format!("the configuration will say {}", changed.join(", ")));
    }
    let tell = |done: bool| {
        if context.is_machine_output() {
            context.printer.json(&json!({
                "account": setup.account, "owner": setup.names.owner, "regions": setup.names.regions, "job_root": setup.names.job_root(),
                "lines": lines, "configuration": changed, "done": done,
            }));
        }
    };
    if place.dry_run {
        tell(false);
        refuse_blocked(&lines)?;
        context.printer.note("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    refuse_blocked(&lines)?;
    if is_ready && changed.is_empty() {
        tell(true);
        context.printer.note("everything is ready");
        write(context, configuration.as_ref(), &wanted);
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.note("none of it costs anything until it is used; stored jobs do, by the size");
    if args.sweeper {
        tell_of_sweeper(context, &setup);
    }
    if !place.yes {
        confirm(context, "Go on? [y/N]", "y")?;
    }
    carry_out(context, &setup, &lines, "lamp init aws").await?;
    write(context, configuration.as_ref(), &wanted);
    tell(true);
    context.printer.note("next: `lamp doctor` looks at all of it; `lamp iam controller` prints what a user of it must be allowed");
    if !args.sweeper {
        context.printer.hint("`lamp init aws --sweeper` adds a sweeper in the cloud, which ends what hangs also while this workstation sleeps");
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_of_sweeper(context: &Context, setup: &AwsSetup) {
    if let Some((path, bytes)) = setup.sweeper_program() {
        let megabytes = bytes as f64 / 1e6;
        context.printer.note(format!("the sweeper is `{}` ({megabytes:.1} MB); it costs five to twenty cents a month", path.display()));
    }
}
