//! The parties that drive the job: the laptop, another laptop, and the sweeper in the cloud. Each
//! runs the shipped controller.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::controller::Controller;
use crate::market::{self, Zone};
use crate::ports::{Clock, Cloud, Store};
use crate::sim::laws::observer::Judge;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::cloud_port::Ec2Line;
use crate::sim::world::host::CallCount;
use crate::sim::world::process::SimProcess;
use crate::sim::world::process_ports::Through;
use crate::sim::world::store::Line;
use crate::sim::world::world::{OWNER, World};

/// The time of a visit, within the four minutes of the function.
const VISIT_ROOM: Duration = Duration::from_secs(235);

/// How often the sweeper runs, as the real one does.
const SWEEP_EVERY: Duration = Duration::from_secs(300);

/// A workstation: its controller, its clock, its lid.
pub struct Party {
    pub world: Arc<World>,
    pub who: String,
    /// How far its wall clock is off, milliseconds.
    pub wall_off: AtomicI64,
    process: Mutex<Option<Arc<SimProcess>>>,
    asleep: Mutex<bool>,
}

impl Party {
    pub fn new(world: &Arc<World>, who: &str) -> Arc<Self> {
        let (process, asleep) = (Mutex::default(), Mutex::default());
        Arc::new(Party {
            world: Arc::clone(world),
            who: who.to_owned(),
            wall_off: AtomicI64::new(0),
            process,
            asleep,
        })
    }

    /// Drives all jobs, and restarts the controller after each death.
    pub async fn drive(self: Arc<Self>) {
        loop {
            let process = SimProcess::mortal(None, self.world.next_death("controller"));
            process.freeze(*self.asleep.lock().expect("only set"));
            *self.process.lock().expect("only set") = Some(Arc::clone(&process));
            let controller = controller(
                &process,
                &self.world,
                &self.who,
                WorldFault::LaptopOffline,
                Some(&self),
            );
            let counted = CallCount { world: &self.world, kind: "controller", process: &process };
            tokio::select! {
                biased;
                () = process.died() => self.world.told(format_args!("{}: the controller died", self.who)),
                () = controller.drive_all(&[], |_| ()) => {}
            }
            drop((counted, controller));
            self.world.controller_died(&self.who);
            self.world.timeline.sleep(Duration::from_secs(5)).await;
        }
    }

    pub fn kill_controller(&self) {
        if let Some(process) = self.process.lock().expect("only set").as_ref() {
            process.kill();
        }
    }

    /// Closes or opens the lid.
    pub fn sleep(&self, asleep: bool) {
        *self.asleep.lock().expect("only set") = asleep;
        if let Some(process) = self.process.lock().expect("only set").as_ref() {
            process.freeze(asleep);
        }
    }
}

/// The shipped controller over the lines of one party. Without a party its clock is right.
fn controller(
    process: &Arc<SimProcess>,
    world: &Arc<World>,
    who: &str,
    cut_by: WorldFault,
    party: Option<&Arc<Party>>,
) -> Controller {
    let line = Line { world: Arc::clone(world), who: who.to_owned(), cut_by, disk: None };
    let store: Arc<dyn Store> = Through::<dyn Store>::new(process, Arc::new(line));
    let ec2 =
        Ec2Line { world: Arc::clone(world), who: who.to_owned(), cut_by: party.map(|_| cut_by) };
    let cloud: Arc<dyn Cloud> = Through::<dyn Cloud>::new(process, Arc::new(ec2));
    let clock = PartyClock { world: Arc::clone(world), party: party.cloned() };
    let clock: Arc<dyn Clock> = Through::<dyn Clock>::new(process, Arc::new(clock));
    Controller::new(
        store,
        [(market::CloudKind::Aws, cloud)].into(),
        clock,
        OWNER.into(),
        who.to_owned(),
        Zone::new(format!("ws-{who}")),
    )
}

/// The controller of a user who runs one command.
pub fn person(world: &Arc<World>) -> Controller {
    controller(&SimProcess::new(None), world, "user", WorldFault::LaptopOffline, None)
}

/// Runs the program of the Lambda function every five minutes, with its time limit.
pub async fn sweep(world: Arc<World>) {
    loop {
        world.timeline.sleep(SWEEP_EVERY).await;
        let process = SimProcess::new(None);
        // It is inside the cloud, so a laptop that is offline does not cut its line.
        let controller = controller(&process, &world, "sweeper", WorldFault::StoreDown, None);
        let (due, could, throttled) =
            (world.due(), Judge::can_sweep(&world), world.weather.is(WorldFault::Ec2Throttled));
        let visit = controller.visit("sim", "sim", VISIT_ROOM).await;
        // Only active faults excuse a failed visit, never its own report.
        if could
            && Judge::can_sweep(&world)
            && !world.weather.is(WorldFault::Ec2Throttled)
            && !throttled
        {
            world.visited(due);
        }
        for ended in &visit.ended {
            world.told(format_args!("sweeper: {} ended: {}", ended.machine, ended.why));
        }
        for trouble in &visit.trouble {
            world.told(format_args!("sweeper: {}: {}", trouble.what, trouble.why));
        }
    }
}

struct PartyClock {
    world: Arc<World>,
    party: Option<Arc<Party>>,
}

#[async_trait]
impl Clock for PartyClock {
    fn now(&self) -> Timestamp {
        let off = self.party.as_ref().map_or(0, |party| party.wall_off.load(Ordering::Relaxed));
        self.world.timeline.wall() + SignedDuration::from_millis(off)
    }
    fn mono(&self) -> Duration {
        crate::sim::faults::planted_bugs::steady(&self.world, || self.now())
    }
    fn boot(&self) -> String {
        String::new()
    }
    async fn sleep(&self, time: Duration) {
        self.world.timeline.sleep(time).await;
    }
}
