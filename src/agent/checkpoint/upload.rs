//! One try to upload a picture of the checkpoint folder: files first, manifest last.
//!
//! A file counts only if it is the same before and after it was read. Files that belong together
//! count only if all are the same before and after the try. Otherwise the try is torn: its number
//! is used up and no manifest is written. Files that were read completely are remembered and not
//! sent again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use futures::stream::{StreamExt, TryStreamExt};

use super::completeness::file_names::{Places, is_log, link_stays_below};
use super::completeness::folder_diff::{
    FolderListing, has_grown, is_link, picture, stamps, stands,
};
use super::persisted_state::{
    CheckpointState, ContentIdentity, Contents, STATE_FILE, Stored, UnsendableFiles,
};
use crate::agent::report::retry_sender::{Outbox, RetryDelay, TRY_SECS_MAX, chain};
use crate::job::{
    CheckpointLink, CheckpointNo, Manifest, ManifestEntry, STEP_FILE_BYTES_MAX, checkpoint_step,
    may_tell_step,
};
use crate::jobdir::{JobDirError, layout, unless_damaged};
use crate::ports::{
    Created, FileStamp, Files, StageFile, StagedFile, StoreError, Tree, TreeFile, TreeLink,
};

/// Parallel uploads. With one, a fast line idles between two files. More gain nothing: the store
/// already sends the parts of a large file in parallel.
const FILES_IN_FLIGHT: usize = 4;

/// Parallel uploads of small files, which wait for the store and the disk. They use at most 2 MiB
/// of memory.
const SMALL_IN_FLIGHT: usize = 32;
const SMALL_BYTES: u64 = 64 * 1024;

/// Most new files that are made durable one by one. Fewer waits for the data of other programs on
/// the same disk. More costs minutes: each waits twice for the disk.
const DURABLE_ONE_BY_ONE_MAX: usize = 64;

/// The least time allowed for one file, and the slowest acceptable speed. A try that takes longer
/// is restarted.
const FILE_SECS_MIN: u64 = 60;
const BYTES_PER_SEC_MIN: u64 = 1024 * 1024;

/// Numbers that are checked for an unknown checkpoint. More torn tries mean a folder that never
/// rests.
const UNKNOWN_MAX: usize = 16;

/// Most files of one checkpoint folder (docs/checkpoints.md). With fewer, a sharded data set beside
/// the saves would stop all saving. Each file costs a few hundred bytes of memory.
pub(crate) const FILES_MAX: usize = 200_000;

/// The checkpoint folder, and how to look at it without blocking the loop.
#[derive(Clone)]
pub(crate) struct CheckpointFolder {
    files: Arc<dyn Files>,
    pub path: Arc<Path>,
    /// The newest look. A hung folder occupies a thread, and there are few: the next look waits for
    /// this one.
    newest: Arc<Mutex<Option<Shares>>>,
}

/// A look that all its waiters drive.
type Shares = Shared<BoxFuture<'static, ()>>;

enum LookBegun {
    /// It is already over.
    Over(io::Result<Tree>),
    /// It stores its result here.
    Ours(Shares, Arc<Mutex<Option<io::Result<Tree>>>>),
    /// Another is in progress.
    Before(Shares),
}

pub(crate) struct FolderLook {
    pub picture: FolderListing,
    /// Entries that can never be part of a checkpoint.
    pub skipped: Vec<String>,
    /// The targets of its links to folders.
    pub links: Vec<CheckpointLink>,
    pub free_bytes: Option<u64>,
}

impl CheckpointFolder {
    pub(crate) fn new(files: Arc<dyn Files>, path: PathBuf) -> Self {
        CheckpointFolder { files, path: path.into(), newest: Arc::default() }
    }

    /// Takes as long as the folder does: the caller may set a limit.
    pub(crate) async fn look(&self) -> io::Result<FolderLook> {
        loop {
            match std::future::poll_fn(|context| Poll::Ready(self.begin(context))).await {
                LookBegun::Over(tree) => return looked(tree?),
                LookBegun::Ours(look, seen) => {
                    look.await;
                    let tree = seen.lock().expect("never held over a panic").take();
                    return looked(tree.expect("the look is over")?);
                }
                LookBegun::Before(look) => look.await,
            }
        }
    }

