//! The spot prices of the pools that jobs run in, for the marks of their plots.
//!
//! ```text
//! plot ─> the last answer, at once
//!     └─ none, or an old one ─> EC2, beside ─> the next plot
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::market::{CloudKind, Market, Offer, PriceHistory, elapsed};
use crate::wire::Workstation;

/// The newest changes of price in a plot that have a mark. More make the page heavy.
pub const MARKED_MAX: usize = 100;

/// EC2 changes a spot price a few times a day.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// A silent region must not keep its task.
const PATIENCE: Duration = Duration::from_secs(60);

/// Attempts whose prices are kept. A person has few pages open.
const ATTEMPTS_MAX: usize = 32;

/// When a machine ran in its pool. No end: it still runs.
#[derive(Clone, Copy, Debug)]
pub struct PoolTime {
    pub from: Timestamp,
    pub to: Option<Timestamp>,
}

/// The last answer of EC2 for each attempt.
#[derive(Clone, Default)]
pub struct PoolPrices(Arc<Mutex<BTreeMap<PoolSince, PoolAnswer>>>);

/// The zone, the type, and the beginning.
type PoolSince = (String, String, Timestamp);

#[derive(Clone, Default)]
struct PoolAnswer {
    asked: Timestamp,
    history: Option<Arc<PriceHistory>>,
}

impl PoolAnswer {
    /// The prices of an ended attempt change no more.
    fn is_due(&self, time: PoolTime, now: Timestamp) -> bool {
        let is_last = self.history.is_some() && time.to.is_some_and(|to| to < self.asked);
        // A clock that was set back must not keep it.
        !is_last && (self.asked > now || elapsed(self.asked, now) >= KEPT)
    }
}

impl PoolPrices {
    /// The prices of a spot machine of EC2, as far as they are known. No page waits for EC2.
    pub fn known(
        &self,
        workstation: &Workstation,
        offer: &Offer,
        time: PoolTime,
        now: Timestamp,
    ) -> Option<Arc<PriceHistory>> {
        if (offer.cloud, offer.market) != (CloudKind::Aws, Market::Spot) {
            return None;
        }
        let key = (offer.zone.to_string(), offer.instance_type.clone(), time.from);
        let last = self.answers().get(&key).cloned();
        if last.as_ref().is_none_or(|last| last.is_due(time, now)) {
            self.ask(workstation.clone(), offer.clone(), key, now);
        }
        last.and_then(|last| last.history)
    }

    /// An answer that does not come leaves the last one, and is asked for again later.
    fn ask(&self, workstation: Workstation, offer: Offer, key: PoolSince, now: Timestamp) {
        let mut answers = self.answers();
        if answers.len() >= ATTEMPTS_MAX && !answers.contains_key(&key) {
            answers.clear();
        }
        answers.entry(key.clone()).or_default().asked = now;
        drop(answers);
        let all = self.clone();
        tokio::spawn(async move {
            let asked = workstation.ec2_spot_prices(&offer, key.2);
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(history)) => {
                    all.answers().entry(key).or_default().history = Some(Arc::new(history));
                }
                Ok(Err(error)) => tracing::debug!("no spot prices for a plot: {error}"),
                Err(_) => tracing::debug!("no spot prices for a plot: EC2 is silent"),
            }
        });
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<PoolSince, PoolAnswer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Region, Zone};

    #[test]
    fn prices_are_asked_again_until_attempt_has_ended() {
        let at = |secs: i64| Timestamp::from_second(1_700_000_000 + secs).expect("a moment");
        let history =
            PriceHistory::new(Region::new("us-east-1"), Zone::new("us-east-1a"), "g5", Vec::new());
        let told = PoolAnswer { asked: at(100), history: Some(Arc::new(history)) };
        let untold = PoolAnswer { history: None, ..told.clone() };
        let (runs, ended) = (None, Some(at(90)));
        for (answer, to, now, is_due) in [
            (&told, runs, 699, false),
            (&told, runs, 700, true),
            (&told, runs, 99, true),
            (&told, ended, 7_000, false),
            // It was asked while the machine ran.
            (&told, Some(at(200)), 7_000, true),
            (&untold, ended, 699, false),
            (&untold, ended, 700, true),
        ] {
            let time = PoolTime { from: at(0), to };
            assert_eq!(answer.is_due(time, at(now)), is_due, "{to:?}, {now}");
        }
    }
}
