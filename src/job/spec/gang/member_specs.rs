//! The jobs of a gang from one job file: rank 0, which the user names, and the others beside it.
//!
//! Each is a complete job (docs/decisions.md). Not here: how they are submitted (the face).

use jiff::SignedDuration;

use crate::job::{
    GangMember, GangRole, GangSaves, GangSpec, MachineSpec, ResolvedSpec, member_name, seats_of,
};
use crate::market::CloudKind;

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
    leader.spec.machine = role_machine(gang, seats[0].role, &leader.spec.machine);
    gang.member = Some(GangMember { seats, ..before.unwrap_or_else(fresh) });
    // The budget is of the whole gang, and each member is bounded by its part.
    if !is_seated && let Some(budget) = leader.spec.limits.budget {
        leader.spec.limits.budget = Some(budget.divided_by(nodes));
    }
}

/// The machine of a role, from the one of the job. On this workstation all are the same.
fn role_machine(gang: &GangSpec, role: GangRole, job: &MachineSpec) -> MachineSpec {
    match gang.own_machine(role).filter(|_| job.cloud != CloudKind::Local) {
        Some(own) => MachineSpec {
            gpus: own.gpus.clone(),
            instance_types: own.instance_types.clone(),
            ..job.clone()
        },
        None => job.clone(),
    }
}

/// The kinds of machines, each with a role that has it and the number. Rank 0 has the first.
pub fn machine_kinds(gang: &GangSpec, job: &MachineSpec) -> Vec<(GangRole, MachineSpec, usize)> {
    let mut kinds: Vec<(GangRole, MachineSpec, usize)> = Vec::new();
    for role in gang.seats() {
        let machine = role_machine(gang, role, job);
        match kinds.iter_mut().find(|(_, known, _)| *known == machine) {
            Some((_, _, count)) => *count += 1,
            None => kinds.push((role, machine, 1)),
        }
    }
    kinds
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
        spec.spec.machine = role_machine(gang, seat.role, &spec.spec.machine);
        gang.member = Some(GangMember { rank, reads, ..member.clone() });
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{RoleCount, RoleMachine};
    use crate::market::GpuRequirement;

    #[test]
    fn role_has_its_own_machine_at_a_cloud() {
        let machine = |kind: &str| {
            let (gpus, instance_types) = (GpuRequirement::NONE, vec![kind.to_owned()]);
            Some(RoleMachine { gpus, instance_types })
        };
        let role = |role, count, kind| RoleCount { role, count, machine: machine(kind) };
        let roles = vec![
            role(GangRole::Ps, 3, "r6i.large"),
            role(GangRole::Worker, 2, "g5.xlarge"),
            role(GangRole::Chief, 1, "g5.xlarge"),
        ];
        let gang = GangSpec { roles, ..GangSpec::default() };
        assert_eq!((gang.has_several_machines(), gang.like_rank_0()), (true, 3));
        let aws = MachineSpec { cloud: CloudKind::Aws, ..MachineSpec::default() };
        assert_eq!(role_machine(&gang, GangRole::Ps, &aws).instance_types, ["r6i.large"]);
        let here = MachineSpec { cloud: CloudKind::Local, ..aws };
        assert_eq!(role_machine(&gang, GangRole::Ps, &here), here);
    }
}
