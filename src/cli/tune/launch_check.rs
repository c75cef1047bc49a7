//! Checks one trial before a tuning begins, as `lamp run` checks a job.

use std::collections::BTreeSet;

use crate::app::drive;
use crate::app::launch::account_ready;
use crate::app::launch::gang_cost::{gang_cost, most_of_trial};
use crate::app::launch::preflight::{self, PreflightFacts, preflight};
use crate::app::launch::proof_gate;
use crate::app::launch::submission::Submission;
use crate::app::record_errors::record_fault;
use crate::app::tune::begin::tuning_name;
use crate::cli::plan::text;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::TuneSpec;
use crate::jobdir::TuningDir;
use crate::market::{CloudKind, Usd};
use crate::policy::tune::tuning_cost::TuningCost;

/// Shows the plan of a trial and the most that all can cost. Nothing is written.
///
/// # Errors
/// Fails when a trial cannot be launched, the budget is too small for one, or a proof is missing.
pub async fn check(
    context: &Context,
    submission: &Submission,
    tune: &TuneSpec,
    needs_proof: bool,
) -> Result<(), Fault> {
    let store = job_root::open(context).await?;
    let terminal = Terminal::new(context, false);
    let session = terminal.session(&store)?;
    let workstation = session.workstation;
    let spec = submission.spec(&context.config.user.owner, context.clock.now());
    let dir = TuningDir::new(store.clone(), &tuning_name(&spec.spec.name));
    if dir.end().await.map_err(|error| record_fault(&error))?.is_some() {
        // It starts no more trials.
        return Ok(());
    }
    let controller = drive::controller(workstation, &store)?;
    let machine = &spec.spec.machine;
    let needs_proof = proof_gate::is_asked(machine.cloud, !needs_proof);
    let proofs = async {
        if needs_proof { Some(proof_gate::look(workstation, &store).await) } else { None }
    };
    let ((planned, lacks), proofs, clock) = tokio::join!(
        account_ready::planned(&session, &controller, &spec),
        proofs,
        controller.check_clock()
    );
    let planned = account_ready::plan_or_refusal(&session, planned, &lacks, &spec)?;
    let proofs = proofs.transpose()?;
    let regions = match &proofs {
        Some(_) => proof_gate::regions(workstation, machine, &planned.plan).await,
        None => BTreeSet::new(),
    };
    let facts = PreflightFacts {
        account: Some((&spec, &lacks)),
        clock: clock.err(),
        saves: None,
        planned: Some(&planned),
        proofs: proofs.as_ref().map(|proofs| (proofs, &regions)),
    };
    let findings = preflight(&controller, facts, context.clock.now()).await;
    preflight::refuse_before_the_plan(&findings)?;
    account_ready::warn_unready(&session, &planned.unready);
    let gang = gang_cost(&session, &controller, &spec, &planned).await?;
    let cost = TuningCost::of(tune, most_of_trial(&planned, gang.as_ref()));
    if machine.cloud != CloudKind::Local {
        text::before_a_run(&planned).into_iter().for_each(|line| context.printer.note(line));
        gang.iter().for_each(|gang| context.printer.note(gang.sentence.clone()));
        context.printer.note(cost.sentence());
    }
    gang.and_then(|gang| gang.lack).map_or(Ok(()), Err)?;
    preflight::refuse(&findings)?;
    refuse_small_budget(&cost, submission.loaded.spec.limits.budget)?;
    proofs.iter().for_each(|proofs| proofs.tell_what_was_not_tried(&session, &regions));
    Ok(())
}

fn refuse_small_budget(cost: &TuningCost, limit: Option<Usd>) -> Result<(), Fault> {
    let Some(budget) = cost.budget.filter(|_| cost.starts_nothing()) else { return Ok(()) };
    let most = cost.trial_usd.map_or("without a limit".to_owned(), |usd| format!("up to {usd}"));
    let what = format!("the budget of {budget} starts no trial: one can cost {most}");
    Err(Fault::new(ExitCode::REFUSED, what).meaning("nothing was started or billed").hint(
        match limit {
            Some(limit) => {
                format!("raise `budget` in [tune], or lower `budget = {limit}` in [limits]")
            }
            None => {
                "raise `budget` in [tune], or set `budget` in [limits], which bounds each trial"
                    .to_owned()
            }
        },
    ))
}
