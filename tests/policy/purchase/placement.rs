//! Where the next attempt goes, with what the attempts before have met.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{
    AttemptRecord, EndedBecause, GangMember, GangRole, GangSpec, Plan, Refusal, Settled, seats_of,
};
use lamplighter::market::{
    self, Market, Offer, PriceHistory, PricePoint, Quota, Region, Span, Supply, Usd, UsdPerHour,
    Zone,
};
use lamplighter::policy::Wishes;
use lamplighter::policy::gang::rank_launch::{machines_of_launch, zone_of_rank};
use lamplighter::policy::lifecycle::relaunch::{self, Next};
use lamplighter::policy::purchase::fallback_limit::Bound;
use lamplighter::policy::purchase::placement::{Ask, Overheads, place};

use crate::lifecycle::reconcile_facts::{buys, now, plan, settled, spec};

fn offer(kind: &str, zone: &str, dollars: &str, market: Market) -> Offer {
    let price = |text: &str| UsdPerHour::new(text.parse().unwrap());
    let (region, zone) = (Region::new(&zone[..zone.len() - 1]), Zone::new(zone));
    Offer {
        region,
        zone,
        instance_type: kind.into(),
        vcpus: 4,
        market,
        price: price(dollars),
        on_demand: Some(price("9")),
        ..plan(market::CloudKind::Aws, 1, 0).offer
    }
}

/// An attempt that was planned so long ago.
fn tried(offer: Offer, ago_secs: u64, change: impl FnOnce(&mut Settled)) -> AttemptRecord {
    let mut settled = settled(1, EndedBecause::LaunchFailed);
    // A failed launch is free.
    (settled.instance, settled.billed_to, settled.usd) = (None, None, Usd::ZERO);
    change(&mut settled);
    AttemptRecord {
        plan: Plan { offer, ..plan(market::CloudKind::Aws, 1, ago_secs) }.into(),
        settled: settled.into(),
    }
}

fn refused(offer: Offer, ago_secs: u64, refusal: Refusal) -> AttemptRecord {
    tried(offer, ago_secs, |settled| settled.refusal = Some(refusal))
}

/// The zone and type that are chosen; `None`: nowhere.
fn chosen(supply: &Supply, history: &[AttemptRecord]) -> Option<(String, String)> {
    let spec = buys();
    let ask = Ask {
        spec: &spec.spec,
        supply,
        history,
        budget_left: None,
        more_time: Span::ZERO,
        overheads: &Overheads::new(),
        prefers: None,
        widened: None,
        now: now(),
    };
    place(&ask).ok().map(|placed| (placed.offer.zone.to_string(), placed.offer.instance_type))
}

fn supply(offers: Vec<Offer>) -> Supply {
    Supply { offers, ..Supply::default() }
}

fn at(zone: &str, kind: &str) -> Option<(String, String)> {
    Some((zone.into(), kind.into()))
}

