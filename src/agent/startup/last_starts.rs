//! How many agents may work on the end of one attempt.
//!
//! Every wait before power-off has a limit, and the agent feeds the watchdog in all of them. An
//! unexpected hang (a call into a file system that never returns) ends with the watchdog. The next
//! agent would hang in the same place, and the machine would run for ever with normal heartbeats.
//! Not here: a wait.

use super::attempt::{AgentState, PendingEnd};
use crate::job::ExitStatus;
use crate::policy::Afterwards;

/// How many agents may try to end an attempt completely. Fewer would lose the last save to one
/// crash and one reboot. More bills half a minute more for each agent of a machine that hangs in
/// its end.
const LIVES_MAX: u32 = 3;

impl AgentState {
    /// Counts an agent that continues another one's end. Returns whether it counts, to be kept
    /// before anything else. A held machine does not count: there is nothing to hang in, and an
    /// inspection may take days.
    pub(crate) fn count_ending_run(&mut self) -> bool {
        let Some(PendingEnd::End { end, .. }) = &self.ending else { return false };
        let counts = self.held.is_none() || !matches!(end.then, Afterwards::Hold(_));
        if counts {
            self.ending_lives = self.ending_lives.max(1) + 1;
        }
        counts
    }

    /// The end begins with this agent, or this agent continues it. `exit`: how the command ended.
    pub(crate) fn begin_end(&mut self, ending: PendingEnd, exit: Option<ExitStatus>) {
        if !matches!(self.ending, Some(PendingEnd::End { .. })) {
            self.ending_lives = 1;
            self.exit = exit;
        }
        self.ending = Some(ending);
    }

    /// Why only the outcome is still saved and sent, if that is so.
    pub(crate) fn last_way(&self) -> Option<String> {
        let before = self.ending_lives.saturating_sub(1);
        (before >= LIVES_MAX).then(|| format!("{before} agents died while they ended this attempt: what was not kept by then is lost"))
    }
}
