//! `market = "auto"`: spot capacity comes and goes, and the job ends in time for less.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{
    AttemptNo, CheckpointSpec, EndedBecause, JobOutcome, MarketChoice, Receipt, Wish,
};
use lamplighter::jobdir::{decode, layout};
use lamplighter::market::{self, Market, Span};
use lamplighter::policy::market::pool_history::Pool;
use lamplighter::ports::{Clock, Store};

use crate::World;
use crate::cloud::Life;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const HOUR: Duration = Duration::from_secs(3600);

fn hours(hours: f64) -> Duration {
    HOUR.mul_f64(hours)
}

/// A job of so many hours that must end in so many, on machines that start for five minutes.
pub(crate) async fn world(
    clock: Arc<VirtualClock>,
    work: f64,
    deadline: Option<f64>,
    gone: &[(f64, f64)],
) -> World {
    let by = deadline.map(|deadline| clock.now() + hours(deadline));
    let world = World::with(clock.clone(), &[Life::Works { start_secs: 300 }], |spec| {
        spec.machine.cloud = market::CloudKind::Aws;
        spec.machine.market = MarketChoice::Auto;
        spec.limits.deadline = by;
        spec.limits.work = Some(Span::from_duration(hours(work)));
        let (interval, grace) = (Span::from_secs(600), Span::from_secs(60));
        spec.checkpoint =
            Some(CheckpointSpec { path: "checkpoints".into(), interval, signal: None, grace });
    })
    .await;
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    let base = clock.mono();
    let mut market = world.cloud.market.lock().unwrap();
    market.work = hours(work);
    market.gone = gone.iter().map(|(from, to)| (base + hours(*from), base + hours(*to))).collect();
    drop(market);
    world
}

pub(crate) fn lives(receipt: &Receipt) -> Vec<(Market, EndedBecause)> {
    let had = receipt.attempts.iter().filter(|attempt| attempt.instance.is_some());
    had.map(|attempt| (attempt.market, attempt.ended_because)).collect()
}

async fn verdicts(world: &World) -> Vec<String> {
    let log = world.dir.market().await.unwrap().expect("decisions are kept");
    log.decisions.into_iter().map(|reason| reason.verdict).collect()
}

async fn pool(world: &World) -> Pool {
    let key = layout::pool("ws-test", "t");
    decode(&key, &world.store.get(&key).await.unwrap().expect("what was learned is kept")).unwrap()
}

#[test]
fn with_capacity_the_whole_job_is_of_the_spot_market() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = world(clock.clone(), 5.0, Some(8.0), &[]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(lives(&receipt), [(Market::Spot, EndedBecause::Succeeded)]);
        assert_eq!(verdicts(&world).await, ["spot", "stay"]);
        let plan = world.dir.plan(AttemptNo::FIRST).await.unwrap().unwrap();
        let why =
            plan.reasons.iter().find(|reason| reason.starts_with("a spot machine: ")).unwrap();
        assert!(why.contains("5.0 h of work") && why.contains("with spot now"), "{why}");
    });
}

#[test]
fn job_without_capacity_waits_and_is_in_time_on_demand() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = world(clock.clone(), 3.0, Some(6.0), &[(0.0, 24.0)]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        let lives = lives(&receipt);
        assert!(lives.iter().all(|(market, _)| *market == Market::OnDemand), "{lives:?}");
        assert_eq!(lives.last().map(|last| last.1), Some(EndedBecause::Succeeded));
        assert!(clock.mono() < hours(6.0), "it ended after {:?}", clock.mono());
        let began = receipt.attempts.iter().find_map(|attempt| attempt.started).unwrap();
        assert!(began.duration_since(world.spec.created).as_secs_f64() > 600.0, "it waited");
        assert!(verdicts(&world).await.contains(&"wait".to_owned()));
        assert!(
            world
                .dir
                .waiting()
                .await
                .unwrap()
                .unwrap()
                .why
                .starts_with("a cheaper machine than one on demand: ")
        );
        assert!(
            pool(&world).await.spells.gone.factor() < 1.0,
            "this zone is empty for longer than others"
        );
    });
}

