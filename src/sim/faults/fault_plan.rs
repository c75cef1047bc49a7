//! The fault plan of a world: faults by seed, each at its time, and the end of all faults.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::instance::{Notice, NoticeKind};
use crate::job::Wish;
use crate::jobdir::JobDir;
use crate::market::{Span, Usd};
use crate::sim::kernel::rng::Dice;
use crate::sim::play::drivers::Party;
use crate::sim::play::play::{HOURS, scaled};
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::host::Host;
use crate::sim::world::process::SimProcess;
use crate::sim::world::workload::ABORTED;
use crate::sim::world::world::{Deed, OWNER, World};

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    Weather(WorldFault, Duration),
    /// EC2 gives notice, and takes the machine or not.
    Reclaim {
        notice: Option<Duration>,
        takes: bool,
    },
    /// EC2 takes the first machine this long after it runs, with half a minute of notice.
    ReclaimFirst(Duration),
    Rebalance,
    AgentCrash,
    CrashLoop(u32),
    /// The agent is broken: each one dies soon, until the faults end.
    AgentGone,
    /// SIGSTOP. The watchdog of its unit kills it after half a minute, unless it continues before.
    AgentHang(Duration),
    Reboot,
    KernelHang,
    /// The host dies: the machine does not answer, and after some minutes the cloud's checks fail.
    HostDies,
    BoxClock(i64),
    LaptopSleep(Duration),
    ControllerKill,
    SecondController,
    LaptopClock(i64),
    Stop,
    Cancel,
    SaveNow,
    /// More time, or more money.
    Extend(bool),
    /// The driver reports that the GPU is off the bus, and the work dies or not.
    Xid(bool),
    ConsoleTerminate,
    ConsoleStop,
    /// A zone outage: its machines freeze, it has no capacity, and Describe fails. At its end the
    /// machines reboot.
    ZoneOutage(Duration),
}

impl FaultKind {
    /// A person ends the job or its machine.
    fn is_a_persons_end(self) -> bool {
        matches!(
            self,
            FaultKind::Stop
                | FaultKind::Cancel
                | FaultKind::ConsoleTerminate
                | FaultKind::ConsoleStop
        )
    }
}

/// A fault sequence that a seed once found. Later changes of the dice do not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// A machine is taken before its agent's first heartbeat. The laptop sleeps for longer than the
    /// cloud shows the machine, and its controller has died.
    DiedUnseen,
    /// The same, and the user stops the job before the laptop wakes. No controller asks for the
    /// machine again.
    DiedUnwanted,
    /// The same without the death of the controller: it only knows the name of the machine.
    DiedNamed,
    /// A kernel hangs after heartbeats, while the laptop sleeps for longer than the cloud shows the
    /// end.
    HungUnseen,
    /// A machine does its work and powers off, while the laptop sleeps for longer than the cloud
    /// shows the end.
    EndedUnseen,
    /// A machine is taken while the laptop's clock is a day behind, which is corrected half an hour
    /// later.
    ClockBehind,
    /// The machine's zone has an outage that is shorter than a lease.
    ZoneBlinks,
    /// The user cancels the job during its work.
    Cancelled,
}

impl Story {
    pub const ALL: [Story; 8] = [
        Story::DiedUnseen,
        Story::DiedUnwanted,
        Story::DiedNamed,
        Story::HungUnseen,
        Story::EndedUnseen,
        Story::ClockBehind,
        Story::ZoneBlinks,
        Story::Cancelled,
    ];
}

