//! The result of a rehearsal, line by line, from the records of its two attempts.
//!
//! ```text
//!   notice ── asked to save ── checkpoint complete ── power cut ── running again ── resumes
//! ```
//!
//! Pure: evidence in, checks out. Each failed check says what is missing and how to fix it. Not
//! here: running anything.

use jiff::Timestamp;

use super::cadence::cadence;
use super::evidence::{Evidence, RehearsalCheck, bad, good, notice, resumed_from, secs};
use super::missing_proof::why_not_saved;
use super::second_attempt::went_on;
use crate::instance::Notice;
use crate::job::{CheckpointSummary, EndedBecause};
use crate::jobdir::{Event, EventDetail};
use crate::market::Span;

/// All lines, in the order of the events. After a failure, lines that cannot be judged are left
/// out.
pub fn checks(evidence: &Evidence) -> Vec<RehearsalCheck> {
    let mut checks = vec![has_checkpoint(evidence)];
    if !checks[0].passed {
        return checks;
    }
    checks.push(was_interrupted(evidence));
    if evidence.is_cut() && evidence.ended_early.is_none() {
        let kept = kept(&evidence.first);
        checks.push(was_kept(evidence, kept));
        checks.push(resumed(evidence, kept.map(|(_, summary)| summary)));
        checks.extend(went_on(evidence));
        return checks;
    }
    let Some(notice) = notice(&evidence.first).filter(|_| evidence.ended_early.is_none()) else {
        return checks;
    };
    let saved = saved(&evidence.first, &notice);
    checks.extend(was_asked(evidence, &notice, saved.is_some()));
    // A script without a signal saves on its own schedule: an interruption leaves its last save.
    let is_asked = evidence.checkpoint.as_ref().is_some_and(|spec| spec.signal.is_some());
    if let Some(before) = kept(&evidence.first)
        .filter(|(event, _)| saved.is_none() && !is_asked && event.at < notice.0)
    {
        checks.push(kept_before(before, notice.0, "the notice"));
        checks.push(resumed(evidence, Some(before.1)));
        checks.extend(went_on(evidence));
        return checks;
    }
    checks.push(was_saved(evidence, &notice, saved));
    if let Some((spec, EventDetail::Checkpoint { save_secs, upload_secs, .. })) =
        evidence.checkpoint.as_ref().zip(saved.map(|(event, _)| &event.what))
    {
        checks.push(cadence(spec, *save_secs, *upload_secs));
    }
    checks.push(resumed(evidence, saved.map(|(_, summary)| summary)));
    checks.extend(went_on(evidence));
    checks
}

pub fn proved(checks: &[RehearsalCheck]) -> bool {
    proved_by(checks, &["checkpoint_spec", "interrupted", "saved", "resumed", "went_on"])
}

/// Whether all checks passed, and each of these is among them.
pub fn proved_by(checks: &[RehearsalCheck], names: &[&str]) -> bool {
    names.iter().all(|name| checks.iter().any(|check| check.name == *name))
        && checks.iter().all(|check| check.passed)
}

fn has_checkpoint(evidence: &Evidence) -> RehearsalCheck {
    match &evidence.checkpoint {
        Some(spec) => {
            good("checkpoint_spec", format!("the job says where it saves: `{}`", spec.path))
        }
        None => bad(
            "checkpoint_spec",
            "the job has no [checkpoint]: an interruption loses all work",
            "add [checkpoint] with path = the folder that the script saves to (it finds it in LAMP_CHECKPOINT_DIR), and signal = \"SIGUSR1\"",
        ),
    }
}

fn served(evidence: &Evidence, notice: &Notice) -> Timestamp {
    notice.at.saturating_sub(evidence.notice.duration()).unwrap_or(notice.at)
}

fn was_interrupted(evidence: &Evidence) -> RehearsalCheck {
    if let Some(why) = &evidence.ended_early {
        return bad(
            "interrupted",
            format!("the job ended before it could be interrupted: {why}"),
            "a shorter --interrupt-after, or more work",
        );
    }
    if evidence.is_cut() {
        return good("interrupted", "the power was cut without a notice".into());
    }
    match notice(&evidence.first) {
        Some((seen, notice)) => {
            let after = secs(served(evidence, &notice), seen).max(0.0);
            good(
                "interrupted",
                format!("a notice of {} was served, and seen after {after:.1} s", evidence.notice),
            )
            .took(after)
        }
        None if evidence.notice < SEEN_WITHIN => {
            let text = format!(
                "the notice of {} was over before the agent looked for one",
                evidence.notice
            );
            bad(
                "interrupted",
                text,
                format!(
                    "a longer --notice: {SEEN_WITHIN} are always seen; 0s cuts the power without one"
                ),
            )
        }
        None => bad(
            "interrupted",
            "the agent never saw the notice",
            "`lamp logs` and the agent.log in the state folder say why; this is our fault",
        ),
    }
}

