//! The jobs of a gang from one job file: rank 0, which the user names, and the others beside it.
//!
//! Each is a complete job (docs/decisions.md). Not here: how they are submitted (the face).

use jiff::SignedDuration;

use crate::job::{GangMember, GangSaves, ResolvedSpec, member_name, seats_of};

/// Gives the job of rank 0 its place. Repeated after a new job id.
pub fn seat_leader(leader: &mut ResolvedSpec) {
    let Some(gang) = &mut leader.spec.gang else { return };
    let is_seated = gang.member.is_some();
    let seats = seats_of(&leader.job, &gang.seats());
    let nodes = i64::try_from(seats.len()).unwrap_or(i64::MAX);
    let before = gang.member.take();
    let retries = std::mem::take(&mut leader.spec.retries);
    let fresh = || GangMember {
        rank: 0,
        seats: Vec::new(),
        retries_max: retries.max,
        retry_exit_codes: retries.exit_codes.clone(),
        retry_delay: retries.delay,
        reads: None,
    };
    gang.member = Some(GangMember { seats, ..before.unwrap_or_else(fresh) });
    // The budget is of the whole gang, and each member is bounded by its part.
    if !is_seated && let Some(budget) = leader.spec.limits.budget {
        leader.spec.limits.budget = Some(budget.divided_by(nodes));
    }
}

/// The jobs of the other ranks, in order.
pub fn other_members(leader: &ResolvedSpec) -> Vec<ResolvedSpec> {
    let Some(member) = leader.member() else { return Vec::new() };
    let ranks = 1..u32::try_from(member.seats.len()).unwrap_or(u32::MAX);
    ranks.map(|rank| member_spec(leader, member, rank)).collect()
}

fn member_spec(leader: &ResolvedSpec, member: &GangMember, rank: u32) -> ResolvedSpec {
    let mut spec = leader.clone();
    let seat = &member.seats[rank as usize];
    spec.job = seat.job.clone();
    spec.spec.name = member_name(&leader.spec.name, rank);
    // A job file applies to rank 0, which stands for all.
    spec.applied = None;
    // Older than rank 0: without a name, `lamp status` and the like mean the newest job.
    spec.created = leader
        .created
        .checked_sub(SignedDuration::from_millis(i64::from(rank)))
        .unwrap_or(leader.created);
    let saves = leader.spec.gang.as_ref().map_or(GangSaves::Rank0, |gang| gang.saves);
    let reads = (saves == GangSaves::Rank0)
        .then(|| spec.spec.checkpoint.take().map(|checkpoint| checkpoint.path))
        .flatten();
    if let Some(gang) = &mut spec.spec.gang {
        gang.member = Some(GangMember { rank, reads, ..member.clone() });
    }
    spec
}
