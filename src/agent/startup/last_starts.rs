//! How many agents the end of one attempt may take.
//!
//! Every wait on the way to the power switch has a limit, and the agent says a word to the watchdog in all of them. What nobody thought of
//! (a call into a file system that never returns) ends with the watchdog all the same, and the next agent would go the same way: the
//! machine would stay lit, beating like a healthy one, for ever. What must never live here: a wait.

use std::time::Duration;

use super::attempt::Ending;
use crate::agent::checkpoint::handle::Checkpoints;
use crate::agent::run_loop::Agent;
use crate::policy::{Afterwards, End};

/// Agents that may try to end an attempt as it should be ended. Fewer, and one crash and one reboot cost the last save; more, and a
/// machine that hangs in its end bills for half a minute more with each.
const LIVES_MAX: u32 = 3;

impl Agent {
    /// This agent found an end that another one had begun. Kept before anything is done about it: whatever it dies of counts. While the
    /// machine is kept for a look nothing is left to hang in, and a look may take days.
    pub(crate) fn count_life(&mut self) {
        let Some(Ending::End { end, .. }) = &self.memory.ending else { return };
        if self.memory.held.is_none() || !matches!(end.then, Afterwards::Hold(_)) {
            self.memory.ending_lives = self.memory.ending_lives.max(1) + 1;
            self.keep();
        }
    }

    /// The end begins with this agent, or it goes on with it.
    pub(crate) fn begin_end(&mut self, ending: Ending) {
        if !matches!(self.memory.ending, Some(Ending::End { .. })) {
            self.memory.ending_lives = 1;
            self.memory.exit = self.ended.map(|ended| ended.exit);
        }
        self.memory.ending = Some(ending);
        self.keep();
    }

    /// Why nothing is saved or sent any more but the outcome, if it is so.
    pub(crate) fn is_last_way(&self) -> Option<String> {
        let before = self.memory.ending_lives.saturating_sub(1);
        (before >= LIVES_MAX).then(|| format!("{before} agents died while they ended this attempt: what was not kept by then is lost"))
    }

    /// For the outcome of an agent that saves nothing any more: what is known of the checkpoints without a look at their folder.
    pub(crate) fn know_checkpoints(&mut self) {
        if self.is_last_way().is_none() || Checkpoints::are_known(&self.out) {
            self.open_checkpoints();
        }
    }

    /// Instead of all that an end saves and sends. If the cloud does not take the machine the work goes on, and then nothing of it may
    /// still run.
    pub(crate) async fn drain_nothing(&mut self, end: &End, text: String) -> (Vec<String>, Duration) {
        if matches!(end.then, Afterwards::LeaveToCloud { .. }) {
            self.stop_workload(Duration::ZERO, None).await;
        }
        (vec![self.lose(text)], self.out.clock.mono())
    }
}
