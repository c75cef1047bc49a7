//! Which call launches the machine of a rank.
//!
//! On a cloud with zones, one call buys the first machines of all ranks: all of them or none. Rank
//! 0 makes this call. Each later machine is bought by its rank alone, in the zone of the first.

use crate::job::{AttemptRecord, GangLaunch, Spec};
use crate::market::{CloudKind, Zone};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankPurchase {
    /// A machine for this job alone.
    Alone,
    /// The call for the machines of all ranks.
    Leads(GangLaunch),
    /// The call of rank 0 launches its machine.
    Joins,
}

/// The next launch of a job after `history`.
pub fn rank_purchase(spec: &Spec, history: &[AttemptRecord]) -> RankPurchase {
    let member = spec.gang.as_ref().and_then(|gang| gang.member.as_ref());
    let Some(member) = member.filter(|member| member.is_sound()) else {
        return RankPurchase::Alone;
    };
    // Also after a withdrawn machine: other ranks may have machines.
    if spec.machine.cloud == CloudKind::Local
        || history.iter().any(|record| record.settled.was_launched())
    {
        return RankPurchase::Alone;
    }
    match member.rank {
        0 => RankPurchase::Leads(GangLaunch {
            leader: member.leader().clone(),
            rank: 0,
            ranks: u32::try_from(member.seats.len()).unwrap_or(u32::MAX),
        }),
        _ if history.is_empty() => RankPurchase::Joins,
        _ => RankPurchase::Alone,
    }
}

/// How many machines the next launch buys. Quotas and caps must have room for all of them.
pub fn machines_of_launch(spec: &Spec, history: &[AttemptRecord]) -> u32 {
    match rank_purchase(spec, history) {
        RankPurchase::Leads(launch) => launch.ranks,
        RankPurchase::Alone | RankPurchase::Joins => 1,
    }
}

/// The zone of a later machine of a rank; `None`: any. The ranks of two zones talk
/// slowly, and EC2 bills their traffic.
pub fn zone_of_rank<'a>(spec: &Spec, history: &'a [AttemptRecord]) -> Option<&'a Zone> {
    spec.gang.as_ref().filter(|_| spec.machine.cloud != CloudKind::Local)?;
    let is_alone = rank_purchase(spec, history) == RankPurchase::Alone;
    history.last().filter(|_| is_alone).map(|last| &last.plan.offer.zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{GangMember, GangRole, GangSpec, seats_of};

    fn spec(cloud: CloudKind, rank: u32) -> Spec {
        let seats = seats_of(&"digits-222222".parse().unwrap(), &[GangRole::Worker; 3]);
        let member = GangMember {
            rank,
            seats,
            retries_max: 0,
            retry_exit_codes: Vec::new(),
            retry_delay: crate::market::Span::ZERO,
            reads: None,
        };
        let gang = GangSpec { member: Some(member), ..GangSpec::default() };
        let mut spec = Spec { gang: Some(Box::new(gang)), ..Spec::bare() };
        spec.machine.cloud = cloud;
        spec
    }

    #[test]
    fn rank_0_buys_the_first_machines_of_all_ranks() {
        let RankPurchase::Leads(launch) = rank_purchase(&spec(CloudKind::Aws, 0), &[]) else {
            panic!()
        };
        assert_eq!((launch.leader.as_str(), launch.rank, launch.ranks), ("digits-222222", 0, 3));
        assert_eq!(rank_purchase(&spec(CloudKind::Aws, 2), &[]), RankPurchase::Joins);
        assert_eq!(machines_of_launch(&spec(CloudKind::Aws, 0), &[]), 3);
        assert_eq!(machines_of_launch(&spec(CloudKind::Aws, 2), &[]), 1);
    }

    #[test]
    fn one_machine_and_the_workstation_are_launched_alone() {
        assert_eq!(rank_purchase(&Spec::bare(), &[]), RankPurchase::Alone);
        assert_eq!(rank_purchase(&spec(CloudKind::Local, 0), &[]), RankPurchase::Alone);
        assert_eq!(rank_purchase(&spec(CloudKind::Local, 1), &[]), RankPurchase::Alone);
        assert_eq!(zone_of_rank(&spec(CloudKind::Aws, 0), &[]), None);
    }
}
