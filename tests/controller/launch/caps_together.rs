//! One daemon that drives several job roots holds what all of them spend against the caps of its
//! user.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lamplighter::controller::{Controller, submit};
use lamplighter::job::JobOutcome;
use lamplighter::market::UsdPerHour;
use lamplighter::policy::purchase::spending_cap::Caps;
use lamplighter::ports::{Clock, Store, Turn, Turns};

use crate::World;
use crate::cloud::Life;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const HALF_AN_HOUR: Life = Life::Ends { secs: 1800, code: 0 };

/// Room for one machine: each costs $1.23 an hour.
const CAPS: &str = "2";

fn caps() -> Caps {
    Caps { usd_per_hour: Some(UsdPerHour::new(CAPS.parse().expect("dollars"))), usd_per_day: None }
}

/// Turns of this process.
#[derive(Clone, Default)]
struct Here(Arc<tokio::sync::Mutex<()>>);

#[async_trait]
impl Turns for Here {
    async fn take(&self, _patience: Duration) -> Option<Turn> {
        Some(Box::new(Arc::clone(&self.0).lock_owned().await))
    }
}

/// The two desks of one daemon.
fn desks(one: &World, other: &World) -> [Controller; 2] {
    let mut desks = [one, other]
        .map(|world| world.controller().capped(caps()).taking_turns(Arc::new(Here::default())));
    let [first, second] = &mut desks;
    Controller::count_together(&mut [first, second]);
    desks
}

async fn drive(desks: &[Controller; 2], clock: &VirtualClock, time: Duration) {
    tokio::select! {
        ((), ()) = async { tokio::join!(desks[0].drive_all(&[], |_| {}), desks[1].drive_all(&[], |_| {})) } => {}
        () = clock.sleep(time) => {}
    }
}

#[test]
fn two_job_roots_of_one_daemon_spend_a_cap_once() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (one, other) = (
            World::new(clock.clone(), &[HALF_AN_HOUR]).await,
            World::new(clock.clone(), &[HALF_AN_HOUR]).await,
        );
        // As a bucket is: between the look at what is spent and the plan that is written down, the
        // other looks too.
        for world in [&one, &other] {
            world.store.fault("", Fault::Slow(Duration::from_millis(40)), None);
        }
        let desks = desks(&one, &other);
        let looked = async {
            let (mut most, mut said) = (0, None);
            for _ in 0..200 {
                clock.sleep(Duration::from_secs(30)).await;
                most = most.max(one.cloud.running().len() + other.cloud.running().len());
                said = said.or(one.dir.waiting().await.unwrap()).or(other
                    .dir
                    .waiting()
                    .await
                    .unwrap());
            }
            (most, said.unwrap().why)
        };
        let ((), (most, why)) =
            tokio::join!(drive(&desks, &clock, Duration::from_secs(2 * 3600)), looked);
        assert_eq!(most, 1, "two machines cost more than the cap");
        assert_eq!(
            why,
            "the cap of $2.00 an hour: 1 machine runs at $1.23/h, and this one costs up to $1.23/h (2 job roots are counted)"
        );
        for world in [&one, &other] {
            assert_eq!(
                world.dir.receipt().await.unwrap().expect("each has its turn").outcome,
                JobOutcome::Succeeded
            );
        }
    });
}

/// What one root does where it does not answer itself: what nobody knows is not spent.
#[test]
fn launch_waits_while_another_job_root_has_never_answered() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (one, other) = (
            World::new(clock.clone(), &[HALF_AN_HOUR]).await,
            World::unmade(clock.clone(), &[]).await,
        );
        other.store.fault("", Fault::Down, None);
        let desks = desks(&one, &other);
        let looked = async {
            clock.sleep(Duration::from_secs(1200)).await;
            assert_eq!(one.cloud.launches(), 0);
            let why = one.dir.waiting().await.unwrap().unwrap().why;
            assert!(
                why.starts_with(
                    "memory:/// to answer, whose spending counts under the same caps: "
                ),
                "{why}"
            );
            other.store.mend();
        };
        tokio::join!(drive(&desks, &clock, Duration::from_secs(2 * 3600)), looked);
        assert_eq!(
            one.dir.receipt().await.unwrap().expect("it answers again").outcome,
            JobOutcome::Succeeded
        );
    });
}

/// Also what was launched there after it was read last.
#[test]
fn job_root_that_is_silent_counts_as_it_was_last_known() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (one, other) = (
            World::unmade(clock.clone(), &[HALF_AN_HOUR]).await,
            World::new(clock.clone(), &[HALF_AN_HOUR]).await,
        );
        let desks = desks(&one, &other);
        let looked = async {
            clock.sleep(Duration::from_secs(300)).await;
            assert_eq!(other.cloud.running().len(), 1);
            // Its agent writes on: what a look at the money reads first is away.
            other.store.fault("receipt.json", Fault::Down, None);
            submit(&(one.store.clone() as Arc<dyn Store>), &one.spec, None).await.unwrap();
            clock.sleep(Duration::from_secs(3600)).await;
            assert_eq!(one.cloud.launches(), 0, "nobody has seen the other machine end");
            let why = one.dir.waiting().await.unwrap().unwrap().why;
            assert!(why.ends_with("(2 job roots are counted, memory:/// as last known)"), "{why}");
            other.store.mend();
        };
        tokio::join!(drive(&desks, &clock, Duration::from_secs(2 * 3600)), looked);
        for world in [&one, &other] {
            assert_eq!(
                world.dir.receipt().await.unwrap().expect("it answers again").outcome,
                JobOutcome::Succeeded
            );
        }
    });
}
