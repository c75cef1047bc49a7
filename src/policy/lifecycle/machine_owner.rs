//! Which controller may act on a machine, and which plan a machine belongs to.

use super::attempt_facts::{AttemptFacts, JobFacts};
use crate::instance::{InstanceView, OWNER_TAG};
use crate::job::{Plan, ResolvedSpec};
use crate::market::CloudKind;

/// Whether a machine with the plan's job name can be the plan's. Two job roots may use one job id,
/// but their client tokens differ.
pub fn may_be_of(plan: &Plan, view: &InstanceView) -> bool {
    view.client_token.as_ref().is_none_or(|token| *token == plan.client_token)
}

pub(crate) fn is_ours(facts: &JobFacts<'_>, view: &InstanceView) -> bool {
    view.tags.owner == facts.owner && view.tags.job == facts.spec.job
}

/// Why only another controller can see, launch and end a plan's machine; `None`: this one can.
///
/// A local machine belongs to its workstation, and every machine to its owner. If this controller
/// cannot see them, they are unknown, not gone.
pub fn belongs_elsewhere(plan: &Plan, owner: &str, here: &str) -> Option<String> {
    let theirs = plan.tags.get(OWNER_TAG).filter(|tag| *tag != owner);
    if let Some(theirs) = theirs {
        return Some(format!("its machine is of the owner `{theirs}`, and this is `{owner}`"));
    }
    let away = plan.offer.cloud == CloudKind::Local && plan.offer.zone.as_str() != here;
    away.then(|| {
        format!("its machine is on the workstation {}, and this is {here}", plan.offer.zone)
    })
}

/// The same for a job that may have no plan yet: then its spec names the owner.
pub fn is_elsewhere(
    spec: &ResolvedSpec,
    attempts: &[AttemptFacts],
    owner: &str,
    here: &str,
) -> Option<String> {
    attempts.last().map_or_else(
        || is_of_another(spec.owner(), owner),
        |last| belongs_elsewhere(&last.plan, owner, here),
    )
}

/// Why a job without a plan is left to its owner: a launch would spend another owner's money.
pub fn is_of_another(theirs: Option<&str>, owner: &str) -> Option<String> {
    theirs
        .filter(|theirs| *theirs != owner)
        .map(|theirs| format!("it is a job of the owner `{theirs}`, and this is `{owner}`"))
}

/// Whether this plan starts this machine, whatever job name its tags have.
pub fn is_kept_for(plan: &Plan, view: &InstanceView) -> bool {
    plan.starts.as_ref().is_some_and(|starts| starts.instance == view.id)
}

/// Whether our machine belongs to this job. A kept one has the previous job's name until it is
/// started.
pub(crate) fn is_of(facts: &JobFacts<'_>, plan: &Plan, view: &InstanceView) -> bool {
    view.tags.owner == facts.owner && (view.tags.job == plan.job || is_kept_for(plan, view))
}
