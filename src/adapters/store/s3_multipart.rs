//! Uploads a large file to S3 in parts, a few at a time. Each arrived part is recorded, so that a
//! later run continues after a crash or a dead line.
//!
//! `<folder>/<hash of the key>.jsonl` is the record. Its first line has the key, the upload and the
//! file; each further line has an arrived part.
//!
//! If the caller wants the hash, the file is read whole anyway. A part is then skipped only if the
//! hash of the file up to its end equals the recorded one. Otherwise the file's stamp shows that it
//! is the same file.
//!
//! Uploads that cannot be finished are aborted. For files that stay in place, these are changed or
//! missing files. For files that are packed anew for each try, they are other files for the same
//! folder and old ones. Not here: when to try again.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the files that it uploads, and remembers how far they are"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{Error, GetOptions, MultipartId, ObjectStore};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::s3_upload_source::{Buffers, UploadSource, generic, part_bytes};
use crate::ports::{self, Arrival};

/// Concurrent parts of downloads and copies, which have no `Buffers`. Four hold 32 MiB of memory.
pub(crate) const PARTS_IN_FLIGHT: usize = 4;

/// S3's code, with status 400, for a part that it does not have as we recorded it.
const NO_SUCH_PART: &str = "InvalidPart";

/// The identity of a file with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    key: String,
    upload: MultipartId,
    file: Stamp,
    part_bytes: u64,
}

/// Each further line.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Arrived {
    number: usize,
    tag: String,
    /// The hash of the file up to the end of this part; `None`: it was not asked for.
    sha256: Option<String>,
}

/// The record of a packed file is dropped after this time, when the bucket's own rule ends the
/// upload.
const PACKED_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// The large uploads of this process, and the folder of their records.
#[derive(Default)]
pub(crate) struct Uploads {
    folder: Option<PathBuf>,
    /// The file is gone at the next try, which packs the same content into another one. (The file
    /// of an agent stays in place, but its key in the store names its content too.)
    packed_anew: bool,
    busy: Mutex<BTreeSet<PathBuf>>,
    pub buffers: Buffers,
}

/// One upload.
struct Upload<'a> {
    uploads: &'a Uploads,
    id: MultipartId,
    arrived: BTreeMap<usize, Arrived>,
    /// `None`: it has no record.
    record: Option<PathBuf>,
    /// The lock of the record, which other processes that send the same file respect.
    lock: Option<File>,
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        // The lock goes first: a thread that sees the record as free must not find it locked.
        drop(self.lock.take());
        if let Some(record) = &self.record {
            self.uploads.busy().remove(record);
        }
    }
}

impl Uploads {
    pub fn remembered_in(folder: PathBuf) -> Self {
        Uploads { folder: Some(folder), ..Uploads::default() }
    }

    /// Records the progress of files that are packed anew for each try, and named by their content.
    pub fn of_packed_files(folder: PathBuf) -> Self {
        Uploads { packed_anew: true, ..Uploads::remembered_in(folder) }
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.busy.lock().expect("the lock is held for changes of a set, which cannot panic")
    }

    /// Sends a file of several parts; `first` was read already. `sent` counts the bytes in the
    /// store. Returns the size, and the hash if it was asked for.
    pub async fn send<S: MultipartStore>(
        &self,
        s3: &S,
        key: &Key,
        path: &Path,
        source: UploadSource,
        first: Bytes,
        sent: &Arrival,
    ) -> Result<(u64, Option<String>), Error> {
        let stamp = stamp(path, source.file()).map_err(generic)?;
        let by_content = self.packed_anew && source.so_far().is_some();
        let mut upload = self.begin(s3, key, stamp, source.part_bytes, by_content).await?;
        match upload.send_parts(s3, key, source, first, sent).await {
            Ok((source, parts)) => match s3.complete_multipart(key, &upload.id, parts).await {
                Ok(_) => {
                    upload.forget();
                    Ok((source.bytes, source.so_far()))
                }
                Err(error) => Err(upload.failed(s3, key, error).await),
            },
            Err(error) => Err(upload.failed(s3, key, error).await),
        }
    }

