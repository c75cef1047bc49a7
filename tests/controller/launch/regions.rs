//! A region that cannot launch yet does not delay a job that may run elsewhere. The user is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lamplighter::instance::InstanceView;
use lamplighter::job::{JobOutcome, LaunchRequest, MachineSpec, MarketChoice, Plan, Spec};
use lamplighter::market::{self, Offer, Region, Supply, Usd, UsdPerHour, Zone};
use lamplighter::ports::{Clock, Cloud, CloudError};

use crate::World;
use crate::cloud::{CloudFault, Life};
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// What a region says of itself when a launch there is prepared.
#[derive(Clone, Copy)]
enum Lack {
    Group,
    Right,
}

/// Before the false cloud: more regions, of which some are not ready.
struct Regions {
    inner: Arc<dyn Cloud>,
    /// Beside the one that the false cloud has: their names, and what an hour costs there in
    /// hundredths of the price here.
    more: Vec<(&'static str, i64)>,
    lacking: Mutex<BTreeMap<&'static str, Lack>>,
}

fn regions(
    world: &World,
    more: &[(&'static str, i64)],
    lacking: &[(&'static str, Lack)],
) -> Arc<Regions> {
    // Only machines of a cloud that is far away have another place to go to.
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    Arc::new(Regions {
        inner: world.port(),
        more: more.to_vec(),
        lacking: Mutex::new(lacking.iter().copied().collect()),
    })
}

before_the_cloud!(Regions passes on [regions terminate interrupt raise_kill_at release] {
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let mut supply = self.inner.supply(machine).await?;
        // The quota of the false cloud is for tests of the quota.
        supply.quotas.clear();
        let here = supply.offers[0].clone();
        let there = |name: &str, hundredths: i64| {
            let price = UsdPerHour::new(Usd::from_micros(here.price.per_hour().micros() * hundredths / 100));
            Offer { region: Region::new(name), zone: Zone::new(format!("{name}a")), price, on_demand: Some(price), ..here.clone() }
        };
        supply.offers.extend(self.more.iter().map(|(name, hundredths)| there(name, *hundredths)));
        Ok(supply)
    }

    async fn prepare(&self, _spec: &Spec, offer: &Offer) -> Result<Option<LaunchRequest>, CloudError> {
        match self.lacking.lock().unwrap().get(offer.region.as_str()) {
            None => Ok(None),
            Some(Lack::Group) => Err(CloudError::Invalid { what: "there is no security group".into() }),
            Some(Lack::Right) => Err(CloudError::Denied { act: format!("look at images in {}", offer.region), cause: "a policy".into() }),
        }
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        assert!(!self.lacking.lock().unwrap().contains_key(plan.offer.region.as_str()), "launched where it cannot be");
        self.inner.launch(plan).await
    }

    async fn describe(&self, owner: &str, region: &Region) -> Result<Vec<InstanceView>, CloudError> {
        let views = self.inner.describe(owner, region).await?;
        Ok(views.into_iter().filter(|view| view.region == *region).collect())
    }
});

async fn stands(world: &World) -> Option<String> {
    world.dir.attention().await.unwrap().and_then(|attention| attention.text)
}

/// The cheapest region has no security group, the next one is forbidden: the job runs in the third,
/// and nothing of it waits.
#[test]
fn region_that_is_not_ready_is_passed_over() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock, &[Life::Ends { secs: 60, code: 0 }]).await;
        let cloud =
            regions(&world, &[("eu", 50), ("ap", 70)], &[("eu", Lack::Group), ("ap", Lack::Right)]);
        let receipt =
            world.controller_on(world.store.clone(), cloud).drive(world.job()).await.unwrap();
        assert_eq!(
            (receipt.outcome, receipt.attempts.len()),
            (JobOutcome::Succeeded, 1),
            "{receipt:?}"
        );
        let plan = world.dir.plan(lamplighter::job::AttemptNo::FIRST).await.unwrap().unwrap();
        assert_eq!(plan.offer.region.as_str(), "local");
        let why: Vec<&str> = plan.rejected.iter().map(|no| no.because.as_str()).collect();
        assert_eq!(
            why,
            ["there is no security group", "not allowed to look at images in ap: a policy"]
        );
        assert_eq!(stands(&world).await, None);
    });
}

