//! A machine that says nothing, and of which the cloud says that its host fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lamplighter::job::EndedBecause;
use lamplighter::market::Region;
use lamplighter::ports::{Clock, Cloud, CloudError};

use crate::World;
use crate::cloud::Life;
use crate::cloud_wrappers::before_the_cloud;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Checks {
    /// They fail from the beginning.
    Fail,
    /// As a role that is older than this question.
    Denied,
    Hang,
}

/// Before the false cloud: what it says of the hosts of all machines.
struct Hosts {
    inner: Arc<dyn Cloud>,
    world: Arc<crate::FakeCloud>,
    checks: Checks,
    asked: AtomicU32,
}

before_the_cloud!(Hosts passes on [regions supply launch describe terminate interrupt raise_kill_at release] {
    async fn failing_hosts(&self, _: &Region) -> Result<BTreeSet<String>, CloudError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.checks {
            Checks::Fail => Ok(self.world.running().into_iter().collect()),
            Checks::Denied => Err(CloudError::Denied { act: "read the checks of hosts".into(), cause: "not allowed".into() }),
            Checks::Hang => std::future::pending().await,
        }
    }
});

/// How long its first machine billed, and how often the cloud was asked about hosts.
async fn life(
    clock: Arc<VirtualClock>,
    first: Life,
    checks: Checks,
) -> (Vec<EndedBecause>, f64, u32) {
    let world = World::new(clock, &[first, Life::Ends { secs: 5, code: 0 }]).await;
    let cloud = Arc::new(Hosts {
        inner: world.port(),
        world: world.cloud.clone(),
        checks,
        asked: AtomicU32::new(0),
    });
    let receipt =
        world.controller_on(world.store.clone(), cloud.clone()).drive(world.job()).await.unwrap();
    world.check(&receipt).await;
    let because = receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
    (because, receipt.attempts[0].billed_seconds, cloud.asked.load(Ordering::Relaxed))
}

#[test]
fn machine_on_dead_host_is_given_up_in_15_min_and_job_goes_on() {
    let lost = vec![EndedBecause::Lost, EndedBecause::Succeeded];
    simulate(async |clock: Arc<VirtualClock>| {
        let began = clock.mono();
        let (because, billed, asked) = life(clock.clone(), Life::FallsSilent, Checks::Fail).await;
        assert_eq!(because, lost);
        assert!((600.0..900.0).contains(&billed), "{billed} s of {:?}", clock.mono() - began);
        assert!((10..=14).contains(&asked), "once a minute: {asked}");
    });
    for checks in [Checks::Denied, Checks::Hang] {
        simulate(async |clock: Arc<VirtualClock>| {
            let (because, billed, _) = life(clock, Life::FallsSilent, checks).await;
            assert_eq!(because, lost);
            assert!(
                (1800.0..1900.0).contains(&billed),
                "{checks:?}: unknown is not dead: {billed}"
            );
        });
    }
}