    /// The started upload of this file, or a new one. `by_content`: another file with the same
    /// content is the same.
    async fn begin<S: MultipartStore>(
        &self,
        s3: &S,
        key: &Key,
        file: Stamp,
        part_bytes: u64,
        by_content: bool,
    ) -> Result<Upload<'_>, Error> {
        let Some(folder) = &self.folder else {
            return self.unremembered(s3, key).await;
        };
        let name = hex::encode(&Sha256::digest(key.as_ref())[..16]);
        let record = folder.join(name).with_extension("jsonl");
        // Two uploads for one key are independent: the second one has no record.
        if !self.busy().insert(record.clone()) {
            return self.unremembered(s3, key).await;
        }
        let mut upload = Upload {
            uploads: self,
            id: String::new(),
            arrived: BTreeMap::new(),
            record: Some(record.clone()),
            lock: None,
        };
        fs::create_dir_all(folder).map_err(generic)?;
        let Some(lock) = locked_soon(&record).map_err(generic)? else {
            drop(upload);
            return self.unremembered(s3, key).await;
        };
        upload.lock = Some(lock);
        self.take_back(s3, folder, key, &file).await;
        let is_same = |head: &Head| {
            head.key == key.as_ref()
                && head.part_bytes == part_bytes
                && (by_content || head.file == file)
        };
        if let Some((head, arrived)) = recall(&record).filter(|(head, _)| is_same(head)) {
            tracing::info!(
                "the upload of `{}` goes on: {} parts of it arrived earlier",
                file.path.display(),
                arrived.len()
            );
            (upload.id, upload.arrived) = (head.upload, arrived);
            return Ok(upload);
        }
        upload.id = s3.create_multipart(key).await?;
        let head = Head { key: key.to_string(), upload: upload.id.clone(), file, part_bytes };
        fs::write(&record, line(&head).map_err(generic)?).map_err(generic)?;
        Ok(upload)
    }

    async fn unremembered<S: MultipartStore>(
        &self,
        s3: &S,
        key: &Key,
    ) -> Result<Upload<'_>, Error> {
        Ok(Upload {
            uploads: self,
            id: s3.create_multipart(key).await?,
            arrived: BTreeMap::new(),
            record: None,
            lock: None,
        })
    }

    /// Aborts uploads that cannot be finished. Their parts cost money until the bucket's own rule
    /// removes them.
    async fn take_back<S: MultipartStore>(&self, s3: &S, folder: &Path, key: &Key, file: &Stamp) {
        for record in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
        {
            let Some((head, _)) = recall(&record) else { continue };
            let is_ours = self.busy().contains(&record);
            if !is_ours && matches!(locked(&record), Ok(None)) {
                continue;
            }
            let ends = if self.packed_anew {
                !is_ours && is_past(&record, &head, key)
            } else {
                is_another(&head, file, is_ours)
            };
            if ends && let Ok(key) = Key::parse(&head.key) {
                // An upload that is gone already is fine too.
                let _gone = s3.abort_multipart(&key, &head.upload).await;
                let _removed = fs::remove_file(&record);
            }
        }
    }
}

/// For a file that stays in place: it has changed, is missing, or now goes to another key.
fn is_another(head: &Head, file: &Stamp, is_ours: bool) -> bool {
    if is_ours {
        return head.file.path == file.path && head.file != *file;
    }
    let there = File::open(&head.file.path).and_then(|open| stamp(&head.file.path, &open));
    head.file.path == file.path || there.ok().as_ref() != Some(&head.file)
}

/// For a file that is packed anew: another one replaces it, or it is too old.
fn is_past(record: &Path, head: &Head, key: &Key) -> bool {
    let folder = |key: &str| key.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let age = fs::metadata(record)
        .and_then(|found| found.modified())
        .ok()
        .and_then(|at| at.elapsed().ok());
    (head.key != key.as_ref() && folder(&head.key) == folder(key.as_ref()))
        || age.is_some_and(|age| age > PACKED_KEPT)
}

