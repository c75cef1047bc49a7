//! How much dearer a machine may be that is bought in place of another, without a further word.

use lamplighter::job::{AttemptRecord, EndedBecause, MarketChoice, Plan, Refusal, Spec};
use lamplighter::market::{
    self, FallbackCost, Market, Offer, Quota, Region, Span, Supply, Usd, UsdPerHour, Zone,
};
use lamplighter::policy::purchase::placement::{Ask, NoOffer, Overheads, Placement, place};
use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{buys, now, plan, settled};

fn price(dollars: f64) -> UsdPerHour {
    UsdPerHour::new(Usd::from_dollars(dollars).unwrap())
}

fn offer(kind: &str, zone: &str, dollars: f64, market: Market) -> Offer {
    let (region, zone) = (Region::new(&zone[..zone.len() - 1]), Zone::new(zone));
    let (instance_type, price, on_demand) = (kind.into(), price(dollars), Some(price(99.0)));
    Offer {
        region,
        zone,
        instance_type,
        vcpus: 4,
        market,
        price,
        on_demand,
        ..plan(market::CloudKind::Aws, 1, 0).offer
    }
}

/// A minute ago.
fn refused(offer: &Offer, refusal: Refusal) -> AttemptRecord {
    let mut settled = settled(1, EndedBecause::LaunchFailed);
    (settled.instance, settled.billed_to, settled.refusal) = (None, None, Some(refusal));
    AttemptRecord {
        plan: Plan { offer: offer.clone(), ..plan(market::CloudKind::Aws, 1, 60) }.into(),
        settled: settled.into(),
    }
}

fn wanted(change: impl FnOnce(&mut Spec)) -> Spec {
    let mut spec = buys().spec;
    spec.machine.cloud = market::CloudKind::Aws;
    change(&mut spec);
    spec
}

fn placed(
    spec: &Spec,
    supply: &Supply,
    history: &[AttemptRecord],
    widened: Option<FallbackCost>,
) -> Result<Placement, NoOffer> {
    let overheads = &Overheads::new();
    place(&Ask {
        spec,
        supply,
        history,
        budget_left: spec.limits.budget,
        more_time: Span::ZERO,
        overheads,
        prefers: None,
        widened,
        now: now(),
    })
}

fn sold(offers: &[&Offer]) -> Supply {
    Supply { offers: offers.iter().copied().cloned().collect(), ..Supply::default() }
}

/// The types that may be bought, the first first.
fn bought(found: &Result<Placement, NoOffer>) -> Vec<String> {
    let Ok(placed) = found else { return Vec::new() };
    std::iter::once(&placed.offer)
        .chain(&placed.fallbacks)
        .map(|offer| offer.instance_type.clone())
        .collect()
}

/// As it was seen on EC2: under refusals for want of capacity a job of a dollar an hour went on to
/// p5.48xlarge.
#[test]
fn job_that_was_shown_a_dollar_an_hour_is_not_moved_to_five() {
    let at = |kind: &str, dollars: f64| offer(kind, "us-east-1a", dollars, Market::OnDemand);
    let (small, middle, large, huge) = (
        at("g5.xlarge", 1.006),
        at("g5.4xlarge", 1.624),
        at("g5.12xlarge", 5.672),
        at("p5.48xlarge", 98.32),
    );
    let (all, spec) = (sold(&[&huge, &middle, &large, &small]), wanted(|_| {}));
    let first = placed(&spec, &all, &[], None);
    assert_eq!(bought(&first), ["g5.xlarge", "g5.4xlarge"]);
    let because = |kind: &str| {
        first
            .as_ref()
            .unwrap()
            .rejected
            .iter()
            .find(|no| no.offer.instance_type == kind)
            .unwrap()
            .because
            .clone()
    };
    assert_eq!(
        because("g5.12xlarge"),
        "costs 5.64 times as much as g5.xlarge in us-east-1a for an hour of work; `fallback_cost = 5.7` would allow it"
    );
    let tried = [refused(&small, Refusal::Capacity), refused(&middle, Refusal::Capacity)];
    let none = placed(&spec, &all, &tried, None).unwrap_err();
    let dear = none.too_dear.clone().expect("the next one is named");
    assert_eq!(
        (dear.offer.instance_type.as_str(), dear.enough()),
        ("g5.12xlarge", FallbackCost::Times(5.7))
    );
    assert!(
        none.to_string().ends_with(
            "; g5.12xlarge in us-east-1a, on-demand, at $5.67/h, costs 5.64 times as much as g5.xlarge in us-east-1a for an hour of work, \
             and at most 2 times is bought without a word"
        ),
        "{none}"
    );
    assert_eq!(
        bought(&placed(&spec, &all, &tried, Some(dear.enough()))),
        ["g5.12xlarge"],
        "what it says is enough is enough"
    );
    assert_eq!(
        bought(&placed(&spec, &all, &tried, Some(FallbackCost::Any))),
        ["g5.12xlarge", "p5.48xlarge"]
    );
    let any = wanted(|spec| spec.machine.fallback_cost = FallbackCost::Any);
    assert_eq!(bought(&placed(&any, &all, &[], None)).len(), 4);
}

