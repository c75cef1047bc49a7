//! The most that a job can cost, from its records alone: its attempts so far, and the whole of it.
//!
//! What must never live here: what it has cost (`summary`), a plan (`policy::placement`).

use super::summary::is_heard;
use crate::job::{LimitsSpec, ResolvedSpec};
use crate::market::Usd;
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

/// The most that the whole job can cost, with every machine that may follow on the last; `None`: nothing bounds it, or nothing is
/// planned yet. What `lamp extend` added since the last plan is not in it.
pub fn most_of_job(spec: &ResolvedSpec, attempts: &[AttemptFacts]) -> Option<Usd> {
    let Some((last, before)) = attempts.split_last() else { return spec.spec.limits.budget };
    let spent: Usd = before.iter().filter_map(|attempt| attempt.settled.as_ref()).map(|settled| settled.usd).sum();
    Some(spent + last.plan.most_job_usd?)
}

/// The most that a job can cost as its attempts stand; `None`: nothing bounds it. Where none of them is under way, another is to
/// come, on whichever machine that fits.
pub fn most(spec: &ResolvedSpec, attempts: &[AttemptFacts]) -> Option<Usd> {
    let of = |attempt: &AttemptFacts| match &attempt.settled {
        Some(settled) => Some(settled.usd),
        None if is_heard(attempt) => attempt.plan.most_usd,
        None => attempt.plan.most_whichever(),
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
