//! A machine's disk, in memory; it can be full, and it outlives every process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use super::timeline::Timeline;
use crate::job::CodeArchive;
use crate::ports::{FileStamp, Files, Tree, TreeFile};

pub struct Disk {
    timeline: Arc<Timeline>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    files: BTreeMap<PathBuf, (Vec<u8>, FileStamp)>,
    inodes: u64,
    full: bool,
}

impl Disk {
    pub fn new(timeline: Arc<Timeline>) -> Arc<Self> {
        Arc::new(Disk { timeline, inner: Mutex::default() })
    }

    pub fn fill(&self, full: bool) {
        self.inner().full = full;
    }

    /// The workload's own hand: whole, or not at all when the disk is full.
    pub fn write(&self, path: &Path, body: &[u8]) -> io::Result<()> {
        let now = self.now_nanos();
        self.inner().write(path, body.to_vec(), now)
    }

    pub fn rename(&self, from: &Path, to: &Path) {
        let mut inner = self.inner();
        if let Some(file) = inner.files.remove(from) {
            inner.files.insert(to.to_owned(), file);
        }
    }

    fn now_nanos(&self) -> i64 {
        i64::try_from(self.timeline.wall().as_nanosecond()).unwrap_or(i64::MAX)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics while holding the disk: it only moves bytes")
    }
}

impl Inner {
    fn room(&self) -> io::Result<()> {
        if self.full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write(&mut self, path: &Path, body: Vec<u8>, modified_nanos: i64) -> io::Result<()> {
        self.room()?;
        self.inodes += 1;
        let stamp = FileStamp { bytes: body.len() as u64, modified_nanos, inode: self.inodes, mode: 0o600 };
        self.files.insert(path.to_owned(), (body, stamp));
        Ok(())
    }

    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a FileStamp)> {
        let all = self.files.range(folder.to_owned()..).take_while(move |(path, _)| path.starts_with(folder));
        all.map(|(path, (_, stamp))| (path, stamp))
    }
}

#[async_trait]
impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        Ok(self.inner().files.get(path).map(|(body, _)| body.clone()))
    }

    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let inner = self.inner();
        let part = |body: &Vec<u8>| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
            body[from..body.len().min(from.saturating_add(bytes_max))].to_vec()
        };
        Ok(inner.files.get(path).map(|(body, _)| part(body)))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let now = self.now_nanos();
        let mut inner = self.inner();
        inner.room()?;
        if let Some((body, stamp)) = inner.files.get_mut(path) {
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
        Ok(self.inner().files.get(path).map(|(_, stamp)| *stamp))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>> {
        let inner = self.inner();
        let own = inner.below(folder).filter(|(path, _)| path.parent() == Some(folder));
        Ok(own.filter_map(|(path, stamp)| Some((path.file_name()?.to_str()?.to_owned(), *stamp))).collect())
    }

    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        let inner = self.inner();
        let shown = |path: &Path| path.strip_prefix(folder).ok().and_then(Path::to_str).map(str::to_owned);
        let mut files: Vec<TreeFile> =
            inner.below(folder).filter_map(|(path, stamp)| Some(TreeFile { path: shown(path)?, stamp: *stamp })).take(files_max + 1).collect();
        let truncated = files.len() > files_max;
        files.truncate(files_max);
        Ok(Tree { files, skipped: Vec::new(), truncated })
    }

    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        self.walk(folder, files_max)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        let gone: Vec<PathBuf> = inner.below(path).map(|(path, _)| path.clone()).collect();
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
