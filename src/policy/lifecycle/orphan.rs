//! Is our machine an orphan, that is, a machine without an active job?
//!
//! `lamp sweep` (by hand, or by the timer lamp-sweep), the daemon and the sweeper in the cloud
//! share this decision; the last two run every five minutes. All times come from the store's or the
//! cloud's clock, because a workstation's clock may be a day off. Unreadable facts are unknown.
//! Then only the hard cap counts, which is in the machine's own tags. This module makes no calls.

use std::time::Duration;

use jiff::Timestamp;

use crate::instance::{InstanceState, InstanceView};
use crate::market::elapsed;

#[derive(Clone, Debug)]
pub struct OrphanFacts<'a> {
    pub view: &'a InstanceView,
    /// Our owner: machines with another owner's tag are never touched.
    pub owner: &'a str,
    pub records: Records,
    pub heartbeat: LastHeartbeat,
    /// The store's time; `None`: not reported.
    pub now: Option<Timestamp>,
}

/// The job root's records of the machine's attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// It did not answer.
    Unknown(String),
    /// The job is not in this job root. It may be in another job root of the same owner.
    NoJob,
    /// Planned, and not settled.
    Open,
    /// Not settled, but its agent reported the end at this time, and still sends heartbeats. It is
    /// not held for the user.
    Ended(Timestamp),
    /// Settled, or the job has its receipt.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastHeartbeat {
    Unknown(String),
    Never,
    At(Timestamp),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanVerdict {
    Keep {
        why: String,
    },
    /// It is kept because a fact could not be read.
    Unknown {
        why: String,
    },
    /// Ours, but its job is unknown here; another job root of the owner may have it. Only a person
    /// may end it, by name.
    Stray {
        why: String,
    },
    /// An orphan: a second look follows, then its end.
    Orphan {
        why: String,
    },
}

/// Time after the cap for the agent and the deadline unit to end the machine properly, before a
/// sweep does.
const CAP_SLACK: Duration = Duration::from_secs(120);

/// After its outcome an agent powers off within two minutes (the steps of `Power`). An active
/// controller ends the machine a minute later (`policy::lifecycle::reconcile`). A sweep must come
/// after both. Without it, a machine whose power-off fails would run to its hard cap when no
/// controller is active.
const ENDED_TO_DARK: Duration = Duration::from_secs(5 * 60);

/// Whether a machine runs past its hard cap and the time for a proper end.
pub fn is_past_cap(view: &InstanceView, now: Timestamp) -> bool {
    view.tags
        .kill_at
        .is_some_and(|kill_at| now > kill_at.saturating_add(CAP_SLACK).unwrap_or(Timestamp::MAX))
}

