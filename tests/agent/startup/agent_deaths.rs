//! Whole attempts of the shipped agent, from boot to the power switch, with agents that die on the
//! way: behind each port one dies at its n-th call, before or after its effect, and a new one boots
//! a second later. The workload lives on meanwhile.

use std::sync::Arc;

use jiff::Timestamp;
use lamplighter::agent::shutdown::deadman::SwitchFiles;
use lamplighter::agent::startup::boot::{BootPorts, boot};
use lamplighter::agent::{Agent, AgentPorts, Folders};
use lamplighter::job::{
    AttemptNo, EndedBecause, ExitStatus, Manifest, Outcome, Plan, ResolvedSpec, Wish,
};
use lamplighter::jobdir::EventDetail;
use lamplighter::market::Market;
use lamplighter::ports::{Clock, Files, Metadata, Power, Store, Workloads};
use lamplighter::sim::{SensesThrough, SimProcess, Through};
use serde_json::{Value, json};

use crate::machine::{Machine, Ports};
use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// Of a training that is not stopped: three saves, the last at the last step.
const STEPS: u64 = 12;

/// In the middle of the training, and of the steps between two saves.
const STOP_AFTER: u64 = 8;

/// A job on a machine.
pub struct Stage {
    pub rig: Rig,
    pub machine: Arc<Machine>,
    /// Where its dead-man's switch reads, if it has one.
    pub switch_files: Option<SwitchFiles>,
}

/// What must not depend on deaths: the moments may move, the story may not.
#[derive(Debug, PartialEq)]
struct Story {
    because: EndedBecause,
    exit: Option<ExitStatus>,
    step: Option<f64>,
    last_checkpoint_step: Option<f64>,
    losses: Vec<String>,
    log: String,
}

impl Stage {
    async fn new(clock: Arc<VirtualClock>, steps: u64) -> Stage {
        Stage::limited(clock, steps, json!({}), None).await
    }

    /// With limits, as the job file says them, and a hard end of the machine.
    pub async fn limited(
        clock: Arc<VirtualClock>,
        steps: u64,
        limits: Value,
        kill_at: Option<Timestamp>,
    ) -> Stage {
        let rig = Rig::new(clock.clone());
        let resolved: ResolvedSpec = serde_json::from_value(json!({
            "format": 1, "job": "digits-222222", "created": "2026-01-01T00:00:00Z", "written_by": "test", "code": null, "origins": {},
            "spec": {
                "name": "digits", "command": {"shell": "train"}, "setup": "install",
                "checkpoint": {"path": "ckpt", "interval": "2s", "signal": "SIGUSR1", "grace": "30s"},
                "limits": limits,
            },
        }))
        .expect("a spec");
        let plan: Plan = serde_json::from_slice(
            &std::fs::read(
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1/plan.json"),
            )
            .expect("a record of ours"),
        )
        .expect("a plan");
        let plan = Plan { job: resolved.job.clone(), attempt: AttemptNo::FIRST, kill_at, ..plan };
        let _ = rig.dir().create_spec(&resolved).await.expect("the store works");
        let _ = rig.dir().create_plan(&plan).await.expect("the store works");
        let switch_files = kill_at
            .map(|_| SwitchFiles { deadline: rig.path("deadline"), alive: rig.path("alive") });
        Stage { machine: Machine::new(clock, steps), rig, switch_files }
    }

    /// One agent, from its boot to its end; whether it died before.
    pub async fn live(&self, life: Arc<SimProcess>) -> bool {
        tokio::select! {
            biased;
            () = life.died() => true,
            () = self.agent(&life) => false,
        }
    }

    async fn agent(&self, life: &Arc<SimProcess>) {
        let clock: Arc<dyn Clock> = Through::<dyn Clock>::new(life, self.rig.clock.clone());
        let store: Arc<dyn Store> = Through::<dyn Store>::new(life, self.rig.store.clone());
        let files: Arc<dyn Files> = Through::<dyn Files>::new(life, self.rig.files.clone());
        let machine = || Arc::new(Ports(Arc::clone(&self.machine)));
        let metadata: Arc<dyn Metadata> = Through::<dyn Metadata>::new(life, machine());
        let power: Arc<dyn Power> = Through::<dyn Power>::new(life, machine());
        let workloads: Arc<dyn Workloads> = Through::<dyn Workloads>::new(life, machine());
        let calm = Played::new(&self.rig);
        let ports = BootPorts {
            clock,
            files,
            store,
            metadata,
            power,
            service: Arc::new(calm.clone()),
            nonce: "n".into(),
        };
        let folders = Folders {
            work: self.rig.path("work"),
            state: self.rig.path("state"),
            cache: self.rig.path("cache"),
        };
        let Ok((attempt, outbox, memory)) = boot(&ports, folders).await else { return };
        let world = AgentPorts {
            sensors: Box::new(SensesThrough(Arc::clone(life), Box::new(calm.clone()))),
            workloads,
            metadata: Some(ports.metadata),
            power: ports.power,
            insist: true,
            own_network: Arc::default(),
            switch_files: self.switch_files.clone(),
            own_machine: true,
            meter: None,
            exposed: None,
            service: ports.service,
            stacks: Arc::new(calm.clone()),
            people: Arc::new(calm),
            signals: tokio::sync::watch::channel(0).1,
        };
        Agent::new(attempt, world, outbox, memory).run().await;
    }

