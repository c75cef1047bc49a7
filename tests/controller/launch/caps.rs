//! What all jobs together may cost is asked before each launch.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::submit;
use lamplighter::job::{EndedBecause, JobOutcome, Plan, Receipt};
use lamplighter::jobdir::JobDir;
use lamplighter::market::UsdPerHour;
use lamplighter::policy::purchase::spending_cap::Caps;
use lamplighter::ports::{Clock, Created, Store};

use crate::cloud::Life;
use crate::{World, spec};
use lamp_test_support::counting_store::CountingStore;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

async fn second(world: &World) -> JobDir {
    let mut spec = spec(world.clock.now());
    spec.job = "later-222222".parse().unwrap();
    submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap()
}

fn per_hour(usd: &str) -> Caps {
    Caps { usd_per_hour: Some(UsdPerHour::new(usd.parse().unwrap())), usd_per_day: None }
}

const HALF_AN_HOUR: Life = Life::Ends { secs: 1800, code: 0 };

#[test]
fn a_launch_waits_until_the_others_leave_room_and_says_why() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[HALF_AN_HOUR]).await;
        let later = second(&world).await;
        // Each costs $1.23 an hour.
        let daemon = world.controller().capped(per_hour("2"));
        let driven = async {
            tokio::select! {
                () = daemon.drive_all(&[], |_| {}) => {}
                () = clock.sleep(Duration::from_secs(2 * 3600)) => {}
            }
        };
        let looked = async {
            clock.sleep(Duration::from_secs(600)).await;
            assert_eq!(world.cloud.running().len(), 1);
            later.waiting().await.unwrap().or(world.dir.waiting().await.unwrap()).unwrap()
        };
        let ((), waiting) = tokio::join!(driven, looked);
        assert_eq!(
            waiting.why,
            "the cap of $2.00 an hour: 1 machine runs at $1.23/h, and this one costs up to $1.23/h"
        );
        let (first, second) =
            (world.dir.receipt().await.unwrap().unwrap(), later.receipt().await.unwrap().unwrap());
        assert_eq!((first.outcome, second.outcome), (JobOutcome::Succeeded, JobOutcome::Succeeded));
        let began = |receipt: &lamplighter::job::Receipt| receipt.attempts[0].started.unwrap();
        let (one, other) =
            if began(&first) < began(&second) { (&first, &second) } else { (&second, &first) };
        let pause = began(other).duration_since(one.ended);
        assert!(
            !pause.is_negative() && pause <= Duration::from_secs(60).try_into().unwrap(),
            "soon after the first has ended: {pause}"
        );
    });
}

#[test]
fn two_dozen_jobs_at_once_pass_a_cap_one_after_the_other() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[HALF_AN_HOUR]).await;
        // So many that they are driven at once.
        for name in 'a'..='w' {
            let mut spec = spec(world.clock.now());
            spec.job = format!("{name}-222222").parse().unwrap();
            submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap();
        }
        // As a bucket is: between the look at what is spent and the plan that is written down, the
        // others look too.
        world.store.fault("", Fault::Slow(Duration::from_millis(40)), None);
        let daemon = world.controller().capped(per_hour("2.5"));
        let driven = async {
            tokio::select! {
                () = daemon.drive_all(&[], |_| {}) => {}
                () = clock.sleep(Duration::from_secs(3600)) => {}
            }
        };
        let looked = async {
            let mut most = 0;
            for _ in 0..110 {
                clock.sleep(Duration::from_secs(30)).await;
                most = most.max(world.cloud.running().len());
            }
            most
        };
        let ((), most) = tokio::join!(driven, looked);
        // Each costs $1.23 an hour: two fit.
        assert_eq!(most, 2);
    });
}

#[test]
fn day_that_is_spent_holds_back_until_it_has_rolled_on() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[HALF_AN_HOUR]).await;
        // Half an hour is $0.62, and one hour more is counted ahead: the first fits, the second
        // does not.
        let caps = Caps { usd_per_hour: None, usd_per_day: Some("1.5".parse().unwrap()) };
        let first = world.controller().capped(caps).drive(world.job()).await.unwrap();
        assert_eq!(first.outcome, JobOutcome::Succeeded);
        let later = second(&world).await;
        let controller = world.controller().capped(caps);
        let driven = controller.drive(later.job());
        let looked = async {
            clock.sleep(Duration::from_secs(3600)).await;
            later.waiting().await.unwrap().unwrap().why
        };
        let (ended, why) = tokio::join!(driven, looked);
        assert_eq!(
            why,
            "the cap of $1.50 a day: $0.62 were spent in 24 hours, no machine runs, and this one costs up to $1.23/h"
        );
        let pause = ended.unwrap().attempts[0].started.unwrap().duration_since(first.ended);
        let hours = pause.as_secs() as f64 / 3600.0;
        // What is left of the first half hour must leave $1.23 of the $1.50.
        assert!(hours > 23.0 && hours < 24.1, "{hours}");
    });
}

