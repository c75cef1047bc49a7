//! Wires the program of one rank of a gang, which the agent starts as the workload.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use crate::adapters::host::files::LocalFiles;
use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::rank::rank_machine::RankMachine;
use crate::adapters::rank::rank_network::RankNetwork;
use crate::adapters::workstation::{process_env, termination_signals};
use crate::agent::gang::{
    PROCESS_MARK, RANK_PROGRAM, RankPaths, RankPorts, RankRun, RankSelf, read_resolved,
};
use crate::job::{AttemptNo, JobId};
use crate::ports::{Clock, Launch, Store, Workload, WorkloadError, Workloads};

/// Starts workloads; a rank is started as this program, with the machine that it is on.
pub(super) struct RankWorkloads {
    pub inner: Arc<dyn Workloads>,
    /// This program with the words that start a rank.
    pub program: Vec<String>,
}

impl RankWorkloads {
    /// `place`: the arguments that say where the records of the gang are.
    pub fn of(
        inner: Arc<dyn Workloads>,
        exe: &Path,
        leading: &[OsString],
        place: Vec<String>,
    ) -> Self {
        let text = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
        let mut program = vec![text(exe.as_os_str())];
        program.extend(leading.iter().map(|word| text(word)));
        program.push("rank".to_owned());
        program.extend(place);
        program.push("--".to_owned());
        RankWorkloads { inner, program }
    }

    fn with_program(&self, launch: &Launch) -> Launch {
        match launch.argv.strip_prefix(&RANK_PROGRAM.map(String::from)) {
            Some(command) => {
                let argv = self.program.iter().chain(command).cloned().collect();
                Launch { argv, ..launch.clone() }
            }
            None => launch.clone(),
        }
    }
}

#[async_trait]
impl Workloads for RankWorkloads {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        self.inner.start(&self.with_program(launch)).await
    }

    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        self.inner.attach(dir).await
    }
}

/// Random, and long enough to be the token of an epoch.
fn unique_start() -> String {
    let parts = (0..3).flat_map(|_| process_env::random());
    parts.map(|byte| format!("{byte:02x}")).collect()
}

/// Runs a rank until its gang is over. Returns its exit code.
///
/// # Errors
/// When the variables of the agent are missing, or the job is no member of a gang.
pub(super) async fn run(
    store: Arc<dyn Store>,
    network: RankNetwork,
    command: Vec<String>,
) -> Result<i32, String> {
    let text = |name: &str| {
        process_env::variable(name)
            .map(|value| value.to_string_lossy().into_owned())
            .ok_or_else(|| format!("{name} is not set: the agent of a machine starts a rank"))
    };
    let job: JobId = text("LAMP_JOB")?.parse().map_err(|error| format!("LAMP_JOB: {error}"))?;
    let attempt: u32 =
        text("LAMP_ATTEMPT")?.parse().map_err(|error| format!("LAMP_ATTEMPT: {error}"))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let resolved = read_resolved(&store, &clock, &job)
        .await
        .map_err(|error| format!("cannot read job `{job}`: {error}"))?
        .ok_or_else(|| format!("job `{job}` is not in {}", store.url()))?;
    let me = RankSelf {
        attempt: AttemptNo::new(attempt),
        instance: text("LAMP_INSTANCE")?,
        start: unique_start(),
        gpus: text("LAMP_NUM_GPUS").ok().and_then(|gpus| gpus.parse().ok()),
        command,
    };
    let work = PathBuf::from(text("LAMP_WORKDIR")?);
    let rank = resolved.member().map_or(0, |member| member.rank);
    let reads = resolved.member().and_then(|member| member.reads.as_ref());
    let checkpoints = match reads {
        Some(folder) => work.join(folder),
        None => text("LAMP_CHECKPOINT_DIR")?.into(),
    };
    let notice = PathBuf::from(text("LAMP_NOTICE")?);
    let paths = RankPaths {
        hostfile: notice.with_file_name("gang-hostfile"),
        checkpoints,
        notice,
        progress: PathBuf::from(text("LAMP_PROGRESS")?),
    };
    let told = termination_signals::count()
        .map_err(|error| format!("cannot listen for signals: {error}"))?;
    let ports = RankPorts {
        store,
        clock,
        files: Arc::new(LocalFiles),
        host: Arc::new(RankMachine::new(network, rank, told, PROCESS_MARK)),
    };
    let run = RankRun::new(ports, me, paths, resolved)
        .ok_or_else(|| format!("job `{job}` is no member of a gang"))?;
    Ok(run.run().await)
}
