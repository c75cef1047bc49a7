//! Workloads in systemd units: one control group holds all processes of a workload, and the kernel
//! counts and kills them.
//!
//! The holder is the unit's main process. The settings come from `systemd/lamp-workload.service`,
//! which is compiled in, so the documented unit is the real one.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::path::Path;
use std::process::Stdio;

use async_trait::async_trait;
use tokio::process::Command;

use super::holder::cgroup::unit_name;
use super::holder::start::{HolderProgram, absolute, attach, await_first_word, prepare};
use crate::ports::{Launch, Workload, WorkloadError, Workloads};

/// The documented unit.
const UNIT: &str = include_str!("../../../systemd/lamp-workload.service");

/// Workloads in transient units.
#[derive(Clone, Debug)]
pub struct UnitWorkloads {
    program: HolderProgram,
}

impl UnitWorkloads {
    /// For root on a machine that runs systemd.
    pub fn new(program: HolderProgram) -> Self {
        UnitWorkloads { program }
    }

    fn arguments(&self, launch: &Launch) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["--quiet", "--collect"].map(OsString::from).to_vec();
        arguments.push(format!("--unit={}", unit_name(&launch.name)).into());
        arguments.extend(
            properties(UNIT).map(|property| OsString::from(format!("--property={property}"))),
        );
        arguments.push("--".into());
        arguments.push(self.program.exe.clone().into());
        arguments.extend(self.program.arguments(&launch.dir));
        arguments
    }
}

/// The settings without the command and the description (systemd-run makes its own, with the
/// start's number in it).
fn properties(unit: &str) -> impl Iterator<Item = &str> {
    let settings =
        unit.lines().map(str::trim).filter(|line| line.contains('=') && !line.starts_with('#'));
    settings.filter(|line| !line.starts_with("Description=") && !line.starts_with("ExecStart="))
}

#[async_trait]
impl Workloads for UnitWorkloads {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let launch = &absolute(launch)?;
        let running = prepare(launch)?;
        let mut command = Command::new("systemd-run");
        command
            .args(self.arguments(launch))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let failed = |cause| WorkloadError::Failed { act: "start the unit of", cause };
        let answer = command.output().await.map_err(failed)?;
        if !answer.status.success() {
            let said = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
            return Err(failed(io::Error::other(format!(
                "systemd-run ended with {}: {said}",
                answer.status
            ))));
        }
        await_first_word(launch, running, pending()).await
    }

    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        attach(dir).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_unit_has_the_documented_settings() {
        let found: Vec<&str> = properties(UNIT).collect();
        for wanted in [
            "Before=lamp-agent.service",
            "Type=exec",
            "KillMode=control-group",
            "Delegate=yes",
            "OOMPolicy=continue",
            "TasksMax=infinity",
        ] {
            assert!(found.contains(&wanted), "{wanted} in {found:?}");
        }
        assert!(!found.iter().any(|property| property.starts_with("ExecStart")
            || property.starts_with('#')
            || property.starts_with("Description")));
    }

    #[test]
    fn command_comes_last_and_whole() {
        let program = HolderProgram {
            exe: "/opt/lamp".into(),
            leading: vec!["agent".into()],
            machine_pid: None,
            environment: None,
        };
        let launch = Launch {
            name: "digits-222222-0001-1".into(),
            argv: vec![],
            cwd: "/".into(),
            env: Default::default(),
            dir: "/var/lib/lamplighter/x y".into(),
            log_bytes_max: 0,
            echo: false,
            terminal: true,
        };
        let arguments = UnitWorkloads::new(program).arguments(&launch);
        assert!(arguments.contains(&"--unit=lamp-digits-222222-0001-1.service".into()));
        assert_eq!(
            arguments[arguments.len() - 5..],
            ["--", "/opt/lamp", "agent", "holder", "/var/lib/lamplighter/x y"].map(OsString::from)
        );
    }
}
