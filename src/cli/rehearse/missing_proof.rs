//! Why a rehearsal has no complete checkpoint, and how to fix it.

use jiff::{SignedDuration, Timestamp};

use super::evidence::{Evidence, notice, secs};
use crate::instance::Notice;
use crate::job::{CheckpointSpec, ExitStatus, signal_name};
use crate::jobdir::{Event, EventDetail};
use crate::market::Span;

/// Whether the agent found that the folder changes all the time, so that no checkpoint is complete.
pub fn never_rests(events: &[Event]) -> bool {
    let of_the_folder = events.iter().rev().find_map(|event| match &event.what {
        EventDetail::Checkpoint { .. } => Some(false),
        detail if detail.is_restless_folder() => Some(true),
        _ => None,
    });
    of_the_folder.unwrap_or(false)
}

/// The folder may rest once the agent knows of a notice; after this time it is given up.
const RESTS_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// Whether to stop waiting for a save: the agent saw the notice a while ago, and the folder never
/// rests.
pub fn is_hopeless(events: &[Event], now: Timestamp) -> bool {
    never_rests(events)
        && notice(events).is_some_and(|(seen, _)| now.duration_since(seen) >= RESTS_WITHIN)
}

pub(crate) fn why_not_saved(
    evidence: &Evidence,
    seen: Timestamp,
    notice: &Notice,
) -> (String, String) {
    let spec = evidence.checkpoint.clone().unwrap_or(CheckpointSpec {
        path: String::new(),
        interval: Span::ZERO,
        signal: None,
        grace: Span::ZERO,
    });
    if never_rests(&evidence.first) {
        return (
            format!("`{}` is always being written, and nothing in it can be told to be complete", spec.path),
            "save less often or under a new number each time, or append {\"checkpoint\": \"step-N\"} to the file named by LAMP_PROGRESS \
             whenever one is complete"
                .into(),
        );
    }
    let ended = evidence.first.iter().find_map(|event| match &event.what {
        EventDetail::WorkloadEnded { exit, .. } if event.at >= seen => Some((event.at, *exit)),
        _ => None,
    });
    let Some(signal) = spec.signal else {
        if let Some((at, _)) = ended.filter(|(at, _)| *at < notice.at) {
            return (
                format!(
                    "the job has no checkpoint.signal, and its script was ended {:.0} s after the notice, before a save of its own",
                    secs(seen, at)
                ),
                "set checkpoint.signal = \"SIGUSR1\" and save when it comes; a script that nobody can ask, and whose saves were never measured, \
                 is ended at once"
                    .into(),
            );
        }
        return (
            "the job has no checkpoint.signal, and none of the script's own saves fell into the notice".into(),
            "set checkpoint.signal = \"SIGUSR1\" and save when it comes, or save more often than the notice is long".into(),
        );
    };
    let late = evidence
        .first
        .iter()
        .find(|event| matches!(event.what, EventDetail::Checkpoint { .. }) && event.at > notice.at);
    if let Some(late) = late {
        let text = format!(
            "the save took longer than the notice; it was complete {:.0} s too late",
            secs(notice.at, late.at)
        );
        return (
            text,
            "save less, save faster, or save more often so that less is left to do".into(),
        );
    }
    let ended = ended.map(|(_, exit)| exit);
    let handle = format!(
        "install a handler for {signal} that saves, before the slow imports; or name the signal that the script handles in checkpoint.signal"
    );
    // Only its own signal: the agent sends SIGTERM at the end, which is no fault of the script.
    if let Some(ExitStatus { code: None, signal: Some(number), .. }) = ended
        && signal_name(number) == Some(signal.as_str())
    {
        return (format!("{signal} ended the script: it has no handler for it"), handle);
    }
    let save = format!(
        "the script must save into LAMP_CHECKPOINT_DIR (`{}`) when {signal} comes, within checkpoint.grace ({})",
        spec.path, spec.grace
    );
    let is_unheard = evidence.first.iter().any(|event| {
        event.at >= seen && matches!(event.what, EventDetail::Asked { processes: 0, .. })
    });
    let said = evidence.first.iter().find_map(|event| match &event.what {
        EventDetail::Attention { text } | EventDetail::Loss { text } if event.at >= seen => {
            Some(text.clone())
        }
        _ => None,
    });
    match (said, ended) {
        (said, _) if is_unheard => {
            (said.unwrap_or_else(|| format!("no process has a handler for {signal}")), handle)
        }
        (Some(said), _) => (said, save),
        (None, Some(exit)) => (format!("the script ended instead of saving: {exit}"), save),
        (None, None) => (format!("nothing in `{}` changed after {signal}", spec.path), save),
    }
}
