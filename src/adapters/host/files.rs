//! `ports::Files` on a local disk.

#![expect(clippy::disallowed_methods, reason = "this is the adapter that reads and writes files")]

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::remove_tree::remove_tree;
use crate::adapters::store::noatime::open_unnoted;
use crate::adapters::workload::foreign_links::refuse_foreign_links;
use crate::job::{CodeArchive, link_depth};
use crate::ports::{ClockLead, FileStamp, Files, StageFile, StagedFile, Tree, TreeFile, TreeLink};

#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFiles;

/// Logs and events may hold output of the workload, so only their owner may read them.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Deeper folders are reported as skipped. Real checkpoints have three levels; deeper trees are
/// bind-mount loops or mistakes.
const DEPTH_MAX: usize = 32;

impl LocalFiles {
    /// `stage_aside` without a thread.
    ///
    /// # Errors
    /// If none of the folders can be used.
    pub fn stage(files: &[StageFile], folders: &[PathBuf]) -> io::Result<Vec<StagedFile>> {
        crate::adapters::store::staged_files::stage(files, folders)
    }
}

#[async_trait]
impl Files for LocalFiles {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        found(fs::read(path))
    }

    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(mut file) = found(open_unnoted(path, 0))? else { return Ok(None) };
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let open = || OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path);
        let mut file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create_parent(path)?;
                open()?
            }
            other => other?,
        };
        file.write_all(bytes)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        replace(path, bytes, |_| Ok(()))
    }

    fn replace_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        replace(path, bytes, File::sync_all)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        Ok(found(fs::metadata(path))?.filter(Metadata::is_file).map(|meta| stamp(&meta)))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>> {
        let Some(entries) = found(fs::read_dir(folder))? else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let (Ok(name), Some(meta)) =
                (entry.file_name().into_string(), found(entry.metadata())?)
            else {
                continue;
            };
            if meta.is_file() {
                files.push((name, stamp(&meta)));
            }
        }
        files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(files)
    }

    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        refuse_foreign_links(folder)?;
        let Some(root) = found(fs::canonicalize(folder))? else { return Ok(Tree::default()) };
        let mut walk = Walk { root: root.clone(), files_max, tree: Tree::default() };
        walk.folder(&root, "", 0)?;
        walk.tree.free_bytes = rustix::fs::statvfs(&root)
            .ok()
            // A file system of a user may know no sizes, and then tells zeros.
            .filter(|room| room.f_blocks > 0)
            .map(|room| room.f_bavail.saturating_mul(room.f_frsize));
        walk.tree.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        walk.tree.links.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        walk.tree.skipped.sort_unstable();
        Ok(walk.tree)
    }

    async fn stamp_aside(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || LocalFiles.stamp(&path))
            .await
            .map_err(io::Error::other)?
    }

    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        let folder = folder.to_owned();
        tokio::task::spawn_blocking(move || LocalFiles.walk(&folder, files_max))
            .await
            .map_err(io::Error::other)?
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let Some(meta) = found(fs::symlink_metadata(path))? else { return Ok(()) };
        let removed = if meta.is_dir() { remove_tree(path) } else { fs::remove_file(path) };
        found(removed).map(|_| ())
    }

    async fn remove_aside(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || LocalFiles.remove(&path))
            .await
            .map_err(io::Error::other)?
    }

    async fn stage_aside(
        &self,
        files: &[StageFile],
        folders: &[PathBuf],
    ) -> io::Result<Vec<StagedFile>> {
        let (files, folders) = (files.to_vec(), folders.to_vec());
        tokio::task::spawn_blocking(move || LocalFiles::stage(&files, &folders))
            .await
            .map_err(io::Error::other)?
    }

    async fn clock_lead(&self, folder: &Path, other: &Path) -> io::Result<ClockLead> {
        let (folder, other) = (folder.to_owned(), other.to_owned());
        tokio::task::spawn_blocking(move || clock_lead(&folder, &other))
            .await
            .map_err(io::Error::other)?
    }

    fn link(&self, path: &Path, target: &str) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(path)?;
        }
        std::os::unix::fs::symlink(target, path)
    }

    fn set_modified(&self, path: &Path, nanos: i64) -> io::Result<()> {
        let nanos = u64::try_from(nanos).unwrap_or_default();
        OpenOptions::new()
            .write(true)
            .open(path)?
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(nanos))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        // Private, whatever the umask: code, caches and data of the job are below.
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
    }

    fn place(&self, from: &Path, to: &Path, mode: Option<u32>) -> io::Result<()> {
        if let Some(parent) = to.parent() {
            // Folders of the workload get the usual permissions.
            fs::create_dir_all(parent)?;
        }
        if let Some(mode) = mode {
            // Without set-uid and set-gid bits: the program would run with our rights.
            fs::set_permissions(from, fs::Permissions::from_mode(mode & 0o777))?;
        }
        fs::rename(from, to)
    }

    fn unpack(&self, archive: &Path, into: &Path, code: &CodeArchive) -> io::Result<()> {
        crate::adapters::workdir::unpack::unpack(
            archive,
            into,
            crate::adapters::workdir::unpack::ArchiveLimits::of(code),
        )
        .map(|_| ())
        .map_err(io::Error::other)
    }

    async fn unpack_aside(
        &self,
        archive: &Path,
        into: &Path,
        code: &CodeArchive,
    ) -> io::Result<()> {
        let (archive, into, code) = (archive.to_owned(), into.to_owned(), code.clone());
        tokio::task::spawn_blocking(move || LocalFiles.unpack(&archive, &into, &code))
            .await
            .map_err(io::Error::other)?
    }
}

