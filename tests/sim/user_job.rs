//! A user's job in the false world (`lamp simulate`): cost, end, interruptions and lost work follow
//! its course.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::job::ResolvedSpec;
use lamplighter::market::{PriceHistory, PricePoint, Region, Span, UsdPerHour, Zone};
use lamplighter::policy::market::replay::{Goes, Play, PlayLimits, Ran, Unfinished};
use lamplighter::sim::{Course, Lived, OwnJob, PriceRound, live};

const NOW: &str = "2026-11-25T08:00:00Z";

fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

fn dollars(text: &str) -> UsdPerHour {
    UsdPerHour::new(text.parse().unwrap())
}

/// An hour of work that saves on request every five minutes, with the given limits.
fn spec(limits: &serde_json::Value) -> ResolvedSpec {
    let spec = serde_json::json!({
        "format": 1, "job": "mine-222222", "created": NOW, "written_by": "test", "code": null, "origins": {},
        "spec": {
            "name": "mine", "command": {"args": ["python3", "train.py"]}, "setup": "pip install -r requirements.txt", "outputs": ["out/**"],
            "machine": {"cloud": "aws", "gpus": "8 x H100", "regions": ["eu-west-1"], "instance_types": ["p5.48xlarge"]},
            "watch": {"done_marker": "done", "log_pattern": "epoch (\\d+)"},
            "checkpoint": {"path": "ckpt", "interval": "5m", "signal": "SIGTERM", "grace": "1m"},
            "limits": limits,
        },
    });
    serde_json::from_value(spec).unwrap()
}

fn play(spec: &ResolvedSpec, work: u64) -> Play {
    let limits = PlayLimits::of(&spec.spec);
    Play {
        work: minutes(work),
        deadline: spec
            .spec
            .limits
            .deadline
            .map(|deadline| deadline.duration_since(NOW.parse().unwrap()).unsigned_abs()),
        start: minutes(3),
        saves_every: minutes(6),
        begins_anew: spec.spec.checkpoint.is_none(),
        tick: minutes(5),
        spot: dollars("1"),
        on_demand: dollars("3"),
        limits,
    }
}

fn always() -> Course {
    Course {
        tick: minutes(10),
        there: [true].into(),
        first: 0,
        prices: None,
        begins: Duration::ZERO,
    }
}

fn lived(spec: &ResolvedSpec, work: u64, goes: Goes, course: Course) -> Lived {
    lived_beside(spec, work, goes, course, UsdPerHour::ZERO)
}

/// With this part of each price for disk and address.
fn lived_beside(
    spec: &ResolvedSpec,
    work: u64,
    goes: Goes,
    course: Course,
    extras: UsdPerHour,
) -> Lived {
    super::remember_panics();
    let play = play(spec, work);
    let lived = live(
        &OwnJob { spec, play: &play, goes, extras, course, seed: 7, now: NOW.parse().unwrap() },
        || true,
    )
    .expect("it went on");
    assert!(super::PANICS.take().is_empty());
    assert!(lived.violations.is_empty(), "{lived:?}");
    lived
}

#[test]
fn job_with_constant_capacity_costs_work_start_and_end() {
    let spec = spec(&serde_json::json!({}));
    for (goes, hourly) in [(Goes::Spot, 1.0), (Goes::OnDemand, 3.0), (Goes::Auto, 1.0)] {
        let ran = lived(&spec, 60, goes, always()).ran;
        assert_eq!(
            (ran.unfinished, ran.interruptions, ran.starts, ran.lost_hours),
            (None, 0, 1, 0.0),
            "{goes:?}: {ran:?}"
        );
        // Work and start take an hour and three minutes. Saves, drain and power-off add minutes.
        let hours = ran.usd / hourly;
        assert!((1.05..1.15).contains(&hours), "{goes:?}: {ran:?}");
        assert!(ran.finish_hours >= hours && ran.finish_hours < 1.2, "{goes:?}: {ran:?}");
        assert!(
            (ran.machine_hours - hours).abs() < 0.02 && ran.machine_hours <= ran.finish_hours,
            "all of it is paid: {goes:?}: {ran:?}"
        );
        assert_eq!(ran.on_demand_hours > 1.0, goes == Goes::OnDemand, "{ran:?}");
    }
}

/// The work that an interruption after half an hour loses, in seconds. With checkpoints it is the
/// begun step after the save at the notice. Without checkpoints it is all work, with the begun
/// step.
const GAP_LOST: f64 = 24.0;
const ALL_LOST: f64 = 1721.0;

fn seconds_lost(ran: &Ran) -> f64 {
    (ran.lost_hours * 3600.0).round()
}

