//! What the end of a trial has proven, and how long that holds.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lamplighter::job::{
    AttemptRecord, EndedBy, Ending, Plan, Proof, RECORD_FORMAT, Settled, Switch, Trial, Tried,
};
use lamplighter::market::Span;
use lamplighter::policy::account::shutdown_proof::{
    HOLDS, armed, boot_tag, judge, not_tried, spec, standing, within,
};
use serde::de::DeserializeOwned;

fn kept<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("it is read")
}

const PLAN: &str = include_str!("../data/v1/plan.json");
const SETTLED: &str = include_str!("../data/v1/settled.json");
const PROOF: &str = include_str!("../data/v1/proof.json");

const LEASE: i64 = 120;

fn trial(switch: Switch) -> Trial {
    Trial { switch, lease: Span::from_secs(LEASE as u64) }
}

/// Of a machine that lived so many seconds, and for which the cloud gives this reason.
fn record(lived: i64, reason: &str) -> AttemptRecord {
    let (plan, mut settled): (Plan, Settled) = (kept(PLAN), kept(SETTLED));
    let from: Timestamp = "2026-11-20T18:00:00Z".parse().expect("a time");
    settled.billed_from = Some(from);
    settled.billed_to = Some(from + SignedDuration::from_secs(lived));
    settled.instance = Some("i-1".into());
    settled.cloud_reason = Some(reason.into());
    AttemptRecord { plan: plan.into(), settled: settled.into() }
}

fn ending(by: String) -> Ending {
    Ending {
        format: RECORD_FORMAT,
        at: Timestamp::UNIX_EPOCH,
        by,
        why: "no word of its agent for 480 s".into(),
        heard: None,
        stood: None,
        swept_by: None,
    }
}

const OFF: &str = "Client.InstanceInitiatedShutdown: Instance initiated shutdown";
const ASKED: &str = "Client.UserInitiatedShutdown: User initiated shutdown";

#[test]
fn only_the_switch_under_trial_in_its_time_proves_anything() {
    use EndedBy::{Cloud, Itself, Prover, Somebody, Sweep};
    use Switch::DeadlineUnit;
    let sweep = || Some(ending(Ending::by_sweep("lamplighter-sweeper-me")));
    let ours = || Some(ending("me@laptop".into()));
    let late = within(DeadlineUnit).duration().as_secs() as i64 + LEASE + 1;
    let too_late = within(Switch::Sweep).duration().as_secs() as i64 + LEASE + 1;
    for (switch, lived, reason, ending, by, proven) in [
        (DeadlineUnit, 190, OFF, None, Itself, true),
        (DeadlineUnit, LEASE, OFF, None, Itself, true),
        // User data that fail power the machine off too.
        (DeadlineUnit, 30, OFF, None, Itself, false),
        (DeadlineUnit, late, OFF, None, Itself, false),
        (DeadlineUnit, 480, ASKED, ours(), Prover, false),
        (DeadlineUnit, 480, ASKED, sweep(), Sweep, false),
        (DeadlineUnit, 190, ASKED, None, Somebody, false),
        (DeadlineUnit, 190, "Server.InternalError: x", None, Cloud, false),
        (Switch::Sweep, 430, ASKED, sweep(), Sweep, true),
        (Switch::Sweep, too_late, ASKED, sweep(), Sweep, false),
        (Switch::Sweep, 430, ASKED, ours(), Prover, false),
        (Switch::Sweep, 430, OFF, None, Itself, false),
        (Switch::Sweep, 430, ASKED, None, Somebody, false),
    ] {
        let tried = judge(&trial(switch), within(switch), &record(lived, reason), ending.as_ref())
            .expect("it was launched");
        assert_eq!(
            (tried.ended_by, tried.proven),
            (by, proven),
            "{switch}, {lived} s, {reason}: {}",
            tried.said
        );
        assert_eq!(
            tried.after_lease.duration(),
            Duration::from_secs(u64::try_from(lived - LEASE).unwrap_or(0))
        );
        assert!(!tried.said.is_empty());
    }
}

#[test]
fn without_a_machine_nothing_was_tried() {
    let mut nothing = record(190, OFF);
    Arc::make_mut(&mut nothing.settled).instance = None;
    assert_eq!(
        judge(&trial(Switch::DeadlineUnit), within(Switch::DeadlineUnit), &nothing, None),
        None
    );
}

/// Who may act first is decided by what each of them reads, and not by luck.
#[test]
fn switch_under_trial_is_the_first_that_may_act() {
    let created = Timestamp::UNIX_EPOCH;
    let patience = |switch| spec(&trial(switch), within(switch), created, "us-east-1", &[]).limits;
    for switch in [Switch::DeadlineUnit, Switch::Sweep] {
        let limits = patience(switch);
        assert!(
            limits.boot.duration() >= trial(switch).lease.duration() + within(switch).duration()
        );
        assert!(
            limits.max_runtime.is_some_and(|cap| cap.duration() > limits.boot.duration()),
            "its cap is not what ends it"
        );
    }
    let sweep = boot_tag(&trial(Switch::Sweep), patience(Switch::Sweep).boot);
    assert_eq!(sweep, trial(Switch::Sweep).lease);
    let unit = patience(Switch::DeadlineUnit).boot;
    assert_eq!(
        boot_tag(&trial(Switch::DeadlineUnit), unit),
        unit,
        "a sweep leaves the unit its time"
    );
    let job = spec(&trial(Switch::Sweep), within(Switch::Sweep), created, "us-east-1", &[]);
    assert_eq!(
        (job.interruptions.max, job.watch.metrics),
        (0, false),
        "one machine, and nothing that another switch would hear"
    );
}

