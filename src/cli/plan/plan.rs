//! `lamp plan`: shows which machine, its price, and the most that it can cost. Starts nothing.

use clap::Args as ClapArgs;

use super::catalog_plan::Shipped;
use super::dry_run::{LaunchPermission, LaunchPermissions};
use super::forecast::{self, Forecast};
use super::plan_document::{PlanDocument, PlanSource};
use super::{bid_text, check, text};
use crate::app::costs::hours_cost::{HoursCost, hours_of_work};
use crate::app::drive;
use crate::app::launch::account_ready;
use crate::app::launch::checkpoint_cadence::{self, CadenceShown};
use crate::app::launch::first_plan;
use crate::app::launch::gang_cost::{self, gang_cost, most_of_trial};
use crate::app::launch::limit_check::OutOfReach;
use crate::app::launch::preflight::{
    self, PreflightCheck, PreflightFacts, PreflightFinding, preflight,
};
use crate::app::launch::saved_files;
use crate::app::launch::submission::Submission;
use crate::app::text::local_time;
use crate::cli::apply::caps_view;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault, JobArgs};
use crate::controller::Planned;
use crate::job::{Finding, Plan};
use crate::market::CloudKind;
use crate::policy::tune::tuning_cost::TuningCost;

/// Show which machine a job would get and the most that it can cost
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,

    /// Say also what so many hours of the planned machines cost
    #[arg(long, value_name = "N", value_parser = hours_of_work)]
    pub hours: Option<f64>,
}

/// # Errors
/// Fails when the job has errors, or no offer fits.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let submission = args.job.prepare(context)?;
    show(context, &submission, args.hours).await
}

