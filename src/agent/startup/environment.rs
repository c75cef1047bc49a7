//! The workload's environment: `LAMP_*`, and the names that scripts for other tools expect.
//!
//! Pure. docs/environment.md has the table, and a test compares the two. The user's own `env`
//! overrides the aliases, but not `LAMP_*`: a script may get a `RANK`, but not another `LAMP_JOB`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::job::{AttemptNo, JobId, REHEARSAL};
use crate::policy::gang::rank_environment::hostfile_line;
use crate::policy::gang::rank_place::variables;

#[derive(Clone, Debug)]
pub struct WorkloadPaths<'a> {
    pub job: &'a JobId,
    pub name: &'a str,
    pub attempt: AttemptNo,
    pub instance: &'a str,
    pub workdir: &'a Path,
    pub checkpoint_dir: &'a Path,
    pub output_dir: &'a Path,
    pub cache_dir: &'a Path,
    /// The progress file, the done marker and the notice file.
    pub progress: &'a Path,
    pub done: &'a Path,
    pub notice: &'a Path,
    pub hostfile: &'a Path,
    /// The trial of a tuning; `None`: an ordinary job.
    pub trial: Option<TrialPlace<'a>>,
    /// Whether a checkpoint was restored, and its step.
    pub resumed: bool,
    pub resume_step: Option<f64>,
    /// `None` while the number of GPUs is unknown: then no variable names one.
    pub gpus: Option<u32>,
    /// `None`: the job has one machine.
    pub rank: Option<RankOf>,
}

/// The rank of this machine, and the most machines that its gang has.
#[derive(Clone, Copy, Debug)]
pub struct RankOf {
    pub rank: u32,
    pub nodes: u32,
}

/// The number of a trial, and the file where `cloudml-hypertune` writes its metric.
#[derive(Clone, Copy, Debug)]
pub struct TrialPlace<'a> {
    pub number: u32,
    pub metric_file: &'a Path,
}

/// The variables to add to the machine's own environment.
pub fn environment(
    place: &WorkloadPaths<'_>,
    user: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut env = aliases(place);
    env.extend(user.iter().map(|(name, value)| (name.clone(), value.clone())));
    if let Some(trial) = &place.trial {
        env.insert("CLOUD_ML_TRIAL_ID".to_owned(), trial.number.to_string());
        env.insert("CLOUD_ML_HP_METRIC_FILE".to_owned(), text(trial.metric_file));
        name_trial(&mut env, trial.number);
    }
    env.extend(own(place));
    env
}

fn own(place: &WorkloadPaths<'_>) -> BTreeMap<String, String> {
    let mut env = variables([
        ("LAMP_JOB", place.job.to_string()),
        // A rehearsal finds the cache that the job's setup keeps under this name.
        ("LAMP_JOB_NAME", place.name.strip_suffix(REHEARSAL).unwrap_or(place.name).to_owned()),
        ("LAMP_ATTEMPT", place.attempt.number().to_string()),
        ("LAMP_INSTANCE", place.instance.to_owned()),
        ("LAMP_WORKDIR", text(place.workdir)),
        ("LAMP_CHECKPOINT_DIR", text(place.checkpoint_dir)),
        ("LAMP_OUTPUT_DIR", text(place.output_dir)),
        ("LAMP_CACHE_DIR", text(place.cache_dir)),
        ("LAMP_PROGRESS", text(place.progress)),
        ("LAMP_DONE", text(place.done)),
        ("LAMP_NOTICE", text(place.notice)),
        ("LAMP_RESUME", u8::from(place.resumed).to_string()),
    ]);
    if let Some(trial) = &place.trial {
        env.insert("LAMP_TRIAL".into(), trial.number.to_string());
    }
    if let Some(step) = place.resume_step {
        env.insert("LAMP_RESUME_STEP".into(), step.to_string());
    }
    if let Some(gpus) = place.gpus {
        env.insert("LAMP_NUM_GPUS".into(), gpus.to_string());
    }
    if let Some(gang) = place.rank {
        env.insert("LAMP_RANK".into(), gang.rank.to_string());
        env.insert("LAMP_NODES".into(), gang.nodes.to_string());
    }
    env
}

