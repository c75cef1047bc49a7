//! The newest checkpoint before an interruption, from which a script without time to save resumes.
//! Pure.

use jiff::Timestamp;

use super::evidence::{Evidence, RehearsalCheck, bad, good, secs};
use crate::job::CheckpointSummary;
use crate::jobdir::{Event, EventDetail};

pub(crate) fn kept(events: &[Event]) -> Option<(&Event, &CheckpointSummary)> {
    events.iter().rev().find_map(|event| match &event.what {
        EventDetail::Checkpoint { checkpoint, .. } => Some((event, checkpoint)),
        _ => None,
    })
}

/// Judges an interruption without a notice.
pub(crate) fn was_kept(
    evidence: &Evidence,
    kept: Option<(&Event, &CheckpointSummary)>,
) -> RehearsalCheck {
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

pub(crate) fn kept_before(
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
