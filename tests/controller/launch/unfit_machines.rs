//! An offer that can never be launched is left out: of the next tries, and of the highest cost of a
//! job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lamplighter::job::{LaunchRequest, MachineSpec, Spec};
use lamplighter::market::{self, Offer, Supply, Usd, UsdPerHour, Zone};
use lamplighter::ports::{Cloud, CloudError};

use crate::World;
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// Before the false cloud: two more zones, at twice and three halves of the price; those that are
/// named have no subnet, which is known once anything was prepared in the region.
struct Zones {
    inner: Arc<dyn Cloud>,
    without_subnet: &'static [&'static str],
    prepared: AtomicUsize,
}

fn zones(world: &World, without_subnet: &'static [&'static str]) -> Arc<Zones> {
    *world.cloud.kind.lock().expect("nobody panics there") = market::CloudKind::Aws;
    Arc::new(Zones { inner: world.port(), without_subnet, prepared: AtomicUsize::new(0) })
}

before_the_cloud!(Zones passes on [regions launch describe terminate interrupt raise_kill_at release] {
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let mut supply = self.inner.supply(machine).await?;
        supply.quotas.clear();
        let here = supply.offers[0].clone();
        let there = |zone: &str, hundredths: i64| {
            let price = UsdPerHour::new(Usd::from_micros(here.price.per_hour().micros() * hundredths / 100));
            Offer { zone: Zone::new(zone), price, on_demand: Some(price), ..here.clone() }
        };
        supply.offers.extend([there("dear", 200), there("near", 150)]);
        Ok(supply)
    }

    async fn prepare(&self, _spec: &Spec, offer: &Offer) -> Result<Option<LaunchRequest>, CloudError> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        assert!(!self.without_subnet.contains(&offer.zone.as_str()), "the cheapest has one here");
        Ok(None)
    }

    fn known_unfit(&self, _spec: &Spec, offer: &Offer) -> Option<String> {
        let is_known = self.prepared.load(Ordering::Relaxed) > 0 && self.without_subnet.contains(&offer.zone.as_str());
        is_known.then(|| format!("none of `aws.subnets` lies in {}", offer.zone))
    }
});

#[test]
fn zone_without_a_subnet_is_no_fallback_nor_in_the_cost_bound() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock, &[]).await;
        let planned = async |without: &'static [&'static str]| {
            let cloud = zones(&world, without);
            let planned = world
                .controller_on(world.store.clone(), cloud.clone())
                .first_plan(&world.spec)
                .await
                .expect("the cheapest is ready");
            assert_eq!(cloud.prepared.load(Ordering::Relaxed), 1, "nothing is asked twice for it");
            planned
        };
        let zones = |offers: &[Offer]| {
            offers.iter().map(|offer| offer.zone.to_string()).collect::<Vec<_>>()
        };
        let all = planned(&[]).await;
        assert_eq!(zones(&all.fallbacks), ["near", "dear"]);
        let one = planned(&["dear"]).await;
        assert_eq!(zones(&one.fallbacks), ["near"]);
        assert_eq!(one.ranking.len(), 2, "its own and that of the fallback");
        assert!(
            one.plan.most_any_usd.expect("bounded") < all.plan.most_any_usd.expect("bounded"),
            "{:?}",
            one.plan.most_any_usd
        );
        let why: Vec<&str> = one
            .plan
            .rejected
            .iter()
            .filter(|no| no.offer.zone.as_str() == "dear")
            .map(|no| no.because.as_str())
            .collect();
        assert_eq!(why, ["none of `aws.subnets` lies in dear"], "and it is said once");
        assert!(planned(&["near", "dear"]).await.fallbacks.is_empty());
    });
}
