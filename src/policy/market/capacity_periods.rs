//! How long spot capacity stays, and how long it stays away, learned as a zone is watched.
//!
//! A spell is the time for which capacity is there, or gone, without a break. One law describes both kinds: *what has
//! lasted long lasts longer*. The rate at which a spell of age `a` ends is
//!
//! ```text
//!   rate(a) = zone * ( 0.8 / (a + 0.3 h)  +  0.05 / h )
//!             ^       ^                      ^ nothing outlives the day by much
//!             |       a power law: half of all fresh spells end in about half an hour, one in ten lasts four hours
//!             learned: above 1 where spells are shorter than the law says, one number each for there and gone
//! ```
//!
//! Recorded launch probes and preemptions (Wu et al., "Can't Be Late", NSDI 2024) follow this law in every zone, machine
//! type and season that was looked at, up and down alike; `docs/policies.md` has the table. So a zone has two numbers to
//! learn, and the prior is weak: three spells' worth. Old spells fade with a half-life of a day.
//!
//! What must never live here: prices, deadlines (`horizon`), a guess about a moment that nobody watched.

use serde::{Deserialize, Serialize};

/// The power of the law. Costs barely depend on it: 0.7 to 1.2 moves the mean by 0.2 %.
const POWER: f64 = 0.8;

/// How young a spell must be to be in danger as much as one of age zero, hours. Launches are refused in bursts of minutes.
const YOUNG_HOURS: f64 = 0.3;

/// What ends even the oldest spell, per hour: demand follows the day. Without it a spell of a day would count as eternal.
const DAILY_PER_HOUR: f64 = 0.05;

/// How much the law alone counts against what was seen, in spells. At 1 the first short spells frighten the rule for hours;
/// without end it never learns, which costs 0.15 % of the mean; between 3 and 10 nothing changes.
const PRIOR_SPELLS: f64 = 3.0;

/// Half of what was seen is forgotten after this time, hours: a zone's mood changes by the day.
const HALF_LIFE_HOURS: f64 = 24.0;

/// The age given to a spell when the watch begins, hours: it began unseen, so it is not fresh, and nothing says it is old.
const UNSEEN_AGE_HOURS: f64 = 0.25;

/// Two looks further apart than this do not tell what happened between them, hours. Probes every ten minutes are dense enough.
pub const GAP_HOURS_MAX: f64 = 0.5;

/// No age matters beyond this, hours.
const OLD_HOURS: f64 = 1000.0;

/// The step of an integral over a life, hours: finer than the youngest ages of the law.
const LIFE_STEP_HOURS: f64 = 0.1;

/// The mean of all lives is taken over this time, hours: hardly any is longer.
const MEAN_OVER_HOURS: f64 = 48.0;

/// The classes of age, hours from; the last has no end. Finer where the law is steep.
pub const AGES: [f64; CLASSES] = [0.0, 1.0 / 6.0, 1.0 / 3.0, 0.5, 2.0 / 3.0, 1.0, 4.0 / 3.0, 2.0, 8.0 / 3.0, 4.0, 16.0 / 3.0];

/// How many classes of age there are.
pub const CLASSES: usize = 11;

/// The rate of ending in each class of age, per hour.
pub type Rates = [f64; CLASSES];

/// The class of an age.
pub fn age_class(hours: f64) -> usize {
    AGES.iter().rposition(|from| hours >= from - 1e-9).unwrap_or(0)
}

/// The law's expected number of ends between two ages.
fn ends_between(from_hours: f64, to_hours: f64) -> f64 {
    POWER * ((to_hours + YOUNG_HOURS) / (from_hours + YOUNG_HOURS)).ln() + DAILY_PER_HOUR * (to_hours - from_hours)
}

/// What was seen of one kind of spell: how many ended, and how many the law had expected to end in the time watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    ended: f64,
    expected: f64,
}

impl Seen {
    fn fade(&mut self, hours: f64) {
        let kept = 0.5_f64.powf(hours / HALF_LIFE_HOURS);
        self.ended *= kept;
        self.expected *= kept;
    }

    /// How much likelier than the law says a spell ends here: above 1 is worse than usual for capacity that is there.
    pub fn factor(&self) -> f64 {
        (PRIOR_SPELLS + self.ended) / (PRIOR_SPELLS + self.expected)
    }

    pub fn rates(&self) -> Rates {
        rates(self.factor())
    }
}

