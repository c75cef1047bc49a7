//! Makes a job: the code first, the spec last. A job exists when its spec does, and then it is complete.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::drive::Controller;
use crate::job::{Applied, JobId, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError, insist, layout};
use crate::ports::{Created, Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] JobDirError),
    /// Two jobs drew the same name, or somebody submits the same twice.
    #[error("job `{0}` exists already")]
    Exists(JobId),
    /// The archive changed between packing and uploading.
    #[error("the packed workdir changed while it was uploaded")]
    Changed,
    /// Somebody has cleared it away.
    #[error("the code of job `{0}` is not in the job root any more")]
    NoCode(JobId),
    /// Nobody has answered, several times: it may be there, and then somebody may launch it.
    #[error("nobody has answered whether job `{job}` was made")]
    Unsure {
        job: JobId,
        #[source]
        cause: StoreError,
    },
}

impl SubmitError {
    /// No space is left where the job should be kept.
    pub fn is_full(&self) -> bool {
        matches!(self, SubmitError::Store(StoreError::Full { .. }) | SubmitError::Record(JobDirError::Store(StoreError::Full { .. })))
    }
}

/// Writes a job; `archive` is the packed workdir that `spec.code` describes.
///
/// # Errors
/// When the store refuses, or the job is there already; then no job was made by this. When the store does not answer, it may have
/// been.
pub async fn submit(store: &Arc<dyn Store>, spec: &ResolvedSpec, archive: Option<&Path>) -> Result<JobDir, SubmitError> {
    let dir = JobDir::new(Arc::clone(store), spec.job.clone());
    if let Some(path) = archive {
        upload_code(store, spec, path).await?;
    }
    made(spec, dir.create_spec(spec).await)?;
    Ok(dir)
}

/// The first half of [`submit`]: the code is there, the job is not yet.
///
/// # Errors
/// When the store refuses, or the archive is not the one that the spec describes.
pub async fn upload_code(store: &Arc<dyn Store>, spec: &ResolvedSpec, archive: &Path) -> Result<(), SubmitError> {
    let Some(code) = &spec.code else { return Ok(()) };
    let (_, sha256) = store.put_file(&layout::code(&spec.job, &code.sha256), archive).await?;
    if sha256 == code.sha256 { Ok(()) } else { Err(SubmitError::Changed) }
}

impl Controller {
    /// As [`submit`], for somebody who waits: what nobody has answered is asked again.
    ///
    /// # Errors
    /// [`SubmitError::Unsure`] when the job may have been made all the same; with any other it was not, by this.
    pub async fn submit(&self, spec: &ResolvedSpec, archive: &Path) -> Result<JobDir, SubmitError> {
        upload_code(&self.store, spec, archive).await?;
        let dir = JobDir::new(Arc::clone(&self.store), spec.job.clone());
        self.make(&dir, spec).await?;
        Ok(dir)
    }

    /// The second half: now the job exists.
    pub(super) async fn make(&self, dir: &JobDir, spec: &ResolvedSpec) -> Result<(), SubmitError> {
        made(spec, insist(&*self.clock, || dir.create_spec(spec)).await)
    }
}

fn made(spec: &ResolvedSpec, created: Result<Created, JobDirError>) -> Result<(), SubmitError> {
    match created {
        Ok(Created::New) => Ok(()),
        Ok(Created::Exists) => Err(SubmitError::Exists(spec.job.clone())),
        Err(JobDirError::Unsure(cause)) => Err(SubmitError::Unsure { job: spec.job.clone(), cause }),
        Err(error) => Err(error.into()),
    }
}

/// The id of what is made of a job file: the same for whoever applies it to this job root again, and another one in another. Under one
/// id the machine of the one would look like a late launch of the other.
pub fn applied_id(root: &str, name: &str, applied: &Applied, which: &str) -> JobId {
    let Applied { owner, set, file, .. } = applied;
    let root = root.trim_end_matches('/');
    let hash = Sha256::digest(format!("{root}\n{owner}\n{set}\n{file}\n{which}").as_bytes());
    let mut letters = [0; 6];
    letters.copy_from_slice(&hash[..6]);
    JobId::from_name(name, letters)
}
