//! A cap that is written while a daemon runs holds from the next launch on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lamplighter::controller::{CapsInForce, submit};
use lamplighter::job::JobOutcome;
use lamplighter::market::UsdPerHour;
use lamplighter::policy::cap::Caps;
use lamplighter::ports::{Clock, Store};

use super::cloud::Life;
use super::support::virtual_clock::{VirtualClock, simulate};
use super::{World, spec};

const AN_HOUR: Life = Life::Ends { secs: 3600, code: 0 };

fn per_hour(usd: &str) -> Caps {
    Caps { usd_per_hour: Some(UsdPerHour::new(usd.parse().expect("dollars"))), usd_per_day: None }
}

/// Each machine costs $1.23 an hour.
#[test]
fn a_cap_that_is_written_while_a_daemon_runs_holds_at_the_next_launch() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[AN_HOUR]).await;
        let says = Arc::new(Mutex::new(Ok(Caps::default())));
        let read = Arc::clone(&says);
        let in_force = CapsInForce::read_by(Caps::default(), move || read.lock().expect("nobody panics with it").clone());
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
            let later = submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.expect("the store answers");
            clock.sleep(Duration::from_secs(300)).await;
            let why = later.waiting().await.expect("the store answers").expect("it waits").why;
            assert_eq!(why, "the cap of $2.00 an hour: 1 machine runs at $1.23/h, and this one costs up to $1.23/h");
            say(Err("it is half written".into()));
            clock.sleep(Duration::from_secs(300)).await;
            assert_eq!(world.cloud.running().len(), 1, "what was read last holds");
            say(Ok(per_hour("3")));
            clock.sleep(Duration::from_secs(300)).await;
            assert_eq!(world.cloud.running().len(), 2, "a higher one lets it through");
            later
        };
        let ((), later) = tokio::join!(driven, looked);
        assert_eq!(later.receipt().await.expect("the store answers").expect("it has ended").outcome, JobOutcome::Succeeded);
    });
}