/// The agent looks for a notice every few seconds.
const SEEN_WITHIN: Span = Span::from_secs(15);

/// Whether and when the signal was sent. `None` without a signal, or when the script saved first.
fn was_asked(
    evidence: &Evidence,
    (seen, notice): &(Timestamp, Notice),
    saved: bool,
) -> Option<RehearsalCheck> {
    let signal = evidence.checkpoint.as_ref()?.signal.as_ref()?;
    let asked = |event: &Event| match &event.what {
        EventDetail::Asked { by, processes, .. }
            if event.at >= *seen && FOR_THE_NOTICE.contains(&by.as_str()) =>
        {
            Some((event.at, *processes))
        }
        _ => None,
    };
    let all: Vec<(Timestamp, u32)> = evidence.first.iter().filter_map(asked).collect();
    if let Some((at, _)) = all.iter().find(|(_, processes)| *processes > 0) {
        let after = secs(served(evidence, notice), *at).max(0.0);
        return Some(
            good("asked", format!("{signal} was sent {after:.1} s after the notice")).took(after),
        );
    }
    if all.is_empty() {
        return (!saved).then(|| {
            bad(
                "asked",
                format!("{signal} was never sent"),
                "`lamp explain` shows what the agent did with the notice",
            )
        });
    }
    let mend = format!(
        "install a handler for {signal} that saves, before the slow imports; or name the signal that the script handles"
    );
    Some(bad(
        "asked",
        format!("no process of the script has a handler for {signal}, so it was not sent"),
        mend,
    ))
}

/// Why the agent asks after a notice: for the first save, and for the last.
const FOR_THE_NOTICE: [&str; 2] = ["notice", "interrupted"];

/// The first complete checkpoint that the notice caused, or that began after it, within its time.
pub fn saved<'a>(
    events: &'a [Event],
    (seen, notice): &(Timestamp, Notice),
) -> Option<(&'a Event, &'a CheckpointSummary)> {
    events.iter().find_map(|event| match &event.what {
        EventDetail::Checkpoint { checkpoint, save_secs, upload_secs, asked_by }
            if event.at >= *seen && event.at <= notice.at =>
        {
            let asked = asked_by.as_ref().is_some_and(|by| FOR_THE_NOTICE.contains(&by.as_str()));
            // A save that had begun before the notice says nothing about a notice.
            let begun_since = secs(*seen, event.at) >= save_secs + upload_secs;
            (asked || begun_since).then_some((event, checkpoint))
        }
        _ => None,
    })
}

fn was_saved(
    evidence: &Evidence,
    (seen, notice): &(Timestamp, Notice),
    saved: Option<(&Event, &CheckpointSummary)>,
) -> RehearsalCheck {
    if let Some((event, checkpoint)) = saved {
        let EventDetail::Checkpoint { save_secs, upload_secs, .. } = &event.what else {
            unreachable!("saved() gives checkpoints")
        };
        let after = secs(served(evidence, notice), event.at);
        let step = checkpoint.step.map(|step| format!(" of step {step}")).unwrap_or_default();
        return good(
            "saved",
            format!(
                "checkpoint {}{step} was complete {after:.1} s after the notice (saved in {save_secs:.1} s, uploaded in {upload_secs:.1} s), {:.0} s before its time",
                checkpoint.number.number(),
                secs(event.at, notice.at)
            ),
        )
        .took(after);
    }
    let (what, hint) = why_not_saved(evidence, *seen, notice);
    bad(
        "saved",
        format!("no complete checkpoint was written between the notice and its time: {what}"),
        hint,
    )
}

