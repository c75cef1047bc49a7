//! Many jobs under one daemon: what it asks grows with pages of names, and nothing is missed or
//! done too early for it. `cargo test --test controller scale -- --nocapture` shows the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lamplighter::controller::Controller;
use lamplighter::instance::InstanceState;
use lamplighter::job::{EndedBecause, JobId, Settled, Wish};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{self, Zone};
use lamplighter::ports::{Clock, Store};

use lamp_test_support::fleet::{Fleet, FleetCloud, OWNER, RESIDUE_CALLS, job, sums};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// The daemon's pace where the job root is a bucket.
const TICK: Duration = Duration::from_secs(15);

/// Jobs of which all is read at each tick whatever the news say, and calls for each.
const READ_UNASKED: usize = 16 * 8;

struct World {
    clock: Arc<VirtualClock>,
    fleet: Arc<Fleet>,
    running: usize,
    daemon: tokio::task::JoinHandle<()>,
}

impl World {
    fn start(clock: Arc<VirtualClock>, running: usize, ended: usize) -> World {
        let fleet = Fleet::new(clock.clone(), running, ended);
        World::with(clock, fleet, running)
    }

    fn with(clock: Arc<VirtualClock>, fleet: Arc<Fleet>, running: usize) -> World {
        let cloud = Arc::new(FleetCloud(fleet.clone()));
        let clouds = [(market::CloudKind::Aws, cloud as Arc<dyn lamplighter::ports::Cloud>)].into();
        let controller = Controller::new(
            fleet.clone(),
            clouds,
            clock.clone(),
            OWNER.into(),
            "test".into(),
            Zone::new("ws-test"),
        );
        let daemon = tokio::spawn(async move { controller.drive_all(&[], |_| {}).await });
        World { clock, fleet, daemon, running }
    }

    /// So many ticks, with all agents alive but this one's.
    async fn ticks(&self, ticks: u32, silent: Option<&JobId>) {
        for _ in 0..ticks {
            self.clock.sleep(TICK).await;
            match silent {
                None => self.fleet.beat(),
                Some(silent) => (0..self.running)
                    .map(job)
                    .filter(|job| job != silent)
                    .for_each(|job| self.fleet.beat_of(&job)),
            }
        }
    }

    fn dir(&self, job: &JobId) -> JobDir {
        JobDir::new(self.fleet.clone() as Arc<dyn Store>, job.clone())
    }

    async fn settled(&self, job: &JobId) -> Option<Settled> {
        self.dir(job).settled(lamplighter::job::AttemptNo::FIRST).await.unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.daemon.abort();
    }
}

#[test]
fn calls_of_a_tick_grow_with_pages_and_not_with_machines() {
    // Of many machines, so many ticks as have a sweep and the schedules in them. Ten thousand cost
    // eight minutes of a processor and show nothing more.
    for (running, ticks) in [(10, 20), (100, 20), (2_100, 4)] {
        let (store, cloud) = simulate(async |clock| {
            let world = World::start(clock, running, 0);
            world.ticks(4, None).await;
            world.fleet.take();
            world.ticks(ticks, None).await;
            let calls = world.fleet.take();
            println!(
                "{running} machines, {ticks} ticks in which every heartbeat changed: {calls:?}"
            );
            sums(&calls)
        });
        let looks = ticks as usize + 1;
        // Two listings of the names of all jobs are in it, the schedules once a minute, and at most
        // two sweeps: the regions and their machines once more, and the time by the store's clock,
        // but nothing of any job that is driven.
        let pages = (3 * running).div_ceil(1_000);
        let names = 2 * running.div_ceil(1_000);
        let read = READ_UNASKED.min(8 * running);
        assert!(
            store <= looks * (pages + read) + names + 6 + 4,
            "{store} calls of the store for {running} machines"
        );
        assert!(
            cloud <= (looks + 2) * running.div_ceil(1_000) + 2,
            "{cloud} calls of the cloud for {running} machines"
        );
    }
}

