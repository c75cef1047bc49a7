//! The bill of EC2 for an instance, from its states.

use std::time::Duration;

use super::world::{Instance, State};

/// EC2 bills Linux by the second, and this much at least for each start.
const LEAST: Duration = Duration::from_secs(60);

/// A spot instance that EC2 itself takes back within this time costs nothing.
const FREE: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub struct Ledger {
    pub instance: String,
    pub kind: String,
    pub spot: bool,
    /// When it was `running`, since the false EC2 was started; the last one is open while it runs.
    pub spans: Vec<(Duration, Option<Duration>)>,
    /// EC2 took it back in its first hour.
    pub free: bool,
    now: Duration,
}

impl Ledger {
    pub fn running(&self) -> Duration {
        self.lengths().sum()
    }

    /// Whole seconds, a minute at least for each start; nothing is taken off for [`Ledger::free`].
    pub fn billed_seconds(&self) -> u64 {
        self.lengths()
            .map(|span| span.max(LEAST))
            .map(|span| span.as_secs() + u64::from(span.subsec_nanos() > 0))
            .sum()
    }

    fn lengths(&self) -> impl Iterator<Item = Duration> {
        self.spans.iter().map(|(from, to)| to.unwrap_or(self.now).saturating_sub(*from))
    }
}

impl Instance {
    pub(super) fn ledger(&self, now: Duration) -> Ledger {
        let mut spans: Vec<(Duration, Option<Duration>)> = Vec::new();
        for (at, state) in &self.history {
            match (state, spans.last_mut()) {
                (State::Running, Some((_, None))) => {}
                (State::Running, _) => spans.push((*at, None)),
                (_, Some((_, end @ None))) => *end = Some(*at),
                _ => {}
            }
        }
        let mut ledger = Ledger {
            instance: self.id.clone(),
            kind: self.item.at("instanceType").into(),
            spot: self.spot.is_some(),
            spans,
            free: false,
            now,
        };
        let reclaimed =
            self.reason.as_ref().is_some_and(|(code, _)| code.starts_with("Server.Spot"));
        ledger.free = reclaimed && ledger.running() < FREE;
        ledger
    }
}
