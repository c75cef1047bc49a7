//! Whether a job's checkpoint interval can work, by the save that a rehearsal measured, and what
//! would be better.

use super::evidence::RehearsalCheck;
use crate::app::launch::checkpoint_cadence::CLOUDS_NOTICE;
use crate::job::CheckpointSpec;
use crate::market::Span;
use crate::policy::{CadenceFault, cadence_cost, check_cadence, daly_interval};

/// An example, in the middle of what published traces of GPU spot machines show.
const TAKEN_EVERY: Span = Span::from_secs(6 * 3600);

/// Measurements here cannot justify an interval below this.
const SECOND: Span = Span::from_secs(1);

/// The line of the checklist. A save that is longer than the notice cannot work.
pub fn cadence(spec: &CheckpointSpec, save_secs: f64, upload_secs: f64) -> RehearsalCheck {
    let save = span(save_secs + upload_secs);
    let seconds = save.secs_f64();
    let check = |passed, text: String, hint| RehearsalCheck {
        name: "cadence",
        passed,
        text,
        seconds: Some(seconds),
        hint,
    };
    let fault = check_cadence(spec.interval, save, Some(CLOUDS_NOTICE)).err();
    if let Some(fault @ CadenceFault::LongerThanInterval { .. }) = fault {
        // Saves then come as often as they can: less often than asked, but as safe as shown.
        return check(true, fault.to_string(), None);
    }
    if let Some(fault) = fault {
        let hint = "save less (a smaller state), or to a faster disk; or run it with --market on-demand, which is not interrupted";
        return check(false, fault.to_string(), Some(hint.to_owned()));
    }
    // Training waits for the save, but not for the upload.
    let best = daly_interval(span(save_secs), TAKEN_EVERY);
    // A save that is too short to measure has no best interval.
    let rule = if best < SECOND {
        String::new()
    } else {
        format!(", and Daly's rule would save every {best}")
    };
    let save = if save == Span::ZERO { "less than 1ms".to_owned() } else { save.to_string() };
    let share =
        100.0 * cadence_cost(spec.interval, span(save_secs), Span::ZERO, TAKEN_EVERY).lost_share;
    let text = format!(
        "a save and its upload take {save} and fit into the interval of {} and the notice; on machines that are taken every {TAKEN_EVERY}, \
         {share:.1} % of the work would be lost{rule}",
        spec.interval
    );
    check(true, text, None)
}

fn span(secs: f64) -> Span {
    Span::from_duration(std::time::Duration::from_millis((secs.max(0.0) * 1000.0).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(interval: u64) -> CheckpointSpec {
        CheckpointSpec {
            path: "c".into(),
            interval: Span::from_secs(interval),
            signal: None,
            grace: Span::from_secs(60),
        }
    }

    #[test]
    fn save_too_quick_to_be_measured_has_no_best_interval() {
        let quick = cadence(&spec(600), 0.0002, 0.0002).text;
        assert!(
            quick.starts_with("a save and its upload take less than 1ms")
                && quick.ends_with("% of the work would be lost"),
            "{quick}"
        );
        let shorter = cadence(&spec(600), 0.0001, 0.002).text;
        assert!(shorter.contains("take 2ms") && !shorter.contains("Daly"), "{shorter}");
        let measured = cadence(&spec(600), 0.002, 0.003).text;
        assert!(
            measured.contains("take 5ms")
                && measured.ends_with("Daly's rule would save every 9.2s"),
            "{measured}"
        );
    }

    #[test]
    fn save_fails_beyond_the_notice_and_is_told_beyond_the_interval() {
        assert!(cadence(&spec(600), 2.0, 3.0).passed);
        let often = cadence(&spec(4), 2.0, 3.0);
        assert!(often.passed && often.text.contains("longer than the interval"), "{}", often.text);
        let late = cadence(&spec(600), 60.0, 70.0);
        assert!(
            !late.passed && late.text.contains("longer than the 2m of notice"),
            "{}",
            late.text
        );
    }
}
