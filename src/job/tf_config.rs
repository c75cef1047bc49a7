//! `TF_CONFIG` and `CLUSTER_SPEC`: how the programs of a group of machines find each other.
//!
//! TensorFlow reads `TF_CONFIG`; programs that were written for Vertex AI read `CLUSTER_SPEC`. Not
//! here: who gives the addresses.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The programs of one role, and where they listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRole {
    /// `chief` or `master`, `worker`, `ps`, `evaluator`.
    pub name: String,
    /// `host:port` of each program, by its index.
    pub addresses: Vec<String>,
}

/// Which program of the cluster reads the variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTask {
    pub role: String,
    pub index: u32,
    /// The number of the trial in a search, which is a text there.
    pub trial: Option<String>,
}

/// The program and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterJob {
    pub job_name: String,
    pub args: Vec<String>,
}

/// The cluster of one job. Every program of it gets the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TfCluster {
    pub roles: Vec<ClusterRole>,
    pub job: ClusterJob,
}

/// The name of the first program. TensorFlow 1 knows only `master`, later versions know `chief`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrimaryRole {
    #[default]
    Chief,
    Master,
}

impl PrimaryRole {
    /// By the runtime version of a job, such as `1.15` or `2.1`. `use_chief` asks for `chief` in
    /// an older one.
    pub fn of_runtime(version: Option<&str>, use_chief: Option<bool>) -> PrimaryRole {
        match (use_chief, version.and_then(version_numbers)) {
            (Some(true), _) => PrimaryRole::Chief,
            (Some(false), _) => PrimaryRole::Master,
            (None, Some(numbers)) if numbers < FIRST_WITH_CHIEF => PrimaryRole::Master,
            (None, _) => PrimaryRole::Chief,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    pub(crate) fn is_chief(&self) -> bool {
        *self == PrimaryRole::Chief
    }

    pub fn name(self) -> &'static str {
        match self {
            PrimaryRole::Chief => "chief",
            PrimaryRole::Master => "master",
        }
    }
}

/// The training service wrote `chief` from runtime version 2.1 on.
const FIRST_WITH_CHIEF: [u32; 2] = [2, 1];

fn version_numbers(text: &str) -> Option<[u32; 2]> {
    let mut parts = text.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().unwrap_or("0").parse().ok()?;
    Some([major, minor])
}

/// The evaluator is a task, and it is not in the cluster.
const EVALUATOR: &str = "evaluator";

impl TfCluster {
    /// The program of a `TF_CONFIG` that names no machines.
    pub fn program_alone(text: &str) -> Option<ClusterJob> {
        let config: Value = serde_json::from_str(text).ok()?;
        let is_alone = config.get("cluster")?.as_object()?.is_empty();
        serde_json::from_value(config.get("job")?.clone()).ok().filter(|_| is_alone)
    }

    /// The text of `TF_CONFIG`. Without a task, both are empty.
    pub fn tf_config(&self, task: Option<&ClusterTask>) -> String {
        let mut cluster = Map::new();
        for role in self.roles.iter().filter(|role| role.name != EVALUATOR) {
            cluster.insert(role.name.clone(), json!(role.addresses));
        }
        let task = task.map_or_else(|| json!({}), |task| task_value(&task.role, task));
        json!({ "cluster": cluster, "task": task, "environment": "cloud", "job": self.job })
            .to_string()
    }

