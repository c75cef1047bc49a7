//! A run that waits for a price waits for the one that it would pay: what its launch would be
//! refused is no bargain.

use std::sync::Arc;

use lamplighter::job::{LaunchRequest, MachineSpec, Refusal, Spec};
use lamplighter::market::{self, Offer, Supply, UsdPerHour, Zone};
use lamplighter::ports::{Cloud, CloudError};

use crate::cloud_wrappers::before_the_cloud;
use crate::launch::schedules::{QUICK, Scheduled, at};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// Why the cheap pool is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refused {
    Bid,
    Quota,
    Subnet,
    /// It is not.
    No,
}

const CHEAP: &str = "zone-cheap";

fn usd(dollars: &str) -> UsdPerHour {
    UsdPerHour::new(dollars.parse().unwrap())
}

/// Before the false cloud: one more pool, for $0.90 an hour beside the $1.23 of the other.
struct Pools {
    inner: Arc<dyn Cloud>,
    refused: Refused,
}

before_the_cloud!(Pools passes on [regions launch describe terminate interrupt raise_kill_at release] {
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let mut supply = self.inner.supply(machine).await?;
        let mut cheap = Offer { zone: Zone::new(CHEAP), price: usd("0.9"), ..supply.offers[0].clone() };
        match self.refused {
            Refused::Bid => cheap.on_demand = Some(usd("0.8")),
            // The false cloud's quota is of nothing.
            Refused::Quota => cheap.vcpus = 4,
            Refused::Subnet | Refused::No => {}
        }
        supply.offers.push(cheap);
        Ok(supply)
    }

    async fn prepare(&self, _spec: &Spec, offer: &Offer) -> Result<Option<LaunchRequest>, CloudError> {
        if self.refused == Refused::Subnet && offer.zone.as_str() == CHEAP {
            return Err(CloudError::NoCapacity { what: "no subnet in this zone".into(), refusal: Refusal::Capacity });
        }
        Ok(None)
    }
});

#[test]
fn cheap_pool_that_would_refuse_the_job_begins_no_run() {
    for refused in [Refused::Bid, Refused::Quota, Refused::Subnet, Refused::No] {
        simulate(async |clock: Arc<VirtualClock>| {
            let cheap = |record: &mut lamplighter::job::Schedule| {
                record.schedule.only_while_spot_under = Some(usd("1"))
            };
            let scheduled = Scheduled::new(clock.clone(), QUICK, cheap).await;
            let world = &scheduled.world;
            *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
            let cloud = Arc::new(Pools { inner: world.port(), refused });
            scheduled.daemon(world.controller_on(world.store.clone(), cloud), 70).await;
            let runs = at(&scheduled.runs().await);
            if refused == Refused::No {
                assert_eq!(runs, ["01:00 run"]);
                return;
            }
            assert_eq!(runs, Vec::<String>::new(), "{refused:?}");
            let why = scheduled.dir.waiting().await.unwrap().unwrap().why;
            assert_eq!(
                why, "spot costs $1.23/h, and it waits for less than $1.00/h",
                "{refused:?}"
            );
        });
    }
}

/// Where none would do, that is said, and not that nobody knows the price.
#[test]
fn run_for_which_no_spot_machine_would_do_waits_and_says_why() {
    simulate(async |clock: Arc<VirtualClock>| {
        let scheduled = Scheduled::new(clock.clone(), QUICK, |record| {
            record.schedule.only_while_spot_under = Some(usd("1"));
            record.spec.machine.gpus.count = 8;
        })
        .await;
        *scheduled.world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
        scheduled.daemon(scheduled.world.controller(), 70).await;
        assert_eq!(at(&scheduled.runs().await), Vec::<String>::new());
        let why = scheduled.dir.waiting().await.unwrap().unwrap().why;
        let said = "it waits for spot under $1.00/h, and no machine of that market would do: no offer fits: t in ws-test has 0 GPUs";
        assert!(why.starts_with(said), "{why}");
    });
}
