//! Plays one job on several machines from its seed, until each rank has its receipt.
//!
//! Not here: a job of one machine (`crate::sim::play::play`). Its dice are not used, so its worlds
//! stay the same.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::gang_faults::{self, ask_all, gang_faults, host_of};
use super::gang_world::{GangWorld, RankFailure};
use crate::controller::submit;
use crate::job::{GangRole, JobId, Receipt, ResolvedSpec, Wish, other_members, seats_of};
use crate::jobdir::layout;
use crate::ports::Store;
use crate::sim::faults::fault_times::Strikes;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::virtual_time::Timeline;
use crate::sim::play::drivers::{Party, sweep};
use crate::sim::play::play::{HOURS, WorldResult, WorldRun, close, judge, minutes, scaled};
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::foreign_machines;
use crate::sim::world::offers::SimMarket;
use crate::sim::world::store::Line;
use crate::sim::world::training_checkpoints::SaveStyle;
use crate::sim::world::workload::{Habit, WorkEnd};
use crate::sim::world::world::{JOB, Roughly, World};

/// After the faults and the work: a lease, a launch without an answer, and the wait for a rank.
const CONVERGES_WITHIN: Duration = Duration::from_secs(3 * 3600);

/// After a wish to end, without faults: only a machine that hangs waits for its lease.
const ENDS_WITHIN: Duration = Duration::from_secs(45 * 60);

/// How long the world must stay quiet after its last receipt.
const REST: Duration = Duration::from_secs(900);

const LOOK: Duration = Duration::from_secs(20);

pub(crate) async fn live(play: WorldRun, timeline: Arc<Timeline>) -> WorldResult {
    let dice = Dice::new(play.seed).fork("gang");
    let habit = habit(&dice.fork("habit"), &play);
    let leader = leader(&dice.fork("spec"), habit, &play, timeline.wall());
    let ranks = leader.member().map_or(1, |member| member.seats.len() as u32);
    let swept = dice.fork("swept").percent(80);
    let roughly = Roughly { is_rough: !play.calm, writes_land_late: !play.calm };
    let world = World::new(
        timeline,
        &dice,
        leader,
        habit,
        (swept, roughly),
        (play.death, play.planted),
        SimMarket::of_the_laws(),
    );
    let failure = failure(&dice.fork("failure"), ranks).filter(|_| !play.calm);
    world.begin_gang(GangWorld::new(dice.fork("ranks"), ranks, failure));
    if play.told {
        world.trace().keep_all();
    }
    world.told(format_args!(
        "gang {}: {ranks} ranks, {habit:?}, {failure:?}, swept: {swept}",
        play.seed
    ));
    foreign_machines::add(&world);
    submit_all(&world).await;
    let laptop = Party::new(&world, "laptop");
    let mut tasks = vec![
        tokio::task::spawn_local(Arc::clone(&laptop).drive()),
        tokio::task::spawn_local(minutes(Arc::clone(&world))),
    ];
    if swept {
        tasks.push(tokio::task::spawn_local(sweep(Arc::clone(&world))));
    }
    let faults = Duration::from_secs(play.hours * 3600);
    let work = world.habit.whole();
    let busy = faults.min(work + work / 2 + scaled(900, play.hours));
    let due = if play.calm {
        Vec::new()
    } else {
        gang_faults(&dice.fork("faults"), ranks, busy, play.hours)
    };
    let struck: Arc<Mutex<Strikes>> = Arc::default();
    tasks.push(tokio::task::spawn_local(gang_faults::befall(
        Arc::clone(&world),
        Arc::clone(&laptop),
        due,
        Arc::clone(&struck),
    )));
    let (receipts, converged) = to_the_end(&world, &laptop, &play, faults).await;
    let strikes = std::mem::take(&mut *struck.lock().expect("the lock is not poisoned"));
    let played = WorldResult { converged, strikes, ..judge(&world, &play, receipts) };
    close(&world, tasks).await;
    played
}

