//! The offers of the simulated EC2, with spot capacity and prices over time.
//!
//! ```text
//!   worlds of the laws   two zones, one type, constant prices; capacity by faults or by recordings
//!   a user's job         one pool: a course of capacity and prices, which interrupts machines
//! ```
//! Not here: a call that fails, or the end of a machine (that is [`super::cloud_port`] and
//! [`super::machines`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::cloud_port::REGION;
use super::host::Host;
use super::world::World;
use crate::market::{
    Arch, CloudKind, Market, Offer, PriceHistory, PricePoint, Region, Usd, UsdPerHour, Zone,
    elapsed,
};
use crate::sim::faults::fault_plan::reclaim;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::virtual_time::at;

pub const ZONES: [&str; 2] = ["us-east-1a", "us-east-1b"];

/// Prices of an hour in the worlds of the laws: on demand, spot, and beside the machine.
const ON_DEMAND: &str = "1.006";
const SPOT: &str = "0.402";
const EXTRAS: &str = "0.0159";

const TYPE: &str = "g5.xlarge";

/// EC2's notice, when capacity is gone or the price is above the bid.
const NOTICE: Duration = Duration::from_secs(120);

/// How much price history there is before a world begins: as long as EC2 keeps it.
const KNOWN_BEFORE: Duration = Duration::from_secs(90 * 24 * 3600);

/// The market of a world, from its beginning to its end.
pub struct SimMarket {
    offers: Vec<Offer>,
    /// By zone.
    courses: Vec<(&'static str, Course)>,
    /// True after the end of all faults.
    has_room: AtomicBool,
}

/// How the spot market of one pool goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The time between two entries of `there`.
    pub tick: Duration,
    /// Whether there is capacity, tick by tick. It repeats. Many worlds begin at different places
    /// of one recording.
    pub there: Arc<[bool]>,
    /// The entry with which it begins.
    pub first: usize,
    /// The price of an hour; `None`: constant.
    pub prices: Option<Arc<PriceRound>>,
    /// The time in those prices at which it begins.
    pub begins: Duration,
}

/// Recorded prices, which repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct PriceRound {
    /// Each price, and its start relative to the first.
    points: Vec<(Duration, UsdPerHour)>,
    length: Duration,
}

/// A shorter recording holds its last price until then. A round of a second would make loops
/// endless.
const ROUND_MIN: Duration = Duration::from_secs(3600);

impl PriceRound {
    /// From a recording and its end: until then its last price held. `None`: it is empty.
    pub fn of(recorded: &PriceHistory, made: Option<Timestamp>) -> Option<PriceRound> {
        let (first, last) = (recorded.points().first()?, recorded.newest()?);
        let length = elapsed(first.at, made.unwrap_or(last.at).max(last.at)).max(ROUND_MIN);
        let points = recorded
            .points()
            .iter()
            .map(|point| (elapsed(first.at, point.at), point.price))
            .collect();
        Some(PriceRound { points, length })
    }

    pub fn length(&self) -> Duration {
        self.length
    }

    /// The round of a moment, and the time since that round began.
    fn within(&self, moment: Duration) -> (u32, Duration) {
        let round = u32::try_from(moment.as_nanos() / self.length.as_nanos()).unwrap_or(u32::MAX);
        (round, moment.saturating_sub(self.length.saturating_mul(round)))
    }

    fn price(&self, moment: Duration) -> UsdPerHour {
        let (_, within) = self.within(moment);
        let after = self.points.partition_point(|(since, _)| *since <= within);
        self.points[after.saturating_sub(1)].1
    }

    /// When it changes next.
    fn next(&self, moment: Duration) -> Duration {
        let (round, within) = self.within(moment);
        let later = self.points.get(self.points.partition_point(|(since, _)| *since <= within));
        self.length
            .saturating_mul(round)
            .saturating_add(later.map_or(self.length, |(since, _)| *since))
    }

    /// All changes until a moment.
    fn until(&self, moment: Duration) -> impl Iterator<Item = (Duration, UsdPerHour)> {
        let rounds = (0..=self.within(moment).0).map(|round| self.length.saturating_mul(round));
        rounds
            .flat_map(|began| {
                self.points.iter().map(move |(since, price)| (began + *since, *price))
            })
            .take_while(move |(since, _)| *since <= moment)
    }
}

impl Course {
    fn is_there(&self, now: Duration) -> bool {
        let look = (now.as_nanos() / self.tick.as_nanos().max(1)) as usize;
        self.there.is_empty() || self.there[(self.first + look) % self.there.len()]
    }

    fn price(&self, now: Duration) -> Option<UsdPerHour> {
        self.prices.as_ref().map(|prices| prices.price(self.begins + now))
    }

    /// When its price changes next or its next tick begins.
    fn next(&self, now: Duration) -> Duration {
        let look = now.as_nanos() / self.tick.as_nanos().max(1) + 1;
        let look = self.tick.saturating_mul(u32::try_from(look).unwrap_or(u32::MAX));
        let price = self
            .prices
            .as_ref()
            .map(|prices| prices.next(self.begins + now).saturating_sub(self.begins));
        price.map_or(look, |price| price.min(look))
    }
}

