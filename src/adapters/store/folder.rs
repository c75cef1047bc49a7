//! A folder as a store of objects: `file:///...`.
//!
//! `put` writes a temporary file and renames it to the key, so that readers see the old or the new
//! content. `create` hard-links the temporary file to the key; the link fails if the key exists, so
//! one writer wins.
//!
//! It does not use `object_store::local`. That one makes files with the umask's permissions, hides
//! keys that end in `#<digits>`, and hides the kernel's error so that "disk full" must be guessed.
//!
//! Objects that are written once (plans, leases, manifests, the journal, the log) are synced to the
//! disk before the call returns. The many files of a checkpoint are synced together, before its
//! manifest: a manifest that survives a power cut must not name files that are lost. Overwritten
//! objects (the heartbeat) are not synced, since the next one comes soon and a torn one is ignored.
//!
//! Small reads run in place, because a read from the page cache is faster than a change of thread.
//! Writes and listings go to a blocking thread. For a server, all reads go to threads of their own
//! ([`FileStore::with_readers`]).

#![expect(
    clippy::disallowed_methods,
    reason = "reads and writes the files of a job root, which is what this adapter is for"
)]

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

#[cfg(feature = "lamp")]
use super::read_threads::ReadThreads;
use crate::adapters::workstation::hashed_file::{Unreadable, copy, open_source};
use crate::ports::{Created, OBJECT_BYTES_MAX, ObjectMeta, Store, StoreError};

/// The prefix of our unfinished writes; no key has it.
const TEMPORARY: &str = ".lamp-tmp-";

pub struct FileStore {
    root: PathBuf,
    #[cfg(feature = "lamp")]
    readers: Option<ReadThreads>,
}

impl FileStore {
    /// # Errors
    /// If the folder neither exists nor can be created.
    pub fn open(root: &Path) -> io::Result<Self> {
        create_folders(root)?;
        Ok(FileStore::at(root))
    }

    /// A folder that may be missing: it is then empty, and the first write makes it.
    pub fn at(root: &Path) -> Self {
        FileStore {
            root: root.to_owned(),
            #[cfg(feature = "lamp")]
            readers: None,
        }
    }

    /// The same folder, read by threads of its own: a caller that serves others goes on while the
    /// folder hangs.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    #[cfg(feature = "lamp")]
    pub fn with_readers(root: &Path) -> io::Result<Self> {
        Ok(FileStore { root: root.to_owned(), readers: Some(ReadThreads::start()?) })
    }

    /// A key never leads out of the root; the empty prefix is the root.
    fn path(&self, key: &str) -> io::Result<PathBuf> {
        let plain =
            |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        let key = key.strip_suffix('/').unwrap_or(key);
        if key.is_empty() {
            return Ok(self.root.clone());
        }
        if key.split('/').all(plain) {
            Ok(self.root.join(key))
        } else {
            Err(io::Error::new(ErrorKind::InvalidInput, "not a key"))
        }
    }

    /// A small read, in place without readers.
    async fn small_read<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let path = self.path(key)?;
        #[cfg(feature = "lamp")]
        if let Some(readers) = &self.readers {
            return readers.run(move || work(&path)).await;
        }
        work(&path)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        act: &'static str,
        key: &str,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let path = self.path(key).map_err(|cause| failed(act, key, cause))?;
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.unwrap_or_else(|panic| Err(io::Error::other(panic)))
            .map_err(|cause| failed(act, key, cause))
    }
}

#[async_trait]
impl Store for FileStore {
    fn url(&self) -> String {
        format!("file://{}", self.root.display())
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.get_at_most(key, OBJECT_BYTES_MAX).await
    }