#[test]
fn interrupted_work_is_lost_even_without_a_second_start() {
    let mut spec = spec(&serde_json::json!({"deadline": "2026-11-25T10:00:00Z"}));
    let course = || Course { there: [vec![true; 3], vec![false; 30]].concat().into(), ..always() };
    let ran = lived(&spec, 60, Goes::Spot, course()).ran;
    assert_eq!(
        (ran.unfinished, ran.interruptions, seconds_lost(&ran)),
        (Some(Unfinished::Deadline), 1, GAP_LOST),
        "{ran:?}"
    );
    spec.spec.checkpoint = None;
    let ran = lived(&spec, 60, Goes::Spot, course()).ran;
    assert_eq!(
        (ran.unfinished, ran.interruptions, seconds_lost(&ran)),
        (Some(Unfinished::Deadline), 1, ALL_LOST),
        "{ran:?}"
    );
}

#[test]
fn capacity_gap_interrupts_and_costs_unsaved_work() {
    let spec = spec(&serde_json::json!({}));
    let course = Course {
        there: [vec![true; 3], vec![false; 6], vec![true; 30]].concat().into(),
        ..always()
    };
    let lived = lived(&spec, 60, Goes::Spot, course);
    let ran = lived.ran;
    assert_eq!((ran.unfinished, ran.interruptions, ran.starts), (None, 1, 2), "{ran:?}");
    // It saved at its notice, and worked until the interruption.
    assert_eq!(seconds_lost(&ran), GAP_LOST, "{ran:?}");
    // Half an hour, an hour without capacity, and the rest. The wait after a refusal grows with
    // their number.
    assert!((2.0..3.2).contains(&ran.finish_hours), "{ran:?}");
    // EC2 does not bill a machine that it takes in its first hour.
    assert!((0.5..1.0).contains(&ran.usd), "{ran:?}");
    let receipt = lived.receipt.unwrap();
    assert!(receipt.attempts.last().unwrap().resumed_from.is_some(), "{receipt:?}");
}

#[test]
fn machine_taken_in_first_hour_costs_disk_and_address() {
    let spec = spec(&serde_json::json!({"deadline": "2026-11-25T10:00:00Z"}));
    let course = || Course { there: [vec![true; 3], vec![false; 30]].concat().into(), ..always() };
    let extras = dollars("0.015959");
    let lived = lived_beside(&spec, 60, Goes::Spot, course(), extras);
    let (ran, receipt) = (lived.ran, lived.receipt.unwrap());
    assert_eq!(
        (ran.unfinished, ran.interruptions, ran.starts),
        (Some(Unfinished::Deadline), 1, 1),
        "{ran:?}"
    );
    let billed =
        Duration::from_millis((receipt.attempts[0].billed_seconds * 1000.0).round() as u64);
    assert!(
        (minutes(31)..minutes(33)).contains(&billed),
        "half an hour, and its notice: {billed:?}"
    );
    let usd = extras.cost_of(billed);
    assert_eq!(
        (ran.usd, receipt.total_usd),
        (usd.dollars(), usd),
        "the machine's hour is free, and what stands beside it is not"
    );
    let unknown = self::lived(&spec, 60, Goes::Spot, course()).ran;
    assert_eq!(
        (unknown.usd, unknown.finish_hours),
        (0.0, ran.finish_hours),
        "prices that are all in say nothing of it"
    );
}

#[test]
fn job_without_a_checkpoint_begins_anew() {
    let mut spec = spec(&serde_json::json!({}));
    spec.spec.checkpoint = None;
    let course = Course {
        there: [vec![true; 3], vec![false; 2], vec![true; 30]].concat().into(),
        ..always()
    };
    let ran = lived(&spec, 60, Goes::Spot, course).ran;
    assert_eq!((ran.unfinished, ran.interruptions), (None, 1), "{ran:?}");
    assert_eq!(seconds_lost(&ran), ALL_LOST, "all that it had done: {ran:?}");
}

