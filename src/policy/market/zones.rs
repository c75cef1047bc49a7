//! Several zones at once: the cheapest zone, the value of the others, and when to change.
//!
//! ```text
//!   spells, price ─┬─> best: price x (1 + start / life) ───────────────┬─> deadline_choice
//!   of each zone   └─> others: has one capacity when this one's ends? ─┘     ─> a zone, a step
//! ```
//! The table of `remaining_cost` covers one zone. It gets two numbers about the others: the chance
//! that one has capacity when this one's ends, and how much sooner capacity returns if all are
//! watched. Zones are assumed independent. Zones of different regions nearly are; zones of one
//! region are less so.
//!
//! `deadline_choice` knows which answers are safe, `placement` handles refusals.

use super::capacity_periods::{ZoneSpells, age_of_rate, rate_at};
use super::deadline_choice::{Capacity, MarketFacts, MarketVerdict, MarketWatch, Others, Running};
use crate::market::UsdPerHour;

/// The longest life that matters: a day is as good as forever.
pub const LIFE_HOURS_MAX: f64 = 24.0;

/// Resolution of the chance of other zones: the table is solved again for each value.
const CHANCE_STEP: f64 = 0.05;

#[derive(Clone, Copy, Debug)]
pub struct Zone<'a> {
    pub spells: &'a ZoneSpells,
    /// Total cost of an hour.
    pub hourly: UsdPerHour,
    pub there: bool,
    pub hours_since_look: f64,
}

/// Cost of an hour of work on machines with this life: each life pays one start.
pub fn usd_per_useful_hour(hourly: UsdPerHour, start_hours: f64, life_hours: f64) -> f64 {
    hourly.per_hour().dollars() * (1.0 + start_hours / life_hours.max(1e-3))
}

/// Expected life of a machine taken now, for this much remaining work.
pub fn life_hours(spells: &ZoneSpells, work_left: Option<f64>) -> f64 {
    spells.life_hours(work_left.unwrap_or(LIFE_HOURS_MAX).clamp(0.1, LIFE_HOURS_MAX))
}

/// Cost of an hour of work on spot machines: each life pays one start and repeats unsaved work.
/// Times in hours.
///
/// With checkpoints, half of the work at risk is lost on average. Without saves, the work begins
/// anew until one machine lasts long enough. That is a renewal process: each try costs a start and
/// the shorter of life and work.
pub fn usd_per_hour_of_work(
    spells: &ZoneSpells,
    hourly: UsdPerHour,
    start: f64,
    unsaved: f64,
    work: f64,
) -> f64 {
    let work = work.clamp(0.1, LIFE_HOURS_MAX);
    let life = life_hours(spells, Some(work));
    if unsaved < work {
        return usd_per_useful_hour(hourly, start + unsaved / 2.0, life);
    }
    hourly.per_hour().dollars() * (start + life) / (work * spells.outlives(work).max(1e-9))
}

/// The zone with the cheapest hour of work, among those with capacity if there are any.
pub fn best(zones: &[Zone<'_>], start_hours: f64, work_left: Option<f64>) -> Option<usize> {
    let some_there = zones.iter().any(|zone| zone.there);
    let usd = |zone: &Zone<'_>| {
        usd_per_useful_hour(zone.hourly, start_hours, life_hours(zone.spells, work_left))
    };
    let asked = zones.iter().enumerate().filter(|(_, zone)| zone.there || !some_there);
    asked.min_by(|(_, a), (_, b)| usd(a).total_cmp(&usd(b))).map(|(index, _)| index)
}

/// The chance that one of these has capacity, this many hours from now.
pub fn chance_there<'a>(zones: impl Iterator<Item = Zone<'a>>, in_hours: f64) -> f64 {
    1.0 - zones
        .map(|zone| 1.0 - zone.spells.chance_there(zone.hours_since_look + in_hours))
        .product::<f64>()
}

