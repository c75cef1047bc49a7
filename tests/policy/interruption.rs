//! What a notice asks for, second by second.

use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::{Notice, NoticeKind};
use lamplighter::market::Span;
use lamplighter::policy::{NoticeFacts, NoticeStep, judge_notice, over_by};
use proptest::prelude::*;

/// The notice takes effect at 0; time is counted in seconds to it.
fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap() + SignedDuration::from_secs(secs)
}

fn facts(kind: NoticeKind, first_seen: i64, now: i64) -> NoticeFacts {
    NoticeFacts {
        notice: Notice { kind, at: at(0), detail: "terminate".into() },
        first_seen: at(first_seen),
        now: at(now),
        save_p95: Some(Span::from_secs(20)),
        saving_ends: false,
        saved_since: false,
        dirty_since: true,
    }
}

fn interruption(first_seen: i64, now: i64) -> NoticeFacts {
    facts(NoticeKind::Interruption, first_seen, now)
}

#[test]
fn the_two_minutes_of_a_spot_notice() {
    assert_eq!(judge_notice(&interruption(-120, -120)), NoticeStep::SaveNow, "at once when first seen");
    let saved = |now| NoticeFacts { saved_since: true, ..interruption(-120, now) };
    assert_eq!(judge_notice(&saved(-100)), NoticeStep::Wait { until: at(-50) }, "training goes on until 20 + 30 s before the end");
    assert_eq!(judge_notice(&saved(-50)), NoticeStep::Final { by: at(-15), at: at(0) });
}

#[test]
fn a_signal_that_ends_the_workload_is_sent_once_and_late() {
    let ends = |now| NoticeFacts { saving_ends: true, ..interruption(-120, now) };
    assert_eq!(judge_notice(&ends(-120)), NoticeStep::Wait { until: at(-50) });
    assert!(matches!(judge_notice(&ends(-50)), NoticeStep::Final { .. }));
}

#[test]
fn what_was_never_measured_is_not_waited_for() {
    let unmeasured = |saving_ends, now| NoticeFacts { save_p95: None, saving_ends, ..interruption(-120, now) };
    assert_eq!(judge_notice(&unmeasured(false, -120)), NoticeStep::SaveNow);
    assert!(matches!(judge_notice(&unmeasured(false, -89)), NoticeStep::Final { .. }), "half of the notice and the margin");
    assert!(matches!(judge_notice(&unmeasured(true, -120)), NoticeStep::Final { .. }));
    let far = NoticeFacts { first_seen: at(-604_800), ..unmeasured(true, -604_800) };
    assert!(matches!(judge_notice(&far), NoticeStep::Wait { .. }), "a week ahead nothing is given up");
}

#[test]
fn a_short_notice_is_a_final_one() {
    for short in [-5, -30, -50] {
        let step = judge_notice(&interruption(short, short));
        let NoticeStep::Final { by, at: end } = step else { panic!("{short}: {step:?}") };
        assert!(by <= end && by >= at(short), "{short}: {by}");
    }
}

#[test]
fn when_everything_is_saved_training_goes_on_to_the_last() {
    let clean = NoticeFacts { saved_since: true, dirty_since: false, ..interruption(-120, -40) };
    assert_eq!(judge_notice(&clean), NoticeStep::Wait { until: at(-15) });
    assert!(matches!(judge_notice(&NoticeFacts { now: at(-15), ..clean }), NoticeStep::Final { .. }));
}

#[test]
fn a_notice_that_was_not_carried_out_is_void_after_three_minutes() {
    assert!(matches!(judge_notice(&interruption(-120, 180)), NoticeStep::Final { .. }));
    assert_eq!(judge_notice(&interruption(-120, 181)), NoticeStep::Void);
    assert_eq!(judge_notice(&interruption(86_400, 86_400)), NoticeStep::Void, "found the next day");
}

/// Also what ends an attempt before its last save begins.
#[test]
fn all_is_over_before_the_machine_is_taken() {
    let over_by = |kind, first_seen, now| over_by(&facts(kind, 0, 0).notice, at(first_seen), at(now));
    assert_eq!(over_by(NoticeKind::Interruption, -120, -100), Some(at(-15)));
    assert_eq!(over_by(NoticeKind::Maintenance, -86_400, -100), Some(at(-15)));
    assert_eq!(over_by(NoticeKind::Interruption, -40, -30), Some(at(-10)), "a quarter of a short one");
    assert_eq!(over_by(NoticeKind::Interruption, -120, 180), Some(at(-15)));
    assert_eq!(over_by(NoticeKind::Interruption, -120, 181), None, "nobody carried it out");
    assert_eq!(over_by(NoticeKind::Rebalance, -120, -100), None);
}

