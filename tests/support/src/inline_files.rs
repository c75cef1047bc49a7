//! Local files without threads, for tests in virtual time; and a disk that can be full.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use lamplighter::adapters::host::files::LocalFiles;
use lamplighter::ports::{FileStamp, Files, StageFile, StagedFile, Tree};

#[derive(Default)]
pub struct InlineFiles {
    pub full: AtomicBool,
    /// Whether it holds files for an upload.
    pub stages: AtomicBool,
    /// A folder that does not answer to a look.
    pub hangs: Mutex<Option<PathBuf>>,
    /// A folder, and what a look at it gives.
    pub looks: Mutex<Option<(PathBuf, Look)>>,
}

pub type Look = fn() -> io::Result<Tree>;

impl InlineFiles {
    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl Files for InlineFiles {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        LocalFiles.read(path)
    }
    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        LocalFiles.read_from(path, offset, bytes_max)
    }
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.room()?;
        LocalFiles.append(path, bytes)
    }
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.room()?;
        LocalFiles.replace(path, bytes)
    }
    fn replace_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.room()?;
        LocalFiles.replace_durable(path, bytes)
    }
    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        LocalFiles.stamp(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>> {
        LocalFiles.list(folder)
    }
    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        LocalFiles.walk(folder, files_max)
    }
    async fn stage_aside(
        &self,
        files: &[StageFile],
        folders: &[PathBuf],
    ) -> io::Result<Vec<StagedFile>> {
        if !self.stages.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        LocalFiles::stage(files, folders)
    }

    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        let hangs = self.hangs.lock().expect("the lock is not poisoned").as_deref() == Some(folder);
        if hangs {
            std::future::pending::<()>().await;
        }
        let look = self
            .looks
            .lock()
            .expect("the lock is not poisoned")
            .as_ref()
            .filter(|(path, _)| path == folder)
            .map(|(_, look)| *look);
        if let Some(look) = look {
            return look();
        }
        LocalFiles.walk(folder, files_max)
    }
    fn link(&self, path: &Path, target: &str) -> io::Result<()> {
        LocalFiles.link(path, target)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalFiles.remove(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        LocalFiles.create_folder(path)
    }
    fn place(&self, from: &Path, to: &Path, mode: Option<u32>) -> io::Result<()> {
        LocalFiles.place(from, to, mode)
    }

    fn unpack(
        &self,
        archive: &Path,
        into: &Path,
        code: &lamplighter::job::CodeArchive,
    ) -> io::Result<()> {
        LocalFiles.unpack(archive, into, code)
    }
}
