//! Laws of outcomes: the claims of an outcome must be true.
//!
//! Not here: what the laws remember ([`super::observer`]).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::gang_laws;
use super::observer::Judge;
use crate::instance::{Notice, NoticeKind};
use crate::job::{AttemptNo, EndedBecause, MarketChoice, Outcome, ResolvedSpec, Settled, Spec};
use crate::jobdir::layout;
use crate::market::Usd;
use crate::sim::kernel::virtual_time::at;
use crate::sim::world::host::Host;
use crate::sim::world::workload::Truth;
use crate::sim::world::world::{Deed, World, which};

/// The default idle window, and the time of two sensor reads, because a period has two ends.
const IDLE_WINDOW: Duration = Duration::from_secs(300);
const IDLE_SLACK: Duration = Duration::from_secs(8);

/// The longest time before a limit at which the agent may begin to end: the save and the grace of
/// the workload, and the uploads. If the store ever failed during this machine, the agent expects
/// long saves, up to a tenth of the run time (seed 1206: nine minutes of ninety).
fn way_out(spec: &Spec) -> Duration {
    let grace =
        spec.checkpoint.as_ref().map_or(Duration::ZERO, |checkpoint| checkpoint.grace.duration());
    grace + spec.watch.term_grace.duration() + UPLOADS
}

/// With a second for rounding.
const UPLOADS: Duration = Duration::from_secs(16);

/// The same for a job without a run time limit.
const WAY_OUT_MAX: Duration = Duration::from_secs(3600);

/// How long after its time a notice may be the reason of an end.
const NOTICE_HOLDS: Duration = Duration::from_secs(10 * 60);

/// How long an outcome may wait for its store.
const OUTCOME_WAITS: Duration = Duration::from_secs(45 * 60);

/// The outcome that a deed writes.
fn outcome_of(deed: &Deed<'_>) -> Option<Outcome> {
    let Deed::Wrote { key, body, new: true, .. } = deed else { return None };
    if key.ends_with("/outcome.json") { serde_json::from_slice(body).ok() } else { None }
}

fn host_of(world: &World, outcome: &Outcome) -> Option<Arc<Host>> {
    world.ec2.with(&outcome.instance, |machine| machine.host.clone()).flatten()
}

/// The true state of the last start of the work.
fn last_truth(host: &Host) -> Option<Truth> {
    host.state().starts.iter().rev().find(|start| !start.is_setup()).map(|start| start.truth())
}

/// When the agent decided. A store that is down delays the outcome. A wrong clock gives no time.
fn told(world: &World, host: &Host, outcome: &Outcome) -> Duration {
    let now = world.timeline.now();
    let by_reason = outcome
        .reasons
        .last()
        .and_then(|reason| Duration::try_from(reason.at.duration_since(at(Duration::ZERO))).ok());
    by_reason.filter(|_| host.knows_the_time()).map_or(now, |told| told.min(now))
}

