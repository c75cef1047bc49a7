//! `[machine.speed]`: offers are ranked by what it takes to finish, or, where that is not known, by
//! what an hour of work costs.

use std::collections::BTreeMap;

use lamplighter::job::{AttemptRecord, EndedBecause, Outcome, Plan, Progress, Spec};
use lamplighter::market::{self, FallbackCost, Market, Offer, Span, Speeds, Supply, UsdPerHour};
use lamplighter::policy::market::remaining_work;
use lamplighter::policy::purchase::placement::{Ask, Overheads, Placement, place};
use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{buys, now, outcome, plan, settled};

const MODELS: [&str; 4] = ["A10G", "L4", "L40S", "T4"];

fn offer(kind: &str, model: &str, gpus: u32, micros: i64) -> Offer {
    let price = UsdPerHour::new(market::Usd::from_micros(micros));
    Offer {
        instance_type: kind.into(),
        gpu_model: Some(model.into()),
        gpus,
        market: Market::OnDemand,
        price,
        ..plan(market::CloudKind::Aws, 1, 0).offer
    }
}

fn speeds(said: &[(&str, f64)]) -> Speeds {
    Speeds::new(said.iter().map(|(name, speed)| ((*name).to_owned(), *speed)).collect())
}

fn placed(spec: &Spec, offers: &[Offer], history: &[AttemptRecord]) -> Placement {
    placed_with(spec, offers, history, &Overheads::new())
}

fn placed_with(
    spec: &Spec,
    offers: &[Offer],
    history: &[AttemptRecord],
    overheads: &Overheads,
) -> Placement {
    let supply = Supply { offers: offers.to_vec(), ..Supply::default() };
    let ask = Ask {
        spec,
        supply: &supply,
        history,
        budget_left: None,
        more_time: Span::ZERO,
        overheads,
        prefers: None,
        widened: None,
        now: now(),
    };
    place(&ask).expect("all of them fit")
}

fn order(placement: &Placement) -> Vec<String> {
    placement.ranking.iter().map(|ranked| ranked.instance_type.clone()).collect()
}

fn job(said: &[(&str, f64)], work: Option<&str>) -> Spec {
    let mut spec = buys().spec;
    spec.machine.speed = speeds(said);
    // Here it is about the order; how much dearer one may be is another page.
    spec.machine.fallback_cost = FallbackCost::Any;
    spec.limits.work = work.map(|work| work.parse().expect("a span"));
    spec
}

#[test]
fn cheapest_hour_of_work_is_taken_and_the_rest_is_reckoned() {
    let offers = [
        offer("g6.xlarge", "L4", 1, 800_000),
        offer("g5.xlarge", "A10G", 1, 1_000_000),
        offer("g5.12xlarge", "A10G", 4, 3_000_000),
    ];
    // Nobody says: the cheapest hour, and that they are taken to be alike.
    let alike = placed(&job(&[], None), &offers, &[]);
    assert_eq!(order(&alike), ["g6.xlarge", "g5.xlarge", "g5.12xlarge"]);
    let said = "A10G, L4 are taken to be equally fast for this work; `[machine.speed]` in the job file would say otherwise";
    assert!(alike.reasons.iter().any(|reason| reason == said), "{:?}", alike.reasons);
    assert_eq!(alike.ranking[0].usd_to_finish, None, "nobody said how much work it is");
    // Six hours on an A10G are ten on an L4.
    let known = placed(&job(&[("A10G", 1.0), ("L4", 0.6)], Some("6h")), &offers, &[]);
    assert_eq!(order(&known), ["g5.xlarge", "g6.xlarge", "g5.12xlarge"]);
    assert!(
        known.reasons[0].starts_with(
            "the one that is expected to finish for the least of 3 that fit, at $1.00/h"
        ),
        "{:?}",
        known.reasons
    );
    // Each with a start of ten minutes, which nobody has measured, and two between two machines.
    let usd: Vec<f64> =
        known.ranking.iter().map(|ranked| ranked.usd_to_finish.expect("known").dollars()).collect();
    for (usd, expected) in usd.iter().zip([6.0 + 0.2, 0.8 * (10.0 + 0.2), 3.0 * (6.0 + 0.2)]) {
        assert!((usd - expected).abs() < 1e-5, "{usd} {expected}");
    }
    let because = &known
        .rejected
        .iter()
        .find(|no| no.offer.instance_type == "g6.xlarge")
        .expect("it is named")
        .because;
    assert_eq!(because, "costs $0.80/h, and the work is 0.6 times as fast there as on g5.xlarge");
    // An instance type says it of a number of GPUs.
    let four =
        placed(&job(&[("A10G", 1.0), ("L4", 0.6), ("g5.12xlarge", 3.5)], Some("6h")), &offers, &[]);
    assert_eq!(order(&four), ["g5.12xlarge", "g5.xlarge", "g6.xlarge"]);
    // A name that nothing is of is a slip that would cost money quietly.
    let slip = placed(&job(&[("L40", 3.0)], None), &offers, &[]);
    assert!(
        slip.reasons
            .contains(&"`machine.speed` names L40, and nothing that fits is of these".to_owned()),
        "{:?}",
        slip.reasons
    );
}

