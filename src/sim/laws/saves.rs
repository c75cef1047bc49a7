//! Laws of checkpoints: a whole one is uploaded soon, and a notice is used to save.
//!
//! Not here: what the laws remember ([`super::observer_saves`]), losses in an outcome
//! (`super::outcomes`).

use std::time::Duration;

use super::observer::Judge;
use crate::instance::InstanceState;
use crate::sim::world::world::{Deed, World};

/// The most minutes until a whole checkpoint is uploaded. The interval of a simulated job is at
/// most two minutes. Its agent also waits until the folder is quiet, and for the upload.
const UNKEPT_MINUTES: u32 = 10;

/// The notice that EC2 gives.
const TWO_MINUTES: Duration = Duration::from_secs(120);

/// An unhindered agent uploads a whole checkpoint within the interval, after its mark or once its
/// folder is quiet.
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

/// With two minutes of notice, an agent keeps at least the work that was done at the notice.
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
    // Another interruption may end it earlier, with less notice or none (seed 48000895 of 24 h).
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
