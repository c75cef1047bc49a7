//! The heartbeat: `status.json`, overwritten every so often and at each change, as long as the loop is alive.
//!
//! The loop asks at every tick whether a status is wanted, and hands one in if so. Only news are written: an agent whose
//! loop hangs stops beating, so that its lease lapses, although this task is still running. A slow store never queues more
//! than the newest status. Where a look costs money, the news of the job (`jobdir::change_markers`) say what a controller acts on.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::retry_sender::{Outbox, Pace, TRY_SECS_MAX, Task, chain};
use crate::instance::{Notice, Status};
use crate::job::{AttemptPhase, CheckpointNo, ExitStatus};
use crate::jobdir::{JobDirError, News, has_news, layout};

/// The lease is renewed by this write: a hundred and twenty of them fit in a lease of 30 minutes, so that many lost in a
/// row harm nothing. More often is money for requests (at $5 for a million writes this is 3 cents a day, beside a GPU at
/// dollars an hour); less often leaves whoever watches behind.
const BEAT_REMOTE: Duration = Duration::from_secs(15);

/// On a local disk, where somebody may sit in front of the live line: its numbers are this old at most, and what changes
/// (phase, verdict, a checkpoint) is there at once. A file that is made and renamed costs the agent as much as a quarter
/// of a sample; at every second tick it was an eighth of all that the agent costs.
const BEAT_LOCAL: Duration = Duration::from_secs(5);

/// Between two beats that the news tell of, for a controller that reads no single heartbeat of ten thousand: thirty of them fit
/// in a lease. More often is money for writes that say what the heartbeat itself says; less often, and a few lost ones look
/// like silence.
const BEAT_IN_NEWS: Duration = Duration::from_secs(60);

/// As often as this at most, the loop's ticks being a second apart: a beat is due a little before its tick, or it would
/// wait for the next.
const TICK_SLACK: Duration = Duration::from_millis(500);

/// Between two writes, however fast things change: a store takes a few writes a second to one key without complaint.
const APART: Duration = Duration::from_secs(1);

const SEQUENCE: &str = "heartbeat.json";

/// Numbers that are set aside with one write to the local disk. A restart skips those that were not used; writing each of
/// them down cost as much as the heartbeat itself.
const SET_ASIDE: u64 = 100;

/// The sending end. Cheap to clone; the sender lives until the last clone is dropped.
#[derive(Clone)]
pub struct Heartbeat {
    inner: Arc<Inner>,
    _task: Arc<Task>,
}

struct Inner {
    outbox: Outbox,
    beat: Duration,
    /// Whether a controller may listen for news.
    tells: bool,
    newest: Mutex<Newest>,
    wake: Notify,
    pace: Pace,
    /// The number of the newest update that was written.
    written: watch::Sender<u64>,
}

#[derive(Default)]
struct Newest {
    status: Option<Status>,
    handed_in_at: Option<Duration>,
    /// Grows with every update handed in.
    update: u64,
    /// The newest update differs from what was written in a way that a person waits for.
    changed: bool,
    /// When the newest write was confirmed, by the steady clock.
    written_at: Option<Duration>,
    dated: Option<(Duration, Timestamp)>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Sequence {
    /// No number above this one was ever used.
    sequence: u64,
}

/// What somebody who watches should see at once when it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen<'a> {
    pub phase: AttemptPhase,
    pub verdict: &'a str,
    pub exit: Option<ExitStatus>,
    pub notice: Option<&'a Notice>,
    pub starts: u32,
    pub held_until: Option<Timestamp>,
    /// How many sentences there are.
    pub attention: usize,
    pub last_checkpoint: Option<CheckpointNo>,
}

impl<'a> Seen<'a> {
    fn of(status: &'a Status) -> Self {
        Seen {
            phase: status.phase,
            verdict: &status.verdict,
            exit: status.exit,
            notice: status.notice.as_ref(),
            starts: status.starts,
            held_until: status.held_until,
            attention: status.attention.len(),
            last_checkpoint: status.last_checkpoint.as_ref().map(|checkpoint| checkpoint.number),
        }
    }
}

