//! When a limit falls, and which comes first.

use jiff::{SignedDuration, Timestamp};
use lamplighter::job::{EndedBecause, LimitsSpec};
use lamplighter::market::{Span, Usd, UsdPerHour};
use lamplighter::policy::{
    Extension, LimitFacts, LimitKind, LimitLevel, judge_limits, limit_points,
};
use proptest::prelude::*;

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap() + SignedDuration::from_mins(minutes)
}

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

/// Two dollars an hour, begun at 0, five minutes to drain.
fn account(limits: LimitsSpec) -> LimitFacts {
    LimitFacts {
        began: at(0),
        price: UsdPerHour::new(usd(2.0)),
        spent_before: Usd::ZERO,
        limits,
        extended: Extension::default(),
        kill_at: None,
        drain: Span::from_secs(300),
    }
}

fn hours(hours: u64) -> Option<Span> {
    Some(Span::from_secs(hours * 3600))
}

/// The most that this attempt and the ones before it can cost; `None` when it has a price and no
/// limit.
fn most_usd(account: &LimitFacts) -> Option<Usd> {
    if account.price == UsdPerHour::ZERO {
        return Some(account.spent_before);
    }
    let end = limit_points(account).into_iter().map(|point| point.at).min()?;
    let time = end.duration_since(account.began).max(SignedDuration::ZERO).unsigned_abs();
    Some(account.spent_before + account.price.cost_of(time))
}

#[test]
fn each_limit_falls_where_its_words_say() {
    let limits = LimitsSpec {
        max_runtime: hours(10),
        budget: Some(usd(6.0)),
        deadline: Some(at(400)),
        ..LimitsSpec::default()
    };
    let points = limit_points(&LimitFacts { kill_at: Some(at(500)), ..account(limits) });
    let found: Vec<(LimitKind, Timestamp)> =
        points.iter().map(|point| (point.kind, point.at)).collect();
    assert_eq!(
        found,
        [
            (LimitKind::Budget, at(180)),
            (LimitKind::Deadline, at(400)),
            (LimitKind::KillAt, at(500)),
            (LimitKind::MaxRuntime, at(600))
        ]
    );
    assert_eq!(points[0].drain_at, at(175), "saving and uploading fit before the limit");
}

#[test]
fn what_earlier_attempts_cost_is_gone() {
    let limits = LimitsSpec { budget: Some(usd(6.0)), ..LimitsSpec::default() };
    let points = limit_points(&LimitFacts { spent_before: usd(5.0), ..account(limits.clone()) });
    assert_eq!(points[0].at, at(30));
    let overspent = LimitFacts { spent_before: usd(7.0), ..account(limits) };
    assert_eq!(judge_limits(&overspent, at(0)).level, LimitLevel::Reached);
}

#[test]
fn free_machine_never_runs_out_of_money() {
    let limits = LimitsSpec { budget: Some(usd(0.01)), ..LimitsSpec::default() };
    let free = LimitFacts { price: UsdPerHour::ZERO, ..account(limits) };
    assert_eq!(judge_limits(&free, at(1_000_000)).next, None);
    assert_eq!(most_usd(&free), Some(Usd::ZERO));
}

#[test]
fn warnings_at_80_and_95_percent_then_the_drain() {
    let limits = LimitsSpec { max_runtime: hours(10), ..LimitsSpec::default() };
    let account = LimitFacts { drain: Span::ZERO, ..account(limits) };
    let cases = [
        (0, LimitLevel::Far),
        (479, LimitLevel::Far),
        (480, LimitLevel::Warn80),
        (569, LimitLevel::Warn80),
        (570, LimitLevel::Warn95),
        (600, LimitLevel::Reached),
    ];
    for (minute, level) in cases {
        assert_eq!(judge_limits(&account, at(minute)).level, level, "minute {minute}");
    }
    let reason = judge_limits(&account, at(600)).reason.unwrap();
    assert_eq!((reason.policy.as_str(), reason.verdict.as_str()), ("budget", "max_runtime"));
    assert_eq!(reason.numbers["spent_usd"], 20.0);
    assert_eq!(LimitKind::MaxRuntime.ended_because(), EndedBecause::MaxRuntime);
}

