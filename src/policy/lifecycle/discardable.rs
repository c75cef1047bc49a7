//! Whether a job's stored data may be deleted.
//!
//! ```text
//!   ours, ended ──> data that no job could continue from ──> may go
//!               └─> data to continue from ──> no kept machine, unused checkpoints ─> may go
//! ```
//! A job's starting point stays until that job succeeds or is deleted too. Its newest checkpoint
//! may belong to the job before. This module makes no calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::{JobId, JobOutcome, StoredKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFacts {
    pub job: JobId,
    /// Owner of its machines; `None`: not recorded.
    pub owner: Option<String>,
    /// How it ended; `None`: it has not, as far as known.
    pub outcome: Option<JobOutcome>,
    /// It keeps a stopped machine with its disk.
    pub keeps_machine: bool,
    /// The job whose checkpoint it began from.
    pub from: Option<JobId>,
    /// Its own starting points were deleted before.
    pub is_discarded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    UnderWay,
    Theirs { owner: String },
    KeepsMachine,
    NeededBy(JobId),
}

/// Whether a job can continue from these kinds of data.
pub fn is_gone_on_from(kinds: &BTreeSet<StoredKind>) -> bool {
    kinds.contains(&StoredKind::Checkpoints) || kinds.contains(&StoredKind::Code)
}

/// For each chosen job, the reason against deleting these kinds of data; `None`: it may go. `jobs`
/// are all jobs of the job root; `me` is the owner who asks.
pub fn judge_discard(
    chosen: &BTreeSet<JobId>,
    kinds: &BTreeSet<StoredKind>,
    jobs: &[StoredFacts],
    me: &str,
) -> BTreeMap<JobId, Option<Hindrance>> {
    let asked = jobs.iter().filter(|facts| chosen.contains(&facts.job));
    let mut verdicts: BTreeMap<JobId, Option<Hindrance>> =
        asked.map(|facts| (facts.job.clone(), by_itself(facts, kinds, me))).collect();
    if !kinds.contains(&StoredKind::Checkpoints) {
        return verdicts;
    }
    // A job that stays may need a job that was to go, which then stays too.
    loop {
        let goes = |job: &JobId| matches!(verdicts.get(job), Some(None));
        let needs = |facts: &&StoredFacts| may_go_on(facts) && !goes(&facts.job);
        let needed = jobs
            .iter()
            .filter(needs)
            .find_map(|facts| Some((facts.from.clone().filter(goes)?, facts.job.clone())));
        let Some((job, by)) = needed else { return verdicts };
        verdicts.insert(job, Some(Hindrance::NeededBy(by)));
    }
}

/// A successful job can continue on its kept machine, or elsewhere if that one gets no capacity.
fn may_go_on(facts: &StoredFacts) -> bool {
    (facts.outcome != Some(JobOutcome::Succeeded) || facts.keeps_machine) && !facts.is_discarded
}

fn by_itself(facts: &StoredFacts, kinds: &BTreeSet<StoredKind>, me: &str) -> Option<Hindrance> {
    match &facts.owner {
        Some(owner) if owner != me => Some(Hindrance::Theirs { owner: owner.clone() }),
        _ if facts.outcome.is_none() => Some(Hindrance::UnderWay),
        _ => (facts.keeps_machine && is_gone_on_from(kinds)).then_some(Hindrance::KeepsMachine),
    }
}
