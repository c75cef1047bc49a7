//! The variables of one rank, under the names that its engine and scripts for other tools expect.
//!
//! `SLURM_*` names are left out: with them frameworks believe that they run under Slurm. Not here:
//! the variables of one machine (`agent::startup::environment`).

use std::collections::BTreeMap;

use serde_json::json;

use super::rank_place::{RankPlace, variables};
use super::ray_engine::ray_environment;
use crate::job::{ClusterJob, ClusterRole, ClusterTask, GangEngine, GangRole, GangSpec, TfCluster};

/// The variables of a rank. Those that the user's own `env` sets are left out, but for a
/// `TF_CONFIG` without machines, as a submitted job has: it gives the program. `trial`: the number
/// of the trial that the gang is.
pub fn rank_environment(
    gang: &GangSpec,
    place: &RankPlace<'_>,
    user: &BTreeMap<String, String>,
    trial: Option<u32>,
) -> BTreeMap<String, String> {
    let mut env = aliases(place);
    // The same on all machines, while `LAMP_JOB` is the job of this rank.
    if let Some(leader) = gang.member.as_ref().map(|member| member.leader().to_string()) {
        env.extend(variables([("SKYPILOT_TASK_ID", leader.clone()), ("DSTACK_RUN_NAME", leader)]));
    }
    env.extend(torch(gang.engine, place));
    let program = user.get("TF_CONFIG").and_then(|text| TfCluster::program_alone(text));
    let is_ours = |name: &str| name == "TF_CONFIG" && program.is_some();
    env.extend(tensorflow(gang, place, program.clone().unwrap_or_default(), trial));
    if gang.engine == GangEngine::Ray {
        env.extend(ray_environment(place));
    }
    env.retain(|name, _| !user.contains_key(name) || is_ours(name));
    env.extend(own(place));
    env
}

fn own(place: &RankPlace<'_>) -> BTreeMap<String, String> {
    variables([
        ("LAMP_NODES", place.world().to_string()),
        ("LAMP_NODE_RANK", place.node().to_string()),
        ("LAMP_RANK", place.rank.to_string()),
        ("LAMP_EPOCH", place.formation.epoch.to_string()),
    ])
}

fn torch(engine: GangEngine, place: &RankPlace<'_>) -> BTreeMap<String, String> {
    let master = place.formation.master();
    let mut env = variables([
        ("MASTER_ADDR", master.host.clone()),
        ("MASTER_PORT", master.port.to_string()),
        ("NODE_RANK", place.node().to_string()),
        ("NNODES", place.world().to_string()),
        ("NPROC_PER_NODE", place.processes.to_string()),
    ]);
    // The other engines set these themselves, for each process that they start.
    let is_process = matches!(engine, GangEngine::Tensorflow | GangEngine::Env);
    if is_process && place.processes == 1 {
        env.extend(variables([
            ("RANK", place.node().to_string()),
            ("WORLD_SIZE", place.world().to_string()),
            ("LOCAL_RANK", "0".to_owned()),
            ("LOCAL_WORLD_SIZE", "1".to_owned()),
        ]));
    }
    let interface = place.formation.member(place.rank).and_then(|me| me.interface.clone());
    for name in ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"] {
        env.extend(interface.clone().map(|interface| (name.to_owned(), interface)));
    }
    env
}

/// The names of SkyPilot, dstack, SageMaker and AWS Batch.
fn aliases(place: &RankPlace<'_>) -> BTreeMap<String, String> {
    let members = &place.formation.members;
    let (node, nodes) = (place.node().to_string(), place.world().to_string());
    let hosts: Vec<&str> = members.iter().map(|member| member.host.as_str()).collect();
    let names: Vec<String> = (1..=members.len()).map(|number| format!("algo-{number}")).collect();
    let master = place.formation.master().host.clone();
    let mut env = variables([
        ("SKYPILOT_NUM_NODES", nodes.clone()),
        ("SKYPILOT_NODE_RANK", node.clone()),
        ("SKYPILOT_NODE_IPS", hosts.join("\n")),
        ("DSTACK_NODES_NUM", nodes.clone()),
        ("DSTACK_NODE_RANK", node.clone()),
        ("DSTACK_NODES_IPS", hosts.join("\n")),
        ("DSTACK_MASTER_NODE_IP", master.clone()),
        ("SM_HOSTS", json!(names).to_string()),
        ("SM_CURRENT_HOST", names[place.node() as usize].clone()),
        ("AWS_BATCH_JOB_NUM_NODES", nodes),
        ("AWS_BATCH_JOB_NODE_INDEX", node),
        ("AWS_BATCH_JOB_MAIN_NODE_INDEX", "0".to_owned()),
    ]);
    // AWS Batch sets the address of the main node on the other nodes only.
    if place.node() != 0 {
        env.insert("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS".into(), master);
    }
    if let Some(interface) = place.formation.member(place.rank).and_then(|me| me.interface.clone())
    {
        env.insert("SM_NETWORK_INTERFACE_NAME".into(), interface);
    }
    if let Some(all) = members.iter().map(|member| member.gpus).sum::<Option<u32>>() {
        env.insert("DSTACK_GPUS_NUM".into(), all.to_string());
    }
    env
}

