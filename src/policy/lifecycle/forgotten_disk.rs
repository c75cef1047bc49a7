//! Is a machine that was stopped and kept forgotten? Its disk bills for as long as nobody says a word.
//!
//! And one that runs again, because somebody has started it at the cloud itself, is it to be stopped again?
//!
//! What must never live here: an end. Whose disk is kept has asked for it, and only they give it up.

use std::time::Duration;

use jiff::Timestamp;

use super::stopped_machine::keeps_disk;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{CheckpointNo, EndedBecause, OnSpec, Outcome, Plan, Settled, Spec};
use crate::market::{Catalog, Cloud, Market, elapsed};

/// A disk that stood unused for so long is told of (row 31 of docs/promises.md). Sooner is news to nobody who went home for
/// the weekend and goes on on Monday; later is money that nobody thinks of.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 86_400);

/// For how long a machine has stood still, once that is longer than anybody is likely to mean. EC2 dates a stop that was asked of it,
/// and none that came from within (`StateTransitionReason: "User initiated"`): there `heard`, when its agent was heard last, counts.
/// This workstation's own folders cost nothing.
pub fn forgotten(view: &InstanceView, heard: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let since = view.ended.or(heard).unwrap_or(view.launched).max(view.launched);
    let stood = elapsed(since, now);
    (stands(view) && stood > FORGOTTEN_AFTER).then_some(stood)
}

/// Whether it may be forgotten, and only who heard it last can say.
pub fn is_undated(view: &InstanceView, now: Timestamp) -> bool {
    stands(view) && view.ended.is_none() && elapsed(view.launched, now) > FORGOTTEN_AFTER
}

fn stands(view: &InstanceView) -> bool {
    view.cloud != Cloud::Local && view.state == InstanceState::Stopped
}

/// Whether a machine of an attempt that is over is stopped where it is found running, and not terminated with the disk that was to
/// stay. What was not bought on demand cannot be stopped.
pub fn was_kept(settled: &Settled, view: &InstanceView) -> bool {
    settled.kept && can_stand(view)
}

/// The same of an attempt that is not settled yet: it has ended as one whose disk the job file asks to keep, and its machine runs on.
pub fn is_to_be_kept(on: &OnSpec, outcome: &Outcome, view: &InstanceView) -> bool {
    keeps_disk(on, outcome.because) && can_stand(view)
}

/// Whether all that is left of an ended attempt on its disk is in the job directory too: its own last checkpoint, whole (`newest` has its
/// manifest), or, where it has succeeded, all outputs that it names; and nothing is told to be lost. Then a machine that the cloud does not stop is ended, and its disk
/// with it: it would bill on for ever. Of any other disk a person alone knows what it is worth.
pub fn is_saved_elsewhere(spec: &Spec, outcome: &Outcome, newest: Option<CheckpointNo>) -> bool {
    let own = outcome.last_checkpoint.as_ref().filter(|last| last.attempt == outcome.attempt);
    let outputs = outcome.because == EndedBecause::Succeeded && !spec.outputs.is_empty();
    outcome.losses.is_empty() && (outputs || own.is_some_and(|last| newest.is_some_and(|newest| newest >= last.number)))
}

/// Why no sweep ends a machine whose disk is to stay and that the cloud does not stop (`what`, in its words), as it follows on the
/// machine's name. What is only on that disk is worth more than a hard cap, and whoever sweeps knows less of it than whoever drives the
/// job ([`is_saved_elsewhere`]).
pub fn never_stopped(view: &InstanceView, what: &str) -> String {
    let hour = Catalog::shipped().on_demand(&view.instance_type, &view.region).map_or_else(String::new, |hour| format!(" {hour}"));
    format!(
        "runs on and bills{hour}: {what}; its disk is to stay, and no sweep knows what is on it alone: `lamp cancel {}` ends it for good, and its \
         disk goes with it",
        view.tags.job
    )
}

/// Where nobody can read what was kept: whoever starts a machine through us gives it a new hard cap first, so one that was started
/// after its cap was started at the cloud itself, and it had been kept.
pub fn was_started_past_its_cap(view: &InstanceView) -> bool {
    can_stand(view) && view.tags.kill_at.is_some_and(|kill_at| view.launched > kill_at)
}

/// Whether a machine whose agent has never said a word is stopped, because it was started on the disk that is all its job has. With a
/// checkpoint the job goes on elsewhere.
pub fn is_all_its_job_has(plan: &Plan, view: &InstanceView) -> bool {
    plan.starts.is_some() && plan.resume_from.is_none() && can_stand(view)
}

/// What is not bought on demand is only ever terminated, and this workstation stops no folder.
pub fn can_stand(view: &InstanceView) -> bool {
    view.cloud == Cloud::Aws && view.market == Market::OnDemand
}