/// A start costs six times as much on a machine that is six times as dear, however fast the work is
/// there.
#[test]
fn of_little_work_the_start_decides() {
    let offers =
        [offer("g5.12xlarge", "A10G", 4, 5_672_000), offer("g5.xlarge", "A10G", 1, 1_006_000)];
    let said = [("A10G", 1.0), ("g5.12xlarge", 6.0)];
    // Half an hour and a start of twelve minutes, or five minutes and such a start.
    let short = placed(&job(&said, Some("30m")), &offers, &[]);
    assert_eq!(order(&short), ["g5.xlarge", "g5.12xlarge"]);
    let usd: Vec<f64> =
        short.ranking.iter().map(|ranked| ranked.usd_to_finish.expect("known").dollars()).collect();
    assert!(
        (usd[0] - 1.006 * 0.7).abs() < 1e-5 && (usd[1] - 5.672 * (0.5 / 6.0 + 0.2)).abs() < 1e-5,
        "{usd:?}"
    );
    let because = &short
        .rejected
        .iter()
        .find(|no| no.offer.instance_type == "g5.12xlarge")
        .expect("it is named")
        .because;
    assert_eq!(
        because,
        "costs $5.67/h, and the work is 6 times as fast there as on g5.xlarge, which its start outweighs"
    );
    // Of three days the start is nothing; and of work that nobody has named an hour is all that is
    // known.
    assert_eq!(order(&placed(&job(&said, Some("3d")), &offers, &[])), ["g5.12xlarge", "g5.xlarge"]);
    assert_eq!(order(&placed(&job(&said, None), &offers, &[])), ["g5.12xlarge", "g5.xlarge"]);
}

/// The bound on what is bought without a word goes by an hour of work, and of little work the start
/// decides: what finishes for no more is not too dear.
#[test]
fn what_finishes_for_no_more_is_not_too_dear() {
    let offers =
        [offer("g5.12xlarge", "A10G", 4, 5_672_000), offer("g5.xlarge", "A10G", 1, 1_006_000)];
    let bounded = |work| {
        let mut spec = job(&[("A10G", 1.0), ("g5.12xlarge", 12.0)], work);
        spec.machine.fallback_cost = FallbackCost::default();
        order(&placed(&spec, &offers, &[]))
    };
    assert_eq!(bounded(Some("30m")), ["g5.xlarge", "g5.12xlarge"]);
    assert_eq!(bounded(Some("3d")), ["g5.12xlarge"], "twice as dear and more");
    assert_eq!(bounded(None), ["g5.12xlarge"]);
}

/// A job that works longer than it has said: nobody knows how much is left, and a fast machine is
/// not dear for its start alone.
#[test]
fn work_beyond_what_was_said_is_ranked_by_the_hour() {
    let offers =
        [offer("g5.12xlarge", "A10G", 4, 5_672_000), offer("g5.xlarge", "A10G", 1, 1_006_000)];
    let spec = job(&[("A10G", 1.0), ("g5.12xlarge", 6.0)], Some("6h"));
    let mut ended = settled(1, EndedBecause::Interrupted);
    ended.outcome = Some(Outcome {
        progress: None,
        saved: Span::from_secs(8 * 3600),
        ..outcome(1, EndedBecause::Interrupted)
    });
    let long = AttemptRecord {
        plan: Plan { offer: offers[1].clone(), ..plan(market::CloudKind::Aws, 1, 600) }.into(),
        settled: ended.into(),
    };
    assert_eq!(order(&placed(&spec, &offers, &[long])), ["g5.12xlarge", "g5.xlarge"]);
}

/// An attempt on this machine, which took so long for a step.
fn ran(offer: &Offer, secs_per_step: f64) -> AttemptRecord {
    let mut ended = settled(1, EndedBecause::Interrupted);
    let progress = Progress {
        step: Some(10.0),
        total: Some(100.0),
        secs_per_step: Some(secs_per_step),
        ..Progress::default()
    };
    ended.outcome = Some(Outcome {
        progress: Some(progress),
        last_checkpoint: None,
        resumed_from: None,
        ..outcome(1, EndedBecause::Interrupted)
    });
    AttemptRecord {
        plan: Plan { offer: offer.clone(), ..plan(market::CloudKind::Aws, 1, 600) }.into(),
        settled: ended.into(),
    }
}

