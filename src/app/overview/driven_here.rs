//! A job as this workstation sees it: whether a process here drives it, or it is driven from
//! elsewhere.

use crate::app::view::job_summary::Summary;
use crate::policy::lifecycle::reconcile::{belongs_elsewhere, is_of_another};
use crate::wire::Workstation;

/// `daemon`: whether one runs here, once that was asked.
pub fn seen_from_here(
    workstation: &Workstation,
    daemon: &mut Option<bool>,
    mut summary: Summary,
) -> Summary {
    let owner = &workstation.owner;
    if let Some(plan) = &summary.plan
        && let Ok(here) = workstation.here()
        && let Some(whose) = belongs_elsewhere(plan, owner, here.as_str())
    {
        summary.attention.push(format!(
            "{whose}: it is driven from there; end it from here only when that workstation is gone"
        ));
        return summary;
    }
    if summary.alone || summary.state.is_final() {
        return summary;
    }
    if let Some(theirs) = &summary.owner
        && let Some(whose) = is_of_another(Some(theirs), owner)
    {
        let there = summary.waiting.map(|why| format!(", and there for {why}")).unwrap_or_default();
        summary.waiting = Some(format!("its owner `{theirs}`, who buys its machine{there}"));
        summary.attention.push(format!("{whose}: no machine is bought for it from here"));
        return summary;
    }
    if let (Some(held), Some(instance)) = (&mut summary.held, &summary.instance) {
        held.folder = workstation.work_folder(instance);
    }
    // Another controller's plan means that it drives the job, or did.
    let is_ours = summary.plan.as_ref().is_none_or(|plan| plan.controller == workstation.name);
    let is_driven = *daemon.get_or_insert_with(|| workstation.daemon_runs())
        || workstation.is_driven(&summary.job);
    summary.driven_here = (is_ours || is_driven).then_some(is_driven);
    summary
}
