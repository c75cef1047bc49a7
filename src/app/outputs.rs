//! Fetches a job's files: which exist, which are here already, and the progress.
//!
//! ```text
//!   list ──> each file:  not here ───────────────────────> fetched, and dated as its object
//!                        here, same size and date ───────> already there
//!                        here, same size, another date ──> fetched beside it and compared
//!                        here, another size ─────────────> left as it is, unless forced
//! ```
//!
//! Each file is written whole or not at all, so an interrupted fetch continues when it is repeated.
//! Not here: where the files go, and the summary at the end (the face).

use std::collections::HashSet;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use serde::Serialize;

use super::{ExitCode, Fault, record_errors};
use crate::job::{JobId, Manifest, ManifestEntry};
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::wire::{self, KeptFile, StoreHandle, show_bytes};

/// Where outputs go, below the current folder: `lamp-outputs/<job>/`. Never packed as code.
pub const FOLDER: &str = "lamp-outputs";

/// One at a time, each small file costs a round trip. Each holds up to 32 MiB in memory.
const FILES_IN_FLIGHT: usize = 8;

/// How far a fetch is, for the face to show.
#[derive(Debug, Default)]
pub struct Transfer {
    /// Bytes that came; skipped files count too.
    pub come: Arc<AtomicU64>,
    pub files: AtomicU64,
}

/// One output and its state. The field names are an interface.
#[derive(Clone, Debug, Serialize)]
pub struct Output {
    /// Relative to the job's outputs.
    pub path: String,
    /// Relative to the local folder. Files of `$LAMP_OUTPUT_DIR` have no folder of their own there.
    pub here: String,
    pub bytes: u64,
    /// When it was stored, by the store's clock.
    pub modified: Timestamp,
    pub state: OutputState,
    /// Its key, if that is not its path below the outputs.
    #[serde(skip)]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputState {
    /// Seen in the job directory; no fetch was requested.
    Listed,
    Fetched,
    AlreadyThere,
    /// A different file is here, and was left as it is.
    KeptLocal,
    Failed,
}

/// All outputs of a job, in order of their paths.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn list(dir: &JobDir) -> Result<Vec<Output>, Fault> {
    let prefix = layout::outputs(dir.job());
    let found = dir.store().list(&prefix).await;
    let found = found.map_err(|error| record_errors::record_fault(&JobDirError::Store(error)))?;
    let named = found.iter().filter_map(|object| Some((object.key.strip_prefix(&prefix)?, object)));
    // A bucket's console makes empty objects for folders.
    let files = named.filter(|(path, _)| !path.is_empty() && !path.ends_with('/'));
    let output = |(path, object): (&str, &_)| listed(path, object);
    return Ok(at_home(files.map(output).collect()));

    fn listed(path: &str, object: &wire::ObjectMeta) -> Output {
        Output {
            path: path.to_owned(),
            here: path.to_owned(),
            bytes: object.bytes,
            modified: object.modified,
            state: OutputState::Listed,
            key: None,
            error: None,
        }
    }
}

/// Puts files of `$LAMP_OUTPUT_DIR` beside the other outputs. If one name clashes, all keep their
/// place.
fn at_home(mut outputs: Vec<Output>) -> Vec<Output> {
    let begins = format!("{}/", layout::OUTPUT_DIR);
    let first = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    let (inside, beside): (Vec<&Output>, Vec<&Output>) =
        outputs.iter().partition(|output| output.path.starts_with(&begins));
    let taken: HashSet<String> = beside.iter().map(|output| first(&output.path)).collect();
    if inside.iter().all(|output| !taken.contains(&first(&output.path[begins.len()..]))) {
        for output in &mut outputs {
            if let Some(rest) = output.path.strip_prefix(&begins) {
                output.here = rest.to_owned();
            }
        }
    }
    outputs
}

pub fn of_checkpoint(job: &JobId, manifest: &Manifest, folder: &str) -> Vec<Output> {
    let path = |file: &ManifestEntry| format!("{}/{}", folder.trim_matches('/'), file.path);
    let output = |file: &ManifestEntry| Output {
        path: path(file),
        here: path(file),
        bytes: file.bytes,
        modified: file
            .modified
            .and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok())
            .unwrap_or(manifest.created),
        state: OutputState::Listed,
        key: Some(format!("{}{}", layout::job(job), file.key)),
        error: None,
    };
    manifest.files.iter().map(output).collect()
}

