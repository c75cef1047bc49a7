//! What a spot machine is billed by: the prices of its time, or the most that they can have been.

use jiff::Timestamp;
use lamplighter::job::{EndedBecause, Plan, Settled};
use lamplighter::market::{
    CloudKind, Market, PriceHistory, PricePoint, Region, Span, Usd, UsdPerHour, Zone,
};
use lamplighter::policy::billing::billed_cost::{by_prices, moves_since};

use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{ago, attempt, settled};

const HOUR: u64 = 3600;

fn micros(micros: i64) -> UsdPerHour {
    UsdPerHour::new(Usd::from_micros(micros))
}

/// A spot machine of EC2 for so much an hour, with a hundredth of a dollar for its disk and its
/// address.
fn plan(price: UsdPerHour, bid: Option<UsdPerHour>) -> Plan {
    let mut plan = Plan::clone(&attempt(1, 7200).plan);
    (plan.offer.cloud, plan.offer.market, plan.bid) = (CloudKind::Aws, Market::Spot, bid);
    (plan.offer.price, plan.offer.extras, plan.offer.on_demand) = (price, micros(10_000), None);
    plan
}

/// It ran for so long until a minute ago, and was settled at the price of its plan.
fn ran(plan: &Plan, secs: u64) -> Settled {
    let billed = Span::from_secs(secs);
    let usd = plan.offer.hourly().cost_of(billed.duration());
    Settled {
        billed_from: Some(ago(60 + secs)),
        billed_to: Some(ago(60)),
        billed,
        usd,
        ..settled(1, EndedBecause::Succeeded)
    }
}

fn prices(points: &[(Timestamp, UsdPerHour)]) -> PriceHistory {
    let points = points.iter().map(|(at, price)| PricePoint { at: *at, price: *price });
    PriceHistory::new(Region::new("r"), Zone::new("z"), "t", points.collect())
}

#[test]
fn price_that_doubles_half_way_costs_half_as_much_again() {
    let price = micros(1_000_000);
    let plan = plan(price, Some(micros(3_000_000)));
    let at_plan = ran(&plan, 2 * HOUR);
    // It held since yesterday, and what came after the end was somebody else's.
    let moved = prices(&[
        (ago(80_000), price),
        (ago(60 + HOUR), micros(2_000_000)),
        (ago(30), micros(9_000_000)),
    ]);
    let paid = by_prices(&plan, &at_plan, Some(&moved));
    assert_eq!(
        (at_plan.usd.micros(), paid.usd.micros(), paid.billed_estimated),
        (2_020_000, 3_020_000, false)
    );
    assert_eq!(Settled { usd: at_plan.usd, ..paid }, at_plan, "nothing else of it changes");
}

#[test]
fn where_the_prices_are_not_known_it_is_the_bid_and_an_estimate() {
    let price = micros(1_000_000);
    let bidding = plan(price, Some(micros(3_000_000)));
    let late = prices(&[(ago(60 + HOUR), price)]);
    for (what, history) in [
        ("no answer", None),
        ("nothing", Some(prices(&[]))),
        ("not from the beginning on", Some(late)),
    ] {
        let most = by_prices(&bidding, &ran(&bidding, 2 * HOUR), history.as_ref());
        assert_eq!((most.usd.micros(), most.billed_estimated), (6_020_000, true), "{what}");
    }
    // Without a bid EC2 takes the price on demand for it.
    let mut unbid = plan(price, None);
    unbid.offer.on_demand = Some(micros(4_000_000));
    assert_eq!(by_prices(&unbid, &ran(&unbid, 2 * HOUR), None).usd.micros(), 8_020_000);
}

#[test]
fn what_is_not_billed_by_a_price_that_moves_stays_as_it_is() {
    let spot = plan(micros(1_000_000), Some(micros(3_000_000)));
    let same = |plan: &Plan, settled: &Settled| {
        moves_since(plan, settled).is_none() && by_prices(plan, settled, None) == *settled
    };
    let with = |change: fn(&mut Plan)| {
        let mut plan = spot.clone();
        change(&mut plan);
        plan
    };
    for other in [
        with(|plan| plan.offer.market = Market::OnDemand),
        with(|plan| plan.offer.cloud = CloudKind::Local),
    ] {
        assert!(same(&other, &ran(&other, HOUR)), "{:?}", other.offer);
    }
    let taken = |secs| Settled {
        cloud_reason: Some("Server.SpotInstanceTermination: no capacity".into()),
        ..ran(&spot, secs)
    };
    assert!(
        same(&spot, &taken(HOUR - 1)),
        "the cloud took it back within its first hour: it is free"
    );
    assert!(!same(&spot, &taken(HOUR)) && !same(&spot, &ran(&spot, HOUR - 1)));
    assert!(same(&spot, &Settled { usd: Usd::ZERO, ..ran(&spot, HOUR) }), "there was no machine");
}

proptest! {
    #[test]
    fn price_that_stands_still_costs_what_the_plan_said(price in 1i64..90_000_000, secs in 1u64..1_000_000, cut in 0u64..1_000_000) {
        let plan = plan(micros(price), Some(micros(price)));
        let at_plan = ran(&plan, secs);
        // The cloud may say the same price again at any moment.
        let still = prices(&[(ago(2_000_000), micros(price)), (ago(60 + cut), micros(price))]);
        prop_assert_eq!(by_prices(&plan, &at_plan, Some(&still)), at_plan);
    }

    #[test]
    fn spot_bill_lies_between_its_cheapest_price_and_its_bid(
        price in 1i64..90_000_000,
        above in 0i64..90_000_000,
        moves in proptest::collection::vec((0u64..200_000, 1i64..200_000_000), 0..8),
        secs in 1u64..100_000,
    ) {
        let plan = plan(micros(price), Some(micros(price + above)));
        let at_plan = ran(&plan, secs);
        let mut points = vec![(ago(1_000_000), micros(price))];
        points.extend(moves.iter().map(|(age, price)| (ago(*age), micros(*price))));
        let paid = by_prices(&plan, &at_plan, Some(&prices(&points)));
        let most = by_prices(&plan, &at_plan, None);
        let cheapest = points.iter().map(|(_, price)| *price).min().unwrap().per_hour() + plan.offer.extras.per_hour();
        prop_assert!(!paid.billed_estimated && most.billed_estimated);
        prop_assert!(paid.usd <= most.usd, "{:?} and {:?}", paid.usd, most.usd);
        prop_assert!(paid.usd >= UsdPerHour::new(cheapest).cost_of(at_plan.billed.duration()).min(most.usd));
    }
}
