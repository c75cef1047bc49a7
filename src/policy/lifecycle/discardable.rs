//! Whether what a job has stored may be deleted.
//!
//! ```text
//!   ours, ended ──> nobody could go on from it ──> may go
//!               └─> what it would go on from ──> keeps no machine, and no job needs its checkpoints ──> may go
//! ```
//! What a job began from stays until that job has succeeded, or goes too: its newest checkpoint may still be of the job before
//! it. What must never live here: a call.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::{JobId, JobOutcome, StoredKind};

/// What is known of one job of the job root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFacts {
    pub job: JobId,
    /// Whose its machines were; `None`: no record says.
    pub owner: Option<String>,
    /// How it ended; `None`: it has not, as far as anybody knows.
    pub outcome: Option<JobOutcome>,
    /// A machine of it stands still with its disk.
    pub keeps_machine: bool,
    /// Whose checkpoint it began from.
    pub from: Option<JobId>,
    /// What it would go on from was discarded before.
    pub is_discarded: bool,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    UnderWay,
    Theirs { owner: String },
    KeepsMachine,
    NeededBy(JobId),
}

/// Whether a job goes on from what is of these kinds.
pub fn is_gone_on_from(kinds: &BTreeSet<StoredKind>) -> bool {
    kinds.contains(&StoredKind::Checkpoints) || kinds.contains(&StoredKind::Code)
}

/// Of each job that somebody has chosen what is in the way of discarding these kinds of what it stores; `None`: it may go. `jobs`
/// are all of the job root, and `me` the owner who asks.
pub fn judge_discard(chosen: &BTreeSet<JobId>, kinds: &BTreeSet<StoredKind>, jobs: &[StoredFacts], me: &str) -> BTreeMap<JobId, Option<Hindrance>> {
    let asked = jobs.iter().filter(|facts| chosen.contains(&facts.job));
    let mut verdicts: BTreeMap<JobId, Option<Hindrance>> = asked.map(|facts| (facts.job.clone(), by_itself(facts, kinds, me))).collect();
    if !kinds.contains(&StoredKind::Checkpoints) {
        return verdicts;
    }
    // What stays may need another that was to go, which then stays too.
    loop {
        let goes = |job: &JobId| matches!(verdicts.get(job), Some(None));
        let needs = |facts: &&StoredFacts| may_go_on(facts) && !goes(&facts.job);
        let needed = jobs.iter().filter(needs).find_map(|facts| Some((facts.from.clone().filter(goes)?, facts.job.clone())));
        let Some((job, by)) = needed else { return verdicts };
        verdicts.insert(job, Some(Hindrance::NeededBy(by)));
    }
}

/// What has succeeded is started again where it keeps its machine, and then elsewhere where that finds no room.
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