    async fn get_at_most(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, StoreError> {
        let read = self.small_read(key, move |path| read_at_most(path, bytes_max)).await;
        match absent_is_none(read).map_err(|cause| failed("read", key, cause))? {
            Some(bytes) if bytes.len() as u64 > bytes_max => {
                Err(StoreError::too_large(key, bytes_max))
            }
            found => Ok(found.map(Bytes::from)),
        }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.blocking("write", key, move |path| {
            let staged = Staged::with(path, &body)?;
            staged.publish(path)
        })
        .await
    }

    async fn put_durable(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.blocking("write", key, move |path| {
            let staged = Staged::with(path, &body)?;
            staged.file.sync_all()?;
            staged.publish(path)?;
            sync_parent(path)
        })
        .await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        self.blocking("create", key, move |path| {
            // The cheap check first: most losers of a race come late.
            if fs::symlink_metadata(path).is_ok() {
                return Ok(Created::Exists);
            }
            let staged = Staged::with(path, &body)?;
            staged.file.sync_all()?;
            match fs::hard_link(&staged.path, path) {
                Ok(()) => sync_parent(path).map(|()| Created::New),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Created::Exists),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        let read = self.small_read(key, |path| fs::metadata(path)).await;
        let read = read.and_then(|found| meta(key.to_owned(), &found));
        absent_is_none(read).map_err(|cause| failed("look at", key, cause))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let keys = prefix.to_owned();
        let work = move |path: &Path| {
            let mut found = Vec::new();
            walk(path, &keys, &mut found)?;
            found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            Ok(found)
        };
        #[cfg(feature = "lamp")]
        if self.readers.is_some() {
            let read = self.small_read(prefix, work).await;
            return read.map_err(|cause| failed("list", prefix, cause));
        }
        self.blocking("list", prefix, work).await
    }

    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let read = self.small_read(prefix, names).await;
        let mut names = absent_is_none(read)
            .map_err(|cause| failed("list", prefix, cause))?
            .unwrap_or_default();
        names.sort_unstable();
        Ok(names)
    }

    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let source = path.to_owned();
        self.blocking("upload", key, move |path| {
            let (staged, told) = staged_copy(&source, path)?;
            staged.file.sync_all()?;
            staged.publish(path)?;
            sync_parent(path)?;
            Ok(told)
        })
        .await
    }

    async fn put_file_of_set(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let source = path.to_owned();
        self.blocking("upload", key, move |path| {
            path.parent().map_or(Ok(()), create_unsynced)?;
            let (staged, told) = staged_copy(&source, path)?;
            staged.publish(path)?;
            Ok(told)
        })
        .await
    }

    /// One call for the whole file system: two for each of 60,000 files take minutes.
    async fn make_durable(&self, prefix: &str) -> Result<(), StoreError> {
        self.blocking("sync", prefix, |path| match absent_is_none(File::open(path))? {
            Some(folder) => Ok(rustix::fs::syncfs(folder)?),
            None => Ok(()),
        })
        .await
    }

    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        self.get_file_counted(key, path, &Arc::default()).await
    }

