//! Powers off a real machine.
//!
//! ```text
//!   guard unit (survives the agent's own stop) ── repeats the forced steps, then asks the kernel
//!   systemctl poweroff ── 60 s ── --force ── 30 s ── --force --force ── 10 s ── reboot(2)
//! ```
//! `--force` hands over to systemd-shutdown, which may wait minutes for processes and mounts.
//! `--force --force` begins with a sync, which never ends on a hung disk or mount. So a harder step
//! must follow both.
//!
//! A machine that stays on keeps billing, so a step that fails or hangs leads to the next. Not
//! here: whether to power off; or a test that uses [`SystemPower::new`].

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ports::{Power, PowerError, PowerOff};

/// A clean shutdown of a healthy machine is done within this. Shorter cuts a slow unmount. Longer
/// breaks the promise of 120 s from exit to power-off when a mount hangs.
const CLEAN_WAIT: Duration = Duration::from_secs(60);
/// `--force` skips the services and only unmounts, so it needs less time.
const FORCED_WAIT: Duration = Duration::from_secs(30);
/// `--force --force` asks the kernel at once. After this time the kernel has ignored it.
const HARD_WAIT: Duration = Duration::from_secs(10);
/// Time for the service manager to start the guard. Longer uses up the 120 s; shorter fails on a
/// busy machine.
const GUARD_WAIT: Duration = Duration::from_secs(5);

/// The unit that continues after systemd has stopped the agent. It has no default dependencies, so
/// systemd does not stop it. The @ in its name keeps systemd-shutdown from killing it. It waits as
/// long as the agent's own steps, by a clock that a killed `sleep` cannot shorten. It does not wait
/// for a step to finish, and its last step needs no program.
///
/// Each `sleep` is a child of systemd: systemd-shutdown kills it and is told at once. For another
/// process's child it waits 10 s (`wait_for_children` in src/shutdown/shutdown.c).
const GUARD_SCRIPT: &str = "up() { read -r up rest </proc/uptime; up=$${up%.*}; }; \
    after() { up; end=$$((up + $$1)); while [ $$up -lt $$end ]; do slept=$$( (sleep 1 &) ); up; done; }; \
    after 60; systemctl poweroff --force & after 30; systemctl poweroff --force --force & after 10; echo o >/proc/sysrq-trigger";

/// One step of the power-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerOffStep {
    pub argv: Vec<String>,
    /// Time from the start of the command to the next step, if the command succeeds.
    pub wait: Duration,
    /// Preparation: success leads to the next step at once.
    pub preparation: bool,
}

/// Powers this machine off, in harder and harder steps.
#[derive(Debug)]
pub struct SystemPower {
    steps: Vec<PowerOffStep>,
    /// Whether `reboot(2)` is the last step.
    syscall: bool,
}

impl SystemPower {
    /// The real steps: [`Power::off`] then powers this machine off.
    #[expect(clippy::new_without_default, reason = "a machine is never powered off by default")]
    pub fn new() -> Self {
        SystemPower { steps: real_steps(), syscall: true }
    }

    /// For tests: the real steps with programs from a folder, and no system call.
    pub fn with_programs_of(folder: &std::path::Path, faster: u32) -> Self {
        let own = |step: PowerOffStep| PowerOffStep {
            argv: std::iter::once(folder.join(&step.argv[0]).display().to_string())
                .chain(step.argv[1..].iter().cloned())
                .collect(),
            wait: step.wait / faster,
            ..step
        };
        SystemPower::with_steps(real_steps().into_iter().map(own).collect())
    }

    /// For `--dry-run` and tests: other commands, and no system call.
    pub fn with_steps(steps: Vec<PowerOffStep>) -> Self {
        SystemPower { steps, syscall: false }
    }
}