    /// Agents that die after so many calls each, and then one that does not; whether any died.
    async fn live_on(&self, deaths: &[u64], after: bool) -> bool {
        let mut died = false;
        for calls in deaths {
            if !self.machine.is_dark()
                && self.live(SimProcess::mortal(None, Some((*calls + 1, after)))).await
            {
                died = true;
                // The service manager waits a second.
                self.rig.clock.sleep(secs(1)).await;
            }
        }
        if !self.machine.is_dark() {
            assert!(!self.live(SimProcess::new(None)).await);
        }
        died
    }

    /// What holds at the end of every attempt, and its story.
    async fn story(&self, what: &str) -> Story {
        assert!(self.machine.is_dark(), "{what}: the machine is out");
        assert_eq!(self.machine.complaints(), Vec::<String>::new(), "{what}");
        assert_eq!(
            (self.machine.setups(), self.machine.trainings()),
            (1, 1),
            "{what}: each was started once"
        );
        self.check_events(what).await;
        let manifests = self.check_checkpoints(what).await;
        let outcome: Outcome = self
            .rig
            .dir()
            .outcome(AttemptNo::FIRST)
            .await
            .unwrap()
            .unwrap_or_else(|| panic!("{what}: no outcome"));
        let last = manifests.last().map(Manifest::summary);
        assert_eq!(outcome.last_checkpoint, last, "{what}");
        Story {
            because: outcome.because,
            exit: outcome.exit,
            step: outcome.progress.and_then(|progress| progress.step),
            last_checkpoint_step: last.and_then(|summary| summary.step),
            losses: outcome.losses,
            log: self.log(),
        }
    }

    /// Numbered without gaps, and each thing that happened is told, in order.
    async fn check_events(&self, what: &str) {
        let events = self.rig.events().await;
        let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{what}");
        let ended: Vec<u32> = events
            .iter()
            .filter_map(|event| {
                if let EventDetail::WorkloadEnded { start, .. } = event.what {
                    Some(start)
                } else {
                    None
                }
            })
            .collect();
        assert!(!ended.is_empty() && ended.is_sorted(), "{what}: {ended:?}");
        let kept: Vec<u32> = events
            .iter()
            .filter_map(|event| {
                if let EventDetail::Checkpoint { checkpoint, .. } = &event.what {
                    Some(checkpoint.number.number())
                } else {
                    None
                }
            })
            .collect();
        assert!(kept.is_sorted(), "{what}: {kept:?}");
    }

