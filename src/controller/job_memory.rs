//! What one controller remembers of a job: what it watched, and records that never change. Of one attempt: `attempt_memory`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::attempt_memory::AttemptMemory;
use super::cloud_answers::Place;
use super::launch::market_memory::MarketMemory;
use super::launch::spending_cap::HeldBack;
use super::notify::alert::Alert;
use super::notify::throttle::Pace;
use super::settle::leftovers::Leavings;
use crate::job::{AttemptNo, EndedBecause, Request, ResolvedSpec, Wish};

/// Of one job.
#[derive(Clone, Debug, Default)]
pub struct JobMemory {
    pub spec: Option<Arc<ResolvedSpec>>,
    /// Boxed: a map makes room for eleven, and nearly every job has one.
    pub attempts: BTreeMap<AttemptNo, Box<AttemptMemory>>,
    pub requests: BTreeMap<u32, Request>,
    /// When it was first read that somebody wants it to end, by the steady clock.
    pub wished_at: Option<Duration>,
    /// Why it is left to another controller.
    pub elsewhere: Option<String>,
    /// What went wrong in the last tick, in the daemon.
    pub trouble: Option<String>,
    /// What stands in its way, as it was recorded last; and what this tick has met.
    pub alert: Alert,
    pub trouble_met: Option<String>,
    /// Regions that are passed over until somebody mends them, as they were told.
    pub unready_told: BTreeSet<String>,
    /// Quotas that are used up.
    pub quotas_told: BTreeSet<String>,
    /// The names of what somebody was told.
    pub told: BTreeSet<String>,
    /// Looks in a row at which its spec was gone.
    pub looks_without: u32,
    /// What it left in the cloud, once that was asked for and cleared.
    pub leavings: Option<Leavings>,
    /// The next launch, while a cap holds it back.
    pub held_back: Option<HeldBack>,
    /// Which market, `market = "auto"`.
    pub market: Option<Box<MarketMemory>>,
    /// Calls that were throttled.
    pub pace: Option<Pace>,
    /// Which of its news was there when all of its records were read, if there was nothing to do but wait.
    pub read_at_news: Option<u64>,
    /// When the look began by which this tick decides, by the steady clock.
    pub looked: Option<Duration>,
    /// When the clouds were asked for the machines by which it does.
    pub described: Option<Duration>,
}

impl JobMemory {
    /// Where its machines are or may be. Of a settled attempt too: a launch may have come through after all.
    pub fn places(&self) -> BTreeSet<Place> {
        let plans = self.attempts.values().filter_map(|attempt| attempt.plan.as_ref());
        // Of hundreds of attempts there are few.
        let places: BTreeSet<_> = plans.map(|plan| (plan.offer.cloud, &plan.offer.region)).collect();
        places.into_iter().map(|(cloud, region)| (cloud, region.clone())).collect()
    }

    /// Whether a launch was refused that certainly made no machine, and no record says so yet.
    pub fn knows_a_refusal(&self) -> bool {
        self.attempts.values().any(|attempt| attempt.settled.is_none() && attempt.certainty.is_sure() && attempt.watched.refused.is_some())
    }

    /// Whether its last launch was refused in a way that no other place or moment would mend.
    pub fn was_refused_for_good(&self) -> bool {
        let last = self.attempts.values().next_back().and_then(|attempt| attempt.settled.as_ref());
        last.is_some_and(|settled| settled.because == EndedBecause::LaunchFailed && settled.refusal.is_none())
    }

    /// Whether a machine of an attempt under way has answered to its launch.
    pub fn was_launched(&self) -> bool {
        self.attempts.values().any(|attempt| attempt.settled.is_none() && attempt.watched.launched.is_some())
    }

    /// What it knows of the markets.
    pub fn market(&mut self) -> &mut MarketMemory {
        self.market.get_or_insert_default()
    }

    /// For how long it is known that somebody wants it to end.
    pub fn wished_for(&mut self, now: Duration) -> Duration {
        if self.wished_at.is_none() && self.requests.values().any(|request| matches!(request.wish, Wish::Stop | Wish::Cancel)) {
            self.wished_at = Some(now);
        }
        self.wished_at.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Lets go of what only a launch needs, in plans whose agent was heard: they are never launched again, and the script of a
    /// first boot, ten thousand times, is more than everything else that is remembered.
    pub fn lighten(&mut self) {
        let heard = self.attempts.values_mut().filter(|attempt| attempt.lease.is_some());
        for plan in heard.filter_map(|attempt| attempt.plan.as_mut()) {
            let plan = Arc::make_mut(plan);
            (plan.reasons, plan.rejected) = (Vec::new(), Vec::new());
            if let Some(launch) = &mut plan.launch {
                launch.user_data = String::new();
            }
        }
    }
}
