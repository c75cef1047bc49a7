//! Asks the cloud about the host of a machine that has fallen silent: one that is dead is given up
//! sooner than one of which nobody knows why it says nothing.
//!
//! ```text
//!   heard of, and silent for a minute and a half ── once a minute, one call a region ──> whether its host fails the cloud's checks
//! ```
//! Not here: how long a host must fail before its machine is ended
//! (`policy::lifecycle::reconcile`).

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;

use crate::controller::attempt_memory::AttemptMemory;
use crate::controller::cloud_answers::Place;
use crate::controller::drive::Controller;
use crate::controller::job_memory::JobMemory;
use crate::ports::chain;

/// Six heartbeats. Sooner asks for each slow line; later is added to the time that a dead host
/// bills.
const SILENT: Duration = Duration::from_secs(90);

/// Between two questions; the cloud itself checks once a minute.
const EACH: Duration = Duration::from_secs(60);

/// A region that hangs holds up no job; it answers in a second.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What one controller was told of the host of a machine, since that was heard last.
#[derive(Clone, Debug, Default)]
pub struct HostSeen {
    asked: Option<Duration>,
    /// The first and the last of successive answers by which it fails.
    failing: Option<(Duration, Duration)>,
}

impl HostSeen {
    fn is_due(&self, now: Duration) -> bool {
        self.asked.is_none_or(|asked| now >= asked + EACH)
    }

    /// Takes note of an answer; `None`: there was none, which says nothing.
    fn note(&mut self, fails: Option<bool>, now: Duration) {
        self.asked = Some(now);
        self.failing = match fails {
            Some(true) => Some((self.failing.map_or(now, |(first, _)| first), now)),
            Some(false) => None,
            None => self.failing,
        };
    }

    /// For how long it was seen to fail.
    fn fails_for(&self) -> Duration {
        self.failing.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first))
    }
}

impl Controller {
    /// Asks about the hosts of those machines whose silence is to be explained.
    pub(crate) async fn look_at_hosts(&self, memories: impl Iterator<Item = &mut JobMemory>) {
        let now = self.clock.mono();
        let mut due: BTreeMap<Place, Vec<&mut AttemptMemory>> = BTreeMap::new();
        for attempt in memories
            .flat_map(|memory| memory.attempts.values_mut())
            .filter(|attempt| is_unexplained(attempt, now))
        {
            let Some(place) =
                attempt.plan.as_ref().map(|plan| (plan.offer.cloud, plan.offer.region.clone()))
            else {
                continue;
            };
            due.entry(place).or_default().push(attempt);
        }
        let asked = due.into_iter().map(|((which, region), attempts)| async move {
            let answer = match self.cloud(which) {
                Ok(cloud) => self.bounded(ANSWER_MAX, cloud.failing_hosts(&region)).await,
                Err(error) => Some(Err(error)),
            };
            (region, attempts, answer)
        });
        for (region, attempts, answer) in join_all(asked).await {
            if let Some(Err(error)) = &answer {
                tracing::debug!("whether hosts in {region} fail is not known: {}", chain(error));
            }
            let failing = answer.and_then(Result::ok);
            for attempt in attempts {
                let id = attempt.status.as_ref().map(|status| status.instance.as_str());
                attempt.host.note(
                    failing.as_ref().map(|failing| id.is_some_and(|id| failing.contains(id))),
                    now,
                );
                attempt.watched.host_fails_for = attempt.host.fails_for();
            }
        }
    }
}

fn is_unexplained(attempt: &AttemptMemory, now: Duration) -> bool {
    let under_way =
        attempt.settled.is_none() && attempt.outcome.is_none() && attempt.status.is_some();
    under_way && attempt.watched.silent_for >= SILENT && attempt.host.is_due(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_fails_for_as_long_as_answers_say_so_and_no_answer_says_nothing() {
        let (mut host, secs) = (HostSeen::default(), Duration::from_secs);
        for (now, fails, for_secs) in [
            (100, Some(true), 0),
            (160, None, 0),
            (220, Some(true), 120),
            (8000, None, 120),
            (8060, Some(false), 0),
        ] {
            assert!(host.is_due(secs(now)), "{now}");
            host.note(fails, secs(now));
            assert!(!host.is_due(secs(now + 59)));
            assert_eq!(host.fails_for(), secs(for_secs), "{now}");
        }
        host.note(Some(true), secs(9000));
        assert_eq!(host.fails_for(), Duration::ZERO, "it begins anew");
    }
}
