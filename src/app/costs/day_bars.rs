//! The cost of each day as a bar with parts: by use, by job or by market.
//!
//! Not here: the rows and their sums (`app::view::costs`), or the drawing of a bar.

use std::collections::BTreeMap;

use jiff::civil::Date;

use crate::app::view::costs::CostRow;
use crate::market::Usd;

/// Days of a picture. More rows are read in the table.
const DAYS_MAX: usize = 31;

/// Parts with a pattern of their own. A person tells few apart.
const PARTS_MAX: usize = 7;

/// The meaning of the parts of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarParts {
    /// Useful, idle, and lost to interruptions.
    Use,
    Job,
    Market,
}

impl BarParts {
    pub const ALL: [BarParts; 3] = [BarParts::Use, BarParts::Job, BarParts::Market];

    pub fn word(self) -> &'static str {
        match self {
            BarParts::Use => "use",
            BarParts::Job => "job",
            BarParts::Market => "market",
        }
    }

    /// An unknown word is the first.
    pub fn of_word(word: &str) -> BarParts {
        BarParts::ALL.into_iter().find(|parts| parts.word() == word).unwrap_or(BarParts::Use)
    }

    fn of(self, row: &CostRow) -> Vec<(String, Usd)> {
        let one = |key: &str| {
            let key = if key.is_empty() { "unknown" } else { key };
            vec![(key.to_owned(), row.usd)]
        };
        match (self, row.idle_usd, row.lost_usd) {
            (BarParts::Job, ..) => one(&row.job),
            (BarParts::Market, ..) => one(&row.market),
            // A share that is unknown is no zero.
            (BarParts::Use, Some(idle), Some(lost)) => {
                let useful = (row.usd - idle - lost).max(Usd::ZERO);
                let parts = [(USEFUL, useful), ("idle", idle), ("lost to interruptions", lost)];
                parts.map(|(key, usd)| (key.to_owned(), usd)).to_vec()
            }
            (BarParts::Use, ..) => one(UNKNOWN),
        }
    }
}

const USEFUL: &str = "useful";

/// The use of an attempt under way is recorded at its end.
pub const UNKNOWN: &str = "not known yet";

/// The part of the jobs that have no pattern of their own.
pub const REST: &str = "all others";

/// The days, and the parts that their bars have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DayBars {
    /// The largest first, with their sums over these days. [`REST`] is the last.
    pub parts: Vec<(String, Usd)>,
    /// The newest first. A day without cost between them is there too.
    pub days: Vec<DayBar>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DayBar {
    pub day: Date,
    pub usd: Usd,
    /// An amount for each of [`DayBars::parts`].
    pub parts: Vec<Usd>,
}

impl DayBars {
    pub fn of(rows: &[CostRow], by: BarParts) -> DayBars {
        let Some(last) = rows.iter().map(|row| row.day).max() else { return DayBars::default() };
        let first = rows.iter().map(|row| row.day).min().unwrap_or(last);
        let days = |day: &Date| day.yesterday().ok().filter(|day| *day >= first);
        let days: Vec<Date> = std::iter::successors(Some(last), days).take(DAYS_MAX).collect();
        let oldest = days.last().copied().unwrap_or(last);
        let mut sums: BTreeMap<String, Usd> = BTreeMap::new();
        let mut each: BTreeMap<(Date, String), Usd> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.day >= oldest) {
            for (key, usd) in by.of(row).into_iter().filter(|(_, usd)| *usd > Usd::ZERO) {
                *sums.entry(key.clone()).or_default() += usd;
                *each.entry((row.day, key)).or_default() += usd;
            }
        }
        let mut parts: Vec<(String, Usd)> = sums.into_iter().collect();
        // Uses keep their order, so that a colour has the same meaning on each day.
        let order =
            |key: &str| [USEFUL, "idle", "lost to interruptions"].iter().position(|it| *it == key);
        match by {
            BarParts::Use => parts.sort_by_key(|(key, _)| order(key).unwrap_or(usize::MAX)),
            BarParts::Job | BarParts::Market => {
                parts.sort_by_key(|(_, usd)| std::cmp::Reverse(*usd))
            }
        }
        let own = if parts.len() > PARTS_MAX { PARTS_MAX - 1 } else { parts.len() };
        let rest: Usd = parts.drain(own..).map(|(_, usd)| usd).sum();
        let bar = |day: &Date| {
            let of = |(key, _): &(String, Usd)| {
                each.get(&(*day, key.clone())).copied().unwrap_or_default()
            };
            let mut known: Vec<Usd> = parts.iter().map(of).collect();
            let of_day =
                each.range((*day, String::new())..).take_while(|((other, _), _)| other == day);
            let usd: Usd = of_day.map(|(_, usd)| *usd).sum();
            if rest > Usd::ZERO {
                known.push(usd - known.iter().copied().sum());
            }
            DayBar { day: *day, usd, parts: known }
        };
        let days = days.iter().map(bar).collect();
        if rest > Usd::ZERO {
            parts.push((REST.to_owned(), rest));
        }
        DayBars { parts, days }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn usd(cents: i64) -> Usd {
        Usd::from_micros(cents * 10_000)
    }

    fn row(day: i8, job: &str, cents: i64, idle: Option<i64>) -> CostRow {
        CostRow {
            day: Date::constant(2026, 3, day),
            from: Timestamp::UNIX_EPOCH,
            to: Timestamp::UNIX_EPOCH,
            job: job.to_owned(),
            name: String::new(),
            attempt: 1,
            instance_type: String::new(),
            market: "spot".to_owned(),
            zone: String::new(),
            region: None,
            instance: None,
            owner: None,
            tags: BTreeMap::new(),
            usd: usd(cents),
            idle_usd: idle.map(usd),
            lost_usd: idle.map(|_| usd(5)),
            on_demand_usd: None,
            estimated: false,
            is_under_way: false,
        }
    }

    fn keys(bars: &DayBars) -> Vec<&str> {
        bars.parts.iter().map(|(key, _)| key.as_str()).collect()
    }

    #[test]
    fn day_is_split_by_its_use_and_an_unknown_share_stays_apart() {
        let rows = [row(3, "a", 100, Some(20)), row(1, "b", 40, None)];
        let bars = DayBars::of(&rows, BarParts::Use);
        assert_eq!(keys(&bars), ["useful", "idle", "lost to interruptions", "not known yet"]);
        let days: Vec<(i8, Usd)> = bars.days.iter().map(|one| (one.day.day(), one.usd)).collect();
        assert_eq!(days, [(3, usd(100)), (2, Usd::ZERO), (1, usd(40))], "each day is there");
        assert_eq!(bars.days[0].parts, [usd(75), usd(20), usd(5), Usd::ZERO]);
        assert_eq!(bars.days[2].parts, [Usd::ZERO, Usd::ZERO, Usd::ZERO, usd(40)]);
    }

    #[test]
    fn small_jobs_share_one_part_and_no_cent_is_lost() {
        let rows: Vec<CostRow> =
            (1..=9).map(|at| row(1, &format!("j{at}"), at * 10, None)).collect();
        let bars = DayBars::of(&rows, BarParts::Job);
        assert_eq!(keys(&bars), ["j9", "j8", "j7", "j6", "j5", "j4", REST]);
        assert_eq!(bars.days[0].parts.iter().copied().sum::<Usd>(), usd(450));
        assert_eq!(bars.parts.last(), Some(&(REST.to_owned(), usd(60))));
        assert_eq!(keys(&DayBars::of(&rows, BarParts::Market)), ["spot"]);
        assert_eq!(DayBars::of(&[], BarParts::Job), DayBars::default());
    }
}
