//! The most that a job can cost, from its records alone: its attempts so far, and the whole of it.
//!
//! What must never live here: what it has cost (`summary`), a plan (`policy::placement`).

use super::summary::is_heard;
use crate::job::{LimitsSpec, Plan, ResolvedSpec, Spec};
use crate::market::{Cloud, Span, Usd};
use crate::policy::Wishes;
use crate::policy::hard_end::Terms;
use crate::policy::reconcile::AttemptFacts;

/// What the limits of a job bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    Nothing,
    /// A run time begins anew with each machine.
    EachMachine,
    /// A budget or a deadline is of the whole job.
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

/// The most that the whole job can cost, with every machine that may follow on the last; `None`: nothing bounds it, nothing is
/// planned yet, or somebody has moved its deadline.
pub fn most_of_job(spec: &ResolvedSpec, attempts: &[AttemptFacts], wishes: &Wishes) -> Option<Usd> {
    // A budget is held over all machines, whatever was planned of them.
    let budget = spec.spec.limits.budget.filter(|_| spec.spec.machine.cloud != Cloud::Local).map(|budget| budget + wishes.more_budget);
    let Some((last, before)) = attempts.split_last() else { return budget };
    let spent: Usd = before.iter().filter_map(|attempt| attempt.settled.as_ref()).map(|settled| settled.usd).sum();
    let planned = last.plan.most_job_usd.map(|most| spent + most);
    if is_extended(wishes) { budget } else { planned }
}

/// The most that a job can cost as its attempts stand; `None`: nothing bounds it. Where none of them is under way, another is to
/// come, on whichever machine that fits.
pub fn most(spec: &ResolvedSpec, attempts: &[AttemptFacts], wishes: &Wishes) -> Option<Usd> {
    let of = |attempt: &AttemptFacts| match &attempt.settled {
        Some(settled) => Some(settled.usd),
        None if is_heard(attempt) => open(&spec.spec, &attempt.plan, attempts, wishes),
        None => Some(open(&spec.spec, &attempt.plan, attempts, wishes)?.max(attempt.plan.most_whichever()?)),
    };
    let next = match attempts.last() {
        Some(AttemptFacts { plan, settled: Some(last), .. }) => {
            // What the last one cost was in the budget that its plan was made for.
            let spent = if spec.spec.limits.budget.is_some() { last.usd } else { Usd::ZERO };
            (plan.most_whichever()? - spent).max(Usd::ZERO)
        }
        _ => Usd::ZERO,
    };
    attempts.iter().map(of).try_fold(next, |sum, most| Some(sum + most?))
}

/// The most of an attempt under way: as it was planned, or with what somebody has added since.
fn open(spec: &Spec, plan: &Plan, attempts: &[AttemptFacts], wishes: &Wishes) -> Option<Usd> {
    if !is_extended(wishes) {
        return plan.most_usd;
    }
    let spent: Usd = attempts.iter().filter_map(|attempt| attempt.settled.as_ref()).map(|settled| settled.usd).sum();
    extended(spec, plan, spent, wishes)
}

/// The most of a planned machine with all that was ever added to the limits of its job, of which so much was spent before it.
pub fn extended(spec: &Spec, plan: &Plan, spent: Usd, wishes: &Wishes) -> Option<Usd> {
    let budget_left = spec.limits.budget.map(|budget| budget + wishes.more_budget - spent);
    Terms { spec, offer: &plan.offer, bid: plan.bid, budget_left, more_time: wishes.more_time, now: plan.created }.most()
}

fn is_extended(wishes: &Wishes) -> bool {
    wishes.more_time > Span::ZERO || wishes.more_budget > Usd::ZERO
}