impl Heartbeat {
    pub fn start(outbox: Outbox, watched: bool) -> Self {
        let (written, _) = watch::channel(0);
        let beat = if watched && outbox.dir.store().is_folder() { BEAT_LOCAL } else { BEAT_REMOTE };
        let tells = watched && has_news(outbox.dir.store().as_ref());
        let inner = Arc::new(Inner { outbox, beat, tells, newest: Mutex::default(), wake: Notify::new(), pace: Pace::default(), written });
        let task = Task::spawn(run(Arc::clone(&inner)));
        Heartbeat { inner, _task: Arc::new(task) }
    }

    /// Whether what the loop sees now is worth a status: the newest one is old, or shows something else. To be asked at
    /// every tick; a status that nobody reads is not put together.
    pub fn wants(&self, now: &Seen<'_>) -> bool {
        let newest = self.inner.newest();
        let old = newest.handed_in_at.is_none_or(|at| self.inner.outbox.clock.mono().saturating_sub(at) + TICK_SLACK >= self.inner.beat);
        old || newest.status.as_ref().is_none_or(|status| Seen::of(status) != *now)
    }

    /// What the loop sees now. `sequence` is filled in here.
    pub fn update(&self, status: Status) {
        let mut newest = self.inner.newest();
        let before = newest.status.as_ref();
        newest.changed |= before.is_none_or(|before| Seen::of(before) != Seen::of(&status));
        newest.status = Some(status);
        newest.handed_in_at = Some(self.inner.outbox.clock.mono());
        newest.update += 1;
        self.inner.wake.notify_one();
    }

    /// Writes the newest status now and waits for it; `false` when that took too long.
    pub async fn flush(&self, within: Duration) -> bool {
        let target = {
            let mut newest = self.inner.newest();
            newest.changed = true;
            newest.update
        };
        let mut written = self.inner.written.subscribe();
        self.inner.pace.hurry();
        self.inner.wake.notify_one();
        let done = self.inner.outbox.within(within, written.wait_for(|written| *written >= target)).await;
        self.inner.pace.relax();
        matches!(done, Some(Ok(_)))
    }

    /// A moment by the steady clock, and a time by the store's that it is not before: of the first heartbeat of this agent. `None`: not
    /// known yet, or the store is a folder, which has the clock of this machine.
    pub fn dated(&self) -> Option<(Duration, Timestamp)> {
        self.inner.newest().dated
    }

    /// Whether the store has said what time it is, or has no clock of its own.
    pub fn is_dated(&self) -> bool {
        self.dated().is_some() || self.inner.outbox.dir.store().is_folder()
    }

    /// When the store last took a heartbeat, by the steady clock.
    pub fn written_at(&self) -> Option<Duration> {
        self.inner.newest().written_at
    }
}

impl Inner {
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().expect("nobody panics while holding the newest status: it is only moved")
    }
}

/// The numbers of the heartbeats, which only grow.
struct Numbers {
    last: u64,
    set_aside: u64,
    /// Who writes this key is settled by the lease: once it holds our words, nobody newer comes in between.
    ours: bool,
}

impl Numbers {
    fn recalled(outbox: &Outbox) -> Self {
        let last = outbox.recall::<Sequence>(SEQUENCE).unwrap_or_default().sequence;
        Numbers { last, set_aside: last, ours: false }
    }

    /// `None`: no answer.
    async fn write(&mut self, outbox: &Outbox, status: &mut Status) -> Option<Result<(), JobDirError>> {
        if !self.ours {
            // A full disk kept nothing of the numbers that were set aside: what is in the store was used all the same. Before
            // that is known, none is written (seed 1449 of the false world: a full disk and a store that lost a read).
            match outbox.within(TRY_SECS_MAX, outbox.dir.status(outbox.attempt)).await? {
                Ok(there) => self.last = self.last.max(there.map_or(0, |there| there.sequence)),
                Err(error) => return Some(Err(error)),
            }
        }
        self.last += 1;
        status.sequence = self.last;
        if self.last > self.set_aside {
            // Before the write: a number that was spent on a lost reply is never used again.
            self.set_aside = self.last + SET_ASIDE;
            outbox.keep(SEQUENCE, &Sequence { sequence: self.set_aside });
        }
        let written = outbox.within(TRY_SECS_MAX, outbox.dir.put_status(outbox.attempt, status, true)).await;
        self.ours |= matches!(written, Some(Ok(())));
        written
    }
}

