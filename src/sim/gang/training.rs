//! The engine of a rank: a training that makes each step together with the other ranks.
//!
//! Rank 0 saves. An engine whose peer has ended fails within seconds. One whose peer is silent
//! waits, as a collective does, until its own time is over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use super::gang_world::{EnginePlace, GangWorld, Meeting, Peers};
use super::rank_program::{begins_to_wait, variable};
use crate::job::ExitStatus;
use crate::ports::{RankLaunch, RankProcess};
use crate::sim::world::host::Host;
use crate::sim::world::process::SimProcess;
use crate::sim::world::workload::{ABORTED, Habit, KILLED, Start};
use crate::sim::world::world::Deed;

/// After SIGTERM.
const TOLD: i32 = 143;

/// How long a collective waits for a silent peer, as NCCL does.
const COLLECTIVE_MAX: Duration = Duration::from_secs(10 * 60);

/// Between two looks at the others.
const LOOK: Duration = Duration::from_secs(1);

/// From the end of a peer to the failure.
const FAILS_AFTER: Duration = Duration::from_secs(3);

pub(super) struct TrainingEngine {
    ended: watch::Receiver<Option<ExitStatus>>,
    told: Arc<Notify>,
    life: Arc<SimProcess>,
    host: Arc<Host>,
}

struct Training {
    host: Arc<Host>,
    start: Arc<Start>,
    place: EnginePlace,
    checkpoints: PathBuf,
    told: Arc<Notify>,
    life: Arc<SimProcess>,
}

impl TrainingEngine {
    pub fn start(host: &Arc<Host>, start: &Arc<Start>, launch: &RankLaunch) -> Self {
        let life = SimProcess::new(Some(Arc::clone(&start.life)));
        let told: Arc<Notify> = Arc::default();
        let (tell, ended) = watch::channel(None);
        let engine = TrainingEngine {
            ended,
            told: Arc::clone(&told),
            life: Arc::clone(&life),
            host: Arc::clone(host),
        };
        let Some(place) = place(launch) else {
            // A probe finds its engine.
            let _kept = tell.send_replace(Some(exited(0)));
            return engine;
        };
        let checkpoints = variable(&launch.env, "LAMP_CHECKPOINT_DIR").into();
        let (host, start) = (Arc::clone(host), Arc::clone(start));
        let training = Training { host, start, place, checkpoints, told, life };
        tokio::task::spawn_local(async move {
            let exit = tokio::select! {
                biased;
                () = training.life.died() => killed(KILLED),
                exit = training.train() => exit,
            };
            training.end();
            let _kept = tell.send_replace(Some(exit));
        });
        engine
    }
}

