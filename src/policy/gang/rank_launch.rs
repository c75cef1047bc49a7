//! Which call launches the machine of a rank.
//!
//! On a cloud with zones, one call buys the first on-demand machines of all ranks: all of them or
//! none, or as many as there are, if the gang begins with fewer. Rank 0 makes this call. Two kinds
//! are bought one by one: spot machines, because EC2 gives the machines of one spot call no order,
//! and the machines of roles that differ. The others follow rank 0 into its zone. Each later
//! machine is bought by its rank alone, in the zone of the first.

use crate::job::{AttemptRecord, GangLaunch, GangMember, MarketChoice, Spec};
use crate::market::{CloudKind, Zone};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankPurchase {
    /// A machine for this job alone.
    Alone,
    /// The call for the machines of all ranks.
    Leads(GangLaunch),
    /// The call of rank 0 launches its machine.
    Joins,
    /// A machine for this job alone, once rank 0 has one, in the same zone.
    Follows,
}

/// The next launch of a job after `history`.
pub fn rank_purchase(spec: &Spec, history: &[AttemptRecord]) -> RankPurchase {
    let Some(member) = member_of(spec) else { return RankPurchase::Alone };
    // Also after a withdrawn machine: other ranks may have machines.
    if spec.machine.cloud == CloudKind::Local
        || history.iter().any(|record| record.settled.was_launched())
    {
        return RankPurchase::Alone;
    }
    match member.rank {
        0 if is_bought_apart(spec) => RankPurchase::Alone,
        _ if is_bought_apart(spec) && history.is_empty() => RankPurchase::Follows,
        0 => RankPurchase::Leads(GangLaunch {
            leader: member.leader().clone(),
            rank: 0,
            ranks: u32::try_from(member.seats.len()).unwrap_or(u32::MAX),
            fewest: fewest(spec),
        }),
        _ if history.is_empty() => RankPurchase::Joins,
        _ => RankPurchase::Alone,
    }
}

/// The fewest machines that the gang begins with, if it can begin with fewer than all.
fn fewest(spec: &Spec) -> Option<u32> {
    let nodes = spec.gang.as_ref()?.nodes;
    (nodes.min < nodes.max).then(|| nodes.min.max(1))
}

fn is_bought_apart(spec: &Spec) -> bool {
    let has_several = spec.gang.as_ref().is_some_and(|gang| gang.has_several_machines());
    has_several || spec.machine.market != MarketChoice::OnDemand
}

fn member_of(spec: &Spec) -> Option<&GangMember> {
    spec.gang.as_ref()?.member.as_ref().filter(|member| member.is_sound())
}

/// Whether this is the first machine of rank 0, which the others follow one by one.
pub fn is_followed(spec: &Spec, history: &[AttemptRecord]) -> bool {
    is_first_of_several(spec, history)
        && spec.machine.cloud != CloudKind::Local
        && is_bought_apart(spec)
}

fn is_first_of_several(spec: &Spec, history: &[AttemptRecord]) -> bool {
    member_of(spec).is_some_and(|member| member.rank == 0 && member.seats.len() > 1)
        && !history.iter().any(|record| record.settled.was_launched())
}

/// How many machines like the first one of rank 0 are bought after it, or beside it on a
/// workstation, by calls of their own.
pub fn followers(spec: &Spec, history: &[AttemptRecord]) -> u32 {
    let by_own_calls = spec.machine.cloud == CloudKind::Local || is_bought_apart(spec);
    let has_some = by_own_calls && is_first_of_several(spec, history);
    let gang = spec.gang.as_ref().filter(|_| has_some);
    let count = gang.map_or(0, |gang| gang.like_rank_0().saturating_sub(1));
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How many machines the next launch needs. Later ones of its kind count too, if they follow it:
/// quotas and caps must have room for all. The machines of other roles count when they are bought.
pub fn machines_of_launch(spec: &Spec, history: &[AttemptRecord]) -> u32 {
    match rank_purchase(spec, history) {
        RankPurchase::Leads(launch) => launch.ranks,
        RankPurchase::Alone | RankPurchase::Joins | RankPurchase::Follows => {
            followers(spec, history).saturating_add(1)
        }
    }
}

/// The zone of a later machine of a rank; `None`: any. The ranks of two zones talk
/// slowly, and EC2 bills their traffic.
///
/// The first spot machine of rank 0 may be bought anywhere: no other rank has one yet.
pub fn zone_of_rank<'a>(spec: &Spec, history: &'a [AttemptRecord]) -> Option<&'a Zone> {
    spec.gang.as_ref().filter(|_| spec.machine.cloud != CloudKind::Local)?;
    let is_alone =
        rank_purchase(spec, history) == RankPurchase::Alone && !is_followed(spec, history);
    history.last().filter(|_| is_alone).map(|last| &last.plan.offer.zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{GangMember, GangRole, GangSpec, NodeCount, seats_of};

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
        let nodes = NodeCount::exactly(3);
        let gang = GangSpec { nodes, member: Some(member), ..GangSpec::default() };
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
    fn elastic_gang_takes_what_there_is_from_its_fewest_on() {
        let launched = |nodes: &str| {
            let mut spec = spec(CloudKind::Aws, 0);
            spec.gang.as_mut().unwrap().nodes = nodes.parse().unwrap();
            let RankPurchase::Leads(launch) = rank_purchase(&spec, &[]) else { panic!() };
            (launch.at_least(), launch.ranks, launch.fewest)
        };
        assert_eq!(launched("2..3"), (2, 3, Some(2)));
        assert_eq!(launched("3"), (3, 3, None), "all or none");
    }

    #[test]
    fn spot_machines_of_a_gang_follow_rank_0_into_its_zone() {
        let spot = |rank| {
            let mut spec = spec(CloudKind::Aws, rank);
            spec.machine.market = MarketChoice::Spot;
            spec
        };
        assert_eq!(rank_purchase(&spot(0), &[]), RankPurchase::Alone);
        assert_eq!(rank_purchase(&spot(1), &[]), RankPurchase::Follows);
        assert_eq!((followers(&spot(0), &[]), machines_of_launch(&spot(0), &[])), (2, 3));
        assert_eq!((followers(&spot(1), &[]), machines_of_launch(&spot(1), &[])), (0, 1));
        assert_eq!(followers(&spec(CloudKind::Aws, 0), &[]), 0);
        assert_eq!(zone_of_rank(&spot(0), &[]), None);
    }

    #[test]
    fn one_machine_and_the_workstation_are_launched_alone() {
        assert_eq!(rank_purchase(&Spec::bare(), &[]), RankPurchase::Alone);
        assert_eq!(rank_purchase(&spec(CloudKind::Local, 0), &[]), RankPurchase::Alone);
        assert_eq!(rank_purchase(&spec(CloudKind::Local, 1), &[]), RankPurchase::Alone);
        let counts = [0, 1].map(|rank| machines_of_launch(&spec(CloudKind::Local, rank), &[]));
        assert_eq!(counts, [3, 1], "the caps have room for all or none");
        assert_eq!(zone_of_rank(&spec(CloudKind::Aws, 0), &[]), None);
    }
}
