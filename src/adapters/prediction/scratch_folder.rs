//! Folders of the cache: one for the time of a prediction, and fetched model files.

#![expect(clippy::disallowed_methods, reason = "makes and removes folders of the user's cache")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::adapters::host::remove_tree::remove_tree;
use crate::adapters::workstation::private_files;

/// A private folder, removed with this value.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Fetched models that were not fetched anew for so long are removed. They can be fetched again.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

impl ScratchFolder {
    /// # Errors
    /// When the cache cannot be written.
    pub fn new(cache: &Path) -> io::Result<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = cache.join(format!("predict-{}-{number}", std::process::id()));
        // Left by a killed process that had the same number.
        let _ = remove_tree(&path);
        private_files::folder(&path)?;
        Ok(ScratchFolder { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of a file in it. Empty: there is none.
    pub fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.path.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Makes the folder of a file in it.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn make_folder_of(&self, file: &Path) -> io::Result<()> {
        file.parent().map_or(Ok(()), private_files::folder)
    }

    /// # Errors
    /// When the cache cannot be written.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        private_files::write(&path, text)?;
        Ok(path)
    }

    /// Keeps a folder of it under a name in the cache. Returns its new path. If another process
    /// kept the same one before, its folder is used.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn keep(&self, name: &str, kept: &Path) -> io::Result<PathBuf> {
        kept.parent().map_or(Ok(()), private_files::folder)?;
        match fs::rename(self.path.join(name), kept) {
            Err(_) if kept.is_dir() => Ok(kept.to_owned()),
            renamed => renamed.map(|()| kept.to_owned()),
        }
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = remove_tree(&self.path);
    }
}

/// Removes old folders, so that the cache stays small.
pub fn forget_old_folders(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|found| found.modified()).ok();
        let age = modified.and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > KEPT) {
            let _ = remove_tree(&entry.path());
        }
    }
}
