//! The setup on a kept disk: a trial of a tuning begins with the files of its code and its setup.
//!
//! ```text
//!   setup has ended ─> setup-files.json, beside the agent's state
//!   another trial starts on this disk ─> later files go, and the code is unpacked over the rest
//! ```
//! Not kept apart: a file of the setup that a trial changed, or a file outside the work folder.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use crate::agent::agent::Agent;
use crate::agent::report::retry_sender::Outbox;
use crate::job::{Reaction, ResolvedSpec};
use crate::ports::Tree;

/// Ten times the files of an environment with PyTorch. With more, the next trial sets up again.
const FILES_MAX: usize = 500_000;

/// The work folder after the setup. The next trial must have the same setup and code.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SetupFiles {
    setup: Option<String>,
    code: Option<String>,
    /// Files and links to folders, relative to the work folder.
    files: BTreeSet<String>,
}

impl Agent {
    /// Notes the files of the setup, if another trial may begin on this disk.
    pub(crate) async fn note_setup(&mut self) {
        let resolved = &self.attempt.resolved;
        if resolved.tuned.is_none() || resolved.spec.on.success != Reaction::Stop {
            return;
        }
        let (out, work) = (self.out.clone(), self.attempt.folders.work.clone());
        let (setup, code) = origin(resolved);
        let noted = self
            .alive_while(async {
                let tree = whole_tree(&out, &work).await?;
                let files = paths(&tree).map(str::to_owned).collect();
                let noted = SetupFiles { setup, code, files };
                let bytes = serde_json::to_vec(&noted).map_err(io::Error::from)?;
                out.files.replace(&list_path(&out.state), &bytes)
            })
            .await;
        if let Err(error) = noted {
            tracing::warn!("the files of the setup are not noted, so it will run again: {error}");
        }
    }
}

fn origin(resolved: &ResolvedSpec) -> (Option<String>, Option<String>) {
    let code = resolved.code.as_ref().map(|code| code.sha256.clone());
    (resolved.spec.setup.clone(), code)
}

fn list_path(state: &Path) -> PathBuf {
    state.with_file_name("setup-files.json")
}

async fn whole_tree(out: &Outbox, work: &Path) -> io::Result<Tree> {
    let tree = out.files.walk_aside(work, FILES_MAX).await?;
    if tree.truncated { Err(io::Error::other("there are too many files")) } else { Ok(tree) }
}

fn paths(tree: &Tree) -> impl Iterator<Item = &str> {
    let files = tree.files.iter().map(|file| file.path.as_str());
    files.chain(tree.links.iter().map(|link| link.path.as_str()))
}

/// Removes what an earlier trial wrote into the work folder. Whether the setup of this attempt is
/// there; otherwise, the folder is of no use.
///
/// # Errors
/// When a file cannot be removed.
pub(crate) async fn restore_setup(out: &Outbox, attempt: &Attempt) -> io::Result<bool> {
    let noted = out.files.read(&list_path(&out.state))?;
    let noted = noted.and_then(|bytes| serde_json::from_slice::<SetupFiles>(&bytes).ok());
    let (setup, code) = origin(&attempt.resolved);
    let Some(noted) = noted.filter(|noted| noted.setup == setup && noted.code == code) else {
        return Ok(false);
    };
    let work = &attempt.folders.work;
    let Ok(tree) = whole_tree(out, work).await else { return Ok(false) };
    let is_whole = {
        let there: BTreeSet<&str> = paths(&tree).collect();
        noted.files.iter().all(|path| there.contains(path.as_str()))
    };
    if !is_whole {
        return Ok(false);
    }
    for path in paths(&tree).filter(|path| !noted.files.contains(*path)) {
        out.files.remove_aside(&work.join(path)).await?;
    }
    Ok(true)
}