/// The folders' own times show the clocks. So no new file appears beside the workload's.
fn clock_lead(folder: &Path, other: &Path) -> io::Result<ClockLead> {
    if fs::metadata(folder)?.dev() == fs::metadata(other)?.dev() {
        return Ok(ClockLead::default());
    }
    Ok(ClockLead::between(touched(other)?, touched(folder)?, touched(other)?))
}

/// Sets a folder's time to the present by the clock of its file system.
fn touched(folder: &Path) -> io::Result<i64> {
    let at = |tv_nsec| rustix::fs::Timespec { tv_sec: 0, tv_nsec };
    let times = rustix::fs::Timestamps {
        last_access: at(rustix::fs::UTIME_OMIT),
        last_modification: at(rustix::fs::UTIME_NOW),
    };
    rustix::fs::utimensat(rustix::fs::CWD, folder, &times, rustix::fs::AtFlags::empty())?;
    Ok(stamp(&fs::metadata(folder)?).modified_nanos)
}

struct Walk {
    root: PathBuf,
    files_max: usize,
    tree: Tree,
}

impl Walk {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            self.tree.skipped.push(format!("{prefix}: nested too deep"));
            return Ok(());
        }
        let entries = match found(fs::read_dir(folder)) {
            Ok(Some(entries)) => entries,
            // A folder may vanish while it is read.
            Ok(None) => return Ok(()),
            Err(error) if depth > 0 && error.kind() == io::ErrorKind::PermissionDenied => {
                self.tree.skipped.push(format!("{prefix}: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in entries {
            let Some(entry) = found(entry)? else { continue };
            let name = entry.file_name();
            let shown = format!("{prefix}{}", name.to_string_lossy());
            if name.to_str().is_none() {
                self.tree.skipped.push(format!("{shown}: the name is not UTF-8"));
                continue;
            }
            let Some(kind) = found(entry.file_type())? else { continue };
            if kind.is_dir() {
                self.folder(&entry.path(), &format!("{shown}/"), depth + 1)?;
            } else if kind.is_symlink() {
                self.link(&entry.path(), shown)?;
            } else if kind.is_file() {
                if let Some(meta) = found(entry.metadata())? {
                    self.file(shown, &meta);
                }
            } else {
                self.tree.skipped.push(format!("{shown}: not a regular file"));
            }
            if self.tree.truncated {
                return Ok(());
            }
        }
        Ok(())
    }

    fn link(&mut self, path: &Path, shown: String) -> io::Result<()> {
        // Errors too: a link may point to itself.
        let Ok(target) = fs::canonicalize(path) else {
            self.tree.skipped.push(format!("{shown}: a link to nothing"));
            return Ok(());
        };
        if !target.starts_with(&self.root) {
            self.tree.skipped.push(format!("{shown}: a link that leads outside"));
            return Ok(());
        }
        match found(fs::metadata(&target))? {
            Some(meta) if meta.is_file() => self.file(shown, &meta),
            Some(_) => self.folder_link(path, shown, &target),
            None => {}
        }
        Ok(())
    }

    fn folder_link(&mut self, path: &Path, shown: String, target: &Path) {
        // A link that leaves the folder and returns leads elsewhere on the next machine.
        let said = fs::read_link(path)
            .ok()
            .and_then(|said| said.to_str().map(str::to_owned))
            .filter(|said| link_depth(&shown, said).is_some());
        let inside = || {
            // An absolute link leads elsewhere on the next machine, so it becomes relative.
            let below = target.strip_prefix(&self.root).ok()?.to_str()?;
            Some(["../".repeat(shown.matches('/').count()).as_str(), below].concat())
        };
        match (said.or_else(inside), fs::symlink_metadata(path)) {
            (Some(target), Ok(meta)) => {
                self.tree.links.push(TreeLink { path: shown, target, stamp: stamp(&meta) })
            }
            _ => self.tree.skipped.push(format!("{shown}: a link to a folder")),
        }
    }

    fn file(&mut self, path: String, meta: &Metadata) {
        if self.tree.files.len() >= self.files_max {
            self.tree.truncated = true;
        } else {
            self.tree.files.push(TreeFile { path, stamp: stamp(meta) });
        }
    }
}

fn stamp(meta: &Metadata) -> FileStamp {
    FileStamp {
        bytes: meta.len(),
        modified_nanos: meta
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(meta.mtime_nsec()),
        inode: meta.ino(),
        mode: meta.mode() & 0o7777,
    }
}

/// Writes a new file and renames it over the old one.
fn replace(
    path: &Path,
    bytes: &[u8],
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let open =
        || OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&fresh);
    let opened = match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            create_parent(path).and_then(|()| open())
        }
        other => other,
    };
    let written = opened
        .and_then(|mut file| file.write_all(bytes).and_then(|()| finish(&file)))
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn create_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(parent),
        None => Ok(()),
    }
}

/// Turns "not found" into `None`, also when a parent is a file.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint may hold a set-uid file. Owned by us, it would run with our rights.
    #[test]
    fn placed_file_loses_setuid_bit() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("a"), folder.path().join("below/b"));
        fs::write(&from, "x").expect("written");
        LocalFiles.place(&from, &to, Some(0o6755)).expect("placed");
        assert_eq!(fs::metadata(&to).expect("there").permissions().mode() & 0o7777, 0o755);
    }
}
