//! Until when a machine has billed, where the cloud does not say it.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView};
use lamplighter::job::{AttemptPhase, EndedBecause, LimitsSpec, Refusal, Request, Wish};
use lamplighter::market::Span;
use lamplighter::policy::lifecycle::reconcile::{
    Act, AttemptFacts, JobFacts, Unshown, Watched, reconcile,
};

use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, ago, attempt, known, now, outcome, spec, status, view, wish,
};

/// A power-off that hangs takes so long, and no more is billed for what nobody saw.
const STOP_GRACE: Duration = Duration::from_secs(120);

fn min(minutes: u64) -> u64 {
    minutes * 60
}

/// When billing ended, of a machine of which the cloud does not say it: seconds from the heartbeat
/// to what is known after it.
fn unsaid(
    beat_ago: u64,
    billed_after: u64,
    dark_for: u64,
    kill: bool,
) -> (AttemptFacts, InstanceView) {
    let mut facts = attempt(1, 7200);
    facts.status = Some(status(AttemptPhase::Running, ago(beat_ago)));
    facts.watched = Watched {
        heard_at: Some(ago(beat_ago)),
        billed_after_beat: Duration::from_secs(billed_after),
        dark_for: Some(Duration::from_secs(dark_for)),
        ..Watched::default()
    };
    let reason = if kill {
        "Server.SpotInstanceTermination: no capacity"
    } else {
        "Client.InstanceInitiatedShutdown: done"
    };
    let view = InstanceView {
        launched: ago(7200),
        ended: None,
        ..view(1, OWNER, InstanceState::Terminated, Some(reason))
    };
    (facts, view)
}

proptest! {
    /// Nothing that was seen to bill is left out, nothing that nobody saw is billed beyond the time
    /// of a power-off where an outcome was told, and what is not certain is marked as an estimate.
    #[test]
    fn undated_end_lies_between_last_sign_and_first_dark_look(
        beat_ago in 0_u64..7000, billed_after in 0_u64..4000, dark_for in 0_u64..8000, kill: bool, told: bool,
    ) {
        let (mut facts, view) = unsaid(beat_ago, billed_after, dark_for, kill);
        facts.outcome = told.then(|| lamplighter::job::Outcome { ended: ago(beat_ago), ..outcome(1, EndedBecause::Succeeded) });
        let acts = acts(std::slice::from_ref(&facts), &[], known(std::slice::from_ref(&view)));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        let to = settled.billed_to.expect("there was a machine");
        let certain = ago(beat_ago) + Duration::from_secs(billed_after);
        let seen_dark = ago(dark_for);
        prop_assert!(to >= certain, "what it was seen to bill is billed: {} < {}", to, certain);
        prop_assert!(!told || to <= certain + STOP_GRACE, "no more than a power-off takes: {} after {}", to, certain);
        // Dark before it was heard: by a clock here that is behind, which says nothing (seeds 79
        // and 148 of six hours).
        let is_behind = seen_dark < certain;
        prop_assert!(is_behind || to <= seen_dark, "nothing after it was seen dark: {} > {}", to, seen_dark);
        prop_assert!((to == seen_dark && !is_behind) || (to == certain + STOP_GRACE && (told || is_behind)));
        prop_assert_eq!(settled.billed_estimated, to > certain);
        prop_assert!(settled.billed.duration() >= Duration::from_secs(60), "a minute at least");
    }

    /// Who looks sooner never bills more.
    #[test]
    fn sooner_dark_look_never_bills_more(silent in 0_u64..3000, billed_after in 0_u64..2000, dark_for in 0_u64..2000, sooner in 0_u64..1000) {
        let beat_ago = billed_after + silent + sooner + dark_for;
        let usd = |dark_for| {
            let (facts, view) = unsaid(beat_ago, billed_after, dark_for, false);
            let acts = acts(std::slice::from_ref(&facts), &[], known(&[view]));
            let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
            settled.usd
        };
        prop_assert!(usd(dark_for + sooner) <= usd(dark_for));
    }
}