fn dollars(text: &str) -> UsdPerHour {
    UsdPerHour::new(text.parse().expect("a price of ours"))
}

fn offer(
    zone: &str,
    market: Market,
    (spot, on_demand, extras): (UsdPerHour, UsdPerHour, UsdPerHour),
) -> Offer {
    Offer {
        cloud: CloudKind::Aws,
        region: Region::new(REGION),
        zone: Zone::new(zone),
        instance_type: TYPE.into(),
        gpus: 1,
        gpu_model: Some("A10G".into()),
        gpu_memory_mib: Some(24_576),
        vcpus: 4,
        arch: Arch::X86_64,
        market,
        price: if market == Market::Spot { spot } else { on_demand },
        extras,
        on_demand: Some(on_demand),
    }
}

const MARKETS: [Market; 2] = [Market::Spot, Market::OnDemand];

impl SimMarket {
    /// In the worlds of the laws.
    pub fn of_the_laws() -> Self {
        let prices = (dollars(SPOT), dollars(ON_DEMAND), dollars(EXTRAS));
        let offers = ZONES
            .iter()
            .flat_map(|zone| MARKETS.map(|market| offer(zone, market, prices)))
            .collect();
        SimMarket { offers, courses: Vec::new(), has_room: AtomicBool::new(false) }
    }

    /// The same, but the capacity of each zone follows one of these recordings from a random start.
    pub fn recorded(recordings: &[Course], dice: &Dice) -> Self {
        let begun = |zone| {
            let course = &recordings[dice.roll(recordings.len() as u64) as usize];
            (
                zone,
                Course {
                    first: dice.roll(course.there.len().max(1) as u64) as usize,
                    ..course.clone()
                },
            )
        };
        SimMarket { courses: ZONES.map(begun).into(), ..SimMarket::of_the_laws() }
    }

    /// For a user's job: one pool, at prices that include `extras` (disk and address). They are
    /// separate here, because an hour that EC2 gives for free still costs them, and recorded prices
    /// lack them.
    pub fn on(course: Course, spot: UsdPerHour, on_demand: UsdPerHour, extras: UsdPerHour) -> Self {
        let alone = |all_in: UsdPerHour| {
            UsdPerHour::new((all_in.per_hour() - extras.per_hour()).max(Usd::ZERO))
        };
        let prices = (alone(spot), alone(on_demand), extras);
        SimMarket {
            offers: MARKETS.map(|market| offer(ZONES[0], market, prices)).into(),
            courses: vec![(ZONES[0], course)],
            has_room: AtomicBool::new(false),
        }
    }

    /// The offers at a moment. EC2 lists offers without capacity too: only a launch shows it.
    pub fn offers(&self, markets: &[Market], now: Duration) -> Vec<Offer> {
        let sold = self.offers.iter().filter(|offer| markets.contains(&offer.market));
        sold.map(|offer| Offer { price: self.price(offer, now), ..offer.clone() }).collect()
    }

    fn course(&self, offer: &Offer) -> Option<&Course> {
        let of_it = self.courses.iter().find(|(zone, _)| *zone == offer.zone.as_str());
        of_it.map(|(_, course)| course).filter(|_| offer.market == Market::Spot)
    }

    fn price(&self, offer: &Offer, now: Duration) -> UsdPerHour {
        self.course(offer).and_then(|course| course.price(now)).unwrap_or(offer.price)
    }

    /// Whether its market gives a machine now.
    pub fn has_capacity(&self, offer: &Offer, now: Duration) -> bool {
        self.course(offer).is_none_or(|course| course.is_there(now))
            || self.has_room.load(Ordering::Relaxed)
    }

    /// From now on every launch finds capacity.
    pub fn make_room(&self) {
        self.has_room.store(true, Ordering::Relaxed);
    }

    /// Whether an hour on the spot market now costs more than `bid`.
    pub fn is_dearer_than(&self, bid: Option<UsdPerHour>, offer: &Offer, now: Duration) -> bool {
        let bid = bid.or(offer.on_demand);
        offer.market == Market::Spot && bid.is_some_and(|bid| self.price(offer, now) > bid)
    }

    /// The price history of an offer until now, as EC2 lists it; `None`: constant.
    pub fn moving_prices(&self, offer: &Offer, now: Duration) -> Option<PriceHistory> {
        let course = self.course(offer)?;
        let (prices, begins) = (course.prices.as_ref()?, course.begins);
        // Records from before this world are its past. Before them the first price held.
        let moment = |since: Duration| match since.checked_sub(begins) {
            Some(later) => at(later),
            None => at(Duration::ZERO).saturating_sub(begins - since).unwrap_or(Timestamp::MIN),
        };
        let first = PricePoint {
            at: before().min(moment(Duration::ZERO)),
            price: prices.price(Duration::ZERO),
        };
        let told = prices
            .until(begins + now)
            .map(|(since, price)| PricePoint { at: moment(since), price });
        Some(PriceHistory::new(
            offer.region.clone(),
            offer.zone.clone(),
            &offer.instance_type,
            std::iter::once(first).chain(told).collect(),
        ))
    }

