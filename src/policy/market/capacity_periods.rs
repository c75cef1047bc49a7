//! How long spot capacity lasts and how long it stays away, learned by watching a zone.
//!
//! A spell is an unbroken period with or without capacity. One law describes both: *the longer a
//! spell has lasted, the longer it will last*. The rate at which a spell of age `a` ends is
//!
//! ```text
//!   rate(a) = zone * ( 0.8 / (a + 0.3 h)  +  0.05 / h )
//!             ^       ^                      ^ few spells exceed a day by much
//!             |       a power law: half of the fresh spells end in 30 min, one in ten lasts 4 h
//!             learned, for there and for gone: above 1 if spells are shorter than the law says
//! ```
//!
//! Recorded launch probes and interruptions follow this law in every zone, machine type and season
//! tested. The source is Wu et al., "Can't Be Late", NSDI 2024; `docs/policies.md` has the table.
//! So a zone has two numbers to learn. The prior is weak, three spells, and old spells fade with a
//! half-life of a day.
//!
//! Prices and deadlines belong to `remaining_cost`. Unwatched time teaches nothing.

use serde::{Deserialize, Serialize};

/// Exponent of the law. Costs barely depend on it: from 0.7 to 1.2 the mean moves by 0.2 %.
const POWER: f64 = 0.8;

/// Spells younger than this, in hours, are about as fragile as new ones. Launches are refused in
/// bursts of minutes.
const YOUNG_HOURS: f64 = 0.3;

/// Ends even the oldest spells, per hour: demand follows the day. Without it a spell of a day would
/// count as eternal.
const DAILY_PER_HOUR: f64 = 0.05;

/// Weight of the law against observations, in spells. At 1, the first short spells dominate for
/// hours. Without a limit the zone is never learned, which costs 0.15 % of the mean. From 3 to 10
/// there is no difference.
const PRIOR_SPELLS: f64 = 3.0;

/// Half-life of observations, in hours: a zone changes from day to day.
const HALF_LIFE_HOURS: f64 = 24.0;

/// Assumed age in hours of a spell at the first look: its beginning was not seen.
const UNSEEN_AGE_HOURS: f64 = 0.25;

/// Two looks further apart than this, in hours, do not show what happened between. Probes every ten
/// minutes are dense enough.
pub const GAP_HOURS_MAX: f64 = 0.5;

/// Ages beyond this, in hours, make no difference.
const OLD_HOURS: f64 = 1000.0;

/// Integration step over a life, in hours: finer than the youngest ages of the law.
const LIFE_STEP_HOURS: f64 = 0.1;

/// Range in hours for the mean life: few machines run longer.
const MEAN_OVER_HOURS: f64 = 48.0;

/// Lower bounds of the age classes, in hours; the last is open. Finer where the law is steep.
pub const AGES: [f64; CLASSES] =
    [0.0, 1.0 / 6.0, 1.0 / 3.0, 0.5, 2.0 / 3.0, 1.0, 4.0 / 3.0, 2.0, 8.0 / 3.0, 4.0, 16.0 / 3.0];

pub const CLASSES: usize = 11;

/// The rate of ending in each age class, per hour.
pub type EndRates = [f64; CLASSES];

pub fn age_class(hours: f64) -> usize {
    AGES.iter().rposition(|from| hours >= from - 1e-9).unwrap_or(0)
}

/// The law's expected number of ends between two ages.
fn ends_between(from_hours: f64, to_hours: f64) -> f64 {
    POWER * ((to_hours + YOUNG_HOURS) / (from_hours + YOUNG_HOURS)).ln()
        + DAILY_PER_HOUR * (to_hours - from_hours)
}

/// Observations of one kind of spell: how many ended, and how many the law expected in that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndCounts {
    ended: f64,
    expected: f64,
}

impl EndCounts {
    fn fade(&mut self, hours: f64) {
        let kept = 0.5_f64.powf(hours / HALF_LIFE_HOURS);
        self.ended *= kept;
        self.expected *= kept;
    }

    /// How much faster than the law spells end here. Above 1 is bad for existing capacity.
    pub fn factor(&self) -> f64 {
        (PRIOR_SPELLS + self.ended) / (PRIOR_SPELLS + self.expected)
    }

    pub fn rates(&self) -> EndRates {
        rates(self.factor())
    }
}

/// The law's rates of ending, times a factor.
pub fn rates(factor: f64) -> EndRates {
    std::array::from_fn(|class| {
        let from = AGES[class];
        // The last class represents ages up to three times its lower bound.
        let to = AGES.get(class + 1).copied().unwrap_or(3.0 * from);
        factor * ends_between(from, to) / (to - from)
    })
}

