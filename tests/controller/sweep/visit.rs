//! Visits of the sweeper in the cloud: a program without a memory, a minute between two looks, and
//! a job root that may be down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lamplighter::account::sweeper_visit::{Suspects, Visit};
use lamplighter::instance::InstanceState;
use lamplighter::job::{AttemptNo, CheckpointNo, Reaction, Starts};
use lamplighter::jobdir::layout;
use lamplighter::market::{CloudKind, Market, Region, Span};
use lamplighter::ports::{self, Clock, CloudError, Store};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const NAME: &str = "lamplighter-sweeper-me";

/// As AWS Lambda calls it: four minutes, and five seconds of them for the answer.
pub(crate) const ROOM: Duration = Duration::from_secs(235);

/// The next visit, by the schedule.
const EACH: Duration = Duration::from_secs(300);

/// No room for a second look in the same visit.
const SHORT: Duration = Duration::from_secs(60);

pub(crate) async fn visit(world: &World, room: Duration) -> Visit {
    let began = world.clock.mono();
    let visit = world.controller().visit(NAME, "test", room).await;
    let took = world.clock.mono() - began;
    assert!(
        took <= room.max(Duration::from_secs(120)),
        "a visit of {} s took {} s",
        room.as_secs(),
        took.as_secs()
    );
    visit
}

/// Before the false cloud: nobody says which regions there are, for as long as it is down; each of
/// them is well.
pub(crate) struct NoList {
    pub(crate) inner: Arc<dyn ports::Cloud>,
    pub(crate) hangs: bool,
    pub(crate) down: AtomicBool,
}

before_the_cloud!(NoList passes on [supply launch describe terminate interrupt raise_kill_at release] {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        match (self.down.load(Ordering::Relaxed), self.hangs) {
            (false, _) => self.inner.regions().await,
            (true, true) => std::future::pending().await,
            (true, false) => Err(CloudError::Throttled),
        }
    }
});

/// A machine that was launched an hour ago and whose agent said its last word soon after; nobody
/// drives it.
pub(crate) async fn silent(clock: std::sync::Arc<VirtualClock>, hours: u64) -> World {
    let world = World::with(clock.clone(), &[Life::FallsSilent], |spec| {
        spec.limits.max_runtime = Some(Span::from_secs(hours * 3600));
        spec.limits.lease = Span::from_secs(1800);
    })
    .await;
    world.controller().look(world.job()).await.unwrap();
    clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.cloud.running().len(), 1, "launched");
    world
}

pub(crate) fn ids(visit: &Visit) -> Vec<&str> {
    visit.ended.iter().map(|ended| ended.machine.id.as_str()).collect()
}

#[test]
fn orphan_is_suspected_by_one_visit_and_ended_by_the_next() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        world.cloud.add_foreign();
        let first = visit(&world, SHORT).await;
        assert_eq!(
            (first.suspects.len(), ids(&first), world.cloud.running().len()),
            (1, vec![], 2),
            "{first:?}"
        );
        let kept: Suspects =
            serde_json::from_slice(&world.store.object(&layout::suspects(NAME)).unwrap()).unwrap();
        assert_eq!(kept.suspects, first.suspects);

        clock.sleep(EACH).await;
        let second = visit(&world, SHORT).await;
        assert_eq!(
            (ids(&second), &world.cloud.running()[..]),
            (vec!["i-1"], &["i-foreign".to_owned()][..]),
            "{second:?}"
        );
        assert_eq!(second.suspects[0].since, first.suspects[0].since);
        let ending = world
            .dir
            .ending(AttemptNo::FIRST)
            .await
            .unwrap()
            .expect("why it was ended is there for the receipt");
        assert!(ending.why.starts_with("no heartbeat for "), "{ending:?}");

        clock.sleep(EACH).await;
        let third = visit(&world, SHORT).await;
        assert_eq!(
            (third.machines, third.suspects.len(), third.ended.len()),
            (0, 0, 0),
            "{third:?}"
        );
        assert_eq!(world.cloud.complaints(), Vec::<String>::new());
    });
}

