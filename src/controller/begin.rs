//! The first launch of a job that this process has just made: there is nothing to look at yet.
//!
//! A look at a new job finds no receipt, no attempt, no wish and no checkpoint, and each of those answers takes a tenth of a
//! second from a bucket. Whatever goes wrong here is found by the next look, like everything else.

use super::act::ActError;
use super::drive::Controller;
use super::memory::JobMemory;
use super::observe::Observed;
use crate::job::{AttemptNo, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::policy::reconcile::Act;

impl Controller {
    /// Plans and launches the first attempt. Gives what a drive of the job then need not read again.
    ///
    /// # Errors
    /// As any act: the job is there, and a drive of it tries again.
    pub async fn begin(&self, dir: &JobDir, spec: &ResolvedSpec) -> (JobMemory, Result<(), ActError>) {
        let mut memory = JobMemory { spec: Some(spec.clone()), ..JobMemory::default() };
        let nothing = Observed { attempts: Vec::new(), requests: Vec::new(), newest_checkpoint: None };
        let act = Act::CreatePlan { attempt: AttemptNo::FIRST, resume_from: None, reason: "the job was submitted".into() };
        let done = self.act(dir, spec, &mut memory, &nothing, &act).await;
        (memory, done.map(drop))
    }
}