/// Fetches the outputs into a folder, and sets the `state` of each. `shown`: the folder as the
/// person knows it.
///
/// # Errors
/// Fails when the disk is too small, or the folder cannot be written.
pub async fn fetch(
    dir: &JobDir,
    outputs: Vec<Output>,
    folder: &Path,
    shown: &str,
    force: bool,
    transfer: &Transfer,
) -> Result<Vec<Output>, Fault> {
    room_for(&outputs, folder, force)?;
    if let Err(error) = wire::make_writable(folder) {
        let what = format!("cannot write into `{shown}`");
        let fault = Fault::new(ExitCode::REFUSED, what)
            .because(&error)
            .meaning("nothing was fetched; the outputs are safe in the job root");
        return Err(fault.hint(format!(
            "`lamp outputs {} --to FOLDER` brings them to another folder",
            dir.job()
        )));
    }
    let brought = stream::iter(outputs).map(|mut output| {
        let Transfer { come, files } = transfer;
        async move {
            let before = Fetch {
                store: dir.store(),
                key: output
                    .key
                    .clone()
                    .unwrap_or_else(|| format!("{}{}", layout::outputs(dir.job()), output.path)),
                come,
            };
            match before.bring(&output, folder, force).await {
                Ok(state) => output.state = state,
                Err(error) => (output.state, output.error) = (OutputState::Failed, Some(error)),
            }
            files.fetch_add(1, Ordering::Relaxed);
            output
        }
    });
    Ok(brought.buffered(FILES_IN_FLIGHT).collect().await)
}

struct Fetch<'a> {
    store: &'a StoreHandle,
    key: String,
    /// Bytes of all files so far; skipped files count too.
    come: &'a Arc<AtomicU64>,
}

impl Fetch<'_> {
    async fn bring(
        &self,
        output: &Output,
        folder: &Path,
        force: bool,
    ) -> Result<OutputState, String> {
        // A key written by a hostile machine must not lead out of the folder.
        if !Path::new(&output.here).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err("its name leads out of the folder".to_owned());
        }
        let target = folder.join(&output.here);
        let here = KeptFile::at(&target).map_err(|error| error.to_string())?;
        let skip = |state| {
            self.come.fetch_add(output.bytes, Ordering::Relaxed);
            Ok(state)
        };
        match here {
            Some(here) if is_same(&here, output) => return skip(OutputState::AlreadyThere),
            Some(here) if !force && here.bytes != output.bytes => {
                return skip(OutputState::KeptLocal);
            }
            Some(here) if !force => return self.compare(&here, &target).await,
            _ => {}
        }
        self.get(&target).await?;
        // If the time cannot be set, the next fetch compares the contents.
        let _ = wire::date_file(&target, output.modified);
        Ok(OutputState::Fetched)
    }

    async fn compare(&self, here: &KeptFile, target: &Path) -> Result<OutputState, String> {
        let beside = wire::TemporaryFile::of(target);
        let theirs = self.get(beside.path()).await?;
        let ours = here.sha256().await.map_err(|error| error.to_string())?;
        Ok(if ours == theirs { OutputState::AlreadyThere } else { OutputState::KeptLocal })
    }

    async fn get(&self, target: &Path) -> Result<String, String> {
        match self.store.get_file_counted(&self.key, target, self.come).await {
            Ok(Some((_, sha256))) => Ok(sha256),
            Ok(None) => Err("it is not there any more".to_owned()),
            Err(error) => Err(Fault::from_error(ExitCode::UNREACHABLE, &error).sentence()),
        }
    }
}

fn is_same(here: &KeptFile, output: &Output) -> bool {
    here.bytes == output.bytes && here.is_dated(output.modified)
}

/// Refuses before the fetch when the disk is too small for all files.
fn room_for(outputs: &[Output], folder: &Path, force: bool) -> Result<(), Fault> {
    let comes = |output: &&Output| match KeptFile::at(&folder.join(&output.here)) {
        Ok(Some(here)) => force && !is_same(&here, output),
        _ => true,
    };
    let needed: u64 = outputs.iter().filter(comes).map(|output| output.bytes).sum();
    match wire::free_bytes(folder) {
        Some(free) if free < needed => {
            let what = format!(
                "the outputs need {}, and `{}` has room for {}",
                show_bytes(needed),
                folder.display(),
                show_bytes(free)
            );
            Err(Fault::new(ExitCode::UNREACHABLE, what)
                .meaning("nothing was fetched")
                .hint("`--to FOLDER` names a place on another disk"))
        }
        _ => Ok(()),
    }
}
