//! The checks before a launch, once for `lamp run`, `plan`, `start` and `apply`.
//!
//! ```text
//!   facts (account, clock, saves, plan, proofs) ── preflight ── findings, in this order
//!   run, start, apply: the first finding refuses · plan: every finding is shown
//! ```
//!
//! A check without its fact is left out. Not here: the checks of a job file (`submission`).

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::account_ready;
use super::checkpoint_cadence::MeasuredSaves;
use super::proof_gate::Proofs;
use crate::app::{ExitCode, Fault, drive};
use crate::controller::{ActError, Controller, Planned, ShipError};
use crate::job::ResolvedSpec;
use crate::market::{CloudKind, Market};
use crate::policy::account::setup_plan::Lack;
use crate::policy::gang::engine_probe::engine_probe;
use crate::wire::{is_built_for, succeeds};

const NOTHING: &str = "nothing was started or billed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreflightCheck {
    /// The account lacks something.
    Account,
    /// The clock of this workstation is wrong.
    Clock,
    /// A save takes longer than the notice of a spot machine.
    Saves,
    /// No agent fits the machine.
    Agent,
    /// Nothing has shown that the machine ends by itself.
    Proof,
    /// The engine of a gang is not installed.
    Engine,
    /// A cap would delay the launch for ever.
    Cap,
}

impl PreflightCheck {
    /// Whether the plan is shown before this refusal, because it explains it.
    fn needs_the_plan(self) -> bool {
        matches!(self, PreflightCheck::Proof | PreflightCheck::Cap)
    }
}

/// Why the launch is refused.
pub struct PreflightFinding {
    pub check: PreflightCheck,
    pub fault: Fault,
}

/// The facts that the checks judge.
#[derive(Default)]
pub struct PreflightFacts<'a> {
    pub account: Option<(&'a ResolvedSpec, &'a [Lack])>,
    pub clock: Option<ActError>,
    pub saves: Option<MeasuredSaves>,
    pub planned: Option<&'a Planned>,
    /// The proofs, and the regions where a machine may run.
    pub proofs: Option<(&'a Proofs, &'a BTreeSet<String>)>,
}

pub async fn preflight(
    controller: &Controller,
    facts: PreflightFacts<'_>,
    now: Timestamp,
) -> Vec<PreflightFinding> {
    let PreflightFacts { account, clock, saves, planned, proofs } = facts;
    let is_spot = planned.is_some_and(|planned| planned.plan.offer.market == Market::Spot);
    let agent = match planned {
        Some(planned) => no_agent(controller, planned).await,
        None => None,
    };
    let engine = match account {
        Some((spec, _)) => missing_engine(spec).await,
        None => None,
    };
    let judged = [
        (PreflightCheck::Engine, engine),
        (
            PreflightCheck::Account,
            account.and_then(|(spec, lacks)| account_ready::refuse(lacks, spec).err()),
        ),
        (
            PreflightCheck::Clock,
            clock.and_then(|wrong| drive::refuse_wrong_clock(Err(wrong)).err()),
        ),
        (
            PreflightCheck::Saves,
            saves.filter(|_| is_spot).and_then(|measured| measured.refuse().err()),
        ),
        (PreflightCheck::Agent, agent),
        (
            PreflightCheck::Proof,
            proofs.and_then(|(proofs, regions)| {
                proofs.refusal(now, regions, planned.map(|planned| &planned.plan))
            }),
        ),
        (PreflightCheck::Cap, planned.and_then(|planned| waits_for_ever(controller, planned))),
    ];
    let findings = judged.into_iter();
    findings.filter_map(|(check, fault)| Some(PreflightFinding { check, fault: fault? })).collect()
}

/// The machines of the local cloud have the programs of this workstation. A setup may install more,
/// and then each machine looks for itself.
async fn missing_engine(spec: &ResolvedSpec) -> Option<Fault> {
    let gang = spec.spec.gang.as_ref().filter(|_| spec.spec.machine.cloud == CloudKind::Local)?;
    let probe = engine_probe(gang.engine, &spec.spec.command.argv())?;
    // A program of the job's own folder is not there yet.
    let is_shipped = probe.argv[0].contains('/') && !probe.argv[0].starts_with('/');
    if is_shipped || spec.spec.setup.is_some() || succeeds(&probe.argv, &spec.spec.env).await {
        return None;
    }
    Some(Fault::new(ExitCode::REFUSED, probe.missing).meaning(NOTHING).hint(probe.hint))
}

/// The finding of one check.
pub fn finding(findings: &[PreflightFinding], check: PreflightCheck) -> Option<&Fault> {
    findings.iter().find(|finding| finding.check == check).map(|finding| &finding.fault)
}

/// # Errors
/// Fails with the first finding that does not need the plan.
pub fn refuse_before_the_plan(findings: &[PreflightFinding]) -> Result<(), Fault> {
    let first = findings.iter().find(|finding| !finding.check.needs_the_plan());
    first.map_or(Ok(()), |finding| Err(finding.fault.clone()))
}

/// # Errors
/// Fails with the first finding.
pub fn refuse(findings: &[PreflightFinding]) -> Result<(), Fault> {
    findings.first().map_or(Ok(()), |finding| Err(finding.fault.clone()))
}

/// The machine would get no agent, or one that it cannot run.
async fn no_agent(controller: &Controller, planned: &Planned) -> Option<Fault> {
    let error = controller.agent_fits(&planned.plan).await.err()?;
    let hint = match error {
        ShipError::ShortLived { .. } => {
            "sign in again, `aws sso login`, or for longer; a shorter `limits.boot` needs less"
        }
        _ => "`lamp doctor` says which agent would be shipped",
    };
    let fault = Fault::from_error(ExitCode::LAUNCH_FAILED, &error);
    Some(fault.meaning(NOTHING).or_hint(hint))
}

/// A cap is too low for any launch of this plan.
fn waits_for_ever(controller: &Controller, planned: &Planned) -> Option<Fault> {
    let reason = controller.cap_forbids(&planned.plan)?;
    let what = format!("it would wait for ever for {}", reason.text);
    Some(Fault::new(ExitCode::REFUSED, what).meaning(NOTHING).hint("a higher cap in [caps] of the configuration, a cheaper machine, or a lower `max_price` where the bid is what is dear"))
}

/// A program that was built without AWS refuses before it packs or uploads anything.
///
/// # Errors
/// Fails when this program cannot use the cloud.
pub fn refuse_cloud(cloud: CloudKind) -> Result<(), Fault> {
    if is_built_for(cloud) {
        return Ok(());
    }
    let what = format!("this `lamp` was built without cloud `{cloud}`");
    Err(Fault::new(ExitCode::LAUNCH_FAILED, what)
        .meaning(NOTHING)
        .hint("build it with its default features, or --cloud local runs it on this workstation"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_refuses_only_after_the_plan_is_shown() {
        let found = |check, what: &str| PreflightFinding {
            check,
            fault: Fault::new(ExitCode::REFUSED, what),
        };
        let mut findings = vec![found(PreflightCheck::Cap, "a cap")];
        assert_eq!(refuse_before_the_plan(&findings), Ok(()));
        assert_eq!(refuse(&findings).map_err(|fault| fault.what.clone()), Err("a cap".into()));
        findings.insert(0, found(PreflightCheck::Clock, "the clock"));
        let first = refuse_before_the_plan(&findings).map_err(|fault| fault.what.clone());
        assert_eq!(first, Err("the clock".into()));
        assert!(finding(&findings, PreflightCheck::Agent).is_none());
    }
}
