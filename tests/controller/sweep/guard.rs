//! What a launch needs, and what watches a machine from outside: asked of a cloud that is not
//! always willing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::instance::MachineRef;
use lamplighter::job::{
    AlarmRule, AttemptNo, EndedBecause, JobOutcome, LaunchRequest, MachineSpec, Plan, Refusal, Spec,
};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{Offer, Supply, UsdPerHour};
use lamplighter::ports::{Clock, Cloud, CloudError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_machine::UNMEASURED_AFTER;
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// Before the false cloud: sells one more type that cannot be launched, and arms an alarm after
/// some refusals.
struct Watchman {
    inner: Arc<dyn Cloud>,
    clock: Arc<VirtualClock>,
    refusals: Mutex<u32>,
    /// When it was asked to guard, and of which machine.
    asked: Mutex<Vec<(Duration, String)>>,
    /// When it was asked to take its alarm off.
    taken_off: Mutex<Vec<Duration>>,
    /// So many answers to that are lost, after it was done.
    lost: Mutex<u32>,
    /// Where the job stands; and what a person was told there, each time that it was asked to
    /// guard.
    dir: JobDir,
    told: Mutex<Vec<Option<String>>>,
    /// What it says of its alarms once their machines have ended.
    rings: Option<bool>,
    /// What the job file asks for.
    rule: AlarmRule,
}

before_the_cloud!(Watchman passes on [regions launch describe terminate interrupt raise_kill_at release] {
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let mut supply = self.inner.supply(machine).await?;
        let stranded = Offer { instance_type: "stranded".into(), price: UsdPerHour::ZERO, ..supply.offers[0].clone() };
        supply.offers.push(stranded);
        Ok(supply)
    }

    async fn prepare(&self, _spec: &Spec, offer: &Offer) -> Result<Option<LaunchRequest>, CloudError> {
        if offer.instance_type == "stranded" {
            return Err(CloudError::NoCapacity { what: "no subnet there".into(), refusal: Refusal::NotSold });
        }
        Ok(Some(LaunchRequest {
            image: "ami-1".into(),
            image_name: None,
            root_device: "/dev/sda1".into(),
            disk_gib: 1,
            profile: None,
            security_groups: vec![],
            subnet: None,
            key_name: None,
            shutdown: Default::default(),
            alarm: Some(self.rule),
            user_data: String::new(),
        }))
    }

    async fn guard(&self, _plan: &Plan, machine: &MachineRef) -> Result<(), CloudError> {
        self.asked.lock().unwrap().push((self.clock.mono(), machine.id.clone()));
        let told = self.dir.attention().await.unwrap().and_then(|attention| attention.text);
        self.told.lock().unwrap().push(told);
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals == 0 {
            return Ok(());
        }
        *refusals -= 1;
        Err(CloudError::Denied { act: "arm the alarm".into(), cause: "injected".into() })
    }

    async fn unguard(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        self.taken_off.lock().unwrap().push(self.clock.mono());
        let mut lost = self.lost.lock().unwrap();
        if *lost == 0 {
            return Ok(());
        }
        *lost -= 1;
        Err(CloudError::Ambiguous { act: "take the alarm off".into(), cause: "injected".into() })
    }

    async fn alarmed(&self, machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
        let views = self.inner.describe("me", &machine.region).await?;
        let ended = views.into_iter().find(|view| view.id == machine.id).and_then(|view| view.ended);
        match self.rings {
            Some(true) => Ok(ended),
            Some(false) => Ok(None),
            None => Err(CloudError::Denied { act: "look at the alarm".into(), cause: "injected".into() }),
        }
    }
});

fn watchman(
    world: &World,
    clock: Arc<VirtualClock>,
    refusals: u32,
    (rings, rule): (Option<bool>, AlarmRule),
) -> Arc<Watchman> {
    let (refusals, dir) = (Mutex::new(refusals), world.dir.clone());
    Arc::new(Watchman {
        inner: world.port(),
        clock,
        refusals,
        asked: Mutex::default(),
        taken_off: Mutex::default(),
        lost: Mutex::default(),
        dir,
        told: Mutex::default(),
        rings,
        rule,
    })
}

async fn watched(
    clock: Arc<VirtualClock>,
    lives: &[Life],
    refusals: u32,
) -> (World, Arc<Watchman>) {
    let world = World::new(clock.clone(), lives).await;
    let watchman = watchman(&world, clock, refusals, (Some(false), AlarmRule::default()));
    (world, watchman)
}

