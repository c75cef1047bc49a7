//! The reaction to a cloud's notice: save now, continue, end, or nothing.
//!
//! ```text
//!   with a signal:     save now, if the workload continues after saving ─ train on
//!                        ─ final save at end − (p95 + 30 s) ─ manifest at end − 15 s ─ end
//!   without a signal:  upload complete checkpoints now ─ train on
//!                        ─ end the work at end − (upload + 30 s) ─ manifest at end − 15 s ─ end
//! ```
//! The time until the interruption is paid for, so it is used. But the last checkpoint must be
//! complete before the end. A notice whose time is long past was not carried out: it is void, and
//! training continues.

use jiff::{SignedDuration, Timestamp};

use super::supervise_facts::Warning;
use crate::instance::{Notice, NoticeKind};
use crate::job::Reason;
use crate::market::Span;

/// Thirty seconds beyond the measured p95: one checkpoint in twenty takes longer, and other
/// interrupted machines share disk and network.
const SAVE_MARGIN_SECS: i64 = 30;

/// The manifest is written fifteen seconds before the end: clocks differ, and the power may go
/// early.
const MANIFEST_MARGIN_SECS: i64 = 15;

/// Three minutes after its time an unexecuted notice is void: EC2 keeps a notice that it did not
/// carry out.
const VOID_AFTER_SECS: i64 = 180;

/// Time between the end of a workload that saves by itself and the start of the upload: it may save
/// once more at SIGTERM. A short notice gives an eighth of its length; more would take time from
/// the work.
const END_MARGIN_SECS: i64 = 15;

/// Assumed upload rate of an unmeasured network. EC2 to S3 is faster, so the work ends a
/// little too early, never too late.
const ASSUMED_BYTES_PER_SEC: f64 = 10e6;

/// The final save begins at the latest ten minutes before a scheduled reboot or retirement. Such
/// events are known long before and may begin minutes early.
const MAINTENANCE_LEAD_SECS: i64 = 600;

/// An unmeasured save is assumed to need at most five minutes. An interruption's notice is shorter
/// and used whole; a scheduled event may be a week away, and half of that week would be lost.
const UNMEASURED_SECS: i64 = 300;

#[derive(Clone, Debug, PartialEq)]
pub struct NoticeFacts {
    pub notice: Notice,
    pub first_seen: Timestamp,
    pub now: Timestamp,
    /// The measured 95th percentile of saving and uploading; `None`: never measured.
    pub save_p95: Option<Span>,
    /// The same for the upload alone; and the bytes of the checkpoint folder, if the upload was
    /// never measured.
    pub upload: Option<Span>,
    pub bytes: Option<u64>,
    /// Time left for a running upload that the workload was not asked for.
    pub backlog: Span,
    pub saver: Saver,
    /// Whether a complete checkpoint was made since the notice, and whether work was done since
    /// then.
    pub saved_since: bool,
    pub dirty_since: bool,
}

/// How the workload saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saver {
    /// On a signal, and it continues.
    Asked,
    /// On a signal that also ends it (SIGTERM), so an early save ends the training early.
    Ended,
    /// By itself, without a signal.
    Itself,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeStep {
    /// Continue; look again at `until`.
    Wait { until: Timestamp },
    /// Ask for a checkpoint and continue.
    SaveNow,
    /// The final save: the manifest is written `by`, the machine ends `at`.
    Final { by: Timestamp, at: Timestamp },
    /// Nothing to do, now or later.
    Void,
}

pub fn judge_notice(facts: &NoticeFacts) -> NoticeStep {
    match facts.notice.kind {
        // A rebalance recommendation ends nothing. One early checkpoint makes a following notice
        // cheap.
        NoticeKind::Rebalance if facts.saved_since || facts.saver != Saver::Asked => {
            NoticeStep::Void
        }
        NoticeKind::Rebalance => NoticeStep::SaveNow,
        NoticeKind::Interruption => taken_away(facts, 0),
        NoticeKind::Maintenance => taken_away(facts, MAINTENANCE_LEAD_SECS),
    }
}

fn taken_away(facts: &NoticeFacts, lead_secs: i64) -> NoticeStep {
    let (at, now) = (facts.notice.at, facts.now);
    if now > later(at, VOID_AFTER_SECS) {
        return NoticeStep::Void;
    }
    let by = manifest_by(facts);
    let final_save = NoticeStep::Final { by: by.max(now.min(at)), at };
    let begin = final_begins(facts, lead_secs);
    if now >= by || (now >= begin && !nothing_to_save(facts)) {
        return final_save;
    }
    if facts.saver == Saver::Asked && !facts.saved_since {
        return NoticeStep::SaveNow;
    }
    NoticeStep::Wait { until: if now < begin { begin } else { by } }
}