/// The law's rate of ending at an age, per hour.
pub fn rate_at(age_hours: f64) -> f64 {
    POWER / (age_hours + YOUNG_HOURS) + DAILY_PER_HOUR
}

/// The age at which the law has this rate; 0 for rates above the law's maximum.
pub fn age_of_rate(rate: f64) -> f64 {
    (POWER / (rate - DAILY_PER_HOUR).max(POWER / OLD_HOURS) - YOUNG_HOURS).max(0.0)
}

/// Observed capacity of one zone and type. A later job starts from its serialised form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZoneSpells {
    pub there: EndCounts,
    pub gone: EndCounts,
    now: Option<CurrentSpell>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct CurrentSpell {
    there: bool,
    age_hours: f64,
}

impl ZoneSpells {
    /// One look at the zone, `since_hours` after the previous one; `None`: unknown. Looks too far
    /// apart show nothing about the time between.
    pub fn look(&mut self, since_hours: f64, there: Option<bool>) {
        let since = since_hours.max(0.0);
        self.there.fade(since);
        self.gone.fade(since);
        let Some(there) = there else {
            self.now = None;
            return;
        };
        let fresh = CurrentSpell { there, age_hours: UNSEEN_AGE_HOURS };
        self.now = Some(match self.now {
            None => fresh,
            Some(_) if since > GAP_HOURS_MAX => fresh,
            Some(spell) => {
                let seen = if spell.there { &mut self.there } else { &mut self.gone };
                seen.expected += ends_between(spell.age_hours, spell.age_hours + since);
                if spell.there == there {
                    CurrentSpell { there, age_hours: spell.age_hours + since }
                } else {
                    seen.ended += 1.0;
                    CurrentSpell { there, age_hours: 0.0 }
                }
            }
        });
    }

    /// The chance of capacity this long after the last look. For an old look, it is the usual share
    /// of time with capacity.
    pub fn chance_there(&self, hours_since: f64) -> f64 {
        let (there, gone) = (self.there.factor(), self.gone.factor());
        let usual = gone / (there + gone);
        let Some(spell) = self.now else { return usual };
        // A process with two states forgets its start at the sum of both rates.
        let seen = if spell.there { there / (1.0 - usual) } else { gone / usual };
        let kept =
            (-seen * ends_between(spell.age_hours, spell.age_hours + hours_since.max(0.0))).exp();
        if spell.there { usual + (1.0 - usual) * kept } else { usual * (1.0 - kept) }
    }

    /// The same zone, assuming capacity that was not observed for long. A random moment meets long
    /// spells more often. Its rate of ending is one per mean life.
    pub fn met(&self) -> ZoneSpells {
        let mean = ZoneSpells { now: Some(CurrentSpell { there: true, age_hours: 0.0 }), ..*self }
            .life_hours(MEAN_OVER_HOURS);
        // The age at which the law ends a spell once in that time.
        let power = POWER
            / (1.0 / (mean * self.there.factor()) - DAILY_PER_HOUR).max(POWER / MEAN_OVER_HOURS);
        ZoneSpells {
            now: Some(CurrentSpell { there: true, age_hours: (power - YOUNG_HOURS).max(0.0) }),
            ..*self
        }
    }

    /// The same zone just after capacity returned.
    pub fn begun(&self) -> ZoneSpells {
        ZoneSpells { now: Some(CurrentSpell { there: true, age_hours: 0.0 }), ..*self }
    }

    /// The newest look's result; `None`: no look yet.
    pub fn seen(&self) -> Option<bool> {
        self.now.map(|spell| spell.there)
    }

    /// Expected hours that capacity taken now will last, up to `most`.
    pub fn life_hours(&self, most: f64) -> f64 {
        let from = self.now.filter(|spell| spell.there).map_or(0.0, |spell| spell.age_hours);
        let factor = self.there.factor();
        let alive = |hours: f64| (-factor * ends_between(from, from + hours)).exp();
        // By trapezoids; the law is steep only in the first half hour.
        let steps = (most / LIFE_STEP_HOURS).ceil().clamp(1.0, 2000.0);
        let step = most / steps;
        (0..steps as usize)
            .map(|n| step * (alive(n as f64 * step) + alive((n + 1) as f64 * step)) / 2.0)
            .sum()
    }

    /// The chance that capacity taken now lasts this many hours.
    pub fn outlives(&self, hours: f64) -> f64 {
        let from = self.now.filter(|spell| spell.there).map_or(0.0, |spell| spell.age_hours);
        (-self.there.factor() * ends_between(from, from + hours)).exp()
    }

