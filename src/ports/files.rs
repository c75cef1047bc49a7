//! The files under the agent's care: its own state, the workload's log, checkpoints, outputs and progress.
//!
//! Small blocking calls on local disks, a few hundred microseconds each; only a walk over a folder of unknown size goes
//! to a thread of its own. "Not there" is `Ok(None)` or empty, never an error.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::job::CodeArchive;

/// What tells two versions of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    pub bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub modified_nanos: i64,
    pub inode: u64,
    /// Unix permission bits.
    pub mode: u32,
}

/// A regular file below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Relative to the folder, `/` between the parts.
    pub path: String,
    pub stamp: FileStamp,
}

/// A file that is to be held as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// It may be written on meanwhile: its content now is what counts.
    pub is_log: bool,
}

/// Where a file is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    pub path: PathBuf,
    /// Nobody writes to it any more; else it is the same file under another name.
    pub is_copy: bool,
}

/// A symbolic link to a folder inside the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLink {
    pub path: String,
    /// Relative, as it stands in the link.
    pub target: String,
    /// Of the link itself.
    pub stamp: FileStamp,
}

/// The regular files below a folder, in order of their paths. A symbolic link to a file inside the folder counts as the
/// file; links to folders are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    pub files: Vec<TreeFile>,
    /// Links to folders inside the folder, in order of their paths.
    pub links: Vec<TreeLink>,
    /// What is there and cannot be kept, with the reason: links that lead outside, names that are not UTF-8, devices.
    pub skipped: Vec<String>,
    /// There are more files than were asked for; nothing should be concluded from such a tree.
    pub truncated: bool,
}

#[async_trait]
pub trait Files: Send + Sync {
    /// A whole small file.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// At most `bytes_max` bytes from an offset; empty at or beyond the end.
    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>>;

    /// Adds to the end, creating the file and its folders.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Readers see the old or the new content, never a part. Creates the folders.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// As [`Files::replace`], and a power cut after it takes nothing back.
    fn replace_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace(path, bytes)
    }

    /// Follows symbolic links; `None` also for what is not a regular file.
    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>>;

    /// The same without anybody waiting for a file system that does not answer: an adapter whose disk may hang uses a thread of its own.
    async fn stamp_aside(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        self.stamp(path)
    }

    /// The regular files directly in a folder, by name, in order.
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>>;

    /// The regular files at any depth, at most `files_max` of them.
    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree>;

    /// The same from a thread of its own, so that nobody waits for a large folder.
    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree>;

    /// Holds files as they are under other names, in the first of these folders where that can be done, in the order of `files`.
    /// The caller removes the folder afterwards.
    async fn stage_aside(&self, _files: &[StageFile], _folders: &[PathBuf]) -> io::Result<Vec<StagedFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a symbolic link, in the place of one that is there.
    fn link(&self, _path: &Path, _target: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the time of the last change, nanoseconds since 1970.
    fn set_modified(&self, _path: &Path, _nanos: i64) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file, or a folder with all that is in it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The same without anybody waiting for a large folder: an adapter whose disk takes its time uses a thread of its own.
    async fn remove_aside(&self, path: &Path) -> io::Result<()> {
        self.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Moves a file over another one, creating the folders on the way; gives it these permission bits, if any.
    fn place(&self, from: &Path, to: &Path, mode: Option<u32>) -> io::Result<()>;

    /// Unpacks the code archive into an empty folder; refuses whatever would leave it, and more than was packed.
    fn unpack(&self, archive: &Path, into: &Path, code: &CodeArchive) -> io::Result<()>;

    /// The same without anybody waiting for a large archive.
    async fn unpack_aside(&self, archive: &Path, into: &Path, code: &CodeArchive) -> io::Result<()> {
        self.unpack(archive, into, code)
    }
}
