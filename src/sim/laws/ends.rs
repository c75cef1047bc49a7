//! Laws of ends: requests to end machines, wishes to end a job, and the recorded reasons.
//!
//! Not here: outcomes of agents (`laws::outcomes`), what the laws remember ([`super::observer`]).

use std::sync::Arc;
use std::time::Duration;

use super::observer::{Judge, attempt_of};
use crate::instance::{InstanceState, Tags};
use crate::job::{Outcome, Plan, ResolvedSpec, Settled};
use crate::jobdir::layout;
use crate::market::Market;
use crate::policy::keeps_disk;
use crate::sim::kernel::virtual_time::at;
use crate::sim::world::host::Host;
use crate::sim::world::machines::SimMachine;
use crate::sim::world::workload::Start;
use crate::sim::world::world::{Deed, EndRequest, Which, World, which};

/// How long after a wish in the job directory a launch may still ignore it. A listing may be half a
/// minute stale, and a tick may be running.
const WISH_SEEN: Duration = Duration::from_secs(120);

/// How long the cloud shows who ended a machine, less the time of one check.
const STILL_SHOWN: Duration = Duration::from_secs(50 * 60);

/// How long a request takes. Its sender cannot check again meanwhile.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_millis(700);

/// The most minutes from a wish to the outcome, if no fault hinders the agent. It reads wishes
/// every few seconds, saves for a minute, waits half a minute for the workload to end, and uploads.
const HEEDED_MINUTES: u32 = 4;

/// The shortest time after which `policy::watch::stall` finds a hang, and how long after its time a
/// notice may still be void.
const STANDS: Duration = Duration::from_secs(600);
const NOTICE_MAY_BE_VOID: Duration = Duration::from_secs(1800);

/// The most minutes from a cancel to the end of a machine whose agent does not obey, if a
/// workstation is awake. It waits for three.
const CANCELLED_MINUTES: u32 = 5;

/// A sweep waits ten seconds for the record of an end, and then ends the machine. The record may be
/// missing if the store failed then.
const INTENT_MAX: Duration = Duration::from_secs(15);

/// A host that fails for so long under a silent machine is dead.
const HOST_DEAD: Duration = Duration::from_secs(600);

/// A machine that a party asks to end.
struct RequestedMachine {
    attempt: Which,
    tags: Tags,
    state: InstanceState,
    market: Market,
    begun: Duration,
}

impl RequestedMachine {
    fn of(world: &World, id: &str) -> Option<Self> {
        let facts = |machine: &SimMachine| {
            let tags = Tags::from_map(&machine.tags).ok()?;
            Some(RequestedMachine {
                attempt: machine.attempt()?,
                tags,
                state: machine.state(),
                market: machine.offer.market,
                begun: machine.begun(),
            })
        };
        world.ec2.with(id, facts).flatten()
    }

    fn is_past_cap(&self, now: Duration) -> bool {
        self.tags.kill_at.is_some_and(|cap| cap <= at(now))
    }

    /// Its attempt ended, the job file keeps its disk, and it can be stopped.
    fn is_to_stay(&self, world: &World) -> bool {
        let body = |key: String| world.objects.body(&key);
        let outcome = body(layout::outcome(&self.tags.job, self.tags.attempt))
            .and_then(|body| serde_json::from_slice::<Outcome>(&body).ok());
        let spec = body(layout::spec(&self.tags.job))
            .and_then(|body| serde_json::from_slice::<ResolvedSpec>(&body).ok());
        let keeps = outcome
            .zip(spec)
            .is_some_and(|(outcome, spec)| keeps_disk(&spec.spec.on, outcome.because));
        keeps && self.market == Market::OnDemand
    }

