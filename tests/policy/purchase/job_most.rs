//! The most of a whole job: what is said before its first machine holds for all that may follow.

use jiff::Timestamp;
use lamplighter::job::{AttemptRecord, EndedBecause, MarketChoice, Plan, Settled, Spec};
use lamplighter::market::{
    self, Market, Offer, PriceRule, Region, Span, Supply, Usd, UsdPerHour, Zone,
};
use lamplighter::policy::Wishes;
use lamplighter::policy::lifecycle::relaunch::{self, Next};
use lamplighter::policy::purchase::hard_end::STOP_GRACE;
use lamplighter::policy::purchase::job_cost_bound::{JobMost, MostBy};
use lamplighter::policy::purchase::placement::{Ask, Overheads, Placement, place};
use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{buys, now, plan, settled};

const HOUR: Span = Span::from_secs(3600);

fn price(dollars: f64) -> UsdPerHour {
    UsdPerHour::new(Usd::from_dollars(dollars).unwrap())
}

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

/// A machine that costs a dollar an hour on demand.
fn offer(zone: &str, dollars: f64, market: Market) -> Offer {
    let (region, zone) = (Region::new("r1"), Zone::new(zone));
    Offer {
        region,
        zone,
        vcpus: 4,
        market,
        price: price(dollars),
        on_demand: Some(price(1.0)),
        ..plan(market::CloudKind::Aws, 1, 0).offer
    }
}

fn wanted(change: impl FnOnce(&mut Spec)) -> Spec {
    let mut spec = buys().spec;
    (spec.machine.cloud, spec.machine.market) = (market::CloudKind::Aws, MarketChoice::Spot);
    change(&mut spec);
    spec
}

fn placed(
    spec: &Spec,
    offers: &[Offer],
    history: &[AttemptRecord],
    now: Timestamp,
) -> Option<Placement> {
    placed_of(spec, &Supply { offers: offers.to_vec(), ..Supply::default() }, history, now)
}

fn placed_of(
    spec: &Spec,
    supply: &Supply,
    history: &[AttemptRecord],
    now: Timestamp,
) -> Option<Placement> {
    let (overheads, budget_left) =
        (&Overheads::new(), relaunch::budget_left(spec, history, &Wishes::default()));
    place(&Ask {
        spec,
        supply,
        history,
        budget_left,
        more_time: Span::ZERO,
        overheads,
        prefers: None,
        widened: None,
        now,
    })
    .ok()
}

fn most(change: impl FnOnce(&mut Spec)) -> JobMost {
    placed(&wanted(change), &[offer("r1a", 0.4, Market::Spot)], &[], now()).unwrap().most_job
}

#[test]
fn least_of_budget_deadline_and_machine_count_bounds_the_job() {
    let run_time = |spec: &mut Spec| spec.limits.max_runtime = Some(Span::from_secs(3600 - 7 * 60));
    let alone = most(|spec| {
        run_time(spec);
        spec.interruptions.max = 0;
    });
    assert_eq!(
        alone,
        JobMost { usd: Some(usd("0.46")), by: MostBy::Machines, machines: Some(1), budget: None },
        "an hour at the bid"
    );
    // Each that follows may have to bid as much as a machine on demand costs.
    let again = most(|spec| {
        run_time(spec);
        spec.interruptions.max = 3;
    });
    assert_eq!(
        again,
        JobMost { usd: Some(usd("3.46")), by: MostBy::Machines, machines: Some(4), budget: None }
    );
    let priced = most(|spec| {
        run_time(spec);
        (spec.interruptions.max, spec.machine.max_price) = (3, PriceRule::Fixed(usd("0.5")));
    });
    assert_eq!(priced.usd, Some(usd("2")), "a price in dollars bounds each");
    // One whose price is above that now is had when it has come down, and never costs more.
    let fixed = wanted(|spec| {
        run_time(spec);
        (spec.interruptions.max, spec.machine.max_price) = (3, PriceRule::Fixed(usd("0.5")));
    });
    let beside = Offer { on_demand: Some(price(4.0)), ..offer("r1b", 3.0, Market::Spot) };
    let found = placed(&fixed, &[offer("r1a", 0.4, Market::Spot), beside], &[], now()).unwrap();
    assert_eq!(found.most_job.usd, Some(usd("2")), "a dearer one beside it changes nothing");
    let budget = most(|spec| {
        run_time(spec);
        spec.limits.budget = Some(usd("2.5"));
    });
    assert_eq!(
        budget,
        JobMost {
            usd: Some(usd("2.5")),
            by: MostBy::Budget,
            machines: Some(101),
            budget: Some(usd("2.5"))
        }
    );
    let deadline = most(|spec| {
        run_time(spec);
        spec.limits.deadline = Some(now() + std::time::Duration::from_secs(10 * 3600 - 7 * 60));
    });
    assert_eq!(
        deadline,
        JobMost { usd: Some(usd("10")), by: MostBy::Deadline, machines: Some(101), budget: None }
    );
    for nothing in [
        most(|spec| {
            run_time(spec);
            spec.interruptions.max = u32::MAX;
        }),
        most(|spec| {
            run_time(spec);
            spec.machine.market = MarketChoice::Auto;
        }),
    ] {
        assert_eq!(
            (nothing.usd, nothing.by),
            (None, MostBy::Nothing),
            "who moves between markets is not counted"
        );
    }
    let free = Offer {
        cloud: market::CloudKind::Local,
        market: Market::OnDemand,
        ..offer("ws", 0.0, Market::OnDemand)
    };
    let free =
        placed(&wanted(|spec| spec.machine.cloud = market::CloudKind::Local), &[free], &[], now())
            .unwrap();
    assert_eq!((free.most_job.usd, free.most_job.by), (Some(Usd::ZERO), MostBy::Free));
}

