//! The switch of a real machine, and its harmless stand-ins for an agent that runs alone.
//!
//! ```text
//!   guard unit (survives the agent's own stop) ── repeats the forced steps on its own timer
//!   systemctl poweroff ── 60 s ── --force ── 30 s ── --force --force ── 10 s ── reboot(2)
//! ```
//!
//! A machine that cannot be put out goes on billing, so a step that fails or hangs only leads to the next, harder one.
//! What must never live here: whether to power off; and a test that uses [`SystemPower::new`].

use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ports::{Power, PowerError, PowerOff};

/// A clean shutdown stops services and unmounts disks within this on any healthy machine. Shorter, and a slow but healthy
/// unmount is cut; longer, and a machine with a hung mount breaks the promise of 120 s from exit to dark.
const CLEAN_WAIT: Duration = Duration::from_secs(60);
/// `--force` skips the services and only unmounts. Shorter than the clean wait because less is left to do.
const FORCED_WAIT: Duration = Duration::from_secs(30);
/// `--force --force` asks the kernel at once; a machine that is still there after this has ignored it.
const HARD_WAIT: Duration = Duration::from_secs(10);
/// How long the service manager may take to start the guard. Longer eats into the 120 s, shorter fails on a busy machine.
const GUARD_WAIT: Duration = Duration::from_secs(5);

/// The unit that goes on escalating after systemd, shutting down, has stopped the agent: without default dependencies it
/// is not stopped itself. Its waits are those of the agent's own ladder.
const GUARD_SCRIPT: &str = "sleep 60; systemctl poweroff --force; sleep 30; systemctl poweroff --force --force";

/// One rung of the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub argv: Vec<String>,
    /// How long to wait, from the start of the command, before the next rung when the command succeeded.
    pub wait: Duration,
    /// Whether success leads to the next rung at once: a preparation, not a power-off.
    pub preparation: bool,
}

/// Powers this machine off, escalating.
#[derive(Debug)]
pub struct SystemPower {
    steps: Vec<Step>,
    /// The last rung: `reboot(2)`, without asking anybody.
    syscall: bool,
}

impl SystemPower {
    /// The real ladder. From here on [`Power::off`] puts this machine out.
    #[expect(clippy::new_without_default, reason = "a machine is never powered off by default")]
    pub fn new() -> Self {
        SystemPower { steps: real_steps(), syscall: true }
    }

    /// A ladder of other commands, without the system call: for `--dry-run` and for tests.
    pub fn with_steps(steps: Vec<Step>) -> Self {
        SystemPower { steps, syscall: false }
    }
}

fn real_steps() -> Vec<Step> {
    let guard = ["systemd-run", "--quiet", "--collect", "--unit=lamp-poweroff", "--property=DefaultDependencies=no", "/bin/sh", "-c", GUARD_SCRIPT];
    let power = |extra: &[&str], wait| Step::new(&[&["systemctl", "--ignore-inhibitors", "poweroff"], extra].concat(), wait);
    vec![
        Step { preparation: true, ..Step::new(&guard, GUARD_WAIT) },
        power(&[], CLEAN_WAIT),
        power(&["--force"], FORCED_WAIT),
        power(&["--force", "--force"], HARD_WAIT),
    ]
}

impl Step {
    pub fn new(argv: &[&str], wait: Duration) -> Self {
        Step { argv: argv.iter().map(|part| (*part).to_owned()).collect(), wait, preparation: false }
    }

    /// Runs the rung; true when the command did what it should within its time, or when a signal ended it.
    async fn take(&self) -> bool {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        match timeout(self.wait, command.status()).await {
            Ok(Ok(status)) if status.success() => true,
            // Somebody ended the command: most likely the shutdown that it asked for, which a harder step would cut short.
            Ok(Ok(status)) if status.code().is_none() => true,
            Ok(Ok(status)) => {
                tracing::warn!(command = ?self.argv, %status, "a power-off command failed");
                false
            }
            Ok(Err(error)) => {
                tracing::warn!(command = ?self.argv, %error, "a power-off command did not start");
                false
            }
            Err(_) => {
                tracing::warn!(command = ?self.argv, "a power-off command hangs");
                false
            }
        }
    }
}

