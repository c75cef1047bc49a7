//! When an epoch forms, and whether the gang goes on after one.

use std::time::Duration;

use crate::job::{
    EpochCause, EpochOver, EpochRecord, GangReady, InterruptionsSpec, NodeCount, RetriesSpec,
};

/// The next rank writes the formation after this time, if the lower ranks have not. Shorter makes
/// several ranks write at once, which costs calls. Longer delays a start whose lowest rank died.
const TURN: Duration = Duration::from_secs(15);

/// The facts of a rank while it waits for the others.
#[derive(Clone, Copy, Debug)]
pub struct GatherFacts<'a> {
    pub nodes: NodeCount,
    pub rank: u32,
    /// The ranks that are ready, in order.
    pub ready: &'a [GangReady],
    /// The ranks that do not come: their jobs have ended, or they have no machine.
    pub gone: &'a [u32],
    pub waited: Duration,
    /// How long it waits for all: `join` at the start, `hold` later.
    pub limit: Duration,
    /// Whether the gang cannot work without rank 0, which alone saves.
    pub needs_rank_0: bool,
    /// Since when this rank could have been written into a formation.
    pub could_form_for: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatherVerdict {
    Wait,
    /// This rank writes the formation of those that are ready.
    Form,
    /// Too few came.
    GiveUp {
        missing: Vec<u32>,
    },
}

/// Whether enough ranks are there, and which of them writes the formation.
pub fn judge_gather(facts: &GatherFacts<'_>) -> GatherVerdict {
    let ready: Vec<u32> = facts.ready.iter().map(|member| member.rank).collect();
    let missing = missing_ranks(facts.nodes, &ready);
    let is_complete = missing.iter().all(|rank| facts.gone.contains(rank));
    let is_late = facts.waited >= facts.limit || is_complete;
    let is_enough = ready.len() >= facts.nodes.min as usize
        && (!facts.needs_rank_0 || ready.first() == Some(&0));
    if !(missing.is_empty() || is_late && is_enough) {
        return if is_late { GatherVerdict::GiveUp { missing } } else { GatherVerdict::Wait };
    }
    let Some(turn) = ready.iter().position(|rank| *rank == facts.rank) else {
        return GatherVerdict::Wait;
    };
    let turn = u32::try_from(turn).unwrap_or(u32::MAX);
    if facts.could_form_for >= TURN.saturating_mul(turn) {
        GatherVerdict::Form
    } else {
        GatherVerdict::Wait
    }
}

pub fn missing_ranks(nodes: NodeCount, ready: &[u32]) -> Vec<u32> {
    (0..nodes.max).filter(|rank| !ready.contains(rank)).collect()
}

/// Whether there may be one more epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochBudget {
    Again,
    /// The rank failed, and no retry is left. It may still be a lost machine that made it fail.
    FailuresSpent,
    InterruptionsSpent,
}

/// Counts the epochs that ended, each by its cause. `now`: the ranks that are ready for the next.
pub fn judge_budget(
    epochs: &[EpochRecord],
    now: &[GangReady],
    retries: &RetriesSpec,
    interruptions: &InterruptionsSpec,
) -> EpochBudget {
    let (mut failures, mut interrupted) = (0_u32, 0_u32);
    let mut is_retried = true;
    for (index, epoch) in epochs.iter().enumerate() {
        let Some(over) = &epoch.over else { continue };
        let later = epochs.get(index + 1).and_then(|next| next.formation.as_ref());
        let later = later.map_or(now, |formation| formation.members.as_slice());
        if is_interruption(epoch, over, later) {
            interrupted += 1;
        } else if over.because == EpochCause::Failed {
            failures += 1;
            is_retried = retries.counts(over.exit);
        }
    }
    if interrupted > interruptions.max {
        EpochBudget::InterruptionsSpent
    } else if failures > 0 && (failures > retries.max || !is_retried) {
        EpochBudget::FailuresSpent
    } else {
        EpochBudget::Again
    }
}

/// Whether an epoch ended by an interruption. A lost machine makes the other ranks fail first. It
/// shows later: by its silence, or because its rank came back in another attempt. `later`: the
/// ranks of the next epoch.
pub fn is_interruption(epoch: &EpochRecord, over: &EpochOver, later: &[GangReady]) -> bool {
    let is_replaced = |member: &GangReady| {
        later.iter().any(|now| now.rank == member.rank && now.attempt != member.attempt)
    };
    over.because.is_interruption()
        || !epoch.lost.is_empty()
        || epoch.formation.as_ref().is_some_and(|formed| formed.members.iter().any(is_replaced))
}

#[cfg(test)]
mod tests {
    use super::super::rank_place::tests::formation;
    use super::*;
    use crate::job::{AttemptNo, RECORD_FORMAT};

