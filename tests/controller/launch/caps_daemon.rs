//! A cap that is written while a daemon runs holds from the next launch on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lamplighter::controller::{CapsInForce, submit};
use lamplighter::job::JobOutcome;
use lamplighter::market::UsdPerHour;
use lamplighter::policy::purchase::spending_cap::Caps;
use lamplighter::ports::{Clock, Store, Turn, Turns};

use crate::cloud::Life;
use crate::{World, spec};
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const AN_HOUR: Life = Life::Ends { secs: 3600, code: 0 };

fn per_hour(usd: &str) -> Caps {
    Caps { usd_per_hour: Some(UsdPerHour::new(usd.parse().expect("dollars"))), usd_per_day: None }
}

/// Each machine costs $1.23 an hour.
#[test]
fn cap_written_while_a_daemon_runs_holds_at_the_next_launch() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[AN_HOUR]).await;
        let says = Arc::new(Mutex::new(Ok(Caps::default())));
        let read = Arc::clone(&says);
        let in_force = CapsInForce::read_by(Caps::default(), move || {
            read.lock().expect("nobody panics with it").clone()
        });
        let daemon = world.controller().capped_by(Arc::new(in_force));
        let say = |said: Result<Caps, String>| *says.lock().expect("nobody panics with it") = said;
        let driven = async {
            tokio::select! {
                () = daemon.drive_all(&[], |_| {}) => {}
                () = clock.sleep(Duration::from_secs(3 * 3600)) => {}
            }
        };
        let looked = async {
            clock.sleep(Duration::from_secs(300)).await;
            assert_eq!(world.cloud.running().len(), 1, "there was no cap");
            say(Ok(per_hour("2")));
            let mut spec = spec(world.clock.now());
            spec.job = "later-222222".parse().expect("an id");
            let later = submit(&(world.store.clone() as Arc<dyn Store>), &spec, None)
                .await
                .expect("the store answers");
            clock.sleep(Duration::from_secs(300)).await;
            let why = later.waiting().await.expect("the store answers").expect("it waits").why;
            assert_eq!(
                why,
                "the cap of $2.00 an hour: 1 machine runs at $1.23/h, and this one costs up to $1.23/h"
            );
            say(Err("it is half written".into()));
            clock.sleep(Duration::from_secs(300)).await;
            assert_eq!(world.cloud.running().len(), 1, "what was read last holds");
            say(Ok(per_hour("3")));
            clock.sleep(Duration::from_secs(300)).await;
            assert_eq!(world.cloud.running().len(), 2, "a higher one lets it through");
            later
        };
        let ((), later) = tokio::join!(driven, looked);
        assert_eq!(
            later.receipt().await.expect("the store answers").expect("it has ended").outcome,
            JobOutcome::Succeeded
        );
    });
}

/// Nobody else launches.
struct Alone;

#[async_trait::async_trait]
impl Turns for Alone {
    async fn take(&self, _: Duration) -> Option<Turn> {
        Some(Box::new(()))
    }
}

/// What is said before a launch goes by the start's; a turn may have been waited for.
#[test]
fn launch_reads_the_caps_once_and_once_more_after_its_turn() {
    simulate(async |clock: Arc<VirtualClock>| {
        for (caps, takes_turns, reads) in
            [(Caps::default(), true, 1), (per_hour("9"), false, 1), (per_hour("9"), true, 2)]
        {
            let world = World::unmade(clock.clone(), &[AN_HOUR]).await;
            let read = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&read);
            let in_force = CapsInForce::read_by(caps, move || {
                *counted.lock().expect("nobody panics with it") += 1;
                Ok(caps)
            });
            let mut controller = world.controller().capped_by(Arc::new(in_force));
            if takes_turns {
                controller = controller.taking_turns(Arc::new(Alone));
            }
            let planned = controller.first_plan(&world.spec).await.expect("a plan");
            assert_eq!(controller.cap_on(&planned.plan).await.expect("the store answers"), None);
            assert_eq!(
                *read.lock().expect("nobody panics with it"),
                0,
                "the process has just begun"
            );
            let (_, begun) =
                controller.begin(&world.dir, &world.spec, planned).await.expect("made");
            begun.expect("launched");
            assert_eq!(
                (world.cloud.launches(), *read.lock().expect("nobody panics with it")),
                (1, reads),
                "{caps:?} {takes_turns}"
            );
        }
    });
}