#[test]
fn interrupted_job_takes_the_cheapest_and_the_pool_is_learned() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = world(clock.clone(), 6.0, Some(12.0), &[(2.0, 3.0)]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        let lives = lives(&receipt);
        assert_eq!(lives.first(), Some(&(Market::Spot, EndedBecause::Interrupted)));
        assert_eq!(lives.last().map(|last| last.1), Some(EndedBecause::Succeeded));
        assert!(clock.mono() < hours(12.0));
        let pool = pool(&world).await;
        // The start of five minutes, by beats of a minute.
        assert!(
            pool.starts.iter().all(|start| (300..450).contains(&start.duration().as_secs())),
            "{:?}",
            pool.starts
        );
        assert_eq!(pool.starts.len(), lives.len());
    });
}

#[test]
fn job_on_demand_moves_back_to_spot_with_a_checkpoint() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = world(clock.clone(), 20.0, Some(21.5), &[(0.0, 0.7)]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        let lives = lives(&receipt);
        assert_eq!(lives[0], (Market::OnDemand, EndedBecause::Moved), "{lives:?}");
        assert!(lives[1..].iter().any(|(market, _)| *market == Market::Spot), "{lives:?}");
        assert_eq!(
            (receipt.outcome, receipt.because),
            (JobOutcome::Succeeded, Some(EndedBecause::Succeeded))
        );
        assert!(clock.mono() < hours(21.5));
        let moves: Vec<Wish> =
            world.dir.requests().await.unwrap().into_iter().map(|request| request.wish).collect();
        assert_eq!(
            moves[0],
            Wish::Move { attempt: AttemptNo::new(lives_no(&receipt)), to: Market::Spot }
        );
    });
}

/// The number of the first attempt that had a machine.
fn lives_no(receipt: &Receipt) -> u32 {
    receipt.attempts.iter().find(|attempt| attempt.instance.is_some()).unwrap().attempt.number()
}

#[test]
fn no_capacity_that_comes_and_goes_makes_it_late() {
    // As an adversary would: there for a start and a little more, then gone.
    for (there, gone) in [(0.1, 0.1), (0.3, 0.5), (0.7, 0.2)] {
        for rude in [false, true] {
            simulate(async |clock: Arc<VirtualClock>| {
                let spells: Vec<(f64, f64)> = (0..200)
                    .map(|n| {
                        (f64::from(n) * (there + gone) + there, f64::from(n + 1) * (there + gone))
                    })
                    .collect();
                let world = world(clock.clone(), 3.0, Some(4.5), &spells).await;
                world.cloud.market.lock().unwrap().rude = rude;
                let receipt = world.drive().await;
                world.check(&receipt).await;
                let name = format!("there for {there} h, gone for {gone} h, rude: {rude}");
                assert_eq!(receipt.outcome, JobOutcome::Succeeded, "{name}: {}", receipt.reason);
                assert!(clock.mono() < hours(4.5), "{name}: it ended after {:?}", clock.mono());
            });
        }
    }
}

#[test]
fn without_a_deadline_it_waits_for_spot() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = world(clock.clone(), 4.0, None, &[(0.0, 5.0)]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert!(
            lives(&receipt).iter().all(|(market, _)| *market == Market::Spot),
            "{:?}",
            lives(&receipt)
        );
        assert!(clock.mono() > hours(9.0));
    });
}

#[test]
fn who_says_nothing_of_the_work_gets_on_demand() {
    simulate(async |clock: Arc<VirtualClock>| {
        let mut world = world(clock.clone(), 2.0, Some(5.0), &[]).await;
        world.spec.spec.limits.work = None;
        let planned = world.controller().first_plan(&world.spec).await.unwrap();
        assert_eq!(planned.plan.offer.market, Market::OnDemand);
        let why = planned.decided.unwrap().text;
        assert!(why.contains("how much work is left nobody has said yet"), "{why}");
    });
}