/// The law's rates of ending, so many times.
pub fn rates(factor: f64) -> Rates {
    std::array::from_fn(|class| {
        let from = AGES[class];
        // The last class stands for ages up to three times its beginning.
        let to = AGES.get(class + 1).copied().unwrap_or(3.0 * from);
        factor * ends_between(from, to) / (to - from)
    })
}

/// The law's rate of ending at an age, per hour.
pub fn rate_at(age_hours: f64) -> f64 {
    POWER / (age_hours + YOUNG_HOURS) + DAILY_PER_HOUR
}

/// The age at which the law's rate is this; 0 for all that is faster than the law ever is.
pub fn age_of_rate(rate: f64) -> f64 {
    (POWER / (rate - DAILY_PER_HOUR).max(POWER / OLD_HOURS) - YOUNG_HOURS).max(0.0)
}

/// Capacity of one zone and type, as far as it was watched. Serialised, it is what a later job starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZoneSpells {
    pub there: Seen,
    pub gone: Seen,
    now: Option<Spell>,
}

/// The spell that is being watched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Spell {
    there: bool,
    age_hours: f64,
}

impl ZoneSpells {
    /// One look at the zone, `since_hours` after the one before; `None`: nobody could tell. Looks that are too far apart say
    /// nothing about the time between them.
    pub fn look(&mut self, since_hours: f64, there: Option<bool>) {
        let since = since_hours.max(0.0);
        self.there.fade(since);
        self.gone.fade(since);
        let Some(there) = there else {
            self.now = None;
            return;
        };
        let fresh = Spell { there, age_hours: UNSEEN_AGE_HOURS };
        self.now = Some(match self.now {
            None => fresh,
            Some(_) if since > GAP_HOURS_MAX => fresh,
            Some(spell) => {
                let seen = if spell.there { &mut self.there } else { &mut self.gone };
                seen.expected += ends_between(spell.age_hours, spell.age_hours + since);
                if spell.there == there {
                    Spell { there, age_hours: spell.age_hours + since }
                } else {
                    seen.ended += 1.0;
                    Spell { there, age_hours: 0.0 }
                }
            }
        });
    }

    /// The chance that capacity is there so long after the last look. Who looked long ago knows only the share of time for
    /// which it is there at all.
    pub fn chance_there(&self, hours_since: f64) -> f64 {
        let (there, gone) = (self.there.factor(), self.gone.factor());
        let usual = gone / (there + gone);
        let Some(spell) = self.now else { return usual };
        // Two states that change into each other lose the memory of where they began at the sum of both rates.
        let seen = if spell.there { there / (1.0 - usual) } else { gone / usual };
        let kept = (-seen * ends_between(spell.age_hours, spell.age_hours + hours_since.max(0.0))).exp();
        if spell.there { usual + (1.0 - usual) * kept } else { usual * (1.0 - kept) }
    }

    /// The same zone where capacity is supposed to be there and nobody has looked for long: met at some moment of its life,
    /// and long lives are met more often. Its rate of ending is that of all lives, one in a mean life.
    pub fn met(&self) -> ZoneSpells {
        let mean = ZoneSpells { now: Some(Spell { there: true, age_hours: 0.0 }), ..*self }.life_hours(MEAN_OVER_HOURS);
        // The age at which the law ends a spell once in that time.
        let power = POWER / (1.0 / (mean * self.there.factor()) - DAILY_PER_HOUR).max(POWER / MEAN_OVER_HOURS);
        ZoneSpells { now: Some(Spell { there: true, age_hours: (power - YOUNG_HOURS).max(0.0) }), ..*self }
    }

    /// The same zone where capacity has come back just now.
    pub fn begun(&self) -> ZoneSpells {
        ZoneSpells { now: Some(Spell { there: true, age_hours: 0.0 }), ..*self }
    }

    /// What the newest look said; `None`: nobody has looked.
    pub fn seen(&self) -> Option<bool> {
        self.now.map(|spell| spell.there)
    }

    /// How long capacity that is taken now is expected to stay, hours: up to `most`, for who needs it no longer.
    pub fn life_hours(&self, most: f64) -> f64 {
        let from = self.now.filter(|spell| spell.there).map_or(0.0, |spell| spell.age_hours);
        let factor = self.there.factor();
        let alive = |hours: f64| (-factor * ends_between(from, from + hours)).exp();
        // By trapezoids; the law is steep only in the first half hour.
        let steps = (most / LIFE_STEP_HOURS).ceil().clamp(1.0, 2000.0);
        let step = most / steps;
        (0..steps as usize).map(|n| step * (alive(n as f64 * step) + alive((n + 1) as f64 * step)) / 2.0).sum()
    }

