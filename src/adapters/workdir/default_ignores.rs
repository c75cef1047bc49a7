//! Files that stay here by default, whatever the ignore files say, and the warnings about them.

use std::fs;
use std::path::{Path, PathBuf};

use ignore::DirEntry;

use crate::job::Finding;
use crate::job::FindingCause::DoesNotShip;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkipReason {
    Git,
    Cache,
    Environment,
    Own,
}

/// Why an entry and all below it do not ship, whatever the ignore files say.
pub(crate) fn reason_to_prune(entry: &DirEntry, skip: &[PathBuf]) -> Option<SkipReason> {
    if entry.depth() == 0 {
        return None;
    }
    reason(entry.path(), entry.file_type().is_some_and(|kind| kind.is_dir()), skip)
}

/// The same for a folder that the walk may not have reached.
pub(crate) fn is_left_out(folder: &Path, skip: &[PathBuf]) -> bool {
    let is_folder = fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir());
    !is_folder || reason(folder, true, skip).is_some()
}

fn reason(path: &Path, is_folder: bool, skip: &[PathBuf]) -> Option<SkipReason> {
    // `.git` is a file in worktrees and submodules.
    let name = path.file_name()?;
    if name == ".git" {
        return Some(SkipReason::Git);
    }
    if !is_folder {
        return None;
    }
    if name == "__pycache__" {
        return Some(SkipReason::Cache);
    }
    // Its scripts and links hold absolute paths of this machine, so a copy would be broken.
    if path.join("pyvenv.cfg").is_file() {
        return Some(SkipReason::Environment);
    }
    skip.iter().any(|left| left == path).then_some(SkipReason::Own)
}

#[derive(Default)]
pub(crate) struct SkippedFiles {
    pub special: Vec<PathBuf>,
    pub pruned: Vec<(PathBuf, SkipReason)>,
}

impl SkippedFiles {
    /// Warnings about files in the workdir `root` that a user would miss.
    pub fn warnings(self, root: &Path) -> Vec<Finding> {
        let mut warnings = Vec::new();
        for path in self.special {
            let shown = path.display().to_string();
            let message = format!("`{shown}` does not ship: it is a socket, a pipe or a device");
            warnings.push(Finding::warning("workdir", message).because(DoesNotShip(shown)));
        }
        for (path, reason) in self.pruned {
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            match reason {
                SkipReason::Git | SkipReason::Cache => {}
                SkipReason::Environment => {
                    let finding = Finding::warning(
                        "workdir",
                        format!(
                            "`{shown}` does not ship: a virtual environment works only where it was made"
                        ),
                    );
                    let finding = finding.hint("make it in `setup`, and add it to .lampignore");
                    warnings.push(finding.because(DoesNotShip(shown)));
                }
                SkipReason::Own => {
                    if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
                        let message = format!(
                            "`{shown}` does not ship: a job starts from its own checkpoints, not from an earlier run"
                        );
                        let finding = Finding::warning("checkpoint.path", message);
                        warnings.push(finding.because(DoesNotShip(shown)));
                    }
                }
            }
        }
        warnings
    }
}
