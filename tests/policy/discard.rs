//! What an ended job has stored goes only when nobody could go on from it.

use std::collections::BTreeSet;

use lamplighter::job::{JobId, JobOutcome, StoredKind};
use lamplighter::policy::lifecycle::discardable::{Hindrance, StoredFacts, judge_discard};
use proptest::prelude::*;

const ME: &str = "alice";

fn job(number: usize) -> JobId {
    format!("toy-{}", format!("{number:06}").replace(['0', '1'], "z")).parse().expect("an id")
}

/// Ended without success, mine, and nothing is kept of it but its data.
fn facts(number: usize) -> StoredFacts {
    StoredFacts {
        job: job(number),
        owner: Some(ME.into()),
        outcome: Some(JobOutcome::Stopped),
        keeps_machine: false,
        from: None,
        is_discarded: false,
    }
}

fn all() -> BTreeSet<StoredKind> {
    StoredKind::ALL.into()
}

fn verdicts(
    chosen: &[usize],
    kinds: &BTreeSet<StoredKind>,
    jobs: &[StoredFacts],
) -> Vec<Option<Hindrance>> {
    let chosen: BTreeSet<JobId> = chosen.iter().map(|number| job(*number)).collect();
    judge_discard(&chosen, kinds, jobs, ME).into_values().collect()
}

#[test]
fn what_stands_in_the_way_is_said() {
    let one = |change: fn(&mut StoredFacts)| {
        let mut facts = facts(2);
        change(&mut facts);
        verdicts(&[2], &all(), &[facts]).remove(0)
    };
    assert_eq!(one(|_| ()), None);
    assert_eq!(one(|facts| facts.outcome = None), Some(Hindrance::UnderWay));
    assert_eq!(one(|facts| facts.owner = None), None, "jobs of before say no owner");
    assert_eq!(
        one(|facts| facts.owner = Some("bob".into())),
        Some(Hindrance::Theirs { owner: "bob".into() })
    );
    assert_eq!(one(|facts| facts.keeps_machine = true), Some(Hindrance::KeepsMachine));
    assert_eq!(one(|facts| facts.is_discarded = true), None, "a deletion that was cut off goes on");
}

#[test]
fn predecessor_stays_until_its_successor_succeeds_or_goes_too() {
    let chain = |outcome, is_discarded| {
        let next = StoredFacts { from: Some(job(2)), outcome, is_discarded, ..facts(3) };
        [facts(2), next]
    };
    let needed = || Some(Hindrance::NeededBy(job(3)));
    assert_eq!(verdicts(&[2], &all(), &chain(None, false)), [needed()]);
    assert_eq!(
        verdicts(&[2], &all(), &chain(Some(JobOutcome::Failed), false)),
        [needed()],
        "`lamp start` may go on with it"
    );
    assert_eq!(verdicts(&[2], &all(), &chain(Some(JobOutcome::Succeeded), false)), [None]);
    let mut kept = chain(Some(JobOutcome::Succeeded), false);
    kept[1].keeps_machine = true;
    assert_eq!(
        verdicts(&[2], &all(), &kept),
        [needed()],
        "its machine may be started again, and its work go elsewhere then"
    );
    assert_eq!(
        verdicts(&[2], &all(), &chain(Some(JobOutcome::Failed), true)),
        [None],
        "that one goes on from nothing any more"
    );
    assert_eq!(verdicts(&[2, 3], &all(), &chain(Some(JobOutcome::Failed), false)), [None, None]);
    assert_eq!(
        verdicts(&[2, 3], &all(), &chain(None, false)),
        [needed(), Some(Hindrance::UnderWay)],
        "what stays needs what was to go"
    );
    let logs = BTreeSet::from([StoredKind::Logs, StoredKind::Outputs]);
    assert_eq!(verdicts(&[2], &logs, &chain(None, false)), [None], "nobody goes on from a log");
}

/// Jobs in chains: each began from one before it, or from none.
fn worlds() -> impl Strategy<Value = Vec<StoredFacts>> {
    let outcome = prop_oneof![
        Just(None),
        Just(Some(JobOutcome::Succeeded)),
        Just(Some(JobOutcome::Failed)),
        Just(Some(JobOutcome::Stopped)),
        Just(Some(JobOutcome::Cancelled))
    ];
    let owner = prop_oneof![4 => Just(Some(ME.to_owned())), 1 => Just(Some("bob".to_owned())), 1 => Just(None)];
    let one = (
        owner,
        outcome,
        proptest::bool::weighted(0.2),
        any::<Option<proptest::sample::Index>>(),
        proptest::bool::weighted(0.2),
    );
    proptest::collection::vec(one, 1..9).prop_map(|jobs| {
        let of = |(number, (owner, outcome, keeps_machine, from, is_discarded)): (
            usize,
            (_, _, _, Option<proptest::sample::Index>, _),
        )| StoredFacts {
            job: job(number + 2),
            owner,
            outcome,
            keeps_machine,
            from: from.filter(|_| number > 0).map(|from| job(from.index(number) + 2)),
            is_discarded,
        };
        jobs.into_iter().enumerate().map(of).collect()
    })
}

proptest! {
    #[test]
    fn discard_keeps_continuable_checkpoint(jobs in worlds(), picks in proptest::collection::vec(any::<bool>(), 9), logs_alone: bool) {
        let chosen: BTreeSet<JobId> = jobs.iter().zip(&picks).filter(|(_, pick)| **pick).map(|(facts, _)| facts.job.clone()).collect();
        let kinds = if logs_alone { BTreeSet::from([StoredKind::Logs]) } else { all() };
        let verdicts = judge_discard(&chosen, &kinds, &jobs, ME);
        prop_assert_eq!(verdicts.keys().cloned().collect::<BTreeSet<_>>(), chosen, "each that was asked for has a verdict, and no other");
        let goes = |job: &JobId| matches!(verdicts.get(job), Some(None));
        for facts in &jobs {
            let resumable = !logs_alone;
            if goes(&facts.job) {
                prop_assert!(facts.outcome.is_some() && facts.owner.as_deref().is_none_or(|owner| owner == ME));
                prop_assert!(!(resumable && facts.keeps_machine));
            }
            let may_start = facts.outcome != Some(JobOutcome::Succeeded) || facts.keeps_machine;
            let may_go_on = may_start && !facts.is_discarded && !goes(&facts.job);
            if let Some(from) = facts.from.as_ref().filter(|_| resumable && may_go_on) {
                prop_assert!(!goes(from), "{} needs {}", facts.job, from);
            }
        }
        // And nothing stays without its reason.
        for (job, why) in &verdicts {
            let facts = jobs.iter().find(|facts| facts.job == *job).expect("it is one of them");
            match why {
                None => {}
                Some(Hindrance::UnderWay) => prop_assert!(facts.outcome.is_none()),
                Some(Hindrance::Theirs { owner }) => prop_assert!(owner != ME && facts.owner.as_ref() == Some(owner)),
                Some(Hindrance::KeepsMachine) => prop_assert!(facts.keeps_machine && !logs_alone),
                Some(Hindrance::NeededBy(by)) => {
                    prop_assert!(!logs_alone && !goes(by) && jobs.iter().any(|facts| facts.job == *by && facts.from.as_ref() == Some(job)));
                }
            }
        }
    }
}