/// Waits for the receipts of all ranks. The receipt of rank 0 is the last.
async fn to_the_end(
    world: &Arc<World>,
    laptop: &Arc<Party>,
    play: &WorldRun,
    faults: Duration,
) -> (Vec<Option<Receipt>>, Option<Duration>) {
    let jobs: Vec<JobId> = world.spec.member().map_or_else(Vec::new, |member| {
        member.seats.iter().rev().map(|seat| seat.job.clone()).collect()
    });
    let is_over = || jobs.iter().all(|job| world.objects.body(&layout::receipt(job)).is_some());
    let mut limit = faults + CONVERGES_WITHIN + world.habit.whole();
    let (mut is_well, mut stopped_at) = (false, None);
    while !is_over() && world.timeline.now() < limit {
        world.timeline.sleep(LOOK).await;
        if !is_well && world.timeline.now() >= faults {
            is_well = true;
            gang_faults::make_well(world, laptop);
            if play.seed % 2 == 1 {
                stopped_at = all_work(world).then_some(world.timeline.now());
                ask_all(world, Wish::Stop).await;
                limit = world.timeline.now() + ENDS_WITHIN;
            }
        }
    }
    if !is_well {
        gang_faults::make_well(world, laptop);
    }
    let converged = stopped_at.map(|since| world.timeline.now().saturating_sub(since));
    world.timeline.sleep(REST).await;
    let read = |job: &JobId| {
        let body = world.objects.body(&layout::receipt(job))?;
        serde_json::from_slice(&body).ok()
    };
    (jobs.iter().map(read).collect(), converged)
}

/// Whether kernel and agent of each running machine work.
fn all_work(world: &World) -> bool {
    let ranks = world.gang().map_or(0, GangWorld::ranks);
    (0..ranks).filter_map(|rank| host_of(world, rank)).all(|host| {
        host.kernel.is_running()
            && host.state().agent.as_ref().is_some_and(|agent| agent.is_running())
    })
}

/// As `lamp run` does: rank 0 first, then the others.
async fn submit_all(world: &Arc<World>) {
    let store: Arc<dyn Store> = Arc::new(Line {
        world: Arc::clone(world),
        who: "user".into(),
        cut_by: WorldFault::LaptopOffline,
        disk: None,
    });
    for spec in std::iter::once(&world.spec).chain(&other_members(&world.spec)) {
        submit(&store, spec, None).await.expect("the weather is calm at the start");
    }
}

fn habit(dice: &Dice, play: &WorldRun) -> Habit {
    let step = dice.pick(&[10, 20, 30, 60]);
    let minutes = dice.pick(&[10, 30, 60, 120, 240]) * play.hours / HOURS;
    Habit {
        steps: (minutes * 60 / step).max(4),
        step: Duration::from_secs(step),
        save_every: dice.pick(&[3, 10, 40]),
        saves: play.saves.unwrap_or_else(|| SaveStyle::of(dice)),
        end: WorkEnd::Succeeds,
        saves_when_asked: dice.percent(70),
        ignores_term: dice.percent(10),
        quiet: false,
        prepares: Duration::ZERO,
    }
}

fn failure(dice: &Dice, ranks: u32) -> Option<RankFailure> {
    let (rank, times) = (dice.roll(u64::from(ranks)) as u32, 1 + dice.roll(3) as u32);
    dice.percent(20).then_some(RankFailure { rank, code: 3, times })
}

/// The job of rank 0, which the user names.
fn leader(dice: &Dice, habit: Habit, play: &WorldRun, now: jiff::Timestamp) -> ResolvedSpec {
    let job: JobId = JOB.parse().expect("a name of ours");
    let most = dice.pick(&[2, 2, 3, 4]);
    let least = if dice.percent(35) { 1 + dice.roll(most) } else { most };
    let seats = seats_of(&job, &vec![GangRole::Worker; most as usize]);
    let retries = u32::from(dice.percent(50));
    let (whole, quarter) = ((play.hours + 1) * 60, play.hours * 15);
    let max_runtime = dice.pick(&[whole, whole, whole, quarter]);
    let max_runtime = if play.calm { whole } else { max_runtime };
    let done = dice.pick(&["all", "all", "rank0", "any"]);
    let signal = habit.saves_when_asked.then_some("SIGUSR1");
    let market = if dice.percent(40) { "spot" } else { "on-demand" };
    serde_json::from_value(json!({
        "format": 1, "job": job, "created": now, "written_by": "test", "code": null, "origins": {},
        "spec": {
            "name": "digits", "command": {"args": ["python3", "train.py"]},
            "machine": {"cloud": "aws", "gpus": "A10G:1", "market": market},
            "limits": {"max_runtime": format!("{max_runtime}m")},
            "checkpoint": {"path": "ckpt", "interval": "2m", "signal": signal, "grace": "1m"},
            "gang": {
                "nodes": {"min": least, "max": most}, "done": done,
                "member": {"rank": 0, "seats": seats, "retries_max": retries, "retry_delay": "10s"},
            },
        },
    }))
    .expect("words that the format knows")
}