/// So that the bound on what an orphan costs is the lease, five minutes and two.
#[test]
fn second_look_comes_a_minute_later_in_a_visit_with_room() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        let began = clock.mono();
        let only = visit(&world, ROOM).await;
        let took = clock.mono() - began;
        assert_eq!((ids(&only), world.cloud.running().len()), (vec!["i-1"], 0), "{only:?}");
        assert!(took >= Duration::from_secs(60) && took <= Duration::from_secs(120), "{took:?}");
        let told: Visit =
            serde_json::from_slice(&world.store.object(&layout::visit(NAME)).unwrap()).unwrap();
        assert_eq!((told, only.is_sick()), (only.clone(), false));
    });
}

#[test]
fn machine_heard_between_looks_is_no_orphan() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        assert_eq!(visit(&world, SHORT).await.suspects.len(), 1);
        clock.sleep(EACH).await;
        let key = layout::status(world.job(), AttemptNo::FIRST);
        let beat = world.store.object(&key).unwrap();
        world.store.put(&key, beat).await.unwrap();
        let second = visit(&world, ROOM).await;
        assert_eq!(
            (second.suspects.len(), ids(&second), world.cloud.running().len()),
            (0, vec![], 1),
            "{second:?}"
        );
        // And it is not remembered against it.
        clock.sleep(Duration::from_secs(1900)).await;
        assert_eq!(ids(&visit(&world, SHORT).await), Vec::<&str>::new());
    });
}

#[test]
fn suspicion_of_yesterday_is_none() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 48).await;
        let first = visit(&world, SHORT).await;
        clock.sleep(Duration::from_secs(24 * 3600)).await;
        let later = visit(&world, SHORT).await;
        assert_eq!(
            (ids(&later), later.suspects.len()),
            (vec![], 1),
            "the sweeper was switched off for a day: {later:?}"
        );
        assert_ne!(later.suspects[0].since, first.suspects[0].since);
        clock.sleep(EACH).await;
        assert_eq!(ids(&visit(&world, SHORT).await), ["i-1"]);
    });
}

/// Whatever is the matter with it: not there, not allowed, hanging.
#[test]
fn unreadable_job_root_ends_only_machines_past_the_hard_cap() {
    for fault in [Fault::Down, Fault::Denied, Fault::Hang] {
        simulate(async |clock| {
            let world = silent(clock.clone(), 2).await;
            world.cloud.add_foreign();
            world.store.fault("", fault, None);
            for _ in 0..3 {
                let blind = visit(&world, ROOM).await;
                assert_eq!(
                    (ids(&blind), blind.machines, world.cloud.running().len()),
                    (vec![], 1, 2),
                    "{fault:?}: {blind:?}"
                );
                assert!(
                    blind.unknown.iter().any(|unknown| unknown.why.contains("no lease was judged")),
                    "{blind:?}"
                );
                clock.sleep(EACH).await;
            }
            clock.sleep(Duration::from_secs(2 * 3600)).await;
            let past = visit(&world, ROOM).await;
            assert_eq!(
                (ids(&past), &world.cloud.running()[..]),
                (vec!["i-1"], &["i-foreign".to_owned()][..]),
                "{fault:?}: {past:?}"
            );
            assert!(past.ended[0].why.starts_with("its hard cap was "), "{past:?}");
            assert_eq!(world.cloud.complaints(), Vec::<String>::new());
        });
    }
}

