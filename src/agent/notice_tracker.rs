//! Tracks the cloud's notices for this machine: interruptions, scheduled ends and rebalance.
//!
//! ```text
//!   metadata service ─> NoticeWatch ─> take_in ─> warning ─> policy::watch::spot_notice
//! ```
//! It holds the notice that counts now, and whether a save followed it. Not here: how a notice is
//! received (`report::notice_watch`), the save, and the end itself (`shutdown`).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::checkpoint::handle::Checkpoints;
use super::checkpoint::save_request::{NO_HANDLER, Saved, Saving};
use super::report::attention::{AttentionList, Topic};
use super::report::notice_watch::{NoticeAnswers, NoticeWatch};
use crate::instance::{Notice, NoticeKind};
use crate::job::CheckpointSpec;
use crate::market::Span;
use crate::policy::{NoticeFacts, NoticeStep, Saver, Warning, hurries, judge_notice, over_by};
use crate::ports::{Clock, Metadata, Signal};

/// The cloud's notices so far, and their results.
#[derive(Default)]
pub(crate) struct NoticeTracker {
    /// The answers of the metadata service. `None`: there are no notices (a stand-alone run).
    answers: Option<watch::Receiver<NoticeAnswers>>,
    /// Polling continues while this is held.
    _watch: Option<NoticeWatch>,
    /// The notice that counts now.
    notice: Option<Notice>,
    /// The notice's time on the agent's clock, recomputed from the present clocks.
    at: Option<Timestamp>,
    first_seen: Option<Timestamp>,
    /// When the notice made the agent ask for a save, and whether a complete checkpoint followed.
    asked: Option<Timestamp>,
    saved: bool,
    /// A save was already in progress, and its result counts.
    joined: bool,
    /// Notices that passed without an interruption.
    void: Vec<Notice>,
}

/// The workload's saves, as far as a notice is concerned.
pub(crate) struct SaveFacts<'a> {
    pub spec: Option<&'a CheckpointSpec>,
    pub checkpoints: Option<&'a Checkpoints>,
    /// The newest step that the job itself reported.
    pub step: Option<f64>,
    /// The command runs: it can be asked to save.
    pub is_running: bool,
}

impl NoticeTracker {
    pub(crate) fn start(metadata: Option<Arc<dyn Metadata>>, clock: &Arc<dyn Clock>) -> Self {
        let watch = metadata.map(|metadata| NoticeWatch::start(metadata, Arc::clone(clock)));
        NoticeTracker {
            answers: watch.as_ref().map(NoticeWatch::subscribe),
            _watch: watch,
            ..NoticeTracker::default()
        }
    }

    /// Wakes the loop when the notices change.
    pub(crate) fn changes(&mut self) -> Option<&mut watch::Receiver<NoticeAnswers>> {
        self.answers.as_mut()
    }

    /// The newest answer of the metadata service.
    pub(crate) fn read(&mut self) -> Option<NoticeAnswers> {
        self.answers.as_mut().map(|answers| answers.borrow_and_update().clone())
    }

    /// Keeps the newest interruption or scheduled end. Returns it if it is new.
    pub(crate) fn take_in(&mut self, answers: &NoticeAnswers, now: Timestamp) -> Option<&Notice> {
        // The cloud may cancel a scheduled event, but never an interruption.
        if let Some(notice) = &self.notice
            && notice.kind == NoticeKind::Maintenance
            && answers.failures == 0
            && !answers.notices.contains(notice)
        {
            self.notice = None;
        }
        let standing = || answers.notices.iter().filter(|notice| !self.void.contains(notice));
        let ends = standing()
            .filter(|notice| notice.kind != NoticeKind::Rebalance)
            .min_by_key(|notice| notice.at);
        let newest = ends
            .or_else(|| standing().find(|notice| notice.kind == NoticeKind::Rebalance))
            .cloned();
        let new = newest.filter(|notice| self.notice.as_ref() != Some(notice))?;
        (self.at, self.asked, self.saved, self.joined) = (None, None, false, false);
        (self.notice, self.first_seen) = (Some(new), Some(now));
        self.notice.as_ref()
    }

    /// Dates the notice by the agent's clock. `right`: the cloud's time. At each tick, since the
    /// clock may be set after the notice came.
    pub(crate) fn date(&mut self, now: Timestamp, right: Timestamp) {
        self.at = self.notice.as_ref().map(|notice| carried(notice.at, now, right));
    }

