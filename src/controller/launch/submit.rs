//! Makes a job: the code first, the spec last. With its spec the job exists and is complete.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::launcher::JobLauncher;
use crate::job::{Applied, JobId, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError, insist, is_silence, layout};
use crate::ports::{Arrival, Clock, Created, Store, StoreError, chain};

/// A larger archive is uploaded in parts (`store::s3_upload_source`), and finished parts are not
/// sent again. The next command can repeat a smaller one in the same time.
pub const WORTH_WAITING: u64 = 8 * 1024 * 1024;

/// The time for a broken line to come back, for example after a restart of the router. The user
/// waits and can stop it.
const LINE_IS_BACK_WITHIN: Duration = Duration::from_secs(5 * 60);

/// The client gives up a silent store after 20 s. A longer try has probably sent data.
const FLOWED: Duration = Duration::from_secs(60);

/// The number of breaks during a transfer. With more, a line that never carries a whole part in two
/// minutes would be tried forever.
const BREAKS_MAX: u32 = 12;

/// Between two tries.
const TRIED_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] JobDirError),
    /// Two jobs drew the same id, or the user submits a job twice.
    #[error("job `{0}` exists already")]
    Exists(JobId),
    /// The archive changed between packing and uploading.
    #[error("the packed workdir changed while it was uploaded")]
    Changed,
    /// The code was deleted.
    #[error("the code of job `{0}` is not in the job root any more")]
    NoCode(JobId),
    /// Several tries got no answer: the job may exist, and another controller may launch it.
    #[error("nobody has answered whether job `{job}` was made")]
    Unsure {
        job: JobId,
        #[source]
        cause: StoreError,
    },
}

impl SubmitError {
    /// The job root has no space left.
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            SubmitError::Store(StoreError::Full { .. })
                | SubmitError::Record(JobDirError::Store(StoreError::Full { .. }))
        )
    }
}

/// A packed workdir on its way to the job root.
#[derive(Debug)]
pub struct Archive {
    pub path: PathBuf,
    /// The arrived part, for the progress bar.
    pub sent: Arrival,
}

impl From<&Path> for Archive {
    fn from(path: &Path) -> Self {
        Archive { path: path.to_owned(), sent: Arrival::default() }
    }
}

/// Writes a job; `archive` is the packed workdir that `spec.code` describes.
///
/// When the store refuses, or the job exists already: then this call made no job. Without an answer
/// of the store it may have.
pub async fn submit(
    store: &Arc<dyn Store>,
    spec: &ResolvedSpec,
    archive: Option<&Path>,
) -> Result<JobDir, SubmitError> {
    let dir = JobDir::new(Arc::clone(store), spec.job.clone());
    if let Some(path) = archive {
        upload_once(store, spec, &path.into()).await?;
    }
    made(spec, dir.create_spec(spec).await)?;
    Ok(dir)
}

fn goes_in_parts(store: &Arc<dyn Store>, spec: &ResolvedSpec) -> bool {
    !store.is_folder() && spec.code.as_ref().is_some_and(|code| code.packed_bytes >= WORTH_WAITING)
}

async fn upload_once(
    store: &Arc<dyn Store>,
    spec: &ResolvedSpec,
    archive: &Archive,
) -> Result<(), SubmitError> {
    let Some(code) = &spec.code else { return Ok(()) };
    let key = layout::code(&spec.job, &code.sha256);
    archive.sent.begins();
    // An interrupted try may have sent all of it: the key has the sum.
    if goes_in_parts(store, spec)
        && store.head(&key).await?.is_some_and(|there| there.bytes == code.packed_bytes)
    {
        archive.sent.is_there(code.packed_bytes);
        return Ok(());
    }
    let (_, sha256) = store.put_file_counted(&key, &archive.path, &archive.sent).await?;
    if sha256 == code.sha256 {
        return Ok(());
    }
    // If the delete fails, the machine finds the wrong sum.
    let _kept = store.delete(&key).await;
    Err(SubmitError::Changed)
}

/// The first half of [`submit`]: the code is in the job root, and the job does not exist yet.
/// During the upload of a large archive a broken line is waited for: the store remembers the
/// finished parts.
///
/// When the store refuses or is silent for too long, or the archive differs from the spec.
pub async fn upload_code(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    spec: &ResolvedSpec,
    archive: &Archive,
) -> Result<(), SubmitError> {
    let is_worth_it = goes_in_parts(store, spec);
    let (mut broken_since, mut breaks) = (None, 0);
    loop {
        let began = clock.mono();
        let error = match upload_once(store, spec, archive).await {
            Err(SubmitError::Store(error)) if is_worth_it && is_silence(&error) => error,
            other => return other,
        };
        let now = clock.mono();
        let flowed = now.saturating_sub(began) > FLOWED;
        breaks += u32::from(flowed);
        let since = if flowed { now } else { broken_since.unwrap_or(now) };
        broken_since = Some(since);
        if now.saturating_sub(since) >= LINE_IS_BACK_WITHIN || breaks > BREAKS_MAX {
            return Err(error.into());
        }
        tracing::warn!(
            "the code did not all arrive, and what has not is sent once more in {} s: {}",
            TRIED_AGAIN.as_secs(),
            chain(&error)
        );
        clock.sleep(TRIED_AGAIN).await;
    }
}

impl JobLauncher {
    /// As [`submit`], for a user who waits: a call without an answer is repeated.
    ///
    /// [`SubmitError::Unsure`] when the job may have been made; after any other error it was not.
    pub async fn submit(
        &self,
        spec: &ResolvedSpec,
        archive: &Archive,
    ) -> Result<JobDir, SubmitError> {
        self.upload_code(spec, archive).await?;
        let dir = JobDir::new(Arc::clone(&self.store), spec.job.clone());
        self.make(&dir, spec).await?;
        Ok(dir)
    }

    /// The first half: see [`upload_code`].
    ///
    /// # Errors
    /// As there.
    pub async fn upload_code(
        &self,
        spec: &ResolvedSpec,
        archive: &Archive,
    ) -> Result<(), SubmitError> {
        upload_code(&self.store, &self.clock, spec, archive).await
    }

    /// The second half: now the job exists.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn make(&self, dir: &JobDir, spec: &ResolvedSpec) -> Result<(), SubmitError> {
        // Before the job exists, because a daemon may launch it at once.
        if let Ok(cloud) = self.clouds.get(spec.spec.machine.cloud) {
            cloud.submitted(spec);
        }
        made(spec, insist(&self.clock, || dir.create_spec(spec)).await)
    }
}

fn made(spec: &ResolvedSpec, created: Result<Created, JobDirError>) -> Result<(), SubmitError> {
    match created {
        Ok(Created::New) => Ok(()),
        Ok(Created::Exists) => Err(SubmitError::Exists(spec.job.clone())),
        Err(JobDirError::Unsure(cause)) => {
            Err(SubmitError::Unsure { job: spec.job.clone(), cause })
        }
        Err(error) => Err(error.into()),
    }
}

/// The id of a job or schedule of a job file. Another `lamp apply` to the same job root gives the
/// same id; another job root gives another. With one id in two job roots, a machine of one would
/// look like a late launch of the other.
pub fn applied_id(root: &str, name: &str, applied: &Applied, which: &str) -> JobId {
    let Applied { owner, set, file, .. } = applied;
    let root = root.trim_end_matches('/');
    let hash = Sha256::digest(format!("{root}\n{owner}\n{set}\n{file}\n{which}").as_bytes());
    let mut letters = [0; 6];
    letters.copy_from_slice(&hash[..6]);
    JobId::from_name(name, letters)
}
