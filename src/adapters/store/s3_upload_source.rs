//! Reads a file part by part for an upload to S3, into buffers that all uploads of a store share.
//!
//! `UploadSource::next` waits for room, takes a buffer, reads a part, and hashes it if asked. The
//! part is sent as `Bytes`; after that, the buffer is free again.
//!
//! The room limits the memory of all uploads together, and so the concurrent parts: few at first,
//! more once parts arrive quickly. Not here: what is sent, and where to.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use object_store::Error;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::adapters::workstation::hashed_file::open_source;

/// The smallest part of an upload, and the size of a download's pieces. S3 refuses less than 5 MiB;
/// larger parts need more memory and lose more on a broken line.
pub(crate) const PART_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// S3 allows 10,000 parts; a larger file gets larger parts.
const PARTS_MAX: u64 = 9_000;

/// The unit of the room, small enough for a thousand small files to share it.
const UNIT_BYTES: u64 = 256 * 1024;
const PART_UNITS: usize = (PART_BYTES_MIN / UNIT_BYTES) as usize;

/// Room for parts at first. On a line of 2 Mbit/s they take 100 s, less than the two minutes of a
/// request.
const PARTS_FIRST: usize = 3;

/// Room for parts on a fast line: one is read, and eight are sent, which fills 10 Gbit/s within a
/// region. It is 72 MiB.
const PARTS_MOST: usize = 9;

/// A part that arrives within this time had at least 13 Mbit/s beside the others, so nine at once
/// take at most 45 s.
const SOON: Duration = Duration::from_secs(5);

pub(crate) fn part_bytes(size: u64) -> u64 {
    PART_BYTES_MIN.max(size.div_ceil(PARTS_MAX))
}

/// The memory of all uploads of one store.
pub(crate) struct Buffers {
    room: Arc<Semaphore>,
    /// The total room, free or used.
    units: AtomicUsize,
    shelf: Arc<FreeBuffers>,
}

/// Used buffers for later use: fresh memory costs a page fault every 4 KiB, as much time as reading
/// the file.
#[derive(Default)]
struct FreeBuffers {
    free: Mutex<Vec<Vec<u8>>>,
    lent: AtomicUsize,
}

impl Default for Buffers {
    fn default() -> Self {
        let units = PARTS_FIRST * PART_UNITS;
        Buffers {
            room: Arc::new(Semaphore::new(units)),
            units: AtomicUsize::new(units),
            shelf: Arc::default(),
        }
    }
}

impl Buffers {
    /// A buffer of this size, once there is room for it.
    async fn take(&self, bytes: u64) -> Buffer {
        // A part that is larger than the first room takes all of that; otherwise it would wait for
        // ever.
        let units = usize::try_from(bytes.div_ceil(UNIT_BYTES))
            .unwrap_or(usize::MAX)
            .clamp(1, PARTS_FIRST * PART_UNITS);
        let units = u32::try_from(units).expect("no more than the room at first");
        let room =
            Arc::clone(&self.room).acquire_many_owned(units).await.expect("nobody closes it");
        Buffer {
            bytes: self.shelf.take(bytes as usize),
            filled: 0,
            shelf: Arc::clone(&self.shelf),
            _room: room,
        }
    }

    /// Notes that a part of this size arrived in this time.
    pub fn arrived(&self, bytes: usize, within: Duration) {
        let grow = |units| (units < PARTS_MOST * PART_UNITS).then_some(units + PART_UNITS);
        let full = bytes as u64 >= PART_BYTES_MIN;
        if full
            && within <= SOON
            && self.units.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
        {
            self.room.add_permits(PART_UNITS);
        }
    }

    /// Notes that a part failed: the line may have become slower.
    pub fn failed(&self) {
        let more = self.units.load(Ordering::Relaxed).saturating_sub(PARTS_FIRST * PART_UNITS);
        self.units.fetch_sub(self.room.forget_permits(more), Ordering::Relaxed);
    }
}

impl FreeBuffers {
    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().expect("the lock is held for changes of a list, which cannot panic")
    }

    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut free = self.free();
        self.lent.fetch_add(1, Ordering::Relaxed);
        // A much larger buffer would hold memory that `units` does not count.
        let fits = |buffer: &Vec<u8>| (bytes..=bytes * 2).contains(&buffer.len());
        let found = free.iter().position(fits).map(|at| free.swap_remove(at));
        found.unwrap_or_else(|| {
            free.pop();
            vec![0; bytes]
        })
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut free = self.free();
        free.push(buffer);
        // While no part is sent, the memory is freed.
        if self.lent.fetch_sub(1, Ordering::Relaxed) == 1 {
            *free = Vec::new();
        }
    }
}

/// A buffer on loan.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    shelf: Arc<FreeBuffers>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shelf.give_back(std::mem::take(&mut self.bytes));
    }
}

