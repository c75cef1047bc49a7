//! Computes a bid, the most that a spot hour may cost, from a rule and a price history.
//!
//! A bid limits cost and gives no priority. Since 2017 EC2 changes spot prices slowly and
//! interrupts machines mostly for lack of capacity. A higher bid does not keep a machine. This
//! module makes no calls.

use jiff::Timestamp;

use crate::market::{Offer, PriceHistory, PriceRule, Span, UsdPerHour};

#[derive(Clone, Debug, PartialEq)]
pub struct Bid {
    pub price: UsdPerHour,
    /// Share of the window with a price above the bid, 0 to 1; `None`: no history.
    pub share_above: Option<f64>,
    /// How often the price rose above it in the window.
    pub crossings: Option<usize>,
    pub because: String,
}

/// From this ratio to on-demand on, a bid is shown as a factor, below as a percentage.
const TOLD_IN_TIMES: f64 = 2.0;

impl Bid {
    /// Remarks for the user: a bid above on-demand, how often it was exceeded, and its limits.
    pub fn beside(&self, offer: &Offer) -> Vec<String> {
        let dear = offer.on_demand.filter(|full| self.price > *full && *full > UsdPerHour::ZERO).map(|full| {
            let times = self.price.per_hour().dollars() / full.per_hour().dollars();
            let much = if times >= TOLD_IN_TIMES { format!("{times:.1} times") } else { format!("{:.0}% of", times * 100.0) };
            format!("the bid of {} is {much} the on-demand price of {full}: no machine is worth more than its on-demand price", self.price)
        });
        dear.into_iter().chain(self.told()).chain([HONEST.to_owned()]).collect()
    }

    /// How often the price was above it, if known.
    pub fn told(&self) -> Option<String> {
        Some(told(self.share_above?, self.crossings?, "that time"))
    }
}

/// How often a bid would have been exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exceeded {
    /// Beginning of the known, requested history.
    pub since: Timestamp,
    /// Share of the time since then with a price above the bid, 0 to 1.
    pub share_above: f64,
    pub crossings: usize,
}

impl Exceeded {
    /// `None`: nothing is known of that time.
    pub fn of(
        bid: UsdPerHour,
        history: &PriceHistory,
        from: Timestamp,
        to: Timestamp,
    ) -> Option<Exceeded> {
        let since = history.points().first()?.at.max(from);
        Some(Exceeded {
            since,
            share_above: history.share_above(bid, from, to)?,
            crossings: history.crossings(bid, from, to),
        })
    }

    /// `time` follows "of", like "the last 90d".
    pub fn told(&self, time: &str) -> String {
        told(self.share_above, self.crossings, time)
    }
}

fn told(share: f64, crossings: usize, time: &str) -> String {
    let times = if crossings == 1 { "once".to_owned() } else { format!("{crossings} times") };
    match share > 0.0 {
        false => format!("the price was never above the bid in {time}"),
        true => format!(
            "the price was above the bid for {:.1}% of {time}, and rose above it {times}",
            share * 100.0
        ),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoBid {
    #[error(
        "has no known on-demand price, which the bid would be reckoned from; name a price as `max_price`"
    )]
    OnDemandUnknown,
    #[error("has no known price history, and the bid is a quantile of it")]
    NoHistory,
}

/// The default window: the longest history that EC2 keeps.
pub const WINDOW: Span = Span::from_secs(90 * 86_400);

/// The factor of `auto` over the current price: the smallest, in steps of a twentieth, that fails
/// rarely. In every region of our 2019 to 2022 series, under 1 % of starts saw a higher price
/// within a day (docs/policies.md). With more, only a plan's maximum cost rises, and a budget
/// guarantees less time.
const AUTO_HEADROOM: f64 = 1.15;

/// The sentence for every bid.
pub const HONEST: &str = "most interruptions come from capacity, not from price: a higher bid pays more and keeps little longer";