    async fn get_file_counted(
        &self,
        key: &str,
        path: &Path,
        come: &Arc<AtomicU64>,
    ) -> Result<Option<(u64, String)>, StoreError> {
        let (target, come) = (path.to_owned(), Arc::clone(come));
        // Dropped when this call ends: an abandoned copy then stops and removes its unfinished
        // file.
        let caller = Arc::new(());
        let waiting = Arc::downgrade(&caller);
        self.blocking("download", key, move |path| {
            let Some(mut source) = absent_is_none(open_object(path))? else { return Ok(None) };
            let mut staged = Staged::new(&target)?;
            let told = copy(&mut source, &mut staged.file, |bytes| {
                come.fetch_add(bytes, Ordering::Relaxed);
                if waiting.strong_count() > 0 { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
            })?;
            staged.publish(&target)?;
            Ok(Some(told))
        })
        .await
    }

    async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let source = self.path(from).map_err(|cause| failed("copy", from, cause))?;
        self.blocking("copy", to, move |path| {
            let mut staged = Staged::new(path)?;
            io::copy(&mut open_object(&source)?, &mut staged.file)?;
            staged.file.sync_all()?;
            staged.publish(path)?;
            sync_parent(path)
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.blocking("delete", key, |path| absent_is_none(fs::remove_file(path)).map(|_| ())).await
    }
}

/// A complete copy beside its final path, with its size and SHA-256.
fn staged_copy(source: &Path, target: &Path) -> io::Result<(Staged, (u64, String))> {
    let mut staged = Staged::new(target)?;
    let told = copy(&mut open_source(source)?, &mut staged.file, |_| Ok(()))?;
    Ok((staged, told))
}

/// Opens a regular file by its own name. A pipe would wait for its writer, a device has no end, and
/// a link leads elsewhere.
fn open_object(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(
            |error| match error.raw_os_error() {
                // A link, or a socket.
                Some(libc::ELOOP | libc::ENXIO) => {
                    io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")
                }
                _ => error,
            },
        )?;
    let is_file = file.metadata()?.is_file();
    if is_file {
        Ok(file)
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// One byte more than the limit shows that the file is larger.
fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_object(path)?;
    let bytes = file.metadata()?.len().min(bytes_max);
    let mut read = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(bytes_max + 1).read_to_end(&mut read)?;
    Ok(read)
}

/// A file beside its final path; removed unless it was renamed to it.
pub(crate) struct Staged {
    path: PathBuf,
    published: Cell<bool>,
    pub(crate) file: File,
}

impl Staged {
    pub(crate) fn new(target: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let folder = target
            .parent()
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no folder above it"))?;
        // The process id and a counter: two running writers never share a name.
        let name =
            format!("{TEMPORARY}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let open =
            || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create_folders(folder)?;
                open()?
            }
            other => other?,
        };
        Ok(Staged { path, published: Cell::new(false), file })
    }

    pub(crate) fn publish(&self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.published.set(true);
        Ok(())
    }

    fn with(target: &Path, body: &[u8]) -> io::Result<Self> {
        let mut staged = Staged::new(target)?;
        staged.file.write_all(body)?;
        Ok(staged)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published.get() {
            // If this fails, the file remains, but no listing shows it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates missing folders, private, and syncs the folder of each entry.
fn create_folders(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.is_dir()).collect();
    create_unsynced(folder)?;
    missing.into_iter().try_for_each(sync_parent)
}

fn create_unsynced(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<ObjectMeta>) -> io::Result<()> {
    for name in absent_is_none(names(folder))?.unwrap_or_default() {
        let path = folder.join(&name);
        // A file that was removed meanwhile is missing. A link is not one of our folders, wherever
        // it leads.
        let Some(there) = absent_is_none(fs::symlink_metadata(&path))? else { continue };
        let key = format!("{prefix}{name}");
        if there.is_dir() {
            walk(&path, &format!("{key}/"), found)?;
        } else {
            found.push(meta(key, &there)?);
        }
    }
    Ok(())
}

/// A name that is not UTF-8 cannot be a key.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Ok(name) = entry?.file_name().into_string()
            && !name.starts_with(TEMPORARY)
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn meta(key: String, found: &fs::Metadata) -> io::Result<ObjectMeta> {
    let modified = Timestamp::try_from(found.modified()?).map_err(io::Error::other)?;
    Ok(ObjectMeta { key, bytes: found.len(), modified })
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn failed(act: &'static str, key: &str, cause: io::Error) -> StoreError {
    let key = key.to_owned();
    match cause.kind() {
        _ if Unreadable::is(&cause) => StoreError::Unfit { act, key, cause: cause.into() },
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
            StoreError::Unfit { act, key, cause: cause.into() }
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::Denied { act, key, cause: cause.into() }
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            StoreError::Full { act, key, cause: cause.into() }
        }
        _ => StoreError::Unavailable { act, key, cause: cause.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sha2::{Digest, Sha256};

    use super::*;

    fn store() -> (tempfile::TempDir, FileStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(&folder.path().join("root")).unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn what_was_written_is_listed_and_read_back() {
        let (_folder, store) = store();
        assert_eq!(store.get("a/b").await.unwrap(), None);
        assert_eq!(store.list("a/").await.unwrap(), []);
        assert_eq!(store.children("a/").await.unwrap(), Vec::<String>::new());
        store.put("a/b", Bytes::from_static(b"one")).await.unwrap();
        store.put("a/b", Bytes::from_static(b"second")).await.unwrap();
        store.put_durable("a/c/d#1", Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(store.get("a/b").await.unwrap().as_deref(), Some(&b"second"[..]));
        let listed: Vec<(String, u64)> = store
            .list("a/")
            .await
            .unwrap()
            .into_iter()
            .map(|meta| (meta.key, meta.bytes))
            .collect();
        assert_eq!(listed, [("a/b".into(), 6), ("a/c/d#1".into(), 1)]);
        assert_eq!(store.children("a/").await.unwrap(), ["b", "c"]);
        assert_eq!(store.head("a/b").await.unwrap().unwrap().bytes, 6);
        assert_eq!(store.head("a/x").await.unwrap(), None);
        store.delete("a/b").await.unwrap();
        store.delete("a/b").await.unwrap();
        assert_eq!(store.get("a/b").await.unwrap(), None);
    }

    /// The error says that a later try changes nothing, so that the other files are sent.
    #[tokio::test]
    async fn file_that_cannot_be_sent_is_unfit() {
        let (folder, store) = store();
        let good = folder.path().join("good");
        fs::write(&good, "x").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("pipe"), rustix::fs::Mode::RUSR)
            .unwrap();
        let long = "n".repeat(300);
        let of = |source: &str| folder.path().join(source);
        for (key, source) in [
            ("a", of("pipe")),
            ("a", of("root")),
            (long.as_str(), good.clone()),
            ("a/../b", good.clone()),
        ] {
            let sent = store.put_file(key, &source).await;
            assert!(
                matches!(sent, Err(StoreError::Unfit { .. })),
                "{}: {sent:?}",
                source.display()
            );
        }
        assert!(matches!(
            store.put_file("a", &of("absent")).await,
            Err(StoreError::Unavailable { .. })
        ));
        let denied = io::Error::new(
            ErrorKind::PermissionDenied,
            Unreadable::of(ErrorKind::PermissionDenied.into()),
        );
        assert!(
            matches!(failed("upload", "a", denied), StoreError::Unfit { .. }),
            "the source, and not the root"
        );
        assert!(matches!(
            failed("upload", "a", ErrorKind::PermissionDenied.into()),
            StoreError::Denied { .. }
        ));
        store.put_file("a", &good).await.unwrap();
    }

    /// One odd object must not hold up a daemon, a sweeper or a verb.
    #[tokio::test]
    async fn only_regular_files_of_bounded_size_are_read() {
        let (folder, store) = store();
        let at = |key: &str| folder.path().join("root").join(key);
        fs::create_dir(at("a")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("a/pipe"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("a/socket")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("a/device")).unwrap();
        std::os::unix::fs::symlink("/etc", at("a/folder")).unwrap();
        fs::write(folder.path().join("outside"), "x").unwrap();
        std::os::unix::fs::symlink(folder.path().join("outside"), at("a/link")).unwrap();
        File::create(at("a/endless")).unwrap().set_len(1 << 40).unwrap();
        fs::create_dir(at("a/sub")).unwrap();
        for key in ["a/pipe", "a/socket", "a/device", "a/folder", "a/link", "a/endless", "a/sub"] {
            let read = store.get(key).await;
            assert!(matches!(read, Err(StoreError::Unfit { .. })), "{key}: {read:?}");
        }
        for key in ["a/pipe", "a/device", "a/link"] {
            let fetched = store.get_file(key, &folder.path().join("fetched")).await;
            assert!(matches!(fetched, Err(StoreError::Unfit { .. })), "{key}: {fetched:?}");
        }
        assert_eq!(store.list("a/").await.unwrap().len(), 6, "no link is walked into");
        store.put("a/b", Bytes::from_static(b"12345678")).await.unwrap();
        assert!(matches!(store.get_at_most("a/b", 7).await, Err(StoreError::Unfit { .. })));
        assert_eq!(store.get_at_most("a/b", 8).await.unwrap().unwrap().len(), 8);
        assert_eq!(store.get_at_most("a/none", 8).await.unwrap(), None);
    }

    #[tokio::test]
    async fn one_of_sixteen_creators_wins() {
        let (_folder, store) = store();
        let store = Arc::new(store);
        for round in 0..8 {
            let key = format!("jobs/j/attempts/{round:04}/plan.json");
            let tasks: Vec<_> = (0..16)
                .map(|n| {
                    let (store, key) = (Arc::clone(&store), key.clone());
                    tokio::spawn(async move {
                        (n, store.create(&key, Bytes::from(vec![n; 10_000])).await.unwrap())
                    })
                })
                .collect();
            let mut winners = Vec::new();
            for task in tasks {
                let (n, created) = task.await.unwrap();
                if created == Created::New {
                    winners.push(n);
                }
            }
            assert_eq!(winners.len(), 1);
            assert_eq!(store.get(&key).await.unwrap().unwrap(), vec![winners[0]; 10_000]);
        }
        assert_eq!(store.list("").await.unwrap().len(), 8, "no unfinished write is left or listed");
    }

    #[tokio::test]
    async fn files_go_there_and_back_with_their_sum() {
        let (folder, store) = store();
        let (source, target) = (folder.path().join("source"), folder.path().join("new/target"));
        let body: Vec<u8> = (0..1_000_003_u32).map(|n| n as u8).collect();
        fs::write(&source, &body).unwrap();
        let sent = store.put_file("c/f", &source).await.unwrap();
        assert_eq!(sent, (1_000_003, hex::encode(Sha256::digest(&body))));
        assert_eq!(store.get_file("c/f", &target).await.unwrap(), Some(sent));
        assert_eq!(fs::read(&target).unwrap(), body);
        assert_eq!(store.get_file("c/g", &target).await.unwrap(), None);
        assert!(matches!(
            store.put_file("c/h", &folder.path().join("absent")).await,
            Err(StoreError::Unavailable { .. })
        ));
    }

    #[tokio::test]
    async fn only_the_owner_can_read_and_no_key_leads_out() {
        let (folder, store) = store();
        store.put("jobs/j/spec.json", Bytes::from_static(b"secret")).await.unwrap();
        let mode = |path: &str| {
            fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!(
            (mode("root"), mode("root/jobs/j"), mode("root/jobs/j/spec.json")),
            (0o700, 0o700, 0o600)
        );
        for wrong in ["../x", "a/../../x", "/etc/passwd", "a//b"] {
            assert!(store.put(wrong, Bytes::new()).await.is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn full_disk_is_called_so() {
        let error = failed(
            "write",
            "k",
            io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()),
        );
        assert_eq!(error.to_string(), "no space left to write `k`");
        let error = failed(
            "write",
            "k",
            io::Error::from_raw_os_error(rustix::io::Errno::ROFS.raw_os_error()),
        );
        assert_eq!(error.to_string(), "not allowed to write `k`");
    }
}
