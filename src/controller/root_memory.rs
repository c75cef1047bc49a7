//! A daemon's memory of its job root: the open jobs, and what is known of finished ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::job_memory::JobMemory;
use crate::instance::InstanceView;
use crate::job::{JobId, LeavingFate, Receipt};
use crate::jobdir::JobNews;

/// Resting jobs that are read in each tick, in turn, in case news are lost. Up to this many open
/// jobs, each is read at every tick; of ten thousand, each every three hours. More costs money:
/// seven reads each.
pub const UNASKED: usize = 16;

/// A daemon's memory of its job root.
#[derive(Default)]
pub struct RootMemory {
    pub memories: BTreeMap<JobId, Box<JobMemory>>,
    /// Finished jobs are read once. The value: whether there is a receipt. Other jobs are left
    /// alone.
    pub finished: BTreeMap<JobId, bool>,
    /// The receipts of jobs that kept something: another process may end it.
    pub kept: BTreeMap<JobId, Box<Receipt>>,
    /// Jobs found only by the listing of names.
    pub unannounced: BTreeSet<JobId>,
    pub named_at: Option<Duration>,
    /// The last resting job that was read in turn.
    turn: Option<JobId>,
    /// Deleting news is not allowed here; logged once.
    pub keeps_news: bool,
}

impl RootMemory {
    /// Whether the last look at any job met trouble.
    pub fn has_trouble(&self) -> bool {
        self.memories.values().any(|memory| memory.trouble.is_some())
    }

    /// Whether this daemon judges the machine at every tick, as that attempt is open and driven
    /// here.
    pub fn drives(&self, view: &InstanceView) -> bool {
        let attempt = self
            .memories
            .get(&view.tags.job)
            .and_then(|memory| memory.attempts.get(&view.tags.attempt));
        let under_way = attempt
            .filter(|attempt| attempt.settled.is_none())
            .and_then(|attempt| attempt.plan.as_ref());
        under_way.is_some_and(|plan| view.client_token.as_ref() == Some(&plan.client_token))
    }

    /// Notes a job that is over.
    pub fn finish(&mut self, job: JobId, receipt: Box<Receipt>) {
        if receipt.left.iter().any(|left| left.fate == LeavingFate::Kept) {
            self.kept.insert(job.clone(), receipt);
        }
        self.finished.insert(job, true);
    }

    /// The resting jobs to read in this tick.
    pub fn unasked(
        &mut self,
        open: &BTreeSet<JobId>,
        news: &BTreeMap<JobId, JobNews>,
    ) -> BTreeSet<JobId> {
        let rests = |job: &&JobId| {
            self.memories
                .get(*job)
                .is_some_and(|memory| memory.read_at_news == Some(version(news, job)))
        };
        let resting: Vec<&JobId> = open.iter().filter(rests).collect();
        let after =
            resting.partition_point(|job| self.turn.as_ref().is_some_and(|turn| *job <= turn));
        let chosen: Vec<JobId> = resting[after..]
            .iter()
            .chain(&resting[..after])
            .take(UNASKED)
            .map(|job| (*job).clone())
            .collect();
        self.turn = chosen.last().cloned().or(self.turn.take());
        chosen.into_iter().collect()
    }
}

pub fn version(news: &BTreeMap<JobId, JobNews>, job: &JobId) -> u64 {
    news.get(job).map_or(0, |news| news.version)
}
