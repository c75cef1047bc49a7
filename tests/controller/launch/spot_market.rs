//! Spot capacity that comes and goes, and machines that work at one job together.

use std::time::Duration;

use jiff::Timestamp;
use lamplighter::instance::Status;
use lamplighter::job::{EndedBecause, Outcome, Plan};
use lamplighter::market::{Market, Offer, Span, Usd, UsdPerHour, elapsed};
use lamplighter::policy::Wishes;
use lamplighter::ports::Clock;

use crate::cloud::FakeCloud;
use crate::dir_of;

/// Between two checkpoints of [`crate::cloud::Life::Works`].
const SAVES_EVERY: Duration = Duration::from_secs(600);

/// Between two heartbeats: rarer than real ones, for the clock of a day must jump.
const BEAT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct SpotMarket {
    /// From and to, since the beginning.
    pub gone: Vec<(Duration, Duration)>,
    /// What the whole job is worth.
    pub work: Duration,
    /// What of it is safe.
    pub done: Duration,
    /// Whether power cuts come without a last checkpoint.
    pub rude: bool,
    /// Zones beside the one that is always there.
    pub more_zones: u32,
    /// When launches were asked for, answered or not.
    pub asked: Vec<Duration>,
    /// What an hour costs from a moment on; none: the price does not move.
    pub prices: Vec<(Timestamp, UsdPerHour)>,
    pub history: History,
}

/// What the cloud says of the prices that were.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum History {
    #[default]
    Told,
    Denied,
    /// No answer ever comes.
    Silent,
}

impl FakeCloud {
    /// Three times the price of spot, as real ones are.
    pub fn on_demand(&self, spot: &Offer) -> UsdPerHour {
        UsdPerHour::new(spot.price.per_hour() + spot.price.per_hour() + spot.price.per_hour())
    }

    /// What spot costs now, where it moves.
    pub fn price_now(&self) -> Option<UsdPerHour> {
        let now = self.clock.now();
        let market = self.market.lock().unwrap();
        market.prices.iter().rev().find(|(at, _)| *at <= now).map(|(_, price)| *price)
    }

    /// The ledger of a price that moves: second by second, what held then.
    pub(crate) fn price_moved(&self, from: Timestamp, to: Timestamp) -> Option<Usd> {
        let prices = self.market.lock().unwrap().prices.clone();
        let ends = prices.iter().skip(1).map(|(at, _)| *at).chain([to]);
        let parts = prices
            .iter()
            .zip(ends)
            .map(|((at, price), end)| price.cost_of(elapsed(from.max(*at), to.min(end))));
        (!prices.is_empty()).then(|| parts.sum())
    }

    /// Whether a machine of this plan cannot be had, or kept, now.
    pub fn is_gone(&self, plan: &Plan) -> bool {
        let now = self.clock.mono();
        plan.offer.market == Market::Spot
            && self.market.lock().unwrap().gone.iter().any(|(from, to)| (*from..*to).contains(&now))
    }

    pub(crate) async fn work(
        &self,
        plan: &Plan,
        instance: &str,
        started: Timestamp,
        start_secs: u64,
    ) {
        let (mut useful, mut saved, mut working_since) = (Duration::ZERO, Duration::ZERO, None);
        let before = self.market.lock().unwrap().done;
        let whole = self.market.lock().unwrap().work;
        for sequence in 2.. {
            self.clock.sleep(BEAT).await;
            if !self.running().iter().any(|id| id == instance) {
                return;
            }
            if elapsed(started, self.clock.now()) > Duration::from_secs(start_secs) {
                working_since = working_since.or(Some(self.clock.now()));
                useful += BEAT;
            }
            if useful >= saved + SAVES_EVERY || before + useful >= whole {
                saved = useful;
            }
            let span = Span::from_duration;
            let end = |because| {
                let of = self.outcome_of(
                    plan,
                    instance,
                    started,
                    because,
                    (because == EndedBecause::Succeeded).then_some(0),
                );
                Outcome { useful: span(useful), saved: span(useful), working_since, ..of }
            };
            let dir = dir_of(&self.dir, plan);
            if self.is_gone(plan) {
                // With a notice there is a last checkpoint, and its heartbeat.
                let kept = if self.market.lock().unwrap().rude { saved } else { useful };
                let last = Status {
                    useful: span(useful),
                    saved: span(kept),
                    working_since,
                    ..self.status(instance, started, sequence)
                };
                dir.put_status(plan.attempt, &last, false).await.unwrap();
                self.market.lock().unwrap().done = before + kept;
                return self.end(instance, "Server.SpotInstanceTermination: no capacity");
            }
            let wishes = Wishes::of(&dir.requests().await.unwrap());
            let moved = wishes
                .moves
                .filter(|wish| wish.attempt == plan.attempt)
                .map(|_| EndedBecause::Moved);
            let over = (before + useful >= whole).then_some(EndedBecause::Succeeded);
            if let Some(because) = over.or(wishes.end.map(|wish| wish.because())).or(moved) {
                self.market.lock().unwrap().done = before + useful;
                let _ = dir.create_outcome(&end(because)).await.unwrap();
                return self.end(instance, "Client.InstanceInitiatedShutdown: done");
            }
            let beat = Status {
                useful: span(useful),
                saved: span(saved),
                working_since,
                ..self.status(instance, started, sequence)
            };
            dir.put_status(plan.attempt, &beat, false).await.unwrap();
        }
    }
}
