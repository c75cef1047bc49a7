//! What an extension does to the hard cap of a machine that runs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::instance::{InstanceState, InstanceView, Tags};
use lamplighter::job::{AttemptPhase, EndedBecause, LimitsSpec, Request, Wish};
use lamplighter::market::{Span, Usd};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, JobFacts, reconcile};

use crate::lifecycle::reconcile_facts::{
    OWNER, ago, attempt, known, now, spec, status, view, wish, words,
};

const HOUR: Span = Span::from_secs(3600);

/// Where the cap moves to, of a machine at $1 an hour that was launched ten minutes ago.
fn raised(limits: LimitsSpec, kill_at: Timestamp, requests: &[Request]) -> Option<Timestamp> {
    let mut spec = spec();
    spec.spec.limits = limits;
    let mut running =
        AttemptFacts { status: Some(status(AttemptPhase::Running, ago(30))), ..attempt(1, 600) };
    Arc::make_mut(&mut running.plan).kill_at = Some(kill_at);
    let seen = view(1, OWNER, InstanceState::Running, None);
    let seen = InstanceView { tags: Tags { kill_at: Some(kill_at), ..seen.tags.clone() }, ..seen };
    let (attempts, cloud) = ([running], known(&[seen]));
    let facts = JobFacts {
        spec: &spec,
        attempts: &attempts,
        requests,
        cloud: &cloud,
        newest_checkpoint: None,
        owner: OWNER,
        here: "z",
        now: now(),
    };
    match reconcile(&facts).as_slice() {
        [Act::RaiseKillAt { kill_at, .. }] => Some(*kill_at),
        [Act::Wait { .. }] => None,
        other => panic!("{other:?}"),
    }
}

fn after(hours: u64) -> Timestamp {
    ago(600) + Duration::from_secs(hours * 3600 + 300)
}

/// Of a budget: the power-off is paid from it.
fn spent_after(hours: u64) -> Timestamp {
    ago(600) + Duration::from_secs(hours * 3600 - 120)
}

fn more(time: Option<Span>, dollars: Option<&str>) -> [Request; 1] {
    [wish(
        Wish::Extend {
            time,
            budget: dollars.map(|text| text.parse::<Usd>().unwrap()),
            fallback_cost: None,
        },
        5,
    )]
}

#[test]
fn more_money_is_no_more_time_where_money_was_not_what_ran_out() {
    let hour = LimitsSpec { max_runtime: Some(HOUR), ..LimitsSpec::default() };
    assert_eq!(raised(hour.clone(), after(1), &[]), None);
    assert_eq!(raised(hour.clone(), after(1), &more(None, Some("$5"))), None);
    assert_eq!(raised(hour, after(1), &more(Some(HOUR), None)), Some(after(2)));
}

#[test]
fn first_limit_still_counts_when_another_has_grown() {
    let both = LimitsSpec {
        max_runtime: Some(Span::from_secs(3 * 3600)),
        budget: Some("$1".parse().unwrap()),
        ..LimitsSpec::default()
    };
    assert_eq!(raised(both.clone(), after(1), &more(None, Some("$1"))), Some(spent_after(2)));
    assert_eq!(
        raised(both.clone(), after(1), &more(None, Some("$50"))),
        Some(after(3)),
        "the run time is the first limit now"
    );
    assert_eq!(
        raised(both, after(1), &more(Some(HOUR), None)),
        None,
        "the budget still ends it first"
    );
}

/// A stop lets an agent that is about to speak end in order; a cancel saves nothing, and ends a
/// machine at EC2 at once.
#[test]
fn cancel_of_booting_machine_ends_it_at_once() {
    let alive = || known(&[view(1, OWNER, InstanceState::Running, None)]);
    assert_eq!(words(&[attempt(1, 60)], &[wish(Wish::Cancel, 1)], alive()), ["terminate"]);
    assert_eq!(words(&[attempt(1, 60)], &[wish(Wish::Stop, 29)], alive()), ["wait"]);
}

/// EC2 has taken the tags off a machine that it has forgotten, and its plan stands for them: with
/// the cap from before more time was added.
#[test]
fn extended_machine_that_dies_after_its_first_cap_is_lost() {
    let mut spec = spec();
    spec.spec.limits.max_runtime = Some(HOUR);
    let because = |requests: &[Request]| {
        let mut died = AttemptFacts {
            status: Some(status(AttemptPhase::Running, ago(90))),
            ..attempt(1, 2 * 3600)
        };
        Arc::make_mut(&mut died.plan).kill_at = Some(ago(3600 - 300));
        let seen = view(1, OWNER, InstanceState::Terminated, Some("Server.InternalError"));
        let seen = InstanceView {
            tags: Tags { kill_at: died.plan.kill_at, ..seen.tags.clone() },
            launched: ago(7190),
            ..seen
        };
        let (attempts, cloud) = ([died], known(&[seen]));
        let facts = JobFacts {
            spec: &spec,
            attempts: &attempts,
            requests,
            cloud: &cloud,
            newest_checkpoint: None,
            owner: OWNER,
            here: "z",
            now: now(),
        };
        let acts = reconcile(&facts);
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        settled.because
    };
    let added = wish(Wish::Extend { time: Some(HOUR), budget: None, fallback_cost: None }, 4000);
    assert_eq!((because(&[]), because(&[added])), (EndedBecause::HardEnd, EndedBecause::Lost));
}
