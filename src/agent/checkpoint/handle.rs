//! Checkpoints: watches the folder, uploads complete ones, and answers when the drain asks for a
//! save.
//!
//! ```text
//!   look (1 s) ──> FolderWatch ──complete──> Try (files, then manifest) ──> Checkpoint event
//!                      ^                        │ torn: wait for quiet, then the next number
//!   ask ─ signal ─ save ┘<──────────────────────┘
//! ```
//! On the interval, it uploads what is complete. On a save, it uploads what was written after the
//! request, until the deadline. It looks at the folder during an upload too, so a torn try ends at
//! once. Not here: when to save (`policy`), or the signal (the agent's loop).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, oneshot};

use super::completeness::Picture;
use super::folder_diff::{has_news, without_logs};
use super::upload::{Contents, Folder, LeftOut};
use super::worker::Worker;
use crate::agent::activity_board::Board;
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, Pace, Task};
use crate::job::{CheckpointSpec, CheckpointSummary, ExitStatus};
use crate::ports::{FileStamp, TreeFile, Workload};

pub use super::restore::{RestoreError, restore};

/// The number of costs for the percentile.
const COSTS_MAX: usize = 100;

pub(crate) const KEPT: &str = "checkpoints.json";

/// The handle. Cheap to clone; the worker runs until the last clone is dropped.
#[derive(Clone)]
pub struct Checkpoints {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Save>,
    _task: Arc<Task>,
}

/// The folder's content just before the workload was asked to save.
#[derive(Clone, Debug)]
pub struct Ask {
    pub(crate) picture: Option<Picture>,
    pub(crate) marks: u64,
    pub(crate) at: Duration,
    /// The workload was not asked: the present content counts.
    pub(crate) as_is: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    /// A manifest is written, with the files saved after the request. With [`Checkpoints::as_is`]:
    /// with the present files.
    Complete(CheckpointSummary),
    /// Nothing changed after the request. The newest complete checkpoint, if any, remains.
    NoChange(Option<CheckpointSummary>),
    /// Something changed but is not kept, with the reason as a sentence.
    Failed(String),
}

pub(crate) struct Shared {
    pub outbox: Outbox,
    pub board: Board,
    pub folder: Folder,
    kept: Mutex<Kept>,
    ends: Mutex<Ends>,
    /// The running workload, which is asked which files it has open.
    writer: Mutex<Option<Arc<dyn Workload>>>,
    pub wake: Notify,
    pub pace: Arc<Pace>,
    /// Uploads do not wait for the interval: the machine may be gone before it ends.
    pub hurry: AtomicBool,
    /// When the present upload began, if no save was asked for.
    pub uploading: Mutex<Option<Duration>>,
    /// Size of the folder at the last look.
    pub bytes: AtomicU64,
    /// Why saves are not kept now, in sentences for people. Each is removed when its cause is gone.
    pub troubles: Mutex<BTreeMap<Trouble, String>>,
    /// Nothing is uploaded: after a rollback, the workload has not made progress yet.
    pub held: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// The folder cannot be read.
    Blind,
    /// The job root does not accept it.
    Unsent,
    /// It changes too fast.
    Torn,
    /// It is written without a pause.
    Restless,
    /// Some files cannot be sent.
    Unfit,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    /// The last one, if none runs.
    pub now: Option<(ExitStatus, Duration)>,
    /// The newest killed process: the next may start before the worker has looked.
    pub killed: Option<Duration>,
    /// How often a process was started.
    pub life: u64,
}

/// State for a restarted agent.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The files of the newest manifest of this machine, or of the restored one.
    pub files: Vec<(String, FileStamp)>,
    pub contents: Arc<Contents>,
    pub last: Option<CheckpointSummary>,
    pub count: u32,
    /// Whether the workload marks its checkpoints. `None` until its first one.
    #[serde(default)]
    pub marks: Option<bool>,
    /// Files that an ended process may have left incomplete, with the least that must be rewritten.
    #[serde(default)]
    pub doubted: Vec<(String, FileStamp, u64)>,
    /// The files of the newest save that can never be sent.
    #[serde(default)]
    pub left_out: LeftOut,
    /// Save, quiet time and upload together, in seconds.
    pub costs: Vec<f64>,
    /// Seconds of the uploads alone.
    #[serde(default)]
    pub uploads: Vec<f64>,
    /// New bytes of each checkpoint of this attempt over the one before, summed, without logs.
    #[serde(default)]
    pub written: u64,
    /// The cached 95th percentile, since every tick asks for it.
    #[serde(skip)]
    pub secs_p95: Option<f64>,
}

pub(crate) struct Save {
    pub ask: Ask,
    pub asked_by: String,
    pub deadline: Duration,
    pub reply: oneshot::Sender<Saved>,
}

