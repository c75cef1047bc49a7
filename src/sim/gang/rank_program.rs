//! The shipped program of a rank, as the workload of a simulated machine.
//!
//! Not here: the engine that it starts (`super::training`).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::sync::watch;

use super::training::TrainingEngine;
use crate::agent::gang::{RANK_PROGRAM, RankPaths, RankPorts, RankRun, RankSelf, read_resolved};
use crate::job::{AttemptNo, JobId};
use crate::ports::{Clock, Files, Launch, RankAddress, RankHost, RankLaunch, RankProcess, Store};
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::host::Host;
use crate::sim::world::host_ports::HostClock;
use crate::sim::world::process_ports::Through;
use crate::sim::world::store::Line;
use crate::sim::world::workload::Start;

/// The exit code of a rank that cannot begin.
const CANNOT_BEGIN: i32 = 2;

/// The ports that the kernel gives out.
const PORT_MIN: u64 = 32_768;

/// Whether a machine of a gang starts a rank.
pub(crate) fn is_rank(host: &Host, launch: &Launch) -> bool {
    host.world.gang().is_some() && launch.argv.starts_with(&RANK_PROGRAM.map(String::from))
}

/// Runs a rank until its gang is over.
pub(crate) async fn run(start: &Arc<Start>, host: &Arc<Host>) {
    begins_to_wait(start, host);
    let (tell, told) = watch::channel(false);
    let rank = async {
        let Some(run) = rank_run(start, host, told).await else { return CANNOT_BEGIN };
        run.run().await
    };
    let relay = async {
        loop {
            start.told.notified().await;
            let _kept = tell.send_replace(true);
        }
    };
    let code = tokio::select! {
        biased;
        code = rank => code,
        () = relay => CANNOT_BEGIN,
    };
    start.end(code);
}

/// From now on it computes nothing.
pub(super) fn begins_to_wait(start: &Start, host: &Host) {
    let now = host.world.timeline.now();
    start.busy.store(false, Ordering::Relaxed);
    start.change(|truth| {
        truth.quiet_since.get_or_insert(now);
    });
}

/// As `wire::rank` makes it from the variables of the agent.
async fn rank_run(
    start: &Arc<Start>,
    host: &Arc<Host>,
    told: watch::Receiver<bool>,
) -> Option<RankRun> {
    let text = |name: &str| start.launch.env.get(name).cloned();
    let job: JobId = text("LAMP_JOB")?.parse().ok()?;
    let attempt = AttemptNo::new(text("LAMP_ATTEMPT")?.parse().ok()?);
    let ports = ports(start, host, told);
    let resolved = read_resolved(&ports.store, &ports.clock, &job).await.ok()??;
    let member = resolved.member()?.clone();
    let checkpoints = match &member.reads {
        Some(folder) => PathBuf::from(text("LAMP_WORKDIR")?).join(folder),
        None => text("LAMP_CHECKPOINT_DIR")?.into(),
    };
    let notice = PathBuf::from(text("LAMP_NOTICE")?);
    let paths = RankPaths {
        hostfile: notice.with_file_name("gang-hostfile"),
        checkpoints,
        notice,
        progress: PathBuf::from(text("LAMP_PROGRESS")?),
    };
    let words = start.launch.argv.get(RANK_PROGRAM.len()..)?;
    let dice = &host.world.gang()?.dice;
    let me = RankSelf {
        attempt,
        instance: text("LAMP_INSTANCE")?,
        start: format!("{:016x}", dice.roll(u64::MAX)),
        gpus: text("LAMP_NUM_GPUS").and_then(|gpus| gpus.parse().ok()),
        command: words.to_vec(),
    };
    RankRun::new(ports, me, paths, resolved)
}

fn ports(start: &Arc<Start>, host: &Arc<Host>, told: watch::Receiver<bool>) -> RankPorts {
    let process = &start.life;
    let line = Line {
        world: Arc::clone(&host.world),
        who: host.id.clone(),
        cut_by: WorldFault::MachineOffline,
        disk: Some(Arc::clone(&host.disk)),
    };
    let store: Arc<dyn Store> = Through::<dyn Store>::new(process, Arc::new(line));
    let clock: Arc<dyn Clock> =
        Arc::new(HostClock { host: Arc::clone(host), process: Arc::clone(process) });
    let files: Arc<dyn Files> =
        Through::<dyn Files>::new(process, Arc::clone(&host.disk) as Arc<dyn Files>);
    let machine = SimRankHost { host: Arc::clone(host), start: Arc::clone(start), told };
    RankPorts { store, clock, files, host: Arc::new(machine) }
}

/// The machine of a rank.
struct SimRankHost {
    host: Arc<Host>,
    start: Arc<Start>,
    told: watch::Receiver<bool>,
}

#[async_trait]
impl RankHost for SimRankHost {
    fn address(&self) -> io::Result<RankAddress> {
        let gang = self.host.world.gang().ok_or(io::ErrorKind::Unsupported)?;
        let port = PORT_MIN + gang.dice.roll(u64::from(u16::MAX) - PORT_MIN);
        Ok(RankAddress {
            host: format!(
                "10.0.0.{}",
                self.host.id.trim_start_matches("i-").trim_start_matches('0')
            ),
            interface: Some("ens5".to_owned()),
            port: u16::try_from(port).unwrap_or(u16::MAX),
        })
    }

    fn start(&self, launch: &RankLaunch) -> io::Result<Box<dyn RankProcess>> {
        Ok(Box::new(TrainingEngine::start(&self.host, &self.start, launch)))
    }

    async fn told_to_end(&self) {
        let mut told = self.told.clone();
        if told.wait_for(|told| *told).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn say(&self, text: &str) {
        self.start.print(&self.host, text);
    }
}

/// The variables of an engine as text; empty if it is not there.
pub(super) fn variable(env: &BTreeMap<String, String>, name: &str) -> String {
    env.get(name).cloned().unwrap_or_default()
}
