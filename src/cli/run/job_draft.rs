//! A job before it is made: its spec, under a new id or under the one that a call was sending code for when it was cut off.
//!
//! Code lies under its job, so that what has arrived of it is of use to that id alone. What must never live here: how far it is
//! (`wire::Unsent` keeps the id, the job root's client the parts).

use super::submission;
use super::workdir::Prepared;
use crate::cli::{Context, Fault};
use crate::controller::WORTH_WAITING;
use crate::job::{CodeArchive, ResolvedSpec};
use crate::jobdir::{self, layout};
use crate::wire::{Store, Unsent, Workstation};

/// To whoever leaves, or is cut off, while a large workdir is sent.
const GOES_ON: &str = "the next `lamp run` of this name sends what has not arrived of the same folder";

pub struct Draft {
    pub spec: ResolvedSpec,
    unsent: Option<Unsent>,
    /// The SHA-256 of the code that was on its way under this id.
    left: Option<String>,
}

/// Of an id that is known beforehand: whoever makes it again has the same.
impl From<ResolvedSpec> for Draft {
    fn from(spec: ResolvedSpec) -> Self {
        Draft { spec, unsent: None, left: None }
    }
}

impl Draft {
    /// Of a workdir that is sent in parts, under the id that was left for its name, if one was.
    pub async fn new(context: &Context, workstation: &Workstation, store: &Store, prepared: &Prepared) -> Draft {
        let mut draft = Draft::from(submission::spec(context, &prepared.loaded));
        if store.is_folder() || prepared.survey.bytes < WORTH_WAITING {
            return draft;
        }
        // A state folder that cannot be written is told of elsewhere; here it means that all is sent.
        let taken = workstation.take_unsent(&prepared.loaded.workdir, &draft.spec.job).ok().flatten();
        let left = taken.as_ref().and_then(Unsent::left).map(|(job, code)| (job.clone(), code.to_owned()));
        let Some((job, code)) = left else { return Draft { unsent: taken, ..draft } };
        match jobdir::is_code_alone(store.as_ref(), &job).await {
            Ok(true) => (draft.spec.job, draft.unsent, draft.left) = (job, taken, Some(code)),
            // It was made all the same: it is no id for another job.
            Ok(false) => draft.unsent = taken,
            // It stays for whoever hears an answer.
            Err(_) => {}
        }
        draft
    }

    /// From here on this code is under way: whoever comes after a call that is cut off takes its id.
    pub fn sends(&mut self, context: &Context, code: &CodeArchive) {
        if let Some(left) = &self.left {
            context.printer.note(if *left == code.sha256 {
                format!("an earlier call was cut off while it sent the code of {}: what has arrived is not sent again", self.spec.job)
            } else {
                format!("an earlier call was cut off while it sent the code of {}, and a file has changed since: all of it is sent", self.spec.job)
            });
        }
        // Of what is not sent in parts, or cannot be left, the next call sends all.
        let leave = |mut unsent: Unsent| unsent.leave(&self.spec.job, &code.sha256).ok().map(|()| unsent);
        self.unsent = self.unsent.take().filter(|_| code.packed_bytes >= WORTH_WAITING).and_then(leave);
    }

    /// What is in the job root of code that is none of this job's, where all of it had arrived.
    pub fn stale(&self, code: &CodeArchive) -> Option<String> {
        self.left.as_ref().filter(|left| **left != code.sha256).map(|left| layout::code(&self.spec.job, left))
    }

    /// With what it means for the next call that this one is cut off.
    pub fn cut_off(&self, context: &Context, fault: Fault) -> Fault {
        if self.unsent.is_none() {
            return fault;
        }
        // What mends the line comes first.
        if fault.hint.is_some() {
            context.printer.note(GOES_ON);
        }
        fault.or_hint(GOES_ON)
    }

    /// All of it is there, and the job may be made: its id is no other's from here on.
    pub fn sent(self) {
        // Whoever finds the id all the same asks whether there is such a job.
        let _gone = self.unsent.map(Unsent::sent);
    }
}
