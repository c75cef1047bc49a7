//! Finds a stand-alone run that continues without its agent: the same command then watches that run
//! again and starts no second one.
//!
//! Not here: watching it, or starting anything.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;

use crate::adapters::host::files::LocalFiles;
use crate::adapters::workstation::process_env;
use crate::agent::{AGENT_STATE_FILE, AgentState, start_dir};
use crate::job::JobId;
use crate::ports::{Clock, Files, Launch, Workloads};

/// The lock of the agent that watches the run of this state folder.
pub(crate) fn lock(state: &Path) -> PathBuf {
    state.join("watched.lock")
}

/// Finds a run of the same command in this folder that continues without its agent. A second start
/// would mean two trainings on one GPU. Returns the job to watch again.
pub(crate) async fn find(
    root: &Path,
    argv: &[String],
    work: &Path,
    workloads: &dyn Workloads,
    clock: &dyn Clock,
) -> Option<JobId> {
    for state in process_env::folders_below(&root.join("runs")).into_iter().rev() {
        let Some(job) = state
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse::<JobId>().ok())
        else {
            continue;
        };
        let read = |path: PathBuf| LocalFiles.read(&path).ok().flatten();
        let memory: Option<AgentState> = read(state.join(AGENT_STATE_FILE))
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(memory) = memory.filter(|memory| memory.start > 0) else { continue };
        let start = start_dir(&state, memory.start);
        let launch: Option<Launch> =
            read(start.join("launch.json")).and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if !launch.is_some_and(|launch| launch.argv == argv && launch.cwd == work) {
            continue;
        }
        // Another agent watches it: this is an intended second run.
        if is_watched(&state, clock).await {
            continue;
        }
        if may_run(&start, workloads).await {
            return Some(job);
        }
    }
    None
}

async fn may_run(start: &Path, workloads: &dyn Workloads) -> bool {
    match workloads.attach(start).await {
        Ok(Some(workload)) => workload.ended().now_or_never().is_none(),
        Ok(None) => false,
        // The workload may run: the agent attaches again before it starts anything.
        Err(error) => !error.is_final(),
    }
}

/// How long the state folder of a killed run is kept. The folders of machines are kept as long.
const KEEP: Duration = Duration::from_secs(7 * 86_400);

/// Removes the state folders of ended runs; their records stay below `jobs`. `workloads` must be
/// able to attach to such runs.
pub(crate) async fn forget_old(root: &Path, workloads: &dyn Workloads) {
    for state in process_env::folders_below(&root.join("runs")) {
        let Some(job) = state
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse::<JobId>().ok())
        else {
            continue;
        };
        let has_outcome =
            root.join("jobs").join(job.as_str()).join("attempts/0001/outcome.json").is_file();
        let is_silent =
            process_env::age(&state.join("heartbeat.json")).is_some_and(|age| age >= KEEP);
        if state.is_symlink() || !(has_outcome || is_silent) {
            continue;
        }
        let mut runs = false;
        for start in process_env::folders_below(&state.join("starts")) {
            runs |= may_run(&start, workloads).await;
        }
        // An agent that has written its outcome may still run.
        let held = if runs { None } else { process_env::lock(&lock(&state)).ok().flatten() };
        if held.is_some()
            && let Err(error) = LocalFiles.remove(&state)
        {
            tracing::warn!("what an ended run left is not removed: {}: {error}", state.display());
        }
    }
}

/// How long a killed agent may still hold its lock: until its last thread is gone, shortly after
/// `pkill -9` returns. Longer delays an intended second run. Shorter starts the work twice on a
/// busy machine.
const DYING: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);

async fn is_watched(state: &Path, clock: &dyn Clock) -> bool {
    let end = clock.mono() + DYING;
    while !matches!(process_env::lock(&lock(state)), Ok(Some(_))) {
        if clock.mono() >= end {
            return true;
        }
        clock.sleep(LOOK_EVERY).await;
    }
    false
}
