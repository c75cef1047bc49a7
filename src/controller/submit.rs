//! Makes a job: the code first, the spec last. A job exists when its spec does, and then it is complete.

use std::path::Path;
use std::sync::Arc;

use crate::job::ResolvedSpec;
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::ports::{Created, Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] JobDirError),
    /// Two jobs drew the same name, or somebody submits the same twice.
    #[error("job `{0}` exists already")]
    Exists(crate::job::JobId),
    /// The archive changed between packing and uploading.
    #[error("the packed workdir changed while it was uploaded")]
    Changed,
    /// Somebody has cleared it away.
    #[error("the code of job `{0}` is not in the job root any more")]
    NoCode(crate::job::JobId),
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
/// When the store refuses, or the job is there already; then no job was made.
pub async fn submit(store: &Arc<dyn Store>, spec: &ResolvedSpec, archive: Option<&Path>) -> Result<JobDir, SubmitError> {
    let dir = JobDir::new(Arc::clone(store), spec.job.clone());
    if let Some(path) = archive {
        upload_code(store, spec, path).await?;
    }
    create_spec(&dir, spec).await?;
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

/// The second half: now the job exists.
pub(super) async fn create_spec(dir: &JobDir, spec: &ResolvedSpec) -> Result<(), SubmitError> {
    match dir.create_spec(spec).await? {
        Created::New => Ok(()),
        Created::Exists => Err(SubmitError::Exists(spec.job.clone())),
    }
}
