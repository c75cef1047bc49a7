//! Whether a stopped and kept machine is forgotten, while its disk bills.
//!
//! Also whether a machine that a user started in the console is stopped again. This module never
//! ends a kept machine: only its owner gives up the disk.

use std::time::Duration;

use jiff::Timestamp;

use crate::instance::{InstanceState, InstanceView};
use crate::job::{CheckpointNo, EndedBecause, OnSpec, Outcome, Plan, Reaction, Settled, Spec};
use crate::market::{Catalog, CloudKind, Market, elapsed};

/// When an unused disk is reported (row 31 of docs/promises.md). Sooner is noise for a user who
/// continues after the weekend; later wastes money.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 86_400);

/// How long a machine has been stopped, if longer than this limit. EC2 dates only a stop that was
/// requested from outside (`StateTransitionReason: "User initiated"`). Otherwise `heard`, the last
/// heartbeat, counts. The local cloud's folders are free.
pub fn forgotten(
    view: &InstanceView,
    heard: Option<Timestamp>,
    now: Timestamp,
) -> Option<Duration> {
    let since = view.ended.or(heard).unwrap_or(view.launched).max(view.launched);
    let stood = elapsed(since, now);
    (stands(view) && stood > FORGOTTEN_AFTER).then_some(stood)
}

/// Whether it may be forgotten, and only the last heartbeat can date its stop.
pub fn is_undated(view: &InstanceView, now: Timestamp) -> bool {
    stands(view) && view.ended.is_none() && elapsed(view.launched, now) > FORGOTTEN_AFTER
}

fn stands(view: &InstanceView) -> bool {
    view.cloud != CloudKind::Local && view.state == InstanceState::Stopped
}

/// Whether a running machine of an ended attempt is stopped, so that its kept disk stays. A spot
/// machine cannot be stopped.
pub fn was_kept(settled: &Settled, view: &InstanceView) -> bool {
    settled.kept && can_stand(view)
}

/// The same before the attempt is settled: the job file keeps the disk after this end, but the
/// machine runs.
pub fn is_to_be_kept(on: &OnSpec, outcome: &Outcome, view: &InstanceView) -> bool {
    keeps_disk(on, outcome.because) && can_stand(view)
}

/// Whether the job directory holds everything of an ended attempt. Either its own last checkpoint
/// is complete (`newest` has its manifest), or it succeeded and names all its outputs; and it
/// reports no losses. If the cloud never stops such a machine, it is terminated with its disk, or
/// it would bill forever. For other disks a person must decide.
pub fn is_saved_elsewhere(spec: &Spec, outcome: &Outcome, newest: Option<CheckpointNo>) -> bool {
    let own = outcome.last_checkpoint.as_ref().filter(|last| last.attempt == outcome.attempt);
    let outputs = outcome.because == EndedBecause::Succeeded && !spec.outputs.is_empty();
    outcome.losses.is_empty()
        && (outputs || own.is_some_and(|last| newest.is_some_and(|newest| newest >= last.number)))
}

/// Why a sweep spares a machine with a kept disk if the cloud refuses to stop it (`what` is the
/// cloud's reason); follows the machine's name. Data only on that disk outweighs a hard cap. A
/// sweep knows less about it than the controller ([`is_saved_elsewhere`]).
pub fn never_stopped(view: &InstanceView, what: &str) -> String {
    let hour = Catalog::shipped()
        .on_demand(&view.instance_type, &view.region)
        .map_or_else(String::new, |hour| format!(" {hour}"));
    format!(
        "runs on and bills{hour}: {what}; its disk is to stay, and no sweep knows what is on it alone: `lamp cancel {}` ends it for good, and its \
         disk goes with it",
        view.tags.job
    )
}

/// For unreadable records: our start raises the hard cap first. A machine started after its cap was
/// therefore started in the console, and had been kept.
pub fn was_started_past_its_cap(view: &InstanceView) -> bool {
    can_stand(view) && view.tags.kill_at.is_some_and(|kill_at| view.launched > kill_at)
}

/// Whether a machine without any heartbeat is stopped, because its disk holds all the job's data.
/// With a checkpoint the job continues elsewhere, and a trial of a tuning begins anew.
pub fn is_all_its_job_has(plan: &Plan, view: &InstanceView) -> bool {
    plan.starts.as_ref().is_some_and(|starts| !starts.only_setup)
        && plan.resume_from.is_none()
        && can_stand(view)
}

/// A spot machine can only be terminated, and the local cloud stops no folder.
pub fn can_stand(view: &InstanceView) -> bool {
    view.cloud == CloudKind::Aws && view.market == Market::OnDemand
}

/// Whether the job file keeps the disk after such an end.
pub fn keeps_disk(on: &OnSpec, because: EndedBecause) -> bool {
    let reaction = match because {
        EndedBecause::Succeeded => on.success,
        EndedBecause::Failed => on.failure,
        EndedBecause::Idle => on.idle,
        EndedBecause::Stalled => on.stall,
        _ => return false,
    };
    reaction == Reaction::Stop
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_that_the_job_file_names_keeps_the_disk() {
        let on = OnSpec { success: Reaction::Stop, ..OnSpec::default() };
        assert!(keeps_disk(&on, EndedBecause::Succeeded));
        for because in [
            EndedBecause::Failed,
            EndedBecause::Idle,
            EndedBecause::UserStopped,
            EndedBecause::Lost,
            EndedBecause::Interrupted,
        ] {
            assert!(!keeps_disk(&on, because), "{because}");
        }
    }
}