/// What cannot be bought at this moment may be when the next machine is.
#[test]
fn offer_above_its_bid_or_refused_counts_for_later_machines() {
    let spec = wanted(|spec| {
        (spec.limits.max_runtime, spec.interruptions.max) =
            (Some(Span::from_secs(3600 - 7 * 60)), 1)
    });
    let dear = Offer {
        instance_type: "u".into(),
        on_demand: Some(price(1.5)),
        ..offer("r1b", 0.7, Market::Spot)
    };
    let mut refused = settled(1, EndedBecause::LaunchFailed);
    (refused.instance, refused.billed_from, refused.billed_to) = (None, None, None);
    refused.refusal = Some(lamplighter::job::Refusal::Capacity);
    let history = [AttemptRecord {
        plan: Plan { offer: dear.clone(), ..plan(market::CloudKind::Aws, 1, 60) }.into(),
        settled: refused.into(),
    }];
    let both = [offer("r1a", 0.4, Market::Spot), dear];
    let now = placed(&spec, &both, &history, now()).unwrap();
    assert_eq!(
        (now.most_any_usd, now.most_job.usd),
        (Some(usd("0.46")), Some(usd("1.96"))),
        "an hour at 0.46, and one at 1.50"
    );
    // Where nobody knows what a quantile may come to, nothing is said to bound it.
    let untold = Offer { on_demand: None, ..offer("r1a", 0.4, Market::Spot) };
    let fixed = wanted(|spec| {
        (spec.limits.max_runtime, spec.machine.max_price) =
            (Some(HOUR), PriceRule::Fixed(usd("0.5")))
    });
    assert!(
        placed(&fixed, std::slice::from_ref(&untold), &[], self::now())
            .unwrap()
            .most_job
            .usd
            .is_some()
    );
    let point = market::PricePoint {
        at: self::now() - jiff::SignedDuration::from_hours(400),
        price: price(0.4),
    };
    let history = market::PriceHistory::new(
        untold.region.clone(),
        untold.zone.clone(),
        untold.instance_type.clone(),
        vec![point],
    );
    let quantile = wanted(|spec| {
        (spec.limits.max_runtime, spec.machine.max_price) =
            (Some(HOUR), "p95 of 14d".parse().unwrap())
    });
    let supply =
        Supply { offers: vec![untold.clone()], histories: vec![history], ..Supply::default() };
    assert_eq!(placed_of(&quantile, &supply, &[], self::now()).unwrap().most_job.usd, None);
}

/// A kept machine that is not to be had again is followed by any other, which this plan knows
/// nothing of.
#[test]
fn after_a_kept_machine_only_a_budget_bounds_the_job() {
    let most = |by: MostBy, machines: u32| JobMost {
        usd: Some(usd("5")),
        by,
        machines: Some(machines),
        budget: None,
    };
    let by = |by: MostBy, machines: u32| most(by, machines).after_a_kept_machine().usd;
    assert_eq!(
        [by(MostBy::Budget, 9), by(MostBy::Machines, 1), by(MostBy::Free, 9)],
        [Some(usd("5")); 3]
    );
    assert_eq!([by(MostBy::Machines, 9), by(MostBy::Deadline, 9)], [None; 2]);
    let budgeted =
        JobMost { budget: Some(usd("9")), ..most(MostBy::Deadline, 9) }.after_a_kept_machine();
    assert_eq!((budgeted.usd, budgeted.by), (Some(usd("9")), MostBy::Budget));
}