    /// The price histories that come with the offers. The worlds of the laws have none.
    pub fn histories(&self, now: Duration) -> Vec<PriceHistory> {
        let sold_by_course = self.offers.iter().filter(|offer| self.course(offer).is_some());
        sold_by_course
            .map(|offer| self.moving_prices(offer, now).unwrap_or_else(|| standing(offer)))
            .collect()
    }
}

fn before() -> Timestamp {
    at(Duration::ZERO).saturating_sub(KNOWN_BEFORE).unwrap_or(Timestamp::MIN)
}

fn standing(offer: &Offer) -> PriceHistory {
    let point = PricePoint { at: before(), price: offer.price };
    PriceHistory::new(offer.region.clone(), offer.zone.clone(), &offer.instance_type, vec![point])
}

/// Interrupts spot machines when capacity ends, or when the price rises above their bid.
pub async fn take_away(world: Arc<World>) {
    let mut taken = BTreeSet::new();
    loop {
        let now = world.timeline.now();
        let Some(next) = world.sold.courses.iter().map(|(_, course)| course.next(now)).min() else {
            return;
        };
        world.timeline.sleep(next.saturating_sub(now)).await;
        let now = world.timeline.now();
        let lost = world.ec2.look(|machines| {
            let spot = machines
                .iter()
                .filter(|machine| machine.offer.market == Market::Spot && machine.state().bills());
            let hosts = spot.filter_map(|machine| machine.host.clone());
            let sold = &world.sold;
            let is_lost = |host: &Arc<Host>| {
                let offer = &host.plan.offer;
                !sold.has_capacity(offer, now) || sold.is_dearer_than(host.plan.bid, offer, now)
            };
            hosts.filter(is_lost).collect::<Vec<_>>()
        });
        for host in lost.into_iter().filter(|host| taken.insert(host.id.clone())) {
            let world = Arc::clone(&world);
            tokio::task::spawn_local(
                async move { reclaim(&world, &host, Some(NOTICE), true).await },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(count * 60)
    }

    #[test]
    fn course_repeats_and_its_next_change_is_a_tick_or_a_price() {
        let point = |minute: u64, price: &str| PricePoint {
            at: at(minutes(minute)),
            price: dollars(price),
        };
        let recorded = PriceHistory::new(
            Region::new(REGION),
            Zone::new("z"),
            TYPE,
            vec![point(0, "0.4"), point(7, "0.9")],
        );
        let round =
            |made: u64| Arc::new(PriceRound::of(&recorded, Some(at(minutes(made)))).unwrap());
        assert_eq!(
            (round(0).length(), round(90).length()),
            (ROUND_MIN, minutes(90)),
            "the last price holds until the recording was made"
        );
        let course = Course {
            tick: minutes(5),
            there: [false, true].into(),
            first: 1,
            prices: Some(round(90)),
            begins: Duration::ZERO,
        };
        assert_eq!(
            [0, 4, 5, 9, 10, 15].map(|minute| course.is_there(minutes(minute))),
            [true, true, false, false, true, false]
        );
        assert_eq!(
            [0, 5, 7, 10, 88].map(|minute| course.next(minutes(minute))),
            [5, 7, 10, 15, 90].map(minutes)
        );
        let price = |minute: u64| course.price(minutes(minute)).unwrap();
        assert_eq!(
            [0, 6, 7, 89, 90, 96, 97].map(price),
            ["0.4", "0.4", "0.9", "0.9", "0.4", "0.4", "0.9"].map(dollars)
        );
        // A world that begins in the middle of a recording knows the prices before it.
        let later = SimMarket::on(
            Course { begins: minutes(60), ..course.clone() },
            dollars("0.4"),
            dollars("1"),
            UsdPerHour::ZERO,
        );
        let past = later.histories(Duration::ZERO).remove(0);
        assert_eq!(
            past.points().iter().map(|point| point.price).collect::<Vec<_>>(),
            ["0.4", "0.4", "0.9"].map(dollars)
        );
        assert_eq!(past.points()[2].at, at(Duration::ZERO) - minutes(53));
        let sold = SimMarket::on(course, dollars("0.5"), dollars("1.1"), dollars("0.1"));
        let spot = |minute| sold.offers(&[Market::Spot], minutes(minute)).remove(0);
        assert_eq!((spot(0).price, spot(8).price), (dollars("0.4"), dollars("0.9")));
        assert_eq!(
            (spot(0).hourly(), spot(8).hourly()),
            (dollars("0.5"), dollars("1")),
            "recorded is the machine alone"
        );
        assert!(!sold.is_dearer_than(None, &spot(0), minutes(8)), "no bid is the price on demand");
        assert!(
            sold.is_dearer_than(Some(dollars("0.5")), &spot(0), minutes(8))
                && !sold.is_dearer_than(Some(dollars("0.5")), &spot(0), minutes(6))
        );
        let known = |minute| sold.histories(minutes(minute))[0].points().len();
        assert_eq!((known(0), known(8)), (2, 3), "future prices are not known");
    }
}
