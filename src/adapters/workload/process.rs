//! Workloads without a service manager: this program starts the holder as a process.
//!
//! The holder leaves our session and process group at once, so it survives the end of the agent,
//! and a Ctrl-C at the terminal. After the start, it does not need the agent.

use std::path::Path;
use std::process::Stdio;

use async_trait::async_trait;
use tokio::process::Command;

use super::holder::start::{HolderProgram, absolute, attach, await_first_word, prepare};
use super::systemd_unit::UnitWorkloads;
use crate::adapters::workstation::private_files;
use crate::ports::{Launch, Workload, WorkloadError, Workloads};

/// The file in the state folder with the holder's error messages.
const COMPLAINTS: &str = "holder.err";

/// How the workload is separated from the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadIsolation {
    /// A systemd unit, if systemd runs the machine and we may use it; otherwise a process group.
    Own,
    /// Always a process group: the output is copied to our terminal, or the workload must end with
    /// a machine that is itself a process.
    ProcessGroup,
}

/// Chooses how this machine starts workloads.
pub fn workloads(program: HolderProgram, home: WorkloadIsolation) -> Box<dyn Workloads> {
    let systemd = sd_notify::booted().unwrap_or(false) && rustix::process::geteuid().is_root();
    if home == WorkloadIsolation::Own && systemd && program.machine_pid.is_none() {
        Box::new(UnitWorkloads::new(program))
    } else {
        Box::new(ChildWorkloads::new(program))
    }
}

/// Workloads behind holders that are children of this process.
#[derive(Clone, Debug)]
pub struct ChildWorkloads {
    program: HolderProgram,
}

impl ChildWorkloads {
    pub fn new(program: HolderProgram) -> Self {
        ChildWorkloads { program }
    }

    fn command(&self, launch: &Launch) -> Command {
        let mut command = Command::new(&self.program.exe);
        command.args(self.program.arguments(&launch.dir)).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(if launch.echo {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stderr(complaints(&launch.dir));
        command
    }
}

fn complaints(dir: &Path) -> Stdio {
    private_files::create(&dir.join(COMPLAINTS)).map_or_else(|_| Stdio::null(), Stdio::from)
}

#[expect(clippy::disallowed_methods, reason = "a file of the state folder")]
fn complained(dir: &Path) -> String {
    std::fs::read_to_string(dir.join(COMPLAINTS)).unwrap_or_default().trim().to_owned()
}

#[async_trait]
impl Workloads for ChildWorkloads {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let launch = &absolute(launch)?;
        let running = prepare(launch)?;
        let mut holder = self
            .command(launch)
            .spawn()
            .map_err(|cause| WorkloadError::Failed { act: "start the holder of", cause })?;
        // Dropping the child does not kill it; the runtime waits for it in the background.
        let gone = async {
            let status = holder
                .wait()
                .await
                .map_or_else(|error| error.to_string(), |status| status.to_string());
            format!("the holder ended with {status}: {}", complained(&launch.dir))
        };
        await_first_word(launch, running, gone).await
    }

    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        attach(dir).await
    }
}