#[test]
fn machines_that_were_lost_are_counted() {
    let spec = wanted(|spec| (spec.limits.max_runtime, spec.interruptions.max) = (Some(HOUR), 3));
    let lost = |number: u32| AttemptRecord {
        plan: plan(market::CloudKind::Aws, number, 7200).into(),
        settled: settled(number, EndedBecause::Interrupted).into(),
    };
    let left = |history: &[AttemptRecord]| {
        placed(&spec, &[offer("r1a", 0.4, Market::Spot)], history, now()).unwrap().most_job.machines
    };
    assert_eq!(
        [left(&[]), left(&[lost(1)]), left(&[lost(1), lost(2), lost(3)])],
        [Some(4), Some(3), Some(1)]
    );
}

proptest! {
    /// Whatever the prices do below on demand, whenever machines are taken, and however long each
    /// lives: the whole job never costs more than was said before its first machine, reckoned with
    /// the most that each hour may be billed.
    #[test]
    fn no_course_of_interruptions_costs_more_than_was_said(
        courses in prop::collection::vec((prop::collection::vec(0.1..1.4_f64, 3), 0.0..1.2_f64, 0..7200_i64), 1..12),
        budget in prop::option::of(1..30_u32), hours in prop::option::of(1..10_u64), deadline in prop::option::of(1..40_i64),
        max in 0..6_u32, rule in 0..3_usize,
    ) {
        let spec = wanted(|spec| {
            spec.limits.budget = budget.map(|dollars| Usd::from_dollars(dollars.into()).unwrap());
            spec.limits.max_runtime = hours.map(|hours| Span::from_secs(hours * 3600));
            spec.limits.deadline = deadline.map(|hours| now() + jiff::SignedDuration::from_hours(hours));
            spec.interruptions.max = max;
            spec.machine.max_price = [PriceRule::Auto, PriceRule::Fixed(usd("0.8")), PriceRule::PercentOfOnDemand(60.0)][rule];
        });
        let (mut history, mut clock, mut first, mut total): (Vec<AttemptRecord>, _, Option<JobMost>, _) = (Vec::new(), now(), None, Usd::ZERO);
        for (prices, lives, pause) in courses {
            let Next::Attempt { number, not_before, .. } = relaunch::next(&spec, &history, &Wishes::default(), clock) else { break };
            clock = clock.max(not_before);
            let offers: Vec<Offer> = prices.iter().zip(["r1a", "r1b", "r1c"]).map(|(dollars, zone)| offer(zone, *dollars, Market::Spot)).collect();
            let Some(found) = placed(&spec, &offers, &history, clock) else {
                clock += jiff::SignedDuration::from_secs(pause);
                continue;
            };
            let said = *first.get_or_insert(found.most_job);
            prop_assert!(found.most_usd <= found.most_any_usd || found.most_any_usd.is_none());
            if let (Some(any), Some(job)) = (found.most_any_usd, found.most_job.usd) {
                prop_assert!(any <= job, "{any} of the next alone, {job} of the job");
            }
            // Without a hard end it lives three hours, and sometimes its whole life.
            let life = found.kill_at.map_or(std::time::Duration::from_secs(3 * 3600), |end| market::elapsed(clock, end) + STOP_GRACE);
            let life = life.mul_f64(lives.min(1.0));
            let cost = found.offer.hourly_at_most(found.bid).cost_of(life);
            total += cost;
            if let Some(most) = said.usd {
                prop_assert!(total <= most, "{total} of {most}, by {:?}", said.by);
            }
            let (from, to) = (clock, clock + jiff::SignedDuration::try_from(life).unwrap());
            let ended = Settled { usd: cost, billed_from: Some(from), billed_to: Some(to), ..settled(number.number(), EndedBecause::Interrupted) };
            let intent = Plan { offer: found.offer, bid: found.bid, created: from, ..plan(market::CloudKind::Aws, number.number(), 0) };
            history.push(AttemptRecord { plan: intent.into(), settled: ended.into() });
            clock = to + jiff::SignedDuration::from_secs(pause);
        }
    }
}
