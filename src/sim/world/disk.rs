//! A machine's disk, in memory; it can be full, and it outlives every process.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use crate::job::CodeArchive;
use crate::ports::{FileStamp, Files, StageFile, StagedFile, Tree, TreeFile};
use crate::sim::kernel::virtual_time::Timeline;

pub struct MemoryDisk {
    timeline: Arc<Timeline>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By path as text, which compares faster than `Path`.
    files: BTreeMap<String, (Vec<u8>, FileStamp)>,
    inodes: u64,
    full: bool,
    /// When it last had room again.
    full_until: Option<Duration>,
}

impl MemoryDisk {
    pub fn new(timeline: Arc<Timeline>) -> Arc<Self> {
        Arc::new(MemoryDisk { timeline, inner: Mutex::default() })
    }

    pub fn fill(&self, full: bool) {
        let now = self.timeline.now();
        let mut inner = self.inner();
        if inner.full {
            inner.full_until = Some(now);
        }
        inner.full = full;
    }

    pub fn is_full(&self) -> bool {
        self.inner().full
    }

    /// Whether it has been full at some moment since then.
    pub fn was_full_since(&self, since: Duration) -> bool {
        let inner = self.inner();
        inner.full || inner.full_until.is_some_and(|until| until >= since)
    }

    /// A write of the workload: whole, or an error if the disk is full.
    pub fn write(&self, path: &Path, body: &[u8]) -> io::Result<()> {
        let now = self.now_nanos();
        self.inner().write(path, body.to_vec(), now)
    }

    pub fn rename(&self, from: &Path, to: &Path) {
        let mut inner = self.inner();
        if let Some(file) = inner.files.remove(text(from)) {
            inner.files.insert(text(to).to_owned(), file);
        }
    }

    fn now_nanos(&self) -> i64 {
        i64::try_from(self.timeline.wall().as_nanosecond()).unwrap_or(i64::MAX)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("the lock is not poisoned")
    }
}

impl Inner {
    fn room(&self) -> io::Result<()> {
        if self.full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write(&mut self, path: &Path, body: Vec<u8>, modified_nanos: i64) -> io::Result<()> {
        // `/run` is in memory.
        if !path.starts_with("/run") {
            self.room()?;
        }
        self.inodes += 1;
        let stamp =
            FileStamp { bytes: body.len() as u64, modified_nanos, inode: self.inodes, mode: 0o600 };
        self.files.insert(text(path).to_owned(), (body, stamp));
        Ok(())
    }

    /// The files in a folder, at any depth, with their paths relative to it.
    fn below<'a>(&'a self, folder: &Path) -> impl Iterator<Item = (&'a str, &'a FileStamp)> {
        let within = [text(folder), "/"].concat();
        let all = self.files.range::<str, _>((Bound::Excluded(within.as_str()), Bound::Unbounded));
        all.map_while(move |(path, (_, stamp))| Some((path.strip_prefix(within.as_str())?, stamp)))
    }
}

/// All paths of a simulated machine are text.
fn text(path: &Path) -> &str {
    path.to_str().expect("the false machine has no other paths")
}

#[async_trait]
impl Files for MemoryDisk {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        Ok(self.inner().files.get(text(path)).map(|(body, _)| body.clone()))
    }

    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let inner = self.inner();
        let part = |body: &Vec<u8>| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
            body[from..body.len().min(from.saturating_add(bytes_max))].to_vec()
        };
        Ok(inner.files.get(text(path)).map(|(body, _)| part(body)))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let now = self.now_nanos();
        let mut inner = self.inner();
        inner.room()?;
        if let Some((body, stamp)) = inner.files.get_mut(text(path)) {
            body.extend_from_slice(bytes);
            (stamp.bytes, stamp.modified_nanos) = (body.len() as u64, now);
            return Ok(());
        }
        inner.write(path, bytes.to_vec(), now)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write(path, bytes)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        Ok(self.inner().files.get(text(path)).map(|(_, stamp)| *stamp))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>> {
        let inner = self.inner();
        Ok(inner
            .below(folder)
            .filter(|(name, _)| !name.contains('/'))
            .map(|(name, stamp)| (name.to_owned(), *stamp))
            .collect())
    }

    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        let inner = self.inner();
        let all = inner
            .below(folder)
            .map(|(path, stamp)| TreeFile { path: path.to_owned(), stamp: *stamp });
        let mut files: Vec<TreeFile> = all.take(files_max + 1).collect();
        let truncated = files.len() > files_max;
        files.truncate(files_max);
        let free_bytes = Some(if inner.full { 0 } else { 1 << 40 });
        Ok(Tree { files, truncated, free_bytes, ..Tree::default() })
    }

    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        self.walk(folder, files_max)
    }

    async fn stage_aside(
        &self,
        files: &[StageFile],
        folders: &[PathBuf],
    ) -> io::Result<Vec<StagedFile>> {
        let folder = folders.first().ok_or(io::ErrorKind::NotFound)?;
        let mut inner = self.inner();
        inner.room()?;
        let mut hold = |(index, file): (usize, &StageFile)| {
            let path = folder.join(index.to_string());
            let held = inner.files.get(text(&file.path)).cloned().ok_or(io::ErrorKind::NotFound)?;
            inner.files.insert(text(&path).to_owned(), held);
            Ok(StagedFile { path, is_copy: true })
        };
        files.iter().enumerate().map(&mut hold).collect()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        let gone: Vec<String> =
            inner.below(path).map(|(name, _)| format!("{}/{name}", text(path))).collect();
        inner.files.remove(text(path));
        for path in gone {
            inner.files.remove(&path);
        }
        Ok(())
    }

    fn create_folder(&self, _: &Path) -> io::Result<()> {
        self.inner().room()
    }

    fn place(&self, from: &Path, to: &Path, _mode: Option<u32>) -> io::Result<()> {
        self.rename(from, to);
        Ok(())
    }

    fn unpack(&self, _: &Path, _: &Path, _: &CodeArchive) -> io::Result<()> {
        Ok(())
    }
}
