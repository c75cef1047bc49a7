//! A job's remaining work, and its speed on each machine.
//!
//! ```text
//!   [machine.speed] ──┬─ relative ────────────> speeds
//!   attempts' pace ───┘
//!   progress, checkpoint or limits.work ──────> remaining work, as time on a machine of speed 1
//! ```
//! Work is counted on a machine of speed 1, so that work on different machines can be added.
//! Without configured speeds, it is plain time on any machine.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::instance::Status;
use crate::job::{AttemptRecord, Plan, Progress, Spec};
use crate::market::{Offer, Speeds};

/// The pace between two steps excludes evaluations and checkpoints, which the job also has.
const PACE_MARGIN: f64 = 1.1;

/// Speeds from the user, overridden by this job's measurements. The first measured type keeps the
/// user's speed; others are measured against it.
pub fn speeds(spec: &Spec, history: &[AttemptRecord]) -> Speeds {
    let mut speeds = spec.machine.speed.clone();
    let mut paces: Vec<(&Offer, f64)> = Vec::new();
    for record in history {
        let pace = record
            .settled
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.progress.as_ref()?.secs_per_step);
        let Some(pace) = pace.filter(|pace| pace.is_finite() && *pace > 0.0) else { continue };
        let offer = &record.plan.offer;
        match paces.iter_mut().find(|(known, _)| known.instance_type == offer.instance_type) {
            Some((_, known)) => *known = pace,
            None => paces.push((offer, pace)),
        }
    }
    if let [(first, pace), others @ ..] = paces.as_slice() {
        let said = speeds.of(first);
        let measured: BTreeMap<&str, f64> = others
            .iter()
            .map(|(offer, other)| (offer.instance_type.as_str(), said * pace / other))
            .collect();
        // A single measurement has nothing to compare with.
        if !measured.is_empty() {
            speeds.measured(&first.instance_type, said);
        }
        measured
            .into_iter()
            .for_each(|(instance_type, speed)| speeds.measured(instance_type, speed));
    }
    speeds
}

/// The remaining work on a machine of speed 1: from the progress, otherwise from the spec less the
/// work done.
pub fn left(
    spec: &Spec,
    speeds: &Speeds,
    history: &[AttemptRecord],
    running: Option<(&Plan, Option<&Status>)>,
) -> Option<Duration> {
    let here = running.map_or(1.0, |(plan, _)| speeds.of(&plan.offer));
    let status = running.and_then(|(_, status)| status);
    if let Some(left) = status.and_then(|status| status.progress.as_ref()?.secs_left()) {
        return Some(times(Duration::from_secs_f64((left * PACE_MARGIN).min(1e9)), here));
    }
    if let Some(left) = left_at_checkpoint(speeds, history) {
        return Some(left);
    }
    let saved = |record: &AttemptRecord| {
        let outcome = record.settled.outcome.as_ref()?;
        Some(times(outcome.saved.duration(), speeds.of(&record.plan.offer)))
    };
    let saved: Duration = history.iter().filter_map(saved).sum();
    let done =
        saved + times(status.map_or(Duration::ZERO, |status| status.useful.duration()), here);
    spec.limits.work.map(|work| work.duration().saturating_sub(done))
}

/// The work after the newest checkpoint, at the last known pace and on that machine.
fn left_at_checkpoint(speeds: &Speeds, history: &[AttemptRecord]) -> Option<Duration> {
    let outcomes = || {
        history
            .iter()
            .rev()
            .filter_map(|record| Some((record.settled.outcome.as_ref()?, &record.plan.offer)))
    };
    let whole = |progress: &&Progress| progress.total.is_some() && progress.secs_per_step.is_some();
    let (progress, offer) = outcomes()
        .find_map(|(outcome, offer)| Some((outcome.progress.as_ref().filter(whole)?, offer)))?;
    let newest = outcomes().find_map(|(outcome, _)| {
        outcome.last_checkpoint.as_ref().or(outcome.resumed_from.as_ref())
    });
    // A checkpoint without a step cannot be a starting point.
    let step = newest.map_or(Some(0.0), |checkpoint| checkpoint.step)?;
    // A step beyond all reported ones uses another unit: epochs in the log, batches in a file name.
    let step = Some(step).filter(|step| progress.step.is_none_or(|told| *step <= told))?;
    let left = ((progress.total? - step) * progress.secs_per_step? * PACE_MARGIN).clamp(0.0, 1e9);
    Some(times(Duration::from_secs_f64(left), speeds.of(offer)))
}

pub fn times(time: Duration, factor: f64) -> Duration {
    // Exact to the nanosecond if all machines are alike.
    if factor == 1.0 {
        time
    } else {
        Duration::from_secs_f64((time.as_secs_f64() * factor).clamp(0.0, 1e9))
    }
}