/// Seed 15 of six hours: an agent that died again and again said nothing for minutes, and then told
/// its outcome and powered off. EC2 dates no power-off from within, and nobody looked for long.
#[test]
fn outcome_after_minutes_of_silence_is_a_sign_that_it_ran() {
    for (silent, step) in [(0, 0), (240, 0), (240, 3600), (240, -3600)] {
        let (mut facts, view) = unsaid(3000, 0, 600, false);
        // The machine's own clock may be wrong, by as much then as when it was heard last.
        let by_its_clock = |at: jiff::Timestamp| at + jiff::SignedDuration::from_secs(step);
        let told = by_its_clock(ago(3000 - silent));
        facts.status = Some(status(AttemptPhase::Running, by_its_clock(ago(3000))));
        facts.outcome =
            Some(lamplighter::job::Outcome { ended: told, ..outcome(1, EndedBecause::Succeeded) });
        let acts = acts(std::slice::from_ref(&facts), &[], known(&[view]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(
            (settled.billed_to, settled.billed_estimated),
            (Some(ago(3000 - silent) + STOP_GRACE), true),
            "{silent} {step}"
        );
    }
}

/// Its switch at the cap, or its agent, which was cut off: nobody but its last word says that it
/// lived so long. One that was silent for hours is lost, and its work goes on elsewhere.
#[test]
fn dark_machine_counts_as_capped_if_heard_close_to_its_cap() {
    for (beat_ago, because) in [(3600, EndedBecause::HardEnd), (7000, EndedBecause::Lost)] {
        let (mut facts, mut view) = unsaid(beat_ago, 0, 600, false);
        (Arc::make_mut(&mut facts.plan).kill_at, view.tags.kill_at) =
            (Some(ago(3000)), Some(ago(3000)));
        let acts = acts(std::slice::from_ref(&facts), &[], known(&[view]));
        let settled = acts
            .iter()
            .find_map(|act| if let Act::Settle(settled) = act { Some(settled) } else { None })
            .expect("it is over");
        assert_eq!(
            (settled.because, settled.billed_to),
            (because, Some(ago(3000) + Duration::from_secs(37 * 60))),
            "{beat_ago}"
        );
    }
}

/// Seed 584 of the false world: the answer to the launch was lost, the machine died before its
/// first lease, and the laptop slept for longer than the cloud shows an ended machine. It was paid
/// for.
#[test]
fn unseen_machine_is_billed_the_most_that_it_can_have_cost() {
    let spent =
        (Some(Refusal::Spent), "IdempotentInstanceTerminated: use another token".to_owned());
    for (age, billed) in [(7200, min(22)), (min(10), min(10))] {
        let watched = Watched {
            refused: Some(spent.clone()),
            unclear: true,
            missing_for: Duration::from_secs(90),
            ..Watched::default()
        };
        let facts = AttemptFacts { watched, ..attempt(1, age) };
        let acts = acts(std::slice::from_ref(&facts), &[], known(&[]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!((settled.because, settled.instance.as_deref()), (EndedBecause::Lost, None));
        assert_eq!(
            (settled.billed_from, settled.billed.secs_f64(), settled.billed_estimated),
            (Some(ago(age)), billed as f64, true)
        );
        assert_eq!(
            settled.usd.micros(),
            (billed * 1_000_000).div_ceil(3600) as i64,
            "a dollar an hour"
        );
    }
}

/// Seed 1181: the same, and then it was not wanted any more, so that nobody asked the cloud again:
/// that would have bought it.
#[test]
fn possible_launch_is_in_the_receipt_after_a_stop_request() {
    let stop = wish(Wish::Stop, 100);
    let settled = |age: u64, unclear: bool| {
        let watched = Watched {
            unclear,
            missing_for: Duration::from_secs(90),
            wished_for: Duration::from_secs(420),
            ..Watched::default()
        };
        let mut facts = attempt(1, age);
        facts.watched = watched;
        let acts = acts(std::slice::from_ref(&facts), std::slice::from_ref(&stop), known(&[]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(
            (settled.because, settled.instance.as_deref()),
            (EndedBecause::UserStopped, None)
        );
        (
            settled.billed.secs_f64(),
            settled.billed_estimated,
            settled.usd > lamplighter::market::Usd::ZERO,
        )
    };
    assert_eq!(settled(min(60), true), (min(22) as f64, true, true));
    assert_eq!(
        settled(min(60), false),
        (0.0, false, false),
        "this controller made the plan, and nothing that it asked for is open"
    );
    assert_eq!(
        settled(min(10), true),
        (0.0, false, false),
        "a machine that had ended since would still be shown"
    );
}

/// Its launch was answered, and it was gone for longer than the cloud shows it before the next
/// look.
#[test]
fn machine_known_by_name_only_is_billed_to_its_latest_end() {
    let watched = Watched {
        launched: Some("i-1".into()),
        asked_for: Some(Duration::from_secs(7200)),
        missing_for: Duration::from_secs(90),
        ..Watched::default()
    };
    // Seed 32009370 of 24 h: its launch came through six minutes after the plan.
    for (planned, billed) in [(7200, min(22)), (7200 + min(6), min(28))] {
        let facts = AttemptFacts { watched: watched.clone(), ..attempt(1, planned) };
        let acts = acts(std::slice::from_ref(&facts), &[], known(&[]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(
            (settled.instance.as_deref(), settled.billed.secs_f64(), settled.billed_estimated),
            (Some("i-1"), billed as f64, true)
        );
    }
}

/// Seeds 37002198, 37014793 and 37029911 of 24 h: a kernel that never came up, so that no switch of
/// the machine ended it, and the receipt said the quarter of an hour of its boot and a sweep: $0.15
/// of $0.74.
#[test]
fn silent_machine_is_billed_until_a_controller_last_saw_it() {
    let billed = |planned: u64, watched: Watched| {
        let facts = AttemptFacts {
            watched: Watched { missing_for: Duration::from_secs(90), ..watched },
            ..attempt(1, planned)
        };
        let acts = acts(std::slice::from_ref(&facts), &[], known(&[]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(
            (settled.instance.as_deref(), settled.billed_from, settled.billed_estimated),
            (Some("i-1"), Some(ago(7200)), true)
        );
        settled.billed.secs_f64()
    };
    let shown = || Watched {
        shown: Some("i-1".into()),
        launched_at: Some(ago(7200)),
        ..Watched::default()
    };
    let recorded = |minutes: u64| {
        let ending = Some(ago(7200 - min(minutes)));
        Watched {
            unshown: Some(Unshown { now: now(), planned: None, outcome: None, ending }),
            ..shown()
        }
    };
    assert_eq!(billed(7200, shown()), min(22) as f64);
    assert_eq!(
        billed(7200 + min(30), shown()),
        min(22) as f64,
        "another has launched it half an hour after the plan"
    );
    assert_eq!(
        billed(7200, recorded(106)),
        min(113) as f64,
        "whoever ends it has just seen it run"
    );
    assert_eq!(billed(7200, recorded(5)), min(22) as f64);
    let lit = |minutes: u64| Watched {
        lit_for: Some(Duration::from_secs(7200 - min(minutes))),
        ..shown()
    };
    assert_eq!(billed(7200, lit(44)), min(51) as f64);
    assert_eq!(billed(7200, lit(119)), min(120) as f64, "not beyond now");
}

/// Seeds 37008093 and 37025714 of 24 h: what one controller was refused another launched, the first
/// saw it, and settled it as refused: it was in no receipt. Of one that it never saw, and that was
/// not wanted any more, the same is possible.
#[test]
fn what_another_launched_after_a_refusal_is_in_the_receipt() {
    let settled = |watched: Watched, age: u64| {
        let stop = wish(Wish::Stop, 500);
        let facts = AttemptFacts {
            watched: Watched { unclear: true, wished_for: Duration::from_secs(500), ..watched },
            ..attempt(1, age)
        };
        let acts = acts(std::slice::from_ref(&facts), std::slice::from_ref(&stop), known(&[]));
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        (
            settled.because,
            settled.instance.clone(),
            settled.billed.secs_f64(),
            settled.billed_estimated,
        )
    };
    let shown = Watched {
        shown: Some("i-1".into()),
        launched_at: Some(ago(7200)),
        missing_for: Duration::from_secs(90),
        ..Watched::default()
    };
    assert_eq!(
        settled(shown, 9000),
        (EndedBecause::Lost, Some("i-1".into()), min(22) as f64, true)
    );
    let refused = |ago: u64| Watched {
        refused: Some((Some(Refusal::Price), "too dear".into())),
        refused_for: Duration::from_secs(ago),
        missing_for: Duration::from_secs(500),
        ..Watched::default()
    };
    assert_eq!(
        settled(refused(7000), 7200),
        (EndedBecause::UserStopped, None, min(22) as f64, true)
    );
    assert_eq!(
        settled(refused(600), 7200),
        (EndedBecause::LaunchFailed, None, 0.0, false),
        "what was launched since would be shown"
    );
}

/// Seed 32028469 of 24 h: its zone was out over its hard cap, without a sweeper, and its outcome
/// came five hours later. The receipt said that this was exact, and left its power-off out.
#[test]
fn machine_heard_past_its_cap_is_billed_with_its_power_off() {
    let secs = Duration::from_secs;
    let mut late = unshown(Some(2), None);
    Arc::make_mut(&mut late.plan).kill_at = Some(ago(14_400 + 3 * 3600));
    assert_eq!(until(&late), (secs(2 + 120), true));
    late.outcome = None;
    late.watched.unshown.as_mut().unwrap().outcome = None;
    assert_eq!(until(&late), (secs(37 * 60), true));
}

/// Heard of an hour before the first look without it, and shown no more since: `ended`, its outcome
/// came so long after the heartbeat; its hard cap so long after that.
fn unshown(ended: Option<u64>, cap: Option<u64>) -> AttemptFacts {
    const BEAT: u64 = 14_400;
    let mut facts = attempt(1, 18_000);
    Arc::make_mut(&mut facts.plan).kill_at = cap.map(|secs| ago(BEAT - secs));
    facts.status = Some(status(AttemptPhase::Running, ago(BEAT)));
    facts.outcome = ended.map(|_| outcome(1, EndedBecause::Succeeded));
    facts.watched = Watched {
        heard_at: Some(ago(BEAT)),
        missing_for: Duration::from_secs(90),
        asked_for: Some(Duration::from_secs(18_000)),
        launched_at: Some(ago(17_900)),
        unshown: Some(Unshown {
            now: now(),
            planned: Some(ago(18_000)),
            outcome: ended.map(|secs| ago(BEAT - secs)),
            ending: None,
        }),
        ..Watched::default()
    };
    facts
}

fn until(facts: &AttemptFacts) -> (Duration, bool) {
    let acts = acts(std::slice::from_ref(facts), &[], known(&[]));
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(settled.billed_from, Some(ago(17_900)), "the cloud said so while it showed it");
    (
        Duration::try_from(settled.billed_to.unwrap().duration_since(ago(14_400))).unwrap(),
        settled.billed_estimated,
    )
}

/// Seed 121 of the false world: its kernel hung, the sweeper was throttled, and the laptop slept
/// until the cloud had forgotten it.
#[test]
fn dead_machine_shown_no_more_is_billed_to_its_latest_end() {
    let secs = Duration::from_secs;
    // An end less than fifty minutes before the first look without it would have been shown.
    assert_eq!(until(&unshown(None, None)), (secs(14_400 - 90 - 3000), true));
    assert_eq!(
        until(&unshown(None, Some(3600))),
        (secs(3600 + 37 * 60), true),
        "no death of anybody keeps it lit for longer"
    );
    // A workstation whose clock is a day behind sees the same.
    let mut behind = unshown(None, None);
    behind.watched.unshown =
        Some(Unshown { now: now(), planned: None, outcome: None, ending: None });
    let facts = behind.clone();
    let (spec, cloud, attempts) = (spec(), known(&[]), [facts]);
    let facts = JobFacts {
        spec: &spec,
        attempts: &attempts,
        requests: &[],
        cloud: &cloud,
        newest_checkpoint: None,
        owner: OWNER,
        here: "z",
        now: now() - Duration::from_secs(10_000),
    };
    let [Act::Settle(settled)] = &reconcile(&facts)[..] else { panic!("it is gone") };
    assert_eq!((settled.billed_to, settled.billed_estimated), (Some(now() - secs(3090)), true));
}

/// Seed 4004436 of the false world: its store did not say what time it was, so a workstation a day
/// ahead planned and launched it, slept and forgot; the receipt said a minute of what had billed
/// for an hour and a half.
#[test]
fn plan_from_a_clock_a_day_ahead_is_billed_from_store_time() {
    let mut ahead = unshown(Some(5_600), None);
    (Arc::make_mut(&mut ahead.plan).created, ahead.watched.launched_at) =
        (ago(18_000) + Duration::from_secs(86_400), None);
    let acts = acts(std::slice::from_ref(&ahead), &[], known(&[]));
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(
        (settled.billed_from, settled.billed_to),
        (Some(ago(18_000)), Some(ago(14_400 - 5_600 - 120)))
    );
    assert_eq!((settled.billed.secs_f64(), settled.billed_estimated), (9_320.0, true));
}

/// `lamp extend` is on the machine's tag and never in its plan: the receipt ended at the last
/// heartbeat, and said that this was exact.
#[test]
fn extended_machine_that_hung_is_billed_to_its_new_cap_at_most() {
    let half_an_hour = Span::from_secs(min(30));
    let mut spec = spec();
    spec.spec.limits = LimitsSpec { max_runtime: Some(half_an_hour), ..LimitsSpec::default() };
    let mut hung = unshown(None, None);
    Arc::make_mut(&mut hung.plan).kill_at = Some(hung.plan.created + Duration::from_secs(min(35)));
    let (attempts, cloud) = ([hung], known(&[]));
    let ended = |requests: &[Request]| {
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
        match &reconcile(&facts)[..] {
            [Act::Settle(settled)] => (settled.billed_to.unwrap(), settled.billed_estimated),
            other => panic!("{other:?}"),
        }
    };
    let more = |hours: u64| {
        [wish(
            Wish::Extend {
                time: Some(Span::from_secs(hours * 3600)),
                budget: None,
                fallback_cost: None,
            },
            15_000,
        )]
    };
    // Heard for an hour of its five.
    assert_eq!(ended(&more(1)), (ago(18_000) + Duration::from_secs(min(60 + 35 + 37)), true));
    assert_eq!(ended(&more(10)), (ago(3090), true), "an end since would have been shown");
}

/// Seed 9001173 of 24 h of the false world: a reboot in the power-off, and the sweeper ended the
/// machine half an hour after its outcome. Of one that died the record, which is written before the
/// cloud is asked, says nothing.
#[test]
fn machine_ended_by_us_after_its_outcome_is_billed_with_a_sweep() {
    let secs = Duration::from_secs;
    let ended = |outcome: Option<u64>, cap: Option<u64>, ending: u64| {
        let mut facts = unshown(outcome, cap);
        facts.watched.unshown.as_mut().unwrap().ending = Some(ago(14_400) + secs(ending));
        until(&facts)
    };
    assert_eq!(ended(Some(100), None, 2160), (secs(2160 + 420), true));
    assert_eq!(
        ended(None, None, 2160),
        until(&unshown(None, None)),
        "the lid may have been closed before the call"
    );
    // It was heard of since, so that was not its end.
    let mut heard = unshown(Some(100), None);
    heard.watched.unshown.as_mut().unwrap().ending = Some(ago(14_500));
    assert_eq!(until(&heard), (secs(220), true));
    // An end in the last fifty minutes would have been shown.
    assert_eq!(ended(Some(100), None, 14_000), (secs(14_400 - 90 - 3000), true));
}

/// A laptop that looked before the cloud showed the machine, and then slept, has missed it from
/// then on.
#[test]
fn who_never_saw_a_machine_has_missed_it_only_now() {
    let mut facts = unshown(None, None);
    Arc::make_mut(&mut facts.plan).created = ago(17_900);
    (facts.watched.launched_at, facts.watched.missing_for) = (None, Duration::from_secs(17_890));
    facts.watched.unshown =
        Some(Unshown { now: now(), planned: Some(ago(17_900)), outcome: None, ending: None });
    assert_eq!(until(&facts), (Duration::from_secs(14_400 - 3000), true));
}

#[test]
fn machine_that_powered_off_is_billed_to_outcome_and_power_off() {
    let secs = Duration::from_secs;
    assert_eq!(until(&unshown(Some(100), None)), (secs(220), true));
    // It was kept for a look after its outcome, and nobody knows for how long it lived.
    let mut held = unshown(Some(100), None);
    held.status.as_mut().unwrap().phase = AttemptPhase::Held;
    assert_eq!(until(&held), (secs(14_400 - 90 - 3000), true));
    // Seen to be dark before it was forgotten.
    let mut seen = unshown(None, None);
    seen.watched.dark_for = Some(secs(14_000));
    assert_eq!(until(&seen), (secs(400), true));
    // What it was seen to bill is billed, and then nothing is a guess.
    seen.watched.billed_after_beat = secs(400);
    assert_eq!(until(&seen), (secs(400), false));
}

proptest! {
    /// Whatever is known: never less than what it was heard to run, and exact only when that is
    /// all.
    #[test]
    fn what_is_shown_no_more_is_never_billed_less_than_it_was_heard(
        ended in proptest::option::of(0_u64..9000), cap in proptest::option::of(0_u64..9000), asked in 0_u64..14_000,
    ) {
        let (ran, estimated) = until(&unshown(ended, cap));
        let mut recorded = unshown(ended, cap);
        recorded.watched.unshown.as_mut().unwrap().ending = Some(ago(14_400) + Duration::from_secs(asked));
        prop_assert!(until(&recorded).0 >= ran, "who saw it later never makes it cheaper");
        prop_assert!(ran >= Duration::ZERO);
        prop_assert_eq!(estimated, ran > Duration::ZERO);
        let longer = unshown(ended, cap.map(|cap| cap + 60));
        prop_assert!(until(&longer).0 >= ran, "a later cap never bills less");
    }
}
