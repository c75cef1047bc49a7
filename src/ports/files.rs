//! The files that the agent manages: its state, the workload's log, checkpoints, outputs, progress.
//!
//! Calls block for a few hundred microseconds on a local disk. Only a walk over a folder of unknown
//! size uses its own thread. A missing file is `Ok(None)` or empty, not an error.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::job::CodeArchive;

/// Tells two versions of a file apart without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    pub bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub modified_nanos: i64,
    pub inode: u64,
    /// Unix permission bits.
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Relative to the folder, `/` between the parts.
    pub path: String,
    pub stamp: FileStamp,
}

/// How far the clock that dates the files of one folder is ahead of another folder's. A file server
/// uses its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockLead {
    pub least_nanos: i64,
    pub most_nanos: i64,
}

impl ClockLead {
    /// From times of files that were written in this order: there, here, there.
    pub fn between(before: i64, here: i64, after: i64) -> Self {
        let lead = ClockLead { least_nanos: here - after, most_nanos: here - before };
        // It can be one clock, which is the rule.
        if lead.least_nanos <= 0 && lead.most_nanos >= 0 { ClockLead::default() } else { lead }
    }
}

/// A file to hold in its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// The workload may still append to it: only its present content counts.
    pub is_log: bool,
    /// The workload wrote it again in place during an earlier upload: a copy is worth its time.
    pub is_rewritten: bool,
}

/// Where a file is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    pub path: PathBuf,
    /// A copy that no process writes to. Otherwise it is the same file under another name.
    pub is_copy: bool,
}

/// A symbolic link to a folder inside the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLink {
    pub path: String,
    /// Relative, as written in the link.
    pub target: String,
    /// The stamp of the link itself.
    pub stamp: FileStamp,
}

/// The regular files below a folder, ordered by path. Links to files inside it count as files;
/// links to folders are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    pub files: Vec<TreeFile>,
    /// Links to folders inside the folder, ordered by path.
    pub links: Vec<TreeLink>,
    /// Entries that cannot be kept, with the reason: links that lead outside, names that are not
    /// UTF-8, devices.
    pub skipped: Vec<String>,
    /// There are more files than asked for: do not draw conclusions from this tree.
    pub truncated: bool,
    /// The free bytes of its disk for a user. `None`: unknown.
    pub free_bytes: Option<u64>,
}

#[async_trait]
pub trait Files: Send + Sync {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// At most `bytes_max` bytes from an offset; empty at or beyond the end.
    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>>;

    /// Appends; creates the file and its folders.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Readers see the old or the new content, never a part. Creates the folders.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Like [`Files::replace`], but the new content also survives a power failure.
    fn replace_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace(path, bytes)
    }

    /// Follows symbolic links. `None` also for anything but a regular file.
    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>>;

    /// The same, without blocking the caller on a hung file system: an adapter may use a thread.
    async fn stamp_aside(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        self.stamp(path)
    }

    /// The regular files directly in a folder, ordered by name.
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>>;

    /// The regular files at any depth, at most `files_max` of them.
    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree>;

    /// The same on its own thread, since the folder may be large.
    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree>;

    /// Holds the present state of files under other names, in the first of `folders` that allows
    /// it. The caller removes the folder.
    async fn stage_aside(
        &self,
        _files: &[StageFile],
        _folders: &[PathBuf],
    ) -> io::Result<Vec<StagedFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How far the clock of a folder is ahead of the clock of `other`. Sets the times of both.
    async fn clock_lead(&self, _folder: &Path, _other: &Path) -> io::Result<ClockLead> {
        Ok(ClockLead::default())
    }

    /// Makes a symbolic link, or replaces one.
    fn link(&self, _path: &Path, _target: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the time of the last change, nanoseconds since 1970.
    fn set_modified(&self, _path: &Path, _nanos: i64) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file, or a folder with its content.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The same, without blocking the caller on a large folder: an adapter may use a thread.
    async fn remove_aside(&self, path: &Path) -> io::Result<()> {
        self.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Moves a file over another one and creates the folders. Sets these permission bits, if given.
    fn place(&self, from: &Path, to: &Path, mode: Option<u32>) -> io::Result<()>;

    /// Unpacks the code archive into an empty folder. Refuses paths outside it, and more than was
    /// packed.
    fn unpack(&self, archive: &Path, into: &Path, code: &CodeArchive) -> io::Result<()>;

    /// The same, without blocking the caller on a large archive.
    async fn unpack_aside(
        &self,
        archive: &Path,
        into: &Path,
        code: &CodeArchive,
    ) -> io::Result<()> {
        self.unpack(archive, into, code)
    }
}
