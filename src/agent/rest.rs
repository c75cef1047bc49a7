//! What an ended workload left: its last checkpoint, outputs, the rest of the log and of the samples, and what nobody keeps.
//!
//! One deadline for all of it. Nothing here waits for a file system that does not answer beyond what it is worth. What must never live
//! here: the end of the workload, the outcome.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Mode;
use super::checkpoints::Saved;
use super::drain::FLUSH_MIN;
use super::outputs::{self, Wanted};
use super::tick::Agent;
use super::unkept;
use crate::jobdir::What;
use crate::market::Span;
use crate::policy::Stage;

/// To name what nobody keeps is a kindness: a folder that hangs or is huge holds up no end of a machine.
pub(super) const UNKEPT_WITHIN: Duration = Duration::from_secs(10);

/// How long the checkpoint folder may take to be looked at, once the workload has ended. A network disk with all the files that a
/// checkpoint may have answers in seconds; one that takes longer hangs, and a longer wait for it is paid for.
const FOLDER_ANSWERS_WITHIN: Duration = Duration::from_secs(60);

impl Agent {
    /// What the ended workload left: a last checkpoint, outputs, the rest of the log, samples and events.
    pub(super) async fn upload_rest(&mut self, until: Duration, asked_by: &str) -> Vec<String> {
        let mut losses = Vec::new();
        let clock = Arc::clone(&self.out.clock);
        let left = move || until.saturating_sub(clock.mono()).max(FLUSH_MIN);
        if let Some(checkpoints) = self.checkpoints.clone().filter(|_| self.memory.stage == Stage::Main) {
            // One that hangs leaves the time to the outputs and the log.
            let answers = FOLDER_ANSWERS_WITHIN.min(left());
            let saved = match self.alive_while(self.out.within(answers, checkpoints.ask())).await {
                Some(_) => self.alive_while(checkpoints.save(checkpoints.as_is(), asked_by, left())).await,
                None => Saved::Failed(format!("it did not answer within {}", Span::from_duration(answers))),
            };
            if let Saved::Failed(why) = saved {
                losses.push(format!("what the checkpoint folder held at the end is not kept: {why}"));
            }
        }
        if self.attempt.mode == Mode::Launched && self.memory.stage == Stage::Main {
            losses.extend(self.upload_outputs(left()).await);
        }
        let (logs, samples, journal) = (self.logs.clone(), self.samples.clone(), self.journal.clone());
        let log_losses = self.alive_while(logs.finish(left())).await;
        let sample_losses = self.alive_while(samples.finish(left())).await;
        losses.extend(log_losses);
        if let Some((_, dropped)) = self.printed.filter(|(_, dropped)| *dropped > 0) {
            losses.push(format!("{dropped} bytes of output were not kept: they came faster than they could be shipped"));
        }
        losses.extend(sample_losses);
        for text in &losses {
            journal.record(What::Loss { text: text.clone() });
        }
        losses
    }

    async fn upload_outputs(&self, within: Duration) -> Vec<String> {
        self.alive_while(outputs::upload(&self.out, &self.attempt.folders.work, self.wanted(), within)).await.losses
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { named: &self.attempt.resolved.spec.outputs, if_any: &["lamp-output/**"] }
    }

    /// What goes with the machine that is given back, and that nobody asked to keep.
    pub(super) async fn unkept(&self, within: Duration) -> Option<String> {
        let since = self.memory.main_since.filter(|_| self.attempt.mode == Mode::Launched)?;
        let spec = &self.attempt.resolved.spec;
        let apart = [spec.checkpoint.as_ref().map(|spec| spec.path.as_str()), spec.watch.done_marker.as_deref()];
        let apart: Vec<&str> = apart.into_iter().flatten().collect();
        let looking = unkept::left_behind(&self.out, &self.attempt.folders.work, self.wanted(), &apart, since);
        self.alive_while(self.out.within(within, looking)).await.flatten()
    }
}