    /// The look in progress, or else a new one. A look that ends at once is not shared.
    fn begin(&self, context: &mut Context<'_>) -> LookBegun {
        let mut newest = self.newest.lock().expect("never held over a panic");
        if let Some(look) = newest.as_ref().filter(|look| look.peek().is_none()) {
            return LookBegun::Before(look.clone());
        }
        let (files, path) = (Arc::clone(&self.files), Arc::clone(&self.path));
        let mut walk = Box::pin(async move { files.walk_aside(&path, FILES_MAX).await });
        if let Poll::Ready(tree) = walk.as_mut().poll(context) {
            return LookBegun::Over(tree);
        }
        let seen = Arc::new(Mutex::new(None));
        let leave = Arc::clone(&seen);
        let look = walk
            .map(move |tree| *leave.lock().expect("never held over a panic") = Some(tree))
            .boxed()
            .shared();
        *newest = Some(look.clone());
        LookBegun::Ours(look, seen)
    }

    /// For small folders, or when no caller waits.
    pub(crate) fn look_now(&self) -> io::Result<FolderLook> {
        looked(self.files.walk(&self.path, FILES_MAX)?)
    }
}

fn looked(mut tree: Tree) -> io::Result<FolderLook> {
    if tree.truncated {
        return Err(io::Error::other(format!(
            "it holds more than {FILES_MAX} files, which is the limit: save what must be kept to a folder of its own"
        )));
    }
    let mut skipped = std::mem::take(&mut tree.skipped);
    // The restore would refuse these links.
    let link =
        |link: &TreeLink| CheckpointLink { path: link.path.clone(), target: link.target.clone() };
    let (good, bad): (Vec<TreeLink>, Vec<TreeLink>) =
        tree.links.into_iter().partition(|there| link_stays_below(&link(there)));
    skipped.extend(bad.into_iter().map(|bad| format!("{}: a link that leads outside", bad.path)));
    let links = good.iter().map(link).collect();
    tree.links = good;
    let free_bytes = tree.free_bytes;
    Ok(FolderLook { picture: picture(tree), skipped, links, free_bytes })
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TornUpload {
    #[error("`{0}` changed while it was read")]
    File(String),
    #[error("the folder changed while it was uploaded")]
    Folder,
    #[error("the checkpoint number was taken by somebody else")]
    Number,
    /// An earlier agent sent it but had no disk space to note it.
    #[error("the job directory holds all of it already, in a newer checkpoint")]
    Known,
    #[error("no file of it can be sent")]
    Unfit(UnsendableFiles),
    #[error("the store could not make its files durable: {0}")]
    NotDurable(String),
}

pub(crate) struct SentCheckpoint {
    pub manifest: Manifest,
    pub left_out: UnsendableFiles,
}

/// All that one try needs. Owned, so that a try can be dropped at any moment.
pub(crate) struct UploadTry {
    pub outbox: Outbox,
    pub folder: CheckpointFolder,
    pub picture: FolderListing,
    /// For the last look.
    pub places: Places,
    pub links: Vec<CheckpointLink>,
    /// Logs by what they do: only their present content counts.
    pub appended: BTreeSet<String>,
    /// Files that the workload wrote again in place during an earlier upload.
    pub rewritten: BTreeSet<String>,
    pub contents: Arc<Contents>,
    pub pace: Arc<RetryDelay>,
    /// The manifest without its files.
    pub manifest: Manifest,
    /// The workload has never reported a step: the step from its files counts.
    pub is_silent: bool,
    /// A complete checkpoint of this attempt that this agent does not know.
    pub unknown: Option<Arc<Manifest>>,
    /// Bytes sent, for the message when time runs out.
    pub sent: Arc<AtomicU64>,
    /// A message for people when tries keep failing.
    pub trouble: Arc<Mutex<Option<String>>>,
    /// Files that can never be sent, with the reason. The rest is sent.
    pub unfit: Mutex<HashMap<ContentIdentity, String>>,
}

/// How the files of a try survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    Each,
    Together,
}

