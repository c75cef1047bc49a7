//! An upload of code that an earlier call left incomplete: the new job takes its id.
//!
//! The code is stored under its job, so an interrupted upload helps only that id. Not here: the
//! upload's progress (`wire::Unsent` keeps the id, the job root's client the parts).

use super::submission::Submission;
use crate::app::Fault;
use crate::app::session::Session;
use crate::controller::WORTH_WAITING;
use crate::job::{CodeArchive, JobId, ResolvedSpec};
use crate::jobdir::{self, layout};
use crate::wire::Unsent;

const GOES_ON: &str =
    "the next `lamp run` of this name sends what has not arrived of the same folder";

#[derive(Default)]
pub struct ResumedUpload {
    unsent: Option<Unsent>,
    /// The SHA-256 of the code of the interrupted upload.
    left: Option<String>,
}

impl ResumedUpload {
    /// Gives the job the id of an interrupted upload of this workdir, if there is one.
    pub async fn take(
        session: &Session<'_>,
        submission: &Submission,
        spec: &mut ResolvedSpec,
    ) -> ResumedUpload {
        let none = ResumedUpload::default();
        if session.store.is_folder() || submission.survey.bytes < WORTH_WAITING {
            return none;
        }
        // An unwritable state folder is reported elsewhere; here it means a full upload.
        let taken =
            session.workstation.take_unsent(&submission.loaded.workdir, &spec.job).ok().flatten();
        let left =
            taken.as_ref().and_then(Unsent::left).map(|(job, code)| (job.clone(), code.to_owned()));
        let Some((job, code)) = left else { return ResumedUpload { unsent: taken, ..none } };
        match jobdir::is_code_alone(session.store.as_ref(), &job).await {
            Ok(true) => {
                spec.job = job;
                ResumedUpload { unsent: taken, left: Some(code) }
            }
            // The job was made after all, so its id is taken.
            Ok(false) => ResumedUpload { unsent: taken, ..none },
            // It stays for a later call that reaches the job root.
            Err(_) => none,
        }
    }

    /// Records that this code is being uploaded, so that a later call can continue.
    pub fn sends(&mut self, session: &Session<'_>, job: &JobId, code: &CodeArchive) {
        if let Some(left) = &self.left {
            session.note(if *left == code.sha256 {
                format!("an earlier call was cut off while it sent the code of {}: what has arrived is not sent again", job)
            } else {
                format!("an earlier call was cut off while it sent the code of {}, and a file has changed since: all of it is sent", job)
            });
        }
        // A small upload is repeated whole, as is one that cannot be recorded.
        let leave = |mut unsent: Unsent| unsent.leave(job, &code.sha256).ok().map(|()| unsent);
        self.unsent =
            self.unsent.take().filter(|_| code.packed_bytes >= WORTH_WAITING).and_then(leave);
    }

    /// The complete code of the interrupted upload, if this job has different code.
    pub fn stale(&self, job: &JobId, code: &CodeArchive) -> Option<String> {
        self.left.as_ref().filter(|left| **left != code.sha256).map(|left| layout::code(job, left))
    }

    /// Adds what the next call does about the interrupted upload.
    pub fn cut_off(&self, session: &Session<'_>, fault: Fault) -> Fault {
        if self.unsent.is_none() {
            return fault;
        }
        if fault.hint.is_some() {
            session.note(GOES_ON);
        }
        fault.or_hint(GOES_ON)
    }

    /// The upload is complete, and the id is used.
    pub fn sent(self) {
        // If this fails, a later call sees that the job exists.
        let _gone = self.unsent.map(Unsent::sent);
    }
}
