//! Laws of a gang: one world in each epoch, and no machine that waits for long.
//!
//! Law 21 holds for the engines too, and law 23 says that all begin from one step: the engines
//! themselves report these (`crate::sim::gang::training`).

use std::time::Duration;

use super::laws::BOUND_MINUTES;
use super::observer::Judge;
use crate::job::Formation;
use crate::jobdir::layout;
use crate::sim::world::world::{Deed, World, which};

/// A launch that was on its way when the gang ended.
const END_SEEN: Duration = Duration::from_secs(120);

/// The members of an epoch are written once, each rank once, and on a machine that was launched.
pub(crate) fn one_world_an_epoch(_: &Judge, world: &World, deed: &Deed<'_>) -> Result<(), String> {
    let Deed::Wrote { key, body, .. } = deed else { return Ok(()) };
    if world.gang().is_none() || !key.ends_with("/formation.json") {
        return Ok(());
    }
    let Ok(formed) = serde_json::from_slice::<Formation>(body) else {
        return Err(format!("{key} is no formation"));
    };
    let ranks: Vec<u32> = formed.members.iter().map(|member| member.rank).collect();
    if !ranks.is_sorted_by(|one, next| one < next) {
        return Err(format!("{key} has the ranks {ranks:?}"));
    }
    let unknown = |id: &str| world.ec2.with(id, |machine| machine.attempt()).flatten().is_none();
    match formed.members.iter().find(|member| unknown(&member.instance)) {
        Some(member) => Err(format!("{key} has {}, which never was", member.instance)),
        None => Ok(()),
    }
}

/// How long a rank may do nothing before it counts as idle: the wait for the others, the upload of
/// its checkpoint before, and a minute. `None`: the job has one machine.
pub(crate) fn longest_wait(world: &World) -> Option<Duration> {
    let spec = world.gang().and(world.spec.spec.gang.as_ref())?;
    Some(spec.join.duration().max(spec.hold.duration()) + Duration::from_secs(120))
}

/// How long the rank of an outcome must have done nothing before its agent called it idle. A rank
/// that has lost the store cannot see the others work, and ends as a machine alone does.
pub(crate) fn quiet_before_idle(world: &World, job: &str, told: Duration) -> Duration {
    let (Some(gang), Some(waits)) = (world.gang(), longest_wait(world)) else {
        return Duration::ZERO;
    };
    let (rank, _) = which(job, 0);
    let window = world.spec.spec.watch.idle.window.map(|window| window.duration());
    let alone = window.filter(|_| gang.was_offline(rank, told));
    alone.unwrap_or(waits).min(waits)
}

/// A machine that does no work ends within the bound of one machine, after the wait that its job
/// allows. Nothing is launched for a gang that is over.
pub(crate) fn a_waiting_member_ends(
    _: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let (Some(gang), Some(waits)) = (world.gang(), longest_wait(world)) else { return Ok(()) };
    match deed {
        Deed::Launched { id, new: true, .. } => {
            let ended = world.objects.born(&layout::gang_end(world.job()));
            match ended.map(|ended| world.timeline.now().saturating_sub(ended)) {
                Some(ago) if ago > END_SEEN => {
                    Err(format!("{id} was launched {} s after its gang was over", ago.as_secs()))
                }
                _ => Ok(()),
            }
        }
        Deed::Minute => {
            let waits = u32::try_from(waits.as_secs() / 60).unwrap_or(u32::MAX);
            let most = BOUND_MINUTES + 1 + waits;
            match gang.longest_wait() {
                Some((id, minutes)) if minutes > most => Err(format!(
                    "{id} bills and does no work of its gang for more than {most} minutes"
                )),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
