//! Tunings: which trial goes on past a rung, which comes next, and what all can cost.

use lamplighter::job::{
    EarlyStop, GangSpec, MetricPoint, Spec, TrialFate, TuneGoal, TuneSpec, TuningEndedBecause,
};
use lamplighter::market::Usd;
use lamplighter::policy::tune::halving::{RungStanding, RungTrial, standing};
use lamplighter::policy::tune::next_trial::{
    NextTrial, TrialStand, TrialValues, committed, next_trial,
};
use lamplighter::policy::tune::space_check;
use lamplighter::policy::tune::tuning_cost::TuningCost;
use serde_json::json;

fn points(value: f64, steps: &[u32]) -> Vec<MetricPoint> {
    let value = Some(value).filter(|value| value.is_finite());
    steps.iter().map(|step| MetricPoint { step: f64::from(*step), value }).collect()
}

/// The standing of the last of these trials.
fn last(trials: &[Vec<MetricPoint>]) -> Option<RungStanding> {
    let all: Vec<RungTrial<'_>> = (1..)
        .zip(trials)
        .map(|(number, points)| RungTrial { number, points, is_complete: false })
        .collect();
    standing(TuneGoal::Minimize, trials.len() as u32, &all)
}

#[test]
fn best_quarter_at_the_highest_rung_goes_on() {
    assert_eq!(last(&[points(1.0, &[])]), None);
    let alone = last(&[points(9.0, &[1, 2, 3])]).unwrap();
    assert_eq!((alone.rung, alone.place, alone.of), (1.0, 1, 1));
    assert!(alone.goes_on(), "the first has nothing to wait for");
    let second = last(&[points(1.0, &[1]), points(2.0, &[1])]).unwrap();
    assert!(!second.goes_on(), "{second:?}");
    // With eight at the rung, the second best goes on too.
    let mut eight: Vec<_> = (2..8).map(|value| points(f64::from(value), &[1])).collect();
    eight.push(points(0.5, &[1]));
    eight.push(points(1.0, &[1]));
    let promoted = last(&eight).unwrap();
    assert_eq!((promoted.place, promoted.of, promoted.goes_on()), (2, 8, true));
    // It is judged where it stands, not where it was.
    eight[6] = points(0.5, &[1, 4]);
    eight[7] = points(1.0, &[1, 5]);
    let higher = last(&eight).unwrap();
    assert_eq!((higher.rung, higher.of, higher.goes_on()), (4.0, 2, false));
}

#[test]
fn value_that_is_no_number_is_the_worst() {
    let nan = last(&[points(9.0, &[1]), points(f64::NAN, &[1])]).unwrap();
    assert_eq!(nan.place, 2);
    let worse = last(&[points(f64::NAN, &[1]), points(9.0, &[1])]).unwrap();
    assert_eq!(worse.place, 1);
    let equal = last(&[points(3.0, &[1]), points(3.0, &[1])]).unwrap();
    assert_eq!(equal.place, 2);
}

#[test]
fn first_rung_is_a_hundredth_of_the_longest_trial() {
    let long = last(&[points(1.0, &[5000]), points(2.0, &[49])]);
    assert_eq!(long, None, "its first rung is at step 50");
    let reached = last(&[points(1.0, &[5000]), points(2.0, &[50])]).unwrap();
    assert_eq!((reached.rung, reached.of), (50.0, 2));
}

fn tune(trials: u32, parallel: u32, budget: Option<f64>) -> TuneSpec {
    let spec = json!({ "goal": "minimize", "metric": "loss", "trials": trials,
        "parallel": parallel, "budget": budget, "algorithm": "random", "early_stop": "off",
        "params": {} });
    serde_json::from_value(spec).unwrap()
}