    /// It was started on a kept disk, its agent was silent, and its job has no other checkpoint.
    fn is_all_its_job_has(&self, judge: &Judge, world: &World) -> bool {
        let plan = world
            .objects
            .body(&layout::plan(&self.tags.job, self.tags.attempt))
            .and_then(|body| serde_json::from_slice::<Plan>(&body).ok());
        let only = plan.is_some_and(|plan| plan.starts.is_some() && plan.resume_from.is_none());
        let spoke = world.objects.body(&layout::lease(&self.tags.job, self.tags.attempt)).is_some()
            || judge.beats.contains_key(&self.attempt);
        only && !spoke && self.market == Market::OnDemand
    }

    /// Its attempt was settled, and its disk stays.
    fn was_kept(&self, world: &World) -> bool {
        let body = world.objects.body(&layout::settled(&self.tags.job, self.tags.attempt));
        body.and_then(|body| serde_json::from_slice::<Settled>(&body).ok())
            .is_some_and(|settled| settled.kept)
    }

    /// Its attempt is settled, and its late launch succeeded anyway.
    fn is_settled(&self, world: &World) -> bool {
        world.objects.body(&layout::settled(&self.tags.job, self.tags.attempt)).is_some()
    }
}

pub(crate) fn useful_work_is_never_stopped(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let now = world.timeline.now();
    match deed {
        Deed::Asked { id, by, .. } => {
            let Some((true, Some(truth))) = Judge::host_truth(world, id) else { return Ok(()) };
            let Some(asked) = RequestedMachine::of(world, id) else { return Ok(()) };
            let heard = judge.beats.get(&asked.attempt).map(|(heard, ..)| *heard);
            let unheard = ON_ITS_WAY..Duration::from_secs(29 * 60);
            let held = heard.is_some_and(|heard| unheard.contains(&now.saturating_sub(heard)));
            let moves = now.saturating_sub(truth.moved) < Duration::from_secs(20 * 60);
            let may = judge.wished(asked.attempt).wish.is_some()
                || judge.outcomes.contains_key(&asked.attempt)
                || asked.is_past_cap(now);
            if held && moves && !may {
                Err(format!("{by} ended {id}, whose work was at step {} and went on", truth.step))
            } else {
                Ok(())
            }
        }
        Deed::State { id, reason, .. } if reason.starts_with("Client.InstanceInitiated") => {
            its_own_switch_waits(judge, world, id)
        }
        Deed::Started { host, start, .. } => is_restarted_for_a_cause(judge, now, host, start),
        _ => Ok(()),
    }
}

/// Work may be killed and begun again on its machine only if it made no progress, or after a
/// notice.
fn is_restarted_for_a_cause(
    judge: &Judge,
    now: Duration,
    host: &Host,
    start: &Start,
) -> Result<(), String> {
    let state = host.state();
    let before = state
        .starts
        .iter()
        .rev()
        .find(|other| !other.is_setup() && other.launch.dir != start.launch.dir);
    let Some(truth) = before
        .filter(|before| before.was_ended() && !start.is_setup())
        .map(|before| before.truth())
    else {
        return Ok(());
    };
    let stood = now.saturating_sub(truth.moved);
    // By the machine's own clock, which may be an hour behind (seed 555).
    let noticed = state
        .notices
        .iter()
        .any(|notice| !host.knows_the_time() || notice.at + NOTICE_MAY_BE_VOID >= at(now));
    // The disk was full, so the record of its end is missing after a reboot (seed 61000453 of 24
    // h).
    let forgot = judge.disk_was_full_since(truth.moved);
    if stood >= STANDS || noticed || forgot {
        Ok(())
    } else {
        Err(format!(
            "{} began its work anew, which had moved {} s before",
            host.id,
            stood.as_secs()
        ))
    }
}

