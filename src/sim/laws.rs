//! The laws of the world (FAULTS section 7), each a function with its number, held against every deed.
//!
//! Laws 17 and 18 compare whole lives, and are held by tests/sim: a death at every call changes nothing, and a world whose
//! faults are over converges. What must never live here: a memory (that is [`super::judge`]).

use std::sync::Arc;
use std::time::Duration;

use super::ec2::Machine;
use super::host::Host;
use super::judge::{Judge, attempt_of, request};
use super::timeline::at;
use super::workload::{Truth, step_of};
use super::world::{Ask, Deed, OWNER, World};
use crate::instance::{InstanceState, NoticeKind, Tags};
use crate::job::{CheckpointFile, EndedBecause, Manifest, Outcome, Plan, Settled};
use crate::market::{Market, Usd};

/// Lease, sweep and two minutes: nothing of ours bills longer than this without use.
pub const BOUND_MINUTES: u32 = 37;

/// The sweep and two minutes.
const CAP_MINUTES: u32 = 7;

/// From the outcome to the dark, while the agent lives: two minutes are promised (FAULTS, row 33). The rest is for agents that
/// crash and come back meanwhile.
const LINGER_MINUTES: u32 = 6;

/// Beyond the hard cap, while the agent lives: it drains before it.
const OVERDUE_MINUTES: u32 = 3;

/// A word that somebody else's tag on our machine holds, and that must never reach a record.
pub const CANARY: &str = "canary-7f3a-never-in-a-record";

/// From a wish in the job directory to the last launch that may not know of it: a listing may be half a minute stale, and a
/// tick is under way.
const WISH_SEEN: Duration = Duration::from_secs(120);

/// So long the cloud says of an ended machine who ended it, with room for a look.
const STILL_SHOWN: Duration = Duration::from_secs(50 * 60);

/// Machines that a job may have in one hour: three young deaths open the breaker, and interruptions are not its doing.
const LAUNCHES_MAX: usize = 12;

/// The idle window of a false job, which names none; and two looks at the sensors, since an interval has two ends.
const IDLE_WINDOW: Duration = Duration::from_secs(300);
const IDLE_SLACK: Duration = Duration::from_secs(8);

