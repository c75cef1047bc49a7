//! One controller's memory of a job: its observations, and constant records. `attempt_memory` has
//! the attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::attempt_memory::AttemptMemory;
use super::cloud_answers::{ANSWER_HOLDS, CloudRegion};
use super::launch::market_memory::MarketMemory;
use super::retry_delay::Throttle;
use crate::job::{AttemptNo, EndedBecause, Leaving, Receipt, Request, ResolvedSpec, Wish};
use crate::market::{Region, Usd};

/// The trouble that was recorded last.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Alert {
    /// Another process may have written the record; it was not read yet.
    #[default]
    Unread,
    None,
    Standing(String),
}

/// A launch that waits.
#[derive(Clone, Debug)]
pub struct HeldBack {
    /// On the steady clock.
    pub until: Duration,
    /// The recorded reason.
    pub why: String,
    /// A cap on the cost of all jobs holds it back.
    pub is_cap: bool,
}

/// An ended job's leftovers in the cloud, as the receipt lists them.
#[derive(Clone, Debug, Default)]
pub struct Leavings {
    pub left: Vec<Leaving>,
    /// Regions that did not answer.
    pub unasked: Vec<Region>,
}

impl Leavings {
    pub fn on(&self, receipt: &Receipt) -> Receipt {
        Receipt { left: self.left.clone(), left_unasked: self.unasked.clone(), ..receipt.clone() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct JobMemory {
    pub spec: Option<Arc<ResolvedSpec>>,
    /// Boxed: a map makes room for eleven, and most jobs have one.
    pub attempts: BTreeMap<AttemptNo, Box<AttemptMemory>>,
    pub requests: BTreeMap<u32, Request>,
    /// When a stop or cancel was first read, by the steady clock.
    pub wished_at: Option<Duration>,
    /// Why it is left to another controller.
    pub elsewhere: Option<String>,
    /// The daemon's error in the last tick.
    pub trouble: Option<String>,
    /// The recorded trouble; and the trouble of this tick.
    pub alert: Alert,
    pub trouble_met: Option<String>,
    /// The unready regions that the user was told of.
    pub unready_told: BTreeSet<String>,
    /// The exhausted quotas that the user was told of.
    pub quotas_told: BTreeSet<String>,
    /// The names of notifications sent.
    pub told: BTreeSet<String>,
    /// The cost of all attempts so far, for notifications; about, while a machine runs.
    pub usd_so_far: Option<Usd>,
    /// Looks in a row that found no spec.
    pub looks_without: u32,
    /// The job's leftovers in the cloud, after the cleanup.
    pub leavings: Option<Leavings>,
    /// The next launch, while a cap holds it back.
    pub held_back: Option<HeldBack>,
    /// The market's memory, for `market = "auto"`.
    pub market: Option<Box<MarketMemory>>,
    /// Calls that were throttled.
    pub throttle: Option<Throttle>,
    /// The version of its news at the last full read, if the job then only waited.
    pub read_at_news: Option<u64>,
    /// When this tick's look began, by the steady clock.
    pub looked: Option<Duration>,
    /// When the clouds were asked for this tick's machines.
    pub described: Option<Duration>,
}

impl JobMemory {
    /// The places of its machines, settled ones too: a launch may still come through.
    pub fn places(&self) -> BTreeSet<CloudRegion> {
        let plans = self.attempts.values().filter_map(|attempt| attempt.plan.as_ref());
        // There are few places even for hundreds of attempts.
        let places: BTreeSet<_> =
            plans.map(|plan| (plan.offer.cloud, &plan.offer.region)).collect();
        places.into_iter().map(|(cloud, region)| (cloud, region.clone())).collect()
    }

    /// Whether a refusal that certainly made no machine waits to be recorded.
    pub fn knows_a_refusal(&self) -> bool {
        self.attempts.values().any(|attempt| {
            attempt.settled.is_none()
                && attempt.certainty.is_sure()
                && attempt.watched.refused.is_some()
        })
    }

    /// Whether its last launch was refused in a way that another place or time does not change.
    pub fn was_refused_for_good(&self) -> bool {
        let last = self.attempts.values().next_back().and_then(|attempt| attempt.settled.as_ref());
        last.is_some_and(|settled| {
            settled.because == EndedBecause::LaunchFailed && settled.refusal.is_none()
        })
    }

    /// Whether the launch of an open attempt returned a machine.
    pub fn was_launched(&self) -> bool {
        self.attempts
            .values()
            .any(|attempt| attempt.settled.is_none() && attempt.watched.launched.is_some())
    }

    /// Whether a launch that was held back need not be tried yet; `now` is on the steady clock.
    pub fn is_held_back(&self, now: Duration) -> bool {
        self.held_back.as_ref().is_some_and(|held| now < held.until)
    }

    /// Whether the clouds' answers of this tick are too old to end a machine.
    pub fn answers_are_old(&self, now: Duration) -> bool {
        self.described.is_some_and(|at| now.saturating_sub(at) > ANSWER_HOLDS)
    }

    pub fn market(&mut self) -> &mut MarketMemory {
        self.market.get_or_insert_default()
    }

    /// How long this controller has known of a stop or cancel.
    pub fn wished_for(&mut self, now: Duration) -> Duration {
        if self.wished_at.is_none()
            && self
                .requests
                .values()
                .any(|request| matches!(request.wish, Wish::Stop | Wish::Cancel))
        {
            self.wished_at = Some(now);
        }
        self.wished_at.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Frees the launch data of plans whose agent was heard: they are never launched again. The
    /// first boot's script would use most of the memory.
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
