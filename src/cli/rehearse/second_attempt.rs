//! Whether the script itself resumed in the second attempt: a checkpoint helps only if the script
//! loads it.
//!
//! ```text
//!   steps in the file names of both saves ── else its own report ── else numbers in those names
//!                                         ── else what it read, and how it ran
//! ```
//!
//! Pure. Each check says what it proves and what it does not prove.

use super::evidence::{Again, Evidence, RehearsalCheck, bad, good, resumed_from};

pub const TELL_STEPS: &str = "append {\"step\": N, \"total\": M} to the file named by LAMP_PROGRESS, or set watch.log_pattern, so that it can be seen";

/// A script that cannot use its checkpoint fails at its start. After this time it is past that.
pub const PAST_ITS_START_SECS: f64 = 30.0;

const LOAD: &str = "at its start the script must load the newest file in LAMP_CHECKPOINT_DIR when LAMP_RESUME is 1";

pub(crate) fn went_on(evidence: &Evidence) -> Option<RehearsalCheck> {
    let told = resumed_from(&evidence.second)?.0.step;
    let again = &evidence.again;
    let reported = || if again.is_reported { by_steps(evidence, told) } else { None };
    let judged = by_saves(again)
        .or_else(reported)
        .or_else(|| by_row(again))
        .or_else(|| by_steps(evidence, told));
    Some(judged.unwrap_or_else(|| without_steps(again)))
}

/// `model_60` after `model_40`: the meaning of the number does not matter.
fn by_row(again: &Again) -> Option<RehearsalCheck> {
    let (before, own, goes_on) = again.row.as_ref()?;
    Some(if *goes_on {
        good(
            "went_on",
            format!(
                "the script went on: its own first save is `{own}`, after `{before}` of its checkpoint"
            ),
        )
    } else {
        bad(
            "went_on",
            format!(
                "the script began again: its own first save is `{own}`, though its checkpoint has `{before}`"
            ),
            LOAD,
        )
    })
}

fn by_saves(again: &Again) -> Option<RehearsalCheck> {
    let (from, saved) = (again.from?, again.saved.as_ref()?.1?);
    if saved > from {
        return Some(good(
            "went_on",
            format!(
                "the script went on: it began from step {from}, and its own first save is of step {saved}"
            ),
        ));
    }
    let text = format!(
        "the script began again: its own first save is of step {saved}, though its checkpoint is of step {from}"
    );
    (saved < from).then(|| bad("went_on", text, LOAD))
}

fn by_steps(evidence: &Evidence, told: Option<f64>) -> Option<RehearsalCheck> {
    let (again, is_told) = (evidence.again.step?, evidence.again.is_told);
    let Some(saved) = told else {
        // Log lines may be seen too late for the first save. Then the files that it read count.
        let must_say = is_told && (evidence.again.is_reported || evidence.again.read.is_none());
        return must_say.then(|| {
            bad("went_on", "the first attempt did not say at which step it saved", TELL_STEPS)
        });
    };
    // A log line is seen a moment after its save, and may be the next one by then.
    if again >= saved || !evidence.again.is_reported && again + 1.0 >= saved {
        let lost = evidence.last_step.map(|last| (last - again).max(0.0));
        let lost = lost.map(|lost| {
            if lost > 0.0 {
                format!("; {lost} steps were done twice")
            } else {
                "; no step was lost".into()
            }
        });
        return Some(good(
            "went_on",
            format!(
                "the script went on at step {again}, saved at {saved}{}",
                lost.unwrap_or_default()
            ),
        ));
    }
    is_told.then(|| {
        bad(
            "went_on",
            format!(
                "the script began again at step {again}, though its checkpoint is of step {saved}"
            ),
            LOAD,
        )
    })
}