#[test]
fn where_none_was_to_be_had_none_is_asked_for_for_three_minutes() {
    let (cheap, dear) = (
        offer("g5.xlarge", "r1a", "1", Market::Spot),
        offer("g5.xlarge", "r1b", "2", Market::Spot),
    );
    let both = supply(vec![dear.clone(), cheap.clone()]);
    assert_eq!(chosen(&both, &[]), at("r1a", "g5.xlarge"));
    assert_eq!(
        chosen(&both, &[refused(cheap.clone(), 179, Refusal::Capacity)]),
        at("r1b", "g5.xlarge")
    );
    assert_eq!(
        chosen(&both, &[refused(cheap.clone(), 181, Refusal::Capacity)]),
        at("r1a", "g5.xlarge")
    );
    let nowhere =
        [refused(dear, 100, Refusal::Capacity), refused(cheap.clone(), 10, Refusal::Capacity)];
    assert_eq!(chosen(&both, &nowhere), None, "and nothing is launched anywhere");
    // Empty three times in a row: it is remembered four times as long.
    let often: Vec<AttemptRecord> = [1000, 800, 600]
        .into_iter()
        .map(|ago| refused(cheap.clone(), ago, Refusal::Capacity))
        .collect();
    assert_eq!(chosen(&both, &often), at("r1b", "g5.xlarge"));
    // Empty all day: it is asked every twelve minutes.
    let all_day = |last| {
        (0..40_u64)
            .rev()
            .map(|n| refused(cheap.clone(), last + n * 720, Refusal::Capacity))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [719, 721].map(|last| chosen(&both, &all_day(last))),
        [at("r1b", "g5.xlarge"), at("r1a", "g5.xlarge")]
    );
    // A price that is above its bid all day is looked at every forty.
    let dear_all_day = |last| {
        (0..40_u64)
            .rev()
            .map(|n| refused(cheap.clone(), last + n * 2400, Refusal::Price))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [2399, 2401].map(|last| chosen(&both, &dear_all_day(last))),
        [at("r1b", "g5.xlarge"), at("r1a", "g5.xlarge")]
    );
    // So is one that had a name already, and was withdrawn before it ran.
    let withdrawn = tried(cheap.clone(), 60, |settled| {
        (settled.instance, settled.refusal) = (Some("i-1".into()), Some(Refusal::Capacity))
    });
    assert_eq!(chosen(&both, &[withdrawn]), at("r1b", "g5.xlarge"));
    // A machine was had in between: that is over.
    let had = tried(cheap.clone(), 700, |settled| settled.instance = Some("i-1".into()));
    let forgiven = [
        refused(cheap.clone(), 1000, Refusal::Capacity),
        refused(cheap.clone(), 800, Refusal::Capacity),
        had,
        refused(cheap, 200, Refusal::Capacity),
    ];
    assert_eq!(chosen(&both, &forgiven), at("r1a", "g5.xlarge"));
}

#[test]
fn price_that_never_comes_down_to_the_bid_is_not_waited_for() {
    let offer = offer("g5.xlarge", "r1a", "1", Market::Spot);
    let day = |days: u64| now() - Duration::from_secs(days * 86_400);
    let history = |prices: [&str; 2]| {
        let points = prices.into_iter().zip([10, 1]).map(|(usd, days)| PricePoint {
            at: day(days),
            price: UsdPerHour::new(usd.parse().unwrap()),
        });
        PriceHistory::new(
            offer.region.clone(),
            offer.zone.clone(),
            &offer.instance_type,
            points.collect(),
        )
    };
    let fits = |bid: &str, prices: [&str; 2]| {
        let mut spec = buys();
        spec.spec.machine.max_price = bid.parse().unwrap();
        let supply = Supply { histories: vec![history(prices)], ..supply(vec![offer.clone()]) };
        let (supply, overheads) = (&supply, &Overheads::new());
        let ask = Ask {
            spec: &spec.spec,
            supply,
            history: &[],
            budget_left: None,
            more_time: Span::ZERO,
            overheads,
            prefers: None,
            widened: None,
            now: now(),
        };
        ask.fits_later(&Bound::of(&ask), &offer)
    };
    assert!(fits("1.5", ["1", "1"]) && fits("auto", ["1", "1"]));
    assert!(!fits("0.10", ["1", "1"]), "it was never had for a tenth");
    assert!(fits("0.5", ["0.4", "1"]), "it was had for less until yesterday");
}