impl Checkpoints {
    /// Call after [`restore`] and before the workload starts. Reads the state of an earlier agent.
    /// Files in the folder before the first start are no checkpoint. `unseen_end`: a process ended
    /// unseen.
    pub fn start(
        outbox: Outbox,
        journal: Journal,
        board: Board,
        spec: &CheckpointSpec,
        path: PathBuf,
        unseen_end: bool,
    ) -> Self {
        let folder = Folder::new(Arc::clone(&outbox.files), path);
        let kept = outbox.recall(KEPT).unwrap_or_else(|| {
            let kept = Kept::found(&folder);
            outbox.keep(KEPT, &kept);
            kept
        });
        let shared = Arc::new(Shared {
            outbox,
            board,
            folder,
            kept: Mutex::new(kept),
            ends: Mutex::default(),
            writer: Mutex::default(),
            wake: Notify::new(),
            pace: Arc::new(Pace::default()),
            hurry: AtomicBool::default(),
            uploading: Mutex::default(),
            bytes: AtomicU64::default(),
            troubles: Mutex::default(),
            held: AtomicBool::default(),
        });
        let (commands, inbox) = mpsc::unbounded_channel();
        let worker = Worker::new(Arc::clone(&shared), journal, spec.interval, inbox, unseen_end);
        Checkpoints { shared, commands, _task: Arc::new(Task::spawn(worker.run())) }
    }

    /// Whether an earlier agent left the state for [`Checkpoints::start`].
    pub fn are_known(outbox: &Outbox) -> bool {
        matches!(outbox.files.read(&outbox.state.join(KEPT)), Ok(Some(_)))
    }

    pub fn workload_started(&self, workload: Option<Arc<dyn Workload>>) {
        *self
            .shared
            .writer
            .lock()
            .expect("nobody panics while holding it: it is only set and cloned") = workload;
        let mut ends = self.shared.ends();
        (ends.now, ends.life) = (None, ends.life + 1);
    }

    /// The workload has ended: the folder's content is final.
    pub fn workload_ended(&self, exit: ExitStatus) {
        let now = self.shared.outbox.clock.mono();
        let killed = (!exit.is_in_order()).then_some(now);
        let mut ends = self.shared.ends();
        *ends = Ends { now: Some((exit, now)), killed: killed.or(ends.killed), life: ends.life };
        drop(ends);
        self.shared.wake.notify_one();
    }

    /// Called just before the checkpoint signal. On a hung folder it may never return.
    pub async fn ask(&self) -> Ask {
        let picture = self.shared.folder.look().await.ok().map(|look| look.picture);
        Ask {
            picture,
            marks: self.shared.board.saved().0,
            at: self.shared.outbox.clock.mono(),
            as_is: false,
        }
    }

    /// The present content counts, unasked: for the end of a job, and without a checkpoint signal.
    pub fn as_is(&self) -> Ask {
        Ask { picture: None, marks: 0, at: self.shared.outbox.clock.mono(), as_is: true }
    }

    /// Stops looking and uploading: the folder's content is about to be replaced.
    pub fn end(&self) {
        self._task.end();
    }

    /// Sets whether the folder's content must not become the newest checkpoint yet.
    pub fn hold(&self, is_held: bool) {
        if self.shared.held.swap(is_held, Ordering::Relaxed) && !is_held {
            self.shared.wake.notify_one();
        }
    }

    /// Whether the newest checkpoint has all files, except logs and `shipped`. May hang with the
    /// folder.
    pub async fn is_as_kept(&self, shipped: &[String]) -> bool {
        let Ok(look) = self.shared.folder.look().await else { return true };
        let ours =
            look.picture.iter().filter(|file| !shipped.contains(&file.path)).cloned().collect();
        !has_news(&Arc::new(ours), &self.shared.kept().picture())
    }

    /// Waits until the change is complete, uploads it, writes the manifest. Takes at most `within`.
    pub async fn save(&self, ask: Ask, asked_by: &str, within: Duration) -> Saved {
        if ask.as_is && self.shared.held.load(Ordering::Relaxed) {
            return Saved::NoChange(self.last());
        }
        let clock = &self.shared.outbox.clock;
        let (reply, answer) = oneshot::channel();
        let save =
            Save { ask, asked_by: asked_by.to_owned(), deadline: clock.mono() + within, reply };
        if self.commands.send(save).is_err() {
            return Saved::Failed("the checkpoint watch has ended".into());
        }
        self.shared.pace.hurry();
        // The worker itself answers at the deadline, with the reason. One more second for a delayed
        // worker.
        let answer = self.shared.outbox.within(within + Duration::from_secs(1), answer).await;
        self.shared.pace.relax();
        match answer {
            Some(Ok(saved)) => saved,
            _ => Saved::Failed("the checkpoint watch did not answer in time".into()),
        }
    }

    pub fn last(&self) -> Option<CheckpointSummary> {
        self.shared.kept().last.clone()
    }

    /// Why saves are not kept now, for people.
    pub fn troubles(&self) -> Vec<String> {
        self.shared.troubles().values().cloned().collect()
    }

    /// The files of the newest save that can never be sent, in sentences.
    pub fn left_out(&self) -> Vec<String> {
        let kept = self.shared.kept();
        let mut losses: Vec<String> = kept
            .left_out
            .iter()
            .take(LEFT_OUT_TOLD)
            .map(|(path, why)| format!("{}: {why}", left_out(path)))
            .collect();
        if let Some(more) = kept.left_out.len().checked_sub(LEFT_OUT_TOLD).filter(|more| *more > 0)
        {
            losses.push(format!("{more} more files of the checkpoints are not kept"));
        }
        losses
    }

