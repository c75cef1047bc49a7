//! The laws of the world (docs/false-world.md): functions with a number. Each deed is checked
//! against all of them.
//!
//! Laws 17 and 18 compare whole worlds in tests/sim: a death at every call changes nothing, and a
//! world without further faults converges. Not here: what the laws remember ([`super::observer`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use zstd::bulk::Decompressor;

use super::observer::{Judge, attempt_of, request, step_held};
use super::{ends, gang_laws, outcomes, saves};
use crate::instance::{InstanceState, Tags};
use crate::job::{Manifest, ManifestEntry, Plan};
use crate::market::{Market, Usd};
use crate::sim::kernel::virtual_time::at;
use crate::sim::world::machines::SimMachine;
use crate::sim::world::store::LATE;
use crate::sim::world::world::{Deed, EndRequest, OWNER, World};

/// Lease, sweep and two minutes: the most that a machine bills without use.
pub const BOUND_MINUTES: u32 = 37;

/// How far a hard cap may be beyond the run time: five minutes to save and power off, the clock
/// error of the planner (`controller::clocks`), and a minute.
const CAP_ROOM: Duration = Duration::from_secs(11 * 60);

/// The sweep and two minutes.
const CAP_MINUTES: u32 = 7;

/// From the outcome to the power-off, while the agent runs. Two minutes are promised (row 33 of
/// docs/promises.md). The rest is for agents that crash and restart meanwhile.
const LINGER_MINUTES: u32 = 6;

/// Beyond the hard cap, while the agent runs: it drains before the cap.
const OVERDUE_MINUTES: u32 = 3;

/// How long an unhindered workstation may let a finished machine bill, or one beyond its cap: it
/// sweeps every five minutes, and checks twice. For a silent machine it waits for a lease by its
/// own clock. This is the bound of a world without a sweeper.
const UNENDED_MINUTES: u32 = 9;
const UNHELD_MINUTES: u32 = 33;
/// The same for a machine whose agents die again and again: ten short runs, a lease, and the visits
/// of a sweeper.
const LOOPED_MINUTES: u32 = 75;
/// The same if the cloud reports a failing host: a minute and a half of silence, ten minutes of
/// failed checks, and a tick. It counts from the end of the last hindrance, after which the
/// workstation checks again within a minute (seed 44001398 of 24 h: 14).
const HOSTLESS_MINUTES: u32 = 15;

/// How long one agent may watch work that idles or hangs. The idle window is five minutes, or three
/// times the longest pause of the work. A hang is known after twenty minutes or ten steps, and the
/// restart takes more. Twice that, because a store without an answer delays the watch.
const USELESS_MINUTES: u32 = 90;
const USELESS_STEPS: u32 = 22;

/// The same before the first sign of work whose checkpoint says that it reports: three times an
/// hour and the restart.
const HUSHED_MINUTES: u32 = 240;

fn useless_minutes(world: &World, hushed: bool) -> u32 {
    (if hushed { HUSHED_MINUTES } else { USELESS_MINUTES })
        + USELESS_STEPS * u32::try_from(world.habit.step.as_secs() / 60).unwrap_or(u32::MAX)
}

/// How long a controller may act on an answer of the cloud (`controller::cloud_answers`).
const SHOWN_HOLDS: Duration = Duration::from_secs(5 * 60);

/// A word in a foreign tag of our machine. It must never reach a record.
pub const CANARY: &str = "canary-7f3a~never-in-a-record";

/// The most machines of a job in one hour: ten by their plans (`policy::lifecycle::relaunch`), and
/// two whose launch came late.
const LAUNCHES_MAX: usize = 12;