    /// Every manifest names files that are there, and no later one holds earlier work.
    async fn check_checkpoints(&self, what: &str) -> Vec<Manifest> {
        let mut manifests = Vec::new();
        for number in self.rig.dir().checkpoint_numbers().await.unwrap() {
            manifests.extend(self.rig.dir().manifest(number).await.unwrap());
        }
        let step = |manifest: &Manifest| {
            let file = manifest
                .files
                .iter()
                .find(|file| file.path == "model")
                .unwrap_or_else(|| panic!("{what}: {manifest:?}"));
            let body = self
                .rig
                .store
                .object(&format!("jobs/digits-222222/{}", file.key))
                .unwrap_or_else(|| panic!("{what}: {file:?}"));
            String::from_utf8(body.to_vec())
                .unwrap()
                .strip_prefix("step ")
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let steps: Vec<u64> = manifests.iter().map(step).collect();
        assert!(!steps.is_empty() && steps.is_sorted(), "{what}: {steps:?}");
        manifests
    }

    fn log(&self) -> String {
        let frames = self
            .rig
            .store
            .keys("/log/")
            .into_iter()
            .map(|key| self.rig.store.object(&key).unwrap());
        let log: Vec<u8> = frames.flat_map(|frame| zstd::decode_all(&frame[..]).unwrap()).collect();
        let text = String::from_utf8(log).unwrap();
        // Without the lines of our own between the starts.
        text.lines()
            .filter(|line| !line.is_empty() && !line.starts_with("[lamp: start "))
            .map(|line| format!("{line}\n"))
            .collect()
    }
}

#[test]
fn death_at_every_call_changes_nothing() {
    let undisturbed = simulate(async |clock| {
        let stage = Stage::new(clock, STEPS).await;
        stage.live_on(&[], false).await;
        stage.story("undisturbed").await
    });
    assert_eq!(
        (undisturbed.because, undisturbed.step, undisturbed.last_checkpoint_step),
        (EndedBecause::Succeeded, Some(STEPS as f64), Some(STEPS as f64))
    );
    let deaths = die_everywhere(false, async |stage, what| {
        assert_eq!(stage.story(what).await, undisturbed, "{what}")
    });
    assert!(deaths > 200, "{deaths}");
}

#[test]
fn death_at_every_call_of_a_stopped_attempt_saves_and_ends_it() {
    let deaths = die_everywhere(true, async |stage, what| {
        let story = stage.story(what).await;
        assert_eq!((story.because, story.losses), (EndedBecause::UserStopped, vec![]), "{what}");
        assert_eq!(
            story.exit,
            Some(ExitStatus { code: Some(143), ..ExitStatus::default() }),
            "{what}"
        );
        // It goes on from the save to the end; what it did before the save is kept. All that
        // happens here is of one tick of the file system, and what has the time of the line after
        // its mark is given two seconds.
        let lost = story.step.zip(story.last_checkpoint_step).map(|(step, saved)| step - saved);
        assert!(lost.is_some_and(|lost| lost <= 3.0), "{what}: {lost:?}");
    });
    assert!(deaths > 200, "{deaths}");
}

/// Plays an attempt for each call at which an agent can die, before and after the effect of that
/// call; the one that comes after it dies too, somewhere. Gives the number of calls.
fn die_everywhere(stopped: bool, check: impl AsyncFn(&Stage, &str)) -> u64 {
    let mut deaths = 0;
    for after in [false, true] {
        for calls in 0.. {
            let died = simulate(async |clock| {
                let stage = Stage::new(clock.clone(), if stopped { 600 } else { STEPS }).await;
                let lives = [calls, calls * 7 % 43];
                let stop = async {
                    if stopped {
                        clock.sleep(secs(STOP_AFTER)).await;
                        stage
                            .rig
                            .dir()
                            .add_request(Wish::Stop, "somebody", clock.now())
                            .await
                            .unwrap();
                    }
                };
                let (died, ()) = tokio::join!(stage.live_on(&lives, after), stop);
                check(
                    &stage,
                    &format!("died after {lives:?} calls, after the effect of the last: {after}"),
                )
                .await;
                died
            });
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    deaths
}

#[test]
fn workload_that_may_still_run_is_not_started_a_second_time() {
    simulate(async |clock: Arc<VirtualClock>| {
        let stage = Stage::new(clock.clone(), STEPS).await;
        tokio::select! {
            died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
            () = clock.sleep(secs(6)) => {}
        }
        assert_eq!(stage.machine.trainings(), 1);
        stage.machine.fail_attach(3);
        stage.live_on(&[], false).await;
        assert_eq!(
            stage.story("a disk that did not answer").await.because,
            EndedBecause::Succeeded
        );
        let told = stage.rig.attention().await;
        assert!(
            told.iter().any(|line| line.starts_with(
                "nobody can tell whether start 1 of the workload still runs, so none is started: "
            )),
            "{told:?}"
        );
    });
}

#[test]
fn wish_ends_an_attempt_whose_workload_cannot_be_found() {
    simulate(async |clock: Arc<VirtualClock>| {
        let stage = Stage::new(clock.clone(), STEPS).await;
        tokio::select! {
            died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
            () = clock.sleep(secs(6)) => {}
        }
        stage.machine.fail_attach(u32::MAX);
        let (died, ()) = tokio::join!(stage.live(SimProcess::new(None)), async {
            clock.sleep(secs(20)).await;
            stage.rig.dir().add_request(Wish::Stop, "somebody", clock.now()).await.unwrap();
        });
        assert!(!died && stage.machine.is_dark());
        assert_eq!(stage.machine.trainings(), 1);
        let outcome = stage.rig.dir().outcome(AttemptNo::FIRST).await.unwrap().unwrap();
        assert_eq!(outcome.because, EndedBecause::UserStopped);
    });
}

#[test]
fn move_to_another_market_saves_a_checkpoint_and_ends_machine() {
    simulate(async |clock: Arc<VirtualClock>| {
        let stage = Stage::new(clock.clone(), 600).await;
        let asked = async {
            clock.sleep(secs(STOP_AFTER)).await;
            let other = Wish::Move { attempt: AttemptNo::new(2), to: Market::Spot };
            stage.rig.dir().add_request(other, "a controller", clock.now()).await.unwrap();
            clock.sleep(secs(20)).await;
            assert!(!stage.machine.is_dark(), "another attempt was meant");
            let ours = Wish::Move { attempt: AttemptNo::FIRST, to: Market::Spot };
            stage.rig.dir().add_request(ours, "a controller", clock.now()).await.unwrap();
        };
        let (died, ()) = tokio::join!(stage.live(SimProcess::new(None)), asked);
        assert!(!died && stage.machine.is_dark());
        let outcome = stage.rig.dir().outcome(AttemptNo::FIRST).await.unwrap().unwrap();
        assert_eq!(outcome.because, EndedBecause::Moved);
        assert!(
            outcome.reasons.last().unwrap().text.contains("moves the job to spot"),
            "{:?}",
            outcome.reasons
        );
        let last = outcome.last_checkpoint.expect("it saved");
        // It trains on until it is told to end: a step at most.
        let (saved, done) = (last.step.unwrap(), outcome.progress.unwrap().step.unwrap());
        assert!(saved > 20.0 && done - saved <= 1.0, "{saved} of {done}");
        assert!(outcome.working_since.is_some());
    });
}
