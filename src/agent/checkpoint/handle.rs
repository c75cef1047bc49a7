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

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::completeness::folder_diff::has_news;
use super::persisted_state::{CheckpointState, STATE_FILE, not_kept, p95};
use super::save_request::{PendingSave, SaveRequest, Saved};
use super::upload::CheckpointFolder;
use super::worker::Worker;
use super::worker_state::{WorkerState, WorkloadEnds};
use crate::agent::activity_counters::ActivityCounters;
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, RetryDelay, Task};
use crate::job::{CheckpointSpec, CheckpointSummary, ExitStatus};
use crate::ports::Workload;

/// The handle. Cheap to clone; the worker runs until the last clone is dropped.
#[derive(Clone)]
pub struct Checkpoints {
    shared: Arc<WorkerState>,
    commands: mpsc::UnboundedSender<PendingSave>,
    _task: Arc<Task>,
}

impl Checkpoints {
    /// Call after `restore` and before the workload starts. Reads the state of an earlier agent.
    /// Files in the folder before the first start are no checkpoint. `unseen_end`: a process ended
    /// unseen.
    pub fn start(
        outbox: Outbox,
        journal: Journal,
        board: ActivityCounters,
        spec: &CheckpointSpec,
        path: PathBuf,
        unseen_end: bool,
    ) -> Self {
        let folder = CheckpointFolder::new(Arc::clone(&outbox.files), path);
        let kept = outbox.recall(STATE_FILE).unwrap_or_else(|| {
            let picture = folder.look_now().map(|look| look.picture).unwrap_or_default();
            let kept = CheckpointState::found(&picture);
            outbox.keep(STATE_FILE, &kept);
            kept
        });
        let shared = Arc::new(WorkerState {
            outbox,
            board,
            folder,
            kept: Mutex::new(kept),
            ends: Mutex::default(),
            writer: Mutex::default(),
            wake: Notify::new(),
            pace: Arc::new(RetryDelay::default()),
            hurry: AtomicBool::default(),
            wished: Mutex::default(),
            uploading: Mutex::default(),
            bytes: AtomicU64::default(),
            troubles: Mutex::default(),
            held: AtomicBool::default(),
            looks: watch::Sender::default(),
            writing: Mutex::default(),
            lost: Mutex::default(),
        });
        let (commands, inbox) = mpsc::unbounded_channel();
        let worker = Worker::new(Arc::clone(&shared), journal, spec.interval, inbox, unseen_end);
        Checkpoints { shared, commands, _task: Arc::new(Task::spawn(worker.run())) }
    }

    /// Whether an earlier agent left the state for [`Checkpoints::start`].
    pub fn are_known(outbox: &Outbox) -> bool {
        matches!(outbox.files.read(&outbox.state.join(STATE_FILE)), Ok(Some(_)))
    }

    pub fn workload_started(&self, workload: Option<Arc<dyn Workload>>) {
        *self
            .shared
            .writer
            .lock()
            .expect("no code panics while it holds it: it is only set and cloned") = workload;
        let mut ends = self.shared.ends();
        (ends.now, ends.life) = (None, ends.life + 1);
    }

    /// The workload has ended: the folder's content is final.
    pub fn workload_ended(&self, exit: ExitStatus) {
        let now = self.shared.outbox.clock.mono();
        let killed = (!exit.is_in_order()).then_some(now);
        let mut ends = self.shared.ends();
        *ends = WorkloadEnds {
            now: Some((exit, now)),
            killed: killed.or(ends.killed),
            life: ends.life,
        };
        drop(ends);
        self.shared.wake.notify_one();
    }

    /// Called just before the checkpoint signal. On a hung folder it may never return.
    pub async fn ask(&self) -> SaveRequest {
        let picture = self.shared.folder.look().await.ok().map(|look| look.picture);
        SaveRequest {
            picture,
            marks: self.shared.board.marks_seen().0,
            at: self.shared.outbox.clock.mono(),
            as_is: false,
        }
    }

    /// The present content counts, unasked: for the end of a job, and without a checkpoint signal.
    pub fn as_is(&self) -> SaveRequest {
        SaveRequest { picture: None, marks: 0, at: self.shared.outbox.clock.mono(), as_is: true }
    }

    /// Looks at the folder once more, for at most this long: just before the workload is ended, so
    /// that a save that is complete by then is known as such.
    pub async fn look_again(&self, within: Duration) {
        let mut looks = self.shared.looks.subscribe();
        // A look that goes on now began too early.
        let next = looks.borrow().begun + 1;
        self.shared.wake.notify_one();
        let _ = self.shared.outbox.within(within, looks.wait_for(|looks| looks.over >= next)).await;
    }

    /// Whether a file of a save was open for writing within the last second. A save of several
    /// files closes one before it opens the next.
    pub fn is_being_written(&self) -> bool {
        let now = self.shared.outbox.clock.mono();
        self.shared.writing().is_some_and(|at| now.saturating_sub(at) < Duration::from_secs(1))
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
    pub async fn save(&self, ask: SaveRequest, asked_by: &str, within: Duration) -> Saved {
        if ask.as_is && self.shared.held.load(Ordering::Relaxed) {
            return Saved::NoChange(self.last());
        }
        let clock = &self.shared.outbox.clock;
        let (reply, answer) = oneshot::channel();
        let save = PendingSave {
            ask,
            asked_by: asked_by.to_owned(),
            deadline: clock.mono() + within,
            reply,
        };
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

    /// Whether files of the folder may be half: their writer was killed, or lost with its machine.
    pub fn doubts(&self) -> bool {
        !self.shared.kept().doubted.is_empty()
    }

    pub fn last(&self) -> Option<CheckpointSummary> {
        self.shared.kept().last.clone()
    }

    /// Why saves are not kept now, for people.
    pub fn troubles(&self) -> Vec<String> {
        self.shared.troubles().values().cloned().collect()
    }

    /// One sentence for each file that can never be sent, and for the first save that was lost.
    pub fn left_out(&self) -> Vec<String> {
        let kept = self.shared.kept();
        let mut losses: Vec<String> = kept
            .left_out
            .iter()
            .take(LEFT_OUT_TOLD)
            .map(|(path, why)| format!("{}: {why}", not_kept(path)))
            .collect();
        if let Some(more) = kept.left_out.len().checked_sub(LEFT_OUT_TOLD).filter(|more| *more > 0)
        {
            losses.push(format!("{more} more files of the checkpoints are not kept"));
        }
        losses.extend(self.shared.lost.lock().expect("it is only set and cloned").clone());
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

    /// Uploads the next complete checkpoint at once. A script that cannot be asked to save is not
    /// disturbed.
    pub fn upload_soon(&self, asked_by: &'static str) {
        *self.shared.wished() = Some(asked_by);
        self.shared.wake.notify_one();
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
