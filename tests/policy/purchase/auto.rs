//! `market = "auto"`: how a job stands, what is done about its market, and what is learned of the
//! pools.

use std::time::Duration;

use jiff::Timestamp;
use lamplighter::job::{
    AttemptPhase, AttemptRecord, CheckpointSpec, EndedBecause, Outcome, Plan, Progress, Refusal,
    Settled, Spec,
};
use lamplighter::market::{self, Market, Offer, Span, UsdPerHour};
use lamplighter::policy::market::auto_market::{AutoFacts, AutoStep, SpotPool, judge, standing};
use lamplighter::policy::market::deadline_choice::{MarketWatch, Others};
use lamplighter::policy::market::pool_history::Pool;
use lamplighter::policy::market::zones::usd_per_hour_of_work;

use crate::lifecycle::reconcile_facts::{now, outcome, plan, settled, spec, status};

const HOUR: u64 = 3600;

fn job(work: Option<u64>, deadline_hours: Option<u64>) -> Spec {
    let mut spec = spec().spec;
    spec.limits.work = work.map(Span::from_secs);
    spec.limits.deadline = deadline_hours.map(|hours| now() + Duration::from_secs(hours * HOUR));
    let (interval, grace) = (Span::from_secs(600), Span::from_secs(60));
    spec.checkpoint = Some(CheckpointSpec { path: "c".into(), interval, signal: None, grace });
    spec
}

fn price(dollars: &str) -> UsdPerHour {
    UsdPerHour::new(dollars.parse().unwrap())
}

fn facts<'a>(spec: &'a Spec, history: &'a [AttemptRecord], pool: &'a Pool) -> AutoFacts<'a> {
    let spot = Some(SpotPool {
        pool,
        hourly: price("1"),
        there: true,
        others: Others::default(),
        elsewhere: 0.0,
    });
    AutoFacts {
        spec,
        history,
        running: None,
        more_time: Span::ZERO,
        spot,
        on_demand: Some(price("3")),
        speed: 1.0,
        now: now(),
    }
}

fn pool() -> Pool {
    Pool::new("z", "t")
}

fn at(ago_secs: u64) -> Timestamp {
    now() - Duration::from_secs(ago_secs)
}

/// A spot machine that ran from and to so many seconds ago and worked all but the first five
/// minutes.
fn ran(number: u32, from: u64, to: u64, because: EndedBecause) -> AttemptRecord {
    let worked = from.saturating_sub(300).saturating_sub(to);
    let outcome = Outcome {
        working_since: Some(at(from - 300)),
        saved: Span::from_secs(worked),
        ..outcome(number, because)
    };
    let settled = Settled {
        billed_from: Some(at(from)),
        billed_to: Some(at(to)),
        outcome: Some(outcome),
        ..settled(number, because)
    };
    AttemptRecord {
        plan: plan(market::CloudKind::Aws, number, from).into(),
        settled: settled.into(),
    }
}

fn refused(number: u32, ago_secs: u64) -> AttemptRecord {
    let settled = Settled {
        instance: None,
        billed_from: None,
        billed_to: None,
        refusal: Some(Refusal::Capacity),
        outcome: None,
        ..settled(number, EndedBecause::LaunchFailed)
    };
    AttemptRecord {
        plan: plan(market::CloudKind::Aws, number, ago_secs).into(),
        settled: settled.into(),
    }
}

#[test]
fn work_left_comes_from_progress_or_else_from_saved_work() {
    let spec = job(Some(20 * HOUR), Some(30));
    let history = [ran(1, 3 * HOUR, 1800, EndedBecause::Interrupted)];
    let (pool, worked) = (pool(), 2.5 - 300.0 / 3600.0);
    let stands = standing(&facts(&spec, &history, &pool));
    assert!((stands.work_left.unwrap() - (20.0 - worked)).abs() < 1e-9, "{stands:?}");
    // Five minutes and a quarter, and the hand-over: nine minutes, in whole ones.
    assert!((stands.start - 9.0 / 60.0).abs() < 1e-9, "{stands:?}");
    assert!(
        (stands.unsaved - 660.0 / 3600.0).abs() < 1e-9 && stands.time_left.unwrap() < 30.0,
        "{stands:?}"
    );
    let mut beat = status(AttemptPhase::Running, now());
    beat.progress = Some(Progress {
        step: Some(100.0),
        total: Some(1100.0),
        secs_per_step: Some(18.0),
        ..Progress::default()
    });
    let plan = plan(market::CloudKind::Aws, 2, 600);
    let stands = standing(&AutoFacts {
        running: Some((&plan, Some(&beat))),
        ..facts(&spec, &history, &pool)
    });
    assert!((stands.work_left.unwrap() - 5.0 * 1.1).abs() < 1e-9, "{stands:?}");
    let unmeasured = standing(&facts(&spec, &[], &pool));
    assert_eq!((unmeasured.work_left, unmeasured.start), (Some(20.0), 0.2));
    assert_eq!(standing(&facts(&job(None, Some(30)), &[], &pool)).work_left, None);
}

#[test]
fn each_attempt_teaches_once_and_only_what_it_saw() {
    let history = [
        ran(1, 9 * HOUR, 6 * HOUR, EndedBecause::Interrupted),
        refused(2, 6 * HOUR - 60),
        ran(3, 5 * HOUR, HOUR, EndedBecause::Succeeded),
    ];
    let mut learned = pool();
    assert!(learned.learn(&history[..2]) && learned.learn(&history) && !learned.learn(&history));
    let mut at_once = pool();
    at_once.learn(&history);
    assert_eq!(learned, at_once, "in one look or in two");
    assert_eq!((learned.looked, learned.starts.len()), (Some(at(HOUR)), 2));
    assert!(learned.spells.there.factor() < 1.0, "it lived longer than most");
    let mut elsewhere = Pool::new("y", "t");
    assert!(!elsewhere.learn(&history));
}

