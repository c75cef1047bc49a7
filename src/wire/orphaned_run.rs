//! A stand-alone run whose agent is gone while its work goes on: the same words typed again watch it, and start nothing.
//!
//! What must never live here: watching it, or starting anything.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;

use crate::adapters::host::files::LocalFiles;
use crate::adapters::workstation::process_env;
use crate::agent::{MEMORY, Memory, start_dir};
use crate::job::JobId;
use crate::ports::{Clock, Files, Launch, Workloads};

/// Held by the agent that watches the run of this state folder.
pub(crate) fn lock(state: &Path) -> PathBuf {
    state.join("watched.lock")
}

/// The same command, started in this folder by an agent that is gone, and still running: starting it a second time would
/// be two trainings on one GPU. Its job, to be watched again.
pub(crate) async fn find(root: &Path, argv: &[String], work: &Path, workloads: &dyn Workloads, clock: &dyn Clock) -> Option<JobId> {
    for state in process_env::folders_below(&root.join("runs")).into_iter().rev() {
        let Some(job) = state.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<JobId>().ok()) else { continue };
        let read = |path: PathBuf| LocalFiles.read(&path).ok().flatten();
        let memory: Option<Memory> = read(state.join(MEMORY)).and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(memory) = memory.filter(|memory| memory.start > 0) else { continue };
        let start = start_dir(&state, memory.start);
        let launch: Option<Launch> = read(start.join("launch.json")).and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if !launch.is_some_and(|launch| launch.argv == argv && launch.cwd == work) {
            continue;
        }
        // Somebody watches it: this is a second run, and meant to be one.
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
        // The work may run: the agent asks again before it starts anything.
        Err(error) => !error.is_final(),
    }
}

/// How long the state folder of a killed run is kept for a look. Folders of machines are kept for the same time.
const KEEP: Duration = Duration::from_secs(7 * 86_400);

/// Removes the state folders of runs that are over; what they were is in their records, below `jobs`. `workloads` must know the work of
/// such runs. It takes the locks of runs that are over, and of those alone.
pub(crate) async fn forget_old(root: &Path, workloads: &dyn Workloads) {
    for state in process_env::folders_below(&root.join("runs")) {
        let Some(job) = state.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<JobId>().ok()) else { continue };
        let has_outcome = root.join("jobs").join(job.as_str()).join("attempts/0001/outcome.json").is_file();
        let is_silent = process_env::age(&state.join("heartbeat.json")).is_some_and(|age| age >= KEEP);
        if state.is_symlink() || !(has_outcome || is_silent) {
            continue;
        }
        let mut runs = false;
        for start in process_env::folders_below(&state.join("starts")) {
            runs |= may_run(&start, workloads).await;
        }
        // An agent that has written its outcome may not have ended yet.
        let held = if runs { None } else { process_env::lock(&lock(&state)).ok().flatten() };
        if held.is_some()
            && let Err(error) = LocalFiles.remove(&state)
        {
            tracing::warn!("what an ended run left is not removed: {}: {error}", state.display());
        }
    }
}

/// How long an agent that was killed may hold its lock: until the last of its threads is gone, a moment after `pkill -9` has returned.
/// Longer, and a second run that is meant to be one waits for it; shorter, and on a busy machine the work is started twice.
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
