//! A user continues a job that has ended: `lamp start` in a simulated world.
//!
//! Not here: how a job continues (`controller::launch::continue_job`), the text of the command
//! (`cli::run::start`, `app::launch::continuation`).

use std::sync::Arc;
use std::time::Duration;

use super::drivers::person;
use crate::controller::{Kept, continuation_of, submit};
use crate::job::{JobOutcome, Reaction, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::market::Usd;
use crate::sim::world::world::World;

/// How often the user tries, a minute apart: the machine may still be stopping.
const TRIES: u32 = 20;

/// Half an hour of the dearest machine of a simulated world.
const BUYS_A_START: Usd = Usd::from_micros(500_000);

/// The continued job, if the job kept its machine and the user continues it.
pub async fn goes_on(world: &Arc<World>, dir: &JobDir) -> Option<JobDir> {
    if world.spec.spec.on.success != Reaction::Stop {
        return None;
    }
    world
        .timeline
        .sleep(world.dice.late.between(Duration::from_secs(10), Duration::from_secs(1800)))
        .await;
    let controller = person(world);
    for _ in 0..TRIES {
        if let Ok(Some(kept)) = controller.kept(dir).await
            && kept.stopping.is_none()
        {
            let next = spec_of(world, kept)?;
            world.told(format_args!("user: {} goes on as {}", dir.job(), next.job));
            let _ = world.goes_on.set(next.job.clone());
            while submit(dir.store(), &next, None).await.is_err() && !is_there(world, &next) {
                world.timeline.sleep(Duration::from_secs(5)).await;
            }
            return Some(JobDir::new(Arc::clone(dir.store()), next.job));
        }
        world.timeline.sleep(Duration::from_secs(60)).await;
    }
    None
}

fn is_there(world: &World, next: &ResolvedSpec) -> bool {
    world.objects.body(&crate::jobdir::layout::spec(&next.job)).is_some()
}

/// `None` where the command refuses too: the machine is gone, or the budget is too low for a start
/// (seed 1000014 of 24 h).
fn spec_of(world: &World, kept: Kept) -> Option<ResolvedSpec> {
    let nothing = kept.continues.machine.is_none() && kept.receipt.outcome == JobOutcome::Succeeded;
    if nothing || kept.budget_left.is_some_and(|left| left < BUYS_A_START) {
        return None;
    }
    let mut spec = kept.spec.spec.clone();
    spec.limits.budget = kept.budget_left;
    let job = continuation_of(&kept.spec.job, &spec.name);
    Some(ResolvedSpec {
        job,
        created: world.timeline.wall(),
        spec,
        continues: Some(kept.continues),
        ..kept.spec
    })
}
