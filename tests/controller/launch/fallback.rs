//! What is many times as dear as what was shown is not bought without a word.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lamplighter::job::{EndedBecause, JobOutcome, MachineSpec, Plan, Refusal, Wish};
use lamplighter::market::{self, FallbackCost, Offer, Supply, Usd, UsdPerHour};
use lamplighter::ports::{Clock, Cloud, CloudError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// Before the false cloud: the machine that it has, one at 1.5 times its price, and one at 5.6
/// times. There is capacity for the last one alone.
struct Scarce {
    inner: Arc<dyn Cloud>,
    is_scarce: AtomicBool,
    asked: Mutex<Vec<String>>,
}

fn scarce(world: &World) -> Arc<Scarce> {
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    Arc::new(Scarce {
        inner: world.port(),
        is_scarce: AtomicBool::new(true),
        asked: Mutex::default(),
    })
}

impl Scarce {
    fn asked_for(&self, kind: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == kind).count()
    }
}

before_the_cloud!(Scarce passes on [regions describe terminate interrupt raise_kill_at release] {
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let mut supply = self.inner.supply(machine).await?;
        supply.quotas.clear();
        let small = supply.offers[0].clone();
        let other = |kind: &str, tenths: i64| {
            let price = UsdPerHour::new(Usd::from_micros(small.price.per_hour().micros() * tenths / 10));
            Offer { instance_type: kind.into(), price, on_demand: Some(price), ..small.clone() }
        };
        let more = [other("middle", 15), other("large", 56)];
        supply.offers.extend(more);
        Ok(supply)
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        self.asked.lock().unwrap().push(plan.offer.instance_type.clone());
        if self.is_scarce.load(Ordering::Relaxed) && plan.offer.instance_type != "large" {
            return Err(CloudError::NoCapacity { refusal: Refusal::Capacity, what: "InsufficientInstanceCapacity".into() });
        }
        self.inner.launch(plan).await
    }
});

async fn waits(world: &World) -> String {
    world.dir.waiting().await.unwrap().map(|waiting| waiting.why).unwrap_or_default()
}

async fn comes(world: &World, what: &str) {
    let until = world.clock.mono() + Duration::from_secs(600);
    while !waits(world).await.contains(what) {
        assert!(world.clock.mono() < until, "{}", waits(world).await);
        world.clock.sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn job_waits_for_permission_to_buy_a_far_dearer_machine() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 60, code: 0 }]).await;
        let cloud = scarce(&world);
        let controller = world.controller_on(world.store.clone(), cloud.clone());
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            comes(&world, "--fallback-cost 5.6").await;
            let why = waits(&world).await;
            assert!(
                why.starts_with("a machine within its `fallback_cost`: no capacity in 2 places, the last middle in ws-test, spot; large in "),
                "{why}"
            );
            assert!(
                why.ends_with("and at most 2 times is bought without a word; `lamp extend digits-222222 --fallback-cost 5.6` allows it"),
                "{why}"
            );
            clock.sleep(Duration::from_secs(3600)).await;
            assert_eq!(cloud.asked_for("large"), 0, "an hour without a machine buys no dear one");
            assert!(
                cloud.asked_for("t") > 3 && cloud.asked_for("middle") > 3,
                "what was shown is asked for again and again"
            );
            world
                .wish(Wish::Extend {
                    time: None,
                    budget: None,
                    fallback_cost: Some(FallbackCost::Times(5.6)),
                })
                .await;
        });
        let receipt = receipt.unwrap();
        assert_eq!(
            (receipt.outcome, cloud.asked_for("large")),
            (JobOutcome::Succeeded, 1),
            "{receipt:?}"
        );
        let had =
            receipt.attempts.iter().find(|attempt| attempt.instance.is_some()).expect("a machine");
        assert_eq!(
            (had.instance_type.as_str(), had.ended_because),
            ("large", EndedBecause::Succeeded)
        );
    });
}

#[test]
fn capacity_that_comes_back_where_it_was_shown_ends_the_wait() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 60, code: 0 }]).await;
        let cloud = scarce(&world);
        let controller = world.controller_on(world.store.clone(), cloud.clone());
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            comes(&world, "--fallback-cost").await;
            cloud.is_scarce.store(false, Ordering::Relaxed);
        });
        assert_eq!(
            (receipt.unwrap().outcome, cloud.asked_for("large")),
            (JobOutcome::Succeeded, 0)
        );
        assert!(
            clock.mono() < Duration::from_secs(900),
            "a refusal is forgotten within minutes: {:?}",
            clock.mono()
        );
    });
}

/// The job file has said so: then it is as it was, down the whole list.
#[test]
fn job_file_that_allows_whatever_fits_gets_it_at_once() {
    simulate(async |clock: Arc<VirtualClock>| {
        let any =
            |spec: &mut lamplighter::job::Spec| spec.machine.fallback_cost = FallbackCost::Any;
        let world = World::with(clock.clone(), &[Life::Ends { secs: 60, code: 0 }], any).await;
        let cloud = scarce(&world);
        let controller = world.controller_on(world.store.clone(), cloud.clone());
        let planned = controller.first_plan(&world.spec).await.unwrap();
        assert_eq!(planned.fallbacks.len(), 2);
        let receipt = controller.drive(world.job()).await.unwrap();
        let kinds: Vec<&str> =
            receipt.attempts.iter().map(|attempt| attempt.instance_type.as_str()).collect();
        assert_eq!((receipt.outcome, kinds), (JobOutcome::Succeeded, vec!["t", "middle", "large"]));
        assert!(clock.mono() < Duration::from_secs(300), "{:?}", clock.mono());
    });
}
