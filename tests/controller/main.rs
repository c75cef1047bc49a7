//! The controller against a store and a cloud that fail, in virtual time.

#![expect(clippy::disallowed_methods, reason = "the shared stand-ins read and write real files")]

mod calls;
mod clocks;
mod cloud;
mod cloud_machine;
mod cloud_port;
mod cloud_wrappers;
mod damaged;
mod deaths;
mod dying_controller;
mod events;
mod faults;
mod launch;
mod lives;
mod lost_replies;
mod newer;
mod owner_messages;
mod scale;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::controller::{Controller, submit};
use lamplighter::job::{
    Command, JobId, LimitsSpec, MachineSpec, Plan, RECORD_FORMAT, Receipt, ResolvedSpec, Spec, Wish,
};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{Span, Usd, UsdPerHour, Zone};
use lamplighter::ports::{Clock, Cloud, Store};

use cloud::{FakeCloud, Life};
use cloud_port::FakeCloudPort;
use lamp_test_support::faulty_store::FaultyStore;
use lamp_test_support::virtual_clock::VirtualClock;

const OWNER: &str = "me";

/// A job root, a cloud and one job in it.
struct World {
    clock: Arc<VirtualClock>,
    store: Arc<FaultyStore>,
    cloud: Arc<FakeCloud>,
    dir: JobDir,
    spec: ResolvedSpec,
}

impl World {
    /// `lives`: what happens to the machine of each attempt; the last one is for all that follow.
    async fn new(clock: Arc<VirtualClock>, lives: &[Life]) -> World {
        World::with(clock, lives, |_| {}).await
    }

    async fn with(
        clock: Arc<VirtualClock>,
        lives: &[Life],
        change: impl FnOnce(&mut Spec),
    ) -> World {
        let store = FaultyStore::new(clock.clone());
        let mut spec = spec(clock.now());
        change(&mut spec.spec);
        let dir = submit(&(store.clone() as Arc<dyn Store>), &spec, None).await.unwrap();
        let cloud = FakeCloud::new(clock.clone(), dir.clone(), lives);
        World { clock, store, cloud, dir, spec }
    }

    /// The same before the job is made.
    async fn unmade(clock: Arc<VirtualClock>, lives: &[Life]) -> World {
        let store = FaultyStore::new(clock.clone());
        let spec = spec(clock.now());
        let dir = JobDir::new(store.clone(), spec.job.clone());
        let cloud = FakeCloud::new(clock.clone(), dir.clone(), lives);
        World { clock, store, cloud, dir, spec }
    }

    fn controller(&self) -> Controller {
        self.controller_on(self.store.clone(), self.port())
    }

    fn port(&self) -> Arc<dyn Cloud> {
        Arc::new(FakeCloudPort(self.cloud.clone()))
    }

    fn controller_on(&self, store: Arc<dyn Store>, cloud: Arc<dyn Cloud>) -> Controller {
        self.controller_of(OWNER, store, cloud)
    }

    fn controller_of(
        &self,
        owner: &str,
        store: Arc<dyn Store>,
        cloud: Arc<dyn Cloud>,
    ) -> Controller {
        Controller::new(
            store,
            [
                (lamplighter::market::CloudKind::Local, Arc::clone(&cloud)),
                (lamplighter::market::CloudKind::Aws, cloud),
            ]
            .into(),
            self.clock.clone(),
            owner.into(),
            "test".into(),
            Zone::new("ws-test"),
        )
    }

    fn job(&self) -> &JobId {
        self.dir.job()
    }

    async fn drive(&self) -> Receipt {
        self.controller().drive(self.job()).await.unwrap()
    }

    /// The same, and somebody asks for something on the way.
    async fn drive_asked(&self, after_secs: u64, wish: Wish) -> Receipt {
        let asks = async {
            self.clock.sleep(Duration::from_secs(after_secs)).await;
            self.wish(wish).await;
        };
        tokio::join!(self.drive(), asks).0
    }

    async fn wish(&self, wish: Wish) {
        self.dir.add_request(wish, "somebody", self.clock.now()).await.unwrap();
    }

    /// What must hold at the end of every story.
    async fn check(&self, receipt: &Receipt) {
        assert_eq!(
            self.dir.receipt().await.unwrap().as_ref(),
            Some(receipt),
            "the receipt that counts is the one that is there"
        );
        assert_eq!(self.cloud.running(), Vec::<String>::new(), "nothing is left running");
        assert_eq!(self.cloud.complaints(), Vec::<String>::new());
        let sum: Usd = receipt.attempts.iter().map(|attempt| attempt.usd).sum();
        assert_eq!(receipt.total_usd, sum);
        assert_eq!(receipt.total_usd, self.cloud.bill(), "the receipt equals the cloud's ledger");
    }
}

fn spec(now: Timestamp) -> ResolvedSpec {
    let machine = MachineSpec {
        usd_per_hour: UsdPerHour::new("$1.234567".parse().unwrap()),
        ..MachineSpec::default()
    };
    ResolvedSpec {
        format: RECORD_FORMAT,
        job: "digits-222222".parse().unwrap(),
        created: now,
        written_by: "test".into(),
        spec: Spec {
            name: "digits".into(),
            command: Command::Shell("true".into()),
            setup: None,
            env: Default::default(),
            secrets: Default::default(),
            tags: Default::default(),
            outputs: vec![],
            machine,
            watch: Default::default(),
            limits: LimitsSpec {
                max_runtime: Some(Span::from_secs(7 * 24 * 3600)),
                ..LimitsSpec::default()
            },
            checkpoint: None,
            on: Default::default(),
            retries: Default::default(),
            interruptions: Default::default(),
            gang: None,
        },
        code: None,
        origins: Default::default(),
        applied: None,
        owner: None,
        continues: None,
        trial: None,
        tuned: None,
    }
}

/// The job of a plan: jobs that a schedule made are in the same store.
fn dir_of(any: &JobDir, plan: &Plan) -> JobDir {
    JobDir::new(Arc::clone(any.store()), plan.job.clone())
}
