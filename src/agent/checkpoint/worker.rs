//! The worker of `checkpoints`: one task that looks, uploads and answers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::completeness::complete_set::CompleteSet;
use super::completeness::file_motion::QUIET;
use super::completeness::folder_diff::FolderListing;
use super::completeness::folder_watch::FolderWatch;
use super::completeness::workload_signals::{EarlierSigns, WorkloadSigns};
use super::persisted_state::{STATE_FILE, UnsendableFiles, not_kept};
use super::save_request::{PendingSave, SaveRequest, Saved};
use super::upload::{CheckpointNumbers, SentCheckpoint, TornUpload, UploadTry, numbers, release};
use super::worker_state::{SaveTrouble, WorkerState};
use crate::agent::report::journal::Journal;
use crate::job::{
    CheckpointLink, CheckpointNo, CheckpointSummary, Manifest, NEVER_RESTS, RECORD_FORMAT,
};
use crate::jobdir::EventDetail;
use crate::market::Span;
use crate::ports::ClockLead;

/// The time between two looks at the folder: a mark or a change is seen at most this late.
const LOOK: Duration = Duration::from_secs(1);

/// The same during a save: each quarter of a second is taken from the notice.
const LOOK_HURRIED: Duration = Duration::from_millis(250);

/// The limit for asking which files are open, which usually takes milliseconds.
const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// The time between two comparisons of the folder's clock with the progress file's. Longer misses a
/// link to a file server that the workload made; shorter asks the file server more often.
const CLOCK_AGAIN: Duration = Duration::from_secs(60);

/// Looks take at most this share of the time: a folder that takes a second is read every 20
/// seconds.
const LOOK_SHARE: u32 = 20;

/// The wait after a save that ran out of time, so that the next request need not wait for an
/// upload.
const AGAIN: Duration = Duration::from_secs(30);

/// A folder that cannot be read for this long does not delay the end: its content then counts as
/// lost.
const BLIND_FOR: Duration = Duration::from_secs(10);

/// Torn tries in a row before people are told.
const TORN_MAX: u32 = 3;

/// Names of files in memory. A script writes few of them in place.
const REWRITTEN_MAX: usize = 1000;

/// Messages for people in one attempt.
const SAID_MAX: usize = 20;

/// People are told after this time without a success.
const UNSENT_FOR: Duration = Duration::from_secs(20);

pub(crate) struct Worker {
    shared: Arc<WorkerState>,
    journal: Journal,
    interval: Span,
    watch: FolderWatch,
    inbox: mpsc::UnboundedReceiver<PendingSave>,
    pending: Option<PendingSave>,
    /// The number of saves so far: identifies the pending one.
    accepted: u64,
    /// The next checkpoint number, once read, and a checkpoint there that this machine does not
    /// know.
    next: Option<CheckpointNo>,
    unknown: Option<Arc<Manifest>>,
    /// The earliest time of the next upload that was not requested.
    not_before: Duration,
    torn: u32,
    /// Files that the workload wrote again in place during an upload.
    rewritten: BTreeSet<String>,
    said: Vec<String>,
    look_after: Duration,
    look_took: Duration,
    /// Since when the folder cannot be read, and why.
    blind: Option<(Duration, String)>,
    links: Vec<CheckpointLink>,
    /// How far the folder's clock is ahead of the progress file's, and when that was seen.
    /// `None` inside: it cannot be seen.
    lead: Option<(Duration, Option<ClockLead>)>,
}