    /// The text of `CLUSTER_SPEC`. There, each role is a pool with a number.
    pub fn cluster_spec(&self, task: Option<&ClusterTask>) -> String {
        let mut cluster = Map::new();
        for role in &self.roles {
            if let Some(pool) = pool_of(&role.name) {
                cluster.insert(pool.to_owned(), json!(role.addresses));
            }
        }
        let task = task
            .and_then(|task| Some(task_value(pool_of(&task.role)?, task)))
            .unwrap_or_else(|| json!({}));
        json!({ "cluster": cluster, "task": task, "environment": "cloud", "job": self.job })
            .to_string()
    }
}

fn task_value(role: &str, task: &ClusterTask) -> Value {
    let mut value = json!({ "type": role, "index": task.index });
    if let (Some(trial), Some(object)) = (&task.trial, value.as_object_mut()) {
        object.insert("trial".to_owned(), json!(trial));
    }
    value
}

fn pool_of(role: &str) -> Option<&'static str> {
    match role {
        "chief" | "master" => Some("workerpool0"),
        "worker" => Some("workerpool1"),
        "ps" => Some("workerpool2"),
        EVALUATOR => Some("workerpool3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, addresses: &[&str]) -> ClusterRole {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        ClusterRole { name: name.to_owned(), addresses }
    }

    fn task(role: &str, index: u32, trial: Option<&str>) -> ClusterTask {
        ClusterTask { role: role.to_owned(), index, trial: trial.map(str::to_owned) }
    }

    fn four_roles() -> TfCluster {
        TfCluster {
            roles: vec![
                role("chief", &["10.0.0.1:2222"]),
                role("worker", &["10.0.0.2:2222", "10.0.0.3:2222"]),
                role("ps", &["10.0.0.4:2222"]),
                role("evaluator", &["10.0.0.5:2222"]),
            ],
            job: ClusterJob { job_name: "trainer.task".into(), args: vec!["--lr".into()] },
        }
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn tf_config_has_each_role_but_the_evaluator() {
        let config = parsed(&four_roles().tf_config(Some(&task("worker", 1, None))));
        let cluster = json!({ "chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"],
            "ps": ["10.0.0.4:2222"] });
        assert_eq!(config["cluster"], cluster);
        assert_eq!(config["task"], json!({ "type": "worker", "index": 1 }));
        assert_eq!(config["environment"], "cloud");
        assert_eq!(config["job"], json!({ "job_name": "trainer.task", "args": ["--lr"] }));
    }

    #[test]
    fn tf_config_names_an_evaluator_as_task_only() {
        let config = parsed(&four_roles().tf_config(Some(&task("evaluator", 0, None))));
        assert_eq!(config["task"], json!({ "type": "evaluator", "index": 0 }));
        assert_eq!(config["cluster"].get("evaluator"), None);
    }

    #[test]
    fn tf_config_gives_the_trial_as_text() {
        let config = parsed(&four_roles().tf_config(Some(&task("chief", 0, Some("7")))));
        assert_eq!(config["task"], json!({ "type": "chief", "index": 0, "trial": "7" }));
    }

    #[test]
    fn tf_config_of_a_lone_program_has_no_task() {
        let config = parsed(&TfCluster::default().tf_config(None));
        assert_eq!(config["cluster"], json!({}));
        assert_eq!(config["task"], json!({}));
    }

    #[test]
    fn cluster_spec_numbers_the_roles() {
        let spec = parsed(&four_roles().cluster_spec(Some(&task("ps", 0, None))));
        assert_eq!(spec["task"], json!({ "type": "workerpool2", "index": 0 }));
        assert_eq!(spec["cluster"]["workerpool0"], json!(["10.0.0.1:2222"]));
        assert_eq!(spec["cluster"]["workerpool3"], json!(["10.0.0.5:2222"]));
    }

    #[test]
    fn primary_is_master_before_runtime_2_1() {
        let cases = [
            (Some("1.8"), None, "master"),
            (Some("2.0"), None, "master"),
            (Some("2.1"), None, "chief"),
            (Some("2.11"), None, "chief"),
            (None, None, "chief"),
            (Some("1.15"), Some(true), "chief"),
            (Some("2.4"), Some(false), "master"),
            (Some("newest"), None, "chief"),
        ];
        for (version, use_chief, expected) in cases {
            assert_eq!(PrimaryRole::of_runtime(version, use_chief).name(), expected, "{version:?}");
        }
    }
}