/// The list of regions is one region's word. A visit after which nobody says it knows what the
/// visit before it knew, and so does the next.
#[test]
fn visit_without_region_list_holds_hard_cap_in_the_last_regions() {
    for hangs in [false, true] {
        simulate(async |clock| {
            let world = silent(clock.clone(), 3).await;
            // No lease is judged: it is the cap that ends it.
            world.store.fault("clock", Fault::Down, None);
            let cloud =
                Arc::new(NoList { inner: world.port(), hangs, down: AtomicBool::new(true) });
            let visit = async |down: bool| {
                cloud.down.store(down, Ordering::Relaxed);
                let visit = world
                    .controller_on(world.store.clone(), cloud.clone())
                    .visit(NAME, "test", ROOM)
                    .await;
                clock.sleep(EACH).await;
                visit
            };
            let blind = visit(true).await;
            assert!(
                blind.is_sick()
                    && blind.unknown[0]
                        .why
                        .ends_with("no visit before has said where to look instead"),
                "{blind:?}"
            );
            let seeing = visit(false).await;
            assert_eq!(
                (seeing.regions, seeing.machines, seeing.is_blind()),
                (2, 1, true),
                "one of each cloud: {seeing:?}"
            );
            let mut older = serde_json::to_value(&seeing).unwrap();
            older.as_object_mut().unwrap().remove("places");
            assert_eq!(
                serde_json::from_value::<Visit>(older).unwrap().places,
                [],
                "a record of before is read"
            );
            for _ in 0..2 {
                let half = visit(true).await;
                assert_eq!((half.regions, half.machines, ids(&half)), (2, 1, vec![]), "{half:?}");
                assert!(
                    half.unknown[0].why.ends_with("looked in the 2 regions of the visit before"),
                    "it says so: {half:?}"
                );
            }
            clock.sleep(Duration::from_secs(2 * 3600)).await;
            let past = visit(true).await;
            assert_eq!((ids(&past), world.cloud.running().len()), (vec!["i-1"], 0), "{past:?}");
            assert!(past.ended[0].why.starts_with("its hard cap was "), "{past:?}");
        });
    }
}

/// One record that cannot be read is enough to leave its machine alone.
#[test]
fn a_heartbeat_that_cannot_be_read_ends_nobody() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        assert_eq!(visit(&world, SHORT).await.suspects.len(), 1);
        clock.sleep(EACH).await;
        for unreadable in ["status.json", "spec.json", "clock"] {
            world.store.fault(unreadable, Fault::Down, None);
            let blind = visit(&world, ROOM).await;
            assert_eq!((ids(&blind), blind.suspects.len()), (vec![], 0), "{unreadable}: {blind:?}");
            assert_eq!(blind.unknown.len(), 1, "and it says so: {blind:?}");
            world.store.mend();
        }
        assert_eq!(world.cloud.running().len(), 1);
    });
}

/// One object that never answers; and then all of them do not, or may not be read.
#[test]
fn hung_record_hides_no_other_and_visit_judging_nobody_is_sick() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        // Another machine of ours, whose job is somewhere else, and whose records here hang.
        world.cloud.add_late(&"other-222222".parse().unwrap());
        world.store.fault("other-222222", Fault::Hang, None);
        let seeing = visit(&world, SHORT).await;
        assert_eq!(
            (seeing.machines, seeing.judged, seeing.is_sick()),
            (2, Some(1), false),
            "{seeing:?}"
        );
        assert_eq!((seeing.suspects.len(), seeing.unknown.len()), (1, 1), "{seeing:?}");
        assert_eq!(seeing.judged_at, Some(seeing.at));
        world.store.fault("spec.json", Fault::Denied, None);
        for _ in 0..2 {
            clock.sleep(EACH).await;
            let blind = visit(&world, SHORT).await;
            assert_eq!(
                (blind.machines, blind.judged, blind.is_sick()),
                (2, Some(0), true),
                "{blind:?}"
            );
            assert_eq!(blind.judged_at, Some(seeing.at), "since then");
        }
        // One read of the visit before fails: from then on it is counted anew, and not never.
        world.store.fault("visit.json", Fault::Down, 1);
        clock.sleep(EACH).await;
        let anew = visit(&world, SHORT).await;
        assert_eq!(anew.judged_at, Some(anew.at));
        clock.sleep(EACH).await;
        assert_eq!(visit(&world, SHORT).await.judged_at, Some(anew.at));
        let mut older = serde_json::to_value(&seeing).unwrap();
        older.as_object_mut().unwrap().retain(|field, _| !field.starts_with("judged"));
        assert!(
            !serde_json::from_value::<Visit>(older).unwrap().is_sick(),
            "a record of before says nothing of it"
        );
    });
}