pub fn judge(facts: &OrphanFacts<'_>) -> OrphanVerdict {
    let keep = |why: &str| OrphanVerdict::Keep { why: why.to_owned() };
    let (view, tags) = (facts.view, &facts.view.tags);
    if tags.owner != facts.owner {
        return keep("it is somebody else's");
    }
    let stray = || OrphanVerdict::Stray { why: "its job is not in this job root".into() };
    if !view.state.bills() {
        // Its disk bills, but no request to the unknown job can free it.
        let stands = matches!(view.state, InstanceState::Stopping | InstanceState::Stopped);
        return if stands && facts.records == Records::NoJob {
            stray()
        } else {
            OrphanVerdict::Keep { why: format!("it is {}", view.state) }
        };
    }
    let unknown = |why: String| OrphanVerdict::Unknown { why };
    let Some(now) = facts.now else {
        return unknown("the job root does not say what time it is".into());
    };
    if let Some(kill_at) = tags.kill_at.filter(|_| is_past_cap(view, now)) {
        return OrphanVerdict::Orphan { why: format!("its hard cap was {kill_at}") };
    }
    match &facts.records {
        Records::Unknown(why) => return unknown(format!("its records cannot be read: {why}")),
        Records::NoJob => return stray(),
        Records::Over => {
            return OrphanVerdict::Orphan { why: "its attempt is over, and it runs".into() };
        }
        Records::Ended(at) if elapsed(*at, now) > ENDED_TO_DARK => {
            return OrphanVerdict::Orphan {
                why: format!(
                    "its attempt ended {} min ago, and it still runs",
                    elapsed(*at, now).as_secs() / 60
                ),
            };
        }
        Records::Open | Records::Ended(_) => {}
    }
    let since = |at: Timestamp| elapsed(at, now);
    match &facts.heartbeat {
        LastHeartbeat::Unknown(why) => unknown(format!("its heartbeat cannot be read: {why}")),
        LastHeartbeat::At(at) if since(*at) > tags.lease.duration() => OrphanVerdict::Orphan {
            why: format!(
                "no heartbeat for {} min, and its lease is {}",
                since(*at).as_secs() / 60,
                tags.lease
            ),
        },
        LastHeartbeat::Never if since(view.launched) > tags.boot.duration() => {
            OrphanVerdict::Orphan {
                why: format!(
                    "no word of its agent for {} min after its launch",
                    since(view.launched).as_secs() / 60
                ),
            }
        }
        LastHeartbeat::At(_) => keep("its agent lives"),
        LastHeartbeat::Never => keep("it is booting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Tags;
    use crate::job::{AttemptNo, BOOT};
    use crate::market::{CloudKind, Market, Region, Span};

    const NOW: i64 = 1_000_000;

    fn at(ago_secs: i64) -> Timestamp {
        Timestamp::from_second(NOW - ago_secs).unwrap()
    }

    fn view(launched_ago: i64, kill_at: Option<Timestamp>) -> InstanceView {
        let tags = Tags {
            owner: "me".into(),
            job: "x-222222".parse().unwrap(),
            attempt: AttemptNo::FIRST,
            lease: Span::from_secs(1800),
            boot: BOOT,
            kill_at,
        };
        InstanceView {
            id: "i-1".into(),
            cloud: CloudKind::Aws,
            region: Region::new("r"),
            instance_type: "t".into(),
            market: Market::Spot,
            state: InstanceState::Running,
            tags,
            client_token: None,
            launched: at(launched_ago),
            ended: None,
            state_reason: None,
        }
    }

    fn is_orphan(
        view: &InstanceView,
        owner: &str,
        records: Records,
        heartbeat: LastHeartbeat,
        now: Option<Timestamp>,
    ) -> bool {
        matches!(
            judge(&OrphanFacts { view, owner, records, heartbeat, now }),
            OrphanVerdict::Orphan { .. }
        )
    }

    #[test]
    fn lapsed_lease_makes_an_orphan_and_what_is_unknown_does_not() {
        let machine = view(7200, None);
        let lapsed = || LastHeartbeat::At(at(1801));
        assert!(is_orphan(&machine, "me", Records::Open, lapsed(), Some(at(0))));
        assert!(!is_orphan(
            &machine,
            "me",
            Records::Open,
            LastHeartbeat::At(at(1799)),
            Some(at(0))
        ));
        assert!(!is_orphan(
            &machine,
            "me",
            Records::Open,
            LastHeartbeat::Unknown("503".into()),
            Some(at(0))
        ));
        assert!(!is_orphan(&machine, "me", Records::Unknown("503".into()), lapsed(), Some(at(0))));
        assert!(
            !is_orphan(&machine, "me", Records::NoJob, LastHeartbeat::Never, Some(at(0))),
            "another job root of ours may know it"
        );
        assert!(!is_orphan(&machine, "me", Records::Open, lapsed(), None));
        assert!(is_orphan(&machine, "me", Records::Over, LastHeartbeat::At(at(5)), Some(at(0))));
        assert!(
            !is_orphan(&machine, "you", Records::Over, lapsed(), Some(at(0))),
            "somebody else's"
        );
    }

    /// Its power-off fails, its agent still sends heartbeats, and no controller is active.
    #[test]
    fn ended_machine_that_stays_on_is_an_orphan_after_five_minutes() {
        let ended = |ago: i64| {
            is_orphan(
                &view(7200, None),
                "me",
                Records::Ended(at(ago)),
                LastHeartbeat::At(at(5)),
                Some(at(0)),
            )
        };
        assert!(ended(301) && !ended(299));
        assert!(
            !is_orphan(
                &view(7200, None),
                "you",
                Records::Ended(at(3600)),
                LastHeartbeat::At(at(5)),
                Some(at(0))
            ),
            "somebody else's"
        );
    }

    /// Another job root of ours may know it. Only its hard cap, which every root can read, makes it
    /// an orphan.
    #[test]
    fn unknown_job_machine_is_stray_until_its_hard_cap() {
        let judged = |view: &InstanceView, owner: &str, records: Records| {
            judge(&OrphanFacts {
                view,
                owner,
                records,
                heartbeat: LastHeartbeat::Never,
                now: Some(at(0)),
            })
        };
        let is_stray = |verdict: OrphanVerdict| matches!(verdict, OrphanVerdict::Stray { .. });
        let machine = view(7200, None);
        assert!(is_stray(judged(&machine, "me", Records::NoJob)));
        assert!(
            !is_stray(judged(&machine, "you", Records::NoJob)),
            "somebody else's is no stray of ours"
        );
        assert!(
            !is_stray(judged(&machine, "me", Records::Unknown("503".into()))),
            "its job may be here"
        );
        assert!(matches!(
            judged(&view(7200, Some(at(121))), "me", Records::NoJob),
            OrphanVerdict::Orphan { .. }
        ));
        for (state, stray) in [
            (InstanceState::Stopped, true),
            (InstanceState::ShuttingDown, false),
            (InstanceState::Terminated, false),
        ] {
            let standing = InstanceView { state, ..view(7200, Some(at(121))) };
            assert_eq!(is_stray(judged(&standing, "me", Records::NoJob)), stray, "{state}");
            assert!(
                !is_stray(judged(&standing, "me", Records::Over)),
                "{state}: `lamp cancel` of its job gives it up"
            );
        }
    }

    #[test]
    fn boot_has_its_time() {
        assert!(!is_orphan(
            &view(890, None),
            "me",
            Records::Open,
            LastHeartbeat::Never,
            Some(at(0))
        ));
        assert!(is_orphan(
            &view(910, None),
            "me",
            Records::Open,
            LastHeartbeat::Never,
            Some(at(0))
        ));
    }

    #[test]
    fn hard_cap_counts_against_the_unknown() {
        let machine = view(7200, Some(at(121)));
        assert!(is_orphan(
            &machine,
            "me",
            Records::Unknown("503".into()),
            LastHeartbeat::Unknown("503".into()),
            Some(at(0))
        ));
        assert!(
            !is_orphan(
                &view(7200, Some(at(119))),
                "me",
                Records::Open,
                LastHeartbeat::At(at(5)),
                Some(at(0))
            ),
            "the agent's own end has its time"
        );
    }
}
