//! The gang of a job from `nodes` and `[gang]` of all layers.

use super::gang_file::{GangFile, RoleFile};
use crate::job::{
    DoneRule, Finding, GangRole, GangSpec, MachineSpec, NodeCount, RoleCount, RoleMachine,
};
use crate::market::GpuRequirement;

/// The keys of all layers, the strongest first.
pub struct GangWords<'a> {
    pub nodes: Option<NodeCount>,
    pub tables: Vec<&'a GangFile>,
    /// The machine of roles without one of their own.
    pub machine: &'a MachineSpec,
}

/// The gang, or `None` for one machine.
pub fn gang_of(words: &GangWords<'_>, found: &mut Vec<Finding>) -> Option<GangSpec> {
    let roles = roles_of(&words.tables, words.machine);
    if words.nodes.is_none() && words.tables.is_empty() {
        return None;
    }
    if words.nodes.is_some() && !roles.is_empty() {
        found.push(
            Finding::error("nodes", "is given beside the roles of [gang], which say how many")
                .hint("keep `nodes`, or the roles"),
        );
    }
    if words.nodes.is_none() && roles.is_empty() {
        found.push(
            Finding::error("gang", "says how machines work together, and not how many")
                .hint("add `nodes = 4` above the tables, or a role: [gang.worker] count = 4"),
        );
    }
    let sum = roles.iter().map(|role| role.count).sum::<u32>().max(1);
    let nodes = words.nodes.unwrap_or(NodeCount::exactly(sum));
    let is_one = nodes == NodeCount::exactly(1) && words.tables.is_empty();
    (!is_one).then(|| filled(words, nodes, roles))
}

fn filled(words: &GangWords<'_>, nodes: NodeCount, roles: Vec<RoleCount>) -> GangSpec {
    let default = GangSpec { done: default_done(&roles), ..GangSpec::default() };
    let tables = &words.tables;
    GangSpec {
        nodes,
        engine: first(tables, |gang| gang.engine.as_ref()).map_or(default.engine, |word| word.0),
        join: first(tables, |gang| gang.join.as_ref()).map_or(default.join, |word| word.0),
        hold: first(tables, |gang| gang.hold.as_ref()).map_or(default.hold, |word| word.0),
        done: first(tables, |gang| gang.done.as_ref()).map_or(default.done, |word| word.0),
        tail: first(tables, |gang| gang.tail.as_ref()).map_or(default.tail, |word| word.0),
        saves: first(tables, |gang| gang.saves.as_ref()).map_or(default.saves, |word| word.0),
        chief_name: first(tables, |gang| gang.chief_name.as_ref())
            .map_or(default.chief_name, |word| word.0),
        roles,
        member: None,
    }
}

/// Parameter servers and evaluators serve the training, and do not end with it.
fn default_done(roles: &[RoleCount]) -> DoneRule {
    let serves = |role: &RoleCount| matches!(role.role, GangRole::Ps | GangRole::Evaluator);
    if roles.iter().any(serves) { DoneRule::Rank0 } else { DoneRule::default() }
}

fn first<'a, T>(
    tables: &[&'a GangFile],
    get: impl Fn(&'a GangFile) -> Option<&'a T>,
) -> Option<&'a T> {
    tables.iter().find_map(|table| get(table))
}

fn roles_of(tables: &[&GangFile], machine: &MachineSpec) -> Vec<RoleCount> {
    let said = |role: GangRole, get: fn(&GangFile) -> Option<&RoleFile>| {
        let table = tables.iter().find_map(|table| get(table))?;
        Some((role, table))
    };
    let tables: Vec<(GangRole, &RoleFile)> = [
        said(GangRole::Chief, |gang| gang.chief.as_ref()),
        said(GangRole::Head, |gang| gang.head.as_ref()),
        said(GangRole::Worker, |gang| gang.worker.as_ref()),
        said(GangRole::Ps, |gang| gang.ps.as_ref()),
        said(GangRole::Evaluator, |gang| gang.evaluator.as_ref()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let differ = tables.iter().any(|(_, table)| table.has_own_machine());
    let role = |(role, table): (GangRole, &RoleFile)| RoleCount {
        role,
        count: table.count.unwrap_or(1),
        machine: differ.then(|| own_machine(table, machine)),
    };
    tables.into_iter().map(role).collect()
}

/// Types alone are machines without a rule for their GPUs, as in `[machine]`. The types of
/// `[machine]` may not have the GPUs of this role.
fn own_machine(table: &RoleFile, machine: &MachineSpec) -> RoleMachine {
    if !table.has_own_machine() {
        let (gpus, instance_types) = (machine.gpus.clone(), machine.instance_types.clone());
        return RoleMachine { gpus, instance_types };
    }
    RoleMachine {
        gpus: table.gpus.as_ref().map_or(GpuRequirement::NONE, |word| word.0.clone()),
        instance_types: table.instance_types.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::DoneWord;

    fn done_of(file: &GangFile) -> DoneRule {
        let machine = MachineSpec::default();
        let words = GangWords { nodes: None, tables: vec![file], machine: &machine };
        let mut found = Vec::new();
        let gang = gang_of(&words, &mut found).expect("a gang");
        assert_eq!(found, []);
        gang.done
    }

    #[test]
    fn gang_with_servers_is_done_when_rank_0_is() {
        let role = |count| Some(RoleFile { count: Some(count), ..RoleFile::default() });
        let workers = GangFile { worker: role(2), ..GangFile::default() };
        assert_eq!(done_of(&workers), DoneRule::All);
        let served = GangFile { ps: role(1), ..workers.clone() };
        assert_eq!(done_of(&served), DoneRule::Rank0);
        let evaluated = GangFile { evaluator: role(1), ..workers };
        assert_eq!(done_of(&evaluated), DoneRule::Rank0);
        let said = GangFile { done: Some(DoneWord(DoneRule::All)), ..served };
        assert_eq!(done_of(&said), DoneRule::All);
    }
}
