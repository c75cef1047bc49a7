//! A spot price that moves while the machine runs: the receipt is by what was billed, and so is
//! what the next attempt may spend.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{EndedBecause, MarketChoice};
use lamplighter::market::{self, PriceRule, Usd, UsdPerHour, elapsed};
use lamplighter::ports::Clock;

use crate::World;
use crate::cloud::Life;
use crate::launch::spot_market::History;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const QUARTER: Duration = Duration::from_secs(900);

/// A tenth of a cent a second, so that no millisecond is rounded.
const PRICE: i64 = 3_600_000;
const BID: i64 = 9_000_000;
const BUDGET: i64 = 40_000_000;

fn usd(micros: i64) -> Usd {
    Usd::from_micros(micros)
}

/// The first machine falls silent and is ended after half an hour; the price doubles after a
/// quarter.
async fn world(clock: Arc<VirtualClock>, history: History) -> World {
    let world = World::with(
        clock.clone(),
        &[Life::FallsSilent, Life::Ends { secs: 600, code: 0 }],
        |spec| {
            (spec.machine.cloud, spec.machine.market) =
                (market::CloudKind::Aws, MarketChoice::Spot);
            spec.machine.max_price = PriceRule::Fixed(usd(BID));
            spec.machine.usd_per_hour = UsdPerHour::new(usd(PRICE));
            spec.limits.budget = Some(usd(BUDGET));
        },
    )
    .await;
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    {
        let (now, mut market) = (clock.now(), world.cloud.market.lock().unwrap());
        market.prices = vec![
            (now, UsdPerHour::new(usd(PRICE))),
            (now + QUARTER, UsdPerHour::new(usd(2 * PRICE))),
        ];
        market.history = history;
    }
    world
}

#[test]
fn price_change_is_in_the_receipt_and_the_next_attempt_limit() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = world(clock, History::Told).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        let [first, second] = &receipt.attempts[..] else { panic!("{receipt:?}") };
        assert_eq!(
            (first.ended_because, second.ended_because),
            (EndedBecause::Lost, EndedBecause::Succeeded)
        );
        assert!(!first.billed_estimated && !second.billed_estimated, "{receipt:?}");
        let planned =
            UsdPerHour::new(usd(PRICE)).cost_of(Duration::from_secs_f64(first.billed_seconds));
        assert!(
            first.usd > planned && first.usd.micros() > planned.micros() * 14 / 10,
            "{} for {planned} of its plan",
            first.usd
        );
        let plan = world.dir.plan(second.attempt).await.unwrap().unwrap();
        let left = usd(BUDGET) - first.usd;
        let (life, most) =
            (elapsed(plan.created, plan.kill_at.unwrap()), UsdPerHour::new(usd(BID)));
        assert!(
            most.cost_of(life) <= left,
            "{life:?} may cost {}, and {left} are left",
            most.cost_of(life)
        );
        assert!(
            most.cost_of(life + Duration::from_secs(180)) > left,
            "{life:?} leaves much of {left}"
        );
    });
}

#[test]
fn prices_that_nobody_tells_are_the_bid_and_hold_nothing_up() {
    for history in [History::Denied, History::Silent] {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = world(clock, history).await;
            let receipt = world.drive().await;
            let [first, second] = &receipt.attempts[..] else { panic!("{receipt:?}") };
            for attempt in [first, second] {
                let most = UsdPerHour::new(usd(BID))
                    .cost_of(Duration::from_secs_f64(attempt.billed_seconds));
                assert!(
                    attempt.billed_estimated && attempt.usd == most,
                    "{history:?}: {attempt:?}"
                );
            }
            assert!(receipt.total_usd > world.cloud.bill(), "{history:?}");
            let pause = elapsed(first.ended.unwrap(), second.started.unwrap());
            assert!(
                pause <= Duration::from_secs(120),
                "{history:?}: the next machine came {pause:?} later"
            );
        });
    }
}
