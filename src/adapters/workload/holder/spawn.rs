//! Starts the workload for the holder: its pipe, environment, group, and out-of-memory score.

#![expect(clippy::disallowed_methods, reason = "reads and writes /proc/self/oom_score_adj")]

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pipe::fcntl_setpipe_size;

use super::cgroup::Groups;
use super::pseudo_terminal::{self, PseudoTerminal};
use super::records::{WorkloadEnd, mark};
use crate::adapters::workload::saved_environment::Variable;
use crate::ports::Launch;

/// The pipe between the workload and its holder, as large as any user may have. If it is smaller
/// (64 KiB by default), a burst of output makes the workload wait for the holder.
pub const PIPE_BYTES: usize = 1 << 20;

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// A new workload.
pub struct Spawned {
    pub pid: u32,
    /// The reading end of its output.
    pub output: File,
    /// Why it has no terminal, if it should have one.
    pub no_terminal: Option<io::Error>,
}

/// Starts the command in its own process group, with this environment and the variables of the
/// launch.
pub fn spawn(
    dir: &Path,
    launch: &Launch,
    groups: Option<&Groups>,
    environment: Vec<Variable>,
) -> Result<Spawned, WorkloadEnd> {
    let not_started = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| WorkloadEnd::NotStarted {
            what,
            errno: error.raw_os_error().unwrap_or(0),
        }
    };
    // A missing folder and a missing program give the same error.
    let folder = fs::metadata(&launch.cwd).and_then(|found| {
        if found.is_dir() { Ok(()) } else { Err(rustix::io::Errno::NOTDIR.into()) }
    });
    folder
        .map_err(not_started(&format!("enter the working directory `{}`", launch.cwd.display())))?;
    let Some((program, arguments)) = launch.argv.split_first() else {
        return Err(WorkloadEnd::CannotExecute {
            program: String::new(),
            errno: rustix::io::Errno::NOENT.raw_os_error(),
        });
    };
    let terminal = launch.terminal.then(PseudoTerminal::open).transpose();
    let no_terminal = terminal.as_ref().err().map(|error| io::Error::from(error.kind()));
    let has_terminal = matches!(terminal, Ok(Some(_)));
    let (output, writer) = match terminal {
        Ok(Some(terminal)) => (terminal.reader, terminal.writer),
        Ok(None) | Err(_) => pipe().map_err(not_started("make the pipe for its output"))?,
    };
    let errors = writer.try_clone().map_err(not_started("make the pipe for its output"))?;

    let mut command = Command::new(program);
    let (name, value) = mark(dir);
    // Not the agent's own environment: it comes from the agent's launcher. The job's own `env`
    // comes after it.
    command.env_clear().envs(environment);
    if has_terminal {
        command.envs(pseudo_terminal::variables(launch));
    }
    command.args(arguments).current_dir(&launch.cwd).envs(&launch.env).env(name, value);
    command.stdin(Stdio::null()).stdout(writer).stderr(errors).process_group(0);
    let spawned = with_ordinary_oom_score(|| match groups {
        Some(groups) => groups.inside(|| command.spawn()),
        None => command.spawn(),
    });
    match spawned {
        Ok(child) => Ok(Spawned { pid: child.id(), output, no_terminal }),
        Err(error) => Err(refusal(program, &error)),
    }
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let (output, writer) = io::pipe()?;
    // A smaller pipe works too.
    let _ = fcntl_setpipe_size(&output, PIPE_BYTES);
    rustix::io::ioctl_fionbio(&output, true)?;
    Ok((File::from(OwnedFd::from(output)), OwnedFd::from(writer)))
}

/// Distinguishes a command that can never run from a machine that lacks resources for a process
/// now.
fn refusal(program: &str, error: &io::Error) -> WorkloadEnd {
    let errno = error.raw_os_error().unwrap_or(0);
    let now = [
        rustix::io::Errno::AGAIN,
        rustix::io::Errno::NOMEM,
        rustix::io::Errno::MFILE,
        rustix::io::Errno::NFILE,
    ];
    if now.iter().any(|busy| busy.raw_os_error() == errno) {
        WorkloadEnd::NotStarted { what: "make a process".to_owned(), errno }
    } else {
        WorkloadEnd::CannotExecute { program: program.to_owned(), errno }
    }
}

/// The kernel kills the agent and the holder last for lack of memory. The workload inherits the
/// score at its start, so it must be the ordinary one.
fn with_ordinary_oom_score<T>(start: impl FnOnce() -> T) -> T {
    let own = fs::read_to_string(OOM_SCORE)
        .ok()
        .filter(|score| score.trim().parse::<i32>().is_ok_and(|score| score < 0));
    if own.is_some() {
        let _ = fs::write(OOM_SCORE, "0");
    }
    let result = start();
    if let Some(score) = own {
        let _ = fs::write(OOM_SCORE, score);
    }
    result
}