#[test]
fn a_rebalance_recommendation_is_one_early_checkpoint_and_never_a_stop() {
    let rebalance = facts(NoticeKind::Rebalance, 0, 1);
    assert_eq!(judge_notice(&rebalance), NoticeStep::SaveNow);
    assert_eq!(judge_notice(&NoticeFacts { saved_since: true, ..rebalance.clone() }), NoticeStep::Void);
    assert_eq!(judge_notice(&NoticeFacts { saving_ends: true, ..rebalance }), NoticeStep::Void);
}

#[test]
fn a_scheduled_event_is_saved_for_ten_minutes_before() {
    let scheduled = |now| NoticeFacts { saved_since: true, ..facts(NoticeKind::Maintenance, -86_400, now) };
    assert_eq!(judge_notice(&scheduled(-3600)), NoticeStep::Wait { until: at(-600) });
    assert!(matches!(judge_notice(&scheduled(-600)), NoticeStep::Final { .. }));
}

#[test]
fn the_reason_carries_the_numbers() {
    let facts = interruption(-120, -50);
    let reason = judge_notice(&facts).reason(&facts);
    assert_eq!((reason.policy.as_str(), reason.verdict.as_str()), ("interruption", "interrupted"));
    assert_eq!((reason.numbers["left_secs"], reason.numbers["save_p95_secs"]), (50.0, 20.0));
}

prop_compose! {
    fn any_facts()(
        kind in prop_oneof![Just(NoticeKind::Interruption), Just(NoticeKind::Maintenance), Just(NoticeKind::Rebalance)],
        first_seen in -100_000..1000i64, after in 0..2000i64, p95 in prop::option::of(0..10_000u64),
        saving_ends: bool, saved_since: bool, dirty_since: bool,
    ) -> NoticeFacts {
        let save_p95 = p95.map(Span::from_secs);
        NoticeFacts { save_p95, saving_ends, saved_since, dirty_since, ..facts(kind, first_seen, first_seen + after) }
    }
}

/// The last minutes before the machine is taken away, and the first after.
fn near_facts() -> impl Strategy<Value = NoticeFacts> {
    (any_facts(), -300..0i64, 0..480i64).prop_map(|(facts, first_seen, after)| {
        let save_p95 = facts.save_p95.map(|p95| Span::from_secs(p95.duration().as_secs() % 100));
        NoticeFacts { save_p95, ..NoticeFacts { first_seen: at(first_seen), now: at(first_seen + after), ..facts } }
    })
}

proptest! {
    #[test]
    fn nothing_is_planned_for_after_the_end(facts in any_facts()) {
        match judge_notice(&facts) {
            NoticeStep::Final { by, at } => prop_assert!(by <= at && at == facts.notice.at),
            NoticeStep::Wait { until } => prop_assert!(until <= facts.notice.at && until >= facts.now),
            NoticeStep::SaveNow => prop_assert!(facts.notice.kind == NoticeKind::Rebalance || facts.now < facts.notice.at),
            NoticeStep::Void => {}
        }
    }

    #[test]
    fn a_rebalance_never_ends_anything(facts in any_facts()) {
        prop_assume!(facts.notice.kind == NoticeKind::Rebalance);
        let ends = matches!(judge_notice(&facts), NoticeStep::Final { .. } | NoticeStep::Wait { .. });
        prop_assert!(!ends);
    }

    /// Once it is final it stays final until the notice is void: time alone never takes it back.
    #[test]
    fn final_stays_final(facts in near_facts(), later in 0..100_000i64) {
        prop_assume!(matches!(judge_notice(&facts), NoticeStep::Final { .. }));
        let step = judge_notice(&NoticeFacts { now: facts.now + SignedDuration::from_secs(later), ..facts });
        let stays = matches!(step, NoticeStep::Final { .. } | NoticeStep::Void);
        prop_assert!(stays, "{:?}", step);
    }

    /// A save that takes longer begins no later.
    #[test]
    fn a_longer_save_begins_no_later(facts in near_facts(), more in 0..1000u64) {
        let before = matches!(judge_notice(&facts), NoticeStep::Final { .. });
        let measured = facts.save_p95.is_some();
        let longer = facts.save_p95.map(|span| Span::from_secs(span.duration().as_secs() + more));
        let step = judge_notice(&NoticeFacts { save_p95: longer, ..facts });
        let ends = matches!(step, NoticeStep::Final { .. });
        prop_assert!(ends || !before || !measured, "{:?}", step);
    }
}
