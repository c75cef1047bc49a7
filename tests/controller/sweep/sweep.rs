//! Sweeping with the shipped controller: what is ended, what is left alone, and that it is looked
//! at twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lamplighter::controller::{Judged, SweepFindings, submit};
use lamplighter::instance::{InstanceView, MachineRef};
use lamplighter::job::{AttemptNo, AttemptPhase, EndedBecause, JobId, JobOutcome};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{self, Region};
use lamplighter::policy::lifecycle::orphan::OrphanVerdict;
use lamplighter::ports::{Clock, Cloud, CloudError, CredentialsGap, NoCredentials, Store};

use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use crate::sweep::visit::NoList;
use crate::{World, spec};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

fn orphans(found: &SweepFindings) -> Vec<&Judged> {
    found
        .machines
        .iter()
        .filter(|judged| matches!(judged.verdict, OrphanVerdict::Orphan { .. }))
        .collect()
}

/// A machine that was launched a while ago, and whose controller has gone to sleep.
async fn silent(clock: std::sync::Arc<crate::VirtualClock>) -> World {
    let world = World::new(clock.clone(), &[Life::FallsSilent]).await;
    world.controller().look(world.job()).await.unwrap();
    assert_eq!(world.cloud.running().len(), 1, "launched");
    clock.sleep(Duration::from_secs(60)).await;
    world
}

#[test]
fn machine_with_a_silent_agent_is_ended_after_a_second_look() {
    simulate(async |clock| {
        let world = silent(clock.clone()).await;
        let controller = world.controller();
        let (places, unknown) = controller.everywhere().await;
        assert_eq!(unknown, []);
        let young = controller.look_for_orphans(&places).await;
        assert_eq!((young.machines.len(), orphans(&young).len()), (1, 0), "{young:?}");

        clock.sleep(Duration::from_secs(3600)).await;
        let found = controller.look_for_orphans(&places).await;
        let [orphan] = orphans(&found)[..] else { panic!("{found:?}") };
        assert!(controller.end_orphan(orphan).await.unwrap().is_some());
        assert_eq!(world.cloud.running(), Vec::<String>::new());
        assert!(controller.end_orphan(orphan).await.unwrap().is_none(), "twice is once");
        assert_eq!(world.cloud.complaints(), Vec::<String>::new());
    });
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    simulate(async |clock| {
        let world = silent(clock.clone()).await;
        let controller = world.controller();
        clock.sleep(Duration::from_secs(3600)).await;
        let (places, _) = controller.everywhere().await;
        let before = controller.look_for_orphans(&places).await;
        let [orphan] = orphans(&before)[..] else { panic!("{before:?}") };
        for unreadable in ["status.json", "spec.json", "clock"] {
            world.store.fault(unreadable, Fault::Down, None);
            let found = controller.look_for_orphans(&places).await;
            assert_eq!(orphans(&found).len(), 0, "{unreadable}: {found:?}");
            assert!(
                controller.end_orphan(orphan).await.unwrap().is_none(),
                "{unreadable}: the second look could not read"
            );
            world.store.mend();
        }
        assert_eq!(world.cloud.running().len(), 1);
    });
}

/// Seed 919 of the false world: the agent sends heartbeats, and its switch is broken. The job lacks
/// a controller.
#[test]
fn ended_machine_that_cannot_power_off_is_swept_unless_held() {
    // Heartbeats after the outcome: each quarter of a minute, none, or the one before the power
    // goes off.
    for (phase, beats, ends) in [
        (AttemptPhase::Draining, u32::MAX, true),
        (AttemptPhase::Held, u32::MAX, false),
        (AttemptPhase::Draining, 0, false),
        (AttemptPhase::Ended, 1, true),
    ] {
        simulate(async |clock| {
            let world = World::new(clock.clone(), &[Life::NeverDark]).await;
            let controller = world.controller();
            controller.look(world.job()).await.unwrap();
            clock.sleep(Duration::from_secs(10)).await;
            let mut status = world.dir.status(AttemptNo::FIRST).await.unwrap().unwrap();
            let (places, _) = controller.everywhere().await;
            let mut beats = beats;
            for (minutes, is_due) in [(4, false), (6, ends)] {
                while clock.mono() < Duration::from_secs(minutes * 60) {
                    clock.sleep(Duration::from_secs(15)).await;
                    (status.sequence, status.at, status.phase) =
                        (status.sequence + 1, clock.now(), phase);
                    if beats > 0 {
                        world.dir.put_status(AttemptNo::FIRST, &status, true).await.unwrap();
                        beats -= 1;
                    }
                }
                let found = controller.look_for_orphans(&places).await;
                assert_eq!(
                    orphans(&found).len(),
                    usize::from(is_due),
                    "{phase:?} after {minutes} min: {found:?}"
                );
            }
            let found = controller.look_for_orphans(&places).await;
            for orphan in orphans(&found) {
                assert!(controller.end_orphan(orphan).await.unwrap().is_some());
            }
            assert_eq!(world.cloud.running().is_empty(), ends, "{phase:?}");
            if ends {
                assert_eq!(
                    world.drive().await.outcome,
                    JobOutcome::Succeeded,
                    "it was told, and stands"
                );
            }
        });
    }
}

