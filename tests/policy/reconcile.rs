//! The controller's one decision: a table that reads like its rules, then laws over any facts.

use std::time::Duration;

use jiff::Timestamp;
use lamplighter::instance::{InstanceState, InstanceView, Notice, NoticeKind, Status, Tags};
use lamplighter::job::{
    AttemptNo, AttemptPhase, Command, EndedBecause, JobOutcome, JobState, LimitsSpec, MachineSpec, Outcome, Plan, RECORD_FORMAT, Request,
    ResolvedSpec, Settled, Spec, Wish,
};
use lamplighter::market::{self, Market, Offer, Region, Span, Usd, UsdPerHour, Zone};
use lamplighter::policy::reconcile::{Act, AttemptFacts, CloudAnswer, Facts, Journal, Watched, job_state, reconcile};
use proptest::prelude::*;

const OWNER: &str = "me";

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

fn ago(secs: u64) -> Timestamp {
    now() - Duration::from_secs(secs)
}

fn spec() -> ResolvedSpec {
    ResolvedSpec {
        format: RECORD_FORMAT,
        job: "digits-222222".parse().unwrap(),
        created: ago(100_000),
        written_by: "test".into(),
        spec: Spec {
            name: "digits".into(),
            command: Command::Shell("true".into()),
            setup: None,
            env: Default::default(),
            outputs: vec![],
            machine: MachineSpec::default(),
            watch: Default::default(),
            limits: LimitsSpec::default(),
            checkpoint: None,
            on: Default::default(),
            retries: Default::default(),
            interruptions: Default::default(),
        },
        code: None,
        origins: Default::default(),
    }
}

fn plan(cloud: market::Cloud, number: u32, age_secs: u64) -> Plan {
    let attempt = AttemptNo::new(number);
    Plan {
        format: RECORD_FORMAT,
        job: spec().job,
        attempt,
        created: ago(age_secs),
        controller: "test".into(),
        offer: Offer {
            cloud,
            region: Region::new("r"),
            zone: Zone::new("z"),
            instance_type: "t".into(),
            gpus: 0,
            gpu_model: None,
            market: Market::Spot,
            price: UsdPerHour::new("$1".parse().unwrap()),
        },
        reasons: vec!["x".into()],
        rejected: vec![],
        most_usd: None,
        client_token: format!("token-{number}"),
        kill_at: None,
        lease: Span::from_secs(1800),
        resume_from: None,
        tags: Default::default(),
    }
}

fn attempt(number: u32, age_secs: u64) -> AttemptFacts {
    AttemptFacts {
        plan: plan(market::Cloud::Aws, number, age_secs),
        lease: None,
        status: None,
        outcome: None,
        settled: None,
        journal: Journal::default(),
        watched: Watched::default(),
    }
}

fn view(number: u32, owner: &str, state: InstanceState, reason: Option<&str>) -> InstanceView {
    let tags = Tags { owner: owner.into(), job: spec().job, attempt: AttemptNo::new(number), lease: Span::from_secs(1800), kill_at: None };
    InstanceView {
        id: format!("i-{number}-{owner}"),
        state,
        tags,
        client_token: Some(format!("token-{number}")),
        launched: ago(600),
        ended: state.is_terminated().then(|| ago(60)),
        state_reason: reason.map(str::to_owned),
    }
}

fn status(phase: AttemptPhase, at: Timestamp) -> Status {
    Status {
        format: RECORD_FORMAT,
        instance: "i".into(),
        sequence: 1,
        at,
        phase,
        started: ago(590),
        verdict: "busy".into(),
        reason: None,
        progress: None,
        gpus: vec![],
        cpu_percent: None,
        memory_bytes: None,
        useful: Span::from_secs(100),
        idle: Span::from_secs(5),
        last_checkpoint: None,
        checkpoints: 2,
        notice: None,
        starts: 1,
        held_until: None,
        attention: vec![],
        exit: None,
    }
}

