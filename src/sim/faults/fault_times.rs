//! Counts how many faults of each kind struck a running machine. Kinds without a strike are
//! untested.
//!
//! Not here: the effect of a fault ([`super::fault_plan`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::fault_plan::{Due, FaultKind};
use crate::market::Market;
use crate::sim::world::host::Host;
use crate::sim::world::world::{OWNER, World};

/// By kind: how many faults there were, and how many struck a machine.
pub type Strikes = BTreeMap<String, (u64, u64)>;

/// Checks for a machine just before each fault.
pub async fn watch(world: Arc<World>, due: Vec<Due>, strikes: Arc<Mutex<Strikes>>) {
    for Due { at, fate } in due {
        world.timeline.sleep(at.saturating_sub(world.timeline.now())).await;
        let kind = kind(fate);
        let found = finds(&world, fate);
        let mut strikes = strikes.lock().expect("the lock is not poisoned");
        let (all, struck) = strikes.entry(kind).or_default();
        (*all, *struck) = (*all + 1, *struck + u64::from(found));
    }
}

/// The name of the fault or trouble.
fn kind(fate: FaultKind) -> String {
    let words = match fate {
        FaultKind::Weather(trouble, _) => format!("{trouble:?}"),
        fate => format!("{fate:?}"),
    };
    words.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn finds(world: &World, fate: FaultKind) -> bool {
    let is_on = |host: &Host, market: Market| host.plan.offer.market == market;
    world.ec2.running(OWNER).is_some_and(|host| match fate {
        FaultKind::Reclaim { .. } | FaultKind::ReclaimFirst(_) => is_on(&host, Market::Spot),
        FaultKind::ConsoleStop => is_on(&host, Market::OnDemand),
        FaultKind::AgentCrash
        | FaultKind::CrashLoop(_)
        | FaultKind::AgentGone
        | FaultKind::AgentHang(_) => host.state().agent.is_some(),
        FaultKind::Reboot => host.state().reboot.is_some(),
        _ => host.kernel.is_running(),
    })
}
