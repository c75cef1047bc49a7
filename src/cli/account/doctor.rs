//! `lamp doctor`: checks that everything jobs need is there, and says what to type if not.
//!
//! ```text
//!   checks of this workstation ─┐
//!   checks of AWS (doctor_aws) ─┴─ in parallel ─ one line each ─ the worst is the exit code
//! ```
//!
//! It changes nothing, except with `--prove` (prove_shutdown.rs). Not here: which results are good
//! (`policy::account::doctor`).

use std::cell::Cell;

use clap::Args as ClapArgs;
use futures::future::join_all;
use serde_json::json;

use super::doctor_aws::{self, RunningCheck};
use crate::cli::output::printer::{Stream, Style};
use crate::cli::output::progress::with_progress;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, JobArgs};
use crate::config::shown;
use crate::job::{Finding, Severity};
use crate::policy::account::doctor::{Check, Level, NOT_KNOWN, worst};
use crate::wire;
use crate::wire::setup::{UserUnit, daemon_unit, gpus, reads_job_root};

/// Look at everything that jobs need, here and at AWS, and say what to do where it is missing
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Buy the smallest machine, give it no agent, and watch whether it ends by itself; says what
    /// that costs, and asks
    #[arg(long)]
    pub prove: bool,

    #[command(flatten)]
    pub proof: super::prove_shutdown::ProofArgs,
}

/// # Errors
/// Fails when the path of the state folder is unknown.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    if args.prove {
        return super::prove_shutdown::run(&args.proof, context).await;
    }
    let workstation = job_root::workstation(context)?;
    let agent = || workstation.agent_to_ship();
    let mut asked: Vec<RunningCheck<'_>> = vec![
        Box::pin(async { vec![configuration(context)] }),
        Box::pin(async { vec![place(context).await] }),
        Box::pin(async { vec![daemon(daemon_unit().await, workstation.daemon_runs())] }),
        Box::pin(async { vec![gpu(gpus().await)] }),
        Box::pin(async { notifications(context) }),
    ];
    let first_of_aws = asked.len();
    asked.extend(doctor_aws::checks(context, &workstation, &agent));
    let all = asked.len();
    let answered = Cell::new(0);
    let counted = asked.into_iter().map(|check| async {
        let check = check.await;
        answered.set(answered.get() + 1);
        check
    });
    let told = || format!("asking: {} of {all} have answered", answered.get());
    let groups = with_progress(context, told, join_all(counted)).await;
    let aws_at: usize = groups.iter().take(first_of_aws).map(Vec::len).sum();
    let checks: Vec<Check> = groups.into_iter().flatten().collect();
    show(context, &checks, aws_at);
    Ok(match worst(&checks) {
        Level::Failure => ExitCode::FINDINGS,
        Level::Unknown => ExitCode::UNREACHABLE,
        Level::Ok | Level::Skipped | Level::Warning => ExitCode::SUCCESS,
    })
}

fn show(context: &Context, checks: &[Check], aws_at: usize) {
    if context.is_machine_output() {
        context.printer.json(&json!({ "worst": worst(checks), "checks": checks }));
        return;
    }
    let printer = &context.printer;
    let width = checks.iter().map(|check| check.check.len()).max().unwrap_or(0);
    // A dozen equal lines would hide the one with the reason.
    let alike = |check: &&Check| check.lacks_identity;
    let unasked: Vec<&str> =
        checks.iter().filter(alike).map(|check| check.check.as_str()).collect();
    for (at, check) in checks.iter().enumerate() {
        if at == 0 || at == aws_at {
            printer.line(printer.paint(
                Stream::Out,
                Style::Bold,
                if at == 0 { "this workstation" } else { "AWS" },
            ));
        }
        if alike(&check) {
            continue;
        }
        let (word, style) = match check.level {
            Level::Ok => ("ok  ", Style::Good),
            Level::Skipped => ("-   ", Style::Dim),
            Level::Warning => ("warn", Style::Warning),
            Level::Unknown => ("?   ", Style::Bad),
            Level::Failure => ("FAIL", Style::Bad),
        };
        printer.prose(
            8 + width,
            format!(
                "{}  {:width$}  {}",
                printer.paint(Stream::Out, style, word),
                check.check,
                check.said
            ),
        );
        if let Some(fix) = &check.fix {
            printer.prose(
                12 + width,
                format!(
                    "      {:width$}  {} {fix}",
                    "",
                    printer.paint(Stream::Out, Style::Hint, "do:")
                ),
            );
        }
    }
    if !unasked.is_empty() {
        let word = printer.paint(Stream::Out, Style::Dim, "-   ");
        printer.prose(
            8 + width,
            format!("{word}  {:width$}  {NOT_KNOWN}: {}", "the rest", unasked.join(", ")),
        );
    }
    let number = |level| checks.iter().filter(|check| check.level == level).count();
    let (failures, unknown, warnings) =
        (number(Level::Failure), number(Level::Unknown), number(Level::Warning));
    printer.note(match (failures, unknown, warnings) {
        (0, 0, 0) => "all is well".to_owned(),
        // Nothing here uses AWS yet, so this is only a warning.
        (0, 0, warnings)
            if checks
                .iter()
                .any(|check| check.check == "credentials" && check.level == Level::Warning) =>
        {
            format!(
                "nothing that is set up is broken, and AWS cannot be used yet; warnings: {warnings}"
            )
        }
        (0, 0, warnings) => format!("nothing is broken; warnings: {warnings}"),
        (_, 0, _) => format!("failures: {failures}, warnings: {warnings}"),
        _ => format!("failures: {failures}, without an answer: {unknown}, warnings: {warnings}"),
    });
}