type Law = fn(&Judge, &World, &Deed<'_>) -> Result<(), String>;

pub const LAWS: &[(u8, Law)] = &[
    (1, one_machine_a_job),
    (2, tagged_at_any_moment),
    (2, a_cap_is_no_later_than_its_limits),
    (3, dark_within_the_bound),
    (4, dark_soon_after_the_cap),
    (5, only_what_is_ours_is_touched),
    (6, ends::useful_work_is_never_stopped),
    (6, outcomes::an_outcome_is_true),
    (7, outcomes::unknown_is_never_idle),
    (8, settled_means_seen_to_be_gone),
    (9, the_next_attempt_waits_for_the_end_of_the_last),
    (10, a_token_is_one_request),
    (11, committed_steps_stay),
    (12, outcomes::saved_or_said),
    (12, saves::what_is_saved_is_kept_soon),
    (12, saves::a_notice_is_used),
    (12, ends::given_up_for_a_cause),
    (13, a_spot_machine_is_never_stopped),
    (14, ends::a_wish_to_end_is_never_lost),
    (15, launches_and_money_have_a_bound),
    (16, an_old_message_never_replaces_a_newer),
    (19, ends::every_end_has_its_reason),
    (20, no_secret_in_a_record),
    (21, gang_laws::one_world_an_epoch),
    (22, gang_laws::a_waiting_member_ends),
];

fn one_machine_a_job(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    if !matches!(deed, Deed::Launched { .. } | Deed::State { .. }) {
        return Ok(());
    }
    let live = |machine: &&SimMachine| {
        machine.owner() == Some(OWNER)
            && !matches!(machine.state(), InstanceState::Terminated | InstanceState::Stopped)
    };
    // The job of each rank has one.
    let job_of = |machine: &SimMachine| {
        world.gang().and_then(|_| machine.attempt()).map_or(0, |(rank, _)| rank)
    };
    let mut ids: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    world.ec2.look(|machines| {
        for machine in machines.iter().filter(live) {
            ids.entry(job_of(machine)).or_default().push(machine.id.clone());
        }
    });
    match ids.values().find(|ids| ids.len() > 1) {
        Some(ids) => Err(format!("the job has {} at once", ids.join(" and "))),
        None => Ok(()),
    }
}

fn tagged_at_any_moment(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let untagged = |machine: &SimMachine| match Tags::from_map(&machine.tags) {
        Ok(tags) if tags.owner == OWNER && tags.kill_at.is_some() => None,
        Ok(_) => Some(format!("{} has no owner of ours, or no hard cap, in its tags", machine.id)),
        Err(error) => Some(format!("{}: {error}", machine.id)),
    };
    let found = match deed {
        Deed::Launched { id, new: true, .. } => world.ec2.with(id, untagged).flatten(),
        // Tags change later: a cap is raised, or a machine is started for another attempt.
        Deed::Minute => world.ec2.look(|machines| {
            machines.iter().filter(|machine| machine.is_of_a_plan()).find_map(untagged)
        }),
        _ => None,
    };
    found.map_or(Ok(()), Err)
}

/// A hard cap is at most the begin of the attempt, the run time and all extensions. So a controller
/// that sets a later cap is caught before it costs money.
fn a_cap_is_no_later_than_its_limits(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let (Deed::Minute, Some(limit)) = (deed, world.spec.spec.limits.max_runtime) else {
        return Ok(());
    };
    let late = |machine: &SimMachine| {
        let tags = Tags::from_map(&machine.tags).ok()?;
        let most = at(machine.begun()
            + limit.duration()
            + judge.granted_in_all(tags.job.as_str())
            + CAP_ROOM);
        let kill_at = tags.kill_at.filter(|kill_at| *kill_at > most)?;
        Some(format!("{} has its hard cap at {kill_at}, and its limits end at {most}", machine.id))
    };
    let found = world.ec2.look(|machines| {
        machines
            .iter()
            .filter(|machine| machine.is_of_a_plan() && machine.state().bills())
            .find_map(late)
    });
    found.map_or(Ok(()), Err)
}

fn dark_within_the_bound(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Minute = deed else { return Ok(()) };
    if let Some((id, _)) = judge.lingers.iter().find(|(_, minutes)| **minutes > LINGER_MINUTES) {
        return Err(format!(
            "{id} has written its outcome, its agent lives, and it bills for more than {LINGER_MINUTES} minutes"
        ));
    }
    if let Some((id, useless)) = judge
        .useless
        .iter()
        .find(|(_, useless)| useless.minutes > useless_minutes(world, useless.hushed))
    {
        return Err(format!(
            "{id} bills for work that idles or hangs, and its agent has watched that for {} minutes",
            useless.minutes
        ));
    }
    if let Some(((id, who), _)) =
        judge.unheld.iter().find(|(_, minutes)| **minutes > UNHELD_MINUTES)
    {
        return Err(format!(
            "{id} bills and says nothing, and {who} is awake for more than {UNHELD_MINUTES} minutes"
        ));
    }
    if let Some((id, _)) = judge.looped.iter().find(|(_, minutes)| **minutes > LOOPED_MINUTES) {
        return Err(format!(
            "the agents of {id} have died for more than {LOOPED_MINUTES} minutes, and it bills"
        ));
    }
    if let Some(((id, who), _)) =
        judge.hostless.iter().find(|(_, minutes)| **minutes > HOSTLESS_MINUTES)
    {
        return Err(format!(
            "the host of {id} is dead, the cloud says so, and {who} is awake for more than {HOSTLESS_MINUTES} minutes"
        ));
    }
    if let Some(((id, who), _)) =
        judge.unended.iter().find(|(_, minutes)| **minutes > UNENDED_MINUTES)
    {
        return Err(format!(
            "{id} bills beyond its end, and {who} is awake for more than {UNENDED_MINUTES} minutes"
        ));
    }
    let longest = judge
        .unused
        .iter()
        .find(|(id, minutes)| **minutes > BOUND_MINUTES + 1 && judge.passed_over.contains(*id));
    longest.map_or(Ok(()), |(id, _)| {
        Err(format!("{id} bills without use for more than {BOUND_MINUTES} minutes"))
    })
}

fn dark_soon_after_the_cap(judge: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Minute = deed else { return Ok(()) };
    if let Some((id, _)) = judge.overdue.iter().find(|(_, minutes)| **minutes > OVERDUE_MINUTES) {
        return Err(format!(
            "{id} lives more than {OVERDUE_MINUTES} minutes beyond its hard cap, and so does its agent"
        ));
    }
    if let Some((id, _)) = judge.undead.iter().find(|(_, minutes)| **minutes > OVERDUE_MINUTES) {
        return Err(format!(
            "{id} lives more than {OVERDUE_MINUTES} minutes beyond its hard cap, and its deadline unit could end it"
        ));
    }
    if let Some((id, _)) = judge.mistold.iter().find(|(_, minutes)| **minutes > 0) {
        return Err(format!("the deadline unit of {id} is set beyond its hard cap"));
    }
    let longest = judge
        .beyond
        .iter()
        .find(|(id, minutes)| **minutes > CAP_MINUTES + 1 && judge.passed_over.contains(*id));
    longest.map_or(Ok(()), |(id, _)| {
        Err(format!("{id} lives more than {CAP_MINUTES} minutes beyond its hard cap"))
    })
}

fn only_what_is_ours_is_touched(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::Asked { ask, id, by } = deed else { return Ok(()) };
    if world.ec2.with(id, |machine| machine.owner() == Some(OWNER)) != Some(true) {
        return Err(format!("{by} asked {ask:?} of {id}, which is not ours"));
    }
    let Some((since, _)) = judge
        .shown
        .get(*by)
        .filter(|(_, shown)| shown.iter().any(|(there, owner)| there == id && owner == OWNER))
    else {
        return Err(format!("{by} asked {ask:?} of {id} without having read its owner"));
    };
    let age = world.timeline.now().saturating_sub(*since);
    if age <= SHOWN_HOLDS + ends::ON_ITS_WAY {
        Ok(())
    } else {
        Err(format!("{by} asked {ask:?} of {id}, whose owner it read {} s before", age.as_secs()))
    }
}

fn settled_means_seen_to_be_gone(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, new: true, .. } = deed else { return Ok(()) };
    let Some(folder) = key.strip_suffix("settled.json") else { return Ok(()) };
    let plan = world
        .objects
        .body(&format!("{folder}plan.json"))
        .and_then(|body| serde_json::from_slice::<Plan>(&body).ok());
    let Some(plan) = plan else { return Err(format!("{key} without a plan")) };
    let is_its = |machine: &&SimMachine| {
        machine.token == plan.client_token
            && machine.offer.zone == plan.offer.zone
            && machine.is_of_rank(&plan)
    };
    let state = world.ec2.look(|machines| machines.iter().find(is_its).map(SimMachine::state));
    match state {
        None | Some(InstanceState::Terminated | InstanceState::Stopped) => Ok(()),
        Some(state) => {
            Err(format!("attempt {} is settled, and its machine is {state}", plan.attempt))
        }
    }
}