/// The value of the other zones for the chosen one.
pub fn others<'a>(
    chosen: &ZoneSpells,
    others: impl Iterator<Item = Zone<'a>> + Clone,
    work_left: Option<f64>,
) -> Others {
    // Approximately when this zone's capacity ends.
    let then = life_hours(chosen, work_left);
    let there = chance_there(others.clone(), then);
    Others {
        there: (there / CHANCE_STEP).round() * CHANCE_STEP,
        comes_back: others.map(|zone| zone.spells.gone.factor()).sum(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneLook {
    pub capacity: Capacity,
    pub hourly: UsdPerHour,
}

/// The rule over time with a look at all zones at each tick.
#[derive(Clone, Debug, Default)]
pub struct ZonesWatch {
    zones: Vec<ZoneSpells>,
    watch: MarketWatch,
    /// The zone of the watch's plan.
    watched: Option<usize>,
}

impl ZonesWatch {
    /// One decision: its zone and the step. `here`: the zone of the running spot machine. The zones
    /// replace spot's price and capacity in the facts. Zones that cost as much as on-demand are
    /// skipped.
    pub fn step(
        &mut self,
        looks: &[ZoneLook],
        here: Option<usize>,
        facts: &MarketFacts,
    ) -> (usize, MarketVerdict) {
        self.zones.resize(looks.len(), ZoneSpells::default());
        let here = here.filter(|_| matches!(facts.running, Running::Spot { .. }));
        let since = facts.since_look.as_secs_f64() / 3600.0;
        for (index, (spells, look)) in self.zones.iter_mut().zip(looks).enumerate() {
            let there = match look.capacity {
                Capacity::There => Some(true),
                Capacity::Gone => Some(false),
                Capacity::Unknown => (here == Some(index)).then_some(true),
            };
            spells.look(since, there);
        }
        let spells = self.zones.clone();
        let zones: Vec<Zone<'_>> = spells
            .iter()
            .zip(looks)
            .map(|(spells, look)| {
                let there = spells.seen() == Some(true) && look.hourly < facts.on_demand_price;
                Zone { spells, hourly: look.hourly, there, hours_since_look: 0.0 }
            })
            .collect();
        let (start, work_left) =
            (facts.startup.as_secs_f64() / 3600.0, facts.work_left.as_secs_f64() / 3600.0);
        let best = best(&zones, start, Some(work_left)).unwrap_or(0);
        if let Some(here) = here.filter(|here| spells[*here].seen() == Some(true)) {
            return (here, self.decide(&zones, here, facts));
        }
        let running = if matches!(facts.running, Running::Spot { .. }) {
            Running::Nothing
        } else {
            facts.running
        };
        (best, self.decide(&zones, best, &MarketFacts { running, ..*facts }))
    }

    fn decide(&mut self, zones: &[Zone<'_>], chosen: usize, facts: &MarketFacts) -> MarketVerdict {
        if self.watched != Some(chosen) {
            (self.watch, self.watched) = (MarketWatch::default(), Some(chosen));
        }
        let zone = &zones[chosen];
        let rest = zones
            .iter()
            .enumerate()
            .filter(|(index, zone)| *index != chosen && zone.hourly < facts.on_demand_price)
            .map(|(_, zone)| *zone);
        let others =
            others(zone.spells, rest.clone(), Some(facts.work_left.as_secs_f64() / 3600.0));
        let age = if zone.there {
            zone.spells.age_hours()
        } else {
            gone_age(std::iter::once(*zone).chain(rest))
        };
        let spot = if zone.there { Capacity::There } else { Capacity::Gone };
        self.watch.decide_at(
            zone.spells,
            others,
            age,
            &MarketFacts { spot, spot_price: zone.hourly, ..*facts },
        )
    }
}

/// If all are gone: the age at which the common law has their combined rate.
fn gone_age<'a>(zones: impl Iterator<Item = Zone<'a>> + Clone) -> f64 {
    let factors: f64 = zones.clone().map(|zone| zone.spells.gone.factor()).sum();
    let rate: f64 =
        zones.map(|zone| zone.spells.gone.factor() * rate_at(zone.spells.age_hours())).sum();
    age_of_rate(rate / factors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(dollars: &str) -> UsdPerHour {
        UsdPerHour::new(dollars.parse().unwrap())
    }

    fn watched(pattern: &[(usize, bool)]) -> ZoneSpells {
        let mut spells = ZoneSpells::default();
        for there in pattern.iter().flat_map(|&(times, there)| std::iter::repeat_n(there, times)) {
            spells.look(1.0 / 6.0, Some(there));
        }
        spells
    }

    fn zone<'a>(spells: &'a ZoneSpells, hourly: &str) -> Zone<'a> {
        Zone {
            spells,
            hourly: usd(hourly),
            there: spells.seen() == Some(true),
            hours_since_look: 0.0,
        }
    }

    #[test]
    fn best_zone_is_the_one_with_the_cheapest_hour_of_work() {
        let (calm, flaps) = (
            watched(&[(60, true)]),
            watched(&[[(1, false), (1, true)].repeat(20), vec![]].concat()),
        );
        let gone = watched(&[(60, true), (1, false)]);
        assert_eq!(
            best(&[zone(&calm, "1"), zone(&flaps, "0.9")], 0.2, Some(20.0)),
            Some(0),
            "a start an hour is dearer than a tenth"
        );
        assert_eq!(best(&[zone(&calm, "1"), zone(&flaps, "0.5")], 0.2, Some(20.0)), Some(1));
        assert_eq!(
            best(&[zone(&gone, "0.1"), zone(&calm, "1")], 0.2, Some(20.0)),
            Some(1),
            "only what is there"
        );
        assert_eq!(best(&[zone(&gone, "0.4"), zone(&gone, "0.3")], 0.2, None), Some(1));
        assert_eq!(best(&[], 0.2, None), None);
    }

    #[test]
    fn available_other_zones_are_worth_more_than_unavailable_ones() {
        let (calm, gone) = (watched(&[(60, true)]), watched(&[(2, true), (60, false)]));
        let none = others(&calm, std::iter::empty(), Some(20.0));
        assert_eq!(none, Others::default());
        let one = others(&calm, [zone(&gone, "1")].into_iter(), Some(20.0));
        let two = others(&calm, [zone(&gone, "1"), zone(&calm, "1")].into_iter(), Some(20.0));
        assert!(
            none.there <= one.there && one.there < two.there && two.there <= 1.0,
            "{one:?} {two:?}"
        );
        assert!(one.comes_back < two.comes_back);
    }

    #[test]
    fn age_of_all_that_are_gone_is_between_theirs() {
        let (young, old) = (watched(&[(60, true), (2, false)]), watched(&[(3, true), (60, false)]));
        let age = gone_age([zone(&young, "1"), zone(&old, "1")].into_iter());
        assert!(
            young.age_hours() < age && age < old.age_hours(),
            "{} {age} {}",
            young.age_hours(),
            old.age_hours()
        );
        let alone = gone_age(std::iter::once(zone(&young, "1")));
        assert!((alone - young.age_hours()).abs() < 1e-6);
    }
}