/// Ranks of a gang are jobs: a daemon asks no more for them than for jobs alone.
/// `LAMP_TEST_GANGS=1000` plays a thousand gangs, which takes minutes of a processor.
#[test]
fn gangs_of_eight_cost_the_calls_of_as_many_jobs() {
    let gangs = std::env::var("LAMP_TEST_GANGS").ok().and_then(|gangs| gangs.parse().ok());
    let running = 8 * gangs.unwrap_or(40_usize);
    let calls_of = |fleet: &dyn Fn(Arc<VirtualClock>) -> Arc<Fleet>| {
        simulate(async |clock| {
            let world = World::with(clock.clone(), fleet(clock), running);
            world.ticks(4, None).await;
            world.fleet.take();
            world.ticks(4, None).await;
            let calls = world.fleet.take();
            println!("{running} machines, 4 ticks: {calls:?}");
            sums(&calls)
        })
    };
    let alone = calls_of(&|clock| Fleet::new(clock, running, 0));
    let in_gangs = calls_of(&|clock| Fleet::of_gangs(clock, running, 8));
    assert_eq!(in_gangs, alone);
    // A page has the names of a thousand jobs.
    let read = READ_UNASKED.min(8 * running);
    let most = 5 * ((3 * running).div_ceil(1_000) + read) + 2 * running.div_ceil(1_000) + 10;
    assert!(in_gangs.0 <= most, "{} calls of the store, {most} at most", in_gangs.0);
}

/// What is asked for at the end of a job is asked for of that job: no page more for what runs
/// beside it.
#[test]
fn end_of_a_hundred_jobs_costs_the_same_beside_a_thousand() {
    let ends = |running| {
        simulate(async |clock| {
            let world = World::start(clock, running, 0);
            world.ticks(4, None).await;
            world.fleet.take();
            (0..100).map(job).for_each(|job| world.fleet.end(&job));
            world.ticks(2, None).await;
            let calls = world.fleet.take();
            for number in 0..100 {
                assert!(world.dir(&job(number)).receipt().await.unwrap().is_some(), "{calls:?}");
            }
            println!("100 of {running} machines end, to the receipts: {calls:?}");
            ["cloud residue", "cloud release"]
                .map(|act| calls.get(act).copied().unwrap_or_default())
        })
    };
    let (alone, among_many) = (ends(100), ends(1_100));
    assert_eq!((alone, among_many), ([100 * (RESIDUE_CALLS + 1), 100], alone));
}