    /// The notice that counts now.
    pub(crate) fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }

    /// The deadline from the notice, as it is now.
    pub(crate) fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let notice = self.dated(self.notice.as_ref()?);
        over_by(&notice, self.first_seen.unwrap_or(now), now)
    }

    /// Whether the metadata service has ever answered.
    pub(crate) fn is_heard(&self) -> bool {
        self.answers.as_ref().is_some_and(|answers| answers.borrow().answered.is_some())
    }

    /// The hard cap in the machine's tags, which a user's extension raises.
    pub(crate) fn raised_end(&self) -> Option<Timestamp> {
        self.answers.as_ref().and_then(|answers| answers.borrow().kill_at)
    }

    /// The workload is asked to save. `joined`: a save was already in progress.
    pub(crate) fn save_asked(&mut self, now: Timestamp, joined: bool) {
        (self.asked, self.joined) = (Some(now), joined);
    }

    /// The process that was asked to save is gone.
    pub(crate) fn forget_request(&mut self) {
        self.asked = None;
    }

    /// The notice passed without an interruption.
    pub(crate) fn pass(&mut self) {
        self.void.extend(self.notice.take());
    }

    /// Judges the notice that counts now. Tells the uploads whether an end is near.
    pub(crate) fn warning(
        &mut self,
        now: Timestamp,
        work: &SaveFacts<'_>,
        saves: &mut Saving,
        attention: &mut AttentionList,
    ) -> Warning {
        let hurry = |is_near| work.checkpoints.iter().for_each(|saves| saves.hurry(is_near));
        let Some(notice) = self.notice.clone() else {
            hurry(false);
            return Warning::None;
        };
        self.learn_of_saves(saves, attention);
        let facts = self.facts(&notice, now, work);
        hurry(hurries(&facts));
        match judge_notice(&facts) {
            NoticeStep::SaveNow if self.asked.is_none() && work.is_running => Warning::Save,
            NoticeStep::SaveNow | NoticeStep::Wait { .. } => Warning::None,
            NoticeStep::Final { by, at } => Warning::Final { by, at },
            NoticeStep::Void => {
                self.pass();
                Warning::None
            }
        }
    }

    /// The notice with its time on the agent's clock.
    fn dated(&self, notice: &Notice) -> Notice {
        Notice { at: self.at.unwrap_or(notice.at), ..notice.clone() }
    }

    fn facts(&self, notice: &Notice, now: Timestamp, work: &SaveFacts<'_>) -> NoticeFacts {
        let signal = work.spec.and_then(|spec| spec.signal.as_deref()).and_then(Signal::from_name);
        let measured = work.checkpoints.and_then(Checkpoints::upload_p95);
        // A job without checkpoints needs no time to save.
        let (save_p95, upload) = match work.checkpoints {
            Some(saves) => (
                saves.secs_p95().map(|secs| Span::from_duration(Duration::from_secs_f64(secs))),
                measured.map(|(p95, _)| p95),
            ),
            None => (Some(Span::ZERO), Some(Duration::ZERO)),
        };
        NoticeFacts {
            notice: self.dated(notice),
            first_seen: self.first_seen.unwrap_or(now),
            now,
            save_p95,
            upload: upload.map(Span::from_duration),
            bytes: work.checkpoints.and_then(Checkpoints::bytes),
            backlog: measured.map_or(Span::ZERO, |(_, left)| Span::from_duration(left)),
            saver: match signal {
                Some(signal) if signal.asks() => Saver::Asked,
                Some(_) => Saver::Ended,
                None => Saver::Itself,
            },
            saved_since: self.saved,
            dirty_since: work.is_dirty(),
        }
    }

    /// Reads the answer to the newest checkpoint request, if it came after the notice.
    fn learn_of_saves(&mut self, saves: &mut Saving, attention: &mut AttentionList) {
        let answer = saves.answer();
        if answer == Some(Saved::NoHandler) {
            // The workload may still be importing: ask again at the next tick, and report it once.
            saves.forget();
            self.asked = None;
            attention.attend(Topic::Other, NO_HANDLER.into());
        }
        if std::mem::take(&mut self.joined) {
            match &answer {
                // An earlier request had no result: ask again because of the notice.
                Some(Saved::NoChange(_) | Saved::NoHandler | Saved::Failed(_)) => self.asked = None,
                Some(Saved::Complete(_)) => {}
                None => self.joined = true,
            }
        }
        if self.asked.is_some() && matches!(answer, Some(Saved::Complete(_))) {
            self.saved = true;
        }
    }
}

impl SaveFacts<'_> {
    /// Whether there is work that the newest checkpoint does not hold. Assumed if there are no
    /// steps.
    fn is_dirty(&self) -> bool {
        let saved = self.checkpoints.and_then(Checkpoints::last).and_then(|summary| summary.step);
        match (saved, self.step) {
            (Some(saved), Some(step)) => step > saved,
            _ => true,
        }
    }
}

/// Converts a time from the cloud to the agent's clock, at the same distance from now. The clocks
/// differ if the agent started with a wrong time. In whole seconds, as clouds report them.
fn carried(at: Timestamp, now: Timestamp, right: Timestamp) -> Timestamp {
    let ahead = (now.duration_since(right).as_secs_f64()).round() as i64;
    at.checked_add(SignedDuration::from_secs(ahead)).unwrap_or(at)
}
