//! What a notice asks for, second by second.

use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::{Notice, NoticeKind};
use lamplighter::market::Span;
use lamplighter::policy::{NoticeFacts, NoticeStep, Saver, hurries, judge_notice, over_by};
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
        upload: Some(Span::from_secs(10)),
        bytes: None,
        backlog: Span::ZERO,
        saver: Saver::Asked,
        saved_since: false,
        dirty_since: true,
    }
}

fn interruption(first_seen: i64, now: i64) -> NoticeFacts {
    facts(NoticeKind::Interruption, first_seen, now)
}

#[test]
fn two_minutes_of_a_spot_notice() {
    assert_eq!(
        judge_notice(&interruption(-120, -120)),
        NoticeStep::SaveNow,
        "at once when first seen"
    );
    let saved = |now| NoticeFacts { saved_since: true, ..interruption(-120, now) };
    assert_eq!(
        judge_notice(&saved(-100)),
        NoticeStep::Wait { until: at(-50) },
        "training goes on until 20 + 30 s before the end"
    );
    assert_eq!(judge_notice(&saved(-50)), NoticeStep::Final { by: at(-15), at: at(0) });
}

#[test]
fn signal_that_ends_the_workload_is_sent_once_and_late() {
    let ends = |now| NoticeFacts { saver: Saver::Ended, ..interruption(-120, now) };
    assert_eq!(judge_notice(&ends(-120)), NoticeStep::Wait { until: at(-50) });
    assert!(matches!(judge_notice(&ends(-50)), NoticeStep::Final { .. }));
}

#[test]
fn what_was_never_measured_has_half_of_the_notice() {
    let unmeasured = |saver, now| NoticeFacts { save_p95: None, saver, ..interruption(-120, now) };
    assert_eq!(judge_notice(&unmeasured(Saver::Asked, -120)), NoticeStep::SaveNow);
    for saver in [Saver::Asked, Saver::Ended] {
        assert!(
            matches!(judge_notice(&unmeasured(saver, -89)), NoticeStep::Final { .. }),
            "half of the notice and the margin: {saver:?}"
        );
    }
    assert_eq!(judge_notice(&unmeasured(Saver::Ended, -120)), NoticeStep::Wait { until: at(-90) });
    let far = NoticeFacts { first_seen: at(-604_800), ..unmeasured(Saver::Ended, -604_800) };
    assert!(
        matches!(judge_notice(&far), NoticeStep::Wait { .. }),
        "a week ahead nothing is given up"
    );
}

/// Hugging Face's Trainer, as its own pages show it.
#[test]
fn without_a_signal_the_script_works_until_an_upload_must_begin() {
    let itself = |now| NoticeFacts { saver: Saver::Itself, ..interruption(-120, now) };
    assert_eq!(
        judge_notice(&itself(-120)),
        NoticeStep::Wait { until: at(-40) },
        "10 s for the upload, 15 s to end, 15 s for the manifest"
    );
    assert_eq!(judge_notice(&itself(-41)), NoticeStep::Wait { until: at(-40) });
    assert_eq!(judge_notice(&itself(-40)), NoticeStep::Final { by: at(-15), at: at(0) });
    let cases = [
        (
            "an upload under way comes first",
            NoticeFacts { backlog: Span::from_secs(7), ..itself(-120) },
            -47,
        ),
        (
            "a long save is not waited for",
            NoticeFacts { save_p95: Some(Span::from_secs(600)), ..itself(-120) },
            -40,
        ),
        ("nothing to save", NoticeFacts { upload: Some(Span::ZERO), ..itself(-120) }, -30),
        (
            "not measured, 300 MB",
            NoticeFacts { upload: None, bytes: Some(300_000_000), ..itself(-120) },
            -60,
        ),
        (
            "not measured, 80 GB",
            NoticeFacts { upload: None, bytes: Some(80_000_000_000), ..itself(-120) },
            -90,
        ),
        ("an empty folder", NoticeFacts { upload: None, ..itself(-120) }, -90),
        (
            "twenty seconds of notice",
            NoticeFacts { first_seen: at(-20), upload: Some(Span::from_secs(1)), ..itself(-20) },
            -8,
        ),
        (
            "an event in a week",
            NoticeFacts {
                first_seen: at(-604_800),
                ..facts(NoticeKind::Maintenance, -604_800, -604_800)
            },
            -600,
        ),
    ];
    for (what, facts, until) in cases {
        let facts = NoticeFacts { saver: Saver::Itself, ..facts };
        assert_eq!(judge_notice(&facts), NoticeStep::Wait { until: at(until) }, "{what}");
    }
    let slow = NoticeFacts { upload: Some(Span::from_secs(100)), ..itself(-120) };
    assert!(
        matches!(judge_notice(&slow), NoticeStep::Final { .. }),
        "nothing that is saved from now on could be uploaded"
    );
}