/// Agent and deadline unit must not power off a machine whose work makes progress and whose
/// heartbeats arrive.
fn its_own_switch_waits(judge: &Judge, world: &World, id: &str) -> Result<(), String> {
    let now = world.timeline.now();
    let Some((_, Some(truth))) = Judge::host_truth(world, id) else { return Ok(()) };
    let Some(asked) = RequestedMachine::of(world, id) else { return Ok(()) };
    let heard = judge
        .beats
        .get(&asked.attempt)
        .is_some_and(|(heard, ..)| now.saturating_sub(*heard) < Duration::from_secs(300));
    let moves = now.saturating_sub(truth.moved) < Duration::from_secs(20 * 60);
    let may = judge.wished(asked.attempt).wish.is_some()
        || judge.outcomes.contains_key(&asked.attempt)
        || asked.is_past_cap(now);
    // The power-off of the deadline unit cannot be cancelled. An agent that starts in those seconds
    // begins its work in vain (seeds 37012312, 37016738 and 37030443 of 24 h: no metadata for a
    // whole boot).
    let late = |host: Arc<Host>| {
        let state = host.state();
        state
            .switched
            .is_some_and(|off| state.starts.last().is_some_and(|start| start.began() >= off))
    };
    let may = may || world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(late);
    // Seed 101369: the clock is set an hour ahead, and the disk is too full for the new deadline.
    // The unit reads only that file.
    let stuck = |host: Arc<Host>| host.disk.is_full() && !host.knows_the_time();
    let may =
        may || world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(stuck);
    // After a reboot an agent trusts a fast clock until the store gives the time (seed 32022928 of
    // 24 h).
    let fast = |host: Arc<Host>| asked.is_past_cap(now + host.is_fast_by());
    let may = may || world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(fast);
    if heard && moves && !may {
        Err(format!("{id} put itself out, and its work was at step {} and went on", truth.step))
    } else {
        Ok(())
    }
}

/// Ending a machine without an outcome loses what it has not sent. A party may do this only if the
/// machine was silent for its lease (or for its boot), is past its hard cap, or is cancelled.
/// Stopped and settled machines run no work.
pub(crate) fn given_up_for_a_cause(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::Asked { ask: EndRequest::Terminate, id, by } = deed else { return Ok(()) };
    let now = world.timeline.now();
    let Some(asked) = RequestedMachine::of(world, id) else { return Ok(()) };
    let wished = judge.wished(asked.attempt);
    if asked.state == InstanceState::Stopped && asked.was_kept(world) && wished.cancelled.is_none()
    {
        return Err(format!("{by} ended {id}, which stood still with the disk that was kept"));
    }
    if !asked.state.bills() {
        return Ok(());
    }
    if asked.is_all_its_job_has(judge, world)
        && wished.cancelled.is_none()
        && !judge.was_store_ill(now, INTENT_MAX)
    {
        return Err(format!(
            "{by} ended {id}, which was started on the disk that is all its job has, and never said a word"
        ));
    }
    if asked.is_to_stay(world)
        && wished.cancelled.is_none()
        && !judge.was_store_ill(now, INTENT_MAX)
    {
        return Err(format!("{by} ended {id}, whose disk was to stay"));
    }
    if judge.outcomes.contains_key(&asked.attempt)
        || wished.cancelled.is_some()
        || asked.is_past_cap(now)
        || asked.is_settled(world)
    {
        return Ok(());
    }
    let Some((heard, ..)) = judge.beats.get(&asked.attempt) else {
        // Before its first heartbeat a machine has nothing to save, so a wish to end takes effect
        // at once. A machine that powered off in its boot and was started again gets no more time
        // (seed 23003246 of 24 h).
        let silent = now.saturating_sub(asked.begun);
        // A party whose first request failed counts from that one (seed 18000109 of 24 h: ten
        // seconds).
        let may =
            wished.wish.is_some() || silent + Duration::from_secs(30) >= asked.tags.boot.duration();
        return if may {
            Ok(())
        } else {
            Err(format!("{by} ended {id}, which was silent for {} s of its boot", silent.as_secs()))
        };
    };
    let silent = now.saturating_sub(*heard);
    let fails_for = world
        .ec2
        .with(id, |machine| machine.host.as_ref().map(|host| host.fails_for(now)))
        .flatten()
        .unwrap_or_default();
    let dead = silent.min(fails_for) >= HOST_DEAD;
    let lapsed = silent >= asked.tags.lease.duration() || silent < ON_ITS_WAY || dead;
    if lapsed {
        Ok(())
    } else {
        Err(format!(
            "{by} ended {id}, which has no outcome and was heard {} s before",
            silent.as_secs()
        ))
    }
}