/// When everything must be over if the cloud interrupts the machine, whatever ends the attempt.
/// `None` for a recommendation or a void notice.
pub fn over_by(notice: &Notice, first_seen: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let takes = notice.kind != NoticeKind::Rebalance && now <= later(notice.at, VOID_AFTER_SECS);
    takes.then(|| told_by(notice.at, first_seen))
}

/// Whether the last checkpoint holds all the work.
fn nothing_to_save(facts: &NoticeFacts) -> bool {
    facts.saved_since && !facts.dirty_since
}

/// When the manifest must be there: `MANIFEST_MARGIN_SECS` before the end, or a quarter of a short
/// notice.
fn manifest_by(facts: &NoticeFacts) -> Timestamp {
    told_by(facts.notice.at, facts.first_seen)
}

/// Whether complete checkpoints are uploaded at once instead of at the next interval, because the
/// machine may end first. A scheduled event days away needs no hurry.
pub fn hurries(facts: &NoticeFacts) -> bool {
    let is_near = match facts.notice.kind {
        NoticeKind::Rebalance => false,
        NoticeKind::Interruption => true,
        NoticeKind::Maintenance => {
            facts.now >= later(final_begins(facts, MAINTENANCE_LEAD_SECS), -UNMEASURED_SECS)
        }
    };
    is_near && facts.now <= later(facts.notice.at, VOID_AFTER_SECS)
}

/// When the end of the workload must begin, with a final save or without. An unmeasured time counts
/// as at most half of the notice.
fn final_begins(facts: &NoticeFacts, lead_secs: i64) -> Timestamp {
    let half = (length_secs(facts) / 2).min(UNMEASURED_SECS);
    let needed = match facts.saver {
        Saver::Asked | Saver::Ended => {
            facts.save_p95.map_or(half, whole_secs).saturating_add(SAVE_MARGIN_SECS)
        }
        Saver::Itself => {
            let estimate = || facts.bytes.map_or(half, |bytes| estimate_secs(bytes).min(half));
            let margin = END_MARGIN_SECS.min(length_secs(facts) / 8);
            let manifest = facts.notice.at.duration_since(manifest_by(facts)).as_secs();
            facts
                .upload
                .map_or_else(estimate, whole_secs)
                .saturating_add(margin)
                .saturating_add(manifest)
        }
    };
    later(facts.notice.at, -(needed.saturating_add(whole_secs(facts.backlog)).max(lead_secs)))
}

fn estimate_secs(bytes: u64) -> i64 {
    (bytes as f64 / ASSUMED_BYTES_PER_SEC).ceil() as i64
}

fn whole_secs(span: Span) -> i64 {
    span.secs_f64().ceil() as i64
}

/// Time from the first sight of the notice to its end.
fn length_secs(facts: &NoticeFacts) -> i64 {
    length(facts.notice.at, facts.first_seen)
}

fn length(at: Timestamp, first_seen: Timestamp) -> i64 {
    at.duration_since(first_seen).as_secs().max(0)
}

fn told_by(at: Timestamp, first_seen: Timestamp) -> Timestamp {
    later(at, -MANIFEST_MARGIN_SECS.min(length(at, first_seen) / 4))
}

impl NoticeStep {
    pub fn warning(self) -> Warning {
        match self {
            NoticeStep::Wait { .. } | NoticeStep::Void => Warning::None,
            NoticeStep::SaveNow => Warning::Save,
            NoticeStep::Final { by, at } => Warning::Final { by, at },
        }
    }

    pub fn reason(self, facts: &NoticeFacts) -> Reason {
        let kind = match facts.notice.kind {
            NoticeKind::Interruption => "interruption",
            NoticeKind::Rebalance => "rebalance recommendation",
            NoticeKind::Maintenance => "maintenance event",
        };
        let (word, text) = match self {
            NoticeStep::Wait { until } => (
                "wait",
                format!("{kind} at {:.0}: training goes on until {until:.0}", facts.notice.at),
            ),
            NoticeStep::SaveNow => {
                ("save", format!("{kind}: saving a checkpoint now, training goes on"))
            }
            NoticeStep::Final { by, at } if facts.saver == Saver::Itself => (
                "interrupted",
                format!("{kind} at {at:.0}: the work ends, what is whole is to be kept by {by:.0}"),
            ),
            NoticeStep::Final { by, at } => {
                ("interrupted", format!("{kind} at {at:.0}: final save, to be complete by {by:.0}"))
            }
            NoticeStep::Void => (
                "void",
                format!("{kind} of {:.0}: nothing to do, training goes on", facts.notice.at),
            ),
        };
        Reason::new(facts.now, "interruption", word, text)
            .with("left_secs", facts.notice.at.duration_since(facts.now).as_secs_f64())
            .with("save_p95_secs", facts.save_p95.map_or(f64::NAN, Span::secs_f64))
            .with("upload_secs", facts.upload.map_or(f64::NAN, Span::secs_f64))
            .with("backlog_secs", facts.backlog.secs_f64())
    }
}

fn later(at: Timestamp, secs: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(secs)).unwrap_or(if secs < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