enum Hold {
    /// This one changed meanwhile.
    Torn(String),
    /// No file system supports it: files are sent from their own place.
    Impossible,
}

/// Where files are held during the upload: beside the agent's records, and beside the folder if
/// that is on another file system.
fn stages(outbox: &Outbox, folder: &CheckpointFolder) -> [PathBuf; 2] {
    let name = folder.path.file_name().unwrap_or_default().to_string_lossy();
    [outbox.state.join("staged"), folder.path.with_file_name(format!(".{name}.lamp-staged"))]
}

/// Removes the held files of a try. No answer waits for it: 60,000 files take a minute.
pub(crate) async fn release(outbox: &Outbox, folder: &CheckpointFolder) {
    for stage in stages(outbox, folder) {
        if let Err(error) = outbox.files.remove_aside(&stage).await {
            tracing::warn!("cannot remove {}: {error}", stage.display());
        }
    }
}

/// Failures of one file in a row before people are told. One or two are usual.
const FAILURES_TOLD: u32 = 3;

impl UploadTry {
    /// Sends the new files, then the manifest. Holds files first where possible, so that rotation
    /// and the next save tear nothing. Only a new file still shows that the picture was incomplete.
    pub(crate) async fn run(mut self) -> Result<SentCheckpoint, TornUpload> {
        let begun = self.outbox.clock.mono();
        let held = self.hold().await;
        let sent = match &held {
            Ok(held) => self.send_new(held).await,
            Err(Hold::Torn(path)) => Err(TornUpload::File(path.clone())),
            Err(Hold::Impossible) => self.send_new(&HashMap::new()).await,
        };
        if self.is_silent && self.manifest.step.is_none() {
            self.manifest.step = self.step_in_files(held.as_ref().ok());
        }
        sent?;
        let is_held = held.is_ok();
        let still = |look: &FolderLook| match is_held {
            true => !has_grown(&self.picture, &look.picture, &self.places),
            false => stands(&self.picture, &look.picture, &self.places),
        };
        if !self.folder.look().await.is_ok_and(|look| still(&look)) {
            return Err(TornUpload::Folder);
        }
        let left_out = self.left_out();
        self.manifest.files = self.files()?;
        if self.manifest.files.is_empty() && !left_out.is_empty() {
            return Err(TornUpload::Unfit(left_out));
        }
        let is_in = |link: &CheckpointLink| {
            self.picture.iter().any(|file| is_link(file) && file.path == link.path)
        };
        self.manifest.links = self.links.iter().filter(|link| is_in(link)).cloned().collect();
        if self.unknown.as_ref().is_some_and(|before| holds_all(before, &self.manifest.files)) {
            return Err(TornUpload::Known);
        }
        self.manifest.upload_secs = self.outbox.clock.mono().saturating_sub(begun).as_secs_f64();
        self.manifest.created = self.outbox.clock.now();
        let created = Mutex::new(None);
        let (dir, manifest) = (&self.outbox.dir, &self.manifest);
        self.outbox
            .persist("a checkpoint's manifest", &self.pace, || {
                Box::pin(async {
                    let done = dir.create_manifest(manifest).await?;
                    *created.lock().expect("never held over a panic") = Some(done);
                    Ok::<(), JobDirError>(())
                })
            })
            .await;
        let created = *created.lock().expect("never held over a panic");
        if created == Some(Created::New) {
            Ok(SentCheckpoint { manifest: self.manifest, left_out })
        } else {
            Err(TornUpload::Number)
        }
    }