/// A plan costs nothing. A laptop may write one after its sleep, and checks again before the
/// launch.
pub(crate) fn a_wish_to_end_is_never_lost(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let now = world.timeline.now();
    let late = |wish: Duration| now.saturating_sub(wish) > WISH_SEEN;
    let by_hand = |key: &str| judge.wished(attempt_of(key).unwrap_or_default()).by_hand;
    match deed {
        Deed::Launched { id, plan, new: true, .. }
            if judge.wished(which(plan.job.as_str(), 0)).wish.is_some_and(late) =>
        {
            Err(format!("{id} was launched after the job was asked to end"))
        }
        Deed::Wrote { key, new: true, .. }
            if key.ends_with("/plan.json")
                && by_hand(key)
                    .is_some_and(|by_hand| now.saturating_sub(by_hand) < STILL_SHOWN) =>
        {
            Err(format!("{key} was made after a person had ended the machine before"))
        }
        Deed::Minute => {
            if let Some((id, _)) =
                judge.unheeded.iter().find(|(_, minutes)| **minutes > HEEDED_MINUTES)
            {
                return Err(format!(
                    "{id} was asked to end, and nothing was in its agent's way for more than {HEEDED_MINUTES} minutes"
                ));
            }
            let kept = judge.uncancelled.iter().find(|(_, minutes)| **minutes > CANCELLED_MINUTES);
            kept.map_or(Ok(()), |((id, who), _)| Err(format!("{id} was cancelled, and {who} is awake for more than {CANCELLED_MINUTES} minutes")))
        }
        _ => Ok(()),
    }
}

/// The reason is written before a machine is asked to end, and every outcome has its reasons.
pub(crate) fn every_end_has_its_reason(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    match deed {
        // A machine that ends already has its reason.
        Deed::Asked { ask, id, by } => {
            let Some(asked) = RequestedMachine::of(world, id)
                .filter(|asked| {
                    !matches!(
                        asked.state,
                        InstanceState::Stopping
                            | InstanceState::ShuttingDown
                            | InstanceState::Terminated
                    )
                })
                // It stopped while the request was on its way.
                .filter(|asked| (*ask, asked.state) != (EndRequest::Stop, InstanceState::Stopped))
            else {
                return Ok(());
            };
            let (job, attempt) = (&asked.tags.job, asked.tags.attempt);
            let written = |key: String| world.objects.body(&key).is_some();
            let has = written(layout::ending(job, attempt))
                || written(layout::outcome(job, attempt))
                || asked.is_settled(world);
            if has || judge.was_store_ill(world.timeline.now(), INTENT_MAX) {
                return Ok(());
            }
            Err(format!("{by} asked {ask:?} of {id}, and why is written nowhere"))
        }
        Deed::Wrote { key, body, new: true, .. } if key.ends_with("/outcome.json") => {
            let Ok(outcome) = serde_json::from_slice::<Outcome>(body) else {
                return Err(format!("{key} is no outcome"));
            };
            let told = outcome.reasons.last().is_some_and(|reason| !reason.text.is_empty());
            if told { Ok(()) } else { Err(format!("{key} gives no reason")) }
        }
        Deed::Wrote { key, body, new: true, .. } if key.ends_with("/settled.json") => {
            let Ok(settled) = serde_json::from_slice::<Settled>(body) else {
                return Err(format!("{key} is no settled record"));
            };
            let reasons =
                settled.outcome.as_ref().is_some_and(|outcome| !outcome.reasons.is_empty());
            let by_cloud = settled.cloud_reason.as_ref().is_some_and(|reason| !reason.is_empty());
            if reasons || by_cloud { Ok(()) } else { Err(format!("{key} ends for no reason")) }
        }
        _ => Ok(()),
    }
}
