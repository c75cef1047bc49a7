//! A kept machine that was started again, and whose agent says no word: all that its job has may be
//! on its disk.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView, Status};
use lamplighter::job::{
    AttemptPhase, CheckpointNo, EndedBecause, Ending, JobOutcome, RECORD_FORMAT, Request, Starts,
    Wish,
};
use lamplighter::market::{self, Market, Span};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, EndEvidence, Watched};

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, ago, attempt, known, status, view, wish, words,
};

/// Started ten minutes ago, and silent for so long, where two minutes are the most.
fn started(silent: u64) -> AttemptFacts {
    let mut booting = attempt(1, 650);
    Arc::make_mut(&mut booting.plan).boot = Span::from_secs(120);
    Arc::make_mut(&mut booting.plan).starts = Some(Starts {
        job: "digits-333333".parse().unwrap(),
        instance: "i-1-me".into(),
        launched: ago(90_000),
        only_setup: false,
    });
    booting.watched = Watched { silent_for: Duration::from_secs(silent), ..Watched::default() };
    booting
}

fn on_demand(state: InstanceState, reason: Option<&str>) -> InstanceView {
    InstanceView {
        market: Market::OnDemand,
        ended: (state == InstanceState::Stopped).then(|| ago(60)),
        ..view(1, OWNER, state, reason)
    }
}

#[test]
fn kept_machine_that_does_not_come_up_stops_and_keeps_its_disk() {
    let running = || on_demand(InstanceState::Running, None);
    let with_checkpoint = || {
        let mut facts = started(121);
        Arc::make_mut(&mut facts.plan).resume_from = Some(CheckpointNo::new(1));
        facts
    };
    let of_a_trial = || {
        let mut facts = started(121);
        let plan = Arc::make_mut(&mut facts.plan);
        plan.starts.iter_mut().for_each(|starts| starts.only_setup = true);
        facts
    };
    let heard =
        || AttemptFacts { status: Some(status(AttemptPhase::Running, ago(2000))), ..started(1801) };
    let spot = || InstanceView { market: Market::Spot, ..running() };
    let local = || InstanceView { cloud: market::CloudKind::Local, ..running() };
    let cases: Vec<(&str, AttemptFacts, Vec<Request>, InstanceView, &str)> = vec![
        ("it has time yet", started(119), vec![], running(), "wait"),
        ("it has had its time", started(121), vec![], running(), "stop"),
        (
            "the work goes on from a checkpoint elsewhere",
            with_checkpoint(),
            vec![],
            running(),
            "terminate",
        ),
        (
            "of the disk only the setup of an earlier trial counts",
            of_a_trial(),
            vec![],
            running(),
            "terminate",
        ),
        ("spot is only ever ended", started(121), vec![], spot(), "terminate"),
        ("a folder cannot stand", started(121), vec![], local(), "terminate"),
        ("its agent was heard, and died", heard(), vec![], running(), "terminate"),
        (
            "somebody stops the job before it has come up",
            started(60),
            vec![wish(Wish::Stop, 31)],
            running(),
            "stop",
        ),
        (
            "also where there is a checkpoint",
            AttemptFacts { watched: Watched::default(), ..with_checkpoint() },
            vec![wish(Wish::Stop, 31)],
            running(),
            "stop",
        ),
        (
            "somebody cancels it, with all that it has",
            started(60),
            vec![wish(Wish::Cancel, 31)],
            running(),
            "terminate",
        ),
        ("on its way", started(121), vec![], on_demand(InstanceState::Stopping, None), "wait"),
    ];
    for (what, facts, requests, view, expected) in cases {
        assert_eq!(words(&[facts], &requests, known(&[view])), [expected], "{what}");
    }
}

#[test]
fn what_was_stopped_so_has_failed_to_start_and_says_why() {
    let by_user = Some("Client.UserInitiatedShutdown: User initiated");
    let why = "no word of its agent for 121 s, and 120 s is the most; its disk is to stay";
    let ending = Ending {
        format: RECORD_FORMAT,
        at: ago(70),
        by: "ws".into(),
        why: why.into(),
        heard: None,
        stood: None,
        swept_by: None,
    };
    let ended = || Watched {
        ended: EndEvidence { ending: Some(ending.clone()), ..EndEvidence::default() },
        ..started(121).watched
    };
    let facts = AttemptFacts { watched: ended(), ..started(121) };
    let acts = acts(
        std::slice::from_ref(&facts),
        &[],
        known(&[on_demand(InstanceState::Stopped, by_user)]),
    );
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(
        (settled.because, settled.instance.as_deref()),
        (EndedBecause::LaunchFailed, Some("i-1-me"))
    );
    assert!(settled.billed.duration() > Duration::from_secs(500), "it ran, and cost: {settled:?}");
    // No other machine has its work: the job ends, and its disk waits for `lamp start`.
    let over = AttemptFacts { settled: Some((**settled).clone().into()), ..facts };
    let acts = crate::lifecycle::reconcile_facts::acts(
        &[over],
        &[],
        known(&[on_demand(InstanceState::Stopped, by_user)]),
    );
    let [Act::WriteReceipt(receipt)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(receipt.outcome, JobOutcome::Failed);
    assert_eq!(receipt.reason, format!("ws stopped the machine: {why}"));
    // Its first word came while it was being stopped: its disk stays all the same.
    let word = Status { started: ago(65), ..status(AttemptPhase::Running, ago(60)) };
    let late = AttemptFacts { watched: ended(), status: Some(word), ..started(121) };
    let acts = crate::lifecycle::reconcile_facts::acts(
        &[late],
        &[],
        known(&[on_demand(InstanceState::Stopped, by_user)]),
    );
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!((settled.because, settled.kept), (EndedBecause::LaunchFailed, true));
    // Somebody wanted it so.
    let facts = AttemptFacts { watched: ended(), ..started(121) };
    let acts = crate::lifecycle::reconcile_facts::acts(
        &[facts],
        &[wish(Wish::Stop, 100)],
        known(&[on_demand(InstanceState::Stopped, by_user)]),
    );
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(settled.because, EndedBecause::UserStopped);
}

/// `limits.boot` is kept for a machine that stood still and was started again as for a new one.
#[test]
fn silent_kept_machine_gets_the_boot_time_of_the_job_file() {
    for starts in [
        None,
        Some(Starts {
            job: "digits-333333".parse().unwrap(),
            instance: "i-1-me".into(),
            launched: ago(90_000),
            only_setup: false,
        }),
    ] {
        for (silent, word) in [(119, "wait"), (121, "terminate")] {
            let mut booting = attempt(1, 600);
            let plan = Arc::make_mut(&mut booting.plan);
            (plan.boot, plan.starts) = (Span::from_secs(120), starts.clone());
            booting.watched =
                Watched { silent_for: Duration::from_secs(silent), ..Watched::default() };
            assert_eq!(
                words(&[booting], &[], known(&[view(1, OWNER, InstanceState::Running, None)])),
                [word],
                "{silent} s, {starts:?}"
            );
        }
    }
}
