//! The faults of a gang by seed: of a single rank, of the launch, and of the world around it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::instance::{InstanceState, Notice, NoticeKind};
use crate::job::Wish;
use crate::jobdir::JobDir;
use crate::sim::faults::fault_plan::{self, FaultKind};
use crate::sim::faults::fault_times::Strikes;
use crate::sim::kernel::rng::Dice;
use crate::sim::play::drivers::Party;
use crate::sim::play::play::HOURS;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::host::Host;
use crate::sim::world::store::Line;
use crate::sim::world::world::{Deed, OWNER, World};

/// One fault of a gang.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GangFault {
    /// A fault that the worlds of one machine have too.
    Around(FaultKind),
    /// The same on the machine of a rank.
    OnRank(u32, FaultKind),
    /// The next machines of a rank never run an agent.
    NeverJoins(u32, u32),
    /// EC2 has room for so many machines of one call only.
    PartialRoom(u32, Duration),
    /// The machine of a rank is taken, with or without a notice.
    Taken(u32, Option<Duration>),
    /// The network between a rank and the others is cut. The store answers.
    Split(u32, Duration),
    /// A rank alone does not reach the store. The network to the others works.
    Offline(u32, Duration),
    /// Each call of the store takes so long.
    SlowStore(Duration, Duration),
    /// All ranks are asked to end, as `lamp stop` and `lamp cancel` do.
    Ends(Wish),
}

#[derive(Clone, Copy, Debug)]
pub struct GangDue {
    pub at: Duration,
    pub fault: GangFault,
}

const AROUND: [WorldFault; 12] = [
    WorldFault::StoreDown,
    WorldFault::StoreLossy,
    WorldFault::StoreStale,
    WorldFault::LaptopOffline,
    WorldFault::Ec2Down,
    WorldFault::Ec2Throttled,
    WorldFault::Ec2Lossy,
    WorldFault::Ec2Stale,
    WorldFault::NoCapacityA,
    WorldFault::NoCapacityB,
    WorldFault::LateShows,
    WorldFault::StuckEnds,
];

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The faults of one seed, in order of their times.
pub fn gang_faults(dice: &Dice, ranks: u32, until: Duration, hours: u64) -> Vec<GangDue> {
    let mut due = at_launch(dice, ranks);
    let count = (1 + dice.roll(5)) * hours / HOURS;
    due.extend(
        (0..count)
            .map(|_| GangDue { at: dice.between(Duration::ZERO, until), fault: one(dice, ranks) }),
    );
    due.sort_by_key(|due| due.at);
    due
}

fn at_launch(dice: &Dice, ranks: u32) -> Vec<GangDue> {
    let mut faults = Vec::new();
    if dice.percent(15) {
        let times = 1 + u32::from(dice.percent(20));
        faults.push(GangFault::NeverJoins(a_rank(dice, ranks), times));
    }
    if dice.percent(20) {
        let room = dice.roll(u64::from(ranks)) as u32;
        faults.push(GangFault::PartialRoom(room, dice.between(secs(60), secs(1800))));
    }
    if dice.percent(30) {
        let around = dice.pick(&[
            WorldFault::Ec2Lossy,
            WorldFault::LateShows,
            WorldFault::Ec2Stale,
            WorldFault::StoreLossy,
            WorldFault::StoreStale,
            WorldFault::Withdraws,
        ]);
        faults.push(GangFault::Around(FaultKind::Weather(around, secs(600))));
    }
    if dice.percent(20) {
        faults.push(GangFault::SlowStore(secs(2 + dice.roll(10)), secs(600)));
    }
    faults.into_iter().map(|fault| GangDue { at: Duration::ZERO, fault }).collect()
}

/// Rank 0 as often as all others, because more hangs on it.
fn a_rank(dice: &Dice, ranks: u32) -> u32 {
    if dice.percent(40) { 0 } else { dice.roll(u64::from(ranks)) as u32 }
}

fn one(dice: &Dice, ranks: u32) -> GangFault {
    let rank = a_rank(dice, ranks);
    let on_rank = |fault| GangFault::OnRank(rank, fault);
    match dice.roll(100) {
        0..14 => GangFault::Taken(rank, Some(dice.pick(&[secs(120), secs(120), secs(30)]))),
        14..24 => GangFault::Taken(rank, None),
        24..28 => on_rank(FaultKind::HostDies),
        28..32 => on_rank(FaultKind::KernelHang),
        32..37 => on_rank(FaultKind::Reboot),
        37..42 => on_rank(FaultKind::AgentCrash),
        42..44 => on_rank(FaultKind::AgentHang(dice.between(secs(5), secs(120)))),
        44..46 => on_rank(FaultKind::Xid(true)),
        46..47 => on_rank(FaultKind::ConsoleTerminate),
        47..56 => GangFault::Split(rank, dice.between(secs(20), secs(1800))),
        56..65 => GangFault::Offline(rank, dice.between(secs(20), secs(1800))),
        65..72 => GangFault::SlowStore(secs(1 + dice.roll(15)), dice.between(secs(60), secs(1200))),
        72..88 => {
            let lasts = dice.between(secs(20), secs(1800));
            GangFault::Around(FaultKind::Weather(dice.pick(&AROUND), lasts))
        }
        88..91 => {
            let time = dice.pick(&[secs(60), secs(3600), secs(3 * 3600)]);
            GangFault::Around(FaultKind::LaptopSleep(time))
        }
        91..94 => GangFault::Around(FaultKind::ControllerKill),
        94..96 => GangFault::Around(FaultKind::SecondController),
        96..98 => GangFault::Ends(Wish::Stop),
        _ => GangFault::Ends(Wish::Cancel),
    }
}