/// The prover is dead, no daemon runs, the sweeper is broken: the machine of the sweep ends all the
/// same.
#[test]
fn trial_machine_has_a_last_switch_that_acts_after_the_others() {
    let (unit, sweep) = (trial(Switch::DeadlineUnit), trial(Switch::Sweep));
    let patience = |trial: &Trial| {
        spec(trial, within(trial.switch), Timestamp::UNIX_EPOCH, "us-east-1", &[]).limits.boot
    };
    assert_eq!(armed(&unit, patience(&unit)), unit.lease);
    let last = armed(&sweep, patience(&sweep)).duration();
    assert!(
        last >= patience(&sweep).duration() + Duration::from_secs(5 * 60),
        "it would take the sweep's place: {last:?}"
    );
    assert!(last <= Duration::from_secs(25 * 60), "{last:?}");
    let tried = judge(&sweep, within(Switch::Sweep), &record(last.as_secs() as i64, OFF), None)
        .expect("it was launched");
    assert_eq!((tried.ended_by, tried.proven), (EndedBy::Itself, false), "{}", tried.said);
}

/// Somebody waits at a terminal for what no place has.
#[test]
fn trial_that_finds_no_machine_ends() {
    let created: Timestamp = "2026-11-21T10:00:00Z".parse().expect("a time");
    for switch in [Switch::DeadlineUnit, Switch::Sweep] {
        let limits = spec(&trial(switch), within(switch), created, "us-east-1", &[]).limits;
        let deadline = limits.deadline.expect("it has an end");
        let patience = SignedDuration::try_from(limits.boot.duration()).expect("minutes");
        assert_eq!(deadline, created + patience + SignedDuration::from_mins(30));
        assert!(
            created
                + SignedDuration::try_from(limits.max_runtime.expect("a cap").duration())
                    .expect("minutes")
                < deadline,
            "its own cap comes first"
        );
    }
}

/// A laptop that is off sweeps nothing.
#[test]
fn proof_says_whose_sweep_it_was_and_what_was_not_tried() {
    let swept_by = |by: &str| {
        let tried = judge(
            &trial(Switch::Sweep),
            within(Switch::Sweep),
            &record(430, ASKED),
            Some(&ending(Ending::by_sweep(by))),
        );
        tried.expect("it was launched")
    };
    let (cloud, ours) = (swept_by("lamplighter-sweeper-me"), swept_by("me@laptop"));
    assert!(!cloud.said.contains("while that workstation is off"), "{cloud:?}");
    assert!(ours.said.contains("while that workstation is off"), "{ours:?}");
    let mut proof: Proof = kept(PROOF);
    let one = proof.trials[0].clone();
    proof.trials = vec![Tried { switch: Switch::DeadlineUnit, ..one.clone() }];
    assert!(not_tried(&proof, "me").is_some_and(|less| less.contains("kernel hangs")));
    // A proof of version 0.1.0 names the sweep only in its text.
    let old = |tried: &Tried| Tried { swept_by: None, ..tried.clone() };
    for (tried, owner, is_enough) in [
        (cloud.clone(), "me", true),
        (old(&cloud), "me", true),
        (old(&cloud), "m", false),
        (cloud, "m", false),
        (old(&ours), "me", false),
        (ours, "me", false),
    ] {
        let said = tried.said.clone();
        proof.trials.push(tried);
        let less = not_tried(&proof, owner);
        assert_eq!(less.is_none(), is_enough, "{said}, of {owner}: {less:?}");
        assert!(
            less.as_ref().is_none_or(|less| less.contains("while your workstation is off")),
            "{less:?}"
        );
        proof.trials.truncate(1);
    }
    proof.sweeper_unknown = Some("you may not look".into());
    assert!(not_tried(&proof, "me").is_some_and(|less| {
        less.contains("nor is it known whether a sweeper is installed: you may not look")
    }));
}

#[test]
fn proof_holds_thirty_days_unless_it_failed_or_is_in_the_future() {
    let proof: Proof = kept(PROOF);
    let good = |days: i64, passed| {
        let now = proof.at + SignedDuration::from_hours(24 * days);
        let proof = Proof { passed, ..proof.clone() };
        let verdict = standing(Some(&proof), now);
        (verdict.is_good(), verdict.words())
    };
    assert!(good(0, true).0 && good(29, true).0);
    assert_eq!(HOLDS, Duration::from_secs(30 * 86_400));
    for (days, passed, words) in
        [(31, true, "older than 30 days"), (1, false, "and it failed"), (-2, true, "in the future")]
    {
        let (is_good, said) = good(days, passed);
        assert!(!is_good && said.contains(words), "{said}");
    }
    assert!(!standing(None, proof.at).is_good());
}