type Law = fn(&Judge, &World, &Deed<'_>) -> Result<(), String>;

pub const LAWS: &[(u8, Law)] = &[
    (1, one_machine_a_job),
    (2, tagged_at_any_moment),
    (3, dark_within_the_bound),
    (4, dark_soon_after_the_cap),
    (5, only_what_is_ours_is_touched),
    (6, useful_work_is_never_stopped),
    (7, unknown_is_never_idle),
    (8, settled_means_seen_to_be_gone),
    (9, the_next_attempt_waits_for_the_end_of_the_last),
    (10, a_token_is_one_request),
    (11, committed_steps_stay),
    (12, saved_or_said),
    (13, a_spot_machine_is_never_stopped),
    (14, a_wish_to_end_is_never_lost),
    (15, launches_and_money_have_a_bound),
    (16, an_old_message_never_replaces_a_newer),
    (19, every_end_has_its_reason),
    (20, no_secret_in_a_record),
];

fn one_machine_a_job(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    if !matches!(deed, Deed::Launched { .. } | Deed::State { .. }) {
        return Ok(());
    }
    let live = |machine: &&Machine| machine.owner() == Some(OWNER) && !matches!(machine.state(), InstanceState::Terminated | InstanceState::Stopped);
    let ids: Vec<String> = world.ec2.look(|machines| machines.iter().filter(live).map(|machine| machine.id.clone()).collect());
    if ids.len() > 1 { Err(format!("the job has {} at once", ids.join(" and "))) } else { Ok(()) }
}

fn tagged_at_any_moment(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let untagged = |machine: &Machine| match Tags::from_map(&machine.tags) {
        Ok(tags) if tags.owner == OWNER && tags.kill_at.is_some() => None,
        Ok(_) => Some(format!("{} has no owner of ours, or no hard cap, in its tags", machine.id)),
        Err(error) => Some(format!("{}: {error}", machine.id)),
    };
    let found = match deed {
        Deed::Launched { id, new: true, .. } => world.ec2.with(id, untagged).flatten(),
        // They are changed later: a cap is raised, a machine is started for another attempt.
        Deed::Minute => world.ec2.look(|machines| machines.iter().filter(|machine| machine.is_of_a_plan()).find_map(untagged)),
        _ => None,
    };
    found.map_or(Ok(()), Err)
}

fn dark_within_the_bound(judge: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Minute = deed else { return Ok(()) };
    if let Some((id, _)) = judge.lingers.iter().find(|(_, minutes)| **minutes > LINGER_MINUTES) {
        return Err(format!("{id} has written its outcome, its agent lives, and it bills for more than {LINGER_MINUTES} minutes"));
    }
    let longest = judge.unused.iter().find(|(id, minutes)| **minutes > BOUND_MINUTES + 1 && judge.passed_over.contains(*id));
    longest.map_or(Ok(()), |(id, _)| Err(format!("{id} bills without use for more than {BOUND_MINUTES} minutes")))
}

fn dark_soon_after_the_cap(judge: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Minute = deed else { return Ok(()) };
    if let Some((id, _)) = judge.overdue.iter().find(|(_, minutes)| **minutes > OVERDUE_MINUTES) {
        return Err(format!("{id} lives more than {OVERDUE_MINUTES} minutes beyond its hard cap, and so does its agent"));
    }
    if let Some((id, _)) = judge.undead.iter().find(|(_, minutes)| **minutes > OVERDUE_MINUTES) {
        return Err(format!("{id} lives more than {OVERDUE_MINUTES} minutes beyond its hard cap, and its deadline unit could end it"));
    }
    if let Some((id, _)) = judge.mistold.iter().find(|(_, minutes)| **minutes > 0) {
        return Err(format!("the deadline unit of {id} is set beyond its hard cap"));
    }
    let longest = judge.beyond.iter().find(|(id, minutes)| **minutes > CAP_MINUTES + 1 && judge.passed_over.contains(*id));
    longest.map_or(Ok(()), |(id, _)| Err(format!("{id} lives more than {CAP_MINUTES} minutes beyond its hard cap")))
}

fn only_what_is_ours_is_touched(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Asked { ask, id, by } = deed else { return Ok(()) };
    if world.ec2.with(id, |machine| machine.owner() == Some(OWNER)) != Some(true) {
        return Err(format!("{by} asked {ask:?} of {id}, which is not ours"));
    }
    let read = judge.shown.get(*by).is_some_and(|shown| shown.iter().any(|(there, owner)| there == id && owner == OWNER));
    if read { Ok(()) } else { Err(format!("{by} asked {ask:?} of {id} without having read its owner")) }
}

fn useful_work_is_never_stopped(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let now = world.timeline.now();
    match deed {
        Deed::Asked { ask: Ask::Terminate, id, by } => {
            let Some((true, Some(truth))) = Judge::host_truth(world, id) else { return Ok(()) };
            let facts = |machine: &Machine| Some((machine.attempt()?, Tags::from_map(&machine.tags).ok()?.kill_at));
            let Some((attempt, kill_at)) = world.ec2.with(id, facts).flatten() else { return Ok(()) };
            let heard = judge.beats.get(&attempt).map(|(heard, ..)| *heard);
            // Nobody can look again while the request is on its way.
            let unheard = Duration::from_millis(700)..Duration::from_secs(29 * 60);
            let held = heard.is_some_and(|heard| unheard.contains(&now.saturating_sub(heard)));
            let moves = now.saturating_sub(truth.moved) < Duration::from_secs(20 * 60);
            let may = judge.wish.is_some() || judge.outcomes.contains_key(&attempt) || kill_at.is_some_and(|cap| cap <= at(now));
            if held && moves && !may { Err(format!("{by} ended {id}, whose work was at step {} and went on", truth.step)) } else { Ok(()) }
        }
        Deed::State { id, reason, .. } if reason.starts_with("Client.InstanceInitiated") => its_own_switch_waits(judge, world, id),
        Deed::Wrote { key, body, new: true, .. } if key.ends_with("/outcome.json") => {
            let Ok(outcome) = serde_json::from_slice::<Outcome>(body) else { return Ok(()) };
            let Some(truth) = last_truth(world, &outcome.instance) else { return Ok(()) };
            let stood = now.saturating_sub(truth.moved);
            match outcome.because {
                EndedBecause::Stalled if stood < Duration::from_secs(20 * 60) => Err(format!("stalled, {} s after a step", stood.as_secs())),
                EndedBecause::Idle if truth.quiet_since.is_none() => Err("idle, and the workload worked".into()),
                EndedBecause::Interrupted if !was_told(world, &outcome.instance) => Err("interrupted, and the cloud gave no notice".into()),
                EndedBecause::HardwareLost if !had_fault(world, &outcome.instance) => Err("its hardware is lost, and nothing was wrong".into()),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A power-off on the machine, by its agent or by its deadline unit: not while work moves that somebody hears of.
fn its_own_switch_waits(judge: &Judge, world: &World, id: &str) -> Result<(), String> {
    let now = world.timeline.now();
    let Some((_, Some(truth))) = Judge::host_truth(world, id) else { return Ok(()) };
    let facts = |machine: &Machine| Some((machine.attempt()?, Tags::from_map(&machine.tags).ok()?));
    let Some((attempt, tags)) = world.ec2.with(id, facts).flatten() else { return Ok(()) };
    let heard = judge.beats.get(&attempt).is_some_and(|(heard, ..)| now.saturating_sub(*heard) < Duration::from_secs(300));
    let moves = now.saturating_sub(truth.moved) < Duration::from_secs(20 * 60);
    let may = judge.wish.is_some() || judge.outcomes.contains_key(&attempt) || tags.kill_at.is_some_and(|cap| cap <= at(now));
    // Its boot took longer than user data gave it, and its agent came up in the same minute (seed 1001567 of 24 h).
    let late = |host: Arc<Host>| host.state().starts.first().is_none_or(|start| now.saturating_sub(start.began()) < Duration::from_secs(60));
    let may = may || world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(late);
    // Seed 101369: a clock that is set an hour ahead while the disk has no room for the new deadline. The unit has only its file.
    let stuck = |host: Arc<Host>| host.disk.is_full() && !host.knows_the_time();
    let may = may || world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(stuck);
    if heard && moves && !may { Err(format!("{id} put itself out, and its work was at step {} and went on", truth.step)) } else { Ok(()) }
}

fn was_told(world: &World, id: &str) -> bool {
    let told = |host: Arc<Host>| host.state().notices.iter().any(|notice| notice.kind == NoticeKind::Interruption);
    world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(told)
}

fn had_fault(world: &World, id: &str) -> bool {
    world.ec2.with(id, |machine| machine.host.clone()).flatten().is_some_and(|host| host.lacks_gpu || !host.state().xids.is_empty())
}

fn last_truth(world: &World, id: &str) -> Option<Truth> {
    let host = world.ec2.with(id, |machine| machine.host.clone())??;
    let state = host.state();
    state.starts.iter().rev().find(|start| !start.is_setup()).map(|start| start.truth())
}

/// Time in which the GPUs could not be seen is no time of the idle window: it stands meanwhile, and a store that is down may hold
/// the outcome up for long after the verdict (seeds 1002659 and 1003881 of 24 h).
fn unknown_is_never_idle(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, body, new: true, .. } = deed else { return Ok(()) };
    if !key.ends_with("/outcome.json") {
        return Ok(());
    }
    let Some(outcome) = serde_json::from_slice::<Outcome>(body).ok().filter(|outcome| outcome.because == EndedBecause::Idle) else { return Ok(()) };
    let Some(quiet) = last_truth(world, &outcome.instance).and_then(|truth| truth.quiet_since) else { return Ok(()) };
    let told =
        outcome.reasons.last().map_or(Duration::MAX, |reason| Duration::try_from(reason.at.duration_since(at(Duration::ZERO))).unwrap_or_default());
    let knows = world.ec2.with(&outcome.instance, |machine| machine.host.as_ref().is_some_and(|host| host.knows_the_time()));
    let until = if knows == Some(true) { told.min(world.timeline.now()) } else { world.timeline.now() };
    let seen = until.saturating_sub(quiet).saturating_sub(judge.blind_within(quiet, until));
    if seen + IDLE_SLACK < IDLE_WINDOW { Err(format!("idle, and it was seen to be for {} s", seen.as_secs())) } else { Ok(()) }
}

fn settled_means_seen_to_be_gone(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, new: true, .. } = deed else { return Ok(()) };
    let Some(folder) = key.strip_suffix("settled.json") else { return Ok(()) };
    let plan = world.objects.body(&format!("{folder}plan.json")).and_then(|body| serde_json::from_slice::<Plan>(&body).ok());
    let Some(plan) = plan else { return Err(format!("{key} without a plan")) };
    let state = world.ec2.look(|machines| machines.iter().find(|machine| machine.token == plan.client_token).map(Machine::state));
    match state {
        None | Some(InstanceState::Terminated | InstanceState::Stopped) => Ok(()),
        Some(state) => Err(format!("attempt {} is settled, and its machine is {state}", plan.attempt)),
    }
}

fn the_next_attempt_waits_for_the_end_of_the_last(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, new: true, .. } = deed else { return Ok(()) };
    let Some((folder, _)) = key.strip_suffix("/plan.json").and_then(|folder| folder.rsplit_once('/')) else { return Ok(()) };
    let Some((_, attempt)) = attempt_of(key).filter(|(_, attempt)| *attempt > 1) else { return Ok(()) };
    let before = format!("{folder}/{:04}/settled.json", attempt - 1);
    if world.objects.body(&before).is_some() { Ok(()) } else { Err(format!("attempt {attempt} is planned before the last is settled")) }
}

fn a_token_is_one_request(judge: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Launched { plan, .. } = deed else { return Ok(()) };
    match judge.requests.get(&plan.client_token) {
        Some(before) if *before != request(plan) => Err(format!("attempt {} was asked for twice, differently", plan.attempt)),
        _ => Ok(()),
    }
}

fn committed_steps_stay(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    match deed {
        Deed::Started { step, start, .. } if !start.is_setup() => match judge.committed {
            Some(committed) if *step < committed => Err(format!("{} begins at step {step}, and {committed} was kept", start.launch.name)),
            _ => Ok(()),
        },
        Deed::Wrote { key, body, new: true, .. } if key.ends_with("/manifest.json") => {
            let Ok(manifest) = serde_json::from_slice::<Manifest>(body) else { return Err(format!("{key} is no manifest")) };
            let job = key.split('/').nth(1).unwrap_or_default();
            let body = |file: &CheckpointFile| world.objects.body(&format!("jobs/{job}/{}", file.key));
            if let Some(file) = manifest.files.iter().find(|file| body(file).is_none()) {
                return Err(format!("{key} names {}, which is not there", file.key));
            }
            let holds = manifest.files.iter().filter(|file| file.path == "model").filter_map(body).find_map(|body| step_of(&body));
            match (manifest.step.map(|step| step as u64), holds) {
                (Some(said), Some(holds)) if said > holds => Err(format!("{key} says step {said}, and holds step {holds}")),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn saved_or_said(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, body, new: true, .. } = deed else { return Ok(()) };
    if !key.ends_with("/outcome.json") || world.spec.spec.checkpoint.is_none() {
        return Ok(());
    }
    let Ok(outcome) = serde_json::from_slice::<Outcome>(body) else { return Err(format!("{key} is no outcome")) };
    let saved = last_truth(world, &outcome.instance).and_then(|truth| truth.saved);
    match saved {
        Some((step, _))
            if judge.committed.is_none_or(|kept| kept < step) && outcome.losses.is_empty() && outcome.because != EndedBecause::UserCancelled =>
        {
            Err(format!("step {step} was saved on the disk, {:?} is kept, and no loss is told", judge.committed))
        }
        _ => Ok(()),
    }
}

fn a_spot_machine_is_never_stopped(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Asked { ask: Ask::Stop, id, .. } = deed else { return Ok(()) };
    if world.ec2.with(id, |machine| machine.offer.market) == Some(Market::Spot) { Err(format!("{id} is a spot machine")) } else { Ok(()) }
}

/// A plan costs nothing: who fell asleep over one writes it on waking, and then looks again before the launch.
fn a_wish_to_end_is_never_lost(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let late = judge.wish.is_some_and(|wish| world.timeline.now().saturating_sub(wish) > WISH_SEEN);
    if let Deed::Launched { id, new: true, .. } = deed
        && late
    {
        return Err(format!("{id} was launched after the job was asked to end"));
    }
    let Deed::Wrote { key, new: true, .. } = deed else { return Ok(()) };
    if key.ends_with("/plan.json") && judge.by_hand.is_some_and(|by_hand| world.timeline.now().saturating_sub(by_hand) < STILL_SHOWN) {
        return Err(format!("{key} was made after a person had ended the machine before"));
    }
    Ok(())
}

fn launches_and_money_have_a_bound(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let now = world.timeline.now();
    match deed {
        Deed::Launched { new: true, .. } => {
            let lately = judge.launched.iter().filter(|at| now.saturating_sub(**at) < Duration::from_secs(3600)).count();
            if lately > LAUNCHES_MAX { Err(format!("{lately} machines within an hour")) } else { Ok(()) }
        }
        Deed::Minute if world.swept => {
            let Some(budget) = judge.budget else { return Ok(()) };
            let (spent, slack) = world.ec2.look(|machines| {
                let ours: Vec<&Machine> = machines.iter().filter(|machine| machine.owner() == Some(OWNER)).collect();
                // The bound, at the hour of the last machine (those before were settled, and their cost is off its hard cap), and what
                // a cloud or a store that cannot be reached adds to it (seed 6004320 of 24 h: a zone that was out over the hard cap).
                let last = ours.iter().max_by_key(|machine| machine.launched);
                let unswept = last.and_then(|machine| judge.unswept.get(&machine.id)).copied().unwrap_or_default();
                let bound = Duration::from_secs(u64::from(BOUND_MINUTES + unswept) * 60);
                let slack = last.map(|machine| machine.offer.hourly().cost_of(bound));
                (ours.iter().map(|machine| machine.cost(now)).sum::<Usd>(), slack.unwrap_or_default())
            });
            if spent > budget + slack { Err(format!("{spent} are spent, of a budget of {budget}")) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn an_old_message_never_replaces_a_newer(judge: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, body, .. } = deed else { return Ok(()) };
    if judge.bodies.get(*key).is_some_and(|before| before != *body) {
        return Err(format!("{key} is written once, and was written again"));
    }
    let Some(attempt) = key.strip_suffix("/status.json").and_then(|_| attempt_of(key)) else { return Ok(()) };
    match judge.beats.get(&attempt) {
        Some((_, sequence, before)) if sequence < before => Err(format!("{key} is heartbeat {sequence}, and came after {before}")),
        _ => Ok(()),
    }
}

fn every_end_has_its_reason(_: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, body, new: true, .. } = deed else { return Ok(()) };
    if !key.ends_with("/settled.json") {
        return Ok(());
    }
    let Ok(settled) = serde_json::from_slice::<Settled>(body) else { return Err(format!("{key} is no settled record")) };
    let reasons = settled.outcome.as_ref().is_some_and(|outcome| !outcome.reasons.is_empty());
    if reasons || settled.cloud_reason.is_some() { Ok(()) } else { Err(format!("{key} ends for no reason")) }
}

/// Records, logs and samples (those are packed), and what goes to the cloud: tags and user data.
fn no_secret_in_a_record(_: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let first = CANARY.as_bytes()[0];
    let holds = |body: &[u8]| body.windows(CANARY.len()).any(|window| window[0] == first && window == CANARY.as_bytes());
    match deed {
        Deed::Wrote { key, body, .. } if holds(body) => Err(format!("{key} holds what must never be in a record")),
        Deed::Launched { plan, new: true, .. } if holds(&request(plan)) => {
            Err(format!("the launch of attempt {} holds what must never be in one", plan.attempt))
        }
        _ => Ok(()),
    }
}