pub(crate) fn an_outcome_is_true(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Some(outcome) = outcome_of(deed) else { return Ok(()) };
    let Some(host) = host_of(world, &outcome) else {
        return Err(format!("{} has an outcome, and never was", outcome.instance));
    };
    let (now, truth, told) =
        (world.timeline.now(), last_truth(&host), told(world, &host, &outcome));
    // Until the decision: save and outcome may take half an hour more.
    let stood = truth.map(|truth| told.saturating_sub(truth.moved));
    let (word, steps) = (outcome.because, host.habit().steps);
    let wished = judge.wished(which(outcome.job.as_str(), outcome.attempt.number()));
    // A void notice of an hour ago does not count.
    let recent = if host.knows_the_time() { NOTICE_HOLDS } else { OUTCOME_WAITS };
    let is_recent = |notice: &Notice| {
        notice.kind == NoticeKind::Interruption && since_epoch(notice.at) + recent >= told
    };
    let noticed = || host.state().notices.iter().any(is_recent);
    // An outcome may wait for the store (seed 23004395 of 24 h).
    let was_full = || host.disk.was_full_since(now.saturating_sub(OUTCOME_WAITS));
    let is_true = match word {
        EndedBecause::Stalled => stood
            .zip(world.spec.spec.watch.stall.window)
            .is_none_or(|(stood, window)| stood >= window.duration()),
        EndedBecause::Idle => truth.is_none_or(|truth| {
            let waits = gang_laws::quiet_before_idle(world, outcome.job.as_str(), told);
            truth.quiet_since.is_some_and(|quiet| told.saturating_sub(quiet) >= waits)
        }),
        EndedBecause::Interrupted => noticed(),
        EndedBecause::HardwareLost => host.lacks_gpu || !host.state().xids.is_empty(),
        // The agent cannot unpack files on a full disk (seed 18000415 of 24 h).
        EndedBecause::PreflightFailed => host.lacks_gpu || was_full(),
        EndedBecause::Succeeded => match world.gang() {
            // A rank that comes back when the work is done has nothing to do.
            Some(gang) => gang.reached() >= steps,
            None => truth.is_some_and(|truth| truth.step >= steps),
        },
        EndedBecause::UserStopped => wished.wish.is_some(),
        EndedBecause::UserCancelled => wished.cancelled.is_some(),
        EndedBecause::MaxRuntime
        | EndedBecause::Budget
        | EndedBecause::Deadline
        | EndedBecause::HardEnd => {
            return a_limit_was_near(judge, world, (&outcome, &host));
        }
        // Only a job that may choose its market is moved. `policy::market::auto_market` decides
        // when.
        EndedBecause::Moved => world.spec.spec.machine.market == MarketChoice::Auto,
        // Simulated jobs have no setup, and memory suffices.
        EndedBecause::OutOfMemory | EndedBecause::SetupFailed => false,
        // The holder was killed. For a machine that is gone, only a controller says so.
        EndedBecause::Lost => outcome.exit.is_some_and(|exit| exit.is_unseen()),
        EndedBecause::LaunchFailed => false,
        // On a full disk no workload is started (seed 1203).
        EndedBecause::Failed => {
            let failed = outcome.exit.is_some_and(|exit| exit.code != Some(0))
                && host.state().starts.last().is_none_or(|start| start.is_over());
            failed || was_full()
        }
    };
    let stood = stood.map_or(0, |stood| stood.as_secs());
    if is_true {
        Ok(())
    } else {
        Err(format!(
            "{word}, and it was not so: {stood} s after step {:?} of {steps}",
            truth.map(|truth| truth.step)
        ))
    }
}