    /// Age of the current spell in hours; for unwatched time, the age assumed at a first look.
    pub fn age_hours(&self) -> f64 {
        self.now.map_or(UNSEEN_AGE_HOURS, |spell| spell.age_hours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(pattern: &[(usize, bool)], step: f64) -> ZoneSpells {
        let mut spells = ZoneSpells::default();
        for there in pattern.iter().flat_map(|&(times, there)| std::iter::repeat_n(there, times)) {
            spells.look(step, Some(there));
        }
        spells
    }

    #[test]
    fn what_has_lasted_long_lasts_longer() {
        let rates = EndCounts::default().rates();
        assert!(rates.windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
        assert_eq!(EndCounts::default().factor(), 1.0);
    }

    #[test]
    fn zone_that_flaps_is_learned_and_forgotten() {
        let mut flaps = watched(&[(1, true), (1, false)].repeat(10), 1.0 / 6.0);
        assert!(flaps.there.factor() > 1.5 && flaps.gone.factor() > 1.5, "{flaps:?}");
        let calm = watched(&[(120, true)], 1.0 / 6.0);
        assert!(calm.there.factor() < 0.7 && calm.gone.factor() == 1.0, "{calm:?}");
        flaps.look(10.0 * 24.0, None);
        assert!((flaps.there.factor() - 1.0).abs() < 0.01, "ten days later");
    }

    #[test]
    fn unwatched_time_is_ignored() {
        let mut spells = watched(&[(6, true)], 1.0 / 6.0);
        let before = spells;
        assert!((before.age_hours() - (UNSEEN_AGE_HOURS + 5.0 / 6.0)).abs() < 1e-9);
        spells.look(0.1, None);
        spells.look(0.1, Some(false));
        assert_eq!(spells.there.ended, 0.0);
        assert_eq!(spells.age_hours(), UNSEEN_AGE_HOURS);
        let mut slept = before;
        slept.look(8.0, Some(false));
        assert_eq!(
            (slept.there.ended, slept.age_hours()),
            (0.0, UNSEEN_AGE_HOURS),
            "a laptop that slept saw no end"
        );
    }

    #[test]
    fn what_was_seen_long_ago_says_only_what_is_usual() {
        let there = watched(&[(6, true)], 1.0 / 6.0);
        let gone = watched(&[(6, true), (1, false)], 1.0 / 6.0);
        assert!(
            (there.chance_there(0.0) - 1.0).abs() < 1e-9 && gone.chance_there(0.0).abs() < 1e-9
        );
        let chances: Vec<f64> =
            [0.1, 0.5, 1.0, 3.0, 12.0].map(|hours| gone.chance_there(hours)).into();
        assert!(chances.windows(2).all(|pair| pair[0] < pair[1]), "{chances:?}");
        assert!(
            (0.3..0.7).contains(&chances[4])
                && (0.3..0.7).contains(&ZoneSpells::default().chance_there(0.0))
        );
        assert!(there.chance_there(100.0) < there.chance_there(1.0));
    }

    #[test]
    fn calm_zone_is_expected_to_live_longer() {
        let (flaps, calm) = (
            watched(&[(1, true), (1, false)].repeat(10), 1.0 / 6.0),
            watched(&[(120, true)], 1.0 / 6.0),
        );
        let fresh = ZoneSpells::default().life_hours(48.0);
        assert!(flaps.life_hours(48.0) < fresh && fresh < calm.life_hours(48.0), "{fresh}");
        assert!((1.0..3.0).contains(&fresh), "{fresh}");
        assert!(calm.life_hours(2.0) <= 2.0);
        let met = ZoneSpells::default().met();
        assert!(
            (1.0..2.5).contains(&met.age_hours()) && met.life_hours(48.0) > 2.0 * fresh,
            "{met:?}"
        );
        assert_eq!((met.seen(), flaps.begun().age_hours()), (Some(true), 0.0));
    }

    #[test]
    fn classes_of_age_begin_where_they_say() {
        assert_eq!([0.0, 0.16, 1.0 / 6.0, 5.4, 100.0].map(age_class), [0, 0, 1, 10, 10]);
    }

    #[test]
    fn what_was_learned_reads_back() {
        let spells = watched(&[(3, true), (2, false)], 0.2);
        let read: ZoneSpells =
            serde_json::from_str(&serde_json::to_string(&spells).unwrap()).unwrap();
        // JSON parsing may change the last bit.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert_eq!(read.now, spells.now);
        assert!(
            [(read.there, spells.there), (read.gone, spells.gone)].iter().all(|(a, b)| near(
                a.ended, b.ended
            ) && near(
                a.expected, b.expected
            ))
        );
    }
}
