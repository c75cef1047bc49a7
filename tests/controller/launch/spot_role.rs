//! An account without the role for spot machines: who may buy on demand does, and everybody is told
//! what makes the role.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lamplighter::job::{EndedBecause, JobOutcome, MarketChoice, Plan, Refusal};
use lamplighter::market::{self, Market};
use lamplighter::ports::{Cloud, CloudError, Notification, Notifier, NotifierError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use crate::launch::market::{lives, world};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// As EC2 refuses the first spot machine of an account whose role somebody else must make.
struct Roleless {
    inner: Arc<dyn Cloud>,
    asked: Mutex<Vec<Market>>,
}

fn roleless(world: &World) -> Arc<Roleless> {
    Arc::new(Roleless { inner: world.port(), asked: Mutex::default() })
}

before_the_cloud!(Roleless passes on [regions supply describe terminate interrupt raise_kill_at release] {
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        self.asked.lock().unwrap().push(plan.offer.market);
        if plan.offer.market == Market::Spot {
            let what = "this account, which has bought none yet: `aws iam create-service-linked-role` makes it".into();
            return Err(CloudError::NoCapacity { what, refusal: Refusal::SpotRole });
        }
        self.inner.launch(plan).await
    }
});

#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

#[async_trait]
impl Notifier for Ear {
    async fn tell(&self, told: &Notification) -> Result<(), NotifierError> {
        if told.kind == "attention" {
            self.0.lock().unwrap().push(told.text.clone());
        }
        Ok(())
    }
}

/// Its twin, `job_on_demand_moves_back_to_spot_with_a_checkpoint`, is moved as soon
/// as spot is there; without a deadline a job waits for spot as long as that takes.
#[test]
fn job_without_spot_role_buys_on_demand_and_never_moves_to_spot() {
    for deadline in [Some(21.5), None] {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = world(clock.clone(), 20.0, deadline, &[]).await;
            let (cloud, ear) = (roleless(&world), Arc::new(Ear::default()));
            let receipt = world
                .controller_on(world.store.clone(), cloud.clone())
                .notifying(ear.clone())
                .drive(world.job())
                .await
                .unwrap();
            world.check(&receipt).await;
            assert_eq!(receipt.outcome, JobOutcome::Succeeded, "{}", receipt.reason);
            assert_eq!(lives(&receipt), [(Market::OnDemand, EndedBecause::Succeeded)]);
            assert_eq!(
                *cloud.asked.lock().unwrap(),
                [Market::Spot, Market::OnDemand],
                "with {deadline:?} h for it"
            );
            let told = ear.0.lock().unwrap().clone();
            assert!(
                told.len() == 1
                    && told[0]
                        .starts_with("the role for spot machines is missing for this account"),
                "{told:?}"
            );
            assert!(
                told[0].contains("`aws iam create-service-linked-role`")
                    && told[0].contains("`lamp doctor` looks at the role"),
                "{told:?}"
            );
        });
    }
}

#[test]
fn job_that_may_only_buy_spot_has_failed_and_says_why() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::with(clock, &[Life::Ends { secs: 60, code: 0 }], |spec| {
            spec.machine.market = MarketChoice::Spot
        })
        .await;
        *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
        let (cloud, ear) = (roleless(&world), Arc::new(Ear::default()));
        let receipt = world
            .controller_on(world.store.clone(), cloud.clone())
            .notifying(ear.clone())
            .drive(world.job())
            .await
            .unwrap();
        world.check(&receipt).await;
        assert_eq!(
            (receipt.because, receipt.attempts.len()),
            (Some(EndedBecause::LaunchFailed), 1),
            "{receipt:?}"
        );
        assert!(
            receipt.reason.contains("the role for spot machines is missing"),
            "{}",
            receipt.reason
        );
        let told = ear.0.lock().unwrap().clone();
        assert!(
            told.len() == 1
                && told[0].starts_with(
                    "attempt 1 cannot be launched: the role for spot machines is missing"
                ),
            "{told:?}"
        );
    });
}