/// A refusal is told, and the next visit tries again at once.
#[test]
fn end_that_is_refused_is_tried_again_by_the_next_visit() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        world.cloud.deny(1, 0);
        let first = visit(&world, ROOM).await;
        assert!(first.is_sick() && first.ended.is_empty(), "{first:?}");
        assert!(first.trouble[0].why.starts_with("may still run and bill: "), "{first:?}");
        clock.sleep(EACH).await;
        let second = visit(&world, SHORT).await;
        assert_eq!((ids(&second), second.is_sick()), (vec!["i-1"], false), "{second:?}");
    });
}

/// Blind is not well: whoever watches the function hears of it.
#[test]
fn visit_that_saw_no_region_is_sick() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        world.cloud.fail_describes(100);
        let blind = visit(&world, ROOM).await;
        assert!(
            blind.is_sick() && blind.ended.is_empty() && !blind.unknown.is_empty(),
            "{blind:?}"
        );
    });
}

/// A machine that was kept, and that somebody has started at the cloud itself: it is stopped again,
/// also past the cap that its tags still say, and its disk is not lost with it.
#[test]
fn kept_machine_that_runs_again_is_stopped_and_not_terminated() {
    for (past_its_cap, market, unreadable, ends) in [
        (false, Market::OnDemand, None, InstanceState::Stopped),
        (true, Market::OnDemand, None, InstanceState::Stopped),
        (false, Market::Spot, None, InstanceState::Terminated),
        // Nobody can read that it was kept: it was started after its cap, and so not by us.
        (true, Market::OnDemand, Some(Fault::Down), InstanceState::Stopped),
        (true, Market::OnDemand, Some(Fault::Hang), InstanceState::Stopped),
        (true, Market::Spot, Some(Fault::Down), InstanceState::Terminated),
    ] {
        simulate(async |clock| {
            let world = World::with(clock.clone(), &[Life::Stops { secs: 30, code: 3 }], |spec| {
                spec.limits.max_runtime = Some(Span::from_secs(3600));
                spec.on.failure = Reaction::Stop;
            })
            .await;
            world.drive().await;
            let settled = world.dir.settled(AttemptNo::FIRST).await.unwrap().unwrap();
            assert!(settled.kept, "{settled:?}");
            if past_its_cap {
                clock.sleep(Duration::from_secs(2 * 3600)).await;
            }
            {
                let mut state = world.cloud.state.lock().unwrap();
                let view = &mut state.machines[0].view;
                (view.cloud, view.market, view.state, view.ended) =
                    (CloudKind::Aws, market, InstanceState::Running, None);
                view.launched = clock.now();
            }
            if past_its_cap {
                clock.sleep(Duration::from_secs(180)).await;
            }
            if let Some(fault) = unreadable {
                world.store.fault("", fault, None);
            }
            let visit = visit(&world, ROOM).await;
            assert_eq!(
                (ids(&visit), &world.cloud.states()[0].1),
                (vec!["i-1"], &ends),
                "{visit:?}"
            );
        });
    }
}

