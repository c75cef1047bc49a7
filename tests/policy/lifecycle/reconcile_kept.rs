//! A kept machine that was started again, and the cloud's answers of before.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView, Tags};
use lamplighter::job::{
    AttemptNo, AttemptPhase, CheckpointNo, CheckpointSummary, Continues, EndedBecause, Outcome,
    Reaction, Request, ResolvedSpec, Settled, Starts, Wish,
};
use lamplighter::market::{Market, Span};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, JobFacts, reconcile};

use crate::lifecycle::reconcile_facts::{
    self, OWNER, ago, attempt, known, now, outcome, settled, spec, status, view, wish,
};

/// An attempt that starts a kept machine, planned so long ago; its agent is at work.
fn started(age_secs: u64) -> AttemptFacts {
    let mut attempt = attempt(1, age_secs);
    let machine = kept();
    Arc::make_mut(&mut attempt.plan).starts = Some(Starts {
        job: machine.tags.job,
        instance: machine.id,
        launched: machine.launched,
        only_setup: false,
    });
    attempt.status = Some(status(AttemptPhase::Running, ago(5)));
    attempt
}

/// As it stood when its first job was over.
fn kept() -> InstanceView {
    let mut view = view(
        1,
        OWNER,
        InstanceState::Stopped,
        Some("Client.InstanceInitiatedShutdown: Instance initiated shutdown"),
    );
    (view.market, view.tags.job, view.launched) =
        (Market::OnDemand, "before-333333".parse().unwrap(), ago(90_000));
    view
}

fn acts(attempt: AttemptFacts, view: InstanceView) -> Vec<Act> {
    reconcile_facts::acts(&[attempt], &[], known(&[view]))
}

/// Seed 1762: a second controller, whose reads were half an hour old, ended a machine that had just
/// been started.
#[test]
fn machine_shown_as_it_stood_before_its_start_is_not_ended() {
    for age in [10, 3600] {
        let acts = acts(started(age), kept());
        assert!(
            matches!(&acts[..], [Act::Wait { why, .. }] if why.contains("before its start")),
            "{age} s: {acts:?}"
        );
    }
    // It has its new name already, and stands for a moment.
    let mut named = kept();
    named.tags.job = spec().job;
    assert!(matches!(&acts(started(10), named)[..], [Act::Wait { .. }]));
}

#[test]
fn machine_that_stopped_in_its_second_life_ends_as_any_other() {
    let mut stopped = kept();
    (stopped.tags.job, stopped.launched) = (spec().job, ago(600));
    assert!(matches!(
        &acts(started(610), stopped.clone())[..],
        [Act::Terminate { ends: Some(_), .. }]
    ));
    // Where starts are not counted, after the time of a boot.
    stopped.launched = kept().launched;
    assert!(matches!(
        &acts(started(3600), stopped.clone())[..],
        [Act::Terminate { ends: Some(_), .. }]
    ));
    // Where it is said when it stopped, at once.
    stopped.ended = Some(ago(4));
    assert!(matches!(
        &acts(started(10), stopped.clone())[..],
        [Act::Terminate { ends: Some(_), .. }]
    ));
}

/// Seed 15000848 of 24 h: its work failed within a second of its start, and a second controller
/// settled it by how it was shown before that, from its first launch on, while it ran.
#[test]
fn nor_is_it_settled_by_that_once_its_attempt_has_ended() {
    let ended =
        |age| AttemptFacts { outcome: Some(outcome(1, EndedBecause::Failed)), ..started(age) };
    let mut before = kept();
    before.ended = Some(ago(80_000));
    let waits = |acts: Vec<Act>| matches!(&acts[..], [Act::Wait { why, .. }] if why.contains("before its start"));
    assert!(waits(acts(ended(10), before.clone())), "by its name");
    before.tags.job = spec().job;
    assert!(waits(acts(ended(10), before.clone())), "by its last start");
    // It stopped in its second life: by its new start, or after its agent's last word.
    let mut stopped = before.clone();
    stopped.launched = ago(8);
    assert!(!waits(acts(ended(10), stopped)));
    let mut stopped = before.clone();
    stopped.ended = Some(ago(4));
    assert!(!waits(acts(ended(10), stopped)));
    // Where neither is said, after the time of a boot.
    assert!(!waits(acts(ended(3600), before)));
}

/// Somebody has started it in the console, for a look: its job is over, and its disk was to stay.
#[test]
fn kept_machine_that_runs_again_is_stopped_and_no_other_machine() {
    let over = |kept| AttemptFacts {
        settled: Some(Settled { kept, ..settled(1, EndedBecause::LaunchFailed) }.into()),
        ..attempt(1, 600)
    };
    let runs = |market| InstanceView { market, ..view(1, OWNER, InstanceState::Running, None) };
    for (kept, market, word) in [
        (true, Market::OnDemand, "stop"),
        (true, Market::Spot, "terminate"),
        (false, Market::OnDemand, "terminate"),
    ] {
        let acts = acts(over(kept), runs(market));
        assert_eq!(reconcile_facts::word(&acts[0]), word, "{kept}, {market:?}: {acts:?}");
    }
}

