//! The heartbeat: `status.json`, overwritten regularly and at each change, while the loop runs.
//!
//! At every tick the loop asks whether a status is wanted, and hands one in if so. Only new ones
//! are written. So an agent with a hung loop stops its heartbeats and loses its lease, although
//! this task still runs. A slow store never queues more than the newest status. Where reads cost
//! money, change markers (`jobdir::change_markers`) tell the controller what to read.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::retry_sender::{Outbox, RetryDelay, TRY_SECS_MAX, Task, chain};
use crate::instance::{Notice, Status};
use crate::job::{AttemptPhase, CheckpointNo, ExitStatus};
use crate::jobdir::{JobDirError, News, has_news, layout};

/// This write renews the lease: a lease of 30 minutes has room for 120, so many may be lost. At $5
/// for a million writes it costs 3 cents a day, beside a GPU at dollars an hour. Less often gives
/// users old numbers.
const BEAT_REMOTE: Duration = Duration::from_secs(15);

/// The same on a local disk, where a user may watch: numbers are at most this old, and changes
/// appear at once. Creating and renaming a file costs as much as a quarter of a sample.
const BEAT_LOCAL: Duration = Duration::from_secs(5);

/// The time between two beat markers, for a controller that cannot read ten thousand heartbeats.
/// Thirty fit in a lease. More often costs money; less often, a few lost ones look like silence.
const BEAT_IN_NEWS: Duration = Duration::from_secs(60);

/// A beat is due a little before its tick, or it would wait for the next. Ticks are a second apart.
const TICK_SLACK: Duration = Duration::from_millis(500);

/// The least time between two writes: a store accepts a few writes a second to one key.
const APART: Duration = Duration::from_secs(1);

const SEQUENCE: &str = "heartbeat.json";

/// Sequence numbers reserved with one disk write. Recording each number cost as much as the
/// heartbeat.
const SET_ASIDE: u64 = 100;

/// The sender. Cheap to clone; its task runs until the last clone is dropped.
#[derive(Clone)]
pub struct Heartbeat {
    inner: Arc<HeartbeatInner>,
    _task: Arc<Task>,
}

struct HeartbeatInner {
    outbox: Outbox,
    beat: Duration,
    /// Whether a controller may read change markers.
    tells: bool,
    newest: Mutex<NewestStatus>,
    wake: Notify,
    pace: RetryDelay,
    /// The number of the newest written update.
    written: watch::Sender<u64>,
}

#[derive(Default)]
struct NewestStatus {
    status: Option<Status>,
    handed_in_at: Option<Duration>,
    update: u64,
    /// The newest update has a change that users wait for.
    changed: bool,
    /// When the newest write was confirmed, by the monotonic clock.
    written_at: Option<Duration>,
    dated: Option<(Duration, Timestamp)>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct ReservedSequence {
    /// No higher number was ever used.
    sequence: u64,
}

/// Facts that a watching user should see at once when they change.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownFacts<'a> {
    pub phase: AttemptPhase,
    pub verdict: &'a str,
    pub exit: Option<ExitStatus>,
    pub notice: Option<&'a Notice>,
    pub starts: u32,
    pub held_until: Option<Timestamp>,
    pub attention: usize,
    pub last_checkpoint: Option<CheckpointNo>,
}

impl<'a> ShownFacts<'a> {
    fn of(status: &'a Status) -> Self {
        ShownFacts {
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
        let inner = Arc::new(HeartbeatInner {
            outbox,
            beat,
            tells,
            newest: Mutex::default(),
            wake: Notify::new(),
            pace: RetryDelay::default(),
            written,
        });
        let task = Task::spawn(run(Arc::clone(&inner)));
        Heartbeat { inner, _task: Arc::new(task) }
    }

    /// Whether the present facts need a status: the newest is old, or differs. Called at every
    /// tick.
    pub fn wants(&self, now: &ShownFacts<'_>) -> bool {
        let newest = self.inner.newest();
        let old = newest.handed_in_at.is_none_or(|at| {
            self.inner.outbox.clock.mono().saturating_sub(at) + TICK_SLACK >= self.inner.beat
        });
        old || newest.status.as_ref().is_none_or(|status| ShownFacts::of(status) != *now)
    }

    /// Hands in a status. `sequence` is set here.
    pub fn update(&self, status: Status) {
        let mut newest = self.inner.newest();
        let before = newest.status.as_ref();
        newest.changed |=
            before.is_none_or(|before| ShownFacts::of(before) != ShownFacts::of(&status));
        newest.status = Some(status);
        newest.handed_in_at = Some(self.inner.outbox.clock.mono());
        newest.update += 1;
        self.inner.wake.notify_one();
    }

    /// Writes the newest status now and waits for it. `false`: it took too long.
    pub async fn flush(&self, within: Duration) -> bool {
        let target = {
            let mut newest = self.inner.newest();
            newest.changed = true;
            newest.update
        };
        let mut written = self.inner.written.subscribe();
        self.inner.pace.hurry();
        self.inner.wake.notify_one();
        let done =
            self.inner.outbox.within(within, written.wait_for(|written| *written >= target)).await;
        self.inner.pace.relax();
        matches!(done, Some(Ok(_)))
    }

    /// A moment by the monotonic clock, and a store time that had passed by then: of this agent's
    /// first heartbeat. `None`: unknown yet, or the store is a folder, which uses this machine's
    /// clock.
    pub fn dated(&self) -> Option<(Duration, Timestamp)> {
        self.inner.newest().dated
    }

    /// Whether the store's time is known, or the store has no clock of its own.
    pub fn is_dated(&self) -> bool {
        self.dated().is_some() || self.inner.outbox.dir.store().is_folder()
    }

    /// When the store last accepted a heartbeat, by the monotonic clock.
    pub fn written_at(&self) -> Option<Duration> {
        self.inner.newest().written_at
    }
}

impl HeartbeatInner {
    fn newest(&self) -> MutexGuard<'_, NewestStatus> {
        self.newest
            .lock()
            .expect("no code panics while it holds the newest status: it is only moved")
    }
}