/// The limit that ended it was at most `way_out` away. Extensions count once the agent must have
/// read them.
fn a_limit_was_near(
    judge: &Judge,
    world: &World,
    (outcome, host): (&Outcome, &Host),
) -> Result<(), String> {
    let spec = world
        .objects
        .body(&layout::spec(&outcome.job))
        .and_then(|body| serde_json::from_slice::<ResolvedSpec>(&body).ok());
    let (Some(spec), Some(launched)) =
        (spec, world.ec2.with(&outcome.instance, |machine| machine.launched))
    else {
        return Ok(());
    };
    let limits = &spec.spec.limits;
    // After a notice the agent saves first. Meanwhile a limit may end the attempt (seed 1410).
    let noticed = host.state().notices.iter().any(|notice| notice.kind == NoticeKind::Interruption);
    let told = if noticed { world.timeline.now() } else { told(world, host, outcome) };
    let (more_time, more_money) = judge.granted(outcome.job.as_str(), told);
    let tenth = limits.max_runtime.map_or(Duration::MAX, |most| most.duration() / 10);
    let way_out = if judge.was_line_ill_since(launched) {
        tenth.min(WAY_OUT_MAX)
    } else {
        tenth.min(way_out(&spec.spec))
    };
    // At boot an agent trusts the clock of its machine, unless the store's is ahead. So a clock
    // that is an hour fast costs an hour after a reboot (seed 6004320 of 24 h, docs/promises.md).
    // Later it knows the time by the store's date, to a minute (seed 32022963 of 24 h).
    let known_to = if host.knows_the_time() { Duration::ZERO } else { Duration::from_secs(60) };
    let late = told + way_out + host.is_fast_by() + known_to;
    let (word, plan) = (outcome.because, &host.plan);
    let (limit, left): (String, Duration) = match word {
        EndedBecause::MaxRuntime => {
            let most = limits.max_runtime.map(|most| launched + most.duration() + more_time);
            (format!("{most:?}"), most.map_or(Duration::MAX, |most| most.saturating_sub(late)))
        }
        EndedBecause::Deadline => {
            let deadline = limits.deadline.map(|deadline| since_epoch(deadline) + more_time);
            (
                format!("{deadline:?}"),
                deadline.map_or(Duration::MAX, |deadline| deadline.saturating_sub(late)),
            )
        }
        EndedBecause::HardEnd => {
            let cap = judge.cap_known(&outcome.instance, told).map(since_epoch);
            (format!("{cap:?}"), cap.map_or(Duration::MAX, |cap| cap.saturating_sub(late)))
        }
        _ => {
            let before = spent_before(world, outcome);
            let spent =
                before + plan.offer.hourly_at_most(plan.bid).cost_of(late.saturating_sub(launched));
            let enough = limits.budget.is_some_and(|budget| spent >= budget + more_money);
            (
                format!("{:?}, and {spent}", limits.budget),
                if enough { Duration::ZERO } else { Duration::MAX },
            )
        }
    };
    if left.is_zero() {
        Ok(())
    } else {
        Err(format!("{word} at {} s, and the limit was {limit}", told.as_secs()))
    }
}

fn since_epoch(moment: Timestamp) -> Duration {
    Duration::try_from(moment.duration_since(at(Duration::ZERO))).unwrap_or_default()
}

/// The settled cost of earlier attempts.
fn spent_before(world: &World, outcome: &Outcome) -> Usd {
    let settled =
        |number: u32| world.objects.body(&layout::settled(&outcome.job, AttemptNo::new(number)));
    (1..outcome.attempt.number())
        .filter_map(settled)
        .filter_map(|body| serde_json::from_slice::<Settled>(&body).ok())
        .map(|settled| settled.usd)
        .sum()
}

/// Time without GPU readings does not count for the idle window. A store that is down may delay the
/// outcome long after the decision (seeds 1002659 and 1003881 of 24 h).
pub(crate) fn unknown_is_never_idle(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Some(outcome) = outcome_of(deed).filter(|outcome| outcome.because == EndedBecause::Idle)
    else {
        return Ok(());
    };
    let Some(host) = host_of(world, &outcome) else { return Ok(()) };
    let Some(quiet) = last_truth(&host).and_then(|truth| truth.quiet_since) else { return Ok(()) };
    let until = told(world, &host, &outcome);
    let seen = until.saturating_sub(quiet).saturating_sub(judge.blind_within(quiet, until));
    if seen + IDLE_SLACK < IDLE_WINDOW {
        Err(format!("idle, and it was seen to be for {} s", seen.as_secs()))
    } else {
        Ok(())
    }
}

/// Whether a reported loss is about a checkpoint or about everything.
fn is_of_a_checkpoint(loss: &str) -> bool {
    loss.contains("checkpoint") || loss.contains("what was not kept by then is lost")
}

pub(crate) fn saved_or_said(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Some(outcome) = outcome_of(deed).filter(|_| world.spec.spec.checkpoint.is_some()) else {
        return Ok(());
    };
    let saved =
        host_of(world, &outcome).and_then(|host| last_truth(&host)).and_then(|truth| truth.saved);
    match saved {
        Some((step, _))
            if judge.landed.is_none_or(|kept| kept < step)
                && !outcome.losses.iter().any(|loss| is_of_a_checkpoint(loss))
                && outcome.because != EndedBecause::UserCancelled =>
        {
            Err(format!(
                "step {step} was saved on the disk, {:?} is kept, and no loss is told",
                judge.landed
            ))
        }
        _ => Ok(()),
    }
}