#[test]
fn price_above_bid_interrupts_and_each_hour_costs_its_price() {
    let mut spec = spec(&serde_json::json!({}));
    spec.spec.machine.max_price = serde_json::from_value(serde_json::json!("$2"))
        .or_else(|_| serde_json::from_value(serde_json::json!(2.0)))
        .unwrap();
    let start = NOW.parse::<Timestamp>().unwrap();
    let point = |minute: u64, price: &str| PricePoint {
        at: start + minutes(minute),
        price: dollars(price),
    };
    let points = vec![point(0, "0.2"), point(30, "1.5"), point(75, "2.5"), point(100, "0.1")];
    let recorded =
        PriceHistory::new(Region::new("us-east-1"), Zone::new("us-east-1a"), "g5.xlarge", points);
    let prices = PriceRound::of(&recorded, Some(start + minutes(600))).map(Arc::new);
    let course = Course { prices, ..always() };
    let beside = lived_beside(&spec, 120, Goes::Spot, course.clone(), dollars("0.5"));
    let lived = lived(&spec, 120, Goes::Spot, course);
    let ran = lived.ran;
    assert_eq!((ran.unfinished, ran.interruptions, ran.starts), (None, 1, 2), "{ran:?}");
    // Half an hour at 0.2, three quarters at 1.5, two minutes and a little at its bid of 2, and
    // some 50 minutes at 0.1: at no one price is it the same.
    assert!((1.27..1.42).contains(&ran.usd), "{ran:?}");
    // A law checks that the receipt equals the bill. EC2 does not date the last power-off, so its
    // time is an estimate.
    let said = lived.receipt.unwrap().total_usd.dollars();
    assert!((0.0..0.01).contains(&(said - ran.usd)), "{said} {ran:?}");
    // Recorded prices have only the machine. Disk and address cost more in each hour.
    let receipt = beside.receipt.unwrap();
    let hours: f64 = receipt.attempts.iter().map(|attempt| attempt.billed_seconds / 3600.0).sum();
    assert!((receipt.total_usd.dollars() - said - 0.5 * hours).abs() < 1e-5, "{receipt:?}");
    assert!(
        (0.0..0.01).contains(&(receipt.total_usd.dollars() - beside.ran.usd)),
        "{:?}",
        beside.ran
    );
}

#[test]
fn limit_ends_the_job_unfinished() {
    let course = || Course { there: [false].into(), ..always() };
    let deadline = serde_json::json!({"deadline": "2026-11-25T10:00:00Z"});
    let ran = lived(&spec(&deadline), 60, Goes::Auto, course()).ran;
    assert!(
        ran.unfinished.is_none() && ran.finish_hours < 2.0 && ran.on_demand_hours > 1.0,
        "on demand in time: {ran:?}"
    );
    let ran = lived(&spec(&deadline), 60, Goes::Spot, course()).ran;
    assert_eq!(
        (ran.unfinished, ran.usd, ran.starts),
        (Some(Unfinished::Deadline), 0.0, 0),
        "{ran:?}"
    );
    // Law 6 once knew only one grace, so a deadline with another grace broke it.
    for grace in ["30s", "90s", "5m"] {
        let mut spec = spec(&deadline);
        spec.spec.checkpoint.as_mut().unwrap().grace = grace.parse().unwrap();
        let ran = lived(&spec, 180, Goes::OnDemand, always()).ran;
        assert!(
            ran.unfinished == Some(Unfinished::Deadline) && ran.starts == 1,
            "{grace}: {ran:?}"
        );
    }
    let ran =
        lived(&spec(&serde_json::json!({"max_runtime": "40m"})), 60, Goes::OnDemand, always()).ran;
    assert_eq!(ran.unfinished, Some(Unfinished::RunTime), "{ran:?}");
    let ran = lived(&spec(&serde_json::json!({"budget": 2.0})), 60, Goes::OnDemand, always()).ran;
    assert_eq!(ran.unfinished, Some(Unfinished::Budget), "{ran:?}");
    assert!(ran.usd <= 2.0, "{ran:?}");
}

#[test]
fn same_job_on_the_same_course_gives_the_same_result() {
    let spec = spec(&serde_json::json!({"work": Span::from_secs(1800)}));
    let course = || Course { there: [true, true, false].into(), ..always() };
    let both = [(); 2].map(|()| lived(&spec, 30, Goes::Spot, course()).ran);
    assert_eq!(both[0], both[1]);
}

/// Capacity for three minutes, then none for two: each machine works for a minute. No law breaks
/// (15: launches in an hour), and the job ends by `interruptions.max`.
#[test]
fn flapping_market_sells_at_most_ten_machines_an_hour() {
    let flaps = |round: usize| round % 5 < 3;
    let course = || Course { tick: minutes(1), there: (0..2000).map(flaps).collect(), ..always() };
    let mut spec = spec(&serde_json::json!({}));
    spec.spec.interruptions.max = 30;
    let ran = lived(&spec, 60, Goes::Spot, course()).ran;
    assert_eq!(
        (ran.unfinished.is_some(), ran.interruptions, ran.starts),
        (true, 31, 31),
        "{ran:?}"
    );
    assert!(ran.finish_hours > 3.0, "thirty machines are three hours: {ran:?}");
}