#[test]
fn what_is_whole_is_uploaded_at_once_while_the_machine_may_go() {
    let itself = |facts| hurries(&NoticeFacts { saver: Saver::Itself, ..facts });
    for (facts, expected) in [
        (interruption(-120, -120), true),
        (interruption(-120, 0), true),
        (interruption(-120, 180), true),
        (interruption(-120, 181), false),
        (facts(NoticeKind::Rebalance, 0, 1), false),
        (facts(NoticeKind::Maintenance, -604_800, -604_800), false),
        (facts(NoticeKind::Maintenance, -604_800, -900), true),
    ] {
        assert_eq!(itself(facts.clone()), expected, "{facts:?}");
    }
}

#[test]
fn short_notice_is_a_final_one() {
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
    assert!(matches!(
        judge_notice(&NoticeFacts { now: at(-15), ..clean }),
        NoticeStep::Final { .. }
    ));
}

#[test]
fn notice_that_is_not_carried_out_is_void_after_three_minutes() {
    assert!(matches!(judge_notice(&interruption(-120, 180)), NoticeStep::Final { .. }));
    assert_eq!(judge_notice(&interruption(-120, 181)), NoticeStep::Void);
    assert_eq!(judge_notice(&interruption(86_400, 86_400)), NoticeStep::Void, "found the next day");
}

/// Also what ends an attempt before its last save begins.
#[test]
fn all_is_over_before_the_machine_is_taken() {
    let over_by =
        |kind, first_seen, now| over_by(&facts(kind, 0, 0).notice, at(first_seen), at(now));
    assert_eq!(over_by(NoticeKind::Interruption, -120, -100), Some(at(-15)));
    assert_eq!(over_by(NoticeKind::Maintenance, -86_400, -100), Some(at(-15)));
    assert_eq!(
        over_by(NoticeKind::Interruption, -40, -30),
        Some(at(-10)),
        "a quarter of a short one"
    );
    assert_eq!(over_by(NoticeKind::Interruption, -120, 180), Some(at(-15)));
    assert_eq!(over_by(NoticeKind::Interruption, -120, 181), None, "nobody carried it out");
    assert_eq!(over_by(NoticeKind::Rebalance, -120, -100), None);
}

#[test]
fn rebalance_recommendation_is_one_early_checkpoint_and_no_stop() {
    let rebalance = facts(NoticeKind::Rebalance, 0, 1);
    assert_eq!(judge_notice(&rebalance), NoticeStep::SaveNow);
    assert_eq!(
        judge_notice(&NoticeFacts { saved_since: true, ..rebalance.clone() }),
        NoticeStep::Void
    );
    assert_eq!(judge_notice(&NoticeFacts { saver: Saver::Ended, ..rebalance }), NoticeStep::Void);
}

#[test]
fn scheduled_event_is_saved_for_ten_minutes_before() {
    let scheduled =
        |now| NoticeFacts { saved_since: true, ..facts(NoticeKind::Maintenance, -86_400, now) };
    assert_eq!(judge_notice(&scheduled(-3600)), NoticeStep::Wait { until: at(-600) });
    assert!(matches!(judge_notice(&scheduled(-600)), NoticeStep::Final { .. }));
}

#[test]
fn reason_carries_the_numbers() {
    let facts = interruption(-120, -50);
    let reason = judge_notice(&facts).reason(&facts);
    assert_eq!((reason.policy.as_str(), reason.verdict.as_str()), ("interruption", "interrupted"));
    assert_eq!((reason.numbers["left_secs"], reason.numbers["save_p95_secs"]), (50.0, 20.0));
}

prop_compose! {
    fn any_facts()(
        kind in prop_oneof![Just(NoticeKind::Interruption), Just(NoticeKind::Maintenance), Just(NoticeKind::Rebalance)],
        first_seen in -100_000..1000i64, after in 0..2000i64, p95 in prop::option::of(0..10_000u64),
        saver in prop_oneof![Just(Saver::Asked), Just(Saver::Ended), Just(Saver::Itself)],
        upload in prop::option::of(0..5000u64), bytes in prop::option::of(0..100_000_000_000u64), backlog in 0..100u64,
        saved_since: bool, dirty_since: bool,
    ) -> NoticeFacts {
        let (save_p95, upload, backlog) = (p95.map(Span::from_secs), upload.map(Span::from_secs), Span::from_secs(backlog));
        NoticeFacts { save_p95, upload, bytes, backlog, saver, saved_since, dirty_since, ..facts(kind, first_seen, first_seen + after) }
    }
}

