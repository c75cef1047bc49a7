//! Spot prices of one pool over time, as a step function.
//!
//! A price holds until the next point. All figures are therefore weighted by time, not by the
//! number of points.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Region, UsdPerHour, Zone, elapsed};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PricePoint {
    pub at: Timestamp,
    pub price: UsdPerHour,
}

/// The spot prices of one type in one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceHistory {
    pub region: Region,
    pub zone: Zone,
    pub instance_type: String,
    /// Sorted by time, without duplicates.
    points: Vec<PricePoint>,
}

impl PriceHistory {
    /// Takes points in any order; of two at the same time, the later in the list counts.
    pub fn new(
        region: Region,
        zone: Zone,
        instance_type: impl Into<String>,
        mut points: Vec<PricePoint>,
    ) -> Self {
        points.sort_by_key(|point| point.at);
        points.reverse();
        points.dedup_by_key(|point| point.at);
        points.reverse();
        PriceHistory { region, zone, instance_type: instance_type.into(), points }
    }

    pub fn points(&self) -> &[PricePoint] {
        &self.points
    }

    /// The price at a moment; `None` before the first point.
    pub fn at(&self, moment: Timestamp) -> Option<UsdPerHour> {
        let after = self.points.partition_point(|point| point.at <= moment);
        Some(self.points.get(after.checked_sub(1)?)?.price)
    }

    /// The current price.
    pub fn newest(&self) -> Option<PricePoint> {
        self.points.last().copied()
    }
}

impl PriceHistory {
    /// The prices between two moments, each with its duration in seconds. Time before the first
    /// point is left out.
    pub fn held(&self, from: Timestamp, to: Timestamp) -> Vec<(UsdPerHour, f64)> {
        let ends = self.points.iter().skip(1).map(|point| point.at).chain([to]);
        let spans = self
            .points
            .iter()
            .zip(ends)
            .map(|(point, end)| (point.price, point.at.max(from), end.min(to)));
        spans
            .filter(|(_, begin, end)| begin < end)
            .map(|(price, begin, end)| (price, end.duration_since(begin).as_secs_f64()))
            .collect()
    }

    /// The prices from a moment on, each with its duration in whole milliseconds; they sum to
    /// `length`. The newest price continues. `None`: the price at that moment is unknown.
    pub fn steps(&self, from: Timestamp, length: Duration) -> Option<Vec<(UsdPerHour, Duration)>> {
        self.at(from)?;
        let millis = |duration: Duration| {
            Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        };
        let length = millis(length);
        let begins: Vec<Duration> =
            self.points.iter().map(|point| millis(elapsed(from, point.at)).min(length)).collect();
        let ends = begins.iter().skip(1).copied().chain([length]);
        let steps = self
            .points
            .iter()
            .zip(&begins)
            .zip(ends)
            .map(|((point, begin), end)| (point.price, end.saturating_sub(*begin)));
        Some(steps.filter(|(_, held)| !held.is_zero()).collect())
    }

    /// The price that the series did not exceed for this percentage of the time, [0, 100]. `None`:
    /// that time is unknown.
    pub fn quantile(&self, percentile: f64, from: Timestamp, to: Timestamp) -> Option<UsdPerHour> {
        let mut held = self.held(from, to);
        held.sort_by_key(|(price, _)| *price);
        let wanted =
            held.iter().map(|(_, secs)| secs).sum::<f64>() * (percentile / 100.0).clamp(0.0, 1.0);
        let mut passed = 0.0;
        for (price, secs) in &held {
            passed += secs;
            // A rounding error of a microsecond must not select the next price.
            if passed >= wanted - 1e-6 {
                return Some(*price);
            }
        }
        held.last().map(|(price, _)| *price)
    }

    /// The price at a moment, if known, and its later changes.
    #[must_use]
    pub fn since(&self, from: Timestamp) -> PriceHistory {
        let held = self.points.partition_point(|point| point.at <= from).saturating_sub(1);
        PriceHistory { points: self.points[held..].to_vec(), ..self.clone() }
    }

    /// The changes of price after a moment, the newest first, each after the price before it. EC2
    /// also repeats an old price, which is no change.
    pub fn changes(&self, from: Timestamp) -> impl Iterator<Item = (UsdPerHour, PricePoint)> {
        let pairs = self.points.windows(2).rev().map(|pair| (pair[0].price, pair[1]));
        pairs.filter(move |(before, point)| *before != point.price && point.at > from)
    }

    /// Share of the time with a price above the bid, 0 to 1. `None`: that time is unknown.
    pub fn share_above(&self, bid: UsdPerHour, from: Timestamp, to: Timestamp) -> Option<f64> {
        let held = self.held(from, to);
        let total: f64 = held.iter().map(|(_, secs)| secs).sum();
        // `sum()` of an empty iterator is -0.0, which would show; `fold` starts at 0.
        let above = held
            .iter()
            .filter(|(price, _)| *price > bid)
            .fold(0.0, |above, (_, secs)| above + secs);
        (total > 0.0).then(|| above / total)
    }