#[test]
fn what_costs_nothing_and_what_is_anothers_is_not_counted() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::with(clock.clone(), &[Life::Ends { secs: 5, code: 0 }], |spec| {
            spec.machine.usd_per_hour = UsdPerHour::ZERO
        })
        .await;
        let receipt = world.controller().capped(per_hour("0.01")).drive(world.job()).await.unwrap();
        assert_eq!(receipt.outcome, JobOutcome::Succeeded);
    });
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[HALF_AN_HOUR]).await;
        world.controller().drive(world.job()).await.unwrap();
        let theirs = world.controller_of("you", world.store.clone(), world.port());
        assert_eq!(theirs.spending().await.unwrap().usd_last_day.micros(), 0);
        assert_eq!(world.controller().spending().await.unwrap().usd_last_day, world.cloud.bill());
    });
}

/// A launch under a cap reads no job that ended before the day of the cap. One process finds these
/// jobs and records them for the next ones.
#[test]
fn jobs_that_ended_long_ago_are_read_once_for_all_processes() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        let two_days_ago = clock.now() - Duration::from_secs(48 * 3600);
        for number in 0..40 {
            let mut spec = spec(two_days_ago);
            spec.job = format!("old{number}-222222").parse().unwrap();
            let dir = submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap();
            let end = (EndedBecause::UserStopped, "stopped".to_owned());
            let receipt = Receipt::build(
                spec.job.clone(),
                "old".into(),
                two_days_ago,
                two_days_ago,
                end,
                &[],
            );
            assert_eq!(dir.create_receipt(&receipt).await.unwrap(), Created::New);
        }
        let counting = CountingStore::new(world.store.clone());
        let process = || world.controller_on(counting.clone(), world.port()).capped(per_hour("2"));
        let receipts = || {
            counting
                .take()
                .iter()
                .filter(|((act, record), _)| *act == "get" && record == "receipt.json")
                .map(|(_, count)| *count)
                .sum::<u32>()
        };
        assert_eq!(process().spending().await.unwrap(), process().spending().await.unwrap());
        assert_eq!(receipts(), 2 * 41, "who only looks leaves no word");
        process().drive(world.job()).await.unwrap();
        assert!(receipts() >= 41);
        // The job that has just ended still counts.
        let spent = process().spending().await.unwrap();
        assert_eq!((receipts(), spent.usd_last_day), (1, world.cloud.bill()));
        // And it goes on without that word, or with one that nobody can read.
        world.store.put("jobs-over.json", "{".into()).await.unwrap();
        assert_eq!(process().spending().await.unwrap(), spent);
        assert_eq!(receipts(), 41);
    });
}

/// What a newer version has left is not understood, and not written over.
#[test]
fn newer_record_of_ended_jobs_is_neither_trusted_nor_touched() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        for name in 'a'..='z' {
            let mut spec = spec(world.clock.now());
            spec.job = format!("{name}-222222").parse().unwrap();
            let dir = submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap();
            let receipt = Receipt::build(
                spec.job.clone(),
                "old".into(),
                spec.created,
                spec.created,
                (EndedBecause::Succeeded, "done".into()),
                &[],
            );
            assert_eq!(dir.create_receipt(&receipt).await.unwrap(), Created::New);
        }
        clock.sleep(Duration::from_secs(2 * 86_400)).await;
        let newer = r#"{"format": 2, "jobs": {"digits": "of another shape"}}"#;
        world.store.put("jobs-over.json", newer.into()).await.unwrap();
        let receipt = world.controller().capped(per_hour("2")).drive(world.job()).await.unwrap();
        assert_eq!(receipt.outcome, JobOutcome::Succeeded);
        assert_eq!(
            world.store.get("jobs-over.json").await.unwrap().as_deref(),
            Some(newer.as_bytes())
        );
    });
}

/// A spot price may rise to the bid: what runs counts with it for whoever launches next.
#[test]
fn spot_machine_that_runs_counts_at_its_bid() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::unmade(clock.clone(), &[HALF_AN_HOUR]).await;
        let mut plan = world.controller().first_plan(&world.spec).await.unwrap().plan;
        submit(&(world.store.clone() as Arc<dyn Store>), &world.spec, None).await.unwrap();
        plan.bid = Some(UsdPerHour::new("1.9".parse().unwrap()));
        assert_eq!(world.dir.create_plan(&plan).await.unwrap(), Created::New);
        let spending = world.controller().spending().await.unwrap();
        assert_eq!((spending.machines, Some(spending.usd_per_hour)), (1, plan.bid));
        // At the prices of now, $1.23 each, both would fit.
        let next = Plan { bid: None, ..plan };
        let reason = world.controller().capped(per_hour("3")).cap_on(&next).await.unwrap().unwrap();
        assert_eq!(
            reason.text,
            "the cap of $3.00 an hour: 1 machine runs at $1.90/h, and this one costs up to $1.23/h"
        );
    });
}