fn tensorflow(
    gang: &GangSpec,
    place: &RankPlace<'_>,
    job: ClusterJob,
    trial: Option<u32>,
) -> BTreeMap<String, String> {
    let Some(member) = &gang.member else { return BTreeMap::new() };
    let role_of = |rank: u32| member.seats.get(rank as usize).map(|seat| seat.role);
    let mut cluster = TfCluster { roles: Vec::new(), job };
    let roles = [GangRole::Chief, GangRole::Head, GangRole::Worker, GangRole::Ps];
    for role in roles.into_iter().chain([GangRole::Evaluator]) {
        let there = place.formation.members.iter().filter(|at| role_of(at.rank) == Some(role));
        let addresses: Vec<String> =
            there.map(|member| format!("{}:{}", member.host, member.port)).collect();
        if !addresses.is_empty() {
            cluster.roles.push(ClusterRole { name: tf_name(gang, role).into(), addresses });
        }
    }
    let mine = role_of(place.rank).unwrap_or_default();
    let before =
        |at: &&crate::job::GangReady| at.rank < place.rank && role_of(at.rank) == Some(mine);
    let index = place.formation.members.iter().filter(before).count();
    let task = ClusterTask {
        role: tf_name(gang, mine).to_owned(),
        index: u32::try_from(index).unwrap_or_default(),
        trial: trial.map(|number| number.to_string()),
    };
    variables([
        ("TF_CONFIG", cluster.tf_config(Some(&task))),
        ("CLUSTER_SPEC", cluster.cluster_spec(Some(&task))),
    ])
}

/// TensorFlow has no head: the rank that the others join is its chief.
fn tf_name(gang: &GangSpec, role: GangRole) -> &'static str {
    match role {
        GangRole::Chief | GangRole::Head => gang.chief_name.name(),
        GangRole::Worker | GangRole::Ps | GangRole::Evaluator => role.word(),
    }
}

/// The hostfile: a line for each machine in the order of ranks, with its slots if it has GPUs.
pub fn gang_hostfile(place: &RankPlace<'_>) -> String {
    let members = place.formation.members.iter();
    members.map(|member| hostfile_line(&member.host, member.gpus.unwrap_or(0))).collect()
}

/// A machine of a hostfile, with a slot for each GPU if it has some.
pub fn hostfile_line(host: &str, gpus: u32) -> String {
    if gpus == 0 { format!("{host}\n") } else { format!("{host} slots={gpus}\n") }
}

#[cfg(test)]
mod tests {
    use super::super::rank_place::tests::formation;
    use super::*;
    use crate::job::{GangMember, PrimaryRole, RoleCount, seats_of};

    fn gang(roles: &[GangRole], rank: u32) -> GangSpec {
        let member = |seats| GangMember {
            rank,
            seats,
            retries_max: 0,
            retry_exit_codes: Vec::new(),
            retry_delay: crate::market::Span::ZERO,
            reads: None,
        };
        let seats = seats_of(&"digits-222222".parse().unwrap(), roles);
        let roles = Vec::<RoleCount>::new();
        GangSpec {
            engine: GangEngine::Env,
            roles,
            member: Some(member(seats)),
            ..GangSpec::default()
        }
    }

