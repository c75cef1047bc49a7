//! Whose end it was, of a machine of which the cloud says that a user ended it.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView};
use lamplighter::job::{
    AttemptPhase, EndedBecause, Ending, Lease, LimitsSpec, Outcome, RECORD_FORMAT, Reaction,
    Refusal, Request, ResolvedSpec, Shutdown, Wish,
};
use lamplighter::market::{Market, Span, Usd};
use lamplighter::policy::lifecycle::reconcile::{
    Act, AlarmSeen, AttemptFacts, EndEvidence, JobFacts, Watched, reconcile,
};

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, ago, attempt, known, launch_request, now, outcome, spec, status, view, wish, words,
};

/// The machine ended a minute ago.
const ENDED: u64 = 60;

fn min(minutes: u64) -> u64 {
    minutes * 60
}

const BY_A_USER: &str = "Client.UserInitiatedShutdown: User initiated";

/// Last heard so long before its end, or never; recorded by us when that was the newest heartbeat;
/// the alarm of its plan, and what is known of it.
fn facts(heard_before: Option<u64>, recorded: bool, alarm: &str, seen: AlarmSeen) -> AttemptFacts {
    let heard = heard_before.map(|secs| ago(ENDED + secs));
    let (by, why, at) = ("me@here".into(), "it was silent".into(), ago(ENDED + 1));
    let ending = recorded.then_some(Ending {
        format: RECORD_FORMAT,
        at,
        by,
        why,
        heard,
        stood: None,
        swept_by: None,
    });
    let mut facts = attempt(1, 7200);
    Arc::make_mut(&mut facts.plan).launch = Some(launch_request(alarm));
    let watched = Watched { ended: EndEvidence { ending, alarm: seen }, ..Watched::default() };
    AttemptFacts {
        status: heard.map(|heard| status(AttemptPhase::Running, heard)),
        watched,
        ..facts
    }
}

fn gone(lived: u64) -> InstanceView {
    InstanceView {
        launched: ago(ENDED + lived),
        ..view(1, OWNER, InstanceState::Terminated, Some(BY_A_USER))
    }
}

fn settled(facts: &AttemptFacts, lived: u64) -> lamplighter::job::Settled {
    let acts = acts(std::slice::from_ref(facts), &[], known(&[gone(lived)]));
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    (**settled).clone()
}

#[test]
fn end_by_lamp_or_alarm_is_no_user_stop_and_end_by_a_person_is() {
    use AlarmSeen::{Quiet, RangAt, Unknown};
    use EndedBecause::{Idle, Lost, UserStopped};
    let classic = "cpu<=0.3 for 5m";
    let cases = [
        (
            "a person, while the agent is heard",
            facts(Some(20), false, "heartbeat", Quiet),
            min(60),
            UserStopped,
        ),
        ("a person, while it boots", facts(None, false, "heartbeat", Quiet), min(10), UserStopped),
        ("we, as our record says", facts(Some(20), true, "off", Unknown), min(60), Lost),
        ("we, after a boot without a word", facts(None, true, "off", Unknown), min(15) - 20, Lost),
        (
            "nobody recorded it, and no boot takes so long",
            facts(None, false, "off", Unknown),
            min(15),
            Lost,
        ),
        (
            "nobody recorded it, and its lease had lapsed",
            facts(Some(min(30)), false, "off", Quiet),
            min(60),
            Lost,
        ),
        (
            "an alarm shorter than the lease",
            facts(Some(min(15)), false, "heartbeat for 15m", RangAt(ago(ENDED + 2))),
            min(60),
            Lost,
        ),
        (
            "the same, and CloudWatch does not say",
            facts(Some(min(14) + 5), false, "heartbeat for 15m", Unknown),
            min(60),
            Lost,
        ),
        (
            "a person, before the alarm could",
            facts(Some(min(10)), false, "heartbeat for 15m", Unknown),
            min(60),
            UserStopped,
        ),
        (
            "a person, and the alarm is quiet",
            facts(Some(min(16)), false, "heartbeat for 15m", Quiet),
            min(60),
            UserStopped,
        ),
        (
            "a person, and then it rang for the silence",
            facts(
                Some(20),
                false,
                "heartbeat for 5m",
                RangAt(ago(ENDED) + Duration::from_secs(300)),
            ),
            min(60),
            UserStopped,
        ),
        (
            "the classic alarm, while the heartbeat goes on",
            facts(Some(5), false, classic, RangAt(ago(ENDED + 1))),
            min(60),
            Idle,
        ),
        (
            "the classic alarm, of an agent that was silent",
            facts(Some(min(6)), false, classic, RangAt(ago(ENDED + 1))),
            min(60),
            Lost,
        ),
        (
            "the classic alarm, of an agent that never spoke",
            facts(None, false, classic, RangAt(ago(ENDED + 1))),
            min(10),
            Lost,
        ),
        (
            "a person, long after an alarm that could not",
            facts(Some(5), false, classic, RangAt(ago(ENDED + 3000))),
            min(60),
            UserStopped,
        ),
    ];
    for (what, facts, lived, expected) in cases {
        assert_eq!(settled(&facts, lived).because, expected, "{what}");
    }
}