/// What hangs in its stop is stopped by force; a wish to cancel asks for no disk.
#[test]
fn stop_that_hangs_is_forced() {
    for (since, cancelled, words) in
        [(120, false, "wait"), (700, false, "stop"), (700, true, "terminate")]
    {
        // By the wall clock of this workstation it has been stopping for a day.
        let mut view = InstanceView {
            market: Market::OnDemand,
            ..view(1, OWNER, InstanceState::Stopping, None)
        };
        view.ended = Some(ago(86_400));
        let mut ended =
            AttemptFacts { outcome: Some(outcome(1, EndedBecause::Succeeded)), ..attempt(1, 7200) };
        ended.watched.dark_for = Some(Duration::from_secs(since));
        let wishes =
            if cancelled { vec![reconcile_facts::wish(Wish::Cancel, 60)] } else { Vec::new() };
        let acts = reconcile_facts::acts(&[ended], &wishes, known(&[view]));
        assert_eq!(reconcile_facts::word(&acts[0]), words, "{since} s, {cancelled}: {acts:?}");
    }
}

/// Its work is done and its power-off does not work: what its job file keeps is kept, and nobody
/// who cancels it wants the disk.
#[test]
fn machine_that_does_not_go_dark_is_stopped_if_its_disk_stays() {
    let acts = |because, market, wishes: &[Request], outcome_for| {
        let mut spec = spec();
        spec.spec.on.success = Reaction::Stop;
        let mut ended = AttemptFacts {
            outcome: Some(outcome(1, because)),
            status: Some(status(AttemptPhase::Ended, ago(190))),
            ..attempt(1, 600)
        };
        ended.watched.outcome_for = Duration::from_secs(outcome_for);
        let cloud =
            known(&[InstanceView { market, ..view(1, OWNER, InstanceState::Running, None) }]);
        let (attempts, here, now) = (&[ended], "z", now());
        let acts = reconcile(&JobFacts {
            spec: &spec,
            attempts,
            requests: wishes,
            cloud: &cloud,
            newest_checkpoint: None,
            owner: OWNER,
            here,
            now,
        });
        reconcile_facts::word(&acts[0])
    };
    let cancel = [reconcile_facts::wish(Wish::Cancel, 60)];
    assert_eq!(acts(EndedBecause::Succeeded, Market::OnDemand, &[], 179), "wait");
    assert_eq!(acts(EndedBecause::Succeeded, Market::OnDemand, &[], 181), "stop");
    assert_eq!(acts(EndedBecause::Succeeded, Market::OnDemand, &cancel, 181), "terminate");
    assert_eq!(
        acts(EndedBecause::Failed, Market::OnDemand, &[], 181),
        "terminate",
        "that was not asked for"
    );
    assert_eq!(
        acts(EndedBecause::Succeeded, Market::Spot, &[], 181),
        "terminate",
        "such a machine cannot be stopped"
    );
}

/// Whoever slept over the start of a kept machine starts it with the whole of its time: a hard end
/// is counted from the plan.
#[test]
fn kept_machine_whose_plan_has_lain_is_planned_anew() {
    let mut spec = spec();
    spec.spec.limits.max_runtime = Some(Span::from_secs(12 * 3600));
    let settled = |age: u64, change: &dyn Fn(&mut AttemptFacts)| {
        let mut attempt = started(age);
        (attempt.status, Arc::make_mut(&mut attempt.plan).kill_at) =
            (None, Some(attempt.plan.created + Duration::from_secs(12 * 3600 + 300)));
        change(&mut attempt);
        let (attempts, cloud) = ([attempt], known(&[kept()]));
        let facts = JobFacts {
            spec: &spec,
            attempts: &attempts,
            requests: &[],
            cloud: &cloud,
            newest_checkpoint: None,
            owner: OWNER,
            here: "z",
            now: now(),
        };
        match &reconcile(&facts)[..] {
            [Act::Settle(settled)] => (
                reconcile_facts::word(&Act::Settle(settled.clone())),
                Some((settled.because, settled.kept)),
            ),
            other => (reconcile_facts::word(&other[0]), None),
        }
    };
    let never = |_: &mut AttemptFacts| {};
    assert_eq!(settled(890, &never).0, "launch");
    assert_eq!(settled(910, &never).0, "wait", "another may have started it a moment ago");
    assert_eq!(
        settled(9 * 3600, &never),
        ("settle", Some((EndedBecause::Lost, true))),
        "and the next follows"
    );
    assert_eq!(settled(13 * 3600, &never), ("settle", Some((EndedBecause::Lost, true))));
    for (secs, word) in [(60, "wait"), (300, "settle")] {
        let lost_reply = move |attempt: &mut AttemptFacts| {
            attempt.watched.asked_for = Some(Duration::from_secs(secs))
        };
        assert_eq!(settled(9 * 3600, &lost_reply).0, word, "it may have been taken {secs} s ago");
    }
    let given = |attempt: &mut AttemptFacts| attempt.watched.launched = Some(kept().id);
    assert_eq!(settled(9 * 3600, &given).0, "launch");
}

