//! What every sender needs, and how each of them tries: for as long as it lives, politely, and never in anybody's way.
//!
//! ```text
//!   facts ──> sender (bounded buffer, state in a local file) ──> try ──> wait 1 s, 2 s, ... 60 s ──> try ──> ...
//! ```
//! A store that is down is an ordinary state. Nobody waits for a sender except the drain, and that with a deadline.
//! What must never live here: what is sent (each sender knows its own), a panic on what a disk or a store may do.

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

/// The first wait after a failure: shorter hammers a store that is restarting, longer delays what a single lost reply
/// held up.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait between two tries. Longer, and a store that is back goes unnoticed while the machine bills; shorter,
/// and ten thousand agents keep a struggling store down.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// While somebody waits in a drain: the machine may have seconds to live, so tries follow each other at this distance.
const WAIT_MAX_HURRIED: Duration = Duration::from_secs(2);

/// How long one small write may take before it is given up and tried again: a hanging connection must not outlive an
/// interruption notice.
pub(crate) const TRY_SECS_MAX: Duration = Duration::from_secs(20);

/// A file of lines begins anew beyond this: some minutes of one line a second, read once after a crash.
const LINES_BYTES_MAX: usize = 64 * 1024;

/// The wires of one attempt. Cheap to clone.
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
    /// What was kept under this name; what cannot be read counts as nothing, since state only saves work.
    pub(crate) fn recall<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.state.join(name);
        match self.files.read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes?).inspect_err(|error| tracing::warn!("{}: {error}", path.display())).ok(),
            Err(error) => {
                tracing::warn!("cannot read {}: {error}", path.display());
                None
            }
        }
    }

    /// Keeps a small record. A full disk costs at most repeated work after a crash, so it is logged and nothing more.
    pub(crate) fn keep<T: Serialize>(&self, name: &str, record: &T) {
        if let Err(error) = self.try_keep(name, record) {
            tracing::warn!("cannot write {}: {error}", self.state.join(name).display());
        }
    }

    /// The same, for what must be kept before something is done.
    pub(crate) fn try_keep<T: Serialize>(&self, name: &str, record: &T) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(record).expect("state holds only strings, finite numbers and maps with string keys");
        self.files.replace(&self.state.join(name), &bytes)
    }

    /// The newest record that [`Outbox::keep_line`] left.
    pub(crate) fn recall_line<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.state.join(name);
        let bytes = self.files.read(&path).inspect_err(|error| tracing::warn!("cannot read {}: {error}", path.display())).ok()??;
        bytes.split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok())
    }

    /// Keeps a small record that changes every second: as one more line of a file that begins anew now and then, since a
    /// file that is made and renamed costs the file system ten times as much. `bytes` is how long the file is, as far as
    /// this process knows.
    pub(crate) fn keep_line<T: Serialize>(&self, name: &str, record: &T, bytes: &mut Option<usize>) {
        let path = self.state.join(name);
        let mut line = serde_json::to_vec(record).expect("state holds only strings, finite numbers and maps with string keys");
        line.push(b'\n');
        let before = bytes.filter(|before| before + line.len() <= LINES_BYTES_MAX);
        let kept = match before {
            Some(_) => self.files.append(&path, &line),
            None => self.files.replace(&path, &line),
        };
        // A line that was cut short would spoil the next: after a failure, and in a new process, the file begins anew.
        *bytes = kept.is_ok().then(|| before.unwrap_or(0) + line.len());
        if let Err(error) = kept {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }

    /// The result of a future, or `None` when it takes longer than `limit`.
    pub(crate) async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        within(&*self.clock, limit, future).await
    }

    /// Tries until it works. Gives the number of failures before that.
    pub(crate) async fn persist<'a, E: Error>(&self, what: &str, pace: &Pace, attempt: impl Fn() -> BoxFuture<'a, Result<(), E>>) -> u32 {
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

/// How fast a sender tries again, and whether somebody waits for it.
#[derive(Default)]
pub(crate) struct Pace {
    /// How many wait.
    hurried: AtomicU32,
    kick: Notify,
    /// Since when nothing has come through, by the steady clock.
    failing: Mutex<Option<Duration>>,
}

impl Pace {
    /// Somebody waits: try now, and then often.
    pub(crate) fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        self.kick.notify_waiters();
    }

    /// One of them waits no longer.
    pub(crate) fn relax(&self) {
        self.hurried.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// Something came through.
    pub(crate) fn came(&self) {
        *self.failing.lock().expect("it is only read and set") = None;
    }

    /// For how long every try has failed.
    pub(crate) fn failing_for(&self, clock: &dyn Clock) -> Duration {
        let since = *self.failing.lock().expect("it is only read and set");
        since.map_or(Duration::ZERO, |since| clock.mono().saturating_sub(since))
    }

    /// Keeps a distance between two writes, unless somebody waits.
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

    /// Waits before the next try, after so many failures in a row.
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

pub(crate) async fn within<T>(clock: &dyn Clock, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        // Nobody sets a clock for what is answered at once.
        () = async { clock.sleep(limit).await } => None,
    }
}
