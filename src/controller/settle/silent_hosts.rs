//! Asks the cloud about the host of a silent machine. If its host is dead, a machine is given up
//! sooner.
//!
//! ```text
//!   heard once, then silent for 90 s ── once a minute, one call a region ──> does its host fail?
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;

use super::settler::Settler;
use crate::controller::attempt_memory::AttemptMemory;
use crate::controller::cloud_answers::CloudRegion;
use crate::controller::job_memory::JobMemory;
use crate::ports::{Clock, chain};

/// Six heartbeats. A shorter time asks for each slow line; a longer one adds to the bill of a dead
/// host.
const SILENT: Duration = Duration::from_secs(90);

/// The jobs wait this long for a region. It answers in a second.
const ANSWER_MAX: Duration = Duration::from_secs(10);

impl Settler {
    /// Asks about the hosts of all silent machines.
    pub(crate) async fn look_at_hosts(&self, memories: impl Iterator<Item = &mut JobMemory>) {
        let now = self.clock.mono();
        let mut due: BTreeMap<CloudRegion, Vec<&mut AttemptMemory>> = BTreeMap::new();
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
            let answer = match self.clouds.get(which) {
                Ok(cloud) => self.clock.bounded(ANSWER_MAX, cloud.failing_hosts(&region)).await,
                Err(error) => Some(Err(error)),
            };
            (region, attempts, answer)
        });
        for (region, attempts, answer) in join_all(asked).await {
            if let Some(Err(error)) = &answer {
                tracing::debug!("cannot tell whether hosts in {region} fail: {}", chain(error));
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