/// The faults of a story, in order of their times.
pub fn story(story: Story) -> Vec<Due> {
    let due = |at, fate| Due { at: Duration::from_secs(at), fate };
    let asleep = || due(3, FaultKind::LaptopSleep(Duration::from_secs(2 * 3600)));
    let taken = |at| due(at, FaultKind::Reclaim { notice: None, takes: true });
    let mute = due(0, FaultKind::Weather(WorldFault::MetadataDown, Duration::from_secs(1800)));
    let killed = due(4, FaultKind::ControllerKill);
    match story {
        Story::DiedUnseen => vec![mute, asleep(), killed, taken(120)],
        Story::DiedUnwanted => vec![mute, asleep(), killed, taken(120), due(3600, FaultKind::Stop)],
        Story::DiedNamed => vec![mute, asleep(), taken(120)],
        Story::HungUnseen => vec![asleep(), due(50, FaultKind::KernelHang)],
        Story::EndedUnseen => vec![asleep()],
        Story::ClockBehind => vec![
            due(10, FaultKind::LaptopClock(-86_400_000)),
            taken(60),
            due(1860, FaultKind::LaptopClock(0)),
        ],
        Story::ZoneBlinks => vec![due(60, FaultKind::ZoneOutage(Duration::from_secs(20 * 60)))],
        Story::Cancelled => vec![due(60, FaultKind::Cancel)],
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub at: Duration,
    pub fate: FaultKind,
}

const WEATHERS: [WorldFault; 17] = [
    WorldFault::StoreDown,
    WorldFault::StoreLossy,
    WorldFault::StoreLossy,
    WorldFault::StoreStale,
    WorldFault::LaptopOffline,
    WorldFault::MachineOffline,
    WorldFault::Ec2Down,
    WorldFault::Ec2Throttled,
    WorldFault::Ec2Lossy,
    WorldFault::Ec2Lossy,
    WorldFault::Ec2Stale,
    WorldFault::NoCapacityA,
    WorldFault::NoCapacityB,
    WorldFault::StuckEnds,
    WorldFault::LateShows,
    WorldFault::NvmlLost,
    WorldFault::MetadataDown,
];

/// Faults that were added later, and how long each may last in a world of six hours. Half of those
/// at launches begin at the first launch.
const NEWER: [(WorldFault, u64); 6] = [
    (WorldFault::SignedOut, 3 * 3600),
    (WorldFault::SignedOut, 1200),
    (WorldFault::RoleGone, 3600),
    (WorldFault::Withdraws, 1800),
    (WorldFault::BadBoots, 1800),
    (WorldFault::PowerBroken, 5400),
];

/// The faults of one seed, in order of their times. `newer`: with faults that were added after the
/// older seeds were named.
pub fn of(dice: &Dice, until: Duration, hours: u64, newer: bool) -> Vec<Due> {
    let count = (3 + dice.roll(12)) * hours / HOURS;
    let mut due: Vec<Due> = (0..count)
        .map(|_| Due { at: dice.between(Duration::ZERO, until), fate: one(dice, hours) })
        .collect();
    // Faults come by the hour. A request of a person comes once per job.
    let people = dice.fork("people");
    due.retain(|due| !due.fate.is_a_persons_end() || people.roll(hours) < HOURS);
    // Half of the worlds begin with a fault at the launch.
    if dice.percent(50) {
        let trouble = dice.pick(&[
            WorldFault::Ec2Lossy,
            WorldFault::LateShows,
            WorldFault::Ec2Stale,
            WorldFault::StoreLossy,
            WorldFault::StoreStale,
        ]);
        due.push(Due {
            at: Duration::ZERO,
            fate: FaultKind::Weather(trouble, Duration::from_secs(600)),
        });
    }
    let zone = dice.fork("zone");
    for _ in 0..hours / HOURS {
        if zone.percent(8) {
            let lasts = zone.between(Duration::from_secs(120), Duration::from_secs(3600));
            due.push(Due {
                at: zone.between(Duration::ZERO, until),
                fate: FaultKind::ZoneOutage(lasts),
            });
        }
    }
    let alone = dice.fork("alone");
    if alone.percent(8) {
        // Only the deadline unit and the sweeper are left.
        let at = alone.between(Duration::ZERO, until);
        due.extend([
            Due { at, fate: FaultKind::AgentGone },
            Due { at, fate: FaultKind::LaptopSleep(scaled(24 * 3600, hours)) },
        ]);
    }
    let later = dice.fork("newer");
    for _ in 0..hours / HOURS {
        if newer && later.percent(30) {
            let (trouble, longest) = later.pick(&NEWER);
            let lasts = later.between(Duration::from_secs(60), scaled(longest, hours));
            let at_launch = matches!(trouble, WorldFault::Withdraws | WorldFault::BadBoots)
                && later.percent(50);
            let at = if at_launch { Duration::ZERO } else { later.between(Duration::ZERO, until) };
            due.push(Due { at, fate: FaultKind::Weather(trouble, lasts) });
        }
    }
    let hosts = dice.fork("hosts");
    for _ in 0..hours / HOURS {
        if newer && hosts.percent(10) {
            due.push(Due { at: hosts.between(Duration::ZERO, until), fate: FaultKind::HostDies });
        }
    }
    due.sort_by_key(|due| due.at);
    due
}

fn one(dice: &Dice, hours: u64) -> FaultKind {
    let secs = Duration::from_secs;
    // For the whole world, and for days in a long one.
    let days = scaled(24 * 3600, hours);
    let sign = if dice.percent(50) { 1 } else { -1 };
    match dice.roll(107) {
        0..36 => FaultKind::Weather(dice.pick(&WEATHERS), dice.between(secs(20), secs(2700))),
        36..40 => FaultKind::Weather(WorldFault::DiskFull, dice.between(secs(30), secs(900))),
        40..54 => FaultKind::Reclaim {
            notice: dice.pick(&[
                None,
                Some(secs(120)),
                Some(secs(120)),
                Some(secs(30)),
                Some(secs(300)),
            ]),
            takes: dice.percent(80),
        },
        54..56 => FaultKind::Rebalance,
        56..62 => FaultKind::AgentCrash,
        62..65 => FaultKind::CrashLoop(3 + dice.roll(6) as u32),
        65..69 => FaultKind::AgentHang(dice.between(secs(5), secs(120))),
        69..73 => FaultKind::Reboot,
        73..76 => FaultKind::KernelHang,
        76..79 => FaultKind::BoxClock(sign * 3_600_000),
        79..86 => FaultKind::LaptopSleep(dice.pick(&[secs(60), secs(3600), secs(3 * 3600), days])),
        86..91 => FaultKind::ControllerKill,
        91..93 => FaultKind::SecondController,
        93..94 => FaultKind::LaptopClock(sign * 86_400_000),
        94..95 => FaultKind::Stop,
        95..96 => FaultKind::Cancel,
        96..97 => FaultKind::SaveNow,
        97..98 => FaultKind::ConsoleTerminate,
        98..99 => FaultKind::ConsoleStop,
        99..102 => FaultKind::Xid(dice.percent(60)),
        102..104 => FaultKind::Extend(dice.percent(50)),
        104..106 => FaultKind::Weather(WorldFault::PriceHigh, dice.between(secs(60), secs(2700))),
        _ => FaultKind::Weather(WorldFault::QuotaFull, dice.between(secs(60), secs(1200))),
    }
}

/// Starts the faults, one after the other.
pub async fn befall(world: Arc<World>, laptop: Arc<Party>, due: Vec<Due>) {
    for Due { at, fate } in due {
        world.timeline.sleep(at.saturating_sub(world.timeline.now())).await;
        world.told(format_args!("FATE {fate:?}"));
        let (world, laptop) = (Arc::clone(&world), Arc::clone(&laptop));
        tokio::task::spawn_local(async move { strike(&world, &laptop, fate).await });
    }
}

pub(crate) async fn strike(world: &Arc<World>, laptop: &Arc<Party>, fate: FaultKind) {
    let fate = match fate {
        FaultKind::ReclaimFirst(after) => {
            while world.ec2.running(OWNER).is_none() {
                world.timeline.sleep(Duration::from_secs(1)).await;
            }
            world.timeline.sleep(after).await;
            FaultKind::Reclaim { notice: Some(Duration::from_secs(30)), takes: true }
        }
        fate => fate,
    };
    let host = world.ec2.running(OWNER);
    match fate {
        FaultKind::Weather(trouble, lasts) => weather(world, host, trouble, lasts).await,
        FaultKind::LaptopSleep(time) => {
            laptop.sleep(true);
            world.timeline.sleep(time).await;
            laptop.sleep(false);
        }
        FaultKind::ControllerKill => laptop.kill_controller(),
        FaultKind::SecondController => {
            drop(tokio::task::spawn_local(Party::new(world, "second").drive()))
        }
        FaultKind::LaptopClock(off) => laptop.wall_off.store(off, Ordering::Relaxed),
        FaultKind::Stop => wish(world, laptop, Wish::Stop).await,
        FaultKind::Cancel => wish(world, laptop, Wish::Cancel).await,
        FaultKind::SaveNow => wish(world, laptop, Wish::Checkpoint).await,
        FaultKind::Extend(true) => {
            wish(
                world,
                laptop,
                Wish::Extend {
                    time: Some(Span::from_secs(3600)),
                    budget: None,
                    fallback_cost: None,
                },
            )
            .await
        }
        FaultKind::Extend(false) => {
            wish(
                world,
                laptop,
                Wish::Extend {
                    time: None,
                    budget: Some(Usd::from_micros(1_000_000)),
                    fallback_cost: None,
                },
            )
            .await
        }
        _ => {
            if let Some(host) = host {
                on_machine(world, &host, fate).await;
            }
        }
    }
}

async fn weather(
    world: &Arc<World>,
    host: Option<Arc<Host>>,
    trouble: WorldFault,
    lasts: Duration,
) {
    world.weather.begin(trouble, lasts);
    if let (WorldFault::DiskFull, Some(host)) = (trouble, host) {
        host.disk.fill(true);
        world.timeline.sleep(lasts).await;
        host.disk.fill(false);
    }
}

/// Asks as `lamp stop` does, until the job directory has the request. Its time is by the
/// workstation's clock.
async fn wish(world: &Arc<World>, laptop: &Arc<Party>, wish: Wish) {
    let line = crate::sim::world::store::Line {
        world: Arc::clone(world),
        who: "user".into(),
        cut_by: WorldFault::LaptopOffline,
        disk: None,
    };
    let dir = JobDir::new(Arc::new(line), world.newest_job().clone());
    let off = jiff::SignedDuration::from_millis(laptop.wall_off.load(Ordering::Relaxed));
    while dir.add_request(wish, "somebody", world.timeline.wall() + off).await.is_err() {
        world.timeline.sleep(Duration::from_secs(5)).await;
    }
}

pub(crate) async fn on_machine(world: &Arc<World>, host: &Arc<Host>, fate: FaultKind) {
    let agent = host.state().agent.clone();
    match fate {
        FaultKind::Reclaim { notice, takes } => reclaim(world, host, notice, takes).await,
        FaultKind::Rebalance => {
            let notice = Notice {
                kind: NoticeKind::Rebalance,
                at: world.timeline.wall(),
                detail: "rebalance".into(),
            };
            host.state().notices.push(notice);
        }
        FaultKind::AgentCrash => agent.iter().for_each(|agent| agent.kill()),
        FaultKind::CrashLoop(times) => crash_loop(host, agent, times),
        FaultKind::AgentGone => crash_loop(host, agent, u32::MAX),
        FaultKind::AgentHang(time) => {
            let Some(agent) = agent else { return };
            // If it is long, the watchdog kills the agent.
            agent.freeze(true);
            world.timeline.sleep(time).await;
            agent.freeze(false);
        }
        FaultKind::Reboot => host.state().reboot.iter().for_each(|boot| boot.kill()),
        FaultKind::KernelHang => host.kernel.freeze(true),
        FaultKind::HostDies => host.die(),
        FaultKind::BoxClock(off) => host.set_clock(off),
        FaultKind::Xid(ends) => {
            host.state().xids.push(79);
            if ends {
                world.timeline.sleep(Duration::from_secs(3)).await;
                host.state().starts.last().iter().for_each(|start| start.end_by(ABORTED));
            }
        }
        FaultKind::ZoneOutage(lasts) => zone_outage(world, host, lasts).await,
        FaultKind::ConsoleTerminate => world.ec2.terminate(
            world,
            &host.id,
            "Client.UserInitiatedShutdown: User initiated shutdown",
        ),
        FaultKind::ConsoleStop if host.plan.offer.market == crate::market::Market::OnDemand => {
            world.ec2.stop(
                world,
                &host.id,
                "Client.UserInitiatedShutdown: User initiated shutdown",
            );
        }
        _ => {}
    }
}

async fn zone_outage(world: &Arc<World>, host: &Arc<Host>, lasts: Duration) {
    let empty = if host.plan.offer.zone.as_str() == "us-east-1a" {
        WorldFault::NoCapacityA
    } else {
        WorldFault::NoCapacityB
    };
    world.weather.begin(WorldFault::Ec2Down, lasts);
    world.weather.begin(empty, lasts);
    host.kernel.freeze(true);
    world.timeline.sleep(lasts).await;
    host.state().reboot.iter().for_each(|boot| boot.kill());
    host.revive();
}

fn crash_loop(host: &Host, agent: Option<Arc<SimProcess>>, times: u32) {
    host.state().crash_loop = times;
    agent.iter().for_each(|agent| agent.kill());
}

pub(crate) async fn reclaim(
    world: &Arc<World>,
    host: &Arc<Host>,
    notice: Option<Duration>,
    takes: bool,
) {
    if host.plan.offer.market != crate::market::Market::Spot {
        return;
    }
    if let Some(ahead) = notice {
        let at = world.timeline.wall() + ahead;
        host.state().notices.push(Notice {
            kind: NoticeKind::Interruption,
            at,
            detail: "terminate".into(),
        });
        world.happened(&Deed::Noticed { host, ahead });
        world.timeline.sleep(ahead).await;
    }
    if takes {
        // EC2 may be some seconds late.
        world
            .timeline
            .sleep(world.dice.faults.between(Duration::ZERO, Duration::from_secs(40)))
            .await;
        world.ec2.terminate(world, &host.id, "Server.SpotInstanceTermination: no Spot capacity");
    }
}

/// Ends all faults. A kernel that hangs stays so.
pub fn make_well(world: &Arc<World>, laptop: &Arc<Party>) {
    world.told(format_args!("ALL FAULTS ARE OVER"));
    world.weather.clear();
    world.sold.make_room();
    laptop.sleep(false);
    laptop.wall_off.store(0, Ordering::Relaxed);
    if let Some(host) = world.ec2.running(OWNER) {
        host.disk.fill(false);
        host.set_clock(0);
        host.state().crash_loop = 0;
    }
}
