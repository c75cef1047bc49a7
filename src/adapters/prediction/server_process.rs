//! A program with a process group of its own, and its output in a file: a model server, or the
//! helper before it. The whole group ends with the value.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};

use crate::adapters::workstation::private_files;
use crate::ports::Clock;

#[derive(Clone, Debug)]
pub struct ServerProgram {
    pub argv: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub folder: PathBuf,
    /// Gets stdout and stderr.
    pub log: PathBuf,
}

pub struct ServerProcess {
    child: Child,
    group: Option<Pid>,
}

/// A server that does not end within this time after SIGTERM is killed. uvicorn needs a second.
const GRACE: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(50);

impl ServerProcess {
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &ServerProgram) -> io::Result<Self> {
        let (name, words) =
            program.argv.split_first().ok_or_else(|| io::Error::other("no command"))?;
        let log = private_files::create(&program.log)?;
        let mut command = Command::new(name);
        command.args(words).current_dir(&program.folder);
        command.envs(program.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        // SAFETY: prctl(2) is one system call; it touches no memory of ours between fork and exec.
        #[expect(unsafe_code, reason = "a killed lamp must not leave a server")]
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
            });
        }
        let child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(ServerProcess { child, group })
    }

    /// How the program ended. `None`: it runs.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// # Errors
    /// When the operating system does not say.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends the whole group: SIGTERM, then SIGKILL.
    pub async fn end(mut self, clock: &dyn Clock) {
        self.signal(Signal::TERM);
        let began = clock.mono();
        while self.is_alive() && clock.mono().saturating_sub(began) < GRACE {
            clock.sleep(LOOK_EVERY).await;
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
    }

    /// Whether a process of the group runs.
    fn is_alive(&mut self) -> bool {
        // Reaps the first process, which would count as alive otherwise.
        let _ = self.child.try_wait();
        self.group.is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// An end in words: `exit code 3`, `signal 9`.
pub fn end_in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