/// The bid of a rule for an offer. It is at most the on-demand price if known, unless the user
/// gives a price or a share. If it is unknown, a quantile is not limited and says so.
///
/// # Errors
/// When data for the rule is missing.
pub fn bid(
    rule: PriceRule,
    offer: &Offer,
    history: Option<&PriceHistory>,
    now: Timestamp,
) -> Result<Bid, NoBid> {
    let (price, window, because) = match rule {
        PriceRule::Fixed(price) => {
            (UsdPerHour::new(price), WINDOW, "as it was asked for".to_owned())
        }
        PriceRule::PercentOfOnDemand(percent) => {
            let full = offer.on_demand.ok_or(NoBid::OnDemandUnknown)?;
            (
                scaled(full, percent / 100.0),
                WINDOW,
                format!("{percent}% of the on-demand price of {full}"),
            )
        }
        PriceRule::Quantile { percentile, window } => {
            let history = history.ok_or(NoBid::NoHistory)?;
            let quantile =
                history.quantile(percentile, back(now, window), now).ok_or(NoBid::NoHistory)?;
            let (price, capped) = capped(quantile, offer.on_demand);
            (
                price,
                window,
                format!(
                    "at or above the price {percentile}% of the time of the last {window}{capped}"
                ),
            )
        }
        PriceRule::Auto => {
            let full = offer.on_demand.ok_or(NoBid::OnDemandUnknown)?;
            let above = scaled(offer.price, AUTO_HEADROOM);
            if above < full {
                (above, WINDOW, format!("15% above the price now; on-demand is {full}"))
            } else {
                (full, WINDOW, "the on-demand price: above it spot would be no bargain".to_owned())
            }
        }
    };
    let from = back(now, window);
    Ok(Bid {
        price,
        share_above: history.and_then(|history| history.share_above(price, from, now)),
        crossings: history.map(|history| history.crossings(price, from, now)),
        because,
    })
}

/// The highest bid of a rule for an offer at any spot price; `None`: its on-demand price is
/// unknown.
pub fn most_ever(rule: PriceRule, offer: &Offer) -> Option<UsdPerHour> {
    match rule {
        PriceRule::Fixed(price) => Some(UsdPerHour::new(price)),
        PriceRule::PercentOfOnDemand(percent) => {
            offer.on_demand.map(|full| scaled(full, percent / 100.0))
        }
        PriceRule::Quantile { .. } | PriceRule::Auto => offer.on_demand,
    }
}

fn capped(price: UsdPerHour, on_demand: Option<UsdPerHour>) -> (UsdPerHour, &'static str) {
    match on_demand {
        Some(full) if full < price => (full, ", cut to the on-demand price"),
        Some(_) => (price, ""),
        None => (price, ", and no on-demand price is known that it could be cut to"),
    }
}

/// Rounded up to EC2's hundredth of a cent: a bid equal to the price must not fall below it.
fn scaled(price: UsdPerHour, factor: f64) -> UsdPerHour {
    let ten_thousandths = (price.per_hour().micros() as f64 * factor / 100.0).ceil() as i64;
    UsdPerHour::new(crate::market::Usd::from_micros(ten_thousandths * 100))
}