/// Prints the plan of a submission.
///
/// # Errors
/// Fails when no offer fits, or the job root cannot be opened.
pub async fn show(
    context: &Context,
    submission: &Submission,
    hours: Option<f64>,
) -> Result<ExitCode, Fault> {
    let Submission { loaded, survey, .. } = submission;
    preflight::refuse_cloud(loaded.spec.machine.cloud)?;
    let store = job_root::open(context).await?;
    let terminal = Terminal::new(context, false);
    let session = terminal.session(&store)?;
    let controller = drive::controller(&job_root::workstation(context)?, &store)?;
    let spec = submission.spec(&context.config.user.owner, context.clock.now());
    let (measured, (planned, lacks), clock) = tokio::join!(
        checkpoint_cadence::measured(&store, &spec),
        account_ready::planned(&session, &controller, &spec),
        controller.check_clock()
    );
    let planned = match planned {
        Ok(planned) => planned,
        Err(fault) => {
            account_ready::refuse_planless(&lacks, &spec)?;
            let shipped = Shipped::instead_of(fault, &session, &spec)
                .await
                .map_err(|fault| slips_first(fault, &loaded.findings));
            return shipped
                .map(|shipped| shipped.show(context, &session, submission, &lacks, hours))
                .inspect_err(|_| account_ready::warn(&session, &lacks, None));
        }
    };
    let Planned { plan, most_job, fallbacks, ranking, quotas, refused, unready, .. } = &planned;
    if spec
        .spec
        .limits
        .work
        .is_some_and(|work| planned.outlook.is_some() && forecast::is_long(work.duration()))
    {
        context.printer.note("playing the job against courses of capacity; its work is long, and this takes a while ...");
    }
    let forecast = Forecast::of(&planned, &spec.spec, context.clock.now());
    let out_of_reach = OutOfReach::of(&planned, &spec, context.clock.now());
    let (permissions, exceeded) = tokio::join!(
        LaunchPermissions::asked(&controller, &spec.spec, &planned),
        bid_text::BidHistory::asked(&controller, plan, context.clock.now())
    );
    let LaunchPermission { forbidden, unanswered, .. } = &permissions.planned;
    let facts = PreflightFacts {
        account: Some((&spec, &lacks)),
        clock: clock.err(),
        saves: measured.clone(),
        planned: Some(&planned),
        proofs: None,
    };
    let findings = preflight(&controller, facts, context.clock.now()).await;
    let agent = preflight::finding(&findings, PreflightCheck::Agent).map(Fault::sentence);
    let clock =
        preflight::finding(&findings, PreflightCheck::Clock).map(|fault| fault.what.clone());
    let over_a_cap = preflight::finding(&findings, PreflightCheck::Cap);
    let held_back = first_plan::held_back(&controller, &planned).await?;
    let caps = caps_view::shown(context, &store).await?;
    let cadence = checkpoint_cadence::of(&store, measured.as_ref(), &planned).await;
    let next = submission.next_run(context.clock.now());
    // As `lamp run`; but only this refuses a deadline that cannot be met.
    let late = out_of_reach.as_ref().is_some_and(OutOfReach::is_late);
    let is_refused = |finding: &PreflightFinding| finding.fault.code == ExitCode::REFUSED;
    let code = if late || findings.iter().any(is_refused) {
        ExitCode::REFUSED
    } else if forbidden.is_some() || agent.is_some() {
        ExitCode::LAUNCH_FAILED
    } else {
        cadence.as_ref().map_or(ExitCode::SUCCESS, CadenceShown::code)
    };
    let gang_cost = gang_cost(&session, &controller, &spec, &planned).await?;
    let most = most_of_trial(&planned, gang_cost.as_ref());
    let tuning = loaded.tune.as_ref().map(|tune| TuningCost::of(tune, most));
    let gang_lack = gang_cost.as_ref().and_then(|cost| cost.lack.as_ref());
    let code = gang_lack.map_or(code, |lack| lack.code);
    if context.is_machine_output() {
        context.printer.json(&PlanDocument {
            source: source(plan),
            offer: &plan.offer,
            reasons: plan.reasons.iter().collect(),
            rejected: &plan.rejected,
            most_usd: plan.most_whichever(),
            most_usd_offer: plan.most_usd,
            most_job_usd: most_job.usd,
            most_job_by: most_job.by,
            most_job_machines: most_job.machines,
            hours: HoursCost::of(plan.offer.hourly(), gang_cost::priced(gang_cost.as_ref()), hours),
            kill_at: plan.kill_at,
            bid: plan.bid,
            bid_exceeded: exceeded.as_ref().map(bid_text::BidHistory::document),
            launch: plan.launch.as_ref(),
            fallbacks,
            ranking,
            quotas,
            refused,
            unready,
            forbidden: forbidden.as_deref(),
            unanswered: unanswered.as_deref(),
            permissions: permissions.all(),
            lacks: &lacks,
            agent: agent.as_deref(),
            clock: clock.as_deref(),
            workdir_files: survey.files,
            workdir_bytes: survey.bytes,
            caps,
            waits_for: held_back.as_deref(),
            waits_until: planned.waits.as_ref().and_then(|waits| waits.until),
            next,
            market: forecast.as_ref(),
            cadence: cadence.as_ref(),
            out_of_reach: out_of_reach.as_ref(),
            tuning: tuning.as_ref(),
            gang: gang_cost.as_ref(),
        });
        return Ok(code);
    }
    out_of_reach.iter().for_each(|out_of_reach| text::warn_out_of_reach(context, out_of_reach));
    // First: the lines below are of one rank.
    gang_cost.iter().for_each(|cost| context.printer.prose(2, &cost.sentence));
    for line in text::whole(
        &planned,
        &spec.spec,
        forecast.iter().flat_map(Forecast::lines),
        exceeded.as_ref(),
    ) {
        context.printer.prose(2, line);
    }
    let hours = HoursCost::of(plan.offer.hourly(), gang_cost::priced(gang_cost.as_ref()), hours);
    tuning
        .as_ref()
        .map(TuningCost::for_plan)
        .into_iter()
        .chain(hours.map(|hours| hours.sentence()))
        .for_each(|line| context.printer.prose(2, line));
    if let Some(unknown) = exceeded.as_ref().and_then(bid_text::BidHistory::unknown) {
        context.printer.note(unknown);
    }
    permissions.tell(context);
    account_ready::warn_unready(&session, unready);
    if let Some(because) = agent {
        context.printer.warn(format!("the machine could not run its agent: {because}"));
    }
    if let Some(wrong) = clock {
        context.printer.warn(wrong);
    }
    account_ready::warn(&session, &lacks, Some(plan.offer.region.as_str()));
    context.printer.line(submission.ships());
    context.printer.prose(2, saved_files::line(&loaded.spec));
    caps.iter().for_each(|caps| context.printer.prose(2, caps.text()));
    if let Some(refused) = over_a_cap {
        context.printer.warn(format!("`lamp run` would refuse it: {}", refused.what));
    } else if let Some(lack) = gang_lack {
        context.printer.warn(format!("`lamp run` would refuse it: {}", lack.what));
    } else if let Some(reason) = held_back {
        context.printer.prose(2, format!("it would wait for {reason}"));
    }
    if let Some(next) = next {
        context.printer.line(format!(
            "scheduled, from `lamp apply` on; the next run would be at {}",
            local_time(next)
        ));
    }
    cadence.iter().for_each(|cadence| tell_cadence(context, cadence));
    if let Some(note) = check::idle_note(loaded) {
        context.printer.note(note);
    }
    context.printer.note("nothing was started");
    Ok(code)
}

fn tell_cadence(context: &Context, cadence: &CadenceShown) {
    context.printer.prose(2, cadence.text());
    if let Some(fault) = &cadence.fault {
        context.printer.warn(fault);
        context.printer.hint(cadence.cure());
    }
}

/// Puts an unknown name first: it is the likeliest mistake.
fn slips_first(mut fault: Fault, findings: &[Finding]) -> Fault {
    const NAMES: [&str; 3] = ["machine.gpus", "machine.regions", "machine.instance_types"];
    let said = fault.hint.take();
    let is_news = |finding: &&Finding| {
        NAMES.contains(&finding.path.as_str())
            && !said.as_ref().is_some_and(|said| said.contains(&finding.message))
    };
    let slips = findings.iter().filter(is_news).map(|finding| match &finding.hint {
        Some(hint) => format!("{finding}: {hint}"),
        None => finding.to_string(),
    });
    let all: Vec<String> = slips.chain(said.clone()).collect();
    fault.hint = (!all.is_empty()).then(|| all.join("; "));
    fault
}

fn source(plan: &Plan) -> PlanSource {
    let name = if plan.offer.cloud == CloudKind::Local { "local" } else { "ec2" };
    PlanSource { name, as_of: plan.created.to_string(), because: None, hint: None }
}