#[test]
fn each_refusal_speaks_of_its_own_place() {
    let spot = offer("g5.xlarge", "r1a", "1", Market::Spot);
    let smaller = Offer { vcpus: 2, ..offer("g4dn.large", "r1b", "2", Market::Spot) };
    let others = [
        (offer("g5.2xlarge", "r1b", "2", Market::Spot), Refusal::Quota, false),
        // One quota counts all of G; what needs less of it may have room.
        (offer("g6.xlarge", "r1b", "2", Market::Spot), Refusal::Quota, false),
        (smaller, Refusal::Quota, true),
        (offer("g6.xlarge", "r1b", "2", Market::OnDemand), Refusal::Disks, false),
        (offer("g6.xlarge", "r2b", "2", Market::OnDemand), Refusal::Disks, true),
        (offer("p4d.24xlarge", "r1b", "2", Market::OnDemand), Refusal::Verification, false),
        (offer("p4d.24xlarge", "r2b", "2", Market::OnDemand), Refusal::Verification, true),
        (offer("p4d.24xlarge", "r1b", "2", Market::Spot), Refusal::Quota, true),
        (offer("g5.xlarge", "r2b", "2", Market::Spot), Refusal::Quota, true),
        (offer("g5.xlarge", "r1a", "2", Market::OnDemand), Refusal::Quota, true),
        (offer("g5.xlarge", "r1b", "2", Market::Spot), Refusal::NotSold, true),
        (offer("g5.xlarge", "r1b", "2", Market::Spot), Refusal::Price, true),
        // A machine of another type or market needs an address of the same zone.
        (offer("g6.xlarge", "r1a", "2", Market::OnDemand), Refusal::Addresses, false),
        (offer("g5.xlarge", "r1b", "2", Market::Spot), Refusal::Addresses, true),
        (offer("g6.xlarge", "r1a", "2", Market::OnDemand), Refusal::Subnet, true),
        (offer("g6.xlarge", "r2b", "2", Market::Spot), Refusal::SpotRole, false),
        (offer("g5.xlarge", "r1a", "2", Market::OnDemand), Refusal::SpotRole, true),
    ];
    for (other, refusal, left) in others {
        let found = chosen(
            &supply(vec![spot.clone(), other.clone()]),
            &[refused(spot.clone(), 60, refusal)],
        );
        assert_eq!(
            found.is_some(),
            left,
            "{refusal:?} in {} says nothing of {} in {}: {left}",
            spot.zone,
            other.instance_type,
            other.zone
        );
    }
    let only = supply(vec![spot.clone()]);
    assert_eq!(chosen(&only, &[refused(spot.clone(), 23 * 3600, Refusal::NotSold)]), None);
    assert!(chosen(&only, &[refused(spot.clone(), 25 * 3600, Refusal::NotSold)]).is_some());
    // Another subnet of the same zone, for the same type, at once.
    assert!(chosen(&only, &[refused(spot.clone(), 1, Refusal::Subnet)]).is_some());
    let addresses = |ago| chosen(&only, &[refused(spot.clone(), ago, Refusal::Addresses)]);
    assert!(addresses(179).is_none() && addresses(181).is_some());
}

/// One subnet in a zone: of two types there, the next attempt is in another zone.
#[test]
fn zone_without_an_address_is_left_by_all_its_types() {
    let here = offer("g5.xlarge", "r1a", "1", Market::Spot);
    let both = [
        here.clone(),
        offer("g6.xlarge", "r1a", "1.1", Market::Spot),
        offer("g5.xlarge", "r1b", "1.5", Market::Spot),
    ];
    let next = |refusal| {
        chosen(&supply(both.to_vec()), &[refused(here.clone(), 5, refusal)]).map(|(zone, _)| zone)
    };
    assert_eq!(
        (next(Refusal::Addresses).as_deref(), next(Refusal::Capacity).as_deref()),
        (Some("r1b"), Some("r1a"))
    );
    // What is never sold there is not asked for again once the zone has addresses.
    let history = [
        refused(here.clone(), 600, Refusal::NotSold),
        refused(both[1].clone(), 300, Refusal::Addresses),
    ];
    let only = [here, both[2].clone()];
    assert_eq!(
        chosen(&supply(only.to_vec()), &history).map(|(zone, _)| zone).as_deref(),
        Some("r1b")
    );
}

/// Seed 21001732 of 24 h: a workstation's clock was a day ahead for six seconds, in which it was
/// refused, and once it was right again the job waited for a day.
#[test]
fn refusal_by_a_clock_a_day_ahead_keeps_no_job_waiting() {
    let place = offer("g5.xlarge", "r1a", "1", Market::Spot);
    let by_a_clock_ahead = |ahead: u64| {
        let mut record = refused(place.clone(), 0, Refusal::Price);
        Arc::make_mut(&mut record.plan).created = now() + Duration::from_secs(ahead);
        record
    };
    let only = supply(vec![place.clone()]);
    assert_eq!(chosen(&only, &[by_a_clock_ahead(240)]), None, "two clocks are a little apart");
    assert!(chosen(&only, &[by_a_clock_ahead(86_400)]).is_some());

    let next = |ahead: u64| {
        let history: Vec<AttemptRecord> = (0..13).map(|_| by_a_clock_ahead(ahead)).collect();
        let Next::Attempt { not_before, .. } =
            relaunch::next(&spec().spec, &history, &Wishes::default(), now())
        else {
            panic!("it goes on")
        };
        (
            not_before > now(),
            relaunch::scarcity(&spec().spec, &history, now())
                .unwrap()
                .0
                .contains("tried again now"),
        )
    };
    assert_eq!((next(240), next(86_400)), ((true, false), (false, true)));

    let broken = tried(place.clone(), 600, |settled| {
        (settled.because, settled.billed_to) =
            (EndedBecause::HardwareLost, Some(now() + Duration::from_secs(86_400)));
    });
    assert!(chosen(&only, &[broken]).is_some());
}

