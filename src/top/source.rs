//! Where the view reads and acts, and how often it reads.

use std::sync::Arc;
use std::time::Duration;

use super::open_job::OpenJob;
use crate::app::Fault;
use crate::app::overview::overview::{Overview, OverviewReader};
use crate::wire::{Clock, Store, Workstation};

/// Between two looks at a folder. Longer is noticed.
const EVERY: Duration = Duration::from_secs(2);

/// The same for a bucket, where each look costs money.
const EVERY_AWAY: Duration = Duration::from_secs(10);

pub struct TopSource {
    pub store: Store,
    pub workstation: Workstation,
    pub clock: Clock,
    /// The configuration has errors, so no process is started with it.
    pub is_misread: bool,
    reader: OverviewReader,
}

impl TopSource {
    pub fn new(
        store: Store,
        workstation: Workstation,
        clock: Clock,
        is_misread: bool,
    ) -> TopSource {
        TopSource { store, workstation, clock, is_misread, reader: OverviewReader::default() }
    }

    pub fn every(&self) -> Duration {
        if self.store.is_folder() { EVERY } else { EVERY_AWAY }
    }

    /// # Errors
    /// Fails when the job root is unreachable.
    pub async fn overview(&self) -> Result<Arc<Overview>, Fault> {
        let now = self.clock.now();
        self.reader.read(&self.store, &self.workstation, now).await.map(Arc::new)
    }

    /// # Errors
    /// As `OpenJob::read`.
    pub async fn job(&self, job: &str, attempt: Option<u32>) -> Result<Arc<OpenJob>, Fault> {
        let now = self.clock.now();
        OpenJob::read(&self.store, &self.workstation, job, attempt, now).await.map(Arc::new)
    }
}
