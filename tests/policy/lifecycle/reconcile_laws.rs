//! Laws of the controller's one decision, over any facts.

use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView};
use lamplighter::job::{AttemptPhase, EndedBecause, Request, Wish};
use lamplighter::market::{self, Span, Usd, UsdPerHour};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, CloudAnswer, Watched};
use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, ago, attempt, outcome, plan, settled, status, unknown, view, wish,
};

/// Any history of settled attempts, and an attempt under way or none.
fn any_attempts() -> impl Strategy<Value = Vec<AttemptFacts>> {
    let because = prop::sample::select(vec![
        EndedBecause::Interrupted,
        EndedBecause::Lost,
        EndedBecause::Succeeded,
        EndedBecause::Failed,
        EndedBecause::UserStopped,
    ]);
    let open = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0_u64..100_000,
        0_u64..4000,
        0_u64..4000,
        0_u64..400,
    );
    (prop::collection::vec(because, 0..6), prop::option::of(open), any::<bool>()).prop_map(
        |(history, open, local)| {
            let mut attempts: Vec<AttemptFacts> = (1..)
                .zip(history)
                .map(|(number, because)| AttemptFacts {
                    settled: Some(settled(number, because).into()),
                    ..attempt(number, 600)
                })
                .collect();
            if let Some((beats, ended, launched, age, silent, missing, outcome_for)) = open {
                let number = attempts.len() as u32 + 1;
                let secs = Duration::from_secs;
                attempts.push(AttemptFacts {
                    plan: plan(
                        if local { market::CloudKind::Local } else { market::CloudKind::Aws },
                        number,
                        age,
                    )
                    .into(),
                    status: beats.then(|| status(AttemptPhase::Running, ago(silent))),
                    outcome: ended.then(|| outcome(number, EndedBecause::Succeeded)),
                    watched: Watched {
                        launched: launched.then(|| "i".into()),
                        silent_for: secs(silent),
                        missing_for: secs(missing),
                        outcome_for: secs(outcome_for),
                        ..Watched::default()
                    },
                    ..attempt(number, age)
                });
            }
            attempts
        },
    )
}

fn any_cloud() -> impl Strategy<Value = CloudAnswer> {
    let state = prop::sample::select(vec![
        InstanceState::Pending,
        InstanceState::Running,
        InstanceState::ShuttingDown,
        InstanceState::Terminated,
    ]);
    let view = (1_u32..8, prop::sample::select(vec![OWNER, "you"]), state)
        .prop_map(|(number, owner, state)| view(number, owner, state, Some("Server.X")));
    prop_oneof![Just(unknown()), prop::collection::vec(view, 0..5).prop_map(CloudAnswer::Known)]
}

fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let any_wish = prop::sample::select(vec![
        Wish::Stop,
        Wish::Cancel,
        Wish::Checkpoint,
        Wish::Extend { time: Some(Span::from_secs(60)), budget: None, fallback_cost: None },
    ]);
    prop::collection::vec((any_wish, 0_u64..4000).prop_map(|(one, age)| wish(one, age)), 0..3)
}

proptest! {
    #[test]
    fn laws(attempts in any_attempts(), requests in any_requests(), cloud in any_cloud()) {
        let acts = acts(&attempts, &requests, cloud.clone());
        prop_assert!(!acts.is_empty(), "there is always an answer");
        let open = attempts.iter().find(|attempt| attempt.settled.is_none());
        let end_wished = requests.iter().any(|request| matches!(request.wish, Wish::Stop | Wish::Cancel));
        for act in &acts {
            match act {
                Act::Launch { attempt } => {
                    prop_assert!(matches!(cloud, CloudAnswer::Known(_)), "no launch into the unknown");
                    prop_assert_eq!(Some(*attempt), open.map(|open| open.plan.attempt), "only what is planned and not settled");
                    prop_assert!(!end_wished, "a wish to end is never lost");
                }
                Act::CreatePlan { attempt, .. } => {
                    prop_assert!(open.is_none() && !end_wished);
                    prop_assert_eq!(attempt.number() as usize, attempts.len() + 1);
                }
                Act::Terminate { machine, .. } | Act::Stop { machine, .. } => {
                    let instance = &machine.id;
                    let CloudAnswer::Known(views) = &cloud else { return Err(TestCaseError::fail("nothing is ended unseen")) };
                    prop_assert!(views.iter().any(|view| view.id == *instance && view.tags.owner == OWNER && view.state.bills()), "only ours, read now");
                }
                Act::Settle(settled) => {
                    let CloudAnswer::Known(views) = &cloud else { return Err(TestCaseError::fail("nothing is settled unseen")) };
                    let number = settled.attempt.number();
                    let mine = |view: &&InstanceView| view.tags.owner == OWNER && view.client_token == Some(format!("token-{number}"));
                    prop_assert!(views.iter().filter(mine).take(1).all(|view| view.state.is_terminated()), "terminal only when seen to be");
                    prop_assert_eq!(settled.usd, if settled.instance.is_some() { UsdPerHour::new("$1".parse().unwrap()).cost_of(settled.billed.duration()) } else { Usd::ZERO });
                }
                Act::WriteReceipt(receipt) => {
                    prop_assert!(open.is_none(), "a receipt only when everything is settled");
                    let sum: Usd = receipt.attempts.iter().map(|attempt| attempt.usd).sum();
                    prop_assert_eq!(receipt.total_usd, sum);
                }
                Act::RaiseKillAt { .. } | Act::Guard { .. } | Act::Interrupt { .. } | Act::Wait { .. } => {}
            }
        }
    }
}