/// The last minutes before the machine is taken away, and the first after.
fn near_facts() -> impl Strategy<Value = NoticeFacts> {
    (any_facts(), -300..0i64, 0..480i64).prop_map(|(facts, first_seen, after)| {
        let below = |span: Span, most| Span::from_secs(span.duration().as_secs() % most);
        let (save_p95, upload) = (
            facts.save_p95.map(|p95| below(p95, 100)),
            facts.upload.map(|upload| below(upload, 100)),
        );
        NoticeFacts {
            save_p95,
            upload,
            ..NoticeFacts { first_seen: at(first_seen), now: at(first_seen + after), ..facts }
        }
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
    fn rebalance_never_ends_anything(facts in any_facts()) {
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
    fn longer_save_begins_no_later(facts in near_facts(), more in 0..1000u64) {
        let before = matches!(judge_notice(&facts), NoticeStep::Final { .. });
        let measured = facts.save_p95.is_some();
        let longer = facts.save_p95.map(|span| Span::from_secs(span.duration().as_secs() + more));
        let step = judge_notice(&NoticeFacts { save_p95: longer, ..facts });
        let ends = matches!(step, NoticeStep::Final { .. });
        prop_assert!(ends || !before || !measured, "{:?}", step);
    }

    /// An upload that takes longer, or another before it, ends the work no later.
    #[test]
    fn longer_upload_ends_no_later(facts in near_facts(), more in 0..1000u64, before in 0..1000u64) {
        let ends = |facts: &NoticeFacts| matches!(judge_notice(facts), NoticeStep::Final { .. });
        let plus = |span: Span, more| Span::from_secs(span.duration().as_secs() + more);
        let longer = NoticeFacts { upload: facts.upload.map(|upload| plus(upload, more)), backlog: plus(facts.backlog, before), ..facts.clone() };
        prop_assert!(ends(&longer) || !ends(&facts), "{:?}", facts);
    }

    /// More notice is worked through: the same moment of a longer notice ends nothing that a
    /// shorter one lets go on.
    #[test]
    fn longer_notice_ends_nothing_sooner(facts in near_facts(), upload in 0..100u64, more in 0..300i64) {
        let facts = NoticeFacts { saver: Saver::Itself, upload: Some(Span::from_secs(upload)), saved_since: false, ..facts };
        let begins = |facts: &NoticeFacts| match judge_notice(facts) {
            NoticeStep::Wait { until } => until,
            _ => facts.now,
        };
        let first = NoticeFacts { now: facts.first_seen, ..facts.clone() };
        let earlier = facts.first_seen - SignedDuration::from_secs(more);
        let longer = NoticeFacts { first_seen: earlier, now: earlier, ..facts };
        let worked = |facts: &NoticeFacts| begins(facts).duration_since(facts.first_seen);
        prop_assert!(worked(&longer) >= worked(&first), "{:?}", first);
    }

    /// A script that saves as it likes, whose uploads take as long as was measured: what was whole
    /// before its end is kept, and by a longer notice no less of it.
    #[test]
    fn what_was_whole_before_the_end_is_kept(every in 1..400i64, upload in 0..60i64, first in 0..400i64, notice in 5..400i64, more in 0..100i64) {
        let (kept, whole) = played(every, upload, first, notice);
        // An upload that takes longer than there is time for ends at once; what stands whole is all
        // that can still arrive.
        prop_assume!(notice - 2 * upload > 10);
        prop_assert!(kept >= whole, "{kept} is kept, and {whole} was whole");
        prop_assert!(played(every, upload, first, notice + more).0 >= kept);
    }
}

/// A script that has saved `first` seconds before its notice, and saves each `every` seconds. When
/// the newest that is kept, and the newest that was whole a second before its end, were saved,
/// counted from the notice.
fn played(every: i64, upload: i64, first: i64, notice: i64) -> (i64, i64) {
    let begin = -notice;
    let newest = |now: i64| now - (now - begin + first).rem_euclid(every);
    let (mut kept, mut sending): (i64, Option<(i64, i64)>) = (begin - first - every, None);
    let mut ended = None;
    for now in begin..=0 {
        sending = sending.filter(|(saved, done)| {
            let is_done = now >= *done;
            if is_done {
                kept = *saved;
            }
            !is_done
        });
        let left = sending.map_or(0, |(_, done)| done - now);
        let spans = (Some(Span::from_secs(upload as u64)), Span::from_secs(left as u64));
        let facts = NoticeFacts {
            upload: spans.0,
            backlog: spans.1,
            saver: Saver::Itself,
            ..interruption(begin, now)
        };
        if ended.is_none() && matches!(judge_notice(&facts), NoticeStep::Final { .. }) {
            ended = Some(now);
        }
        let whole = newest(ended.unwrap_or(now));
        if sending.is_none() && whole > kept {
            assert!(hurries(&facts));
            sending = Some((whole, now + upload));
        }
    }
    // Counted from the notice, so that two of them can be compared.
    (kept - begin, newest(ended.expect("it ends before the machine does") - 1) - begin)
}
