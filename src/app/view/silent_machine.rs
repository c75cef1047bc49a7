//! A machine with a silent agent: its records are old, so the cloud is asked about it.
//!
//! ```text
//!   heard within 2 min ── as its records say
//!   silent ── one question to the cloud, 1 s ── state `silent`, `lost` or `gone`, highest cost
//! ```
//!
//! The job's controller settles and ends it. Not here: records.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::job_summary::Summary;
use super::silence::SeenMachine;
use crate::app::drive;
use crate::instance::InstanceView;
use crate::job::Plan;
use crate::market::{Usd, elapsed};
use crate::wire::{StoreHandle, Workstation};

const PATIENCE: Duration = Duration::from_secs(1);
/// Asks the clouds about all silent machines at once. A cloud without an answer changes nothing.
pub async fn ask(
    workstation: &Workstation,
    store: &StoreHandle,
    summaries: &mut [Summary],
    now: Timestamp,
) {
    let places: BTreeSet<_> = summaries
        .iter()
        .filter(|summary| summary.silence.is_some())
        .filter_map(|summary| summary.plan.as_ref())
        .map(|plan| (plan.offer.cloud, plan.offer.region.clone()))
        .collect();
    if places.is_empty() {
        return;
    }
    let Ok(controller) = drive::controller(workstation, store) else { return };
    let Ok(answers) = tokio::time::timeout(PATIENCE, controller.describe(places)).await else {
        return;
    };
    for summary in summaries {
        let Some(plan) = summary.plan.clone() else { continue };
        if let Some(views) = answers.known(&plan) {
            let view = views.into_iter().find(|view| Some(&view.id) == summary.instance.as_ref());
            take_in(summary, &plan, view, now);
        }
    }
}

fn take_in(summary: &mut Summary, plan: &Plan, view: Option<&InstanceView>, now: Timestamp) {
    let Some(silence) = &mut summary.silence else { return };
    silence.machine = Some(view.map_or(SeenMachine::Gone, |view| SeenMachine::There(view.state)));
    silence.ended = view.and_then(|view| view.ended);
    let Some(ended) = silence.ended.map(|ended| ended.max(plan.created)) else { return };
    // It billed at most until then.
    let after = plan.offer.hourly().cost_of(elapsed(ended, now));
    let most = summary.usd + summary.usd_unheard;
    let most = if most > after { most - after } else { Usd::ZERO };
    (summary.usd, summary.usd_unheard) = (most, Usd::ZERO);
}
