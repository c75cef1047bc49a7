//! Ends a workload by force: SIGKILL to all of it, round by round, until nothing is left.
//!
//! Not here: when a workload is killed, and the signals before that.

#![expect(clippy::disallowed_methods, reason = "waits, within bounds, for processes that die")]

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::held_workload::{HeldWorkload, KILL_WAIT};
use super::holder::{cgroup, records};
use crate::adapters::host::process_tree::{self, ProcessRef};
use crate::adapters::workstation::private_files;
use crate::ports::WorkloadError;

/// The time between two rounds of SIGKILL.
const KILL_ROUND: Duration = Duration::from_millis(20);

impl HeldWorkload {
    /// One round of SIGKILL; returns how many processes were alive.
    pub(crate) fn kill_round(&self) -> usize {
        if !self.this_boot {
            return 0;
        }
        if let Some(group) = &self.started.cgroup {
            // Kernels before 5.14 cannot do this, a stopped unit has no group, and our sandbox may
            // forbid it. The rest of the round then kills each process, and so does the holder,
            // which has no sandbox.
            let _ = cgroup::kill(group);
        }
        let found = self.living();
        for process in &found {
            if let Err(error) = process.signal(rustix::process::Signal::KILL) {
                tracing::warn!(pid = process.pid, %error, "a process of the workload cannot be killed");
            }
        }
        found.len()
    }

    /// All living processes of the workload.
    pub(crate) fn living(&self) -> Vec<ProcessRef> {
        if !self.this_boot {
            return Vec::new();
        }
        let root =
            if self.started.holder.exists() { self.started.holder } else { self.started.workload };
        let mut found = process_tree::descendants(root);
        found.push(self.started.workload);
        let (name, value) = records::mark(&self.dir);
        found.extend(process_tree::with_environment(name, &value));
        found.sort_unstable_by_key(|process| process.pid);
        found.dedup();
        found.retain(|process| {
            process.pid != std::process::id() && *process != self.started.holder && process.alive()
        });
        found
    }

    /// Tells the holder that this SIGKILL is ours and not the kernel's.
    pub(crate) fn mark_killed(&self) {
        if let Err(error) = private_files::create(&self.dir.join(records::KILLED)) {
            tracing::debug!(%error, "could not note that the workload is killed by us");
        }
    }

    /// The holder can kill processes that we may not, and the whole group at once. Any signal makes
    /// it look for this file.
    pub(crate) fn ask_holder_to_kill(&self) {
        let wish =
            private_files::create(&self.dir.join(records::KILL_TREE)).and_then(|_| {
                match self.this_boot {
                    true => self.started.holder.signal(rustix::process::Signal::USR1),
                    false => Ok(false),
                }
            });
        if let Err(error) = wish {
            tracing::debug!(%error, "the holder could not be asked to kill the tree");
        }
    }

    pub(crate) async fn kill_until_nothing_is_left(
        &self,
        end: Instant,
    ) -> Result<(), WorkloadError> {
        let mut left = self.kill_round();
        while left > 0 {
            if Instant::now() >= end {
                let what =
                    format!("{left} processes are still there after {} s", KILL_WAIT.as_secs());
                return Err(WorkloadError::Failed {
                    act: "kill",
                    cause: io::Error::new(io::ErrorKind::TimedOut, what),
                });
            }
            sleep(KILL_ROUND).await;
            left = self.kill_round();
        }
        Ok(())
    }
}