fn the_next_attempt_waits_for_the_end_of_the_last(
    _: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::Wrote { key, new: true, .. } = deed else { return Ok(()) };
    let Some((folder, _)) =
        key.strip_suffix("/plan.json").and_then(|folder| folder.rsplit_once('/'))
    else {
        return Ok(());
    };
    let Some((_, attempt)) = attempt_of(key).filter(|(_, attempt)| *attempt > 1) else {
        return Ok(());
    };
    let before = format!("{folder}/{:04}/settled.json", attempt - 1);
    // A rank begins with the attempt of rank 0 that launched its machine.
    let is_first =
        world.gang().is_some() && world.objects.body(&before.replace("settled", "plan")).is_none();
    if is_first || world.objects.body(&before).is_some() {
        Ok(())
    } else {
        Err(format!("attempt {attempt} is planned before the last is settled"))
    }
}

fn a_token_is_one_request(judge: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Launched { plan, .. } = deed else { return Ok(()) };
    // The call of rank 0 launches the machines of later ranks.
    if plan.gang.as_ref().is_some_and(|gang| gang.rank > 0) {
        return Ok(());
    }
    match judge.requests.get(&plan.client_token) {
        Some(before) if *before != request(plan) => {
            Err(format!("attempt {} was asked for twice, differently", plan.attempt))
        }
        _ => Ok(()),
    }
}