fn without_steps(again: &Again) -> RehearsalCheck {
    if let Some((false, how)) = &again.ended {
        let hint = "`lamp logs` shows what it said; a checkpoint that cannot be loaded ends a script like this";
        return bad(
            "went_on",
            format!(
                "the second attempt's script ended {:.0} s after its start: {how}",
                again.ran_secs
            ),
            hint,
        );
    }
    let fared = match (&again.ended, &again.saved) {
        (Some(_), _) => Some("ended in order".to_owned()),
        (None, Some((number, _))) => {
            Some(format!("saved again, as checkpoint {}", number.number()))
        }
        (None, None) => (again.ran_secs >= PAST_ITS_START_SECS)
            .then(|| format!("has run for {:.0} s", again.ran_secs)),
    };
    match (again.read, fared) {
        (Some((0, _)), Some(fared)) => bad(
            "went_on",
            format!("the script read no file of its checkpoint before it {fared}"),
            LOAD,
        ),
        (Some((read, files)), Some(fared)) => {
            let lack = if again.is_told && again.step.is_some() {
                "its checkpoint has no step"
            } else {
                "it tells no step"
            };
            let text = format!(
                "the script read {read} of the {files} files of its checkpoint and {fared}; {lack}"
            );
            good("went_on", format!("{text}, so that it goes on at the right one is not shown"))
        }
        _ => bad("went_on", "the second attempt did not say at which step it is", TELL_STEPS),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::{AttemptNo, CheckpointNo, CheckpointSummary};
    use crate::jobdir::{Event, EventDetail};

    fn evidence(told: Option<f64>, again: Again) -> Evidence {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let checkpoint = CheckpointSummary {
            number: CheckpointNo::FIRST,
            attempt: AttemptNo::FIRST,
            created: at,
            step: told,
            bytes: 1,
            name: None,
        };
        Evidence {
            second: vec![Event {
                seq: 1,
                at,
                what: EventDetail::Resumed { checkpoint, went_back: None },
            }],
            again,
            last_step: Some(160.0),
            ..Evidence::default()
        }
    }

    fn judged(told: Option<f64>, again: Again) -> (bool, String) {
        let check = went_on(&evidence(told, again)).unwrap();
        (check.passed, format!("{} / {}", check.text, check.hint.unwrap_or_default()))
    }

    #[test]
    fn its_own_first_save_says_where_it_went_on() {
        let saved = |step: f64| Again {
            from: Some(150.0),
            saved: Some((CheckpointNo::new(2), Some(step))),
            ..Again::default()
        };
        assert!(judged(None, saved(200.0)).0);
        let (passed, said) = judged(None, saved(50.0));
        assert!(!passed && said.contains("its own first save is of step 50"), "{said}");
        // A progress bar that counts from 0 in each epoch changes nothing.
        assert!(judged(Some(150.0), Again { step: Some(3.0), ..saved(200.0) }).0);
    }

    #[test]
    fn numbered_names_say_it_where_the_log_counts_from_the_start() {
        let row = |goes_on| Again {
            step: Some(0.0),
            is_told: true,
            row: Some(("model_40.ubj".into(), "model_50.ubj".into(), goes_on)),
            ..Again::default()
        };
        assert!(judged(Some(38.0), row(true)).0);
        assert!(!judged(Some(38.0), row(false)).0);
        let (passed, said) = judged(Some(38.0), Again { is_reported: true, ..row(true) });
        assert!(
            !passed && said.contains("began again at step 0"),
            "its own report goes before: {said}"
        );
    }

    #[test]
    fn bar_can_prove_and_never_disprove() {
        let bar = |step| Again {
            step: Some(step),
            read: Some((1, 1)),
            ran_secs: 40.0,
            ..Again::default()
        };
        assert!(judged(Some(150.0), bar(151.0)).1.contains("went on at step 151"));
        assert!(judged(Some(150.0), bar(3.0)).0, "it read its checkpoint");
        assert!(!judged(Some(150.0), Again { is_told: true, ..bar(3.0) }).0);
        let unsaid = judged(None, Again { is_told: true, is_reported: true, ..bar(3.0) });
        assert!(!unsaid.0 && unsaid.1.contains("LAMP_PROGRESS"), "{unsaid:?}");
    }

    /// scikit-learn with joblib under load: its first save was stored before its first line was
    /// seen.
    #[test]
    fn save_before_the_first_line_is_judged_by_the_files_read() {
        let lines = |read| Again {
            step: Some(3.0),
            is_told: true,
            read,
            ran_secs: 40.0,
            ..Again::default()
        };
        let (passed, said) = judged(None, lines(Some((1, 1))));
        assert!(
            passed && said.contains("its checkpoint has no step, so that it goes on"),
            "{said}"
        );
        assert!(!judged(None, lines(Some((0, 1)))).0);
        assert!(judged(None, lines(None)).1.contains("did not say at which step it saved"));
    }

    #[test]
    fn attempt_without_a_step_is_judged_by_files_read_and_outcome() {
        let read = |files, ran_secs| Again { read: Some((files, 3)), ran_secs, ..Again::default() };
        let (passed, said) = judged(None, read(2, 31.0));
        assert!(
            passed && said.contains("read 2 of the 3 files") && said.contains("is not shown"),
            "{said}"
        );
        assert!(
            judged(None, Again { ended: Some((true, "exit code 0".into())), ..read(1, 2.0) })
                .1
                .contains("ended in order")
        );
        let (passed, said) =
            judged(None, Again { saved: Some((CheckpointNo::new(2), None)), ..read(0, 2.0) });
        assert!(
            !passed
                && said.contains(
                    "read no file of its checkpoint before it saved again, as checkpoint 2"
                ),
            "{said}"
        );
        let (passed, said) =
            judged(None, Again { ended: Some((false, "exit code 1".into())), ..read(2, 2.0) });
        assert!(!passed && said.contains("exit code 1"), "{said}");
        assert!(!judged(None, read(2, 3.0)).0, "it may still die of it");
        assert!(!judged(None, Again { ran_secs: 40.0, ..Again::default() }).0, "nothing is known");
    }
}
