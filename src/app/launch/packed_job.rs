//! A job with its packed workdir, until it is in the job root.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::submission::Submission;
use crate::app::session::{Bytes, Session};
use crate::app::text::counted;
use crate::app::{ExitCode, Fault, record_errors};
use crate::config::Loaded;
use crate::controller::{Archive, Controller, SubmitError};
use crate::job::{CodeArchive, CodeSource, JobId, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::{self, Survey, Workstation};

pub struct PackedJob {
    pub spec: ResolvedSpec,
    archive: Archive,
    _scratch: ScratchFile,
}

impl PackedJob {
    /// The packed workdir; removed with this value.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    pub fn code(&self) -> &CodeArchive {
        self.spec.code.as_ref().expect("it is packed")
    }

    /// Uploads the code; the job does not exist yet.
    ///
    /// # Errors
    /// Fails when the job root refuses.
    pub async fn upload(&self, controller: &Controller) -> Result<(), Fault> {
        controller
            .upload_code(&self.spec, &self.archive)
            .await
            .map_err(|error| submit_fault(&error))
    }

    /// Runs `sending`. After a second, people see its progress.
    pub async fn shown<T>(&self, session: &Session<'_>, sending: impl Future<Output = T>) -> T {
        let total = self.code().packed_bytes;
        let told = || match self.archive.sent.so_far() {
            (come, before) if come < total => {
                ("sending the code".to_owned(), Some(Bytes { come, before, total }))
            }
            // The agent or the job may still be on its way.
            _ => ("the code is sent; a moment".to_owned(), None),
        };
        session.with_bytes(told, sending).await
    }
}

/// Packs, uploads and writes the spec; the job exists when this returns.
///
/// # Errors
/// Fails when the workdir cannot be packed, or the job root refuses.
pub async fn make(
    session: &Session<'_>,
    controller: &Controller,
    submission: &Submission,
) -> Result<JobDir, Fault> {
    let spec = submission.spec(&session.workstation.owner, session.clock.now());
    let packed = pack(session, submission, spec).await?;
    packed
        .shown(session, controller.submit(&packed.spec, &packed.archive))
        .await
        .map_err(|error| submit_fault(&error))
}

/// Packs the workdir; nothing leaves this workstation yet. After a second, people see its progress.
///
/// # Errors
/// Fails when the workdir cannot be packed.
pub async fn pack(
    session: &Session<'_>,
    submission: &Submission,
    spec: ResolvedSpec,
) -> Result<PackedJob, Fault> {
    let Submission { loaded, survey, folder } = submission;
    let job = &spec.job;
    let scratch = scratch(session.workstation, job)?;
    let packed = Arc::new(AtomicU64::default());
    let (files, out, count) = (survey.clone(), scratch.0.clone(), Arc::clone(&packed));
    let packing = tokio::task::spawn_blocking(move || wire::pack_workdir(&files, &out, &count));
    let told = || {
        let come = packed.load(Ordering::Relaxed);
        ("packing".to_owned(), Some(Bytes { come, before: 0, total: survey.bytes }))
    };
    let mut code = session.with_bytes(told, packing).await.expect("packing does not panic")?;
    code.source = source(session, loaded);
    session.note(shipped_text(survey, &code, folder));
    Ok(PackedJob {
        spec: ResolvedSpec { code: Some(code), ..spec },
        archive: scratch.0.as_path().into(),
        _scratch: scratch,
    })
}

/// Where it was packed. `None` if this workstation has no id, which a launch reports.
fn source(session: &Session<'_>, loaded: &Loaded) -> Option<CodeSource> {
    let workstation = session.workstation.here().ok()?.as_str().to_owned();
    let text = |path: &Path| path.to_str().map(str::to_owned);
    let file = loaded.file.as_deref().and_then(text);
    Some(CodeSource {
        workstation,
        folder: text(&loaded.workdir)?,
        file,
        packed: session.clock.now(),
    })
}

fn shipped_text(survey: &Survey, code: &CodeArchive, folder: &str) -> String {
    let folder = if folder == "." { "this folder" } else { folder };
    format!(
        "packed {} of {folder}: {}, {} compressed",
        counted(survey.files, "file"),
        wire::show_bytes(survey.bytes),
        wire::show_bytes(code.packed_bytes)
    )
}

/// A file of this call alone.
///
/// # Errors
/// Fails when the state folder cannot be written.
pub fn scratch(workstation: &Workstation, job: &JobId) -> Result<ScratchFile, Fault> {
    let file = workstation.scratch_file(&format!("{job}.tar.zst"));
    file.map(ScratchFile).map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "cannot write in the state folder").because(&error)
    })
}

/// Removes the packed workdir when the call ends, on every path.
pub struct ScratchFile(pub PathBuf);

impl Drop for ScratchFile {
    fn drop(&mut self) {
        wire::remove_scratch(&self.0);
    }
}

pub fn submit_fault(error: &SubmitError) -> Fault {
    let fault = match error {
        SubmitError::Unsure { job, .. } => {
            return Fault::from_error(ExitCode::UNREACHABLE, error)
                .meaning(format!("whether job `{job}` was made is not known: if it was, it may be launched, and bill"))
                .hint(format!("`lamp status {job}` shows whether it is there, `lamp cancel {job}` ends it"));
        }
        error if error.is_full() => Fault::from_error(ExitCode::UNREACHABLE, error)
            .hint("the disk of the job root is full: free some space there, or name another place, `--job-root ~/lamp-jobs`"),
        SubmitError::Store(_) | SubmitError::Record(JobDirError::Store(_)) => record_errors::silence(error),
        SubmitError::Record(error) => record_errors::record_fault(error),
        SubmitError::Exists(_) | SubmitError::NoCode(_) => Fault::from_error(ExitCode::REFUSED, error),
        SubmitError::Changed => Fault::from_error(ExitCode::REFUSED, error).hint("run it again"),
    };
    fault.meaning("no job was made: nothing was started or billed")
}
