//! The chance to get a spot machine now, by what earlier jobs of this job root have learned.
//!
//! Not here: learning it (`controller`), or the law behind it (`policy::market`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;

use super::price_row::PriceRow;
use crate::jobdir::{self, layout};
use crate::market::{Span, elapsed};
use crate::policy::market::pool_history::Pool;
use crate::wire::{ClockHandle, StoreHandle};

/// Pools that are read for one page. Each costs a request; the cheapest stand first.
const POOLS_MAX: usize = 60;

const READS_IN_FLIGHT: usize = 16;

/// The prices are there, and a slow job root must not hold them back.
const PATIENCE: Duration = Duration::from_secs(2);

/// A longer life makes no difference to a person.
const LIFE_HOURS_MAX: f64 = 48.0;

/// The memory of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolChance {
    /// The chance of capacity now, 0 to 1.
    pub now: f64,
    /// How long capacity taken now lasts on the average.
    pub life_hours: f64,
    /// The time since the newest look. `None`: there was none.
    pub looked_ago: Option<Span>,
    /// The longest of the newest starts, from the launch to work.
    pub start: Option<Span>,
}

impl PoolChance {
    fn of(pool: &Pool, now: Timestamp) -> PoolChance {
        let since = pool.hours_since_look(now);
        PoolChance {
            now: pool.spells.chance_there(since),
            life_hours: pool.spells.life_hours(LIFE_HOURS_MAX),
            looked_ago: pool.looked.map(|at| Span::from_secs(elapsed(at, now).as_secs())),
            start: pool.starts.iter().copied().max(),
        }
    }

    /// `82 %, lasts about 5h; seen 12m ago`
    pub fn text(&self) -> String {
        let life = Span::from_secs((self.life_hours * 60.0).round() as u64 * 60);
        let seen = self.looked_ago.map(|ago| format!("; seen {ago} ago")).unwrap_or_default();
        format!("{:.0} %, lasts about {life}{seen}", self.now * 100.0)
    }
}

/// The zone and the type of a pool.
pub type PoolKey = (String, String);

/// The memories of the pools of these rows. One that cannot be read in `PATIENCE` is none.
pub async fn pool_chances(
    store: &StoreHandle,
    rows: &[PriceRow],
    clock: &ClockHandle,
) -> BTreeMap<PoolKey, PoolChance> {
    let now = clock.now();
    let spot = rows.iter().filter(|row| row.spot.is_some()).take(POOLS_MAX);
    let wanted: Vec<PoolKey> =
        spot.map(|row| (row.zone.to_string(), row.instance_type.clone())).collect();
    let read = |key: PoolKey| {
        let store = Arc::clone(store);
        async move {
            let record = layout::pool(&key.0, &key.1);
            let bytes = store.get(&record).await.ok().flatten()?;
            let pool: Pool = jobdir::decode(&record, &bytes).ok()?;
            Some((key, PoolChance::of(&pool, now)))
        }
    };
    let read = stream::iter(wanted).map(read).buffer_unordered(READS_IN_FLIGHT);
    let read = read.take_until(clock.sleep(PATIENCE));
    read.filter_map(std::future::ready).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_that_was_seen_is_more_certain_than_an_unknown_one() {
        let now = Timestamp::from_second(1_700_000_000).expect("a moment");
        let mut pool = Pool::new("us-east-1a", "g5.xlarge");
        let unknown = PoolChance::of(&pool, now);
        assert_eq!((unknown.looked_ago, unknown.start), (None, None));
        assert!((unknown.now - 0.5).abs() < 0.01, "{unknown:?}");
        pool.spells.look(0.0, Some(true));
        pool.looked = Some(now);
        pool.starts = vec![Span::from_secs(200), Span::from_secs(240)];
        let seen = PoolChance::of(&pool, now);
        assert!((seen.now - 1.0).abs() < 0.01, "{seen:?}");
        assert_eq!(seen.start, Some(Span::from_secs(240)));
        assert!(seen.text().starts_with("100 %, lasts about "), "{}", seen.text());
        assert!(seen.text().ends_with("; seen 0s ago"), "{}", seen.text());
    }
}
