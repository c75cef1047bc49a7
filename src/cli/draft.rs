//! A job before it is made: its spec, under a new id or under the one that a call was sending code for when it was cut off.
//!
//! Code lies under its job, so that what has arrived of it is of use to that id alone. What must never live here: how far it is
//! (`wire::Unsent` keeps the id, the job root's client the parts).

use super::workdir::Prepared;
use super::{Context, submission};
use crate::controller::WORTH_WAITING;
use crate::job::ResolvedSpec;
use crate::jobdir;
use crate::wire::{Store, Unsent, Workstation};

pub struct Draft {
    pub spec: ResolvedSpec,
    unsent: Option<Unsent>,
}

/// Of an id that is known beforehand: whoever makes it again has the same.
impl From<ResolvedSpec> for Draft {
    fn from(spec: ResolvedSpec) -> Self {
        Draft { spec, unsent: None }
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
        let Some(job) = taken.as_ref().and_then(Unsent::left).cloned() else { return Draft { unsent: taken, ..draft } };
        match jobdir::is_code_alone(store.as_ref(), &job).await {
            Ok(true) => {
                context.printer.note(format!(
                    "the code of {job} was not all sent when its call ended; what had arrived is not sent again, where it is the same"
                ));
                (draft.spec.job, draft.unsent) = (job, taken);
            }
            // It was made all the same: it is no id for another job.
            Ok(false) => draft.unsent = taken,
            // It stays for whoever hears an answer.
            Err(_) => {}
        }
        draft
    }

    /// From here on its code is under way, so large when it is packed: whoever comes after a call that is cut off takes its id.
    pub fn sends(&mut self, packed_bytes: u64) {
        // Of what is not sent in parts, or cannot be left, the next call sends all.
        self.unsent =
            self.unsent.take().filter(|_| packed_bytes >= WORTH_WAITING).and_then(|mut unsent| unsent.leave(&self.spec.job).ok().map(|()| unsent));
    }

    /// Whether the next call of its name goes on, should this one be cut off.
    pub fn is_gone_on_with(&self) -> bool {
        self.unsent.is_some()
    }

    /// All of it is there, and the job may be made: its id is no other's from here on.
    pub fn sent(self) {
        // Whoever finds the id all the same asks whether there is such a job.
        let _gone = self.unsent.map(Unsent::sent);
    }
}
