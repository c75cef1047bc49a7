//! Stops the workload: a signal, a grace, and the kill of the whole tree.

use std::io;
use std::time::Duration;

use super::agent::Agent;
use super::shutdown::shutdown_deadline::ShutdownDeadline;
use super::wake::WakeReason;
use crate::jobdir::EventDetail;
use crate::ports::{Ended, Signal, Workload, WorkloadError};

/// How long to wait for a killed process. The holder waits ten seconds, and as long again for the
/// record of the end. A healthy kernel needs milliseconds.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(35);

/// The limit for the kill of a tree, which needs about thirty seconds. Other processes end with the
/// machine.
const KILLED_WITHIN: Duration = Duration::from_secs(60);

/// The last part of the SIGTERM grace, for processes without a handler. Longer cuts the last save
/// short; shorter kills processes that would have exited.
const TREE_GRACE: Duration = Duration::from_secs(2);

/// How long the last look before the signal may take: it shows which saves are complete. It takes
/// milliseconds, unless the folder hangs or is being uploaded. Longer takes time from the saves.
const LOOK_WITHIN: Duration = Duration::from_millis(500);

/// The error for an act without an answer in time.
pub(crate) fn in_no_time(act: &'static str, within: Duration) -> WorkloadError {
    let cause =
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", within.as_secs()));
    WorkloadError::Failed { act, cause }
}

impl Agent {
    /// Ends the running process and its whole tree.
    pub(crate) async fn stop_workload(
        &mut self,
        grace: Duration,
        ahead: Option<&ShutdownDeadline>,
    ) {
        let Some(workload) = self.workload.take() else { return };
        if self.ended.is_none() {
            if let Some(checkpoints) = self.checkpoints.clone() {
                checkpoints.look_again(LOOK_WITHIN.min(grace / 5)).await;
            }
            // First the processes that have a handler; the others when these are gone, or near the
            // end of the grace.
            if let Err(error) = workload.tell(Signal::Term) {
                tracing::warn!("{error}");
            }
            let tail = TREE_GRACE.min(grace / 5);
            let mut ended = self.wait_for_end(&*workload, grace - tail, ahead).await;
            if ended.is_none() && *self.events.signals.borrow() <= 1 {
                workload.tell_rest();
                ended = self.wait_for_end(&*workload, tail, ahead).await;
            }
            if let Some(ended) = ended {
                self.observe(WakeReason::Ended(ended)).await;
            }
        }
        let killed = self.alive_while(self.out.within(KILLED_WITHIN, workload.kill_tree())).await;
        if let Err(error) = killed.unwrap_or_else(|| Err(in_no_time("kill", KILLED_WITHIN))) {
            self.reporter.journal.record(EventDetail::Attention {
                text: format!("something of the workload could not be killed: {error}"),
            });
        }
        if self.ended.is_none() {
            // A process that hangs in a driver or file system only ends with the machine.
            let ended =
                self.wait_for_end(&*workload, UNKILLABLE_AFTER, None).await.unwrap_or_default();
            self.observe(WakeReason::Ended(ended)).await;
        }
        self.printed = Some(workload.printed());
        self.reporter.logs.ended(self.state.start);
    }

    /// Waits for the workload's end, at most this long, and keeps the watchdog fed.
    async fn wait_for_end(
        &mut self,
        workload: &dyn Workload,
        grace: Duration,
        ahead: Option<&ShutdownDeadline>,
    ) -> Option<Ended> {
        let until = self.out.clock.mono() + grace;
        loop {
            let left = match ahead {
                Some(ahead) => ahead.left(self, until),
                None => until.saturating_sub(self.out.clock.mono()),
            };
            if left.is_zero() {
                return None;
            }
            tokio::select! {
                biased;
                ended = workload.ended() => return Some(ended),
                () = self.out.clock.sleep(left.min(Duration::from_secs(1))) => {}
            }
            self.ports.service.alive();
            self.report();
            if *self.events.signals.borrow() > 1 {
                // After a second Ctrl-C the user does not want to wait.
                return None;
            }
        }
    }
}