#[async_trait]
impl RankProcess for TrainingEngine {
    async fn ended(&mut self) -> ExitStatus {
        match self.ended.wait_for(Option::is_some).await.map(|exit| *exit) {
            Ok(exit) => exit.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    fn pass_on_term(&self) {
        self.told.notify_one();
    }

    async fn end(&mut self, grace: Duration) -> ExitStatus {
        self.told.notify_one();
        let world = Arc::clone(&self.host.world);
        let gently = tokio::select! {
            biased;
            exit = self.ended() => Some(exit),
            () = world.timeline.sleep(grace) => None,
        };
        self.life.kill();
        match gently {
            Some(exit) => exit,
            None => self.ended().await,
        }
    }
}

impl Training {
    fn gang(&self) -> &GangWorld {
        self.host.world.gang().expect("only a gang has ranks")
    }

    fn now(&self) -> Duration {
        self.host.world.timeline.now()
    }

    fn habit(&self) -> Habit {
        self.host.habit()
    }

    async fn train(&self) -> ExitStatus {
        let (habit, world) = (self.habit(), &self.host.world);
        let resumed = habit.saves.resumed(&self.host, &self.checkpoints);
        let (place, now) = (&self.place, self.now());
        self.start.change(|truth| {
            (truth.step, truth.steps, truth.moved) = (resumed, 0, now);
            truth.saved = None;
        });
        if place.rank == 0 {
            let (host, start) = (&*self.host, &*self.start);
            world.happened(&Deed::Started { host, start, step: resumed });
            if habit.saves.announces() {
                self.start.mark(&self.host, resumed);
            }
        }
        let id = &self.host.id;
        world.told(format_args!(
            "{id}: rank {} begins epoch {} at step {resumed}",
            place.rank, place.epoch
        ));
        for (law, what) in self.gang().arrive(place, &self.host.kernel, resumed) {
            world.violated(law, what);
        }
        if let Some(exit) = self.meet(0).await {
            return exit;
        }
        self.start.busy.store(true, Ordering::Relaxed);
        self.start.change(|truth| truth.quiet_since = None);
        for step in resumed + 1..=habit.steps {
            if let Some(code) = self.gang().failure(place.rank, step, habit.steps) {
                return exited(code);
            }
            if !self.compute(habit).await {
                return exited(TOLD);
            }
            self.gang().computed(place, step);
            if let Some(exit) = self.meet(step).await {
                return exit;
            }
            self.did(habit, step).await;
        }
        exited(0)
    }

    /// Waits until all have done this step. `Some`: it ends instead.
    async fn meet(&self, step: u64) -> Option<ExitStatus> {
        let until = self.now() + COLLECTIVE_MAX;
        loop {
            match self.gang().look(&self.place, step, self.now()) {
                Peers::Together => return None,
                Peers::Gone => {
                    self.sleep(FAILS_AFTER).await;
                    return Some(exited(1));
                }
                Peers::Waiting if self.now() >= until => return Some(killed(ABORTED)),
                Peers::Waiting => {}
            }
            tokio::select! {
                biased;
                () = self.told.notified() => if !self.habit().ignores_term {
                    return Some(exited(TOLD));
                },
                () = self.sleep(LOOK) => {}
            }
        }
    }

    /// False: it got SIGTERM and ends.
    async fn compute(&self, habit: Habit) -> bool {
        let mut until = self.now() + habit.step;
        loop {
            tokio::select! {
                biased;
                () = self.told.notified() => if !habit.ignores_term { return false },
                () = self.start.asked.notified(), if self.saves() => {
                    let began = self.now();
                    let step = self.start.truth().step;
                    self.start.save(&self.host, habit, step).await;
                    until += self.now() - began;
                }
                () = self.sleep(until.saturating_sub(self.now())) => return true,
            }
        }
    }

    async fn did(&self, habit: Habit, step: u64) {
        let now = self.now();
        if let Some((law, what)) = self.gang().did(&self.place, step) {
            self.host.world.violated(law, what);
        }
        self.start.change(|truth| {
            (truth.step, truth.steps, truth.moved) = (step, truth.steps + 1, now);
        });
        self.start.print(&self.host, &format!("step {step}"));
        let line = format!("{{\"step\": {step}, \"total\": {}}}", habit.steps);
        self.start.progress(&self.host, &line);
        if self.saves() && (step.is_multiple_of(habit.save_every) || step == habit.steps) {
            self.start.save(&self.host, habit, step).await;
        }
    }

    fn saves(&self) -> bool {
        self.place.rank == 0
    }

    /// A process does not run while its machine is frozen.
    async fn sleep(&self, time: Duration) {
        self.host.world.timeline.sleep(time).await;
        self.life.running().await;
    }

    fn end(&self) {
        self.gang().leave(&self.place);
        begins_to_wait(&self.start, &self.host);
    }
}

/// `None`: it is no engine of an epoch.
fn place(launch: &RankLaunch) -> Option<EnginePlace> {
    let number = |name: &str| launch.env.get(name)?.parse::<u32>().ok();
    let words = &launch.argv;
    let id = words.iter().position(|word| word == "--rdzv-id")?;
    Some(EnginePlace {
        epoch: number("LAMP_EPOCH")?,
        rank: number("LAMP_RANK")?,
        node: number("LAMP_NODE_RANK")?,
        meeting: Meeting {
            rendezvous: words.get(id + 1)?.clone(),
            master: format!(
                "{}:{}",
                variable(&launch.env, "MASTER_ADDR"),
                variable(&launch.env, "MASTER_PORT")
            ),
            nodes: number("LAMP_NODES")?,
        },
    })
}

fn exited(code: i32) -> ExitStatus {
    ExitStatus { code: Some(code), ..ExitStatus::default() }
}

fn killed(signal: i32) -> ExitStatus {
    ExitStatus { signal: Some(signal), ..ExitStatus::default() }
}
