//! `local train`: the user's module on this workstation, alone or as several programs.
//!
//! ```text
//! plan (pure) ─ start the others ─ run the primary to its end ─ end the others
//! ```
//!
//! It makes no job. Not here: flags.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal as Sends, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::user_python::UserPython;
use crate::app::{ExitCode, Fault};
use crate::job::{ClusterJob, ClusterRole, ClusterTask, PrimaryRole, TfCluster};

/// The request of the user.
#[derive(Clone, Debug)]
pub struct LocalTrainRequest {
    pub module: String,
    /// The folder of the package. The module runs in its parent.
    pub package: PathBuf,
    pub args: Vec<String>,
    pub job_dir: Option<String>,
    /// `None`: one program alone.
    pub cluster: Option<LocalCluster>,
}

/// How many programs of each role there are.
#[derive(Clone, Copy, Debug)]
pub struct LocalCluster {
    pub primary: PrimaryRole,
    pub workers: u32,
    pub parameter_servers: u32,
    pub evaluators: u32,
    pub start_port: u16,
}

/// One program, with the value of its `TF_CONFIG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalProgram {
    /// `worker 1`.
    pub name: String,
    pub tf_config: String,
}

/// All programs. The first is the primary.
#[derive(Clone, Debug)]
pub struct LocalTrainPlan {
    pub folder: PathBuf,
    /// The words after `python`.
    pub words: Vec<String>,
    pub programs: Vec<LocalProgram>,
}

/// How long the others may take to end. Then they are killed.
const END_MAX: Duration = Duration::from_secs(5);

/// # Errors
/// Fails when the ports do not suffice.
pub fn plan(request: &LocalTrainRequest) -> Result<LocalTrainPlan, Fault> {
    let mut args = request.args.clone();
    if let Some(job_dir) = &request.job_dir {
        args.extend(["--job-dir".to_owned(), job_dir.clone()]);
    }
    let job = ClusterJob { job_name: request.module.clone(), args: args.clone() };
    let mut words = vec!["-m".to_owned(), request.module.clone()];
    words.extend(args);
    let folder = request.package.parent().unwrap_or(Path::new("/")).to_owned();
    let Some(local) = request.cluster else {
        let tf_config = TfCluster { roles: Vec::new(), job }.tf_config(None);
        let programs = vec![LocalProgram { name: "the program".into(), tf_config }];
        return Ok(LocalTrainPlan { folder, words, programs });
    };
    let cluster = TfCluster { roles: roles(local)?, job };
    let tasks = cluster.roles.iter().flat_map(tasks_of).chain(evaluators(local));
    let program = |task: ClusterTask| LocalProgram {
        name: format!("{} {}", task.role, task.index),
        tf_config: cluster.tf_config(Some(&task)),
    };
    Ok(LocalTrainPlan { folder, words, programs: tasks.map(program).collect() })
}

fn tasks_of(role: &ClusterRole) -> Vec<ClusterTask> {
    (0..role.addresses.len() as u32)
        .map(|index| ClusterTask { role: role.name.clone(), index, trial: None })
        .collect()
}

/// They have no address: other programs never ask them.
fn evaluators(local: LocalCluster) -> Vec<ClusterTask> {
    (0..local.evaluators)
        .map(|index| ClusterTask { role: "evaluator".into(), index, trial: None })
        .collect()
}

/// The ports follow each other: primary, workers, parameter servers.
fn roles(local: LocalCluster) -> Result<Vec<ClusterRole>, Fault> {
    let last =
        u64::from(local.start_port) + u64::from(local.workers) + u64::from(local.parameter_servers);
    if last > u64::from(u16::MAX) {
        return Err(Fault::new(ExitCode::USAGE, format!("port {last} does not exist"))
            .meaning("nothing was started")
            .hint("`--start-port 27182` leaves room for the ports of all programs"));
    }
    let mut port = local.start_port;
    let mut role = |name: &str, count: u32| {
        let addresses = (0..count).map(|_| {
            let address = format!("localhost:{port}");
            port = port.saturating_add(1);
            address
        });
        ClusterRole { name: name.to_owned(), addresses: addresses.collect() }
    };
    let all = [
        role(local.primary.name(), 1),
        role("worker", local.workers),
        role("ps", local.parameter_servers),
    ];
    Ok(all.into_iter().filter(|role| !role.addresses.is_empty()).collect())
}

