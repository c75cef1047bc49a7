//! The events of an attempt: numbered, kept in a local file first and then sent in batches.
//!
//! ```text
//!   record ──> events.jsonl (local) ──> [1 | 2 3 4 | 5 ...] ──> attempts/<n>/events/<first>.jsonl
//! ```
//! The local file keeps numbers and unsent events over a crash of the agent. The range of a batch
//! is recorded before it is sent: after a crash or a lost reply, the same bytes go under the same
//! key.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::retry_sender::{Outbox, RetryDelay, Task};
use crate::jobdir::{Event, EventDetail};

/// Unsent events kept in memory. A day's job makes some hundreds. A verdict that changes every
/// second fills this in half an hour. Smaller would lose reasons; larger costs memory (1,000 events
/// are about 0.5 MB).
const UNSENT_MAX: usize = 2000;

/// Extra capacity beyond [`UNSENT_MAX`] for important events: phases, ends, checkpoints, losses.
const UNSENT_RESERVE: usize = 200;

/// Events in one object: large enough to send a backlog at once, small enough for one small write.
const BATCH_MAX: usize = 200;

/// How long an ordinary event may wait for others. Users see it that much later; each batch is one
/// write.
const GATHER: Duration = Duration::from_secs(2);

/// The local file is restarted beyond this size, once all of it is sent.
const FILE_BYTES_MAX: u64 = 256 * 1024;

const EVENTS: &str = "events.jsonl";
const BORDERS: &str = "events.borders.json";

/// The sender. Cheap to clone; its task runs until the last clone is dropped.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<JournalInner>,
    _task: Arc<Task>,
}

struct JournalInner {
    outbox: Outbox,
    book: Mutex<Book>,
    /// Something was recorded, or a caller waits.
    wake: Notify,
    pace: RetryDelay,
    acked: watch::Sender<u64>,
}

struct Book {
    next: u64,
    unsent: VecDeque<Event>,
    borders: Borders,
    /// Events that were dropped for lack of space, not yet reported.
    dropped: u64,
    file_bytes: u64,
    disk_failed: bool,
}

/// Everything up to `acked` is in the store. `acked + 1 ..= sending` is being sent as one batch.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Borders {
    acked: u64,
    sending: u64,
}

impl Journal {
    /// Continues from the state of an earlier agent, and starts the sender.
    pub fn start(outbox: Outbox) -> Self {
        let book = Book::open(&outbox);
        let (acked, _) = watch::channel(book.borders.acked);
        let inner = Arc::new(JournalInner {
            outbox,
            book: Mutex::new(book),
            wake: Notify::new(),
            pace: RetryDelay::default(),
            acked,
        });
        let task = Task::spawn(run(Arc::clone(&inner)));
        Journal { inner, _task: Arc::new(task) }
    }

    /// Numbers and keeps an event. `None`: there was no space, which is reported later.
    pub fn record(&self, what: EventDetail) -> Option<u64> {
        let important = important(&what);
        let seq = self.inner.book().add(&self.inner.outbox, what, important);
        self.inner.wake.notify_one();
        seq
    }

    /// Waits until everything recorded so far is in the store. `false`: it took too long.
    pub async fn flush(&self, within: Duration) -> bool {
        let target = self.inner.book().next - 1;
        let mut acked = self.inner.acked.subscribe();
        self.inner.pace.hurry();
        self.inner.wake.notify_one();
        let done = self.inner.outbox.within(within, acked.wait_for(|acked| *acked >= target)).await;
        self.inner.pace.relax();
        matches!(done, Some(Ok(_)))
    }

    pub fn unsent(&self) -> usize {
        self.inner.book().unsent.len()
    }
}

/// Events that users wait for. A changed verdict may wait two seconds.
fn important(what: &EventDetail) -> bool {
    !matches!(what, EventDetail::Verdict { .. } | EventDetail::Agent { .. } | EventDetail::Unknown)
}

async fn run(inner: Arc<JournalInner>) {
    loop {
        let batch = loop {
            if let Some(batch) = inner.book().batch() {
                break batch;
            }
            inner.wake.notified().await;
            inner.gather().await;
            inner.book().close_batch(&inner.outbox);
        };
        let outbox = &inner.outbox;
        outbox
            .persist("a batch of events", &inner.pace, || {
                outbox.dir.put_events(outbox.attempt, &batch).boxed()
            })
            .await;
        let acked = inner.book().acknowledge(outbox);
        inner.acked.send_replace(acked);
    }
}

