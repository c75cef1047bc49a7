//! Files that git tracks although an ignore file names them (`git add -f`).
//!
//! It runs git, because git's index has four formats. Without git or a repository the answer is
//! empty. Not here: what ships.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ignore::gitignore::Gitignore;

/// A git hook sets these for its own repository, which may be another one.
const OF_A_HOOK: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

/// Files that git tracks and the walk did not find, and their parent folders, relative to the root.
/// `.lampignore` overrides git.
pub fn tracked_but_ignored(
    root: &Path,
    known: &HashSet<PathBuf>,
    stays: impl Fn(&Path) -> bool,
) -> BTreeSet<PathBuf> {
    let mut ignores = LampIgnores::default();
    let is_there =
        |path: &PathBuf| fs::symlink_metadata(root.join(path)).is_ok_and(|meta| !meta.is_dir());
    let missing = tracked(root).into_iter().filter(|path| !known.contains(path) && is_there(path));
    let mut found = BTreeSet::new();
    for path in missing {
        let folders: Vec<&Path> =
            path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()).collect();
        if folders.iter().any(|folder| stays(folder)) || ignores.hide(root, &path) {
            continue;
        }
        found.extend(
            folders.into_iter().filter(|folder| !known.contains(*folder)).map(Path::to_owned),
        );
        found.insert(path);
    }
    found
}

/// Files that git tracks below the folder, relative to it.
fn tracked(root: &Path) -> Vec<PathBuf> {
    if !root.ancestors().any(|folder| folder.join(".git").exists()) {
        return Vec::new();
    }
    let mut git = Command::new("git");
    // A repository may configure programs for git to run. Run none of them.
    git.arg("-C").arg(root).args(["-c", "core.fsmonitor=false", "ls-files", "-z", "--cached"]);
    for name in OF_A_HOOK {
        git.env_remove(name);
    }
    let said = git.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Some(said) = said.ok().filter(|said| said.status.success()) else { return Vec::new() };
    let names = said.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

/// The `.lampignore` files of a workdir, which override git.
#[derive(Debug, Default)]
struct LampIgnores {
    read: BTreeMap<PathBuf, Gitignore>,
}

impl LampIgnores {
    /// Whether one of them ignores this file. The nearest matching file decides.
    fn hide(&mut self, root: &Path, path: &Path) -> bool {
        for folder in path.ancestors().skip(1) {
            let folder = root.join(folder);
            let rules = self
                .read
                .entry(folder.clone())
                .or_insert_with(|| Gitignore::new(folder.join(".lampignore")).0);
            let found = rules.matched_path_or_any_parents(root.join(path), false);
            if !found.is_none() {
                return found.is_ignore();
            }
        }
        false
    }
}
