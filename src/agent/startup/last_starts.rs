//! How many agents may work on the end of one attempt.
//!
//! Every wait before power-off has a limit, and the agent feeds the watchdog in all of them. An
//! unexpected hang (a call into a file system that never returns) ends with the watchdog. The next
//! agent would hang in the same place, and the machine would run for ever with normal heartbeats.
//! Not here: a wait.

use std::time::Duration;

use super::attempt::Ending;
use crate::agent::checkpoint::handle::Checkpoints;
use crate::agent::run_loop::Agent;
use crate::policy::{Afterwards, End};

/// How many agents may try to end an attempt completely. Fewer would lose the last save to one
/// crash and one reboot. More bills half a minute more for each agent of a machine that hangs in
/// its end.
const LIVES_MAX: u32 = 3;

impl Agent {
    /// Counts an agent that continues another one's end. Kept before anything else, so that every
    /// crash counts. A held machine does not count: there is nothing to hang in, and an inspection
    /// may take days.
    pub(crate) fn count_life(&mut self) {
        let Some(Ending::End { end, .. }) = &self.memory.ending else { return };
        if self.memory.held.is_none() || !matches!(end.then, Afterwards::Hold(_)) {
            self.memory.ending_lives = self.memory.ending_lives.max(1) + 1;
            self.keep();
        }
    }

    /// The end begins with this agent, or this agent continues it.
    pub(crate) fn begin_end(&mut self, ending: Ending) {
        if !matches!(self.memory.ending, Some(Ending::End { .. })) {
            self.memory.ending_lives = 1;
            self.memory.exit = self.ended.map(|ended| ended.exit);
        }
        self.memory.ending = Some(ending);
        self.keep();
    }

    /// Why only the outcome is still saved and sent, if that is so.
    pub(crate) fn is_last_way(&self) -> Option<String> {
        let before = self.memory.ending_lives.saturating_sub(1);
        (before >= LIVES_MAX).then(|| format!("{before} agents died while they ended this attempt: what was not kept by then is lost"))
    }

    /// For the outcome of an agent that saves nothing more: the known checkpoints, without a look
    /// at their folder.
    pub(crate) fn know_checkpoints(&mut self) {
        if self.is_last_way().is_none() || Checkpoints::are_known(&self.out) {
            self.open_checkpoints();
        }
    }

    /// Replaces all saves and uploads of an end. Stops the workload in case the cloud spares the
    /// machine.
    pub(crate) async fn drain_nothing(
        &mut self,
        end: &End,
        text: String,
    ) -> (Vec<String>, Duration) {
        if matches!(end.then, Afterwards::LeaveToCloud { .. }) {
            self.stop_workload(Duration::ZERO, None).await;
        }
        (vec![self.lose(text)], self.out.clock.mono())
    }
}