    /// The step in the names and small files of the checkpoint.
    fn step_in_files(&self, held: Option<&HashMap<ContentIdentity, StagedFile>>) -> Option<f64> {
        let read = |file: &TreeFile| {
            let staged = held.and_then(|held| held.get(&ContentIdentity::of(file.stamp)));
            let path = staged
                .map_or_else(|| self.folder.path.join(&file.path), |staged| staged.path.clone());
            let text =
                self.outbox.files.read_from(&path, 0, STEP_FILE_BYTES_MAX as usize).ok()??;
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let texts: Vec<(&str, String)> = self
            .picture
            .iter()
            .filter(|file| may_tell_step(&file.path))
            .filter_map(|file| Some((file.path.as_str(), read(file)?)))
            .collect();
        let texts: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (*path, text.as_str())).collect();
        checkpoint_step(self.picture.iter().map(|file| file.path.as_str()), &texts)
    }

    fn is_log(&self, path: &str) -> bool {
        is_log(path) || self.appended.contains(path)
    }

    fn new_files(&self) -> Vec<&TreeFile> {
        let mut known = HashSet::new();
        let is_new = |file: &&TreeFile| {
            !is_link(file)
                && !self.contents.has(file.stamp)
                && known.insert(ContentIdentity::of(file.stamp))
        };
        self.picture.iter().filter(is_new).collect()
    }

    async fn hold(&self) -> Result<HashMap<ContentIdentity, StagedFile>, Hold> {
        let files = self.new_files();
        let wanted = |file: &&TreeFile| StageFile {
            path: self.folder.path.join(&file.path),
            bytes: file.stamp.bytes,
            is_log: self.is_log(&file.path),
            is_rewritten: self.rewritten.contains(&file.path),
        };
        let wanted: Vec<StageFile> = files.iter().map(wanted).collect();
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        release(&self.outbox, &self.folder).await;
        let staged = self
            .outbox
            .files
            .stage_aside(&wanted, &stages(&self.outbox, &self.folder))
            .await
            .map_err(|error| {
                tracing::debug!("the files of a checkpoint are sent from where they are: {error}");
                Hold::Impossible
            })?;
        // A file that changed during its copy is incomplete.
        let seen = self.folder.look().await.map_err(|_| Hold::Impossible)?;
        let now = stamps(&seen.picture);
        let changed = files.iter().find(|file| {
            !self.is_log(&file.path) && now.get(file.path.as_str()) != Some(&file.stamp)
        });
        match changed {
            // A file that was deleted after it was held is still held.
            Some(file) if now.contains_key(file.path.as_str()) => {
                Err(Hold::Torn(file.path.clone()))
            }
            _ => Ok(files
                .into_iter()
                .map(|file| ContentIdentity::of(file.stamp))
                .zip(staged)
                .collect()),
        }
    }

    async fn send_new(
        &self,
        held: &HashMap<ContentIdentity, StagedFile>,
    ) -> Result<(), TornUpload> {
        let new = self.new_files();
        let durable = match new.len() {
            ..=DURABLE_ONE_BY_ONE_MAX => Durable::Each,
            _ => Durable::Together,
        };
        let (small, large): (Vec<&TreeFile>, Vec<&TreeFile>) =
            new.into_iter().partition(|file| file.stamp.bytes <= SMALL_BYTES);
        self.send_all(small, held, (SMALL_IN_FLIGHT, durable)).await?;
        self.send_all(large, held, (FILES_IN_FLIGHT, durable)).await?;
        self.make_durable().await
    }

    /// Also what an earlier try sent. It takes as long as the disk does. After a failure, any of
    /// these files may be lost.
    async fn make_durable(&self) -> Result<(), TornUpload> {
        if !self.contents.may_be_lost() {
            return Ok(());
        }
        let prefix = layout::checkpoints(self.outbox.dir.job());
        if let Err(error) = self.outbox.dir.store().make_durable(&prefix).await {
            self.contents.forget_lost();
            self.pace.wait(&*self.outbox.clock, 1).await;
            return Err(TornUpload::NotDurable(chain(&error)));
        }
        self.contents.are_durable();
        Ok(())
    }