fn resumed(evidence: &Evidence, saved: Option<&CheckpointSummary>) -> RehearsalCheck {
    let began = resumed_from(&evidence.second);
    let started = evidence
        .second
        .iter()
        .find(|event| matches!(event.what, EventDetail::WorkloadStarted { .. }))
        .map(|event| event.at);
    let cut = evidence.first_settled.as_ref().and_then(|settled| settled.billed_to);
    let Some(started) = started else {
        let because =
            evidence.first_settled.as_ref().map_or(EndedBecause::Lost, |settled| settled.because);
        return bad(
            "resumed",
            format!("no second attempt ran the script (the first ended: {because})"),
            "`lamp explain` shows what happened",
        );
    };
    let away = cut.map(|cut| secs(cut, started).max(0.0));
    let took = away
        .map(|away| format!(", running again {away:.1} s after the power was cut"))
        .unwrap_or_default();
    match (began, saved) {
        (Some((began, Some(why))), _) => bad(
            "resumed",
            format!(
                "the second attempt went back to checkpoint {}, because {why}",
                began.number.number()
            ),
            "`lamp logs` shows how the script ended; it must load every checkpoint that it saves",
        ),
        (Some((began, None)), Some(saved)) if began.number >= saved.number => {
            let mut check = good(
                "resumed",
                format!("the second attempt began from checkpoint {}{took}", began.number.number()),
            );
            check.seconds = away;
            check
        }
        (Some((began, None)), _) => bad(
            "resumed",
            format!(
                "the second attempt began from checkpoint {}, which was written before the notice{took}",
                began.number.number()
            ),
            "mend the save above: the work since that checkpoint was lost",
        ),
        (None, _) => bad(
            "resumed",
            format!("the second attempt found no checkpoint and began from the start{took}"),
            "mend the save above",
        ),
    }
}

/// The newest checkpoint before an interruption, from which a script without time to save resumes.
fn kept(events: &[Event]) -> Option<(&Event, &CheckpointSummary)> {
    events.iter().rev().find_map(|event| match &event.what {
        EventDetail::Checkpoint { checkpoint, .. } => Some((event, checkpoint)),
        _ => None,
    })
}

/// Judges an interruption without a notice.
fn was_kept(evidence: &Evidence, kept: Option<(&Event, &CheckpointSummary)>) -> RehearsalCheck {
    let cut = evidence.first_settled.as_ref().and_then(|settled| settled.billed_to);
    match kept {
        Some(kept) => kept_before(kept, cut.unwrap_or(kept.0.at), "the power was cut"),
        None => bad(
            "saved",
            "nothing was kept before the power was cut",
            "a longer --interrupt-after, so that the script has saved; or a shorter checkpoint.interval",
        ),
    }
}

