//! What the cloud's notice means for the workload of this machine: the facts for `policy::watch::spot_notice`, and what came of a save.
//!
//! What must never live here: how a notice is heard (`judge`), and what the end does (`drain`).

use std::time::Duration;

use jiff::Timestamp;

use super::act::NOBODY;
use super::checkpoint::handle::Saved;
use super::run_loop::Agent;
use crate::agent::report::attention::Topic;
use crate::instance::Notice;
use crate::job::AttemptPhase;
use crate::market::Span;
use crate::policy::{Afterwards, End, NoticeFacts, NoticeStep, Saver, Warning, hurries, judge_notice};
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
            NoticeStep::SaveNow if self.warned.asked.is_none() && self.phase == AttemptPhase::Running => Warning::Save,
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
        // A job without checkpoints has nothing to save, which takes no time.
        let (save_p95, upload) = match &self.checkpoints {
            Some(saves) => (saves.secs_p95().map(|secs| Span::from_duration(Duration::from_secs_f64(secs))), measured.map(|(p95, _)| p95)),
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

    /// The answer to the newest request for a checkpoint, if it came after the notice was seen.
    fn learn_of_saves(&mut self) {
        let answer = self.saves.answer();
        if answer == Some(Saved::Failed(NOBODY.into())) {
            // It may still be importing: it is asked again at the next look, and said once.
            self.saves.forget();
            self.warned.asked = None;
            self.attend(Topic::Other, NOBODY.into());
        }
        if std::mem::take(&mut self.warned.joined) {
            match &answer {
                // Nothing came of a save that was asked for earlier: now it is asked for this.
                Some(Saved::NoChange(_) | Saved::Failed(_)) => self.warned.asked = None,
                Some(Saved::Complete(_)) => {}
                None => self.warned.joined = true,
            }
        }
        if self.warned.asked.is_some() && matches!(answer, Some(Saved::Complete(_))) {
            self.warned.saved = true;
        }
    }

    /// Whether work was done that the newest checkpoint does not hold. Without steps nobody can tell, so it was.
    fn dirty(&self) -> bool {
        let saved = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.last()).and_then(|summary| summary.step);
        match (saved, self.board.told_ever()) {
            (Some(saved), Some(step)) => step > saved,
            _ => true,
        }
    }

    /// How long the workload may take over its end. Where the cloud takes the machine and no signal asks for a save, what is whole must
    /// still be uploaded: whoever does not end for a SIGTERM is killed before that.
    pub(crate) fn grace(&self, end: &End) -> Duration {
        let grace = self.attempt.resolved.spec.watch.term_grace.duration();
        let asks = self.attempt.resolved.spec.checkpoint.as_ref().is_some_and(|spec| spec.signal.is_some());
        let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| !asks && matches!(end.then, Afterwards::LeaveToCloud { .. })) else {
            return grace;
        };
        let left = self.within(end.by, Duration::MAX);
        let needed = checkpoints.upload_p95().map_or(left / 2, |(p95, backlog)| p95 + backlog);
        grace.min(left.saturating_sub(needed).max(left / 4))
    }
}