fn real_steps() -> Vec<PowerOffStep> {
    // systemd-run takes no `@` name for its own command, only in `ExecStartPre`.
    let script = format!("--property=ExecStartPre=@/bin/sh @lamp-poweroff -c '{GUARD_SCRIPT}'");
    let unit = [
        "--unit=lamp-poweroff",
        "--property=DefaultDependencies=no",
        "--property=TimeoutStartSec=infinity",
    ];
    let guard = [
        &["systemd-run", "--quiet", "--collect", "--no-block"],
        &unit[..],
        &[&script, "/bin/true"],
    ]
    .concat();
    let power = |extra: &[&str], wait| {
        PowerOffStep::new(
            &[&["systemctl", "--ignore-inhibitors", "poweroff"], extra].concat(),
            wait,
        )
    };
    vec![
        PowerOffStep { preparation: true, ..PowerOffStep::new(&guard, GUARD_WAIT) },
        power(&[], CLEAN_WAIT),
        power(&["--force"], FORCED_WAIT),
        power(&["--force", "--force"], HARD_WAIT),
    ]
}

impl PowerOffStep {
    pub fn new(argv: &[&str], wait: Duration) -> Self {
        PowerOffStep {
            argv: argv.iter().map(|part| (*part).to_owned()).collect(),
            wait,
            preparation: false,
        }
    }