    pub fn count(&self) -> u32 {
        self.shared.kept().count
    }

    pub fn written(&self) -> u64 {
        self.shared.kept().written
    }

    /// 95th percentile of save, quiet time and upload together, for `policy::watch::spot_notice`.
    /// `None` before the first.
    pub fn secs_p95(&self) -> Option<f64> {
        let mut kept = self.shared.kept();
        if kept.secs_p95.is_none() {
            kept.secs_p95 = p95(&kept.costs);
        }
        kept.secs_p95
    }

    /// Sets whether an interruption notice stands.
    pub fn hurry(&self, is_near: bool) {
        if self.shared.hurry.swap(is_near, Ordering::Relaxed) != is_near && is_near {
            self.shared.wake.notify_one();
        }
    }

    /// The 95th percentile of the uploads alone, and how long the present one still takes by it.
    /// `None`: never measured.
    pub fn upload_p95(&self) -> Option<(Duration, Duration)> {
        let p95 = Duration::from_secs_f64(p95(&self.shared.kept().uploads)?);
        let since = *self.shared.uploading.lock().expect("it is only read and set");
        let left = since.map_or(Duration::ZERO, |since| {
            p95.saturating_sub(self.shared.outbox.clock.mono().saturating_sub(since))
        });
        Some((p95, left))
    }

    /// Bytes in the folder at the last look. `None`: it was empty.
    pub fn bytes(&self) -> Option<u64> {
        Some(self.shared.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// How many files that are not kept are named; the rest is a number.
const LEFT_OUT_TOLD: usize = 10;

pub(crate) fn left_out(path: &str) -> String {
    format!("`{path}` of the checkpoints is not kept")
}

/// A save is larger than this share of the checkpoint before it, which may hold several saves.
/// Smaller counts a script's settings file as a save. Larger may not count a save beside many
/// others.
const SETTINGS_SHARE: u64 = 50;

/// Whether this many new bytes are a checkpoint after one of `bytes`.
pub(crate) fn is_a_save(new: u64, bytes: u64) -> bool {
    new > bytes / SETTINGS_SHARE
}

fn p95(costs: &[f64]) -> Option<f64> {
    let mut costs = costs.to_vec();
    costs.sort_unstable_by(f64::total_cmp);
    let index = (costs.len() * 95).div_ceil(100).checked_sub(1)?;
    costs.get(index).copied()
}

impl Shared {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept
            .lock()
            .expect("nobody panics while holding what is kept: fields are only read and set")
    }

    pub(crate) fn troubles(&self) -> MutexGuard<'_, BTreeMap<Trouble, String>> {
        self.troubles.lock().expect("they are only read and set")
    }

    pub(crate) fn is_uploading(&self, since: Option<Duration>) {
        *self.uploading.lock().expect("it is only read and set") = since;
    }

    pub(crate) fn writer(&self) -> Option<Arc<dyn Workload>> {
        self.writer
            .lock()
            .expect("nobody panics while holding it: it is only set and cloned")
            .clone()
    }

    pub(crate) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().expect("nobody panics while holding the end: it is only read and set")
    }
}

impl Kept {
    fn found(folder: &Folder) -> Self {
        let picture = folder.look_now().map(|look| look.picture).unwrap_or_default();
        Kept {
            files: picture.iter().map(|file| (file.path.clone(), file.stamp)).collect(),
            ..Kept::default()
        }
    }

    /// Records the seconds of a save in total, and of its upload.
    pub(crate) fn took(&mut self, cost: f64, upload: f64) {
        for (costs, cost) in [(&mut self.costs, cost), (&mut self.uploads, upload)] {
            if costs.len() == COSTS_MAX {
                costs.remove(0);
            }
            costs.push(cost);
        }
        self.secs_p95 = None;
    }

    pub(crate) fn holds(&mut self, picture: &Picture) {
        self.written = self.written.saturating_add(self.beyond(picture));
        self.contents.retain(picture);
        self.files = picture.iter().map(|file| (file.path.clone(), file.stamp)).collect();
    }

    /// Bytes of files that the newest checkpoint lacks, logs excluded.
    fn beyond(&self, picture: &Picture) -> u64 {
        let before: HashMap<&str, FileStamp> =
            self.files.iter().map(|(path, stamp)| (path.as_str(), *stamp)).collect();
        without_logs(picture)
            .filter(|file| before.get(file.path.as_str()) != Some(&file.stamp))
            .map(|file| file.stamp.bytes)
            .sum()
    }

    /// Whether the new bytes are so many that this must be a save.
    pub(crate) fn is_a_save(&self, picture: &Picture) -> bool {
        self.last.as_ref().is_none_or(|last| is_a_save(self.beyond(picture), last.bytes))
    }

    pub(crate) fn picture(&self) -> Picture {
        Arc::new(
            self.files
                .iter()
                .map(|(path, stamp)| TreeFile { path: path.clone(), stamp: *stamp })
                .collect(),
        )
    }
}