/// Somebody asks for the end of a job in the second in which its kept machine was started, and EC2
/// still shows how it stood: settled by that, it would run with nobody to drive it, and be paid for
/// by nobody.
#[test]
fn machine_started_a_moment_ago_is_not_settled_as_it_stood() {
    let asked = |secs: Option<u64>, launched: bool| {
        let mut attempt = started(90);
        attempt.status = None;
        attempt.watched.asked_for = secs.map(Duration::from_secs);
        attempt.watched.launched = launched.then(|| kept().id);
        attempt
    };
    let stop = [wish(Wish::Stop, 20)];
    for (attempt, settles) in [
        (asked(Some(30), true), false),
        (asked(Some(61), true), true),
        (asked(Some(30), false), true),
        (asked(None, false), true),
    ] {
        let acts = reconcile_facts::acts(&[attempt], &stop, known(&[kept()]));
        assert_eq!(matches!(&acts[..], [Act::Settle(_)]), settles, "{acts:?}");
    }
}

/// It ran for its attempt and stands again, and this controller has asked for nothing: whoever did
/// writes down what became of it, and a start of now would be a second machine beside the next
/// (seed 94021250 of 24 h). Where nobody does, it is started again as before.
#[test]
fn standing_machine_that_another_started_is_left_for_a_minute() {
    let word = |stood: Option<u64>, asked: Option<u64>, as_kept: bool| {
        let mut stands = kept();
        if !as_kept {
            (stands.tags.job, stands.launched, stands.ended) =
                (spec().job, ago(500), Some(ago(250)));
        }
        let mut attempt = started(600);
        attempt.status = None;
        (attempt.watched.asked_for, attempt.watched.dark_for) =
            (asked.map(Duration::from_secs), stood.map(Duration::from_secs));
        reconcile_facts::word(&acts(attempt, stands)[0])
    };
    assert_eq!(
        (word(Some(0), None, false), word(Some(59), None, false), word(Some(60), None, false)),
        ("wait", "wait", "launch")
    );
    assert_eq!(word(Some(0), Some(90), false), "launch", "by whoever has asked for it before");
    assert_eq!(word(Some(0), None, true), "launch", "nobody has started it");
}

/// The start that another controller asked for may take effect just after this one has written down
/// that there was none.
#[test]
fn next_attempt_waits_a_minute_if_the_kept_machine_was_not_had() {
    let last = |secs: u64, instance: Option<&str>| {
        let mut attempt = started(600);
        attempt.status = None;
        let not_had = Settled {
            instance: instance.map(str::to_owned),
            outcome: None,
            ..settled(1, EndedBecause::Lost)
        };
        (attempt.settled, attempt.watched.settled_for) =
            (Some(not_had.into()), Duration::from_secs(secs));
        attempt
    };
    let words = |attempt: AttemptFacts,
                 views: &[InstanceView],
                 goes_elsewhere: bool|
     -> Vec<&str> {
        let checkpoint = r#"{"job": "before-333333", "checkpoint": {"number": 3, "attempt": 1, "created": "2026-01-01T00:00:00Z", "bytes": 9}}"#;
        let checkpoint = goes_elsewhere.then(|| serde_json::from_str(checkpoint).unwrap());
        let continues = Some(Continues {
            job: "before-333333".parse().unwrap(),
            checkpoint,
            machine: None,
            new_code: false,
            only_setup: false,
        });
        let (spec, attempts, cloud) =
            (ResolvedSpec { continues, ..spec() }, [attempt], known(views));
        let facts = JobFacts {
            spec: &spec,
            attempts: &attempts,
            requests: &[],
            cloud: &cloud,
            newest_checkpoint: None,
            owner: OWNER,
            here: "z",
            now: now(),
        };
        reconcile(&facts).iter().map(reconcile_facts::word).collect()
    };
    let is = |state, job: &str| InstanceView {
        state,
        tags: Tags { job: job.parse().unwrap(), ..kept().tags },
        launched: ago(3),
        ..kept()
    };
    let (ours, theirs) = (spec().job, "other-333333");
    assert_eq!(
        (words(last(59, None), &[kept()], true), words(last(60, None), &[kept()], true)),
        (vec!["wait"], vec!["plan"])
    );
    assert_eq!(
        (words(last(59, None), &[], true), words(last(60, None), &[], true)),
        (vec!["wait"], vec!["plan"]),
        "a silent region holds nothing up"
    );
    assert_eq!(
        words(last(10, Some("i-1")), &[kept()], true),
        ["plan"],
        "it was had, and is seen to be gone"
    );
    assert_eq!(words(last(10, None), &[kept()], false), ["plan"], "the next starts the same one");
    assert_eq!(
        words(last(10, None), &[is(InstanceState::Terminated, "before-333333")], true),
        ["plan"],
        "nobody can start it any more"
    );
    let started = words(last(600, None), &[is(InstanceState::Pending, ours.as_str())], true);
    assert!(started.last() == Some(&"wait") && !started.contains(&"plan"), "{started:?}");
    assert_eq!(
        words(last(600, None), &[is(InstanceState::Pending, theirs)], true),
        ["plan"],
        "it runs for another job"
    );
    assert_eq!(
        words(last(600, None), &[is(InstanceState::Stopping, ours.as_str())], true),
        ["plan"],
        "it bills no more, and may hang in that"
    );
}