/// The work is done, its disk is to stay, its power-off does not work, and every workstation
/// sleeps.
#[test]
fn machine_that_does_not_power_off_is_stopped_if_its_disk_stays() {
    for (success, market, ends) in [
        (Reaction::Stop, Market::OnDemand, InstanceState::Stopped),
        (Reaction::Terminate, Market::OnDemand, InstanceState::Terminated),
        (Reaction::Stop, Market::Spot, InstanceState::Terminated),
    ] {
        simulate(async |clock| {
            let world = World::with(clock.clone(), &[Life::NeverDark], |spec| {
                spec.limits.max_runtime = Some(Span::from_secs(24 * 3600));
                spec.on.success = success;
            })
            .await;
            world.controller().look(world.job()).await.unwrap();
            clock.sleep(Duration::from_secs(3600)).await;
            {
                let mut state = world.cloud.state.lock().unwrap();
                let view = &mut state.machines[0].view;
                (view.cloud, view.market) = (CloudKind::Aws, market);
            }
            let visit = visit(&world, ROOM).await;
            assert_eq!(
                (ids(&visit), &world.cloud.states()[0].1),
                (vec!["i-1"], &ends),
                "{success:?}, {market:?}: {visit:?}"
            );
            assert!(
                world.dir.ending(AttemptNo::FIRST).await.unwrap().is_some(),
                "why it was ended is there for the receipt"
            );
        });
    }
}

/// `lamp start` has started a kept machine, its agent never says a word, and every workstation
/// sleeps: all that its job has may be on its disk.
#[test]
fn kept_machine_that_never_speaks_is_stopped_not_terminated() {
    for (checkpoint, spoken, market, ends) in [
        (false, false, Market::OnDemand, InstanceState::Stopped),
        (true, false, Market::OnDemand, InstanceState::Terminated),
        (false, true, Market::OnDemand, InstanceState::Terminated),
        (false, false, Market::Spot, InstanceState::Terminated),
    ] {
        simulate(async |clock| {
            let life = if spoken { Life::FallsSilent } else { Life::NeverSpeaks };
            let world = World::with(clock.clone(), &[life], |spec| {
                spec.limits.max_runtime = Some(Span::from_secs(24 * 3600))
            })
            .await;
            world.controller().look(world.job()).await.unwrap();
            let mut plan = world.dir.plan(AttemptNo::FIRST).await.unwrap().unwrap();
            plan.starts = Some(Starts {
                job: "before-333333".parse().unwrap(),
                instance: "i-1".into(),
                launched: plan.created,
                only_setup: false,
            });
            plan.resume_from = checkpoint.then(|| CheckpointNo::new(1));
            let key = layout::plan(world.job(), AttemptNo::FIRST);
            world.store.put(&key, serde_json::to_vec(&plan).unwrap().into()).await.unwrap();
            clock.sleep(Duration::from_secs(3600)).await;
            {
                let mut state = world.cloud.state.lock().unwrap();
                let view = &mut state.machines[0].view;
                (view.cloud, view.market) = (CloudKind::Aws, market);
            }
            let visit = visit(&world, ROOM).await;
            assert_eq!(
                (ids(&visit), &world.cloud.states()[0].1),
                (vec!["i-1"], &ends),
                "{checkpoint} {spoken} {market:?}: {visit:?}"
            );
        });
    }
}

/// A suspicion that the second look of a visit disproves is not there for the next one, which would
/// take it for its own first look.
#[test]
fn whoever_is_cleared_by_a_second_look_is_suspected_anew() {
    simulate(async |clock| {
        let world = silent(clock.clone(), 24).await;
        let speaks = async {
            clock.sleep(Duration::from_secs(30)).await;
            let key = layout::status(world.job(), AttemptNo::FIRST);
            world.store.put(&key, world.store.object(&key).unwrap()).await.unwrap();
        };
        let (first, ()) = tokio::join!(visit(&world, ROOM), speaks);
        assert_eq!(
            (ids(&first), first.suspects.len(), world.cloud.running().len()),
            (vec![], 0, 1),
            "{first:?}"
        );
        let kept: Suspects =
            serde_json::from_slice(&world.store.object(&layout::suspects(NAME)).unwrap()).unwrap();
        assert_eq!(kept.suspects, []);
    });
}