/// Whatever keeps the cheap ones away, it makes no dear one cheap: a quota, a bid, a type that is
/// not on offer any more.
#[test]
fn what_is_not_to_be_had_makes_nothing_else_cheap() {
    let (small, large) = (
        offer("g5.xlarge", "r1a", 1.0, Market::OnDemand),
        offer("p3.2xlarge", "r1a", 3.06, Market::OnDemand),
    );
    let full = Quota {
        name: "G".into(),
        code: "L".into(),
        region: small.region.clone(),
        market: Market::OnDemand,
        families: vec!["g".into()],
        vcpus_max: 4,
        vcpus_used: 4,
    };
    let by_quota = Supply { quotas: vec![full], ..sold(&[&small, &large]) };
    let none = placed(&wanted(|_| {}), &by_quota, &[], None).unwrap_err();
    assert!(
        none.to_string().contains("the quota \"G\" has 0 of 4 left") && none.too_dear.is_some(),
        "{none}"
    );
    assert_eq!(
        bought(&placed(
            &wanted(|_| {}),
            &sold(&[&large]),
            &[refused(&small, Refusal::Capacity)],
            None
        )),
        [""; 0],
        "it was shown once"
    );
    assert_eq!(
        bought(&placed(&wanted(|_| {}), &sold(&[&large]), &[], None)),
        ["p3.2xlarge"],
        "this one is what is shown"
    );
    let (cheap, dear) = (
        offer("g5.xlarge", "r1a", 0.5, Market::Spot),
        offer("p3.2xlarge", "r1a", 1.4, Market::Spot),
    );
    let bid = wanted(|spec| {
        (spec.machine.market, spec.machine.max_price) =
            (MarketChoice::Spot, "0.4% of on-demand".parse().unwrap())
    });
    assert!(placed(&bid, &sold(&[&cheap]), &[], None).is_err(), "the bid of it is 0.396");
    let both = Supply {
        offers: vec![cheap, Offer { on_demand: Some(price(999.0)), ..dear }],
        ..Supply::default()
    };
    assert_eq!(bought(&placed(&bid, &both, &[], None)), [""; 0]);
}

#[test]
fn what_the_job_file_says_itself_needs_no_further_word() {
    let on = |market: Market| {
        [
            offer("g5.xlarge", "r1a", 1.0, market),
            offer("g5.12xlarge", "r1a", 5.6, market),
            offer("g5.12xlarge", "r1b", 12.0, market),
        ]
    };
    let [small, large, far] = on(Market::OnDemand);
    let named = wanted(|spec| {
        spec.machine.instance_types = ["g5.xlarge", "g5.12xlarge"].map(str::to_owned).into()
    });
    assert_eq!(
        bought(&placed(&named, &sold(&[&small, &large, &far]), &[], None)),
        ["g5.xlarge", "g5.12xlarge"],
        "each is held to itself"
    );
    let [small, large, far] = on(Market::Spot);
    let priced = wanted(|spec| {
        (spec.machine.market, spec.machine.max_price) = (MarketChoice::Spot, "6".parse().unwrap())
    });
    assert_eq!(
        bought(&placed(&priced, &sold(&[&small, &large, &far]), &[], None)),
        ["g5.xlarge", "g5.12xlarge"],
        "a price in dollars is the bound"
    );
    // On demand is four times as dear as spot, and the file allows both.
    let full = offer("g5.xlarge", "r1a", 4.0, Market::OnDemand);
    let auto = wanted(|spec| spec.machine.market = MarketChoice::Auto);
    assert_eq!(
        bought(&placed(&auto, &sold(&[&small, &large, &full]), &[], None)),
        ["g5.xlarge", "g5.xlarge"]
    );
    // Four GPUs do the work of four: the hour of work is what counts.
    let fast = wanted(|spec| {
        spec.machine.speed = market::Speeds::new([("g5.12xlarge".to_owned(), 3.5)].into())
    });
    let [small, large, _] = on(Market::OnDemand);
    assert_eq!(
        bought(&placed(&fast, &sold(&[&small, &large]), &[], None)),
        ["g5.xlarge", "g5.12xlarge"]
    );
}

