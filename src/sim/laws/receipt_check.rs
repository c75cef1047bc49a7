//! Compares the receipts of a world with the bills of its cloud.
//!
//! Not here: how a receipt is computed (`policy::billing::settlement`).

use std::sync::Arc;

use crate::job::{Receipt, ReceiptAttempt};
use crate::market::{Usd, UsdPerHour};
use crate::sim::kernel::virtual_time::at;
use crate::sim::world::machines::SimMachine;
use crate::sim::world::world::{OWNER, Which, World, which};

/// A receipt equals the bill to the micro-dollar, or is marked as an estimate. An estimate is never
/// too low.
pub fn compare(world: &Arc<World>, receipts: &[&Receipt]) {
    let all = receipts.iter().flat_map(|receipt| {
        receipt
            .attempts
            .iter()
            .map(|attempt| (which(receipt.job.as_str(), attempt.attempt.number()), attempt))
    });
    let all: Vec<(Which, &ReceiptAttempt)> = all.collect();
    all.iter().for_each(|(which, attempt)| compare_one(world, *which, attempt));
    find_what_is_in_none(world, &all);
}

fn compare_one(world: &Arc<World>, which: Which, attempt: &ReceiptAttempt) {
    let Some(id) = &attempt.instance else { return };
    let now = world.timeline.now();
    let facts = |machine: &SimMachine| Some((machine.bill(which, now)?, machine.offer.hourly()));
    let Some(((cost, ended), hourly)) = world.ec2.with(id, facts).flatten() else {
        return world.violated(19, format!("the receipt names {id}, which never was"));
    };
    let seen = attempt.ended == ended.map(at);
    // The cloud shows an ended machine for about an hour. A laptop that slept longer only knows the
    // most it can have cost.
    let holds = match world.estimate_may_lack(id, Some(which)) {
        _ if seen || !attempt.billed_estimated => attempt.usd == cost,
        Some(lacks) => attempt.usd + hourly.cost_of(lacks) >= cost,
        None => true,
    };
    if !holds {
        let said = if attempt.billed_estimated { "at most " } else { "" };
        world.violated(
            15,
            format!("the receipt says {said}{} for {id}, and the cloud bills {cost}", attempt.usd),
        );
    }
}

fn find_what_is_in_none(world: &Arc<World>, all: &[(Which, &ReceiptAttempt)]) {
    let now = world.timeline.now();
    let paid: Vec<(String, Option<Which>, Usd, UsdPerHour)> = world.ec2.look(|machines| {
        let ours = machines.iter().filter(|machine| machine.owner() == Some(OWNER));
        ours.map(|machine| {
            (machine.id.clone(), machine.attempt(), machine.cost(now), machine.offer.hourly())
        })
        .collect()
    });
    for (id, number, cost, hourly) in paid {
        let named = all.iter().any(|(_, attempt)| attempt.instance.as_ref() == Some(&id));
        // The receipt does not name a machine that controllers missed, but has a bound on its cost.
        let unseen = |(which, attempt): &(Which, &ReceiptAttempt)| {
            attempt.instance.is_none() && attempt.billed_estimated && Some(*which) == number
        };
        let lacks = world.estimate_may_lack(&id, number).unwrap_or_default();
        let bound = all
            .iter()
            .find(|attempt| unseen(attempt))
            .map(|(_, attempt)| attempt.usd + hourly.cost_of(lacks));
        match bound {
            _ if named => {}
            None => world.violated(15, format!("{id} was paid for, and is in no receipt")),
            Some(bound) if bound < cost => world
                .violated(15, format!("{id} cost {cost}, and the receipt says {bound} at most")),
            Some(_) => {}
        }
    }
}
