//! Tests a bid rule on past prices, at many moments, each with only the prices before it.
//!
//! `bid` has the rule itself.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::bid;
use crate::market::{Offer, PriceHistory, PriceRule};

/// Time between two moments. EC2 changes a price a few times a day.
const STEP: Duration = Duration::from_secs(6 * 3600);

/// How long a machine is followed after its purchase.
const FOLLOWED: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backtest {
    pub moments: usize,
    /// Share of them with a bid at or above the price, so that a launch was possible.
    pub launchable: f64,
    /// Share of the launchable moments at which the price exceeded the bid within a day.
    pub exceeded_within_a_day: f64,
    /// Mean of bid divided by price at the launchable moments.
    pub headroom: f64,
}

/// `None`: the series is too short, or lacks the rule's data.
pub fn backtest(
    rule: PriceRule,
    offer: &Offer,
    history: &PriceHistory,
    from: Timestamp,
    to: Timestamp,
) -> Option<Backtest> {
    let (mut moments, mut launchable, mut exceeded, mut headroom) =
        (0_usize, 0_usize, 0_usize, 0.0);
    let mut now = from;
    while let Ok(followed_to) = now.checked_add(FOLLOWED) {
        if followed_to > to {
            break;
        }
        if let Some(price) = history.at(now)
            && let Ok(bid) = bid::bid(rule, &Offer { price, ..offer.clone() }, Some(history), now)
        {
            moments += 1;
            if bid.price >= price {
                launchable += 1;
                headroom += bid.price.per_hour().dollars() / price.per_hour().dollars();
                exceeded += usize::from(history.first_above(bid.price, now, followed_to).is_some());
            }
        }
        now = now.checked_add(STEP).ok()?;
    }
    let share = |some: usize, of: usize| if of == 0 { 0.0 } else { some as f64 / of as f64 };
    (moments > 0).then(|| Backtest {
        moments,
        launchable: share(launchable, moments),
        exceeded_within_a_day: share(exceeded, launchable),
        headroom: if launchable == 0 { 0.0 } else { headroom / launchable as f64 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Arch, CloudKind, Market, PricePoint, Region, Usd, UsdPerHour, Zone};

    const DAY: u64 = 86_400;

    fn at(secs: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(secs)
    }

    fn usd(dollars: &str) -> UsdPerHour {
        UsdPerHour::new(dollars.parse::<Usd>().unwrap())
    }

    fn figures(rule: &str) -> Option<Backtest> {
        let points = [(0, "0.4"), (2 * DAY, "0.9"), (3 * DAY, "0.4")]
            .map(|(secs, price)| PricePoint { at: at(secs), price: usd(price) });
        let history = PriceHistory::new(Region::new("r"), Zone::new("z"), "t", points.to_vec());
        let offer = Offer {
            cloud: CloudKind::Aws,
            region: Region::new("r"),
            zone: Zone::new("z"),
            instance_type: "t".into(),
            gpus: 1,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 4,
            arch: Arch::X86_64,
            market: Market::Spot,
            price: usd("0.4"),
            extras: UsdPerHour::ZERO,
            on_demand: Some(usd("1")),
        };
        backtest(rule.parse().unwrap(), &offer, &history, at(0), at(5 * DAY))
    }

    #[test]
    fn rule_is_judged_by_what_came_after_each_moment() {
        // Sixteen quarters, plus the last moment with a full day after it; the price is 0.9 at four
        // of them.
        let half = figures("0.5").unwrap();
        assert_eq!((half.moments, half.launchable), (17, 13.0 / 17.0));
        // The three moments within a day before the rise.
        assert!((half.exceeded_within_a_day - 3.0 / 13.0).abs() < 1e-9, "{half:?}");
        assert!((half.headroom - 1.25).abs() < 1e-9);
        let full = figures("100% of on-demand").unwrap();
        assert_eq!((full.launchable, full.exceeded_within_a_day), (1.0, 0.0));
        assert_eq!(figures("0.1").unwrap().launchable, 0.0);
        assert!(figures("auto").unwrap().launchable > 0.99);
    }
}