/// EC2 gives other words, or none, and no date.
#[test]
fn alarm_that_rang_is_known_without_the_clouds_words() {
    let silent =
        facts(Some(min(15)), false, "heartbeat for 15m", AlarmSeen::RangAt(ago(ENDED + 2)));
    let idle = facts(Some(5), false, "cpu<=0.3 for 5m", AlarmSeen::RangAt(ago(ENDED + 1)));
    let person = facts(Some(5), false, "heartbeat for 15m", AlarmSeen::Quiet);
    let because = |facts: &AttemptFacts, reason: Option<&str>| {
        let view =
            InstanceView { ended: None, state_reason: reason.map(str::to_owned), ..gone(min(60)) };
        let acts = acts(std::slice::from_ref(facts), &[], known(&[view]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        settled.because
    };
    for reason in [Some(BY_A_USER), Some("Client.UserInitiatedShutdown"), None] {
        assert_eq!(because(&silent, reason), EndedBecause::Lost, "{reason:?}");
        assert_eq!(because(&idle, reason), EndedBecause::Idle, "{reason:?}");
    }
    assert_eq!(because(&person, Some(BY_A_USER)), EndedBecause::UserStopped);
}

/// The cloud refused to end it, its agent came back, and a day later somebody ends it by hand.
#[test]
fn agent_that_was_heard_again_was_not_ended_by_an_old_record() {
    let mut facts = facts(Some(20), true, "off", AlarmSeen::Unknown);
    facts.watched.ended.ending.as_mut().unwrap().heard = Some(ago(ENDED + 20 + 121));
    assert_eq!(settled(&facts, 3600).because, EndedBecause::UserStopped);
    facts.watched.ended.ending.as_mut().unwrap().heard = Some(ago(ENDED + 20 + 119));
    assert_eq!(
        settled(&facts, 3600).because,
        EndedBecause::Lost,
        "the last beats of a machine that was being ended"
    );
}

#[test]
fn receipt_says_who_ended_it_and_why() {
    let said =
        |facts: &AttemptFacts| settled(facts, 3600).outcome.unwrap().reasons.pop().unwrap().text;
    assert_eq!(
        said(&facts(Some(20), true, "off", AlarmSeen::Unknown)),
        "me@here ended the machine: it was silent"
    );
    assert_eq!(
        said(&facts(None, true, "off", AlarmSeen::Unknown)),
        "me@here ended the machine: it was silent"
    );
    assert_eq!(
        said(&facts(Some(1900), false, "heartbeat", AlarmSeen::RangAt(ago(ENDED)))),
        "its alarm rang at 2026-01-01T23:59:00Z, and the cloud ended the machine"
    );
    assert_eq!(
        said(&facts(Some(5), false, "cpu<=0.3 for 5m", AlarmSeen::RangAt(ago(ENDED)))),
        "its CPU alarm rang at 2026-01-01T23:59:00Z: by that rule of the job file the machine was idle, and the cloud ended it"
    );
}

#[test]
fn wish_is_settled_as_wish_by_any_end() {
    let acts = acts(
        &[facts(Some(20), true, "off", AlarmSeen::Unknown)],
        &[wish(Wish::Cancel, 300)],
        known(&[gone(3600)]),
    );
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(settled.because, EndedBecause::UserCancelled);
}

/// The cloud gives one code for our end of it, for a wish and for a person in the console; the
/// receipt tells them apart.
#[test]
fn receipt_says_who_wanted_an_end_before_the_agent_speaks() {
    let said = |facts: &AttemptFacts, requests: &[lamplighter::job::Request]| {
        let acts = acts(std::slice::from_ref(facts), requests, known(&[gone(min(2))]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        (settled.because, settled.outcome.clone().unwrap().reasons.pop().unwrap().text)
    };
    let silent = |recorded| facts(None, recorded, "off", AlarmSeen::Unknown);
    let (because, text) = said(&silent(true), &[wish(Wish::Stop, 300)]);
    assert_eq!(
        (because, text.as_str()),
        (EndedBecause::UserStopped, "me@here ended the machine: it was silent")
    );
    let (because, text) = said(&silent(false), &[wish(Wish::Cancel, 300)]);
    assert_eq!(because, EndedBecause::UserCancelled);
    assert!(
        text.starts_with("asked to cancel by ") && text.ends_with(&format!("({BY_A_USER})")),
        "{text}"
    );
    let (because, text) = said(&silent(false), &[]);
    assert_eq!(because, EndedBecause::UserStopped);
    assert!(text.starts_with("somebody stopped or ended the machine at the cloud itself, or with the `lamp` of another job root ("), "{text}");
}

/// An alarm that may keep a disk stops its machine, and the disk bills on.
#[test]
fn machine_stopped_by_an_alarm_is_ended_and_by_a_person_is_left() {
    let stopped = InstanceView {
        ended: Some(ago(ENDED)),
        ..view(1, OWNER, InstanceState::Stopped, Some(BY_A_USER))
    };
    let of = |seen| {
        words(
            &[facts(Some(5), false, "cpu<=0.3 for 5m", seen)],
            &[],
            known(std::slice::from_ref(&stopped)),
        )
    };
    assert_eq!(of(AlarmSeen::RangAt(ago(ENDED + 1))), ["terminate"]);
    assert_eq!(of(AlarmSeen::Quiet), ["settle"]);
    // Idle by the alarm of the job file: its disk is kept where the job file keeps that of an idle
    // machine.
    let mut spec = spec();
    spec.spec.on.idle = Reaction::Stop;
    let attempts = [facts(Some(5), false, "cpu<=0.3 for 5m", AlarmSeen::RangAt(ago(ENDED + 1)))];
    let cloud = known(std::slice::from_ref(&stopped));
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
    let acts = reconcile(&facts);
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(settled.because, EndedBecause::Idle);
}

/// Whoever slept between a plan and its launch buys no machine that is to be out already.
#[test]
fn plan_whose_hard_cap_has_passed_is_not_launched() {
    let planned = |missing_for: u64| {
        let mut facts = attempt(1, 3600);
        Arc::make_mut(&mut facts.plan).kill_at = Some(ago(60));
        facts.watched.missing_for = Duration::from_secs(missing_for);
        words(&[facts], &[], known(&[]))
    };
    assert_eq!(
        planned(90),
        ["wait"],
        "another controller, with another clock, may have launched it just now"
    );
    assert_eq!(planned(420), ["settle"]);
}

/// Whoever slept between a plan and its launch buys no machine with the rest of its life: a hard
/// end is counted from the plan.
#[test]
fn plan_that_has_lain_is_planned_anew_and_not_launched_late() {
    let mut spec = spec();
    (spec.spec.limits.max_runtime, spec.spec.limits.budget) =
        (Some(Span::from_secs(12 * 3600)), None);
    let played = |spec: &ResolvedSpec, age: u64, missing_for: u64| {
        let mut facts = attempt(1, age);
        Arc::make_mut(&mut facts.plan).kill_at =
            Some(facts.plan.created + Duration::from_secs(12 * 3600 + 300));
        facts.watched.missing_for = Duration::from_secs(missing_for);
        let attempts = [facts];
        let cloud = known(&[]);
        reconcile(&JobFacts {
            spec,
            attempts: &attempts,
            requests: &[],
            cloud: &cloud,
            newest_checkpoint: None,
            owner: OWNER,
            here: "z",
            now: now(),
        })
    };
    let word = |age, missing_for| {
        crate::lifecycle::reconcile_facts::word(&played(&spec, age, missing_for)[0])
    };
    assert_eq!(word(890, 0), "launch", "throttled calls and lost replies are over sooner");
    assert_eq!(word(9 * 3600, 0), "wait", "another may have launched it a moment ago");
    assert_eq!(word(9 * 3600, 419), "wait");
    assert_eq!(
        word(910, 910),
        "wait",
        "another with a clock five minutes behind may launch it yet"
    );
    assert_eq!(word(900 + 300 + 419, 1600), "wait");
    assert_eq!(word(900 + 300 + 420, 1600), "settle");
    let acts = played(&spec, 9 * 3600, 420);
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(
        (settled.because, settled.usd, settled.instance.as_ref()),
        (EndedBecause::Lost, Usd::ZERO, None),
        "and the next follows"
    );
    assert!(
        settled.cloud_reason.as_ref().unwrap().starts_with("its plan lay too long"),
        "{settled:?}"
    );
    // A new plan would end at the same moment: nothing is gained by one.
    spec.spec.limits =
        LimitsSpec { deadline: Some(now() + Duration::from_secs(3600)), ..LimitsSpec::default() };
    assert_eq!(crate::lifecycle::reconcile_facts::word(&played(&spec, 9 * 3600, 0)[0]), "launch");
    spec.spec.limits = LimitsSpec::default();
    assert_eq!(
        crate::lifecycle::reconcile_facts::word(&played(&spec, 9 * 3600, 0)[0]),
        "launch",
        "nothing ends it"
    );
}

/// Stopped and started again in the console while every workstation slept: the cloud says only when
/// it started last, and the receipt is for all of it.
#[test]
fn machine_that_shows_a_later_start_is_billed_from_its_launch() {
    let took = |secs| {
        Some(Lease {
            format: RECORD_FORMAT,
            instance: "i".into(),
            nonce: "n".into(),
            taken: ago(secs),
        })
    };
    let planned = |age, taken| AttemptFacts { lease: took(taken), ..attempt(1, age) };
    let cases = [
        (
            "ten hours before its last start",
            planned(12 * 3600, 12 * 3600 - 60),
            12 * 3600 - 60,
            true,
        ),
        ("launched once", planned(7210, 7100), 7200, false),
        (
            "its clock is an hour behind, and its plan is old",
            planned(3 * 3600, 7200 + 3500),
            7200,
            false,
        ),
        ("its clock is a day behind", planned(7210, 7200 + 86_400), 7200, false),
        ("the plan's clock was a day behind", planned(7210 + 86_400, 7100), 7200, false),
    ];
    for (what, facts, from, estimated) in cases {
        let settled = settled(&facts, 7200 - ENDED);
        assert_eq!(
            (settled.billed_from, settled.billed_estimated),
            (Some(ago(from)), estimated),
            "{what}: {settled:?}"
        );
    }
}

/// It stood stopped from 16:00 the day before, and was terminated a minute ago: EC2 shows the
/// second date alone, and has billed until the first. Its hard cap lay between.
#[test]
fn machine_that_stood_is_billed_to_its_stop_and_ends_before_cap() {
    let (lived, stood) = (9 * 3600, ago(8 * 3600));
    let mut gone = gone(lived);
    gone.tags.kill_at = Some(ago(4 * 3600));
    let settled = |change: &dyn Fn(&mut AttemptFacts)| {
        let mut facts = facts(Some(8 * 3600), true, "off", AlarmSeen::Unknown);
        change(&mut facts);
        let acts = acts(&[facts], &[], known(std::slice::from_ref(&gone)));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        (settled.billed_to, settled.billed_estimated, settled.because)
    };
    let recorded = |at| {
        move |facts: &mut AttemptFacts| {
            facts.watched.ended.ending.as_mut().unwrap().stood = Some(at)
        }
    };
    let seen = |at| move |facts: &mut AttemptFacts| facts.watched.stood = Some(at);
    let (to_stood, to_end) = (
        (Some(stood), false, EndedBecause::Lost),
        (Some(ago(ENDED)), false, EndedBecause::HardEnd),
    );
    assert_eq!(settled(&|_| {}), to_end, "nobody saw it stand");
    assert_eq!(settled(&recorded(stood)), to_stood, "whoever terminated it has recorded that");
    assert_eq!(settled(&seen(stood)), to_stood, "and so has who saw it");
    assert_eq!(settled(&recorded(ago(10 * 3600))), to_end, "before its last start");
    assert_eq!(
        settled(&seen(ago(8 * 3600 + 600))),
        to_end,
        "its agent was heard ten minutes after that, so it ran again"
    );
}

/// The cloud has forgotten it by now, and whoever saw it stand has not.
#[test]
fn machine_that_stood_and_is_unshown_is_billed_until_its_stop() {
    let mut facts = facts(Some(8 * 3600), false, "off", AlarmSeen::Unknown);
    facts.watched.missing_for = Duration::from_secs(90);
    (facts.watched.launched_at, facts.watched.stood) = (Some(ago(9 * 3600)), Some(ago(8 * 3600)));
    let settled = |market| {
        Arc::make_mut(&mut facts.plan).offer.market = market;
        let acts = acts(std::slice::from_ref(&facts), &[], known(&[]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        (settled.billed_to == Some(ago(8 * 3600)), settled.billed_estimated)
    };
    assert_eq!(
        [Market::OnDemand, Market::Spot].map(settled),
        [(true, false), (false, true)],
        "spot never stands, and may have been free"
    );
}

/// EC2 took the launch, named a machine, and had no room for it: that is a refusal of the place,
/// and costs nothing.
#[test]
fn a_machine_that_is_withdrawn_before_it_ran_was_refused() {
    let settled = |reason: &str, facts: AttemptFacts, requests: &[Request]| {
        let view = InstanceView {
            launched: ago(90),
            ..view(1, OWNER, InstanceState::Terminated, Some(reason))
        };
        let acts = acts(&[facts], requests, known(&[view]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert!(
            settled.usd.micros() > 0 || !settled.billed_estimated,
            "what bills nothing is no estimate: {settled:?}"
        );
        (settled.because, settled.refusal, settled.usd.micros() > 0, settled.instance.is_some())
    };
    let unheard = || facts(None, false, "off", AlarmSeen::Unknown);
    let no_room = "Server.InsufficientInstanceCapacity";
    let refused = (EndedBecause::LaunchFailed, Some(Refusal::Capacity), false, true);
    assert_eq!(settled(no_room, unheard(), &[]), refused);
    assert_eq!(
        settled(
            &format!("{no_room}: Insufficient capacity to satisfy instance request"),
            unheard(),
            &[]
        ),
        refused
    );
    assert_eq!(
        settled(no_room, unheard(), &[wish(Wish::Stop, 300)]),
        (EndedBecause::UserStopped, None, false, true)
    );
    assert_eq!(
        settled(no_room, facts(Some(20), false, "off", AlarmSeen::Unknown), &[]),
        (EndedBecause::Lost, None, true, true),
        "it ran"
    );
    assert_eq!(
        settled("Server.InternalError", unheard(), &[]),
        (EndedBecause::Lost, None, true, true),
        "a fault of one host"
    );
    let taken = "Server.SpotInstanceTermination: instance-terminated-no-capacity";
    assert_eq!(settled(taken, unheard(), &[]).0, EndedBecause::Interrupted);
}

/// Its agent stopped it eight hours ago while nobody looked, and its owner terminated it a minute
/// ago: EC2 shows that date alone.
#[test]
fn machine_that_may_have_stood_unseen_is_billed_by_estimate() {
    let settled = |change: &dyn Fn(&mut AttemptFacts)| {
        let mut facts = facts(Some(8 * 3600), false, "off", AlarmSeen::Unknown);
        Arc::make_mut(&mut facts.plan).launch.as_mut().unwrap().shutdown = Shutdown::Stop;
        Arc::make_mut(&mut facts.plan).offer.market = Market::OnDemand;
        facts.outcome =
            Some(Outcome { ended: ago(8 * 3600), ..outcome(1, EndedBecause::Succeeded) });
        change(&mut facts);
        let settled = settled(&facts, 9 * 3600);
        (settled.billed_to, settled.billed_estimated)
    };
    assert_eq!(
        settled(&|_| {}),
        (Some(ago(ENDED)), true),
        "it may have billed for one hour of the nine"
    );
    assert_eq!(
        settled(&|facts| facts.watched.stood = Some(ago(8 * 3600))),
        (Some(ago(8 * 3600)), false),
        "somebody saw it stand"
    );
    let terminates = |facts: &mut AttemptFacts| {
        Arc::make_mut(&mut facts.plan).launch.as_mut().unwrap().shutdown = Shutdown::Terminate
    };
    assert!(!settled(&terminates).1, "its power-off would have been its end");
    // Seeds 37032364 and 38005218 of 24 h: four seconds, and a sixth of one.
    let at_once =
        |facts: &mut AttemptFacts| facts.outcome.as_mut().unwrap().ended = ago(ENDED + 10);
    assert!(settled(&at_once).1, "it stood for a part of them");
    assert!(
        settled(&|facts| facts.watched.stood = Some(ago(ENDED))).1,
        "who saw its end saw no stand"
    );
    assert!(
        !settled(&|facts| facts.watched.stood = Some(ago(ENDED + 4))).1,
        "who saw it stop has the date"
    );
}

/// Seed 34005916 of 24 h: its kernel hung, somebody stopped it in the console, and an hour later
/// another controller terminated it.
#[test]
fn possible_unseen_stop_by_a_person_makes_the_bill_an_estimate() {
    let settled = |heard: u64, recorded: bool, change: &dyn Fn(&mut AttemptFacts)| {
        let mut facts = facts(Some(heard), recorded, "off", AlarmSeen::Unknown);
        Arc::make_mut(&mut facts.plan).offer.market = Market::OnDemand;
        change(&mut facts);
        let settled = settled(&facts, 9 * 3600);
        (settled.billed_to == Some(ago(ENDED)), settled.billed_estimated)
    };
    let (exact, at_most) = ((true, false), (true, true));
    assert_eq!(settled(min(60), false, &|_| {}), at_most);
    assert_eq!(settled(min(4), false, &|_| {}), exact, "no time to stand");
    assert_eq!(
        settled(min(60), false, &|facts| facts.watched.heard_at = Some(ago(ENDED + 60))),
        exact,
        "by the store's clock"
    );
    assert_eq!(
        settled(min(60), false, &|facts| Arc::make_mut(&mut facts.plan).offer.market =
            Market::Spot),
        exact,
        "spot never stands"
    );
    assert_eq!(
        settled(min(60), false, &|facts| facts.watched.unlooked = Some(Duration::from_secs(30))),
        exact,
        "it was seen to bill until then"
    );
    assert_eq!(
        settled(min(60), false, &|facts| facts.watched.unlooked = Some(Duration::from_secs(3600))),
        at_most,
        "the laptop slept between"
    );
    assert!(
        settled(min(60), false, &|facts| facts.watched.stood = Some(ago(ENDED + 54))).1,
        "it was seen to go out, and not before"
    );
    assert_eq!(settled(min(60), true, &|_| {}), exact, "whoever ended it had just seen it run");
    let recorded_at = |secs: u64| {
        move |facts: &mut AttemptFacts| facts.watched.ended.ending.as_mut().unwrap().at = ago(secs)
    };
    assert_eq!(
        settled(min(60), true, &recorded_at(ENDED + 3600)),
        at_most,
        "and was throttled, and slept"
    );
    assert_eq!(settled(min(60), true, &recorded_at(0)), at_most, "by a clock that is ahead");
}
