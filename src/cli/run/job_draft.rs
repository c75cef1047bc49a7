//! A job before it is made: its spec, under a new id, or under the id of an interrupted upload.
//!
//! The code is stored under its job, so an interrupted upload helps only that id. Not here: the
//! upload's progress (`wire::Unsent` keeps the id, the job root's client the parts).

use crate::cli::plan::submission::Submission;
use crate::cli::{Context, Fault};
use crate::controller::WORTH_WAITING;
use crate::job::{CodeArchive, ResolvedSpec};
use crate::jobdir::{self, layout};
use crate::wire::{StoreHandle, Unsent, Workstation};

const GOES_ON: &str =
    "the next `lamp run` of this name sends what has not arrived of the same folder";

pub struct Draft {
    pub spec: ResolvedSpec,
    unsent: Option<Unsent>,
    /// The SHA-256 of the code of the interrupted upload.
    left: Option<String>,
}

/// For an id that is known beforehand.
impl From<ResolvedSpec> for Draft {
    fn from(spec: ResolvedSpec) -> Self {
        Draft { spec, unsent: None, left: None }
    }
}

impl Draft {
    /// Takes the id of an interrupted upload of this workdir, if there is one.
    pub async fn new(
        context: &Context,
        workstation: &Workstation,
        store: &StoreHandle,
        submission: &Submission,
    ) -> Draft {
        let mut draft = Draft::from(submission.spec(context));
        if store.is_folder() || submission.survey.bytes < WORTH_WAITING {
            return draft;
        }
        // An unwritable state folder is reported elsewhere; here it means a full upload.
        let taken =
            workstation.take_unsent(&submission.loaded.workdir, &draft.spec.job).ok().flatten();
        let left =
            taken.as_ref().and_then(Unsent::left).map(|(job, code)| (job.clone(), code.to_owned()));
        let Some((job, code)) = left else { return Draft { unsent: taken, ..draft } };
        match jobdir::is_code_alone(store.as_ref(), &job).await {
            Ok(true) => (draft.spec.job, draft.unsent, draft.left) = (job, taken, Some(code)),
            // The job was made after all, so its id is taken.
            Ok(false) => draft.unsent = taken,
            // It stays for a later call that reaches the job root.
            Err(_) => {}
        }
        draft
    }

    /// Records that this code is being uploaded, so that a later call can continue.
    pub fn sends(&mut self, context: &Context, code: &CodeArchive) {
        if let Some(left) = &self.left {
            context.printer.note(if *left == code.sha256 {
                format!("an earlier call was cut off while it sent the code of {}: what has arrived is not sent again", self.spec.job)
            } else {
                format!("an earlier call was cut off while it sent the code of {}, and a file has changed since: all of it is sent", self.spec.job)
            });
        }
        // A small upload is repeated whole, as is one that cannot be recorded.
        let leave =
            |mut unsent: Unsent| unsent.leave(&self.spec.job, &code.sha256).ok().map(|()| unsent);
        self.unsent =
            self.unsent.take().filter(|_| code.packed_bytes >= WORTH_WAITING).and_then(leave);
    }

    /// The complete code of the interrupted upload, if this job has different code.
    pub fn stale(&self, code: &CodeArchive) -> Option<String> {
        self.left
            .as_ref()
            .filter(|left| **left != code.sha256)
            .map(|left| layout::code(&self.spec.job, left))
    }

    /// Adds what the next call does about the interrupted upload.
    pub fn cut_off(&self, context: &Context, fault: Fault) -> Fault {
        if self.unsent.is_none() {
            return fault;
        }
        if fault.hint.is_some() {
            context.printer.note(GOES_ON);
        }
        fault.or_hint(GOES_ON)
    }

    /// The upload is complete, and the id is used.
    pub fn sent(self) {
        // If this fails, a later call sees that the job exists.
        let _gone = self.unsent.map(Unsent::sent);
    }
}
