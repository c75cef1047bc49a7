//! Where the view reads and acts, and how often it reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::open_job::OpenJob;
use crate::app::Fault;
use crate::app::analysis::sample_cache::SampleCache;
use crate::app::job_act::ActPlace;
use crate::app::overview::machine_watch::CloudAsking;
use crate::app::overview::overview::{JobRow, Overview, OverviewReader, look_interval};
use crate::app::overview::switch_proof::SwitchProofs;
use crate::app::overview::usage_trend::{UsageTrend, UsageTrends};

pub struct TopSource {
    pub place: ActPlace,
    reader: OverviewReader,
    trends: UsageTrends,
    samples: SampleCache,
    proofs: SwitchProofs,
}

impl TopSource {
    pub fn new(place: ActPlace, asking: CloudAsking) -> TopSource {
        TopSource {
            place,
            reader: OverviewReader::new(asking),
            trends: UsageTrends::default(),
            samples: SampleCache::default(),
            proofs: SwitchProofs::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.place.clock.now()
    }

    pub fn every(&self) -> Duration {
        look_interval(&self.place.store)
    }

    /// # Errors
    /// Fails when the job root is unreachable.
    pub async fn overview(&self) -> Result<Arc<Overview>, Fault> {
        let ActPlace { store, workstation, .. } = &self.place;
        self.reader.read(store, workstation, self.now()).await.map(Arc::new)
    }

    /// The last hour of each job that has not ended.
    pub async fn traces(&self, overview: &Overview) -> BTreeMap<String, Arc<UsageTrend>> {
        let ActPlace { store, clock, .. } = &self.place;
        let open = overview.jobs.iter().filter(|row| !row.summary.state.is_final());
        let rows: Vec<&JobRow> = open.collect();
        let found = self.trends.of(&rows, store, clock).await;
        let known = rows.iter().zip(found);
        known.filter_map(|(row, trend)| Some((row.summary.job.clone(), trend?))).collect()
    }

    /// # Errors
    /// As `OpenJob::read`.
    pub async fn job(&self, job: &str, attempt: Option<u32>) -> Result<Arc<OpenJob>, Fault> {
        let ActPlace { store, workstation, clock, .. } = &self.place;
        let caches = (&self.samples, &self.trends, &self.proofs);
        let read = OpenJob::read(store, workstation, caches, job, attempt, clock);
        read.await.map(Arc::new)
    }
}