impl JournalInner {
    /// Waits for more events, until an important one comes, a caller waits, or the time is over.
    async fn gather(&self) {
        let clock = &self.outbox.clock;
        let end = clock.mono() + GATHER;
        while !self.pace.hurried() && !self.book().unsent.iter().any(|event| important(&event.what))
        {
            let left = end.saturating_sub(clock.mono());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = clock.sleep(left) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect(
            "no code panics while it holds the book: it does no more than move events and call Files",
        )
    }
}

impl Book {
    fn open(outbox: &Outbox) -> Self {
        let borders: Borders = outbox.recall(BORDERS).unwrap_or_default();
        let path = outbox.state.join(EVENTS);
        let bytes = outbox.files.read(&path).ok().flatten().unwrap_or_default();
        let events: Vec<Event> = bytes
            .split(|byte| *byte == b'\n')
            .map_while(|line| serde_json::from_slice(line).ok())
            .collect();
        let last =
            events.last().map_or(0, |event| event.seq).max(borders.acked).max(borders.sending);
        let unsent: VecDeque<Event> =
            events.into_iter().filter(|event| event.seq > borders.acked).collect();
        let mut book =
            Book { next: last + 1, unsent, borders, dropped: 0, file_bytes: 0, disk_failed: false };
        // Also cuts off a line that a crash left incomplete.
        book.rewrite(outbox);
        book
    }

    fn add(&mut self, outbox: &Outbox, what: EventDetail, important: bool) -> Option<u64> {
        let room = UNSENT_MAX + if important { UNSENT_RESERVE } else { 0 };
        if self.unsent.len() >= room {
            self.dropped += 1;
            return None;
        }
        let seq = self.next;
        let event = Event { seq, at: outbox.clock.now(), what };
        let line = line(&event);
        match outbox.files.append(&outbox.state.join(EVENTS), &line) {
            Ok(()) => self.file_bytes += line.len() as u64,
            Err(error) if !self.disk_failed => {
                // They still go to the store. Only a crash of the agent before that would lose
                // them.
                tracing::warn!("events are no longer kept on disk: {error}");
                self.disk_failed = true;
            }
            Err(_) => {}
        }
        self.unsent.push_back(event);
        self.next += 1;
        Some(seq)
    }

    /// The batch whose range is set, if there is one.
    fn batch(&self) -> Option<Vec<Event>> {
        let Borders { acked, sending } = self.borders;
        (sending > acked)
            .then(|| self.unsent.iter().take_while(|event| event.seq <= sending).cloned().collect())
    }

    fn close_batch(&mut self, outbox: &Outbox) {
        if let Some(last) = self.unsent.iter().take(BATCH_MAX).next_back() {
            self.borders.sending = last.seq;
            outbox.keep(BORDERS, &self.borders);
        }
    }

    /// The batch is in the store. Returns the last number in the store.
    fn acknowledge(&mut self, outbox: &Outbox) -> u64 {
        self.borders.acked = self.borders.sending;
        while self.unsent.front().is_some_and(|event| event.seq <= self.borders.acked) {
            self.unsent.pop_front();
        }
        if self.dropped > 0 {
            let text = format!(
                "{} events were not recorded: the store did not take them in time",
                self.dropped
            );
            self.dropped = 0;
            self.add(outbox, EventDetail::Loss { text }, true);
        }
        // The rest is sent as the next batch at once.
        self.close_batch(outbox);
        outbox.keep(BORDERS, &self.borders);
        if self.unsent.is_empty() && self.file_bytes > FILE_BYTES_MAX {
            self.rewrite(outbox);
        }
        self.borders.acked
    }

    fn rewrite(&mut self, outbox: &Outbox) {
        let body: Vec<u8> = self.unsent.iter().flat_map(line).collect();
        match outbox.files.replace(&outbox.state.join(EVENTS), &body) {
            Ok(()) => self.file_bytes = body.len() as u64,
            Err(error) => tracing::warn!("cannot tidy the local events: {error}"),
        }
    }
}

fn line(event: &Event) -> Vec<u8> {
    let mut line = serde_json::to_vec(event)
        .expect("events hold only strings, finite numbers and maps with string keys");
    line.push(b'\n');
    line
}