fn outcome(number: u32, because: EndedBecause) -> Outcome {
    Outcome {
        format: RECORD_FORMAT,
        job: spec().job,
        attempt: AttemptNo::new(number),
        instance: "i".into(),
        started: ago(590),
        ended: ago(60),
        because,
        exit: None,
        reasons: vec![],
        useful: Span::from_secs(100),
        idle: Span::ZERO,
        unknown: Span::ZERO,
        last_checkpoint: None,
        checkpoints: 0,
        resumed_from: None,
        progress: None,
        losses: vec![],
    }
}

fn settled(number: u32, because: EndedBecause) -> Settled {
    Settled {
        format: RECORD_FORMAT,
        attempt: AttemptNo::new(number),
        instance: Some("i".into()),
        because,
        billed_from: Some(ago(600)),
        billed_to: Some(ago(60)),
        billed: Span::from_secs(540),
        usd: Usd::from_micros(150_000),
        cloud_reason: None,
        outcome: Some(outcome(number, because)),
    }
}

fn wish(wish: Wish, age_secs: u64) -> Request {
    Request { format: RECORD_FORMAT, number: 1, at: ago(age_secs), by: "somebody".into(), wish }
}

fn acts(attempts: &[AttemptFacts], requests: &[Request], cloud: CloudAnswer) -> Vec<Act> {
    let spec = spec();
    reconcile(&Facts { spec: &spec, attempts, requests, cloud: &cloud, newest_checkpoint: None, owner: OWNER, now: now() })
}

fn word(act: &Act) -> &'static str {
    match act {
        Act::CreatePlan { .. } => "plan",
        Act::Launch { .. } => "launch",
        Act::RaiseKillAt { .. } => "raise",
        Act::Terminate { .. } => "terminate",
        Act::Interrupt { .. } => "interrupt",
        Act::Settle(_) => "settle",
        Act::WriteReceipt(_) => "receipt",
        Act::Wait { .. } => "wait",
    }
}

fn words(attempts: &[AttemptFacts], requests: &[Request], cloud: CloudAnswer) -> Vec<&'static str> {
    acts(attempts, requests, cloud).iter().map(word).collect()
}

fn known(views: &[InstanceView]) -> CloudAnswer {
    CloudAnswer::Known(views.to_vec())
}

fn unknown() -> CloudAnswer {
    CloudAnswer::Unknown("an outage".into())
}

