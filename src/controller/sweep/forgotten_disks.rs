//! Tells of forgotten disks: the daemon does it when it sweeps, once a week for each disk.
//!
//! The only extra question to the clouds is the price of such a disk, before the message.
//! `policy::lifecycle::forgotten_disk` decides which disk is forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::warn;

use super::sweeper::OrphanSweeper;
use crate::controller::job_memory::JobMemory;
use crate::controller::notify::job_events::JobEvent;
use crate::controller::notify::notifier::JobNotifier;
use crate::instance::{InstanceView, MachineRef};
use crate::jobdir::{JobDir, layout};
use crate::market::Usd;
use crate::policy::lifecycle::forgotten_disk::{forgotten, is_undated};
use crate::ports::{Clock, StoreError, chain};

/// Between two messages about a disk: as long as it is kept before the first.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// The messages of this daemon: the machine, and the week since its stop.
pub(crate) type KeptTold = BTreeSet<(MachineRef, u64)>;

impl OrphanSweeper {
    /// Tells of the stopped machines among these that seem to be forgotten.
    pub(crate) async fn tell_kept(
        &self,
        notifier: &JobNotifier,
        told: &mut KeptTold,
        views: &[InstanceView],
    ) {
        for view in views {
            let Ok(heard) = self.heard_last(view).await else { continue };
            let Some(stood) = forgotten(view, heard, self.clock.now()) else { continue };
            let week = stood.as_secs() / WEEK.as_secs();
            if !told.contains(&(view.machine(), week))
                && self.tell_of(notifier, view, stood, week).await
            {
                told.insert((view.machine(), week));
            }
        }
    }

    /// The last heartbeat of a machine that may be forgotten, if the cloud does not date its stop.
    /// In other cases it is not read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn heard_last(
        &self,
        view: &InstanceView,
    ) -> Result<Option<Timestamp>, StoreError> {
        if !is_undated(view, self.clock.now()) {
            return Ok(None);
        }
        let heard = self.store.head(&layout::status(&view.tags.job, view.tags.attempt)).await?;
        Ok(heard.map(|meta| meta.modified))
    }

    /// Whether the message was sent, by this controller or another.
    async fn tell_of(
        &self,
        notifier: &JobNotifier,
        view: &InstanceView,
        stood: Duration,
        week: u64,
    ) -> bool {
        let (job, machine) = (&view.tags.job, view.machine());
        let cost = self
            .disk_cost(view)
            .await
            .map_or_else(|| "bills".to_owned(), |cost| format!("costs {cost} a month"));
        let days = stood.as_secs() / 86_400;
        let text = format!(
            "{machine} in {} has been stopped for {days} days, and its disk {cost}: `lamp cancel {job}` gives it up, `lamp start {job}` goes on with it",
            machine.region
        );
        warn!(%job, "{text}");
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        // For a job of another job root there is only the log.
        match dir.spec().await {
            Ok(Some(spec)) => {
                let topic = format!("kept {machine} week {week}");
                let event = JobEvent { topic, ..JobEvent::attention(text) };
                notifier.tell_as(&dir, &spec, &mut JobMemory::default(), &event).await
            }
            Ok(None) => true,
            Err(error) => {
                warn!(%job, "nobody could be told: {}", chain(&error));
                false
            }
        }
    }

    /// The price of a kept machine's disks for a month; `None`: the cloud does not say.
    async fn disk_cost(&self, view: &InstanceView) -> Option<Usd> {
        let asked = self.clouds.get(view.cloud).ok()?;
        let residue = asked
            .residue_of(
                &self.clouds.owner,
                &view.region,
                &view.tags.job,
                &BTreeSet::from([view.id.clone()]),
            )
            .await
            .ok()?;
        let kept: Vec<Usd> = residue
            .iter()
            .filter(|left| left.kept && left.job.as_ref() == Some(&view.tags.job))
            .map(|left| left.usd_per_month)
            .collect();
        (!kept.is_empty()).then(|| kept.into_iter().sum())
    }
}