#[test]
fn alarm_that_cannot_be_armed_is_retried_and_stops_nothing() {
    for refusals in [0, 3, u32::MAX] {
        simulate(async |clock: Arc<VirtualClock>| {
            let (world, watchman) =
                watched(clock, &[Life::Ends { secs: 1800, code: 0 }], refusals).await;
            let receipt = world
                .controller_on(world.store.clone(), watchman.clone())
                .drive(world.job())
                .await
                .unwrap();
            assert_eq!(receipt.outcome, JobOutcome::Succeeded, "{receipt:?}");
            world.check(&receipt).await;
            let asked = watchman.asked.lock().unwrap().clone();
            let pauses: Vec<u64> =
                asked.windows(2).map(|two| (two[1].0 - two[0].0).as_secs()).collect();
            match refusals {
                0 | 3 => assert_eq!(asked.len() as u32, refusals + 1, "{pauses:?}"),
                // Half an hour of refusals: ten seconds, twenty, thirty, ...
                _ => assert!((16..=20).contains(&asked.len()), "{pauses:?}"),
            }
            assert!(pauses.iter().all(|pause| *pause >= 10) && pauses.is_sorted(), "{pauses:?}");
            // Not in the log alone: whoever looks at the job sees it, until it is armed or its
            // machine is gone.
            let told = watchman.told.lock().unwrap().clone();
            let is_told = |text: &Option<String>| {
                text.as_ref().is_some_and(|text| {
                    text.contains("no alarm ends its machine") && text.contains("injected")
                })
            };
            assert!(told[0].is_none() && told[1..].iter().all(is_told), "{told:?}");
            let at_the_end =
                world.dir.attention().await.unwrap().and_then(|attention| attention.text);
            // Where it never is, the receipt ends the matter: nobody is told of a job that has one.
            assert!(at_the_end.is_none() || refusals == u32::MAX, "{refusals}: {at_the_end:?}");
        });
    }
}

#[test]
fn each_machine_is_guarded_and_an_unfit_offer_costs_no_attempt() {
    simulate(async |clock: Arc<VirtualClock>| {
        let lives = [Life::Taken { secs: 300 }, Life::Ends { secs: 300, code: 0 }];
        let (world, watchman) = watched(clock, &lives, 0).await;
        let receipt = world
            .controller_on(world.store.clone(), watchman.clone())
            .drive(world.job())
            .await
            .unwrap();
        assert_eq!((receipt.outcome, receipt.attempts.len()), (JobOutcome::Succeeded, 2));
        let asked = watchman.asked.lock().unwrap().clone();
        assert!(asked.len() == 2 && asked[0].1 != asked[1].1, "{asked:?}");
        let plan = world.dir.plan(AttemptNo::FIRST).await.unwrap().unwrap();
        assert_eq!(plan.offer.instance_type, "t");
        let stranded: Vec<&str> = plan
            .rejected
            .iter()
            .filter(|no| no.offer.instance_type == "stranded")
            .map(|no| no.because.as_str())
            .collect();
        assert_eq!(stranded, ["no subnet there"]);
    });
}

/// To the cloud both are a user's stop. Who asked the alarm and got no answer takes it for a
/// person's: the agent was heard.
#[test]
fn end_by_alarm_resumes_the_job_and_end_by_a_person_does_not() {
    for (rings, expected) in [
        (Some(true), JobOutcome::Succeeded),
        (Some(false), JobOutcome::Stopped),
        (None, JobOutcome::Stopped),
    ] {
        simulate(async |clock: Arc<VirtualClock>| {
            let lives = [Life::EndedByHand { secs: 60 }, Life::Ends { secs: 300, code: 0 }];
            let world = World::new(clock.clone(), &lives).await;
            let watchman = watchman(&world, clock, 0, (rings, AlarmRule::default()));
            let receipt = world
                .controller_on(world.store.clone(), watchman)
                .drive(world.job())
                .await
                .unwrap();
            assert_eq!(receipt.outcome, expected, "{rings:?}: {receipt:?}");
        });
    }
}

/// The classic alarm is the job file's own rule for an idle machine. It ends the job as idle:
/// another machine would idle like this one, and be ended like it, for ever.
#[test]
fn what_the_cpu_alarm_ends_is_idle_and_is_not_launched_again() {
    simulate(async |clock: Arc<VirtualClock>| {
        let lives = [Life::EndedByHand { secs: 60 }];
        let world = World::new(clock.clone(), &lives).await;
        let watchman = watchman(&world, clock, 0, (Some(true), "cpu<=0.3 for 5m".parse().unwrap()));
        let receipt =
            world.controller_on(world.store.clone(), watchman).drive(world.job()).await.unwrap();
        world.check(&receipt).await;
        assert_eq!(
            (receipt.because, receipt.attempts.len()),
            (Some(EndedBecause::Idle), 1),
            "{receipt:?}"
        );
        assert!(receipt.reason.contains("CPU alarm rang"), "{}", receipt.reason);
        assert_eq!(world.cloud.launches(), 1);
    });
}

