//! The engine of a rank as a process, and everything that it started.
//!
//! An engine starts its workers in sessions of their own, so the whole tree is listed and killed,
//! and then all processes with the mark of the epoch.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc and waits, within bounds, for processes that end"
)]

use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::adapters::host::process_tree::{ProcessRef, descendants, with_environment};
use crate::job::ExitStatus;
use crate::ports::RankProcess;

/// Between two rounds of killing.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// A process that survives SIGKILL for so many rounds hangs in the kernel.
const KILL_ROUNDS: u32 = 20;

pub struct EngineProcess {
    child: Child,
    root: Option<ProcessRef>,
    mark: Option<(&'static str, String)>,
    exit: Option<ExitStatus>,
}

impl EngineProcess {
    pub fn new(child: Child, mark: Option<(&'static str, String)>) -> Self {
        let root = child.id().and_then(ProcessRef::of);
        EngineProcess { child, root, mark, exit: None }
    }

    fn below(&self) -> Vec<ProcessRef> {
        self.root.map(descendants).unwrap_or_default()
    }

    fn marked(&self) -> Vec<ProcessRef> {
        self.mark.as_ref().map(|(name, value)| with_environment(name, value)).unwrap_or_default()
    }
}

#[async_trait]
impl RankProcess for EngineProcess {
    async fn ended(&mut self) -> ExitStatus {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = match self.child.wait().await {
            Ok(status) => status_of(status),
            Err(error) => {
                tracing::warn!("the end of the engine is not known: {error}");
                ExitStatus::default()
            }
        };
        self.exit = Some(exit);
        exit
    }

    fn pass_on_term(&self) {
        if let Some(root) = self.root {
            send(&[root], Signal::TERM);
        }
    }

    async fn end(&mut self, grace: Duration) -> ExitStatus {
        let mut tree: Vec<ProcessRef> = self.root.into_iter().chain(self.below()).collect();
        send(&tree, Signal::TERM);
        let gently = timeout(grace, self.ended()).await.ok();
        for _ in 0..KILL_ROUNDS {
            tree.extend(self.below());
            tree.extend(self.marked());
            tree.retain(|process| process.alive());
            if tree.is_empty() {
                break;
            }
            send(&tree, Signal::KILL);
            sleep(KILL_AGAIN).await;
        }
        match gently {
            Some(exit) => exit,
            None => self.ended().await,
        }
    }
}

fn send(processes: &[ProcessRef], signal: Signal) {
    for process in processes {
        if let Err(error) = process.signal(signal) {
            tracing::debug!("process {} does not get {signal:?}: {error}", process.pid);
        }
    }
}

fn status_of(status: std::process::ExitStatus) -> ExitStatus {
    use std::os::unix::process::ExitStatusExt as _;
    ExitStatus { code: status.code(), signal: status.signal(), oom: false }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::process::Command;

    use super::*;

    /// A worker in a session of its own, as torchrun starts one.
    #[tokio::test]
    async fn end_kills_workers_in_other_sessions() {
        let mark = format!("test-{}", std::process::id());
        let child = Command::new("sh")
            .args(["-c", "setsid sh -c 'trap \"\" TERM; echo up; sleep 300' & wait"])
            .env("LAMP_TEST_MARK", &mark)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut engine = EngineProcess::new(child, Some(("LAMP_TEST_MARK", mark.clone())));
        let mut up = [0; 3];
        let out = engine.child.stdout.as_mut().unwrap();
        tokio::io::AsyncReadExt::read_exact(out, &mut up).await.unwrap();
        let exit = engine.end(Duration::from_millis(200)).await;
        assert!(!exit.success());
        let left: Vec<ProcessRef> = with_environment("LAMP_TEST_MARK", &mark);
        assert!(left.iter().all(|process| !process.alive()), "{left:?}");
    }
}