/// Runs all programs. The exit code of the primary is the result.
///
/// # Errors
/// Fails when a program cannot be started.
pub async fn run(plan: &LocalTrainPlan, python: &UserPython) -> Result<ExitCode, Fault> {
    let [primary, others @ ..] = plan.programs.as_slice() else { return Ok(ExitCode::SUCCESS) };
    // Once listened to, a signal no longer ends this program: it must end the others.
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|error| unstarted(python, &error))?;
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| unstarted(python, &error))?;
    let mut started = Vec::new();
    for other in others {
        match command(plan, other, python).process_group(0).spawn() {
            Ok(child) => started.push(child),
            Err(error) => {
                end(started).await;
                return Err(unstarted(python, &error));
            }
        }
    }
    let mut child = match command(plan, primary, python).spawn() {
        Ok(child) => child,
        Err(error) => {
            end(started).await;
            return Err(unstarted(python, &error));
        }
    };
    let id = process_id(&child);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            // The terminal has sent it to the primary too, whose end is awaited.
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                if let Some(id) = id {
                    // If the signal fails, the program has ended, which the next round sees.
                    let _sent = kill_process(id, Sends::TERM);
                }
            }
        }
    };
    end(started).await;
    let status = status.map_err(|error| unstarted(python, &error))?;
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&status);
    Ok(ExitCode::of_workload(status.code().unwrap_or(128 + by_signal.unwrap_or(1))))
}

fn command(plan: &LocalTrainPlan, program: &LocalProgram, python: &UserPython) -> Command {
    let mut command = Command::new(&python.program);
    command.args(&plan.words).current_dir(&plan.folder).env("TF_CONFIG", &program.tf_config);
    command.stdin(Stdio::inherit()).kill_on_drop(true);
    command
}

fn process_id(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Ends each program with all that it has started.
async fn end(started: Vec<Child>) {
    for child in &started {
        if let Some(id) = process_id(child) {
            // If the signal fails, the program has ended.
            let _sent = kill_process_group(id, Sends::TERM);
        }
    }
    for mut child in started {
        let id = process_id(&child);
        if tokio::time::timeout(END_MAX, child.wait()).await.is_err()
            && let Some(id) = id
        {
            let _sent = kill_process_group(id, Sends::KILL);
            let _ended = child.wait().await;
        }
    }
}

fn unstarted(python: &UserPython, error: &std::io::Error) -> Fault {
    let what = format!("cannot start `{}`", python.program.display());
    Fault::new(ExitCode::UNREACHABLE, what).because(error).meaning("nothing runs")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(cluster: Option<LocalCluster>) -> LocalTrainRequest {
        LocalTrainRequest {
            module: "trainer.task".into(),
            package: "/home/x/trainer".into(),
            args: vec!["--train-file".into(), "gs://b/x".into()],
            job_dir: Some("checkpoints".into()),
            cluster,
        }
    }

    const CLUSTER: LocalCluster = LocalCluster {
        primary: PrimaryRole::Chief,
        workers: 2,
        parameter_servers: 1,
        evaluators: 1,
        start_port: 27_182,
    };

    #[test]
    fn user_arguments_come_before_the_job_dir() {
        let plan = plan(&request(None)).unwrap();
        assert_eq!(
            plan.words,
            ["-m", "trainer.task", "--train-file", "gs://b/x", "--job-dir", "checkpoints"]
        );
        assert_eq!(plan.folder, Path::new("/home/x"));
        let config: Value = serde_json::from_str(&plan.programs[0].tf_config).unwrap();
        assert_eq!((&config["cluster"], &config["task"]), (&json!({}), &json!({})));
        assert_eq!(config["environment"], "cloud");
    }

    #[test]
    fn programs_of_a_cluster_have_ports_in_a_row() {
        let plan = plan(&request(Some(CLUSTER))).unwrap();
        let names: Vec<&str> = plan.programs.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"]);
        let config: Value = serde_json::from_str(&plan.programs[2].tf_config).unwrap();
        let cluster = json!({ "chief": ["localhost:27182"],
            "worker": ["localhost:27183", "localhost:27184"], "ps": ["localhost:27185"] });
        assert_eq!(config["cluster"], cluster);
        assert_eq!(config["task"], json!({ "type": "worker", "index": 1 }));
    }

    #[test]
    fn ports_beyond_the_last_are_refused() {
        let cluster = LocalCluster { start_port: 65_534, ..CLUSTER };
        assert!(plan(&request(Some(cluster))).unwrap_err().what.contains("65537"));
    }
}