    #[test]
    fn ranks_are_named_in_the_words_of_each_tool() {
        let formation = formation(&[0, 1, 2]);
        let place = RankPlace { formation: &formation, rank: 1, processes: 1 };
        let env =
            rank_environment(&gang(&[GangRole::Worker; 3], 1), &place, &BTreeMap::new(), None);
        let expected = [
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "40000"),
            ("RANK", "1"),
            ("WORLD_SIZE", "3"),
            ("SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n10.0.0.3"),
            ("DSTACK_MASTER_NODE_IP", "10.0.0.1"),
            ("SM_CURRENT_HOST", "algo-2"),
            ("AWS_BATCH_JOB_NODE_INDEX", "1"),
            ("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.1"),
            ("GLOO_SOCKET_IFNAME", "ens5"),
            ("LAMP_NODE_RANK", "1"),
        ];
        for (name, value) in expected {
            assert_eq!(env[name], value, "{name}");
        }
        assert!(!env.keys().any(|name| name.starts_with("SLURM_")));
    }

    #[test]
    fn engines_that_start_several_processes_get_no_rank_variables() {
        let formation = formation(&[0, 1]);
        let place = RankPlace { formation: &formation, rank: 0, processes: 1 };
        for engine in [GangEngine::Torchrun, GangEngine::Mpi, GangEngine::Ray] {
            let gang = GangSpec { engine, ..gang(&[GangRole::Worker; 2], 0) };
            let env = rank_environment(&gang, &place, &BTreeMap::new(), None);
            assert!(!env.contains_key("RANK"), "{engine:?}");
            assert_eq!(env.contains_key("RAY_AUTH_TOKEN"), engine == GangEngine::Ray);
        }
    }

    #[test]
    fn variable_of_the_user_wins_over_an_alias() {
        let formation = formation(&[0, 1]);
        let place = RankPlace { formation: &formation, rank: 0, processes: 1 };
        let user = BTreeMap::from([("NCCL_SOCKET_IFNAME".to_owned(), "eth9".to_owned())]);
        let env = rank_environment(&gang(&[GangRole::Worker; 2], 0), &place, &user, None);
        assert!(!env.contains_key("NCCL_SOCKET_IFNAME"));
        assert!(!env.contains_key("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"));
    }

    #[test]
    fn tf_config_has_the_roles_that_work() {
        let formation = formation(&[0, 1, 2, 3]);
        let roles = [GangRole::Chief, GangRole::Worker, GangRole::Worker, GangRole::Evaluator];
        let task = |rank: u32| {
            let place = RankPlace { formation: &formation, rank, processes: 1 };
            let env = rank_environment(&gang(&roles, rank), &place, &BTreeMap::new(), None);
            serde_json::from_str::<serde_json::Value>(&env["TF_CONFIG"]).unwrap()
        };
        assert_eq!(task(2)["task"], json!({ "type": "worker", "index": 1 }));
        assert_eq!(task(2)["cluster"], task(0)["cluster"], "all members see one cluster");
        assert_eq!(task(3)["task"], json!({ "type": "evaluator", "index": 0 }));
        assert!(task(3)["cluster"].get("evaluator").is_none());
    }

    #[test]
    fn tf_config_names_the_trial_on_each_rank() {
        let formation = formation(&[0, 1]);
        for rank in 0..2 {
            let place = RankPlace { formation: &formation, rank, processes: 1 };
            let gang = gang(&[GangRole::Chief, GangRole::Worker], rank);
            let env = rank_environment(&gang, &place, &BTreeMap::new(), Some(7));
            let config: serde_json::Value = serde_json::from_str(&env["TF_CONFIG"]).unwrap();
            assert_eq!(config["task"]["trial"], "7", "rank {rank}");
        }
    }

    #[test]
    fn tensorflow_1_finds_its_chief_as_master() {
        let formation = formation(&[0, 1]);
        let place = RankPlace { formation: &formation, rank: 0, processes: 1 };
        let gang = GangSpec {
            chief_name: PrimaryRole::Master,
            ..gang(&[GangRole::Chief, GangRole::Worker], 0)
        };
        let env = rank_environment(&gang, &place, &BTreeMap::new(), None);
        let config: serde_json::Value = serde_json::from_str(&env["TF_CONFIG"]).unwrap();
        assert_eq!(config["task"], json!({ "type": "master", "index": 0 }));
        assert_eq!(config["cluster"]["master"], json!(["10.0.0.1:40000"]));
        assert!(config["cluster"].get("chief").is_none(), "{config}");
        let pools: serde_json::Value = serde_json::from_str(&env["CLUSTER_SPEC"]).unwrap();
        assert_eq!(pools["cluster"]["workerpool0"], json!(["10.0.0.1:40000"]));
    }

    #[test]
    fn hostfile_has_slots_only_for_gpus() {
        let mut formation = formation(&[0, 1]);
        formation.members[1].gpus = Some(4);
        let place = RankPlace { formation: &formation, rank: 0, processes: 1 };
        assert_eq!(gang_hostfile(&place), "10.0.0.1\n10.0.0.2 slots=4\n");
    }
}
