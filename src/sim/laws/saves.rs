//! The laws of saves: what is whole is kept soon, and what is announced is used.
//!
//! Not here: a memory (that is [`super::observer_saves`]), what an outcome says of a loss
//! (`super::outcomes`).

use std::time::Duration;

use super::observer::Judge;
use crate::instance::InstanceState;
use crate::sim::world::world::{Deed, World};

/// Minutes in a row in which a whole save stands and is not kept: the interval of a false job is
/// two at most, and its agent waits for a folder that rests, and for what an upload costs.
const UNKEPT_MINUTES: u32 = 10;

/// What EC2 gives.
const TWO_MINUTES: Duration = Duration::from_secs(120);

/// What is whole on the disk is kept within the interval, while nothing is in its agent's way: with
/// its mark, or once its folder rests.
pub(crate) fn what_is_saved_is_kept_soon(
    judge: &Judge,
    _: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::Minute = deed else { return Ok(()) };
    let late = judge.unkept.iter().find(|(_, (_, minutes))| *minutes > UNKEPT_MINUTES);
    late.map_or(Ok(()), |(id, (step, minutes))| {
        Err(format!("step {step} is whole on the disk of {id}, and for {minutes} minutes not kept"))
    })
}

/// Whoever is given two minutes keeps at least what was done when they began.
pub(crate) fn a_notice_is_used(
    judge: &Judge,
    world: &World,
    deed: &Deed<'_>,
) -> Result<(), String> {
    let Deed::State { id, state: InstanceState::ShuttingDown, reason } = deed else {
        return Ok(());
    };
    let Some(noticed) = judge.was_noticed(world, id).filter(|_| reason.starts_with("Server.Spot"))
    else {
        return Ok(());
    };
    // Another reclaim may take it before, with a shorter notice or none (seed 48000895 of 24 h).
    let given = noticed.ahead.min(world.timeline.now().saturating_sub(noticed.since));
    match judge.committed {
        Some(kept) if kept >= noticed.step => Ok(()),
        _ if given < TWO_MINUTES => Ok(()),
        kept => Err(format!(
            "{id} was told at {} s that it would be taken, and of step {} then, {kept:?} is kept",
            noticed.since.as_secs(),
            noticed.step
        )),
    }
}