#[test]
fn trial_of_several_machines_does_not_pause() {
    let is_refused = |early_stop: EarlyStop, gang: Option<Box<GangSpec>>| {
        let alone = json!({ "name": "x", "command": { "args": ["true"] } });
        let spec = Spec { gang, ..serde_json::from_value(alone).unwrap() };
        let space = TuneSpec { early_stop, ..tune(3, 1, None) };
        let found = space_check::check(&space, &spec);
        found.iter().any(|finding| finding.message.contains("several machines cannot pause"))
    };
    assert!(is_refused(EarlyStop::PausingAsha, Some(Box::default())));
    assert!(!is_refused(EarlyStop::PausingAsha, None));
    assert!(!is_refused(EarlyStop::Asha, Some(Box::default())));
}

#[test]
fn reuse_is_refused_for_machines_that_cannot_be_stopped() {
    let refusal = |change: serde_json::Value, early_stop: EarlyStop| {
        let mut job = json!({ "name": "x", "command": { "args": ["true"] },
            "machine": { "cloud": "aws", "market": "on-demand" } });
        let changes = change.as_object().cloned().unwrap_or_default();
        job.as_object_mut().unwrap().extend(changes);
        let spec: Spec = serde_json::from_value(job).unwrap();
        let space = TuneSpec { early_stop, reuse: true, ..tune(3, 1, None) };
        let found = space_check::check(&space, &spec).into_iter();
        found.filter(|one| one.path == "tune.reuse").map(|one| one.message).next()
    };
    assert_eq!(refusal(json!({}), EarlyStop::Median), None);
    let local = json!({ "machine": { "cloud": "local" } });
    assert_eq!(refusal(local, EarlyStop::Off), None);
    let spot = json!({ "machine": { "cloud": "aws", "market": "spot" } });
    for (change, early_stop, words) in [
        (spot, EarlyStop::Off, "a spot machine cannot be stopped"),
        (json!({}), EarlyStop::PausingAsha, "`early_stop` is `pausing-asha`"),
        (json!({ "on": { "success": "stop" } }), EarlyStop::Off, "`on.success` says"),
        (json!({ "gang": {} }), EarlyStop::Off, "several machines"),
    ] {
        let refused = refusal(change, early_stop);
        assert!(refused.as_ref().is_some_and(|said| said.contains(words)), "{refused:?}");
    }
}

fn usd(dollars: f64) -> Option<Usd> {
    Usd::from_dollars(dollars).ok()
}

#[test]
fn budget_and_number_of_trials_bound_the_cost() {
    let open = TuningCost::of(&tune(30, 3, None), usd(1.5));
    assert_eq!((open.most_usd, open.starts_nothing()), (usd(45.0), false));
    assert!(open.sentence().contains("$45.00 for all"), "{}", open.sentence());
    let bound = TuningCost::of(&tune(30, 3, Some(20.0)), usd(1.5));
    assert_eq!((bound.most_usd, bound.starts_nothing()), (usd(20.0), false));
    let small = TuningCost::of(&tune(30, 3, Some(1.0)), usd(1.5));
    assert!(small.starts_nothing());
    let unlimited = TuningCost::of(&tune(30, 3, None), None);
    assert_eq!((unlimited.most_usd, unlimited.starts_nothing()), (None, false));
}

#[test]
fn paused_trial_frees_its_place_and_counts_with_its_cost() {
    let spec = tune(3, 1, None);
    let stand = |number, fate: Option<TrialFate>, spent| TrialStand {
        number,
        fate,
        usd: usd(spent).unwrap(),
        most_usd: usd(3.0),
        is_paused: false,
        again_of: None,
    };
    let done = Some(TrialFate::Complete);
    let mut all = vec![stand(1, None, 1.0), stand(2, done, 1.0)];
    assert_eq!(next_trial(&spec, &all), NextTrial::Wait);
    all[0].is_paused = true;
    let start = NextTrial::Start { number: 3, values: TrialValues::Random };
    assert_eq!(next_trial(&spec, &all), start);
    assert_eq!(committed(&all), usd(2.0));
    all.push(stand(3, done, 1.0));
    let over = next_trial(&spec, &all);
    assert!(
        matches!(over, NextTrial::End { because: TuningEndedBecause::Done, .. }),
        "nothing runs: {over:?}"
    );
    // A job that went on has its own most, beside the cost of the one before.
    all[0].is_paused = false;
    assert_eq!(committed(&all), usd(6.0));
}