/// A machine alone is node 0 of 1. Names that make a framework think it is one rank of many are not
/// among them (`job::is_launchers`): the command is started once, without a launcher.
fn aliases(place: &WorkloadPaths<'_>) -> BTreeMap<String, String> {
    let gang = place.rank.unwrap_or(RankOf { rank: 0, nodes: 1 });
    let (rank, nodes) = (gang.rank.to_string(), gang.nodes.to_string());
    let job = place.job.to_string();
    let mut env = variables([
        // In a pipe, as in `python train.py | tee log`, a terminal does not help.
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("SKYPILOT_TASK_ID", job.clone()),
        ("SKYPILOT_NUM_NODES", nodes.clone()),
        ("SKYPILOT_NODE_RANK", rank.clone()),
        ("DSTACK_RUN_NAME", job),
        ("DSTACK_NODE_RANK", rank),
        ("DSTACK_NODES_NUM", nodes),
        ("SM_CHANNELS", "[]".to_owned()),
        ("SM_HPS", "{}".to_owned()),
        ("SM_MODEL_DIR", text(place.output_dir)),
        ("SM_OUTPUT_DATA_DIR", text(place.output_dir)),
        ("AIP_MODEL_DIR", text(place.output_dir)),
        ("AIP_CHECKPOINT_DIR", text(place.checkpoint_dir)),
        ("AIP_TENSORBOARD_LOG_DIR", text(&place.output_dir.join("tensorboard"))),
        ("AWS_BATCH_JOB_ATTEMPT", place.attempt.number().to_string()),
    ]);
    // Before its gang has formed, a rank does not know the addresses of the others.
    if place.rank.is_none() {
        env.extend(addresses_of_one());
    }
    if let Some(gpus) = place.gpus {
        for name in
            ["SKYPILOT_NUM_GPUS_PER_NODE", "DSTACK_GPUS_NUM", "DSTACK_GPUS_PER_NODE", "SM_NUM_GPUS"]
        {
            env.insert(name.to_owned(), gpus.to_string());
        }
        env.insert("DSTACK_MPI_HOSTFILE".to_owned(), text(place.hostfile));
    }
    env
}

fn addresses_of_one() -> BTreeMap<String, String> {
    let host = || "127.0.0.1".to_owned();
    variables([
        ("SKYPILOT_NODE_IPS", host()),
        ("DSTACK_MASTER_NODE_IP", host()),
        ("DSTACK_NODES_IPS", host()),
        ("TF_CONFIG", r#"{"cluster":{"chief":["127.0.0.1:2222"]},"task":{"type":"chief","index":0}}"#.to_owned()),
        ("CLUSTER_SPEC", r#"{"cluster":{"workerpool0":["127.0.0.1:2222"]},"task":{"type":"workerpool0","index":0}}"#.to_owned()),
        ("SM_HOSTS", r#"["algo-1"]"#.to_owned()),
        ("SM_CURRENT_HOST", "algo-1".to_owned()),
    ])
}

/// Adds `task.trial` to `TF_CONFIG`, as ML Engine does.
fn name_trial(env: &mut BTreeMap<String, String>, number: u32) {
    let Some(config) = env.get_mut("TF_CONFIG") else { return };
    let Ok(mut parsed) = serde_json::from_str::<serde_json::Value>(config) else { return };
    if let Some(task) = parsed.get_mut("task").and_then(serde_json::Value::as_object_mut) {
        task.insert("trial".to_owned(), number.to_string().into());
        *config = parsed.to_string();
    }
}

/// The hostfile: this machine, with a slot for each GPU if there are some.
pub fn hostfile(gpus: u32) -> String {
    hostfile_line("127.0.0.1", gpus)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_may_change_alias_but_not_own_variable() {
        let job: JobId = "digits-222222".parse().unwrap();
        let path = Path::new("/w");
        let place = WorkloadPaths {
            job: &job,
            name: "digits",
            attempt: AttemptNo::new(2),
            instance: "i-1",
            workdir: path,
            checkpoint_dir: path,
            output_dir: path,
            cache_dir: path,
            progress: path,
            done: path,
            notice: path,
            hostfile: path,
            trial: None,
            resumed: true,
            resume_step: Some(12.0),
            gpus: None,
            rank: None,
        };
        let user = BTreeMap::from([
            ("RANK".to_owned(), "3".to_owned()),
            ("LAMP_JOB".to_owned(), "other".to_owned()),
        ]);
        let env = environment(&place, &user);
        assert_eq!(env["RANK"], "3", "the user's own word stays");
        let said: Vec<String> = environment(&place, &BTreeMap::new())
            .into_keys()
            .filter(|name| crate::job::is_launchers(name))
            .collect();
        assert!(said.is_empty(), "no launcher started the command: {said:?}");
        assert_eq!(env["LAMP_JOB"], "digits-222222");
        assert_eq!(env["LAMP_RESUME_STEP"], "12");
        for unknown in ["LAMP_NUM_GPUS", "DSTACK_MPI_HOSTFILE"] {
            assert!(!env.contains_key(unknown), "an unknown number of GPUs is not claimed");
        }
        for name in ["TF_CONFIG", "CLUSTER_SPEC", "SM_HPS", "SM_CHANNELS", "SM_HOSTS"] {
            assert!(
                serde_json::from_str::<serde_json::Value>(&env[name]).is_ok(),
                "{name} is JSON"
            );
        }
        let task: serde_json::Value = serde_json::from_str(&env["TF_CONFIG"]).unwrap();
        assert_eq!(
            task["cluster"]["chief"][0], "127.0.0.1:2222",
            "the machine of its task is in its cluster"
        );
        let rank = Some(RankOf { rank: 1, nodes: 4 });
        let env = environment(&WorkloadPaths { rank, ..place }, &BTreeMap::new());
        let told = ["LAMP_RANK", "SKYPILOT_NODE_RANK", "LAMP_NODES"].map(|name| env[name].as_str());
        assert_eq!(told, ["1", "1", "4"]);
        assert!(!env.contains_key("TF_CONFIG"), "the addresses are not known yet");
        assert_eq!(
            (hostfile(0).as_str(), hostfile(2).as_str()),
            ("127.0.0.1\n", "127.0.0.1 slots=2\n")
        );
    }
}