/// Starts the faults, one after the other, and counts those that found a machine.
pub async fn befall(
    world: Arc<World>,
    laptop: Arc<Party>,
    due: Vec<GangDue>,
    strikes: Arc<Mutex<Strikes>>,
) {
    for GangDue { at, fault } in due {
        world.timeline.sleep(at.saturating_sub(world.timeline.now())).await;
        world.told(format_args!("FATE {fault:?}"));
        let found = finds(&world, fault);
        let name = format!("{fault:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
        {
            let mut strikes = strikes.lock().expect("the lock is not poisoned");
            let (all, struck) = strikes.entry(name).or_default();
            (*all, *struck) = (*all + 1, *struck + u64::from(found));
        }
        let (world, laptop) = (Arc::clone(&world), Arc::clone(&laptop));
        tokio::task::spawn_local(async move { strike(&world, &laptop, fault).await });
    }
}

fn finds(world: &World, fault: GangFault) -> bool {
    match fault {
        GangFault::OnRank(rank, _) | GangFault::Taken(rank, _) => host_of(world, rank).is_some(),
        _ => true,
    }
}

/// The running machine of a rank.
pub(super) fn host_of(world: &World, rank: u32) -> Option<Arc<Host>> {
    world.ec2.look(|machines| {
        let mut of_rank = machines.iter().rev().filter(|machine| {
            machine.owner() == Some(OWNER)
                && machine.state() == InstanceState::Running
                && machine.attempt().is_some_and(|(of, _)| of == rank)
        });
        of_rank.find_map(|machine| machine.host.clone())
    })
}

async fn strike(world: &Arc<World>, laptop: &Arc<Party>, fault: GangFault) {
    let Some(gang) = world.gang() else { return };
    let now = world.timeline.now();
    match fault {
        GangFault::Around(fault) => fault_plan::strike(world, laptop, fault).await,
        GangFault::OnRank(rank, fault) => {
            if let Some(host) = host_of(world, rank) {
                fault_plan::on_machine(world, &host, fault).await;
            }
        }
        GangFault::NeverJoins(rank, times) => gang.fail_boots(rank, times),
        GangFault::PartialRoom(machines, lasts) => gang.limit_room(machines, now + lasts),
        GangFault::Taken(rank, notice) => {
            if let Some(host) = host_of(world, rank) {
                take(world, &host, notice).await;
            }
        }
        GangFault::Split(rank, lasts) => gang.split(rank, now + lasts),
        GangFault::Offline(rank, lasts) => gang.take_offline(rank, now + lasts),
        GangFault::SlowStore(takes, lasts) => gang.slow_store(takes, now + lasts),
        GangFault::Ends(wish) => ask_all(world, wish).await,
    }
}

/// The cloud retires the host of a machine.
async fn take(world: &Arc<World>, host: &Arc<Host>, notice: Option<Duration>) {
    if let Some(ahead) = notice {
        let at = world.timeline.wall() + ahead;
        let notice = Notice { kind: NoticeKind::Interruption, at, detail: "terminate".into() };
        host.state().notices.push(notice);
        world.happened(&Deed::Noticed { host, ahead });
        world.timeline.sleep(ahead).await;
    }
    world.ec2.terminate(world, &host.id, "Server.InternalError: the host is retired");
}

/// Asks each rank until its job directory has the request.
pub(super) async fn ask_all(world: &Arc<World>, wish: Wish) {
    let Some(member) = world.spec.member() else { return };
    for seat in &member.seats {
        let line = Line {
            world: Arc::clone(world),
            who: "user".into(),
            cut_by: WorldFault::LaptopOffline,
            disk: None,
        };
        let dir = JobDir::new(Arc::new(line), seat.job.clone());
        while dir.add_request(wish, "somebody", world.timeline.wall()).await.is_err() {
            world.timeline.sleep(Duration::from_secs(5)).await;
        }
    }
}

/// Ends all faults. A kernel that hangs stays so.
pub(super) fn make_well(world: &Arc<World>, laptop: &Arc<Party>) {
    world.told(format_args!("ALL FAULTS ARE OVER"));
    world.weather.clear();
    world.sold.make_room();
    laptop.sleep(false);
    laptop.wall_off.store(0, Ordering::Relaxed);
    let Some(gang) = world.gang() else { return };
    gang.make_well();
    for host in (0..gang.ranks()).filter_map(|rank| host_of(world, rank)) {
        host.disk.fill(false);
        host.set_clock(0);
        host.state().crash_loop = 0;
    }
}