    /// When the price first exceeds a bid between two moments: EC2 then interrupts a machine with
    /// that bid. Time before the first point is left out.
    pub fn first_above(
        &self,
        bid: UsdPerHour,
        from: Timestamp,
        to: Timestamp,
    ) -> Option<Timestamp> {
        let ends = self.points.iter().skip(1).map(|point| point.at).chain([to]);
        let above = self
            .points
            .iter()
            .zip(ends)
            .find(|(point, end)| point.price > bid && *end > from && point.at < to);
        above.map(|(point, _)| point.at.max(from))
    }

    /// How often the price rose above a bid in that time.
    pub fn crossings(&self, bid: UsdPerHour, from: Timestamp, to: Timestamp) -> usize {
        let prices: Vec<UsdPerHour> =
            self.held(from, to).into_iter().map(|(price, _)| price).collect();
        prices.windows(2).filter(|pair| pair[0] <= bid && pair[1] > bid).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(secs)
    }

    fn price(dollars: &str) -> UsdPerHour {
        UsdPerHour::new(dollars.parse().unwrap())
    }

    fn series() -> PriceHistory {
        let points = [(50, "3"), (0, "1"), (90, "2")]
            .map(|(secs, dollars)| PricePoint { at: at(secs), price: price(dollars) });
        PriceHistory::new(Region::new("r"), Zone::new("z"), "t", points.to_vec())
    }

    #[test]
    fn price_holds_until_the_next() {
        let series = series();
        assert_eq!(series.at(at(49)), Some(price("1")));
        assert_eq!(series.at(at(50)), Some(price("3")));
        assert_eq!(series.at(at(1000)), Some(price("2")));
        assert_eq!(
            series.held(at(40), at(100)),
            [(price("1"), 10.0), (price("3"), 40.0), (price("2"), 10.0)]
        );
    }

    #[test]
    fn changes_are_newest_first_without_repeated_prices() {
        let points = [(0, "1"), (10, "1"), (20, "2"), (30, "2"), (40, "1")]
            .map(|(secs, dollars)| PricePoint { at: at(secs), price: price(dollars) });
        let series = PriceHistory::new(Region::new("r"), Zone::new("z"), "t", points.to_vec());
        let changes = |from| {
            let told = |(before, point): (UsdPerHour, PricePoint)| (before, point.at, point.price);
            series.changes(at(from)).map(told).collect::<Vec<_>>()
        };
        let (up, down) = ((price("1"), at(20), price("2")), (price("2"), at(40), price("1")));
        assert_eq!(changes(0), [down, up]);
        assert_eq!(changes(20), [down]);
        assert_eq!(changes(40), []);
    }

    #[test]
    fn steps_are_the_whole_length_and_the_newest_price_holds_on() {
        let (series, secs) = (series(), Duration::from_secs);
        let half = at(40) + Duration::from_millis(500);
        let steps = [
            (price("1"), Duration::from_millis(9500)),
            (price("3"), secs(40)),
            (price("2"), Duration::from_millis(30_500)),
        ];
        assert_eq!(series.steps(half, secs(80)), Some(steps.to_vec()));
        assert_eq!(series.steps(at(50), secs(10)), Some(vec![(price("3"), secs(10))]));
        assert_eq!(series.steps(at(500), secs(10)), Some(vec![(price("2"), secs(10))]));
        let before = Timestamp::UNIX_EPOCH - secs(1);
        assert_eq!(
            series.steps(before, secs(10)),
            None,
            "what held before the first point is not known"
        );
    }

    #[test]
    fn quantiles_are_weighted_by_time() {
        let series = series();
        // 50 s at 1, 10 s at 2, 40 s at 3.
        for (percentile, dollars) in
            [(0.0, "1"), (50.0, "1"), (51.0, "2"), (60.0, "2"), (61.0, "3"), (100.0, "3")]
        {
            assert_eq!(
                series.quantile(percentile, at(0), at(100)),
                Some(price(dollars)),
                "p{percentile}"
            );
        }
        assert_eq!(series.quantile(50.0, at(0), at(0)), None);
        assert_eq!(series.share_above(price("2"), at(0), at(100)), Some(0.4));
        assert_eq!(series.crossings(price("2"), at(0), at(100)), 1);
        assert_eq!(series.crossings(price("3"), at(0), at(100)), 0);
        assert_eq!(series.first_above(price("1"), at(0), at(100)), Some(at(50)));
        assert_eq!(series.first_above(price("2"), at(60), at(100)), Some(at(60)));
        assert_eq!(series.first_above(price("2"), at(90), at(100)), None);
        assert_eq!(series.first_above(price("1"), at(0), at(50)), None);
    }
}