#[async_trait]
impl Power for SystemPower {
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        tracing::warn!(?how, why, "powering this machine off");
        for step in &self.steps {
            let next = Instant::now() + step.wait;
            tracing::info!(command = ?step.argv, "power-off step");
            if step.take().await && !step.preparation {
                sleep_until(next).await;
            }
        }
        if self.syscall {
            tracing::error!("the machine is still on: asking the kernel itself");
            let refused = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
            return Err(PowerError::StillOn { what: format!("the kernel answers {refused:?}") });
        }
        Err(PowerError::StillOn { what: format!("still on after {} steps", self.steps.len()) })
    }
}

/// `--then CMD`: a command of the user's, by the shell, with the reason in `LAMP_REASON`.
#[derive(Clone, Debug)]
pub struct ThenCommand(pub String);

impl ThenCommand {
    fn failed(&self, how: String) -> PowerError {
        PowerError::Then { command: self.0.clone(), how }
    }
}

#[async_trait]
impl Power for ThenCommand {
    async fn off(&self, _how: PowerOff, why: &str) -> Result<(), PowerError> {
        let status = Command::new("/bin/sh").args(["-c", &self.0]).env("LAMP_REASON", why).stdin(Stdio::null()).status().await;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.failed(match status.code() {
                Some(code) => format!("ended with exit code {code}"),
                None => format!("was ended by a signal ({status})"),
            })),
            Err(error) => Err(self.failed(format!("did not start: {error}"))),
        }
    }
}

/// `--then exit`: the machine stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThenExit;

#[async_trait]
impl Power for ThenExit {
    async fn off(&self, _how: PowerOff, why: &str) -> Result<(), PowerError> {
        tracing::info!(why, "done; the machine stays on");
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test reads what the commands wrote")]
mod tests {
    use super::*;

    /// A rung that writes its name and then does `rest`.
    fn rung(file: &std::path::Path, name: &str, rest: &str, wait: Duration) -> Step {
        Step::new(&["sh", "-c", &format!("echo {name} >> '{}'; {rest}", file.display())], wait)
    }

    #[tokio::test]
    async fn the_ladder_is_climbed_to_its_end_whatever_a_rung_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("climbed");
        let long = Duration::from_secs(600);
        let short = Duration::from_millis(300);
        let power = SystemPower::with_steps(vec![
            Step { preparation: true, ..rung(&file, "guard", "true", long) },
            rung(&file, "clean-but-fails", "exit 1", long),
            Step::new(&["/nonexistent/poweroff"], long),
            rung(&file, "hangs", "exec sleep 600", short),
            rung(&file, "ended-by-the-shutdown", "kill -TERM $$", short),
            rung(&file, "works-but-nothing-happens", "true", short),
        ]);
        let still_on = power.off(PowerOff::Terminate, "a test").await.expect_err("this machine stays on");
        assert_eq!(still_on.to_string(), "cannot power off: still on after 6 steps");
        let climbed = std::fs::read_to_string(&file).expect("written");
        assert_eq!(
            climbed, "guard\nclean-but-fails\nhangs\nended-by-the-shutdown\nworks-but-nothing-happens\n",
            "long waits are only taken after success"
        );
    }

    #[test]
    fn the_real_ladder_fits_into_120_seconds() {
        let total: Duration = real_steps().iter().map(|step| step.wait).sum();
        assert!(total <= Duration::from_secs(120), "{total:?}");
        assert!(real_steps()[0].preparation && real_steps().iter().skip(1).all(|step| !step.preparation));
    }

    #[tokio::test]
    async fn a_command_of_the_users_learns_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("why");
        let then = ThenCommand(format!("printf %s \"$LAMP_REASON\" > '{}'", file.display()));
        then.off(PowerOff::Stop, "idle for 15m").await.expect("it works");
        assert_eq!(std::fs::read_to_string(&file).expect("written"), "idle for 15m");
        let failed = ThenCommand("exit 3".into()).off(PowerOff::Stop, "x").await.expect_err("it fails");
        assert_eq!(failed.to_string(), "the command of `--then` failed: `exit 3` ended with exit code 3");
        ThenExit.off(PowerOff::Terminate, "x").await.expect("nothing to fail");
    }
}