/// Its disk was to stay, and EC2 does not stop it: it bills on for ever, or what the disk holds is
/// lost.
#[test]
fn unstoppable_machine_ends_once_its_work_is_in_the_job_root() {
    let saved = |of: u32| CheckpointSummary {
        number: CheckpointNo::new(2),
        attempt: AttemptNo::new(of),
        created: ago(70),
        step: None,
        bytes: 5,
        name: None,
    };
    type Change = fn(&mut Outcome, &mut ResolvedSpec);
    let outputs: Change = |_, spec| spec.spec.outputs = vec!["model/*".into()];
    let cases: [(&str, bool, Change, Option<u32>, &str); 11] = [
        ("nobody has said that it cannot", false, outputs, None, "stop"),
        ("its outputs are there", true, outputs, None, "terminate"),
        ("it names no outputs", true, |_, _| {}, None, "stop"),
        (
            "one of its outputs is not there",
            true,
            |ended, spec| (ended.losses, spec.spec.outputs) = (vec!["x".into()], vec!["x".into()]),
            None,
            "stop",
        ),
        (
            "it has failed, and the outputs are what they are",
            true,
            |ended, spec| {
                (ended.because, spec.spec.outputs) = (EndedBecause::Failed, vec!["x".into()])
            },
            None,
            "stop",
        ),
        ("its checkpoint is whole", true, |_, _| {}, Some(2), "terminate"),
        ("a newer one is", true, |_, _| {}, Some(3), "terminate"),
        (
            "its checkpoint is whole, and something of its end is lost",
            true,
            |ended, _| ended.losses = vec!["x".into()],
            Some(2),
            "stop",
        ),
        ("its checkpoint is not there", true, |_, _| {}, None, "stop"),
        ("an older one is", true, |_, _| {}, Some(1), "stop"),
        (
            "it failed, and its checkpoint is whole",
            true,
            |ended, _| ended.because = EndedBecause::Failed,
            Some(2),
            "terminate",
        ),
    ];
    for (name, unstoppable, change, newest, expected) in cases {
        let acts = |of: u32| {
            let (mut open, mut spec) = (attempt(1, 600), spec());
            (spec.spec.on.success, spec.spec.on.failure) = (Reaction::Stop, Reaction::Stop);
            let mut ended = outcome(1, EndedBecause::Succeeded);
            ended.last_checkpoint =
                name.contains("checkpoint").then(|| saved(of)).or(newest.map(|_| saved(of)));
            change(&mut ended, &mut spec);
            open.outcome = Some(ended);
            (open.watched.outcome_for, open.watched.unstoppable) =
                (Duration::from_secs(200), unstoppable);
            let mut running = view(1, OWNER, InstanceState::Running, None);
            running.market = Market::OnDemand;
            let newest_checkpoint = newest.map(CheckpointNo::new);
            let (attempts, cloud) = ([open], known(&[running]));
            let facts = JobFacts {
                spec: &spec,
                attempts: &attempts,
                requests: &[],
                cloud: &cloud,
                newest_checkpoint,
                owner: OWNER,
                here: "ws",
                now: now(),
            };
            reconcile(&facts)
        };
        let word = |acts: Vec<Act>| match &acts[..] {
            [Act::Stop { .. }] => "stop",
            [Act::Terminate { ends: Some(_), .. }] => "terminate",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(word(acts(1)), expected, "{name}");
        if newest.is_some() {
            assert_eq!(
                word(acts(2)),
                "stop",
                "{name}, of another attempt: what this one did is on its disk alone"
            );
        }
    }
}