    async fn send_all(
        &self,
        files: Vec<&TreeFile>,
        held: &HashMap<ContentIdentity, StagedFile>,
        (in_flight, durable): (usize, Durable),
    ) -> Result<(), TornUpload> {
        let held = |file: &TreeFile| held.get(&ContentIdentity::of(file.stamp));
        let sends: Vec<BoxFuture<'_, _>> =
            files.into_iter().map(|file| self.send(file, held(file), durable).boxed()).collect();
        futures::stream::iter(sends).buffer_unordered(in_flight).try_collect().await
    }

    async fn send(
        &self,
        file: &TreeFile,
        held: Option<&StagedFile>,
        durable: Durable,
    ) -> Result<(), TornUpload> {
        let outbox = &self.outbox;
        let path = held.map_or_else(|| self.folder.path.join(&file.path), |held| held.path.clone());
        let torn = || TornUpload::File(file.path.clone());
        let is_copy = held.is_some_and(|held| held.is_copy);
        let is_same =
            |stamp: FileStamp| ContentIdentity::of(stamp) == ContentIdentity::of(file.stamp);
        let same = async || {
            is_copy
                || matches!(outbox.files.stamp_aside(&path).await, Ok(Some(stamp)) if is_same(stamp))
        };
        // A log that grew during its copy is longer than before.
        let may_differ = is_copy && self.is_log(&file.path);
        let key = layout::checkpoint_file(outbox.dir.job(), self.manifest.number, &file.path);
        let limit = Duration::from_secs(FILE_SECS_MIN + file.stamp.bytes / BYTES_PER_SEC_MIN);
        // A small file is sent sooner than asked about: the question after it is enough.
        let is_large = file.stamp.bytes > SMALL_BYTES;
        let mut failures = 0;
        loop {
            if is_large && !same().await {
                return Err(torn());
            }
            let store = outbox.dir.store();
            let put = match durable {
                Durable::Each => store.put_file(&key, &path),
                Durable::Together => store.put_file_of_set(&key, &path),
            };
            let sent = outbox.within(limit, put).await;
            if !same().await {
                return Err(torn());
            }
            match sent {
                Some(Ok((bytes, sha256))) if bytes == file.stamp.bytes || may_differ => {
                    let prefix = layout::job(outbox.dir.job());
                    let key = key
                        .strip_prefix(&prefix)
                        .expect("every key of a job begins with its prefix")
                        .to_owned();
                    let may_be_lost = durable == Durable::Together;
                    self.contents.add_sent(file.stamp, key, (sha256, bytes), may_be_lost);
                    self.sent.fetch_add(bytes, Ordering::Relaxed);
                    self.pace.came();
                    return Ok(());
                }
                Some(Ok(_)) => return Err(torn()),
                // Leave the file out. The rest is sent at once.
                Some(Err(StoreError::Unfit { cause, .. })) => {
                    tracing::warn!(
                        "`{}` is left out of the checkpoint: {}",
                        file.path,
                        chain(&*cause)
                    );
                    self.unfit
                        .lock()
                        .expect("never held over a panic")
                        .insert(ContentIdentity::of(file.stamp), chain(&*cause));
                    return Ok(());
                }
                Some(Err(error)) => self.failed(file, failures + 1, &chain(&error)),
                None => self.failed(
                    file,
                    failures + 1,
                    &format!("no answer within {} s", limit.as_secs()),
                ),
            }
            failures += 1;
            self.pace.wait(&*outbox.clock, failures).await;
        }
    }

    fn failed(&self, file: &TreeFile, failures: u32, why: &str) {
        tracing::warn!("`{}` of a checkpoint is not uploaded yet: {why}", file.path);
        if failures == FAILURES_TOLD {
            let text = format!(
                "`{}` of a checkpoint is not uploaded after {failures} tries, which go on: {why}",
                file.path
            );
            *self.trouble.lock().expect("never held over a panic") = Some(text);
        }
    }

    fn left_out(&self) -> UnsendableFiles {
        let unfit = self.unfit.lock().expect("never held over a panic");
        let why = |file: &TreeFile| {
            Some((file.path.clone(), unfit.get(&ContentIdentity::of(file.stamp))?.clone()))
        };
        self.picture.iter().filter_map(why).collect()
    }