enum UploadEnd {
    Done(SentCheckpoint),
    Torn(TornUpload),
    OutOfTime { sent: u64, total: u64 },
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<WorkerState>,
        journal: Journal,
        interval: Span,
        inbox: mpsc::UnboundedReceiver<PendingSave>,
        unseen_end: bool,
    ) -> Self {
        let before = EarlierSigns { marks: shared.kept().marks, unseen_end };
        let doubted = shared.kept().doubted.clone();
        let watch = FolderWatch::new(shared.kept().picture(), before).doubting(doubted);
        Worker {
            shared,
            journal,
            interval,
            watch,
            inbox,
            pending: None,
            accepted: 0,
            next: None,
            unknown: None,
            not_before: Duration::ZERO,
            torn: 0,
            rewritten: BTreeSet::new(),
            said: Vec::new(),
            look_after: LOOK,
            look_took: Duration::ZERO,
            blind: None,
            links: Vec::new(),
            lead: None,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            self.look().await;
            let now = self.now();
            if let Some(ripe) = self.due(now) {
                self.upload(ripe).await;
                continue;
            }
            self.answer(now);
            // While a save is awaited, a look may follow after as long as it takes.
            let wait = if self.pending.is_some() {
                LOOK_HURRIED.max(self.look_took)
            } else {
                self.look_after
            };
            let (clock, board) = (Arc::clone(&self.shared.outbox.clock), self.shared.board.clone());
            tokio::select! {
                biased;
                () = clock.sleep(wait) => {}
                () = self.shared.wake.notified() => {}
                () = board.wait_for_mark() => {}
                Some(save) = self.inbox.recv() => self.accept(save),
            }
        }
    }

    fn now(&self) -> Duration {
        self.shared.outbox.clock.mono()
    }

    /// A checkpoint that is complete, not kept, and wanted now.
    fn due(&self, now: Duration) -> Option<CompleteSet> {
        if self.blind.is_some() || self.pending.as_ref().is_some_and(|save| now >= save.deadline) {
            return None;
        }
        let ripe = self.watch.complete(now, self.torn == 0, self.pending.is_some())?;
        if self.shared.held.load(Ordering::Relaxed) && !self.shared.kept().is_a_save(&ripe.picture)
        {
            return None;
        }
        (self.pending.is_some()
            || now >= self.not_before
            || self.shared.hurry.load(Ordering::Relaxed)
            || self.shared.wished().is_some())
        .then_some(ripe)
    }

    fn accept(&mut self, save: PendingSave) {
        self.accepted += 1;
        if let Some(earlier) = self.pending.replace(save) {
            let _ = earlier.reply.send(Saved::Failed("a newer save took its place".into()));
        }
    }

    fn reply(&mut self, saved: Saved) {
        if let Some(save) = self.pending.take() {
            // The receiver may be gone.
            let _ = save.reply.send(saved);
        }
    }

    async fn look(&mut self) {
        self.shared.looks.send_modify(|looks| looks.begun += 1);
        self.look_now().await;
        self.shared.looks.send_modify(|looks| looks.over = looks.begun);
    }

    async fn look_now(&mut self) {
        // Read the end first: then all files seen after it were written before it.
        let ends = *self.shared.ends();
        let (marks, marked_step) = self.shared.board.marks_seen();
        let (reports, told_by) = self.shared.board.reports();
        let mut signs = WorkloadSigns {
            reports,
            told_by,
            marks,
            marked_step,
            step: self.shared.board.live_step(),
            any_step: self.shared.board.progress().step,
            prints_steps: self.shared.board.prints_steps(),
            life: ends.life,
            marked_by: self.shared.board.marked_by(),
            has_marked: self.shared.board.has_marked(),
            ended: ends.now,
            killed: ends.killed,
            free_bytes: None,
        };
        let begun = self.now();
        let look = self.shared.folder.look().await;
        // After the look: a file that is opened in between is reported as open.
        let open = match &look {
            Ok(look) if self.watch.may_be_moving(&look.picture, self.now()) => {
                self.open_files().await
            }
            _ => None,
        };
        let now = self.now();
        self.look_took = now.saturating_sub(begun);
        self.look_after = LOOK.max(self.look_took * LOOK_SHARE);
        match look {
            Ok(look) => {
                signs.free_bytes = look.free_bytes;
                let signs = signs.by_clock_of_folder(self.lead().await);
                self.blind = None;
                self.tell(SaveTrouble::Blind, None);
                self.shared.bytes.store(
                    look.picture.iter().map(|file| file.stamp.bytes).sum(),
                    Ordering::Relaxed,
                );
                self.links = look.links;
                if !look.skipped.is_empty() {
                    let rest = look.skipped.len() - 1;
                    self.say(format!(
                        "not part of any checkpoint: {}{}",
                        look.skipped[0],
                        if rest > 0 { " and others" } else { "" }
                    ));
                }
                if self.watch.observe_open(look.picture, now, signs, open.as_ref()) {
                    self.shared.board.checkpoint_changed();
                }
                if open.as_ref().is_some_and(|open| self.watch.is_in_save(open, now)) {
                    *self.shared.writing() = Some(now);
                }
                self.remember_doubt();
                let never_rests = self.watch.never_rests(now);
                self.tell(SaveTrouble::Restless, never_rests.then(|| NEVER_RESTS.to_owned()));
                if never_rests {
                    self.say(NEVER_RESTS.to_owned());
                }
                if let Some(path) = self.watch.short_file(now) {
                    let text = format!(
                        "{}: the disk was full when it was written, and it is shorter than the one before",
                        not_kept(path)
                    );
                    let mut lost = self.shared.lost.lock().expect("it is only set and cloned");
                    lost.get_or_insert_with(|| text.clone());
                    drop(lost);
                    self.say(text);
                }
            }
            Err(error) => {
                let text = format!("cannot look at the checkpoint folder: {error}");
                let since = self.blind.take().map_or(now, |(since, _)| since);
                self.blind = Some((since, text.clone()));
                self.say(text.clone());
                self.tell(
                    SaveTrouble::Blind,
                    (now.saturating_sub(since) >= BLIND_FOR)
                        .then(|| format!("nothing is saved: {text}")),
                );
            }
        }
    }

    /// The progress file and the log are in the same file system as the agent's records.
    async fn lead(&mut self) -> Option<ClockLead> {
        let now = self.now();
        if let Some((at, lead)) = self.lead
            && now.saturating_sub(at) < CLOCK_AGAIN
        {
            return lead;
        }
        let (outbox, folder) = (&self.shared.outbox, &self.shared.folder.path);
        let lead = outbox.within(OPEN_WITHIN, outbox.files.clock_lead(folder, &outbox.state));
        let lead = lead.await.and_then(Result::ok);
        self.lead = Some((now, lead));
        lead
    }

    /// The files that the workload has open for writing. `None`: unknown.
    async fn open_files(&self) -> Option<BTreeSet<String>> {
        let writer = self.shared.writer()?;
        self.shared
            .outbox
            .within(OPEN_WITHIN, writer.open_for_writing(&self.shared.folder.path))
            .await
            .flatten()
    }

    /// A restarted agent finds another running process and has not seen this one end.
    fn remember_doubt(&self) {
        let (doubted, mut kept) = (self.watch.doubted(), self.shared.kept());
        if kept.doubted != doubted {
            kept.doubted = doubted;
            self.shared.outbox.keep(STATE_FILE, &*kept);
        }
    }

    /// Sets a message in the status. `None` removes it.
    fn tell(&self, trouble: SaveTrouble, text: Option<String>) {
        let mut troubles = self.shared.troubles();
        match text {
            Some(text) => drop(troubles.insert(trouble, text)),
            None => drop(troubles.remove(&trouble)),
        }
    }

    /// Reports a job root that accepts nothing, after a while.
    fn tell_of_silence(&self, why: Option<&str>) {
        let failing = self.shared.pace.failing_for(&*self.shared.outbox.clock);
        if failing >= UNSENT_FOR {
            let why = why.unwrap_or("the job root does not take it");
            self.shared
                .troubles()
                .entry(SaveTrouble::Unsent)
                .or_insert_with(|| format!("nothing is saved, and it is tried again: {why}"));
        }
    }

    /// Reports the files that can never be sent.
    fn leave_out(&mut self, unfit: &UnsendableFiles) {
        let first = unfit.iter().next().map(|(path, why)| {
            let rest = unfit.len() - 1;
            let others = if rest > 0 { format!(", and {rest} others") } else { String::new() };
            format!("{}, for it cannot be sent{others}: {why}", not_kept(path))
        });
        self.tell(SaveTrouble::Unfit, first.clone());
        if let Some(text) = first {
            self.say(text);
        }
        let mut kept = self.shared.kept();
        if kept.left_out != *unfit {
            kept.left_out = unfit.clone();
            self.shared.outbox.keep(STATE_FILE, &*kept);
        }
    }

    /// Tells people, once for each text.
    fn say(&mut self, text: String) {
        if self.said.len() < SAID_MAX && !self.said.contains(&text) {
            self.said.push(text.clone());
            self.journal.record(EventDetail::Attention { text });
        }
    }

    /// Whether something was written after the request.
    fn changed_since(&self, ask: &SaveRequest) -> bool {
        let marked = self.shared.board.marks_seen().0 > ask.marks;
        ask.as_is
            || marked
            || ask.picture.as_ref().is_some_and(|before| self.watch.has_changed(before))
    }

    /// Answers a save that needs neither an upload nor more waiting.
    fn answer(&mut self, now: Duration) {
        let Some(save) = &self.pending else { return };
        if let Some((since, why)) = &self.blind {
            let is_over = save.ask.as_is || self.shared.ends().now.is_some();
            if now >= save.deadline || is_over && now.saturating_sub(*since) >= BLIND_FOR {
                let why = why.clone();
                self.reply(Saved::Failed(why));
            }
            return;
        }
        let (late, ended, dirty) = (now >= save.deadline, self.watch.ended(), self.watch.dirty());
        let last = self.shared.kept().last.clone();
        let saved = match (self.changed_since(&save.ask), dirty) {
            (true, false) if save.ask.as_is => Saved::NoChange(last),
            (true, true) if save.ask.as_is && self.watch.is_in_doubt() => {
                Saved::Failed("its writer was killed or is gone with an earlier life of the machine, so it may be half of a checkpoint".into())
            }
            // Marked, and all files are already kept.
            (true, false) => last.map_or(Saved::NoChange(None), Saved::Complete),
            (true, true) if late => Saved::Failed("the checkpoint was still being written when the time was up".into()),
            (true, true) if ended => {
                Saved::Failed("the workload ended, and its last write there may be half of a checkpoint".into())
            }
            (false, _) if late || ended => Saved::NoChange(last),
            _ => return,
        };
        self.reply(saved);
    }

    /// Whether the complete files were written after the request.
    fn answers(&self, ask: &SaveRequest, ripe: &CompleteSet) -> bool {
        let marked = self.shared.board.marks_seen().0 > ask.marks;
        ask.as_is
            || marked && ripe.is_marked
            || ask.picture.as_ref().is_some_and(|before| ripe.newer_than(before))
    }

    async fn upload(&mut self, ripe: CompleteSet) {
        let complete_at = self.now();
        let why = self.shared.wished().take().unwrap_or("notice");
        let by_notice =
            (self.pending.is_none() && complete_at < self.not_before).then(|| why.to_owned());
        // The rest of a kept checkpoint, after others were deleted, does not delay the next save.
        let adds = ripe.adds_to(&self.shared.kept().picture());
        self.not_before =
            if adds { complete_at + self.interval.duration() } else { self.not_before };
        if let Some(entry) = &ripe.left_out {
            self.say(format!(
                "`{entry}` in the checkpoint folder is always being written, so it is left out of the checkpoints; what is kept is the \
                 numbered ones beside it"
            ));
        }
        let answers = self.pending.as_ref().filter(|save| self.answers(&save.ask, &ripe));
        let asked = answers.map(|save| (save.ask.at, save.asked_by.clone(), save.ask.as_is));
        let which = asked.as_ref().map(|_| self.accepted);
        self.shared.is_uploading(self.pending.is_none().then_some(complete_at));
        let save_time =
            ripe.save_time(asked.as_ref().filter(|(_, _, as_is)| !as_is).map(|(at, _, _)| *at));
        let number = match self.next {
            Some(number) => number,
            None => {
                let pace = Arc::clone(&self.shared.pace);
                let outbox = self.shared.outbox.clone();
                let Some(CheckpointNumbers { next, unknown }) =
                    self.in_time(numbers(&outbox, &pace)).await
                else {
                    self.reply(Saved::Failed(
                        "the job directory did not answer in time, so the checkpoint has no number"
                            .into(),
                    ));
                    self.again();
                    return;
                };
                self.unknown = unknown.map(Arc::new);
                next
            }
        };
        self.next = Some(number.next());
        let sent = Arc::new(AtomicU64::new(0));
        let trouble = Arc::default();
        let attempt = UploadTry {
            outbox: self.shared.outbox.clone(),
            folder: self.shared.folder.clone(),
            picture: Arc::clone(&ripe.picture),
            places: self.watch.places(),
            links: self.links.clone(),
            appended: self.watch.appended_files(),
            rewritten: self.rewritten.clone(),
            contents: Arc::clone(&self.shared.kept().contents),
            pace: Arc::clone(&self.shared.pace),
            manifest: Manifest {
                format: RECORD_FORMAT,
                number,
                attempt: self.shared.outbox.attempt,
                created: self.shared.outbox.clock.now(),
                step: ripe.step,
                files: Vec::new(),
                links: Vec::new(),
                save_secs: save_time.as_secs_f64(),
                upload_secs: 0.0,
                marks: self.watch.known_marks(),
                silent_secs: self.shared.board.longest_silence(),
                asked_by: asked.as_ref().map(|(_, by, _)| by.clone()).or(by_notice),
            },
            is_silent: self.shared.board.own_step().is_none(),
            unknown: self.unknown.clone(),
            sent: Arc::clone(&sent),
            trouble: Arc::clone(&trouble),
            unfit: Mutex::default(),
        };
        let ended = self.drive(attempt, &ripe.picture, &sent, &trouble).await;
        self.shared.is_uploading(None);
        let cost = save_time + self.now().saturating_sub(complete_at) + QUIET;
        self.ended(ended, ripe.picture, which, cost.as_secs_f64());
        let (outbox, folder) = (self.shared.outbox.clone(), self.shared.folder.clone());
        self.in_time(release(&outbox, &folder)).await;
    }

    /// Retries soon, since a save was requested. After the workload's end, outputs and log need the
    /// time.
    fn again(&mut self) {
        if !self.watch.ended() {
            self.not_before = self.not_before.min(self.now() + AGAIN);
        }
    }

    /// Runs a try. Ends it when the folder changes or the save's time is up.
    async fn drive(
        &mut self,
        attempt: UploadTry,
        picture: &FolderListing,
        sent: &AtomicU64,
        trouble: &Mutex<Option<String>>,
    ) -> UploadEnd {
        let running = attempt.run();
        tokio::pin!(running);
        let (clock, board) = (Arc::clone(&self.shared.outbox.clock), self.shared.board.clone());
        let mut why = None;
        loop {
            tokio::select! {
                biased;
                result = &mut running => return result.map_or_else(UploadEnd::Torn, UploadEnd::Done),
                Some(save) = self.inbox.recv() => self.accept(save),
                () = clock.sleep(self.look_after) => self.look().await,
                () = board.wait_for_mark() => self.look().await,
                () = self.shared.wake.notified() => self.look().await,
            }
            if let Some(text) = trouble.lock().expect("never held over a panic").take() {
                self.say(text.clone());
                why = Some(text);
            }
            self.tell_of_silence(why.as_deref());
            if self.watch.has_grown(picture) {
                return UploadEnd::Torn(TornUpload::Folder);
            }
            if self.pending.as_ref().is_some_and(|save| self.now() >= save.deadline) {
                let total = picture.iter().map(|file| file.stamp.bytes).sum();
                return UploadEnd::OutOfTime { sent: sent.load(Ordering::Relaxed), total };
            }
        }
    }

    /// Awaits a future until the save's time is up, and keeps looking at the folder. So a mark is
    /// matched with the files of its own time, even if the store answers late.
    async fn in_time<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        let (clock, board) = (Arc::clone(&self.shared.outbox.clock), self.shared.board.clone());
        loop {
            tokio::select! {
                biased;
                value = &mut future => return Some(value),
                Some(save) = self.inbox.recv() => self.accept(save),
                () = clock.sleep(self.look_after) => self.look().await,
                () = board.wait_for_mark() => self.look().await,
                () = self.shared.wake.notified() => self.look().await,
            }
            self.tell_of_silence(None);
            if self.pending.as_ref().is_some_and(|save| self.now() >= save.deadline) {
                return None;
            }
        }
    }

    /// `which`: the save that it answers. A save that replaced it gets its own answer.
    fn ended(&mut self, ended: UploadEnd, picture: FolderListing, which: Option<u64>, cost: f64) {
        match ended {
            UploadEnd::Done(SentCheckpoint { manifest, left_out }) => {
                (self.torn, self.unknown) = (0, None);
                self.came();
                let summary = self.keep(manifest, picture, cost);
                self.leave_out(&left_out);
                // If the writer of the newest was killed, only the one before is kept. That is a
                // loss, not an answer.
                let is_all = !(self.watch.ended() && self.watch.dirty());
                if which == Some(self.accepted) && is_all {
                    self.reply(Saved::Complete(summary));
                }
            }
            // An earlier agent kept it, but had no space for its note. A second copy would become
            // the newest.
            UploadEnd::Torn(TornUpload::Known) => {
                self.came();
                self.watch.keep(picture);
                let mut kept = self.shared.kept();
                kept.last =
                    self.unknown.as_ref().map(|unknown| unknown.summary()).or(kept.last.take());
            }
            // A retry would fail again: wait until the folder changes.
            UploadEnd::Torn(TornUpload::Unfit(left_out)) => {
                self.torn = 0;
                self.came();
                self.watch.keep(picture);
                self.leave_out(&left_out);
                if which == Some(self.accepted) {
                    self.reply(Saved::Failed("none of its files can be sent".into()));
                }
            }
            UploadEnd::Torn(why) => {
                tracing::info!("a checkpoint was torn and will be tried again: {why}");
                if matches!(why, TornUpload::Number) {
                    self.next = None;
                }
                if let TornUpload::File(path) = &why
                    && self.rewritten.len() < REWRITTEN_MAX
                {
                    self.rewritten.insert(path.clone());
                }
                self.torn += 1;
                if self.torn == TORN_MAX {
                    let text = format!(
                        "the checkpoint folder changes faster than it can be uploaded: {TORN_MAX} tries in a row were torn"
                    );
                    self.say(text.clone());
                    self.tell(SaveTrouble::Torn, Some(format!("nothing is saved: {text}")));
                }
                // Sent files are remembered, so the next try is shorter. It does not wait for the
                // interval.
                self.not_before = Duration::ZERO;
            }
            UploadEnd::OutOfTime { sent, total } => {
                let mb = |bytes: u64| bytes as f64 / 1e6;
                self.reply(Saved::Failed(format!(
                    "{:.1} of {:.1} MB were uploaded when the time was up",
                    mb(sent),
                    mb(total)
                )));
                self.again();
            }
        }
    }

    /// The job root has accepted everything.
    fn came(&self) {
        self.shared.pace.came();
        self.tell(SaveTrouble::Unsent, None);
        self.tell(SaveTrouble::Torn, None);
    }

    fn keep(&mut self, manifest: Manifest, picture: FolderListing, cost: f64) -> CheckpointSummary {
        let summary = manifest.summary();
        self.watch.keep(Arc::clone(&picture));
        {
            let mut kept = self.shared.kept();
            kept.holds(&picture);
            kept.last = Some(summary.clone());
            kept.count += 1;
            kept.took(cost, manifest.upload_secs);
            kept.marks = self.watch.known_marks();
            self.shared.outbox.keep(STATE_FILE, &*kept);
        }
        let Manifest { save_secs, upload_secs, asked_by, .. } = manifest;
        self.journal.record(EventDetail::Checkpoint {
            checkpoint: summary.clone(),
            save_secs,
            upload_secs,
            asked_by,
        });
        summary
    }
}