#[test]
fn extension_moves_the_limits_but_not_the_machines_hard_end() {
    let limits = LimitsSpec {
        max_runtime: hours(1),
        budget: Some(usd(2.0)),
        deadline: Some(at(60)),
        ..LimitsSpec::default()
    };
    let extended = Extension { time: Span::from_secs(3600), budget: usd(2.0) };
    let points = limit_points(&LimitFacts { extended, kill_at: Some(at(90)), ..account(limits) });
    assert_eq!(
        points.iter().map(|point| point.at).collect::<Vec<_>>(),
        [at(90), at(120), at(120), at(120)]
    );
}

#[test]
fn without_a_limit_a_machine_with_a_price_has_no_most() {
    assert_eq!(most_usd(&account(LimitsSpec::default())), None);
    let limits = LimitsSpec { max_runtime: hours(3), ..LimitsSpec::default() };
    assert_eq!(most_usd(&account(limits)), Some(usd(6.0)));
}

proptest! {
    #[test]
    fn more_of_anything_never_buys_fewer_hours(
        budget in 0..1_000_000_000i64, more_usd in 0..1_000_000_000i64, price in 1..100_000_000i64, time in 0..1_000_000u64, more_secs in 0..1_000_000u64, deadline in 0..100_000i64,
    ) {
        let limits = LimitsSpec { max_runtime: Some(Span::from_secs(time)), budget: Some(Usd::from_micros(budget)), deadline: Some(at(deadline)), ..LimitsSpec::default() };
        let less = LimitFacts { price: UsdPerHour::new(Usd::from_micros(price)), ..account(limits) };
        let more = LimitFacts { extended: Extension { time: Span::from_secs(more_secs), budget: Usd::from_micros(more_usd) }, ..less.clone() };
        prop_assert!(limit_points(&more)[0].drain_at >= limit_points(&less)[0].drain_at);
        let cheaper = LimitFacts { price: UsdPerHour::new(Usd::from_micros(price / 2 + 1).min(Usd::from_micros(price))), ..less.clone() };
        prop_assert!(limit_points(&cheaper)[0].drain_at >= limit_points(&less)[0].drain_at);
        let spent = LimitFacts { spent_before: Usd::from_micros(more_usd), ..less.clone() };
        prop_assert!(limit_points(&spent)[0].drain_at <= limit_points(&less)[0].drain_at);
    }

    /// If the drain begins when it must and takes its allowance, the bill stays within the budget.
    #[test]
    fn budget_holds_with_the_drain_in_it(budget in 1_000_000..1_000_000_000i64, price in 1..100_000_000i64, drain in 0..600u64) {
        let limits = LimitsSpec { budget: Some(Usd::from_micros(budget)), ..LimitsSpec::default() };
        let account = LimitFacts { price: UsdPerHour::new(Usd::from_micros(price)), drain: Span::from_secs(drain), ..account(limits) };
        let point = limit_points(&account)[0];
        prop_assume!(point.drain_at > account.began);
        let ran = point.drain_at.duration_since(account.began).unsigned_abs() + Span::from_secs(drain).duration();
        prop_assert!(account.price.cost_of(ran) <= Usd::from_micros(budget));
        prop_assert!(most_usd(&account).unwrap() <= Usd::from_micros(budget));
    }

    /// A level is never taken back while nothing is granted.
    #[test]
    fn time_only_brings_the_limit_nearer(minutes in prop::collection::vec(0..2000i64, 2..20)) {
        let limits = LimitsSpec { max_runtime: hours(20), budget: Some(usd(30.0)), ..LimitsSpec::default() };
        let mut minutes = minutes;
        minutes.sort_unstable();
        let levels: Vec<LimitLevel> = minutes.iter().map(|minute| judge_limits(&account(limits.clone()), at(*minute)).level).collect();
        prop_assert!(levels.is_sorted());
    }
}