/// A daemon that starts knows nothing of 640 jobs, and each answer takes 30 ms: one job after the
/// other, two minutes.
#[test]
fn daemon_that_starts_reads_many_jobs_at_once() {
    let took = simulate(async |clock| {
        let fleet = Fleet::new(clock.clone(), 640, 0);
        fleet.is_away(Duration::from_millis(30));
        let clouds = [(
            market::CloudKind::Aws,
            Arc::new(FleetCloud(fleet.clone())) as Arc<dyn lamplighter::ports::Cloud>,
        )]
        .into();
        let controller = Controller::new(
            fleet,
            clouds,
            clock.clone(),
            OWNER.into(),
            "test".into(),
            Zone::new("ws-test"),
        );
        let (under_way, told) = (Arc::new(AtomicUsize::new(0)), clock.clone());
        let seen = under_way.clone();
        let daemon = tokio::spawn(async move {
            controller.drive_all(&[], |jobs| seen.store(jobs, Ordering::Relaxed)).await
        });
        let began = told.mono();
        while under_way.load(Ordering::Relaxed) < 640
            && told.mono() < began + Duration::from_secs(300)
        {
            told.sleep(Duration::from_millis(100)).await;
        }
        daemon.abort();
        told.mono() - began
    });
    println!("the first look at 640 jobs: {took:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn jobs_that_have_ended_cost_nothing_at_a_tick() {
    let calls = |ended| {
        simulate(async |clock| {
            let world = World::start(clock, 10, ended);
            world.ticks(4, None).await;
            world.fleet.take();
            world.ticks(40, None).await;
            sums(&world.fleet.take()).0
        })
    };
    let (few, many) = (calls(0), calls(2_500));
    // Ten minutes: the names of all jobs twice or three times, three pages more each.
    assert!(many <= few + 3 * 3, "{few} calls beside none, {many} beside 2500");
}

#[test]
fn what_happens_to_one_of_many_is_seen_within_two_ticks() {
    simulate(async |clock| {
        let world = World::start(clock, 150, 0);
        world.ticks(4, None).await;
        let (ended, taken, unwanted) = (job(7), job(77), job(99));
        world.fleet.end(&ended);
        world.fleet.take_away(&taken, "Server.SpotInstanceTermination: no capacity");
        world
            .dir(&unwanted)
            .add_request(Wish::Cancel, "somebody", world.clock.now())
            .await
            .unwrap();
        world.ticks(2, None).await;
        assert!(world.dir(&ended).receipt().await.unwrap().is_some(), "its receipt is written");
        assert_eq!(world.settled(&taken).await.unwrap().because, EndedBecause::Interrupted);
        // Its agent had three minutes to obey.
        assert_eq!(world.fleet.machine(&unwanted), InstanceState::Running);
        world.ticks(13, None).await;
        assert_eq!(world.fleet.machine(&unwanted), InstanceState::Terminated);
        assert!(
            !world.fleet.has(&format!("news/{ended}/made")),
            "what is over is not told of any more"
        );
    });
}

#[test]
fn silent_one_of_many_loses_its_lease_and_the_others_do_not() {
    simulate(async |clock| {
        // So many that each is read in its turn every ten minutes; its news have told of the last
        // beat before that.
        let world = World::start(clock, 600, 0);
        let silent = job(42);
        world.ticks(4 * 10, None).await;
        world.ticks(4 * 29, Some(&silent)).await;
        assert_eq!(world.fleet.machine(&silent), InstanceState::Running);
        world.ticks(4 * 2, Some(&silent)).await;
        assert_eq!(world.fleet.machine(&silent), InstanceState::Terminated);
        assert!(
            (0..600)
                .map(job)
                .filter(|job| *job != silent)
                .all(|job| world.fleet.machine(&job) == InstanceState::Running)
        );
    });
}

#[test]
fn listing_that_is_late_ends_no_machine_and_hides_no_outcome() {
    simulate(async |clock| {
        let world = World::start(clock, 150, 0);
        world.ticks(4, None).await;
        world.fleet.freeze_listings(true);
        // The agents live, and the listing has shown nothing of it for longer than a lease.
        world.ticks(4 * 40, None).await;
        assert!((0..150).map(job).all(|job| world.fleet.machine(&job) == InstanceState::Running));
        let ended = job(7);
        world.fleet.end(&ended);
        world.ticks(2, None).await;
        let settled =
            world.settled(&ended).await.expect("the cloud shows that its machine is gone");
        assert!(settled.outcome.is_some() && settled.because != EndedBecause::Lost, "{settled:?}");
    });
}

#[test]
fn agents_that_tell_no_news_are_driven_all_the_same() {
    simulate(async |clock| {
        let world = World::start(clock, 150, 0);
        for number in 0..150 {
            for news in ["made", "0001-phase", "0001-beat"] {
                Store::delete(world.fleet.as_ref(), &format!("news/{}/{news}", job(number)))
                    .await
                    .unwrap();
            }
        }
        world.ticks(4, None).await;
        let ended = job(7);
        world.fleet.end(&ended);
        world.ticks(2, None).await;
        assert!(world.dir(&ended).receipt().await.unwrap().is_some());
    });
}