#[test]
fn from_submission_to_the_receipt() {
    let running = |watched| AttemptFacts { status: Some(status(AttemptPhase::Running, ago(30))), watched, ..attempt(1, 600) };
    let alive = || known(&[view(1, OWNER, InstanceState::Running, None)]);
    let gone = |reason| known(&[view(1, OWNER, InstanceState::Terminated, Some(reason))]);
    let over = |because| AttemptFacts { settled: Some(settled(1, because)), ..attempt(1, 600) };
    let cases: Vec<(&str, Vec<AttemptFacts>, Vec<Request>, CloudAnswer, Vec<&str>)> = vec![
        ("submitted", vec![], vec![], known(&[]), vec!["plan"]),
        ("a plan does not need the cloud's answer", vec![], vec![], unknown(), vec!["plan"]),
        ("planned", vec![attempt(1, 5)], vec![], known(&[]), vec!["launch"]),
        ("nobody knows", vec![attempt(1, 5)], vec![], unknown(), vec!["wait"]),
        ("boots", vec![attempt(1, 5)], vec![], known(&[view(1, OWNER, InstanceState::Pending, None)]), vec!["wait"]),
        ("runs", vec![running(Watched::default())], vec![], alive(), vec!["wait"]),
        (
            "silent for its lease",
            vec![running(Watched { silent_for: Duration::from_secs(1801), ..Watched::default() })],
            vec![],
            alive(),
            vec!["terminate"],
        ),
        (
            "dark is late",
            vec![AttemptFacts {
                outcome: Some(outcome(1, EndedBecause::Succeeded)),
                ..running(Watched { outcome_for: Duration::from_secs(181), ..Watched::default() })
            }],
            vec![],
            alive(),
            vec!["terminate"],
        ),
        (
            "kept for a look",
            vec![AttemptFacts {
                outcome: Some(outcome(1, EndedBecause::Succeeded)),
                status: Some(status(AttemptPhase::Held, ago(30))),
                ..running(Watched { outcome_for: Duration::from_secs(1000), ..Watched::default() })
            }],
            vec![],
            alive(),
            vec!["wait"],
        ),
        ("asked to stop, the agent obeys", vec![running(Watched::default())], vec![wish(Wish::Stop, 1000)], alive(), vec!["wait"]),
        ("cancelled just now", vec![running(Watched::default())], vec![wish(Wish::Cancel, 100)], alive(), vec!["wait"]),
        ("cancelled, and not obeyed", vec![running(Watched::default())], vec![wish(Wish::Cancel, 181)], alive(), vec!["terminate"]),
        ("shutting down", vec![running(Watched::default())], vec![], known(&[view(1, OWNER, InstanceState::ShuttingDown, None)]), vec!["wait"]),
        ("gone", vec![running(Watched::default())], vec![], gone("Server.SpotInstanceTermination"), vec!["settle"]),
        ("taken away", vec![over(EndedBecause::Interrupted)], vec![], unknown(), vec!["plan"]),
        ("taken away, and unwanted", vec![over(EndedBecause::Interrupted)], vec![wish(Wish::Stop, 5)], unknown(), vec!["receipt"]),
        ("done", vec![over(EndedBecause::Succeeded)], vec![], unknown(), vec!["receipt"]),
        ("ended by hand", vec![over(EndedBecause::UserStopped)], vec![], unknown(), vec!["receipt"]),
        ("cancelled before the plan", vec![], vec![wish(Wish::Cancel, 5)], unknown(), vec!["receipt"]),
        ("cancelled between plan and launch", vec![attempt(1, 60)], vec![wish(Wish::Cancel, 5)], known(&[]), vec!["wait"]),
        (
            "cancelled, and surely never launched",
            vec![AttemptFacts { watched: Watched { missing_for: Duration::from_secs(61), ..Watched::default() }, ..attempt(1, 301) }],
            vec![wish(Wish::Cancel, 5)],
            known(&[]),
            vec!["settle"],
        ),
        (
            "launched, not shown yet",
            vec![AttemptFacts {
                watched: Watched { launched: Some("i-1".into()), missing_for: Duration::from_secs(500), ..Watched::default() },
                ..attempt(1, 299)
            }],
            vec![],
            known(&[]),
            vec!["wait"],
        ),
        (
            "launched, and not shown any more",
            vec![AttemptFacts {
                status: Some(status(AttemptPhase::Running, ago(4000))),
                watched: Watched { missing_for: Duration::from_secs(61), ..Watched::default() },
                ..attempt(1, 5000)
            }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "a plan too old for its token",
            vec![AttemptFacts { watched: Watched { missing_for: Duration::from_secs(61), ..Watched::default() }, ..attempt(1, 80_000) }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "refused",
            vec![AttemptFacts { watched: Watched { refused: Some("no such image".into()), ..Watched::default() }, ..attempt(1, 5) }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "somebody else's machine has our names",
            vec![attempt(1, 5)],
            vec![],
            known(&[view(1, "you", InstanceState::Running, None)]),
            vec!["launch"],
        ),
        ("a launch that came through late", vec![over(EndedBecause::UserCancelled)], vec![], alive(), vec!["terminate", "receipt"]),
    ];
    for (what, attempts, requests, cloud, expected) in cases {
        assert_eq!(words(&attempts, &requests, cloud), expected, "{what}");
    }
}

#[test]
fn why_it_ended_when_the_agent_could_not_say() {
    let notice = Notice { kind: NoticeKind::Interruption, at: ago(61), detail: "terminate".into() };
    let with_notice = Status { notice: Some(notice), ..status(AttemptPhase::Held, ago(62)) };
    let plain = status(AttemptPhase::Running, ago(90));
    let silent = status(AttemptPhase::Running, ago(3000));
    let cases = [
        ("Server.SpotInstanceTermination: x", &plain, EndedBecause::Interrupted),
        ("Server.HostLost: x", &with_notice, EndedBecause::Interrupted),
        ("Server.HostLost: x", &plain, EndedBecause::Lost),
        ("Client.UserInitiatedShutdown: x", &plain, EndedBecause::UserStopped),
        ("Client.UserInitiatedShutdown: x", &silent, EndedBecause::Lost),
        ("Client.InstanceInitiatedShutdown: x", &plain, EndedBecause::Lost),
        ("Client.InternalError: x", &plain, EndedBecause::LaunchFailed),
    ];
    for (reason, status, expected) in cases {
        let attempt = AttemptFacts { status: Some(status.clone()), ..attempt(1, 600) };
        let acts = acts(&[attempt], &[], known(&[view(1, OWNER, InstanceState::Terminated, Some(reason))]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(settled.because, expected, "{reason}");
        // 540 s at $1 an hour, to the micro-dollar above.
        assert_eq!((settled.usd, settled.billed), (Usd::from_micros(150_000), Span::from_secs(540)));
        let outcome = settled.outcome.as_ref().unwrap();
        assert_eq!((outcome.useful, outcome.idle, outcome.checkpoints), (Span::from_secs(100), Span::from_secs(5), 2));
    }
}

#[test]
fn the_state_is_read_from_the_records() {
    let with_status = |phase| AttemptFacts { status: Some(status(phase, now())), ..attempt(1, 600) };
    let cases = [
        (None, JobState::Submitted),
        (Some(attempt(1, 5)), JobState::Provisioning),
        (Some(with_status(AttemptPhase::Setup)), JobState::Preparing),
        (Some(with_status(AttemptPhase::Running)), JobState::Running),
        (Some(with_status(AttemptPhase::Held)), JobState::Held),
        (Some(AttemptFacts { outcome: Some(outcome(1, EndedBecause::Failed)), ..with_status(AttemptPhase::Running) }), JobState::Terminating),
        (Some(AttemptFacts { settled: Some(settled(1, EndedBecause::Interrupted)), ..attempt(1, 5) }), JobState::Interrupted),
        (Some(AttemptFacts { settled: Some(settled(1, EndedBecause::Failed)), ..attempt(1, 5) }), JobState::Terminating),
    ];
    for (last, expected) in cases {
        assert_eq!(job_state(None, last.as_ref()), expected);
    }
    let over = AttemptFacts { settled: Some(settled(1, EndedBecause::Succeeded)), ..attempt(1, 5) };
    let acts = acts(std::slice::from_ref(&over), &[], unknown());
    let [Act::WriteReceipt(receipt)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!((receipt.outcome, job_state(Some(receipt), Some(&over))), (JobOutcome::Succeeded, JobState::Succeeded));
}

/// Any history of settled attempts, and an attempt under way or none.
fn any_attempts() -> impl Strategy<Value = Vec<AttemptFacts>> {
    let because = prop::sample::select(vec![
        EndedBecause::Interrupted,
        EndedBecause::Lost,
        EndedBecause::Succeeded,
        EndedBecause::Failed,
        EndedBecause::UserStopped,
    ]);
    let open = (any::<bool>(), any::<bool>(), any::<bool>(), 0_u64..100_000, 0_u64..4000, 0_u64..4000, 0_u64..400);
    (prop::collection::vec(because, 0..6), prop::option::of(open), any::<bool>()).prop_map(|(history, open, local)| {
        let mut attempts: Vec<AttemptFacts> =
            (1..).zip(history).map(|(number, because)| AttemptFacts { settled: Some(settled(number, because)), ..attempt(number, 600) }).collect();
        if let Some((beats, ended, launched, age, silent, missing, outcome_for)) = open {
            let number = attempts.len() as u32 + 1;
            let secs = Duration::from_secs;
            attempts.push(AttemptFacts {
                plan: plan(if local { market::Cloud::Local } else { market::Cloud::Aws }, number, age),
                status: beats.then(|| status(AttemptPhase::Running, ago(silent))),
                outcome: ended.then(|| outcome(number, EndedBecause::Succeeded)),
                watched: Watched {
                    launched: launched.then(|| "i".into()),
                    silent_for: secs(silent),
                    missing_for: secs(missing),
                    outcome_for: secs(outcome_for),
                    ..Watched::default()
                },
                ..attempt(number, age)
            });
        }
        attempts
    })
}

fn any_cloud() -> impl Strategy<Value = CloudAnswer> {
    let state = prop::sample::select(vec![InstanceState::Pending, InstanceState::Running, InstanceState::ShuttingDown, InstanceState::Terminated]);
    let view =
        (1_u32..8, prop::sample::select(vec![OWNER, "you"]), state).prop_map(|(number, owner, state)| view(number, owner, state, Some("Server.X")));
    prop_oneof![Just(unknown()), prop::collection::vec(view, 0..5).prop_map(CloudAnswer::Known)]
}

fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let any_wish =
        prop::sample::select(vec![Wish::Stop, Wish::Cancel, Wish::Checkpoint, Wish::Extend { time: Some(Span::from_secs(60)), budget: None }]);
    prop::collection::vec((any_wish, 0_u64..4000).prop_map(|(one, age)| wish(one, age)), 0..3)
}

proptest! {
    #[test]
    fn laws(attempts in any_attempts(), requests in any_requests(), cloud in any_cloud()) {
        let acts = acts(&attempts, &requests, cloud.clone());
        prop_assert!(!acts.is_empty(), "there is always an answer");
        let open = attempts.iter().find(|attempt| attempt.settled.is_none());
        let end_wished = requests.iter().any(|request| matches!(request.wish, Wish::Stop | Wish::Cancel));
        for act in &acts {
            match act {
                Act::Launch { attempt } => {
                    prop_assert!(matches!(cloud, CloudAnswer::Known(_)), "no launch into the unknown");
                    prop_assert_eq!(Some(*attempt), open.map(|open| open.plan.attempt), "only what is planned and not settled");
                    prop_assert!(!end_wished, "a wish to end is never lost");
                }
                Act::CreatePlan { attempt, .. } => {
                    prop_assert!(open.is_none() && !end_wished);
                    prop_assert_eq!(attempt.number() as usize, attempts.len() + 1);
                }
                Act::Terminate { instance, .. } => {
                    let CloudAnswer::Known(views) = &cloud else { return Err(TestCaseError::fail("nothing is ended unseen")) };
                    prop_assert!(views.iter().any(|view| view.id == *instance && view.tags.owner == OWNER && view.state.bills()), "only ours, read now");
                }
                Act::Settle(settled) => {
                    let CloudAnswer::Known(views) = &cloud else { return Err(TestCaseError::fail("nothing is settled unseen")) };
                    let number = settled.attempt.number();
                    let mine = |view: &&InstanceView| view.tags.owner == OWNER && view.client_token == Some(format!("token-{number}"));
                    prop_assert!(views.iter().filter(mine).take(1).all(|view| view.state.is_terminated()), "terminal only when seen to be");
                    prop_assert_eq!(settled.usd, if settled.instance.is_some() { UsdPerHour::new("$1".parse().unwrap()).cost_of(settled.billed.duration()) } else { Usd::ZERO });
                }
                Act::WriteReceipt(receipt) => {
                    prop_assert!(open.is_none(), "a receipt only when everything is settled");
                    let sum: Usd = receipt.attempts.iter().map(|attempt| attempt.usd).sum();
                    prop_assert_eq!(receipt.total_usd, sum);
                }
                Act::RaiseKillAt { .. } | Act::Interrupt { .. } | Act::Wait { .. } => {}
            }
        }
    }
}