/// The first configuration error that also stops a job with only a command.
fn refuses_every_job(context: &Context) -> Option<Finding> {
    let job =
        JobArgs { command: vec!["true".to_owned()], ..JobArgs::default() }.read(context).ok()?;
    let path = context.config.user.path.as_deref().map(|path| shown(path, &context.current_dir))?;
    job.findings.into_iter().find(|finding| {
        finding.severity == Severity::Error && finding.file.as_deref() == Some(path.as_str())
    })
}

/// A configuration that can be read may still let no job run.
/// One line for each channel whose secrets cannot be read, or one for all. Nothing without a
/// channel.
fn notifications(context: &Context) -> Vec<Check> {
    let channels = context.config.user.notify.channels.iter().cloned();
    let channels: Vec<wire::NotifyChannel> = channels.map(wire::NotifyChannel::new).collect();
    let wrong = channels.iter().filter_map(|channel| {
        let error = channel.check().err()?;
        let said = format!("no message goes through `{}`: {error}", channel.name());
        Some(Check::warning("notify", said).fix(error.cure))
    });
    let wrong: Vec<Check> = wrong.collect();
    if channels.is_empty() || !wrong.is_empty() {
        return wrong;
    }
    let names: Vec<&str> = channels.iter().map(wire::NotifyChannel::name).collect();
    let said = format!("{}; `lamp notify test` sends a message", names.join(", "));
    vec![Check::ok("notify", said)]
}

fn configuration(context: &Context) -> Check {
    match &context.config.user.path {
        Some(_) if let Some(wrong) = refuses_every_job(context) => {
            let line = wrong.line.map(|line| format!(":{line}")).unwrap_or_default();
            let text = format!(
                "{}{line} lets no job run: {wrong}",
                wrong.file.as_deref().unwrap_or_default()
            );
            Check::failure("configuration", text).fix(wrong.hint.unwrap_or_else(|| {
                "mend that line: `lamp check` of any job says the same".to_owned()
            }))
        }
        Some(path) if context.config.is_misread => {
            let text = format!(
                "{} has errors: what could be read of it is what the lines below go by",
                path.display()
            );
            Check::failure("configuration", text)
                .fix("mend what was said of it above: nothing is launched with it before that")
        }
        Some(path) => Check::ok(
            "configuration",
            format!("{}, owner {}", path.display(), context.config.user.owner),
        ),
        None => Check::ok(
            "configuration",
            format!("none, which is fine; owner {}", context.config.user.owner),
        ),
    }
}

async fn place(context: &Context) -> Check {
    let name = "job root";
    let said = format!("{} (from the {})", context.roots.url, context.roots.origin);
    let store = match job_root::open_existing(context).await {
        Ok(store) => store,
        Err(fault) => {
            let elsewhere = "`--job-root`, or `lamp init`, names another place for jobs";
            return Check::failure(name, fault.sentence())
                .fix(fault.hint.clone().unwrap_or_else(|| elsewhere.to_owned()));
        }
    };
    // The first job creates the folder. This tests whether it can be created.
    if let Some(folder) = context.roots.url.strip_prefix("file://")
        && let Err(error) = wire::can_be_made(folder.as_ref())
    {
        return Check::failure(name, format!("{said} is not there and cannot be made: {error}"))
            .fix("`--job-root` or LAMP_JOB_ROOT names another place for jobs");
    }
    match reads_job_root(&store).await {
        Ok(jobs) => Check::ok(name, format!("{said}, {}", crate::app::text::counted(jobs as u64, "job"))),
        Err(why) => Check::failure(name, format!("{said} cannot be read: {why}"))
            .fix("look at the network, and at who asks (the line `credentials`); `--job-root` or `lamp init` names another place for jobs"),
    }
}

fn daemon(unit: UserUnit, runs: bool) -> Check {
    let name = "daemon";
    let install = "`systemctl --user enable --now lamp-controller`; its unit is systemd/lamp-controller.service";
    match unit {
        _ if runs => Check::ok(name, "a daemon drives this job root"),
        UserUnit::Known(state) => Check::warning(name, format!("lamp-controller is {state}"))
            .fix("`systemctl --user restart lamp-controller`"),
        UserUnit::NotInstalled => Check::new(
            name,
            Level::Skipped,
            "none: a job is driven by the `lamp` that started it, and by each `lamp` that looks at it",
        )
        .fix(install),
        UserUnit::NoManager(why) => Check::new(
            name,
            Level::Skipped,
            format!("no systemd for this user ({why}): `lamp daemon` runs without it"),
        ),
    }
}

fn gpu(found: Result<Option<String>, String>) -> Check {
    let name = "gpu here";
    match found {
        Ok(Some(gpus)) => Check::ok(name, gpus),
        Ok(None) => Check::new(
            name,
            Level::Skipped,
            "no NVIDIA driver: `cloud = \"local\"` runs without a GPU",
        ),
        Err(why) => Check::warning(name, format!("the driver is there and does not answer: {why}"))
            .fix("`nvidia-smi` says more"),
    }
}
