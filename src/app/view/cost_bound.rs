//! The highest cost of a job from its records: of its attempts so far, and of the whole job. Also
//! when its machine ends.
//!
//! Not here: what it has cost (`summary`), and a plan (`policy::purchase::placement`).

use jiff::Timestamp;

use super::attempt_records::is_heard;
use crate::job::{LimitsSpec, Plan, ResolvedSpec, Spec};
use crate::market::{CloudKind, Span, Usd, UsdPerHour};
use crate::policy::Wishes;
use crate::policy::lifecycle::reconcile::AttemptFacts;
use crate::policy::purchase::hard_end::{DRAIN_ALLOWANCE, HardEndTerms};

/// The scope of a job's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    Nothing,
    /// A run time begins again with each machine.
    EachMachine,
    /// A budget or a deadline applies to the whole job.
    Job,
}

impl Limited {
    pub fn of(limits: &LimitsSpec) -> Limited {
        match (limits.budget.is_some() || limits.deadline.is_some(), limits.max_runtime.is_some()) {
            (true, _) => Limited::Job,
            (false, true) => Limited::EachMachine,
            (false, false) => Limited::Nothing,
        }
    }
}

/// With all machines that may follow. `None`: it is unlimited, nothing is planned yet, or its
/// deadline was extended.
pub fn most_of_job(spec: &ResolvedSpec, attempts: &[AttemptFacts], wishes: &Wishes) -> Option<Usd> {
    // A budget covers all machines, whatever was planned for them.
    let budget = spec.spec.limits.budget.map(|budget| budget + wishes.more_budget);
    let is_local = spec.spec.machine.cloud == CloudKind::Local;
    let Some((last, before)) = attempts.split_last() else { return budget.filter(|_| !is_local) };
    let hour = last.plan.offer.hourly();
    // A workstation bills nothing, so its drain may come after the budget.
    let budget =
        if is_local { budget.map(|budget| budget + hour.cost_of(DRAIN_ALLOWANCE)) } else { budget };
    if is_local && hour == UsdPerHour::ZERO {
        return Some(Usd::ZERO);
    }
    let planned = last.plan.most_job_usd.map(|most| spent(before) + most);
    if is_extended(wishes) { budget } else { planned }
}

/// `None`: it is unlimited. If no attempt is under way, another one follows on any machine that
/// fits.
pub fn most(spec: &ResolvedSpec, attempts: &[AttemptFacts], wishes: &Wishes) -> Option<Usd> {
    let of = |attempt: &AttemptFacts| match &attempt.settled {
        Some(settled) => Some(settled.usd),
        None if is_heard(attempt) => open(&spec.spec, &attempt.plan, attempts, wishes),
        None => Some(
            open(&spec.spec, &attempt.plan, attempts, wishes)?.max(attempt.plan.most_whichever()?),
        ),
    };
    let next = match attempts.last() {
        Some(AttemptFacts { plan, settled: Some(last), .. }) => {
            // The last plan's budget included what its attempt cost.
            let spent = if spec.spec.limits.budget.is_some() { last.usd } else { Usd::ZERO };
            (plan.most_whichever()? - spent).max(Usd::ZERO)
        }
        _ => Usd::ZERO,
    };
    attempts.iter().map(of).try_fold(next, |sum, most| Some(sum + most?))
}

/// The highest cost of a current attempt: as planned, or with extensions.
fn open(spec: &Spec, plan: &Plan, attempts: &[AttemptFacts], wishes: &Wishes) -> Option<Usd> {
    if !is_extended(wishes) {
        return plan.most_usd;
    }
    extended(spec, plan, spent(attempts), wishes)
}

/// The highest cost of a planned machine with all extensions; `spent` is the cost before it.
fn extended(spec: &Spec, plan: &Plan, spent: Usd, wishes: &Wishes) -> Option<Usd> {
    terms(spec, plan, spent, wishes).most()
}

/// With all extensions; `None`: it is unlimited, or over. As in the controller
/// (`policy::lifecycle::reconcile`), never before the planned end.
pub fn hard_end(
    spec: &Spec,
    attempt: &AttemptFacts,
    attempts: &[AttemptFacts],
    wishes: &Wishes,
) -> Option<Timestamp> {
    let planned = attempt.plan.kill_at.filter(|_| attempt.settled.is_none())?;
    if !is_extended(wishes) {
        return Some(planned);
    }
    terms(spec, &attempt.plan, spent(attempts), wishes).hard_end().max(Some(planned))
}

fn terms<'a>(spec: &'a Spec, plan: &'a Plan, spent: Usd, wishes: &Wishes) -> HardEndTerms<'a> {
    let budget_left = spec.limits.budget.map(|budget| budget + wishes.more_budget - spent);
    HardEndTerms::of_plan(spec, plan, budget_left, wishes.more_time)
}

fn spent(attempts: &[AttemptFacts]) -> Usd {
    attempts.iter().filter_map(|attempt| attempt.settled.as_ref()).map(|settled| settled.usd).sum()
}

fn is_extended(wishes: &Wishes) -> bool {
    wishes.more_time > Span::ZERO || wishes.more_budget > Usd::ZERO
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::lifecycle::reconcile::{CheckpointSummaries, Watched};

    #[test]
    fn added_time_moves_the_hard_end_and_an_ended_machine_has_none() {
        let created = Timestamp::from_second(1_700_000_000).unwrap();
        let hours =
            |hours: u64| created + std::time::Duration::from_secs(hours * 3600) + DRAIN_ALLOWANCE;
        let offer = json!({ "cloud": "local", "region": "here", "zone": "z", "instance_type": "t", "gpus": 0, "gpu_model": null,
            "market": "on-demand", "price": 1.0 });
        let plan = json!({ "format": 1, "job": "x-222222", "attempt": 1, "created": created, "controller": "c", "offer": offer, "reasons": [],
            "most_usd": null, "client_token": "t", "kill_at": hours(1), "lease": "30m", "tags": {} });
        let spec = json!({ "format": 1, "job": "x-222222", "created": created, "written_by": "v",
            "spec": { "name": "x", "command": { "shell": "true" }, "limits": { "max_runtime": "1h" } } });
        let spec: ResolvedSpec = serde_json::from_value(spec).unwrap();
        let mut attempt = AttemptFacts {
            plan: serde_json::from_value(plan).unwrap(),
            lease: None,
            status: None,
            outcome: None,
            settled: None,
            journal: CheckpointSummaries::default(),
            watched: Watched::default(),
        };
        let wishes = Wishes { more_time: Span::from_secs(2 * 3600), ..Wishes::default() };
        let ends = |attempt: &AttemptFacts, wishes: &Wishes| {
            hard_end(&spec.spec, attempt, std::slice::from_ref(attempt), wishes)
        };
        assert_eq!(
            [ends(&attempt, &Wishes::default()), ends(&attempt, &wishes)],
            [Some(hours(1)), Some(hours(3))]
        );
        let settled = json!({ "format": 1, "attempt": 1, "instance": null, "because": "launch_failed", "billed_from": null, "billed_to": null,
            "billed": "0s", "usd": 0.0, "refusal": "capacity", "cloud_reason": "t", "outcome": null });
        attempt.settled = Some(serde_json::from_value(settled).unwrap());
        assert_eq!(ends(&attempt, &wishes), None);
    }
}