pub fn back(now: Timestamp, window: Span) -> Timestamp {
    now.saturating_sub(window.duration()).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::market::{Arch, CloudKind, Market, PricePoint, Region, Usd, Zone};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn usd(micros: i64) -> UsdPerHour {
        UsdPerHour::new(Usd::from_micros(micros))
    }

    fn offer(price: i64, on_demand: Option<i64>) -> Offer {
        Offer {
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
            price: usd(price),
            extras: UsdPerHour::ZERO,
            on_demand: on_demand.map(usd),
        }
    }

    /// Prices with their beginning in seconds before now.
    fn history(points: &[(u64, i64)]) -> PriceHistory {
        let points = points.iter().map(|(ago, price)| PricePoint {
            at: NOW - Duration::from_secs(*ago),
            price: usd(*price),
        });
        PriceHistory::new(Region::new("r"), Zone::new("z"), "t", points.collect())
    }

    #[test]
    fn each_rule_gives_its_bid() {
        let series = history(&[(100, 300_000), (40, 500_000), (10, 400_000)]);
        let bid = |rule: &str| {
            bid(rule.parse().unwrap(), &offer(400_000, Some(1_000_000)), Some(&series), NOW)
                .unwrap()
        };
        assert_eq!(bid("0.65").price, usd(650_000));
        assert_eq!(bid("80% of on-demand").price, usd(800_000));
        assert_eq!(bid("150% of on-demand").price, usd(1_500_000), "what the user says in words");
        assert_eq!(bid("p60 of 100s").price, usd(300_000), "weighted by time");
        assert_eq!(bid("p95 of 100s").price, usd(500_000));
        assert_eq!(bid("auto").price, usd(460_000));
        let quantile = bid("p60 of 100s");
        assert_eq!((quantile.share_above, quantile.crossings), (Some(0.4), Some(1)));
        assert_eq!(
            quantile.told().unwrap(),
            "the price was above the bid for 40.0% of that time, and rose above it once"
        );
        assert_eq!(bid("0.65").told().unwrap(), "the price was never above the bid in that time");
    }

    #[test]
    fn bid_above_on_demand_says_so_and_every_bid_what_it_is_not() {
        let beside = |rule: &str| {
            let offer = offer(400_000, Some(1_000_000));
            bid(rule.parse().unwrap(), &offer, None, NOW).unwrap().beside(&offer)
        };
        assert_eq!(beside("5").len(), 2);
        assert_eq!(
            beside("5")[0],
            "the bid of $5.00/h is 5.0 times the on-demand price of $1.00/h: no machine is worth more than its on-demand price"
        );
        assert!(
            beside("1.5")[0].starts_with("the bid of $1.50/h is 150% of the on-demand price"),
            "{:?}",
            beside("1.5")
        );
        assert_eq!(beside("0.9"), [HONEST]);
    }

    #[test]
    fn missing_data_of_rule_gives_no_bid() {
        let unknown =
            |rule: &str| bid(rule.parse().unwrap(), &offer(400_000, None), None, NOW).unwrap_err();
        assert_eq!(unknown("auto"), NoBid::OnDemandUnknown);
        assert_eq!(unknown("80% of on-demand"), NoBid::OnDemandUnknown);
        assert_eq!(unknown("p95 of 14d"), NoBid::NoHistory);
        assert!(bid("0.5".parse().unwrap(), &offer(400_000, None), None, NOW).is_ok());
    }

    proptest! {
        /// A quantile and `auto` stay at or below the on-demand price for any series. If it is
        /// unknown, `auto` gives no bid, and a quantile says that it is unlimited.
        #[test]
        fn never_above_on_demand_unless_said(
            points in prop::collection::vec((1_u64..100_000, 1_i64..5_000_000), 1..30),
            percentile in 0.0..100.0_f64, full in prop::option::weighted(0.8, 1_i64..3_000_000), price in 1_i64..5_000_000,
        ) {
            let (series, offer) = (history(&points), offer(price, full));
            let quantile = PriceRule::Quantile { percentile, window: Span::from_secs(200_000) };
            let (auto, quantile) = [PriceRule::Auto, quantile].map(|rule| bid(rule, &offer, Some(&series), NOW)).into();
            let quantile = quantile.unwrap();
            let says_uncut = quantile.because.ends_with("no on-demand price is known that it could be cut to");
            match full.map(usd) {
                Some(full) => prop_assert!(auto.unwrap().price <= full && quantile.price <= full && !says_uncut),
                None => prop_assert!(auto == Err(NoBid::OnDemandUnknown) && says_uncut, "{}", quantile.because),
            }
        }

        /// A higher percentile bids at least as much, and is exceeded for at most as long.
        #[test]
        fn more_percent_never_bids_less(points in prop::collection::vec((1_u64..100_000, 1_i64..5_000_000), 1..30), a in 0.0..100.0_f64, b in 0.0..100.0_f64) {
            let series = history(&points);
            let of = |percentile| {
                let rule = PriceRule::Quantile { percentile, window: Span::from_secs(200_000) };
                bid(rule, &offer(1, None), Some(&series), NOW).unwrap()
            };
            let (low, high) = (of(a.min(b)), of(a.max(b)));
            prop_assert!(low.price <= high.price && low.share_above >= high.share_above);
            // The price exceeds it for at most the rest of the percentile.
            prop_assert!(low.share_above.unwrap() <= 1.0 - a.min(b) / 100.0 + 1e-6);
        }

        /// A repeated price point has no extra weight.
        #[test]
        fn time_counts_and_not_the_points(points in prop::collection::vec((1_u64..100_000, 1_i64..5_000_000), 1..30), percentile in 0.0..100.0_f64) {
            let rule = PriceRule::Quantile { percentile, window: Span::from_secs(200_000) };
            let once = history(&points);
            let mut told: Vec<(u64, i64)> = points.clone();
            told.extend(once.points().iter().filter_map(|point| {
                let ago = u64::try_from(NOW.duration_since(point.at).as_secs()).ok()?;
                (ago > 1 && points.iter().all(|(other, _)| *other != ago - 1)).then_some((ago - 1, point.price.per_hour().micros()))
            }));
            let price = |series: &PriceHistory| bid(rule, &offer(1, None), Some(series), NOW).unwrap().price;
            prop_assert_eq!(price(&once), price(&history(&told)));
        }
    }
}