#[test]
fn without_a_deadline_a_zone_whose_machines_die_young_is_left() {
    let spec = job(Some(20 * HOUR), None);
    let step = |pool: &Pool, spot: &str| {
        let facts = facts(&spec, &[], pool);
        let spot = facts.spot.map(|seen| SpotPool { hourly: price(spot), ..seen });
        judge(&mut MarketWatch::default(), &AutoFacts { spot, ..facts }).step
    };
    assert_eq!(step(&pool(), "1"), AutoStep::Take(Market::Spot));
    let mut flaps = pool();
    let dying: Vec<AttemptRecord> = (0..40)
        .map(|n| {
            ran(
                n + 1,
                (60 - u64::from(n)) * 700,
                (60 - u64::from(n)) * 700 - 400,
                EndedBecause::Interrupted,
            )
        })
        .collect();
    flaps.learn(&dying);
    assert_eq!(
        step(&flaps, "1"),
        AutoStep::Take(Market::Spot),
        "a third of the price is worth many starts"
    );
    assert_eq!(step(&flaps, "2.6"), AutoStep::Take(Market::OnDemand));
    assert_eq!(step(&pool(), "2.4"), AutoStep::Take(Market::Spot));
}

#[test]
fn long_job_without_checkpoints_avoids_short_lived_machines() {
    let mut spec = job(Some(20 * HOUR), None);
    let pool = pool();
    let step = |spec: &Spec| judge(&mut MarketWatch::default(), &facts(spec, &[], &pool)).step;
    assert_eq!(step(&spec), AutoStep::Take(Market::Spot));
    spec.checkpoint = None;
    assert_eq!(
        step(&spec),
        AutoStep::Take(Market::OnDemand),
        "one in ten such machines lives for twenty hours"
    );
    spec.limits.work = Some(Span::from_secs(HOUR / 2));
    assert_eq!(step(&spec), AutoStep::Take(Market::Spot), "half an hour is soon done again");
    let usd = |work: f64, unsaved: f64| {
        usd_per_hour_of_work(&pool.spells, price("1"), 0.2, unsaved, work)
    };
    assert!(
        usd(20.0, 0.0) < usd(20.0, 1.0)
            && usd(20.0, 1.0) < usd(20.0, 4.0)
            && usd(20.0, 4.0) < usd(20.0, 20.0)
    );
    assert!(
        usd(2.0, 2.0) < usd(4.0, 4.0) && usd(4.0, 4.0) < usd(40.0, 40.0),
        "the longer the work that must be done in one piece, the dearer"
    );
}

/// A machine that runs is not left for a cheaper one: nothing that it has done would be there on
/// the next.
#[test]
fn what_saves_nothing_stays_where_it_is() {
    for deadline in [None, Some(40)] {
        let mut spec = job(Some(20 * HOUR), deadline);
        let on_demand = Plan {
            offer: Offer { market: Market::OnDemand, ..plan(market::CloudKind::Aws, 1, 0).offer },
            ..plan(market::CloudKind::Aws, 1, 7200)
        };
        let mut beat = status(AttemptPhase::Running, now());
        beat.working_since = Some(at(6000));
        let pool = pool();
        let step = |spec: &Spec| {
            judge(
                &mut MarketWatch::default(),
                &AutoFacts { running: Some((&on_demand, Some(&beat))), ..facts(spec, &[], &pool) },
            )
        };
        assert_eq!(step(&spec).step, AutoStep::Move(Market::Spot), "{deadline:?}");
        spec.checkpoint = None;
        let verdict = step(&spec);
        assert!(
            verdict.step == AutoStep::Stay && verdict.reason.text.contains("nothing is saved"),
            "{deadline:?}: {verdict:?}"
        );
    }
}

#[test]
fn refused_spot_is_not_tried_again_at_once() {
    let spec = job(Some(20 * HOUR), Some(24));
    let on_demand = Plan {
        offer: Offer { market: Market::OnDemand, ..plan(market::CloudKind::Aws, 2, 0).offer },
        ..plan(market::CloudKind::Aws, 2, 7200)
    };
    let beat = {
        let mut beat = status(AttemptPhase::Running, now());
        beat.working_since = Some(at(6000));
        beat
    };
    let step = |refused_ago: u64| {
        let (history, mut pool) = ([refused(1, refused_ago)], pool());
        pool.learn(&history);
        judge(
            &mut MarketWatch::default(),
            &AutoFacts {
                running: Some((&on_demand, Some(&beat))),
                ..facts(&spec, &history, &pool)
            },
        )
        .step
    };
    assert_eq!(step(30), AutoStep::Stay);
    assert_eq!(step(2 * HOUR), AutoStep::Move(Market::Spot));
    let last = job(Some(1200), Some(24));
    let pool = pool();
    let verdict = judge(
        &mut MarketWatch::default(),
        &AutoFacts { running: Some((&on_demand, Some(&beat))), ..facts(&last, &[], &pool) },
    );
    assert_eq!(
        verdict.step,
        AutoStep::Stay,
        "the last minutes are worth no start: {}",
        verdict.reason.text
    );
}