impl Upload<'_> {
    /// Sends the missing parts in order, as many at once as there is room for. The hash covers the
    /// sent bytes.
    async fn send_parts<S: MultipartStore>(
        &mut self,
        s3: &S,
        key: &Key,
        mut source: UploadSource,
        first: Bytes,
        there: &Arrival,
    ) -> Result<(UploadSource, Vec<PartId>), Error> {
        let (id, mut part, buffers) = (self.id.clone(), first, &self.uploads.buffers);
        let (mut sending, mut arrived) = (FuturesUnordered::new(), BTreeMap::new());
        while !part.is_empty() {
            let (number, sha256) = (source.number - 1, source.so_far());
            if let Some(known) =
                self.arrived.get(&number).filter(|known| sha256.is_none() || known.sha256 == sha256)
            {
                arrived.insert(number, PartId { content_id: known.tag.clone() });
                there.is_there(std::mem::take(&mut part).len() as u64);
            } else {
                let (body, id) = (std::mem::take(&mut part), &id);
                sending.push(async move {
                    let (bytes, began) = (body.len(), Instant::now());
                    let tag = s3.put_part(key, id, number, body.into()).await?.content_id;
                    buffers.arrived(bytes, began.elapsed());
                    there.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    Ok(Arrived { number, tag, sha256 })
                });
            }
            while let Some(known) = self.arrived.get(&source.number)
                && source.leave_out().map_err(generic)?
            {
                arrived.insert(known.number, PartId { content_id: known.tag.clone() });
                there.is_there(source.part_bytes);
            }
            // The upload continues while the next part waits for room and is read.
            let mut read = std::pin::pin!(source.next(buffers));
            (source, part) = loop {
                tokio::select! {
                    biased;
                    Some(sent) = sending.next() => self.arrives(sent, &mut arrived)?,
                    read = &mut read => break read?,
                }
            };
        }
        while let Some(sent) = sending.next().await {
            self.arrives(sent, &mut arrived)?;
        }
        Ok((source, arrived.into_values().collect()))
    }

    fn arrives(
        &self,
        sent: Result<Arrived, Error>,
        arrived: &mut BTreeMap<usize, PartId>,
    ) -> Result<(), Error> {
        let sent = sent?;
        if let Some(record) = &self.record {
            // If the record is not written, the part is only sent again.
            let _kept = line(&sent).and_then(|line| {
                OpenOptions::new().append(true).open(record)?.write_all(line.as_bytes())
            });
        }
        arrived.insert(sent.number, PartId { content_id: sent.tag });
        Ok(())
    }

    /// Keeps the record for the next try, or aborts the upload.
    async fn failed<S: MultipartStore>(&self, s3: &S, key: &Key, error: Error) -> Error {
        self.uploads.buffers.failed();
        if self.record.is_none() {
            let _gone = s3.abort_multipart(key, &self.id).await;
        } else if matches!(error, Error::NotFound { .. }) {
            // The store does not know the upload any more.
            self.forget();
        } else if ports::chain(&error).contains(NO_SUCH_PART) {
            // Each further try would fail in the same way.
            let _gone = s3.abort_multipart(key, &self.id).await;
            self.forget();
        }
        error
    }

    fn forget(&self) {
        if let Some(record) = &self.record {
            let _removed = fs::remove_file(record);
        }
    }
}

/// How often, and at which interval, a locked record is tried again.
const LOCK_TRIES: u32 = 10;
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// Like [`locked`], with retries. A child process holds our open files until its own program
/// begins, and so also a lock that we have just released. If that were taken for another upload,
/// the file would be sent from its beginning.
fn locked_soon(record: &Path) -> io::Result<Option<File>> {
    for _ in 1..LOCK_TRIES {
        if let Some(lock) = locked(record)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(LOCK_EVERY);
    }
    locked(record)
}

/// The record, locked; `None`: another process has locked it.
fn locked(record: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).append(true).open(record)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Reads a record, without a line that a crash cut off.
fn recall(record: &Path) -> Option<(Head, BTreeMap<usize, Arrived>)> {
    let text = fs::read_to_string(record).ok()?;
    let mut lines = text.lines();
    let head = serde_json::from_str(lines.next()?).ok()?;
    let arrived = lines.filter_map(|line| serde_json::from_str::<Arrived>(line).ok());
    Some((head, arrived.map(|part| (part.number, part)).collect()))
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

fn stamp(path: &Path, file: &File) -> io::Result<Stamp> {
    let found = file.metadata()?;
    let (path, inode, bytes) = (path.to_owned(), found.ino(), found.len());
    Ok(Stamp {
        path,
        inode,
        bytes,
        modified_secs: found.mtime(),
        modified_nanos: found.mtime_nsec(),
    })
}

/// Copies through this process in bounded memory: S3 copies at most 5 GiB in one call.
pub(crate) async fn copy_in_parts<S: ObjectStore + MultipartStore>(
    s3: &S,
    from: &Key,
    to: &Key,
    size: u64,
) -> Result<(), Error> {
    let (step, id) = (part_bytes(size), &s3.create_multipart(to).await?);
    let starts = (0..size).step_by(usize::try_from(step).unwrap_or(usize::MAX)).enumerate();
    let parts = starts.map(|(number, start)| async move {
        let options = GetOptions {
            range: Some((start..size.min(start + step)).into()),
            ..GetOptions::default()
        };
        let part = s3.get_opts(from, options).await?.bytes().await?;
        s3.put_part(to, id, number, part.into()).await
    });
    let sent = stream::iter(parts).buffered(PARTS_IN_FLIGHT).try_collect().await;
    let done = match sent {
        Ok(parts) => s3.complete_multipart(to, id, parts).await.map(drop),
        Err(error) => Err(error),
    };
    if done.is_err() {
        let _gone = s3.abort_multipart(to, id).await;
    }
    done
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::adapters::store::s3_upload_source::PART_BYTES_MIN;

    #[tokio::test]
    async fn what_is_too_large_for_one_copy_is_copied_in_parts() {
        let (store, from, to) = (InMemory::new(), Key::from("from"), Key::from("to"));
        let body: Vec<u8> = (0..PART_BYTES_MIN * 2 + 5).map(|n| (n / 7) as u8).collect();
        store.put(&from, body.clone().into()).await.unwrap();
        copy_in_parts(&store, &from, &to, body.len() as u64).await.unwrap();
        assert!(store.get(&to).await.unwrap().bytes().await.unwrap() == body);
    }
}