    /// Runs the step; true if the command succeeded in time or was ended by a signal.
    async fn take(&self) -> bool {
        match timeout(self.wait, self.run()).await {
            Ok(Ok(status)) if status.success() => true,
            // A signal most likely means that the shutdown has begun. A harder step would cut it
            // short.
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

    async fn run(&self) -> std::io::Result<ExitStatus> {
        let mut command = Command::new(&self.argv[0]);
        command
            .args(&self.argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        // On its own thread: starting a program reads the disk, which may hang.
        spawn_blocking(move || command.spawn()).await.map_err(std::io::Error::other)??.wait().await
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test reads what the commands wrote")]
mod tests {
    use super::*;

    /// A step that writes its name and then runs `rest`.
    fn rung(file: &std::path::Path, name: &str, rest: &str, wait: Duration) -> PowerOffStep {
        PowerOffStep::new(
            &["sh", "-c", &format!("echo {name} >> '{}'; {rest}", file.display())],
            wait,
        )
    }

    #[tokio::test]
    async fn ladder_is_climbed_to_its_end_whatever_a_rung_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("climbed");
        let long = Duration::from_secs(600);
        let short = Duration::from_millis(300);
        let power = SystemPower::with_steps(vec![
            PowerOffStep { preparation: true, ..rung(&file, "guard", "true", long) },
            rung(&file, "clean-but-fails", "exit 1", long),
            PowerOffStep::new(&["/nonexistent/poweroff"], long),
            rung(&file, "hangs", "exec sleep 600", short),
            rung(&file, "ended-by-the-shutdown", "kill -TERM $$", short),
            rung(&file, "works-but-nothing-happens", "true", short),
        ]);
        let still_on =
            power.off(PowerOff::Terminate, "a test").await.expect_err("this machine stays on");
        assert_eq!(still_on.to_string(), "cannot power off: still on after 6 steps");
        let climbed = std::fs::read_to_string(&file).expect("written");
        assert_eq!(
            climbed,
            "guard\nclean-but-fails\nhangs\nended-by-the-shutdown\nworks-but-nothing-happens\n",
            "long waits are only taken after success"
        );
    }

    /// Runs with fake `systemctl` and `systemd-run` that record their calls.
    async fn climbed(systemd_run: &str, systemctl: &str) -> (String, String) {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        for (name, rest) in [("systemd-run", systemd_run), ("systemctl", systemctl)] {
            let script = format!(
                "#!/bin/sh\necho {name} \"$@\" >> '{}'\n{rest}\n",
                folder.path().join("calls").display()
            );
            std::fs::write(folder.path().join(name), script).expect("a program");
            std::fs::set_permissions(
                folder.path().join(name),
                std::fs::Permissions::from_mode(0o755),
            )
            .expect("it may run");
        }
        // Eight times as fast: 7.5, 4 and 1.3 s, and 0.6 s for the guard.
        let power = SystemPower::with_programs_of(folder.path(), 8);
        let said = power
            .off(PowerOff::Terminate, "a test")
            .await
            .expect_err("this machine stays on")
            .to_string();
        (std::fs::read_to_string(folder.path().join("calls")).unwrap_or_default(), said)
    }

    #[tokio::test]
    async fn every_power_off_step_runs_when_an_earlier_fails_or_hangs() {
        let rungs = [
            "systemctl --ignore-inhibitors poweroff",
            "systemctl --ignore-inhibitors poweroff --force",
            "systemctl --ignore-inhibitors poweroff --force --force",
        ];
        let cases = [
            ("exit 0", "exit 0"),
            ("exit 1", "exit 1"),
            ("exit 0", "exec sleep 600"),
            ("exit 1", "kill -TERM $$"),
        ];
        let climbs = cases.map(|(systemd_run, systemctl)| climbed(systemd_run, systemctl));
        for ((systemd_run, systemctl), (calls, said)) in
            cases.into_iter().zip(futures::future::join_all(climbs).await)
        {
            let called: Vec<&str> =
                calls.lines().filter(|line| line.starts_with("systemctl")).collect();
            assert_eq!(called, rungs, "{systemd_run}, {systemctl}");
            assert!(
                calls.starts_with("systemd-run --quiet --collect --no-block --unit=lamp-poweroff"),
                "the guard first: {calls}"
            );
            assert_eq!(said, "cannot power off: still on after 4 steps");
        }
        // A hanging guard delays nothing.
        let (calls, _) = climbed("exec sleep 600", "exit 0").await;
        assert_eq!(
            calls.lines().filter(|line| line.starts_with("systemctl")).collect::<Vec<_>>(),
            rungs
        );
    }

    /// Shell built-ins and `sleep` alone reach the last step, even when `systemctl` hangs.
    #[test]
    fn guard_asks_the_kernel_after_100_seconds_if_its_steps_hang() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
        let (uptime, kernel) = (path("uptime"), path("kernel"));
        let slept = format!(
            "read -r up rest < '{uptime}'; echo \"$((${{up%.*}} + $1)).50 1.00\" > '{uptime}'"
        );
        for (name, rest) in [("systemctl", "exec /bin/sleep 5"), ("sleep", slept.as_str())] {
            std::fs::write(
                path(name),
                format!("#!/bin/sh\necho {name} \"$@\" >> '{}'\n{rest}\n", path("calls")),
            )
            .expect("a program");
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755))
                .expect("it may run");
        }
        std::fs::write(&uptime, "1000.50 1.00\n").expect("written");
        let script = GUARD_SCRIPT
            .replace("$$", "$")
            .replace("/proc/uptime", &uptime)
            .replace("/proc/sysrq-trigger", &kernel);
        assert!(
            !script.contains("/proc/"),
            "it would power off the machine of this test: {script}"
        );
        let mut shell = std::process::Command::new("/bin/sh");
        shell
            .args(["-c", &script])
            .env_clear()
            .env("PATH", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        assert!(shell.status().expect("a shell").success());
        let calls = std::fs::read_to_string(path("calls")).expect("written");
        let rungs: Vec<&str> = calls.lines().filter(|line| !line.starts_with("sleep")).collect();
        assert_eq!(rungs, ["systemctl poweroff --force", "systemctl poweroff --force --force"]);
        assert!(
            std::fs::read_to_string(&uptime).expect("written").starts_with("1100."),
            "after 100 seconds"
        );
        assert_eq!(std::fs::read_to_string(&kernel).expect("written"), "o\n");
    }

    #[test]
    fn real_ladder_fits_into_120_seconds() {
        let total: Duration = real_steps().iter().map(|step| step.wait).sum();
        assert!(total <= Duration::from_secs(120), "{total:?}");
        assert!(
            real_steps()[0].preparation
                && real_steps().iter().skip(1).all(|step| !step.preparation)
        );
    }
}