fn kept_before(
    (event, checkpoint): (&Event, &CheckpointSummary),
    until: Timestamp,
    what: &str,
) -> RehearsalCheck {
    let step = checkpoint.step.map(|step| format!(" of step {step}")).unwrap_or_default();
    let age = secs(event.at, until).max(0.0);
    good(
        "saved",
        format!(
            "checkpoint {}{step} was complete {age:.1} s before {what}: that much of the work is done again",
            checkpoint.number.number()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::rehearse::evidence::Again;
    use crate::cli::rehearse::missing_proof::{is_hopeless, never_rests};
    use crate::instance::NoticeKind;
    use crate::job::{AttemptNo, CheckpointNo, CheckpointSpec, ExitStatus, NEVER_RESTS};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + secs).unwrap()
    }

    fn event(secs: i64, what: EventDetail) -> Event {
        Event { seq: 1, at: at(secs), what }
    }

    fn summary(number: u32, step: f64) -> CheckpointSummary {
        CheckpointSummary {
            number: CheckpointNo::new(number),
            attempt: AttemptNo::FIRST,
            created: at(3),
            step: Some(step),
            bytes: 10,
            name: None,
        }
    }

    fn checkpoint(secs: i64, number: u32, step: f64) -> Event {
        event(
            secs,
            EventDetail::Checkpoint {
                checkpoint: summary(number, step),
                save_secs: 1.0,
                upload_secs: 0.5,
                asked_by: Some("notice".into()),
            },
        )
    }

    /// Notice at 1 s for 121 s, saved at 3 s, cut at 4 s, running again at 6 s, from step 20.
    fn whole() -> Evidence {
        let notice =
            Notice { kind: NoticeKind::Interruption, at: at(121), detail: "terminate".into() };
        let asked =
            EventDetail::Asked { by: "notice".into(), signal: "SIGUSR1".into(), processes: 1 };
        let started = EventDetail::WorkloadStarted { start: 1, pid: 1, command: "x".into() };
        Evidence {
            checkpoint: Some(CheckpointSpec {
                path: "ckpt".into(),
                interval: Span::from_secs(600),
                signal: Some("SIGUSR1".into()),
                grace: Span::from_secs(20),
            }),
            notice: Span::from_secs(120),
            first: vec![
                event(2, EventDetail::Notice { notice }),
                event(2, asked),
                checkpoint(3, 2, 20.0),
            ],
            second: vec![
                event(5, EventDetail::Resumed { checkpoint: summary(2, 20.0), went_back: None }),
                event(6, started),
            ],
            first_settled: None,
            last_step: Some(22.0),
            again: Again { step: Some(21.0), is_told: true, ..Again::default() },
            ended_early: None,
        }
    }

    fn failed(evidence: &Evidence) -> Vec<(&'static str, String)> {
        checks(evidence)
            .into_iter()
            .filter(|check| !check.passed)
            .map(|check| (check.name, format!("{} / {}", check.text, check.hint.unwrap())))
            .collect()
    }

    #[test]
    fn whole_rehearsal_is_a_proof() {
        let checks = checks(&whole());
        assert!(proved(&checks), "{checks:#?}");
        assert_eq!(checks.iter().find(|check| check.name == "asked").unwrap().seconds, Some(1.0));
        assert!(checks.last().unwrap().text.ends_with("1 steps were done twice"));
    }

    #[test]
    fn script_that_cannot_load_its_save_is_told_so() {
        let mut back = whole();
        let why = "the script ended 2 s after its start from checkpoint 2";
        let went_back = Some(why.to_owned());
        let checkpoint = summary(1, 10.0);
        back.second.push(event(9, EventDetail::Resumed { checkpoint, went_back }));
        back.again.step = Some(11.0);
        let failed = failed(&back);
        assert_eq!(failed.len(), 1, "it went on from where it went back to: {failed:?}");
        assert!(
            failed[0].1.contains("went back to checkpoint 1, because the script"),
            "{failed:?}"
        );
    }

    #[test]
    fn what_was_not_sent_was_not_asked() {
        let mut deaf = whole();
        deaf.first[1] = event(
            2,
            EventDetail::Asked { by: "notice".into(), signal: "SIGUSR1".into(), processes: 0 },
        );
        assert_eq!(failed(&deaf)[0].0, "asked");
        assert!(
            failed(&deaf)[0].1.contains("no process of the script has a handler for SIGUSR1"),
            "{:?}",
            failed(&deaf)
        );
        deaf.first.truncate(1);
        assert!(failed(&deaf)[0].1.contains("never sent"), "{:?}", failed(&deaf));
        deaf.first.push(event(
            2,
            EventDetail::Asked { by: "request".into(), signal: "SIGUSR1".into(), processes: 1 },
        ));
        assert_eq!(failed(&deaf)[0].0, "asked");
    }

    #[test]
    fn checkpoint_that_was_begun_before_the_notice_proves_nothing() {
        let own = |done: i64| {
            let mut evidence = whole();
            evidence.first.truncate(1);
            let what = EventDetail::Checkpoint {
                checkpoint: summary(2, 20.0),
                save_secs: 3.0,
                upload_secs: 1.0,
                asked_by: None,
            };
            evidence.first.push(event(done, what));
            evidence
        };
        assert_eq!(
            failed(&own(4)).iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["asked", "saved", "resumed"]
        );
        assert_eq!(failed(&own(7)), [], "its own save, begun after the notice, is as good");
    }

    /// The folder changed for a minute before the notice, and the cut came before the agent saw
    /// that.
    #[test]
    fn restless_folder_is_given_up_once_the_agent_saw_the_notice() {
        let restless = event(-30, EventDetail::Attention { text: NEVER_RESTS.into() });
        let seen = whole().first.remove(0);
        assert!(!is_hopeless(std::slice::from_ref(&restless), at(600)), "there was no notice yet");
        let events = [restless, seen, checkpoint(20, 2, 20.0)];
        assert!(
            !is_hopeless(&events[..2], at(11)) && is_hopeless(&events[..2], at(12)),
            "ten seconds after it was seen, at 2 s"
        );
        assert!(!is_hopeless(&events, at(60)), "it rested after all");
    }

    #[test]
    fn notice_too_short_to_be_seen_is_not_called_our_fault() {
        for notice in [Span::ZERO, Span::from_secs(3)] {
            let unseen = Evidence { notice, first: Vec::new(), ..whole() };
            let said = failed(&unseen).into_iter().map(|(_, text)| text).collect::<String>();
            assert!(!said.contains("our fault"), "{said}");
        }
        let unseen = Evidence { first: Vec::new(), ..whole() };
        assert!(
            failed(&unseen).iter().any(|(_, text)| text.contains("our fault")),
            "two minutes are always seen"
        );
    }

    #[test]
    fn each_way_to_fail_says_how_to_mend_it() {
        let nothing = Evidence { checkpoint: None, ..whole() };
        assert!(failed(&nothing)[0].1.contains("add [checkpoint]"));

        let mut ignored = whole();
        ignored.first.retain(|event| !matches!(event.what, EventDetail::Checkpoint { .. }));
        assert!(
            failed(&ignored)[0].1.contains("nothing in `ckpt` changed after SIGUSR1"),
            "{:?}",
            failed(&ignored)
        );

        let mut unasked = ignored.clone();
        unasked.checkpoint = unasked.checkpoint.map(|spec| CheckpointSpec { signal: None, ..spec });
        assert!(
            failed(&unasked)[0].1.contains("none of the script's own saves fell into the notice"),
            "{:?}",
            failed(&unasked)
        );
        let exit = ExitStatus { signal: Some(15), ..ExitStatus::default() };
        unasked.first.push(event(4, EventDetail::WorkloadEnded { start: 1, exit, orphans: 0 }));
        assert!(
            failed(&unasked)[0]
                .1
                .contains("its script was ended 2 s after the notice, before a save of its own"),
            "{:?}",
            failed(&unasked)
        );

        let early =
            Evidence { ended_early: Some("succeeded".into()), second: Vec::new(), ..whole() };
        let [(name, said)] = &failed(&early)[..] else { panic!("{:?}", failed(&early)) };
        assert!(
            *name == "interrupted" && said.contains("a shorter --interrupt-after"),
            "whatever the notice brought: {said}"
        );

        let mut killed = ignored.clone();
        let exit = ExitStatus { code: None, signal: Some(10), oom: false };
        killed.first.push(event(3, EventDetail::WorkloadEnded { start: 1, exit, orphans: 0 }));
        assert!(failed(&killed)[0].1.contains("SIGUSR1 ended the script"));

        let mut ended_by_us = ignored.clone();
        let exit = ExitStatus { code: None, signal: Some(15), oom: false };
        ended_by_us.first.push(event(3, EventDetail::WorkloadEnded { start: 1, exit, orphans: 0 }));
        assert!(
            !failed(&ended_by_us)[0].1.contains("ended the script"),
            "SIGTERM is ours: {:?}",
            failed(&ended_by_us)
        );
        let text = "a library of the script has a handler of its own".to_owned();
        ended_by_us.first.push(event(3, EventDetail::Attention { text }));
        assert!(!failed(&ended_by_us)[0].1.contains("install a handler"), "words decide nothing");
        let (by, signal) = ("notice".to_owned(), "SIGUSR1".to_owned());
        ended_by_us.first.push(event(3, EventDetail::Asked { by, signal, processes: 0 }));
        assert!(failed(&ended_by_us)[0].1.contains("install a handler for SIGUSR1"));

        let mut late = ignored.clone();
        late.first.push(checkpoint(130, 2, 20.0));
        assert!(failed(&late)[0].1.contains("9 s too late"));

        let mut silent = ignored;
        silent.checkpoint.as_mut().unwrap().signal = None;
        assert!(failed(&silent)[0].1.contains("no checkpoint.signal"));

        let mut restless = silent.clone();
        restless.first.push(event(3, EventDetail::Attention { text: NEVER_RESTS.into() }));
        assert!(
            failed(&restless)[0].1.contains("`ckpt` is always being written"),
            "{:?}",
            failed(&restless)
        );
        assert!(
            !never_rests(&[restless.first.clone(), vec![checkpoint(9, 3, 1.0)]].concat()),
            "it has come to rest since"
        );

        let from_zero = Evidence {
            again: Again { step: Some(1.0), is_told: true, ..Again::default() },
            ..whole()
        };
        assert!(failed(&from_zero)[0].1.contains("LAMP_RESUME"));
        let speechless = Evidence { again: Again::default(), ..whole() };
        assert!(failed(&speechless)[0].1.contains("LAMP_PROGRESS"));
        let nowhere = Evidence { second: vec![], ..whole() };
        assert_eq!(failed(&nowhere)[0].0, "resumed");
        assert!(!proved(&checks(&nowhere)), "a missing check proves nothing");
    }
}