/// What would be tried next is looked at too, so that a plan names no place to which the job cannot
/// go.
#[test]
fn plan_names_no_fallback_that_is_not_ready_and_says_so() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock, &[]).await;
        let cloud = regions(&world, &[("eu", 150), ("ap", 200)], &[("eu", Lack::Group)]);
        let planned =
            world.controller_on(world.store.clone(), cloud).first_plan(&world.spec).await.unwrap();
        assert_eq!(planned.plan.offer.region.as_str(), "local");
        let next: Vec<&str> = planned.fallbacks.iter().map(|offer| offer.region.as_str()).collect();
        assert_eq!(next, ["ap"]);
        let unready: Vec<(&str, &str)> = planned
            .unready
            .iter()
            .map(|unready| (unready.region.as_str(), unready.because.as_str()))
            .collect();
        assert_eq!(unready, [("eu", "there is no security group")]);
    });
}

/// No region is left: that is a trouble which somebody must mend, whether it is missing everywhere
/// or only where the job could still go; and once it is mended the job goes on by itself.
#[test]
fn job_that_waits_for_a_region_to_be_made_ready_says_so() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 60, code: 0 }]).await;
        let cloud = regions(&world, &[("eu", 150)], &[("local", Lack::Group), ("eu", Lack::Right)]);
        let controller = world.controller_on(world.store.clone(), cloud.clone());
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(60)).await;
            let said = "local is not ready: there is no security group; eu is not ready: not allowed to look at images in eu: a policy";
            assert_eq!(stands(&world).await.as_deref(), Some(said));
            // One of them is ready, and has no machine: the other is still what a person can mend.
            cloud.lacking.lock().unwrap().remove("local");
            world.cloud.fail_launches(&[CloudFault::NoCapacity]);
            let until = clock.mono() + Duration::from_secs(170);
            while clock.mono() < until
                && !stands(&world).await.is_some_and(|text| text.contains("had none"))
            {
                clock.sleep(Duration::from_secs(1)).await;
            }
            let said = stands(&world).await.unwrap_or_default();
            assert!(
                said.starts_with("no offer fits: t in ws-test had none")
                    && said.contains("; eu is not ready: not allowed"),
                "{said}"
            );
        });
        let receipt = receipt.unwrap();
        assert_eq!(receipt.outcome, JobOutcome::Succeeded, "{receipt:?}");
        assert_eq!(stands(&world).await, None, "it is over");
    });
}

/// The choice between the markets ignores a region that cannot launch.
#[test]
fn market_is_chosen_without_the_regions_that_are_not_ready() {
    simulate(async |clock: Arc<VirtualClock>| {
        let by = clock.now() + Duration::from_secs(6 * 3600);
        let auto = |spec: &mut Spec| {
            spec.machine.cloud = market::CloudKind::Aws;
            spec.machine.market = MarketChoice::Auto;
            (spec.limits.deadline, spec.limits.work) =
                (Some(by), Some(market::Span::from_secs(3600)));
        };
        let world = World::with(clock, &[], auto).await;
        let seen = async |lacking: &[(&'static str, Lack)]| {
            let cloud = regions(&world, &[("eu", 50)], lacking);
            let planned = world
                .controller_on(world.store.clone(), cloud)
                .first_plan(&world.spec)
                .await
                .unwrap();
            (planned.outlook.expect("both markets are there").pool.zone, planned.unready.len())
        };
        assert_eq!(seen(&[]).await, ("eua".to_owned(), 0));
        assert_eq!(
            seen(&[("eu", Lack::Group)]).await,
            ("ws-test".to_owned(), 1),
            "and it is still said"
        );
    });
}