#[test]
fn most_is_that_of_the_dearest_that_may_be_bought() {
    let (small, large) =
        (offer("a", "r1a", 1.0, Market::OnDemand), offer("b", "r1a", 1.9, Market::OnDemand));
    let limited = wanted(|spec| spec.limits.max_runtime = Some(Span::from_secs(3600 - 7 * 60)));
    let one = placed(&limited, &sold(&[&small, &large]), &[], None).unwrap();
    assert_eq!(
        (one.most_usd, one.most_any_usd),
        (Some("1".parse().unwrap()), Some("1.9".parse().unwrap()))
    );
    let unlimited =
        placed(&wanted(|spec| spec.limits.max_runtime = None), &sold(&[&small, &large]), &[], None);
    assert!(unlimited.is_err_and(|none| {
        none.to_string().contains("no `max_runtime`, no `budget` and no `deadline`")
    }));
}

fn offers() -> impl Strategy<Value = Vec<(usize, u8, bool, u32, bool)>> {
    // Type, zone, spot, cents an hour, refused a minute ago.
    prop::collection::vec((0..4_usize, 0..3_u8, any::<bool>(), 1..2000_u32, any::<bool>()), 1..12)
}

proptest! {
    /// The laws of the bound, whatever was refused: nothing is bought beyond it, on its own market;
    /// the most holds for each that may be bought, and for a budget; a wider bound never buys
    /// fewer; and what is said to be enough is enough.
    #[test]
    fn nothing_beyond_the_bound_is_ever_bought(
        drawn in offers(), times in 1.0..8.0_f64, budget in prop::option::of(20..400_u32), hours in prop::option::of(1..48_u64)
    ) {
        let mut all: Vec<Offer> = Vec::new();
        let mut history = Vec::new();
        for (kind, zone, is_spot, cents, is_refused) in drawn {
            let market = if is_spot { Market::Spot } else { Market::OnDemand };
            let zone = format!("r1{}", char::from(b'a' + zone));
            let offer = offer(["a.1", "b.1", "c.1", "d.1"][kind], &zone, f64::from(cents) / 100.0, market);
            if all.iter().any(|known| known.is_same_pool(&offer)) {
                continue;
            }
            if is_refused {
                history.push(refused(&offer, Refusal::Capacity));
            }
            all.push(offer);
        }
        let supply = Supply { offers: all.clone(), ..Supply::default() };
        let job = |times: f64| wanted(|spec| {
            spec.machine.market = MarketChoice::Auto;
            spec.machine.fallback_cost = FallbackCost::Times(times);
            spec.limits.budget = budget.map(|dollars| Usd::from_dollars(dollars.into()).unwrap());
            // One of them there is.
            spec.limits.max_runtime = hours.or(budget.is_none().then_some(100)).map(|hours| Span::from_secs(hours * 3600));
        });
        let spec = job(times);
        let cheapest = |market: Market| all.iter().filter(|offer| offer.market == market).map(|offer| offer.price.per_hour().dollars()).fold(f64::MAX, f64::min);
        let ratio = |offer: &Offer| offer.price.per_hour().dollars() / cheapest(offer.market);
        match placed(&spec, &supply, &history, None) {
            Ok(found) => {
                for offer in std::iter::once(&found.offer).chain(&found.fallbacks) {
                    prop_assert!(ratio(offer) <= times * 1.000_001, "{} at {} times", offer.describe(), ratio(offer));
                    // Each by itself would be planned with no more than was said.
                    let alone = placed(&job(1e9), &sold(&[offer]), &[], None).unwrap();
                    prop_assert!(alone.most_usd.is_none() == found.most_any_usd.is_none() && alone.most_usd <= found.most_any_usd);
                }
                prop_assert!(found.most_usd <= found.most_any_usd);
                if let (Some(budget), Some(most)) = (spec.limits.budget, found.most_any_usd) {
                    prop_assert!(most <= budget, "{most} of {budget}");
                }
                let wider = bought(&placed(&job(times * 1.5), &supply, &history, None));
                prop_assert!(bought(&Ok(found)).iter().all(|kind| wider.contains(kind)));
            }
            Err(none) => {
                if let Some(dear) = none.too_dear {
                    prop_assert!(!spec.machine.fallback_cost.allows(dear.times));
                    prop_assert!(placed(&spec, &supply, &history, Some(dear.enough())).is_ok(), "{dear:?}");
                }
            }
        }
    }
}