fn committed_steps_stay(judge: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    match deed {
        Deed::Started { step, start, .. } if !start.is_setup() => match judge.committed {
            Some(committed) if *step < committed => Err(format!(
                "{} begins at step {step}, and {committed} was kept",
                start.launch.name
            )),
            _ => Ok(()),
        },
        Deed::Wrote { key, body, new: true, .. } if key.ends_with("/manifest.json") => {
            let Ok(manifest) = serde_json::from_slice::<Manifest>(body) else {
                return Err(format!("{key} is no manifest"));
            };
            let job = key.split('/').nth(1).unwrap_or_default();
            let body =
                |file: &ManifestEntry| world.objects.body(&format!("jobs/{job}/{}", file.key));
            for file in &manifest.files {
                let Some(there) = body(file) else {
                    return Err(format!("{key} names {}, which is not there", file.key));
                };
                if hex::encode(Sha256::digest(&there)) != file.sha256
                    || there.len() as u64 != file.bytes
                {
                    return Err(format!("{key} names {}, and another one is there", file.key));
                }
            }
            let holds =
                step_held(world, key, &manifest).map_err(|what| format!("{key} holds {what}"))?;
            match manifest.step.map(|step| step as u64) {
                Some(said) if said > holds => {
                    Err(format!("{key} says step {said}, and holds step {holds}"))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn a_spot_machine_is_never_stopped(
    _: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::Asked { ask: EndRequest::Stop, id, .. } = deed else { return Ok(()) };
    if world.ec2.with(id, |machine| machine.offer.market) == Some(Market::Spot) {
        Err(format!("{id} is a spot machine"))
    } else {
        Ok(())
    }
}

fn launches_and_money_have_a_bound(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let now = world.timeline.now();
    match deed {
        Deed::Launched { new: true, .. } => {
            let lately = judge
                .launched
                .iter()
                .filter(|at| now.saturating_sub(**at) < Duration::from_secs(3600))
                .count();
            let jobs = world.gang().map_or(1, |gang| gang.ranks() as usize);
            if lately > LAUNCHES_MAX * jobs {
                Err(format!("{lately} machines within an hour"))
            } else {
                Ok(())
            }
        }
        Deed::Minute if world.swept => {
            let Some(budget) = judge.budget else { return Ok(()) };
            let (spent, slack) = world.ec2.look(|machines| {
                let ours: Vec<&SimMachine> =
                    machines.iter().filter(|machine| machine.owner() == Some(OWNER)).collect();
                // The bound at the hourly price of the last machine, because earlier costs shorten
                // its hard cap. Minutes without cloud or store are added (seed 6004320 of 24 h: a
                // zone outage at the hard cap).
                let last = ours.iter().max_by_key(|machine| machine.launched);
                let unswept = last
                    .and_then(|machine| judge.unswept.get(&machine.id))
                    .copied()
                    .unwrap_or_default();
                let bound = Duration::from_secs(u64::from(BOUND_MINUTES + unswept) * 60);
                let slack = last.map(|machine| machine.offer.hourly().cost_of(bound));
                (
                    ours.iter().map(|machine| machine.cost(now)).sum::<Usd>(),
                    slack.unwrap_or_default(),
                )
            });
            if spent > budget + slack {
                Err(format!("{spent} are spent, of a budget of {budget}"))
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

fn an_old_message_never_replaces_a_newer(
    judge: &Judge,
    _: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::Wrote { key, body, by, .. } = deed else { return Ok(()) };
    if judge.bodies.get(*key).is_some_and(|before| before != *body) {
        return Err(format!("{key} is written once, and was written again"));
    }
    let Some(attempt) = key.strip_suffix("/status.json").and_then(|_| attempt_of(key)) else {
        return Ok(());
    };
    match judge.beats.get(&attempt) {
        // The store may apply a write late, and the next heartbeat replaces it.
        Some((_, sequence, before)) if sequence < before && *by != LATE => {
            Err(format!("{key} is heartbeat {sequence}, and came after {before}"))
        }
        _ => Ok(()),
    }
}

fn holds_a_secret(body: &[u8]) -> bool {
    // Checked first, because almost no record has this byte.
    const RARE: u8 = b'~';
    let first = CANARY.as_bytes()[0];
    body.contains(&RARE)
        && body
            .windows(CANARY.len())
            .any(|window| window[0] == first && window == CANARY.as_bytes())
}

/// More than a piece of a log or a body of samples.
const UNPACKED_MAX: usize = 4 << 20;

thread_local! {
    /// Reused, because making one costs more than unpacking a piece.
    static UNPACKER: RefCell<(Decompressor<'static>, Vec<u8>)> =
        RefCell::new((Decompressor::new().expect("there is memory for it"), Vec::with_capacity(UNPACKED_MAX)));
}

/// The same for a packed body. True also if it cannot be unpacked.
fn holds_a_packed_secret(body: &[u8]) -> bool {
    UNPACKER.with_borrow_mut(|(unpacker, plain)| {
        unpacker.decompress_to_buffer(body, plain).is_err() || holds_a_secret(plain)
    })
}

/// Checks records, logs, samples and launch requests. User data is empty in these worlds;
/// tests/e2e/canary.rs checks it.
fn no_secret_in_a_record(_: &Judge, _: &World, deed: &Deed<'_>) -> Result<(), String> {
    let holds = holds_a_secret;
    match deed {
        Deed::Wrote { key, body, .. } if key.ends_with(".zst") && holds_a_packed_secret(body) => {
            Err(format!("{key} holds, packed, what must never be in a record, or is not packed"))
        }
        Deed::Wrote { key, body, .. } if holds(body) => {
            Err(format!("{key} holds what must never be in a record"))
        }
        Deed::Launched { plan, new: true, .. } if holds(&request(plan)) => {
            Err(format!("the launch of attempt {} holds what must never be in one", plan.attempt))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_in_a_packed_body_is_found() {
        // The lines differ, so that the packed text holds parts of each.
        let lines: String = (0..900)
            .map(|step: u32| format!("step {step} ~ {}\n", step.wrapping_mul(2_654_435_761)))
            .collect();
        let packed = |text: String| zstd::bulk::compress(text.as_bytes(), 3).unwrap();
        let (clean, dirty) = (packed(lines.clone()), packed(format!("{lines}team={CANARY}\n")));
        assert!(!holds_a_secret(&dirty), "which is why it is unpacked");
        // In turn, to see that no text of the one before is left.
        assert_eq!(
            [&dirty, &clean, &dirty, &clean].map(|body| holds_a_packed_secret(body)),
            [true, false, true, false]
        );
        assert!(
            holds_a_packed_secret(&clean[..clean.len() - 1]) && holds_a_packed_secret(b"step 1"),
            "what cannot be read may hold one"
        );
    }
}