struct SequenceNumbers {
    last: u64,
    set_aside: u64,
    /// The lease decides who writes this key: once it holds our status, no newer writer appears.
    ours: bool,
}

impl SequenceNumbers {
    fn recalled(outbox: &Outbox) -> Self {
        let last = outbox.recall::<ReservedSequence>(SEQUENCE).unwrap_or_default().sequence;
        SequenceNumbers { last, set_aside: last, ours: false }
    }

    /// `None`: no answer.
    async fn write(
        &mut self,
        outbox: &Outbox,
        status: &mut Status,
    ) -> Option<Result<(), JobDirError>> {
        if !self.ours {
            // A full disk may have lost the reserved numbers, so read the number in the store
            // first.
            match outbox.within(TRY_SECS_MAX, outbox.dir.status(outbox.attempt)).await? {
                Ok(there) => self.last = self.last.max(there.map_or(0, |there| there.sequence)),
                Err(error) => return Some(Err(error)),
            }
        }
        self.last += 1;
        status.sequence = self.last;
        if self.last > self.set_aside {
            // Before the write: a number that was used on a lost reply is never used again.
            self.set_aside = self.last + SET_ASIDE;
            outbox.keep(SEQUENCE, &ReservedSequence { sequence: self.set_aside });
        }
        let written =
            outbox.within(TRY_SECS_MAX, outbox.dir.put_status(outbox.attempt, status, true)).await;
        self.ours |= matches!(written, Some(Ok(())));
        written
    }
}

async fn run(inner: Arc<HeartbeatInner>) {
    let outbox = &inner.outbox;
    let mut numbers = SequenceNumbers::recalled(outbox);
    let mut failures = 0;
    let mut told = MarkersWritten::default();
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
                    tracing::warn!(
                        "the heartbeat is not written and will be tried again: {problem}"
                    );
                }
                inner.newest().changed = true;
                // As often as the regular beat: after an outage longer than a lease, the sweeper
                // looks after a minute.
                inner.pace.wait_at_most(BEAT_REMOTE, &*outbox.clock, failures).await;
            }
        }
    }
}

/// Asks once in an agent's run; after a failure again with the next heartbeat.
async fn date(inner: &HeartbeatInner) {
    let outbox = &inner.outbox;
    if outbox.dir.store().is_folder() {
        return;
    }
    let key = layout::status(outbox.dir.job(), outbox.attempt);
    if let Some(Ok(Some(beat))) = outbox.within(TRY_SECS_MAX, outbox.dir.store().head(&key)).await {
        inner.newest().dated = Some((outbox.clock.mono(), beat.modified));
    }
}

#[derive(Default)]
struct MarkersWritten {
    /// The phase, the number of messages, and whether its measurements are lost.
    seen: Option<(AttemptPhase, usize, bool)>,
    /// By the monotonic clock.
    beat: Option<Duration>,
}

/// Writes the change markers. A failure is retried with the next heartbeat.
async fn tell_news(outbox: &Outbox, status: &Status, told: &mut MarkersWritten) {
    let tell = async |what| {
        matches!(outbox.within(TRY_SECS_MAX, outbox.dir.tell_news(what)).await, Some(Ok(())))
    };
    let (seen, now) =
        ((status.phase, status.attention.len(), status.unmeasured), outbox.clock.mono());
    if told.seen != Some(seen) && tell(News::Phase(outbox.attempt)).await {
        told.seen = Some(seen);
    }
    let due = told.beat.is_none_or(|at| now.saturating_sub(at) + TICK_SLACK >= BEAT_IN_NEWS);
    if due && tell(News::Beat(outbox.attempt)).await {
        told.beat = Some(now);
    }
}

/// Returns the newest status once it is due: after a change, or a beat after the last write.
async fn due(inner: &HeartbeatInner) -> (Status, u64) {
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
            // Without a new status, no timer is needed.
            news.then(|| {
                since.map_or(inner.beat, |since| inner.beat.saturating_sub(since)).max(APART)
            })
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
