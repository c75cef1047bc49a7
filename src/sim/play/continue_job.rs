//! A person goes on with a job that has ended: `lamp start`, in a false world.
//!
//! Not here: what is kept, and how it is started (`controller::launch::continue_job`). The words of
//! the command are `cli::run::start`'s.

use std::sync::Arc;
use std::time::Duration;

use super::drivers::person;
use crate::controller::{Kept, continuation_of, submit};
use crate::job::{JobOutcome, Reaction, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::market::Usd;
use crate::sim::world::world::World;

/// A person tries so often, a minute apart: a machine may still be on its way to being stopped.
const TRIES: u32 = 20;

/// Half an hour of the dearest machine of a false world.
const BUYS_A_START: Usd = Usd::from_micros(500_000);

/// The job that goes on, if its machine was to be kept and a person wants it.
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

/// What the command's own plan refuses too: nothing is kept, or what is left of the budget buys no
/// start (seed 1000014 of 24 h).
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