    fn files(&self) -> Result<Vec<ManifestEntry>, TornUpload> {
        let (stored, unfit) =
            (self.contents.lock(), self.unfit.lock().expect("never held over a panic"));
        let entry = |file: &TreeFile| {
            let Stored { key, sha256, bytes, .. } =
                stored.get(&ContentIdentity::of(file.stamp)).cloned().ok_or(TornUpload::Folder)?;
            let (bytes, modified) =
                (bytes.unwrap_or(file.stamp.bytes), Some(file.stamp.modified_nanos));
            Ok(ManifestEntry {
                path: file.path.clone(),
                bytes,
                sha256,
                key,
                mode: Some(file.stamp.mode),
                modified,
            })
        };
        let is_sent = |file: &&TreeFile| {
            !is_link(file) && !unfit.contains_key(&ContentIdentity::of(file.stamp))
        };
        self.picture.iter().filter(is_sent).map(entry).collect()
    }
}

fn holds_all(before: &Manifest, files: &[ManifestEntry]) -> bool {
    files.iter().all(|file| {
        before.files.iter().any(|kept| (&kept.path, &kept.sha256) == (&file.path, &file.sha256))
    })
}

/// The numbers of an attempt's checkpoints in the job directory.
pub(crate) struct CheckpointNumbers {
    /// The first unused number, also of the continued job.
    pub next: CheckpointNo,
    /// The newest complete one, if it is of this attempt and unknown on this machine.
    pub unknown: Option<Manifest>,
}

/// Finds the next free number. The manifest decides whether a number is taken: the listing may be
/// old, and an agent may have crashed before its own note. Otherwise a complete checkpoint could be
/// overwritten.
pub(crate) async fn numbers(outbox: &Outbox, pace: &RetryDelay) -> CheckpointNumbers {
    let kept = outbox.recall::<CheckpointState>(STATE_FILE);
    let last = kept.as_ref().and_then(|kept| Some(kept.last.as_ref()?.number));
    let known = last.max(kept.as_ref().and_then(|kept| kept.contents.newest()));
    let free = async || {
        let listed = answer(outbox, outbox.dir.checkpoint_numbers()).await?.last().copied();
        let mut next = listed.max(known).map_or(CheckpointNo::FIRST, CheckpointNo::next);
        let is_taken = async |number| {
            let key = layout::manifest(outbox.dir.job(), number);
            answer(outbox, async { Ok(outbox.dir.store().head(&key).await?) }).await
        };
        while is_taken(next).await?.is_some() {
            next = next.next();
        }
        // Below it, look for complete ones, down to the last known.
        let mut unknown = None;
        let above = last.map_or(0, CheckpointNo::number) + 1..next.number();
        for number in above.rev().take(UNKNOWN_MAX) {
            let manifest =
                async { unless_damaged(outbox.dir.manifest(CheckpointNo::new(number)).await) };
            unknown = answer(outbox, manifest).await?;
            if unknown.is_some() {
                break;
            }
        }
        Ok::<_, Option<JobDirError>>(CheckpointNumbers {
            next,
            unknown: unknown.filter(|unknown| unknown.attempt == outbox.attempt),
        })
    };
    let mut failures = 0;
    loop {
        match free().await {
            Ok(numbers) => return numbers,
            Err(Some(error)) => tracing::warn!("cannot list the checkpoints: {}", chain(&error)),
            Err(None) => tracing::warn!("the list of checkpoints does not come"),
        }
        failures += 1;
        pace.wait(&*outbox.clock, failures).await;
    }
}

/// One call has so much time. A limit on all of them together would never be met by a store that
/// takes ten seconds for each. `Err(None)`: no answer came.
async fn answer<T>(
    outbox: &Outbox,
    call: impl Future<Output = Result<T, JobDirError>>,
) -> Result<T, Option<JobDirError>> {
    outbox.within(TRY_SECS_MAX, call).await.ok_or(None)?.map_err(Some)
}
