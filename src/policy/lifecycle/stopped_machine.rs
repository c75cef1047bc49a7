//! A stopped machine computes nothing, and its disk bills. Is that as requested?
//!
//! ```text
//!   ended, and the job file says `stop` ─> settled; the disk is kept
//!   ended otherwise, or without outcome ─> terminated, and settled when it is gone
//!   by us, before its first heartbeat   ─> settled: the disk that it was started on stays
//!   by its alarm, as idle               ─> as the job file says for idle
//!   stopped by hand, without outcome    ─> settled: the user wants it stopped, and no other
//!                                          machine is launched
//! ```

use super::act::Act;
use super::attempt_view::AttemptView;
use super::forgotten_disk::keeps_disk;
use crate::instance::InstanceView;
use crate::job::EndedBecause;
use crate::policy::billing::end_evidence::{idled_by_alarm, is_by_hand};
use crate::policy::billing::settlement::settle;

pub(crate) fn stopped(attempt: &AttemptView<'_>, view: &InstanceView) -> Vec<Act> {
    let done = || vec![Act::Settle(Box::new(settle(attempt)))];
    let terminate = |why: &str| {
        vec![Act::Terminate {
            machine: view.machine(),
            ends: Some(attempt.plan.attempt),
            why: why.to_owned(),
        }]
    };
    match attempt.outcome {
        Some(outcome) if keeps_disk(&attempt.facts.spec.spec.on, outcome.because) => done(),
        Some(_) => terminate("its attempt has ended, and its disk is not to be kept"),
        None if attempt.watched.damaged.outcome || is_by_hand(attempt, view) => done(),
        None if idled_by_alarm(attempt, view)
            && keeps_disk(&attempt.facts.spec.spec.on, EndedBecause::Idle) =>
        {
            done()
        }
        None if attempt.never_came_up => done(),
        None => terminate("it is stopped, and its agent left no outcome"),
    }
}
