//! A launch that was refused: what is certain of it, and what is asked once more.

use std::time::Duration;

use lamplighter::instance::InstanceState;
use lamplighter::job::{Refusal, Request, Wish};
use lamplighter::policy::lifecycle::reconcile::{AttemptFacts, CloudAnswer, Watched};

use crate::lifecycle::reconcile_facts::{OWNER, attempt, known, unknown, view, wish, words};

type Case = (&'static str, Vec<AttemptFacts>, Vec<Request>, CloudAnswer, Vec<&'static str>);

#[test]
fn certain_refusal_settles_and_an_old_one_is_asked_for_again() {
    let alive = || known(&[view(1, OWNER, InstanceState::Running, None)]);
    let unclear = |missing| Watched {
        refused: Some((None, "not allowed".into())),
        unclear: true,
        missing_for: Duration::from_secs(missing),
        ..Watched::default()
    };
    let cases: Vec<Case> = vec![
        (
            "refused",
            vec![AttemptFacts {
                watched: Watched {
                    refused: Some((None, "no such image".into())),
                    ..Watched::default()
                },
                ..attempt(1, 5)
            }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "refused, and the launch before it may have come through",
            vec![AttemptFacts { watched: unclear(200), ..attempt(1, 299) }],
            vec![],
            known(&[]),
            vec!["wait"],
        ),
        (
            "and it has not been shown for long enough",
            vec![AttemptFacts { watched: unclear(61), ..attempt(1, 301) }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "and another controller may have asked since it was refused",
            vec![AttemptFacts {
                watched: Watched { refused_for: Duration::from_secs(11), ..unclear(61) },
                ..attempt(1, 301)
            }],
            vec![],
            known(&[]),
            vec!["launch"],
        ),
        (
            "the same, and it is not wanted any more",
            vec![AttemptFacts {
                watched: Watched {
                    refused_for: Duration::from_secs(481),
                    wished_for: Duration::from_secs(480),
                    ..unclear(480)
                },
                ..attempt(1, 900)
            }],
            vec![wish(Wish::Cancel, 480)],
            known(&[]),
            vec!["settle"],
        ),
        (
            "the same, and its token is spent",
            vec![AttemptFacts {
                watched: Watched {
                    refused: Some((Some(Refusal::Spent), "its machine has ended".into())),
                    refused_for: Duration::from_secs(11),
                    ..unclear(61)
                },
                ..attempt(1, 301)
            }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "and nobody knows",
            vec![AttemptFacts { watched: unclear(61), ..attempt(1, 301) }],
            vec![],
            unknown(),
            vec!["wait"],
        ),
        (
            "and there it is",
            vec![AttemptFacts { watched: unclear(0), ..attempt(1, 301) }],
            vec![],
            alive(),
            vec!["wait"],
        ),
    ];
    for (what, attempts, requests, cloud, expected) in cases {
        assert_eq!(words(&attempts, &requests, cloud), expected, "{what}");
    }
}
