//! Applies the cloud's notice to this machine: the facts for `policy::watch::spot_notice`, and the
//! result of a save.
//!
//! Not here: how a notice is received (`decide`), and the end itself (`drain`).

use std::time::Duration;

use jiff::Timestamp;

use super::checkpoint::save_request::{NO_HANDLER, Saved};
use super::run_loop::Agent;
use crate::agent::report::attention::Topic;
use crate::instance::Notice;
use crate::job::AttemptPhase;
use crate::market::Span;
use crate::policy::{
    Afterwards, End, NoticeFacts, NoticeStep, Saver, Warning, hurries, judge_notice,
};
use crate::ports::Signal;

impl Agent {
    pub(crate) fn warning(&mut self, now: Timestamp) -> Warning {
        let Some(notice) = self.warned.notice.clone() else {
            self.hurry(false);
            return Warning::None;
        };
        self.learn_of_saves();
        let facts = self.notice_facts(&notice, now);
        self.hurry(hurries(&facts));
        match judge_notice(&facts) {
            NoticeStep::SaveNow
                if self.warned.asked.is_none() && self.phase == AttemptPhase::Running =>
            {
                Warning::Save
            }
            NoticeStep::SaveNow | NoticeStep::Wait { .. } => Warning::None,
            NoticeStep::Final { by, at } => Warning::Final { by, at },
            NoticeStep::Void => {
                self.warned.void.push(notice);
                self.warned.notice = None;
                Warning::None
            }
        }
    }

    fn hurry(&self, is_near: bool) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.hurry(is_near);
        }
    }

    fn notice_facts(&self, notice: &Notice, now: Timestamp) -> NoticeFacts {
        let spec = self.attempt.resolved.spec.checkpoint.as_ref();
        let signal = spec.and_then(|spec| spec.signal.as_deref()).and_then(Signal::from_name);
        let measured = self.checkpoints.as_ref().and_then(|saves| saves.upload_p95());
        // A job without checkpoints needs no time to save.
        let (save_p95, upload) = match &self.checkpoints {
            Some(saves) => (
                saves.secs_p95().map(|secs| Span::from_duration(Duration::from_secs_f64(secs))),
                measured.map(|(p95, _)| p95),
            ),
            None => (Some(Span::ZERO), Some(Duration::ZERO)),
        };
        NoticeFacts {
            notice: Notice { at: self.warned.at.unwrap_or(notice.at), ..notice.clone() },
            first_seen: self.warned.first_seen.unwrap_or(now),
            now,
            save_p95,
            upload: upload.map(Span::from_duration),
            bytes: self.checkpoints.as_ref().and_then(|saves| saves.bytes()),
            backlog: measured.map_or(Span::ZERO, |(_, left)| Span::from_duration(left)),
            saver: match signal {
                Some(signal) if signal.asks() => Saver::Asked,
                Some(_) => Saver::Ended,
                None => Saver::Itself,
            },
            saved_since: self.warned.saved,
            dirty_since: self.dirty(),
        }
    }

    /// Reads the answer to the newest checkpoint request, if it came after the notice.
    fn learn_of_saves(&mut self) {
        let answer = self.saves.answer();
        if answer == Some(Saved::Failed(NO_HANDLER.into())) {
            // The workload may still be importing: ask again at the next tick, and report it once.
            self.saves.forget();
            self.warned.asked = None;
            self.attend(Topic::Other, NO_HANDLER.into());
        }
        if std::mem::take(&mut self.warned.joined) {
            match &answer {
                // An earlier request had no result: ask again because of the notice.
                Some(Saved::NoChange(_) | Saved::Failed(_)) => self.warned.asked = None,
                Some(Saved::Complete(_)) => {}
                None => self.warned.joined = true,
            }
        }
        if self.warned.asked.is_some() && matches!(answer, Some(Saved::Complete(_))) {
            self.warned.saved = true;
        }
    }

    /// Whether there is work that the newest checkpoint does not hold. Assumed if there are no
    /// steps.
    fn dirty(&self) -> bool {
        let saved = self
            .checkpoints
            .as_ref()
            .and_then(|checkpoints| checkpoints.last())
            .and_then(|summary| summary.step);
        match (saved, self.board.told_ever()) {
            (Some(saved), Some(step)) => step > saved,
            _ => true,
        }
    }

    /// How long the workload may take to end. If the cloud interrupts the machine and no signal
    /// asks for a save, complete files must still be uploaded: a workload that ignores SIGTERM is
    /// killed before that.
    pub(crate) fn grace(&self, end: &End) -> Duration {
        let grace = self.attempt.resolved.spec.watch.term_grace.duration();
        let asks = self
            .attempt
            .resolved
            .spec
            .checkpoint
            .as_ref()
            .is_some_and(|spec| spec.signal.is_some());
        let Some(checkpoints) = self
            .checkpoints
            .as_ref()
            .filter(|_| !asks && matches!(end.then, Afterwards::LeaveToCloud { .. }))
        else {
            return grace;
        };
        let left = self.within(end.by, Duration::MAX);
        let needed = checkpoints.upload_p95().map_or(left / 2, |(p95, backlog)| p95 + backlog);
        grace.min(left.saturating_sub(needed).max(left / 4))
    }
}