    fn gather(nodes: &str, ready: &[u32], rank: u32, waited: u64) -> GatherVerdict {
        gather_without(nodes, ready, &[], (rank, waited))
    }

    fn gather_without(
        nodes: &str,
        ready: &[u32],
        gone: &[u32],
        (rank, waited): (u32, u64),
    ) -> GatherVerdict {
        judge_gather(&GatherFacts {
            nodes: nodes.parse().unwrap(),
            rank,
            ready: &formation_members(ready),
            gone,
            waited: Duration::from_secs(waited),
            limit: Duration::from_secs(600),
            needs_rank_0: true,
            could_form_for: Duration::from_secs(waited.min(20)),
        })
    }

    fn formation_members(ranks: &[u32]) -> Vec<GangReady> {
        if ranks.is_empty() { Vec::new() } else { formation(ranks).members }
    }

    #[test]
    fn lowest_rank_forms_when_all_are_there() {
        assert_eq!(gather("3", &[0, 1, 2], 0, 1), GatherVerdict::Form);
        assert_eq!(gather("3", &[0, 1, 2], 1, 1), GatherVerdict::Wait);
        assert_eq!(gather("3", &[0, 1, 2], 1, 20), GatherVerdict::Form, "the lowest is silent");
        assert_eq!(gather("3", &[0, 2], 0, 20), GatherVerdict::Wait);
    }

    #[test]
    fn missing_rank_ends_the_wait_or_a_smaller_gang_forms() {
        let missing = vec![1];
        assert_eq!(gather("3", &[0, 2], 0, 600), GatherVerdict::GiveUp { missing });
        assert_eq!(gather("2..3", &[0, 2], 0, 599), GatherVerdict::Wait);
        assert_eq!(gather("2..3", &[0, 2], 0, 600), GatherVerdict::Form);
        let missing = vec![0];
        assert_eq!(gather("2..3", &[1, 2], 1, 600), GatherVerdict::GiveUp { missing });
        let missing = vec![0, 2];
        assert_eq!(gather("2..3", &[1], 1, 600), GatherVerdict::GiveUp { missing });
    }

    #[test]
    fn rank_that_has_ended_is_not_waited_for() {
        assert_eq!(gather_without("2..3", &[0, 1], &[2], (0, 1)), GatherVerdict::Form);
        assert_eq!(gather_without("2..4", &[0, 1], &[2], (0, 1)), GatherVerdict::Wait);
        let missing = vec![1];
        assert_eq!(gather_without("2", &[0], &[1], (0, 1)), GatherVerdict::GiveUp { missing });
        assert_eq!(gather_without("2", &[0], &[], (0, 1)), GatherVerdict::Wait);
    }

    fn failed(because: EpochCause, exit: Option<i32>) -> EpochRecord {
        let over = EpochOver {
            format: RECORD_FORMAT,
            epoch: 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            rank: 1,
            because,
            exit,
            text: String::new(),
        };
        EpochRecord { formation: Some(formation(&[0, 1])), over: Some(over), lost: Vec::new() }
    }

    #[test]
    fn failures_and_interruptions_have_a_budget_each() {
        let none = RetriesSpec::default();
        let one = RetriesSpec { max: 1, ..RetriesSpec::default() };
        let some = RetriesSpec { max: 5, exit_codes: vec![75], ..RetriesSpec::default() };
        let hundred = InterruptionsSpec { max: 100 };
        let same = formation(&[0, 1]).members;
        let mut replaced = same.clone();
        replaced[1].attempt = AttemptNo::new(2);
        let fail = failed(EpochCause::Failed, Some(1));
        let lost = failed(EpochCause::Lost, None);
        let marked = EpochRecord { lost: vec![0], ..fail.clone() };
        let judge = |epochs: &[EpochRecord], now: &[GangReady], retries, max| {
            judge_budget(epochs, now, retries, &InterruptionsSpec { max })
        };
        assert_eq!(
            judge(std::slice::from_ref(&fail), &same, &none, 100),
            EpochBudget::FailuresSpent
        );
        assert_eq!(judge(std::slice::from_ref(&fail), &replaced, &none, 100), EpochBudget::Again);
        assert_eq!(judge(&[marked], &same, &none, 100), EpochBudget::Again);
        assert_eq!(judge(std::slice::from_ref(&fail), &same, &one, 100), EpochBudget::Again);
        assert_eq!(
            judge(std::slice::from_ref(&fail), &same, &some, 100),
            EpochBudget::FailuresSpent
        );
        assert_eq!(
            judge(std::slice::from_ref(&lost), &same, &none, 0),
            EpochBudget::InterruptionsSpent
        );
        assert_eq!(judge_budget(&[lost], &same, &none, &hundred), EpochBudget::Again);
        let joined = failed(EpochCause::Joined, None);
        assert_eq!(judge(&[joined], &same, &none, 0), EpochBudget::Again);
    }
}