impl Buffer {
    /// Fills it with `bytes` bytes, or up to the end of the file.
    fn fill(&mut self, file: &mut File, bytes: usize) -> io::Result<()> {
        while self.filled < bytes {
            match file.read(&mut self.bytes[self.filled..bytes]) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file during its upload, and the hash of the part that was read. Bytes that are appended
/// meanwhile are ignored.
pub(crate) struct UploadSource {
    file: File,
    /// The size when the file was opened.
    size: u64,
    /// `None`: the hash is not wanted.
    hash: Option<Sha256>,
    pub part_bytes: u64,
    /// The number of the part that [`UploadSource::next`] returns next.
    pub number: usize,
    /// The bytes of the file before it.
    pub bytes: u64,
}

impl UploadSource {
    pub fn open(path: &Path, hashed: bool) -> io::Result<Self> {
        let file = open_source(path)?;
        let size = file.metadata()?.len();
        Ok(UploadSource {
            file,
            size,
            hash: hashed.then(Sha256::new),
            part_bytes: part_bytes(size),
            number: 0,
            bytes: 0,
        })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// The next part; shorter only at the end of the file. It is read and hashed on another thread,
    /// while others are sent.
    pub async fn next(mut self, buffers: &Buffers) -> Result<(Self, Bytes), Error> {
        let room = self.part_bytes.min(self.size.saturating_sub(self.bytes));
        let mut buffer = buffers.take(room).await;
        let read = move || {
            buffer.fill(&mut self.file, room as usize)?;
            if let Some(hash) = &mut self.hash {
                hash.update(&buffer);
            }
            self.number += 1;
            self.bytes += buffer.filled as u64;
            Ok((self, Bytes::from_owner(buffer)))
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|panic| Err(io::Error::other(panic)))
            .map_err(generic)
    }

    /// Whether the whole file was read.
    pub fn at_end(&self) -> bool {
        self.bytes >= self.size
    }

    /// Skips the next part, unless it is the last or its hash is wanted.
    pub fn leave_out(&mut self) -> io::Result<bool> {
        let leaves = self.hash.is_none() && self.bytes + self.part_bytes < self.size;
        if leaves {
            self.number += 1;
            self.bytes = self.file.seek(SeekFrom::Start(self.bytes + self.part_bytes))?;
        }
        Ok(leaves)
    }

    /// The hash of the bytes read so far.
    pub fn so_far(&self) -> Option<String> {
        self.hash.as_ref().map(|hash| hex::encode(hash.clone().finalize()))
    }
}

pub(crate) fn generic(cause: io::Error) -> Error {
    Error::Generic { store: "file", source: cause.into() }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const PART: usize = PART_BYTES_MIN as usize;

    #[expect(clippy::disallowed_methods, reason = "a test writes its own file")]
    fn file(bytes: usize) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, (0..bytes).map(|n| (n / 7) as u8).collect::<Vec<u8>>()).unwrap();
        (folder, path)
    }

    #[tokio::test]
    async fn upload_has_room_for_three_parts_and_nine_on_a_fast_line() {
        let buffers = Buffers::default();
        let mut held = Vec::new();
        for most in [PARTS_FIRST, PARTS_MOST] {
            while let Some(buffer) = buffers.take(PART_BYTES_MIN).now_or_never() {
                held.push(buffer);
            }
            assert_eq!(held.len(), most);
            assert!(buffers.take(1).now_or_never().is_none(), "a small file waits as well");
            for _ in 0..20 {
                buffers.arrived(PART, SOON + Duration::from_millis(1));
                buffers.arrived(PART - 1, Duration::ZERO);
            }
            assert!(
                buffers.take(1).now_or_never().is_none(),
                "a slow part and a small one say nothing of the line"
            );
            (0..20).for_each(|_| buffers.arrived(PART, SOON));
        }
        held.clear();
        buffers.failed();
        while let Some(buffer) = buffers.take(PART_BYTES_MIN).now_or_never() {
            held.push(buffer);
        }
        assert_eq!(held.len(), PARTS_FIRST, "a line that failed begins anew");
        held.clear();
        assert!(
            buffers.take(PART_BYTES_MIN * 100).now_or_never().is_some(),
            "what is larger than all the room gets in alone"
        );
    }

    #[tokio::test]
    async fn upload_buffer_is_reused_while_sending_and_freed_after() {
        let buffers = Buffers::default();
        let first = buffers.take(PART_BYTES_MIN).await;
        let second = buffers.take(PART_BYTES_MIN).await;
        let place = second.bytes.as_ptr();
        drop(second);
        let again = buffers.take(PART_BYTES_MIN - 5).await;
        assert_eq!(again.bytes.as_ptr(), place);
        drop(again);
        let small = buffers.take(1000).await;
        assert_eq!(small.bytes.len(), 1000, "a small file holds no large buffer");
        drop((first, small));
        assert!(buffers.shelf.free().is_empty(), "the memory is freed while no part is sent");
    }

    #[tokio::test]
    async fn file_is_read_in_parts_as_long_as_it_was_when_it_was_opened() {
        let (_folder, path) = file(PART * 2 + 5);
        let buffers = Buffers::default();
        let source = UploadSource::open(&path, true).unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, b"more"))
            .unwrap();
        let (mut source, mut read, mut hash) = (source, Vec::new(), Sha256::new());
        loop {
            let (then, part) = source.next(&buffers).await.unwrap();
            source = then;
            if part.is_empty() {
                break;
            }
            assert_eq!(source.number, read.len() + 1);
            read.push(part.len());
            hash.update(&part);
        }
        assert_eq!((read, source.bytes), (vec![PART, PART, 5], PART as u64 * 2 + 5));
        assert_eq!(source.so_far(), Some(hex::encode(hash.finalize())));
        assert!(source.at_end());
    }

    #[tokio::test]
    async fn skip_covers_unhashed_bytes_but_not_the_end() {
        let (_folder, path) = file(PART * 2);
        let buffers = Buffers::default();
        assert!(!UploadSource::open(&path, true).unwrap().leave_out().unwrap());
        let mut source = UploadSource::open(&path, false).unwrap();
        assert!(source.leave_out().unwrap() && !source.leave_out().unwrap());
        let (source, part) = source.next(&buffers).await.unwrap();
        assert_eq!((source.number, source.bytes, source.so_far()), (2, PART as u64 * 2, None));
        assert_eq!(part[0], (PART / 7) as u8);
    }
}