async fn run(inner: Arc<Inner>) {
    let outbox = &inner.outbox;
    let mut numbers = Numbers::recalled(outbox);
    let mut failures = 0;
    let mut told = Told::default();
    loop {
        let (mut status, update) = due(&inner).await;
        let problem = match numbers.write(outbox, &mut status).await {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(chain(&error)),
            None => Some(format!("no answer within {} s", TRY_SECS_MAX.as_secs())),
        };
        match problem {
            None => {
                if failures > 0 {
                    tracing::info!("the heartbeat is written again, after {failures} failed tries");
                }
                failures = 0;
                inner.newest().written_at = Some(outbox.clock.mono());
                inner.written.send_replace(update);
                if inner.newest().dated.is_none() {
                    date(&inner).await;
                }
                if inner.tells {
                    tell_news(outbox, &status, &mut told).await;
                }
                inner.pace.rest(&*outbox.clock, APART).await;
            }
            Some(problem) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!("the heartbeat is not written and will be tried again: {problem}");
                }
                inner.newest().changed = true;
                // As often as it beats anyway. After an outage that was longer than a lease whoever sweeps looks again after a minute,
                // and must see it then (seed 7007445 of 24 h of the false world: its agent was still waiting).
                inner.pace.wait_at_most(BEAT_REMOTE, &*outbox.clock, failures).await;
            }
        }
    }
}

/// One question for each life of an agent; it is asked again with the next heartbeat.
async fn date(inner: &Inner) {
    let outbox = &inner.outbox;
    if outbox.dir.store().is_folder() {
        return;
    }
    let key = layout::status(outbox.dir.job(), outbox.attempt);
    if let Some(Ok(Some(beat))) = outbox.within(TRY_SECS_MAX, outbox.dir.store().head(&key)).await {
        inner.newest().dated = Some((outbox.clock.mono(), beat.modified));
    }
}

/// What the news said last.
#[derive(Default)]
struct Told {
    /// The phase, how many sentences a person should read, and whether its measurements are taken by nobody.
    seen: Option<(AttemptPhase, usize, bool)>,
    /// By the steady clock.
    beat: Option<Duration>,
}

/// Says what a controller acts on. A failure is tried again with the next heartbeat: nothing depends on it but how soon
/// somebody looks.
async fn tell_news(outbox: &Outbox, status: &Status, told: &mut Told) {
    let tell = async |what| matches!(outbox.within(TRY_SECS_MAX, outbox.dir.tell_news(what)).await, Some(Ok(())));
    let (seen, now) = ((status.phase, status.attention.len(), status.unmeasured), outbox.clock.mono());
    if told.seen != Some(seen) && tell(News::Phase(outbox.attempt)).await {
        told.seen = Some(seen);
    }
    let due = told.beat.is_none_or(|at| now.saturating_sub(at) + TICK_SLACK >= BEAT_IN_NEWS);
    if due && tell(News::Beat(outbox.attempt)).await {
        told.beat = Some(now);
    }
}

/// The newest status, once it is due: after a change, or a beat after the last write if the loop is still alive.
async fn due(inner: &Inner) -> (Status, u64) {
    loop {
        let wait = {
            let mut newest = inner.newest();
            let news = newest.update > *inner.written.borrow();
            let since = newest.written_at.map(|at| inner.outbox.clock.mono().saturating_sub(at));
            let beat = since.is_none_or(|since| since + TICK_SLACK >= inner.beat);
            if (newest.changed || (news && beat))
                && let Some(status) = newest.status.clone()
            {
                newest.changed = false;
                return (status, newest.update);
            }
            // Without news there is nothing to wait for but them: no timer.
            news.then(|| since.map_or(inner.beat, |since| inner.beat.saturating_sub(since)).max(APART))
        };
        let Some(wait) = wait else {
            inner.wake.notified().await;
            continue;
        };
        tokio::select! {
            biased;
            () = inner.wake.notified() => {}
            () = inner.outbox.clock.sleep(wait) => {}
        }
    }
}
