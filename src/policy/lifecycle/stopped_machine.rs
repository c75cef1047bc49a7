//! A stopped machine computes nothing, and its disk bills. Is that as requested?
//!
//! ```text
//!   ended, and the job file says `stop`  ─> settled; the disk is kept
//!   ended otherwise, or without outcome  ─> terminated, and settled when it is gone
//!   by us, before its first heartbeat    ─> settled: the disk that it was started on stays
//!   by its alarm, as idle                ─> as the job file says for idle
//!   stopped by hand, without outcome     ─> settled: the user wants it stopped, and no other machine is launched
//! ```

use super::continuation::never_came_up;
use super::reconcile::{Act, AttemptFacts, Facts};
use crate::instance::InstanceView;
use crate::job::{EndedBecause, OnSpec, Reaction};
use crate::policy::billing::settlement::{idled_by_alarm, is_by_hand, settle};

pub(crate) fn stopped(facts: &Facts<'_>, attempt: &AttemptFacts, view: &InstanceView) -> Vec<Act> {
    let done = || vec![Act::Settle(Box::new(settle(facts, attempt, Some(view))))];
    let terminate = |why: &str| {
        vec![Act::Terminate {
            machine: view.machine(),
            ends: Some(attempt.plan.attempt),
            why: why.to_owned(),
        }]
    };
    match &attempt.outcome {
        Some(outcome) if keeps_disk(&facts.spec.spec.on, outcome.because) => done(),
        Some(_) => terminate("its attempt has ended, and its disk is not to be kept"),
        None if attempt.watched.damaged.outcome || is_by_hand(attempt, view) => done(),
        None if idled_by_alarm(attempt, view)
            && keeps_disk(&facts.spec.spec.on, EndedBecause::Idle) =>
        {
            done()
        }
        None if never_came_up(attempt, view) => done(),
        None => terminate("it is stopped, and its agent left no outcome"),
    }
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