/// Long before its lease would have lapsed, and with nobody driving.
#[test]
fn what_a_sweep_ends_is_lost_and_not_stopped_by_the_user() {
    simulate(async |clock| {
        let world =
            World::new(clock.clone(), &[Life::NeverSpeaks, Life::Ends { secs: 5, code: 0 }]).await;
        let controller = world.controller();
        controller.look(world.job()).await.unwrap();
        clock.sleep(Duration::from_secs(16 * 60)).await;
        let (places, _) = controller.everywhere().await;
        let found = controller.look_for_orphans(&places).await;
        let [orphan] = orphans(&found)[..] else { panic!("{found:?}") };
        assert!(controller.end_orphan(orphan).await.unwrap().is_some());
        let receipt = world.drive().await;
        let becauses: Vec<_> =
            receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
        assert_eq!(becauses, [EndedBecause::Lost, EndedBecause::Succeeded]);
        let second = world.dir.plan(AttemptNo::new(2)).await.unwrap().unwrap();
        assert_eq!(
            second.reasons[0],
            "the sweep of test ended the machine: no word of its agent for 16 min after its launch"
        );
    });
}

/// With no hand of anybody: the job has ended, and a launch that came through after all runs.
#[test]
fn daemon_sweeps_after_two_looks_and_spares_what_it_drives() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let late = world.cloud.add_late(world.job());
        let other = second(&world).await;
        let daemon = world.controller();
        let driven = async {
            tokio::select! {
                () = daemon.drive_all(&[], |_| {}) => {}
                () = clock.sleep(Duration::from_secs(8 * 60)) => {}
            }
        };
        let looked = async {
            clock.sleep(Duration::from_secs(110)).await;
            assert!(
                world.cloud.running().contains(&late),
                "only one look was taken: {:?}",
                world.cloud.running()
            );
            clock.sleep(Duration::from_secs(60)).await;
            let running = world.cloud.running();
            assert!(
                !running.contains(&late) && running.len() == 1,
                "the other job's machine runs on: {running:?}"
            );
            running
        };
        let ((), running) = tokio::join!(driven, looked);
        assert_eq!((world.cloud.running(), other.receipt().await.unwrap()), (running, None));
        assert_eq!(world.cloud.complaints(), Vec::<String>::new());
    });
}

/// Whoever drives named jobs only does nothing to others.
#[test]
fn drive_of_named_jobs_sweeps_nothing() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let late = world.cloud.add_late(world.job());
        let other = second(&world).await;
        let (driver, named) = (world.controller(), [other.job().clone()]);
        tokio::select! {
            () = driver.drive_all(&named, |_| {}) => {}
            () = clock.sleep(Duration::from_secs(8 * 60)) => {}
        }
        assert!(world.cloud.running().contains(&late));
    });
}

/// A job beside the first, which runs for an hour.
async fn second(world: &World) -> JobDir {
    let mut spec = spec(world.clock.now());
    spec.job = "later-222222".parse().unwrap();
    world.cloud.live_on(Life::Endless);
    submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap()
}

/// Before the false cloud: one region more, of which nobody ever hears.
struct Deaf {
    inner: Arc<dyn Cloud>,
}

const HANGS: &str = "hangs";

before_the_cloud!(Deaf passes on [supply launch terminate interrupt raise_kill_at release] {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(self.inner.regions().await?.into_iter().chain([Region::new(HANGS)]).collect())
    }

    async fn describe(&self, owner: &str, region: &Region) -> Result<Vec<InstanceView>, CloudError> {
        if region.as_str() == HANGS { std::future::pending().await } else { self.inner.describe(owner, region).await }
    }
});

#[test]
fn region_that_hangs_hides_no_orphan_of_another() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let late = world.cloud.add_late(world.job());
        let daemon =
            world.controller_on(world.store.clone(), Arc::new(Deaf { inner: world.port() }));
        tokio::select! {
            () = daemon.drive_all(&[], |_| {}) => {}
            () = clock.sleep(Duration::from_secs(8 * 60)) => {}
        }
        assert!(!world.cloud.running().contains(&late), "{:?}", world.cloud.running());
    });
}

/// Which regions there are is one region's word, and what a machine bills is not its affair.
#[test]
fn daemon_without_a_region_list_sweeps_the_last_known_regions() {
    for hangs in [false, true] {
        simulate(async |clock| {
            let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
            world.drive().await;
            let cloud =
                Arc::new(NoList { inner: world.port(), hangs, down: AtomicBool::new(false) });
            let daemon = world.controller_on(world.store.clone(), cloud.clone());
            let late = async {
                clock.sleep(Duration::from_secs(3 * 60)).await;
                cloud.down.store(true, Ordering::Relaxed);
                let late = world.cloud.add_late(world.job());
                clock.sleep(Duration::from_secs(10 * 60)).await;
                late
            };
            let late = tokio::select! {
                () = daemon.drive_all(&[], |_| {}) => unreachable!("a daemon goes on"),
                late = late => late,
            };
            assert!(!world.cloud.running().contains(&late), "{:?}", world.cloud.running());
        });
    }
}