/// What the job has measured of itself goes before what was said, and work that one machine did
/// counts on another.
#[test]
fn what_earlier_attempts_measured_goes_before_what_was_said() {
    let (l4, a10g) =
        (offer("g6.xlarge", "L4", 1, 800_000), offer("g5.xlarge", "A10G", 1, 1_000_000));
    let spec = job(&[("A10G", 1.0), ("L4", 0.9)], None);
    let one = [ran(&a10g, 10.0)];
    assert_eq!(
        remaining_work::speeds(&spec, &one).of(&l4),
        0.9,
        "one alone says nothing beside another"
    );
    let both = [ran(&a10g, 10.0), ran(&l4, 40.0)];
    let known = remaining_work::speeds(&spec, &both);
    assert_eq!((known.of(&a10g), known.of(&l4)), (1.0, 0.25));
    assert_eq!(
        order(&placed(&spec, &[l4.clone(), a10g.clone()], &both)),
        ["g5.xlarge", "g6.xlarge"]
    );
    // A hundred steps of forty seconds there are a hundred of ten here, with the margin for what is
    // no step.
    let left = remaining_work::left(&spec, &known, &both, None).expect("its progress says so");
    assert!((left.as_secs_f64() - 1100.0).abs() < 1e-6, "{left:?}");
}

prop_compose! {
    fn offers()(all in prop::collection::vec((0..MODELS.len(), 1_i64..6), 1..8)) -> Vec<Offer> {
        all.into_iter().enumerate().map(|(n, (model, price))| offer(&format!("t{n}"), MODELS[model], 1, price * 250_000)).collect()
    }
}

fn said() -> impl Strategy<Value = BTreeMap<String, f64>> {
    prop::collection::vec(0.05_f64..20.0, MODELS.len())
        .prop_map(|all| MODELS.iter().map(|model| (*model).to_owned()).zip(all).collect())
}

proptest! {
    #[test]
    fn faster_offer_at_the_same_price_is_never_ranked_behind(offers in offers(), said in said()) {
        let mut spec = job(&[], Some("3h"));
        spec.machine.speed = Speeds::new(said);
        let ranking = placed(&spec, &offers, &[]).ranking;
        let price = |kind: &str| offers.iter().find(|offer| offer.instance_type == kind).expect("it was offered").price;
        for (n, before) in ranking.iter().enumerate() {
            for behind in &ranking[n + 1..] {
                prop_assert!(price(&before.instance_type) != price(&behind.instance_type) || before.speed >= behind.speed, "{ranking:#?}");
                prop_assert!(before.usd_to_finish <= behind.usd_to_finish);
            }
        }
    }

    /// Where it is known how much work there is, nothing that is cheaper to finish stands behind:
    /// neither the start of a fast machine nor those that a spot machine is expected to have are
    /// left out. Where it is not known, the same holds of an hour of work.
    #[test]
    fn what_it_takes_to_finish_never_falls_down_the_ranking(
        offers in offers(), said in said(), work in prop::option::weighted(0.8, 60_u64..400_000), starts in prop::collection::vec(0.0_f64..3.0, 8),
    ) {
        let mut spec = job(&[], None);
        spec.limits.work = work.map(Span::from_secs);
        spec.machine.speed = Speeds::new(said);
        let mut overheads = Overheads::new();
        let bought = offers.into_iter().zip(starts).enumerate().map(|(n, (offer, start))| match n % 2 {
            0 => offer,
            _ => {
                overheads.insert((offer.zone.to_string(), offer.instance_type.clone()), start);
                Offer { market: Market::Spot, on_demand: Some(offer.price.times(3.0)), ..offer }
            }
        });
        let bought: Vec<Offer> = bought.collect();
        let ranking = placed_with(&spec, &bought, &[], &overheads).ranking;
        prop_assert_eq!(ranking.len(), bought.len());
        for pair in ranking.windows(2) {
            match (pair[0].usd_to_finish, pair[1].usd_to_finish) {
                (Some(before), Some(behind)) => prop_assert!(before <= behind, "{ranking:#?}"),
                _ => prop_assert!(work.is_none() && pair[0].usd_per_hour_of_work <= pair[1].usd_per_hour_of_work, "{ranking:#?}"),
            }
        }
    }

    /// Only what they are beside one another counts.
    #[test]
    fn all_speeds_times_the_same_change_nothing_in_the_order(offers in offers(), said in said(), power in -4_i32..5) {
        let mut spec = job(&[], None);
        spec.machine.speed = Speeds::new(said.clone());
        let before = order(&placed(&spec, &offers, &[]));
        // A power of two rounds nothing.
        spec.machine.speed = Speeds::new(said.into_iter().map(|(name, speed)| (name, speed * 2_f64.powi(power))).collect());
        prop_assert_eq!(order(&placed(&spec, &offers, &[])), before);
    }

    /// To say that all are alike is to say nothing.
    #[test]
    fn one_speed_for_all_is_the_order_by_price(offers in offers(), speed in prop::sample::select(vec![0.25, 1.0, 4.0])) {
        let without = order(&placed(&job(&[], None), &offers, &[]));
        let mut spec = job(&[], None);
        spec.machine.speed = Speeds::new(MODELS.iter().map(|model| ((*model).to_owned(), speed)).collect());
        prop_assert_eq!(order(&placed(&spec, &offers, &[])), without);
    }
}
