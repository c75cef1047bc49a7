//! The common part of all senders: retries with backoff, for as long as the sender runs.
//!
//! ```text
//!   facts ──> sender (bounded buffer, local state file) ──> try ──> wait 1 s, 2 s ... 60 s ──> try
//! ```
//! A store that is down is a normal state. Only the drain waits for a sender, with a deadline. Not
//! here: what is sent (each sender knows its own), or a panic on a disk or store error.

use std::error::Error;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::job::AttemptNo;
use crate::jobdir::JobDir;
pub(crate) use crate::ports::chain;
use crate::ports::{Clock, Files};

/// The first wait after a failure. Shorter overloads a store that restarts; longer delays after a
/// single lost reply.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait between two tries. Longer leaves a recovered store unnoticed. Shorter lets ten
/// thousand agents keep a weak store down.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The longest wait during a drain, when the machine may have only seconds.
const WAIT_MAX_HURRIED: Duration = Duration::from_secs(2);

/// The timeout of one small write: a hung connection must not use up an interruption notice.
pub(crate) const TRY_SECS_MAX: Duration = Duration::from_secs(20);

/// A file of lines restarts beyond this size: some minutes of one line a second, read once after a
/// crash.
const LINES_BYTES_MAX: usize = 64 * 1024;

/// The connections of one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    pub dir: JobDir,
    pub attempt: AttemptNo,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    /// The agent's own folder for this attempt, on a disk that survives a crash of the agent.
    pub state: PathBuf,
}

impl Outbox {
    /// Reads a kept record. One that cannot be read counts as none, since state only saves work.
    pub(crate) fn recall<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.state.join(name);
        match self.files.read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes?)
                .inspect_err(|error| tracing::warn!("{}: {error}", path.display()))
                .ok(),
            Err(error) => {
                tracing::warn!("cannot read {}: {error}", path.display());
                None
            }
        }
    }

    /// Keeps a small record. A full disk only costs repeated work after a crash, so an error is
    /// just logged.
    pub(crate) fn keep<T: Serialize>(&self, name: &str, record: &T) {
        if let Err(error) = self.try_keep(name, record) {
            tracing::warn!("cannot write {}: {error}", self.state.join(name).display());
        }
    }

    /// The same, for a record that must be kept before the next action.
    pub(crate) fn try_keep<T: Serialize>(&self, name: &str, record: &T) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(record)
            .expect("state holds only strings, finite numbers and maps with string keys");
        self.files.replace(&self.state.join(name), &bytes)
    }

    /// The newest record that [`Outbox::keep_line`] left.
    pub(crate) fn recall_line<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.state.join(name);
        let bytes = self
            .files
            .read(&path)
            .inspect_err(|error| tracing::warn!("cannot read {}: {error}", path.display()))
            .ok()??;
        bytes.split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok())
    }

    /// Keeps a small record that changes every second: appends a line to a file that restarts now
    /// and then, a tenth of the cost of a new file. `bytes`: the known length of the file.
    pub(crate) fn keep_line<T: Serialize>(
        &self,
        name: &str,
        record: &T,
        bytes: &mut Option<usize>,
    ) {
        let path = self.state.join(name);
        let mut line = serde_json::to_vec(record)
            .expect("state holds only strings, finite numbers and maps with string keys");
        line.push(b'\n');
        let before = bytes.filter(|before| before + line.len() <= LINES_BYTES_MAX);
        let kept = match before {
            Some(_) => self.files.append(&path, &line),
            None => self.files.replace(&path, &line),
        };
        // An incomplete line would corrupt the next one: after a failure and in a new process, the
        // file restarts.
        *bytes = kept.is_ok().then(|| before.unwrap_or(0) + line.len());
        if let Err(error) = kept {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }

    /// The result of a future. `None`: it takes longer than `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        within(&*self.clock, limit, future).await
    }

    /// Retries until it works. Returns the number of failures before that.
    pub(crate) async fn persist<'a, E: Error>(
        &self,
        what: &str,
        pace: &RetryDelay,
        attempt: impl Fn() -> BoxFuture<'a, Result<(), E>>,
    ) -> u32 {
        let mut failures = 0;
        loop {
            let problem = match self.within(TRY_SECS_MAX, attempt()).await {
                Some(Ok(())) => break,
                Some(Err(error)) => chain(&error),
                None => format!("no answer within {} s", TRY_SECS_MAX.as_secs()),
            };
            failures += 1;
            if failures == 1 {
                tracing::warn!("{what} is not sent and will be tried again: {problem}");
            }
            pace.wait(&*self.clock, failures).await;
        }
        if failures > 0 {
            tracing::info!("{what} is sent, after {failures} failed tries");
        }
        failures
    }
}

/// How fast a sender retries, and whether a caller waits for it.
#[derive(Default)]
pub(crate) struct RetryDelay {
    hurried: AtomicU32,
    kick: Notify,
    /// Since when every try failed, by the monotonic clock.
    failing: Mutex<Option<Duration>>,
}

impl RetryDelay {
    /// A caller waits: try now, and then often.
    pub(crate) fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        self.kick.notify_waiters();
    }

    /// One caller waits no longer.
    pub(crate) fn relax(&self) {
        self.hurried.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn came(&self) {
        *self.failing.lock().expect("it is only read and set") = None;
    }

    /// How long every try has failed.
    pub(crate) fn failing_for(&self, clock: &dyn Clock) -> Duration {
        let since = *self.failing.lock().expect("it is only read and set");
        since.map_or(Duration::ZERO, |since| clock.mono().saturating_sub(since))
    }

    /// Waits between two writes, unless a caller waits.
    pub(crate) async fn rest(&self, clock: &dyn Clock, time: Duration) {
        if self.hurried() {
            return;
        }
        tokio::select! {
            biased;
            () = clock.sleep(time) => {}
            () = self.kick.notified() => {}
        }
    }

    /// Waits before the next try, after this many failures in a row.
    pub(crate) async fn wait(&self, clock: &dyn Clock, failures: u32) {
        self.wait_at_most(WAIT_MAX, clock, failures).await;
    }

    pub(crate) async fn wait_at_most(&self, most: Duration, clock: &dyn Clock, failures: u32) {
        self.failing.lock().expect("it is only read and set").get_or_insert(clock.mono());
        let doubled = WAIT_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let time = if self.hurried() { doubled.min(WAIT_MAX_HURRIED) } else { doubled.min(most) };
        tokio::select! {
            biased;
            () = clock.sleep(time) => {}
            () = self.kick.notified() => {}
        }
    }
}

/// A task that ends with its last handle.
pub(crate) struct Task(AbortHandle);

impl Task {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Task(tokio::spawn(future).abort_handle())
    }

    pub(crate) fn end(&self) {
        self.0.abort();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        // Start no timer for a future that is ready at once.
        () = async { clock.sleep(limit).await } => None,
    }
}