/// Before the false cloud: for so long nobody can ask it.
struct SignedOut {
    inner: Arc<dyn Cloud>,
    clock: Arc<crate::VirtualClock>,
    until: Duration,
    gap: CredentialsGap,
    asked: AtomicU32,
}

before_the_cloud!(SignedOut passes on [supply launch describe terminate interrupt raise_kill_at release] {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.clock.mono() < self.until {
            let nobody = NoCredentials { gap: self.gap, what: "not signed in".into(), fix: "`aws sso login` signs in again".into() };
            return Err(CloudError::Denied { act: "list the regions".into(), cause: Box::new(nobody) });
        }
        self.inner.regions().await
    }
});

/// Seed 37026194 of 24 h: a kernel hung, nobody swept, and after somebody had signed in again its
/// daemon asked for a quarter of an hour nobody what runs.
#[test]
fn daemon_sweeps_soon_after_sign_in_and_seldom_without_account() {
    let asked =
        [(CredentialsGap::Unusable, true), (CredentialsGap::Nowhere, false)].map(|(gap, swept)| {
            simulate(async |clock| {
                let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
                world.drive().await;
                let late = world.cloud.add_late(world.job());
                let until = clock.mono() + Duration::from_secs(17 * 60);
                let cloud = Arc::new(SignedOut {
                    inner: world.port(),
                    clock: clock.clone(),
                    until,
                    gap,
                    asked: AtomicU32::new(0),
                });
                let daemon = world.controller_on(world.store.clone(), cloud.clone());
                tokio::select! {
                    () = daemon.drive_all(&[], |_| {}) => {}
                    () = clock.sleep(Duration::from_secs((17 + 8) * 60)) => {}
                }
                assert_eq!(!world.cloud.running().contains(&late), swept, "{gap:?}");
                cloud.asked.load(Ordering::Relaxed)
            })
        });
    // After 1, 6, 11, 16 and 21 minutes, or after 1 and 16; it stands for both clouds.
    assert_eq!(asked, [2 * 5, 2 * 2]);
}

/// Another job root of this owner may know it: neither a sweep nor a daemon ends it, and a person's
/// word is compared with what is there at that moment.
#[test]
fn stray_is_ended_by_name_alone_and_only_while_it_is_one() {
    simulate(async |clock| {
        let world = silent(clock.clone()).await;
        let gone: JobId = "gone-222222".parse().unwrap();
        let known = world.cloud.running().remove(0);
        let stray = world.cloud.add_late(&gone);
        let named = |id: &str| MachineRef {
            cloud: market::CloudKind::Local,
            region: Region::new("local"),
            id: id.to_owned(),
        };
        let daemon = world.controller();
        tokio::select! {
            () = daemon.drive_all(&[], |_| {}) => {}
            () = clock.sleep(Duration::from_secs(8 * 60)) => {}
        }
        let controller = world.controller();
        let (places, _) = controller.everywhere().await;
        let found = controller.look_for_orphans(&places).await;
        let judged = found.machines.iter().find(|judged| judged.view.id == stray).unwrap();
        assert!(matches!(judged.verdict, OrphanVerdict::Stray { .. }), "{judged:?}");
        assert!(controller.end_orphan(judged).await.unwrap().is_none(), "no sweep ends it");
        assert!(controller.end_stray(&named(&known)).await.unwrap().is_none(), "its job is here");
        let owner = |owner: &str| {
            world.cloud.state.lock().unwrap().machines.last_mut().unwrap().view.tags.owner =
                owner.to_owned()
        };
        owner("you");
        assert!(
            controller.end_stray(&named(&stray)).await.unwrap().is_none(),
            "it changed hands between the look and the word"
        );
        owner("me");
        world.store.fault("spec.json", Fault::Down, None);
        assert!(
            controller.end_stray(&named(&stray)).await.unwrap().is_none(),
            "its job may be here"
        );
        world.store.mend();
        assert!(world.cloud.running().contains(&stray));
        assert!(controller.end_stray(&named(&stray)).await.unwrap().is_some());
        assert!(
            !world.cloud.running().contains(&stray)
                && controller.end_stray(&named(&stray)).await.unwrap().is_none()
        );
        assert_eq!(
            world.store.keys(&format!("jobs/{gone}/")),
            Vec::<String>::new(),
            "nothing is written of a job that nobody knows"
        );
        assert_eq!(world.cloud.complaints(), Vec::<String>::new());
    });
}

/// A job of the same id in another job root: its machine is none of this one's attempt, which is
/// over.
#[test]
fn machine_of_the_same_job_id_in_another_root_is_no_orphan() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let late = world.cloud.add_late(world.job());
        world.cloud.state.lock().unwrap().machines.last_mut().unwrap().view.client_token =
            Some("of-another-root".into());
        let daemon = world.controller();
        tokio::select! {
            () = daemon.drive_all(&[], |_| {}) => {}
            () = clock.sleep(Duration::from_secs(8 * 60)) => {}
        }
        assert_eq!(world.cloud.running(), [late]);
    });
}