    /// How likely capacity that is taken now is there so many hours later.
    pub fn outlives(&self, hours: f64) -> f64 {
        let from = self.now.filter(|spell| spell.there).map_or(0.0, |spell| spell.age_hours);
        (-self.there.factor() * ends_between(from, from + hours)).exp()
    }

    /// How old the running spell is, hours; for a time that nobody watched, the age of one that began unseen.
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
        let rates = Seen::default().rates();
        assert!(rates.windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
        assert_eq!(Seen::default().factor(), 1.0);
    }

    #[test]
    fn a_zone_that_flaps_is_learned_and_forgotten() {
        let mut flaps = watched(&[(1, true), (1, false)].repeat(10), 1.0 / 6.0);
        assert!(flaps.there.factor() > 1.5 && flaps.gone.factor() > 1.5, "{flaps:?}");
        let calm = watched(&[(120, true)], 1.0 / 6.0);
        assert!(calm.there.factor() < 0.7 && calm.gone.factor() == 1.0, "{calm:?}");
        flaps.look(10.0 * 24.0, None);
        assert!((flaps.there.factor() - 1.0).abs() < 0.01, "ten days later");
    }

    #[test]
    fn time_that_nobody_watched_teaches_nothing() {
        let mut spells = watched(&[(6, true)], 1.0 / 6.0);
        let before = spells;
        assert!((before.age_hours() - (UNSEEN_AGE_HOURS + 5.0 / 6.0)).abs() < 1e-9);
        spells.look(0.1, None);
        spells.look(0.1, Some(false));
        assert_eq!(spells.there.ended, 0.0);
        assert_eq!(spells.age_hours(), UNSEEN_AGE_HOURS);
        let mut slept = before;
        slept.look(8.0, Some(false));
        assert_eq!((slept.there.ended, slept.age_hours()), (0.0, UNSEEN_AGE_HOURS), "a laptop that slept saw no end");
    }

    #[test]
    fn what_was_seen_long_ago_says_only_what_is_usual() {
        let there = watched(&[(6, true)], 1.0 / 6.0);
        let gone = watched(&[(6, true), (1, false)], 1.0 / 6.0);
        assert!((there.chance_there(0.0) - 1.0).abs() < 1e-9 && gone.chance_there(0.0).abs() < 1e-9);
        let chances: Vec<f64> = [0.1, 0.5, 1.0, 3.0, 12.0].map(|hours| gone.chance_there(hours)).into();
        assert!(chances.windows(2).all(|pair| pair[0] < pair[1]), "{chances:?}");
        assert!((0.3..0.7).contains(&chances[4]) && (0.3..0.7).contains(&ZoneSpells::default().chance_there(0.0)));
        assert!(there.chance_there(100.0) < there.chance_there(1.0));
    }

    #[test]
    fn a_calm_zone_is_expected_to_live_longer() {
        let (flaps, calm) = (watched(&[(1, true), (1, false)].repeat(10), 1.0 / 6.0), watched(&[(120, true)], 1.0 / 6.0));
        let fresh = ZoneSpells::default().life_hours(48.0);
        assert!(flaps.life_hours(48.0) < fresh && fresh < calm.life_hours(48.0), "{fresh}");
        assert!((1.0..3.0).contains(&fresh), "{fresh}");
        assert!(calm.life_hours(2.0) <= 2.0);
        let met = ZoneSpells::default().met();
        assert!((1.0..2.5).contains(&met.age_hours()) && met.life_hours(48.0) > 2.0 * fresh, "{met:?}");
        assert_eq!((met.seen(), flaps.begun().age_hours()), (Some(true), 0.0));
    }

    #[test]
    fn classes_of_age_begin_where_they_say() {
        assert_eq!([0.0, 0.16, 1.0 / 6.0, 5.4, 100.0].map(age_class), [0, 0, 1, 10, 10]);
    }

    #[test]
    fn what_was_learned_reads_back() {
        let spells = watched(&[(3, true), (2, false)], 0.2);
        let read: ZoneSpells = serde_json::from_str(&serde_json::to_string(&spells).unwrap()).unwrap();
        // The reader of numbers may be off by the last bit.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert_eq!(read.now, spells.now);
        assert!([(read.there, spells.there), (read.gone, spells.gone)].iter().all(|(a, b)| near(a.ended, b.ended) && near(a.expected, b.expected)));
    }
}