#[test]
fn pool_that_gave_a_broken_machine_rests_for_half_an_hour() {
    let only = offer("g5.xlarge", "r1a", "1", Market::Spot);
    let broken = |ago: u64| {
        tried(only.clone(), ago + 600, |settled| {
            settled.because = EndedBecause::HardwareLost;
            settled.billed_to = Some(now() - Duration::from_secs(ago));
        })
    };
    assert_eq!(chosen(&supply(vec![only.clone()]), &[broken(29 * 60)]), None);
    assert!(chosen(&supply(vec![only.clone()]), &[broken(31 * 60)]).is_some());
}

#[test]
fn quotas_and_bids_are_kept() {
    let dear = Offer {
        price: UsdPerHour::new("10".parse().unwrap()),
        ..offer("g5.xlarge", "r1a", "1", Market::Spot)
    };
    assert_eq!(chosen(&supply(vec![dear]), &[]), None, "it costs more than on demand");
    let fits = offer("g5.xlarge", "r1a", "1", Market::Spot);
    let quota = |used| Quota {
        name: "spot".into(),
        code: "L-1".into(),
        region: fits.region.clone(),
        market: Market::Spot,
        families: vec!["g".into()],
        vcpus_max: 8,
        vcpus_used: used,
    };
    let with = |used| Supply { quotas: vec![quota(used)], ..supply(vec![fits.clone()]) };
    assert!(chosen(&with(4), &[]).is_some());
    assert_eq!(chosen(&with(5), &[]), None);
}

#[test]
fn next_place_is_asked_at_once_until_twelve_refusals_in_a_row() {
    let history = |refusals: u64| -> Vec<AttemptRecord> {
        let zone = |n: u64| offer(&format!("g{n}.xlarge"), "r1a", "1", Market::Spot);
        (1..=refusals).rev().map(|n| refused(zone(n), n, Refusal::Capacity)).collect()
    };
    let waits = |refusals| match relaunch::next(
        &spec().spec,
        &history(refusals),
        &Wishes::default(),
        now(),
    ) {
        Next::Attempt { not_before, .. } => not_before > now(),
        Next::End { because, .. } => panic!("{because:?}"),
    };
    assert!(!waits(1) && !waits(11));
    assert!(waits(12), "twelve in a row say that there is none to be had");
}

#[test]
fn later_machine_of_a_rank_is_alone_in_the_zone_of_the_first() {
    let mut spec = buys().spec;
    spec.machine.cloud = market::CloudKind::Aws;
    let seats = seats_of(&"digits-222222".parse().unwrap(), &[GangRole::Worker; 2]);
    let member = GangMember {
        rank: 0,
        seats,
        retries_max: 0,
        retry_exit_codes: vec![],
        retry_delay: Span::ZERO,
        reads: None,
    };
    spec.gang = Some(Box::new(GangSpec { member: Some(member), ..GangSpec::default() }));
    let there = |zone| offer("g5.xlarge", zone, "1", Market::OnDemand);
    let full = [refused(there("us-east-1a"), 60, Refusal::Capacity)];
    assert_eq!(machines_of_launch(&spec, &full), 2, "the next zone is tried for all ranks");
    assert_eq!(zone_of_rank(&spec, &full), None);
    let ran = [tried(there("us-east-1b"), 60, |settled| {
        (settled.instance, settled.because) = (Some("i-1".into()), EndedBecause::Interrupted);
    })];
    assert_eq!(machines_of_launch(&spec, &ran), 1);
    assert_eq!(zone_of_rank(&spec, &ran), Some(&Zone::new("us-east-1b")));
}
