//! Measurements for `lamp explain` and `lamp replay`: a row for each sample, a compressed batch a
//! minute.
//!
//! Bounded: while the store is down, the oldest minutes are dropped first and counted, since the
//! newest explain the end. A crash of the agent loses at most the current minute and waiting
//! batches. Batch numbers are never used twice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::batch::Packer;
use super::retry_sender::{Outbox, RetryDelay, Task};
use crate::instance::Rates;
use crate::jobdir::layout;

/// One object a minute. Shorter costs more writes; longer loses more in a crash and shows `lamp
/// explain` less.
const BATCH: Duration = Duration::from_secs(60);

/// Uncompressed rows of a batch: a minute is about 25 KB. With faster rows, a batch is closed
/// early.
const ROWS_BYTES_MAX: usize = 256 * 1024;

/// Compressed batches that wait for the store: over three hours, in an agent that may use 12 MiB.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Rows repeat their names: even a fast level reduces them to a tenth, in less than a millisecond a
/// minute.
const ZSTD_LEVEL: i32 = 3;

const NUMBER: &str = "samples.json";

/// The sender. Cheap to clone; its task runs until the last clone is dropped.
#[derive(Clone)]
pub struct Samples {
    inner: Arc<SamplesInner>,
    _task: Arc<Task>,
}

struct SamplesInner {
    outbox: Outbox,
    queue: Mutex<Queue>,
    wake: Notify,
    pace: RetryDelay,
    sent: watch::Sender<u64>,
}

struct Queue {
    rows: Vec<u8>,
    packer: Packer,
    count: u64,
    begun: Duration,
    next: u64,
    waiting: VecDeque<Batch>,
    dropped: u64,
}

#[derive(Clone)]
struct Batch {
    number: u64,
    rows: u64,
    body: Bytes,
}

#[derive(Serialize, Deserialize)]
struct NextBatch {
    next: u64,
}

impl Samples {
    pub fn start(outbox: Outbox) -> Self {
        let next = outbox.recall::<NextBatch>(NUMBER).map_or(1, |state| state.next);
        let queue = Queue {
            rows: Vec::new(),
            packer: Packer::new(ZSTD_LEVEL),
            count: 0,
            begun: Duration::ZERO,
            next,
            waiting: VecDeque::new(),
            dropped: 0,
        };
        let (sent, _) = watch::channel(next - 1);
        let inner = Arc::new(SamplesInner {
            outbox,
            queue: Mutex::new(queue),
            wake: Notify::new(),
            pace: RetryDelay::default(),
            sent,
        });
        let task = Task::spawn(run(Arc::clone(&inner)));
        Samples { inner, _task: Arc::new(task) }
    }

    /// Adds a row. Never waits.
    pub fn push(&self, rates: &Rates) {
        let now = self.inner.outbox.clock.mono();
        let mut queue = self.inner.queue();
        if queue.count == 0 {
            queue.begun = now;
        }
        serde_json::to_writer(&mut queue.rows, rates).expect("rates hold only strings and numbers");
        queue.rows.push(b'\n');
        queue.count += 1;
        if now.saturating_sub(queue.begun) >= BATCH || queue.rows.len() >= ROWS_BYTES_MAX {
            queue.close(&self.inner.outbox);
            self.inner.wake.notify_one();
        }
    }

    /// Ships the rest. Returns losses as sentences for the outcome.
    pub async fn finish(&self, within: Duration) -> Vec<String> {
        let target = {
            let mut queue = self.inner.queue();
            queue.close(&self.inner.outbox);
            queue.next - 1
        };
        self.inner.pace.hurry();
        self.inner.wake.notify_one();
        let mut sent = self.inner.sent.subscribe();
        let _ = self.inner.outbox.within(within, sent.wait_for(|sent| *sent >= target)).await;
        self.inner.pace.relax();
        let queue = self.inner.queue();
        let lost = queue.dropped + queue.waiting.iter().map(|batch| batch.rows).sum::<u64>();
        if lost == 0 {
            Vec::new()
        } else {
            vec![format!(
                "{lost} rows of measurements were not kept: the store did not take them in time"
            )]
        }
    }
}

impl SamplesInner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds the queue: rows always serialise")
    }
}

impl Queue {
    fn close(&mut self, outbox: &Outbox) {
        if self.count == 0 {
            return;
        }
        let rows = std::mem::take(&mut self.count);
        let compressed = self.packer.pack(&self.rows);
        // Keeps the capacity for the next batch.
        self.rows.clear();
        let Ok(body) =
            compressed.inspect_err(|error| tracing::warn!("cannot compress samples: {error}"))
        else {
            self.dropped += rows;
            return;
        };
        self.waiting.push_back(Batch { number: self.next, rows, body: Bytes::from(body) });
        self.next += 1;
        // Before the send: a used number is never used again.
        outbox.keep(NUMBER, &NextBatch { next: self.next });
        let bytes =
            |waiting: &VecDeque<Batch>| waiting.iter().map(|batch| batch.body.len()).sum::<usize>();
        // The front is being sent; the next oldest is dropped.
        while bytes(&self.waiting) > WAITING_BYTES_MAX && self.waiting.len() > 2 {
            self.dropped += self.waiting.remove(1).map_or(0, |batch| batch.rows);
        }
    }
}

async fn run(inner: Arc<SamplesInner>) {
    let outbox = &inner.outbox;
    loop {
        let front = inner.queue().waiting.front().cloned();
        let Some(batch) = front else {
            inner.wake.notified().await;
            continue;
        };
        let key = layout::sample_batch(outbox.dir.job(), outbox.attempt, batch.number);
        outbox
            .persist("a batch of samples", &inner.pace, || {
                outbox.dir.store().put_durable(&key, batch.body.clone()).boxed()
            })
            .await;
        inner.queue().waiting.pop_front();
        inner.sent.send_replace(batch.number);
    }
}
