//! What the agent sends away and what warns it, with real files, a store that fails, and virtual
//! time.

#![expect(
    clippy::disallowed_methods,
    reason = "tests play the workload: they write the files that the agent reads"
)]

mod calls;
mod chaos;
mod checkpoint;
mod clocks;
mod gang;
mod hardware;
mod heartbeat;
mod journal;
mod log;
mod machine;
mod marks;
mod metrics;
mod role;
mod samples;
mod shutdown;
mod stacks;
mod startup;
mod world;

use std::sync::Arc;
use std::time::Duration;

use lamp_test_support::faulty_store::FaultyStore;
use lamp_test_support::inline_files::InlineFiles;
use lamp_test_support::virtual_clock::VirtualClock;
use lamplighter::agent::report::retry_sender::Outbox;
use lamplighter::job::AttemptNo;
use lamplighter::jobdir::{Event, EventDetail, JobDir};
use tempfile::TempDir;

/// One attempt's surroundings.
struct Rig {
    clock: Arc<VirtualClock>,
    store: Arc<FaultyStore>,
    files: Arc<InlineFiles>,
    folder: TempDir,
}

impl Rig {
    fn new(clock: Arc<VirtualClock>) -> Self {
        let store = FaultyStore::new(clock.clone());
        Rig { clock, store, files: Arc::default(), folder: folder() }
    }

    fn dir(&self) -> JobDir {
        JobDir::new(self.store.clone(), "digits-222222".parse().expect("a job id"))
    }

    fn outbox(&self) -> Outbox {
        self.outbox_of(AttemptNo::FIRST)
    }

    /// Of another attempt, on another machine: with a state folder of its own.
    fn outbox_of(&self, attempt: AttemptNo) -> Outbox {
        let state = self.folder.path().join(format!("state-{attempt}"));
        Outbox {
            dir: self.dir(),
            attempt,
            clock: self.clock.clone(),
            files: self.files.clone(),
            state,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    async fn events(&self) -> Vec<Event> {
        self.store.mend();
        self.dir().events(AttemptNo::FIRST).await.expect("events that can be read")
    }

    /// The sentences that a person was told.
    async fn attention(&self) -> Vec<String> {
        let text = |event: Event| match event.what {
            EventDetail::Attention { text } | EventDetail::Loss { text } => Some(text),
            _ => None,
        };
        self.events().await.into_iter().filter_map(text).collect()
    }
}

/// In memory where there is such a file system: thousands of short attempts wait for no disk.
fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a temporary folder")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