/// What an alarm would take for a dead machine: its metrics alone are lost, and whoever drives the
/// job is told so by its heartbeat.
#[test]
fn alarm_is_off_while_only_the_metrics_of_a_machine_are_lost() {
    for (rule, taken) in [("heartbeat", 1), ("heartbeat for 5m", 1), ("cpu<=0.3 for 5m", 0)] {
        simulate(async |clock: Arc<VirtualClock>| {
            let world =
                World::new(clock.clone(), &[Life::Unmeasured { secs: 3000, falls_silent: false }])
                    .await;
            let watchman = watchman(&world, clock, 0, (Some(false), rule.parse().unwrap()));
            let receipt = world
                .controller_on(world.store.clone(), watchman.clone())
                .drive(world.job())
                .await
                .unwrap();
            assert_eq!(
                (receipt.outcome, receipt.attempts.len()),
                (JobOutcome::Succeeded, 1),
                "{receipt:?}"
            );
            let armed: Vec<u64> =
                watchman.asked.lock().unwrap().iter().map(|(at, _)| at.as_secs()).collect();
            let taken_off: Vec<u64> =
                watchman.taken_off.lock().unwrap().iter().map(|at| at.as_secs()).collect();
            assert_eq!(
                (armed.len(), taken_off.len()),
                (1 + taken, taken),
                "{rule}: armed at {armed:?}, taken off at {taken_off:?}"
            );
            if taken > 0 {
                // The shortest alarm rings after five minutes, of which two are gone by then.
                let lost = armed[0] + UNMEASURED_AFTER;
                assert!(
                    (lost - 30..lost + 60).contains(&taken_off[0]),
                    "armed at {armed:?}, taken off at {taken_off:?}"
                );
                assert!(
                    (taken_off[0] + 2970..taken_off[0] + 3060).contains(&armed[1]),
                    "armed at {armed:?}, taken off at {taken_off:?}"
                );
            }
        });
    }
}

/// The alarm went, and nobody was told: it is armed again all the same, and not believed to be
/// there.
#[test]
fn alarm_whose_taking_off_was_not_answered_is_armed_again() {
    simulate(async |clock: Arc<VirtualClock>| {
        // The measurements are back within the pause that follows the lost answer.
        let world =
            World::new(clock.clone(), &[Life::Unmeasured { secs: 45, falls_silent: false }]).await;
        let watchman = watchman(&world, clock, 0, (Some(false), AlarmRule::default()));
        *watchman.lost.lock().unwrap() = u32::MAX;
        let receipt = world
            .controller_on(world.store.clone(), watchman.clone())
            .drive(world.job())
            .await
            .unwrap();
        assert_eq!(receipt.outcome, JobOutcome::Succeeded, "{receipt:?}");
        let (asked, taken_off) =
            (watchman.asked.lock().unwrap().clone(), watchman.taken_off.lock().unwrap().clone());
        assert!(
            asked.len() == 2 && taken_off.last().is_some_and(|last| *last < asked[1].0),
            "armed at {asked:?}, taken off at {taken_off:?}"
        );
    });
}

/// What another did to it meanwhile whoever slept does not know: it is armed once more.
#[test]
fn who_slept_arms_the_alarm_once_more() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        let watchman = watchman(&world, clock.clone(), 0, (Some(false), AlarmRule::default()));
        let controller = world.controller_on(world.store.clone(), watchman.clone());
        // A process that stands still while the clock goes on.
        for (awake, asleep) in [(600, 3600), (600, 0)] {
            tokio::select! {
                receipt = controller.drive(world.job()) => panic!("nothing ends it yet: {receipt:?}"),
                () = clock.sleep(Duration::from_secs(awake)) => {}
            }
            clock.sleep(Duration::from_secs(asleep)).await;
        }
        assert_eq!(watchman.asked.lock().unwrap().len(), 2);
    });
}

/// The last word of an agent that is dead is no reason to take the alarm off: not for the
/// controller that heard it long ago, and not for one that comes later.
#[test]
fn alarm_of_a_silent_machine_stays_whatever_its_last_word_was() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(
            clock.clone(),
            &[Life::Unmeasured { secs: 300, falls_silent: true }, Life::Ends { secs: 5, code: 0 }],
        )
        .await;
        let first = watchman(&world, clock.clone(), 0, (Some(false), AlarmRule::default()));
        let driver = world.controller_on(world.store.clone(), first.clone());
        tokio::select! {
            receipt = driver.drive(world.job()) => panic!("nothing ends it yet: {receipt:?}"),
            () = clock.sleep(Duration::from_secs(900)) => {}
        }
        assert_eq!(first.taken_off.lock().unwrap().len(), 1, "while it lived");
        let second = watchman(&world, clock, 0, (Some(false), AlarmRule::default()));
        let receipt = world
            .controller_on(world.store.clone(), second.clone())
            .drive(world.job())
            .await
            .unwrap();
        assert_eq!(
            (receipt.outcome, receipt.attempts.len()),
            (JobOutcome::Succeeded, 2),
            "its lease has ended it: {receipt:?}"
        );
        assert_eq!(second.taken_off.lock().unwrap().len(), 0);
    });
}
