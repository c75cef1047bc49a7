//! What jobs cost: a row for each attempt and day, and the sums of rows.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};

use super::job_summary::Summary;
use crate::job::Receipt;
use crate::market::Usd;

/// The cost of one attempt on one day. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CostRow {
    pub day: Date,
    /// The part of that day. A row of an unfinished job may have several attempts.
    pub from: Timestamp,
    pub to: Timestamp,
    pub job: String,
    pub name: String,
    pub attempt: u32,
    pub instance_type: String,
    pub market: String,
    pub zone: String,
    pub region: Option<String>,
    pub instance: Option<String>,
    pub owner: Option<String>,
    /// The user's own tags of the job.
    pub tags: BTreeMap<String, String>,
    pub usd: Usd,
    /// The share of `usd` while the job was idle. `None`: unknown.
    pub idle_usd: Option<Usd>,
    /// The share of `usd` for work that an interruption lost. `None`: unknown.
    pub lost_usd: Option<Usd>,
    /// The cost of the same time on demand. `None`: unknown.
    pub on_demand_usd: Option<Usd>,
    /// The exact end of billing is unknown: this is the most.
    pub estimated: bool,
    /// Its job is unfinished, and all its attempts are in this row.
    #[serde(skip)]
    pub is_under_way: bool,
}

/// One day of a time, with its share of an amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayPart {
    pub day: Date,
    pub from: Timestamp,
    pub to: Timestamp,
    pub usd: Usd,
}

/// Splits the attempts of a receipt at midnight, in proportion to the time. The rows of an attempt
/// add up to its cost.
pub fn rows(receipt: &Receipt, zone: &TimeZone) -> Vec<CostRow> {
    let mut rows = Vec::new();
    for attempt in &receipt.attempts {
        let billed = std::time::Duration::try_from_secs_f64(attempt.billed_seconds);
        let from = attempt.started.unwrap_or(receipt.started);
        let to = from.saturating_add(billed.unwrap_or_default()).unwrap_or(Timestamp::MAX);
        rows.extend(by_day(from, to, attempt.usd, zone).into_iter().map(|part| CostRow {
            day: part.day,
            from: part.from,
            to: part.to,
            job: receipt.job.to_string(),
            name: receipt.name.clone(),
            attempt: attempt.attempt.number(),
            instance_type: attempt.instance_type.clone(),
            market: attempt.market.to_string(),
            zone: attempt.zone.clone(),
            region: None,
            instance: attempt.instance.clone(),
            owner: None,
            tags: BTreeMap::new(),
            usd: part.usd,
            idle_usd: None,
            lost_usd: None,
            on_demand_usd: None,
            estimated: attempt.billed_estimated,
            is_under_way: false,
        }));
    }
    rows
}

/// An unfinished job, from its start until now. Its attempts are one row for each day.
pub fn rows_under_way(summary: &Summary, now: Timestamp, zone: &TimeZone) -> Vec<CostRow> {
    let machine = summary.machine.as_ref();
    // In proportion to the time, as the cost is.
    let share_of = |some: Option<Usd>, part: Usd| {
        let all = summary.usd.dollars();
        some.map(|some| part.part(if all > 0.0 { some.dollars() / all } else { 0.0 }))
    };
    let row = |part: DayPart| CostRow {
        day: part.day,
        from: part.from,
        to: part.to,
        job: summary.job.clone(),
        name: summary.name.clone(),
        attempt: summary.attempt.unwrap_or(0),
        instance_type: machine.map(|machine| machine.instance_type.clone()).unwrap_or_default(),
        market: machine.map(|machine| machine.market.to_string()).unwrap_or_default(),
        zone: machine.map(|machine| machine.zone.clone()).unwrap_or_default(),
        region: machine.and_then(|machine| Some(machine.region.as_ref()?.to_string())),
        instance: summary.instance.clone(),
        owner: summary.owner.clone(),
        tags: BTreeMap::new(),
        usd: part.usd,
        idle_usd: share_of(summary.idle_usd, part.usd),
        lost_usd: share_of(summary.lost_usd, part.usd),
        on_demand_usd: None,
        estimated: true,
        is_under_way: true,
    };
    by_day(summary.started, now, summary.usd, zone).into_iter().map(row).collect()
}

/// The days of a time, each with its share in whole micro-dollars. The last day takes what rounding
/// left.
pub fn by_day(from: Timestamp, to: Timestamp, usd: Usd, zone: &TimeZone) -> Vec<DayPart> {
    let all = to.duration_since(from).as_secs_f64().max(0.0);
    let mut days = Vec::new();
    let (mut at, mut left) = (from, usd);
    loop {
        let day = at.to_zoned(zone.clone()).date();
        let next = day.tomorrow().ok().and_then(|next| next.to_zoned(zone.clone()).ok());
        match next.map(|next| next.timestamp()).filter(|next| *next < to) {
            None => {
                days.push(DayPart { day, from: at, to: to.max(at), usd: left });
                return days;
            }
            Some(next) => {
                let share = next.duration_since(at).as_secs_f64() / all;
                let part = Usd::from_micros((usd.micros() as f64 * share) as i64);
                days.push(DayPart { day, from: at, to: next, usd: part });
                left = left - part;
                at = next;
            }
        }
    }
}

/// The word by which rows are added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostGroup {
    Day,
    Job,
    Market,
    Type,
    /// The owner tag of the machine.
    Owner,
    /// The user's own tag with this key.
    Tag(String),
}

impl CostGroup {
    /// The groups that each row has.
    pub const ALL: [CostGroup; 5] =
        [CostGroup::Day, CostGroup::Job, CostGroup::Market, CostGroup::Type, CostGroup::Owner];

    /// As `lamp costs --by` takes it.
    pub fn word(&self) -> String {
        match self {
            CostGroup::Day => "day".to_owned(),
            CostGroup::Job => "job".to_owned(),
            CostGroup::Market => "market".to_owned(),
            CostGroup::Type => "type".to_owned(),
            CostGroup::Owner => "owner".to_owned(),
            CostGroup::Tag(key) => format!("tag:{key}"),
        }
    }

    /// One group for each tag of the rows.
    pub fn tags(rows: &[CostRow]) -> Vec<CostGroup> {
        let keys: BTreeSet<&String> = rows.iter().flat_map(|row| row.tags.keys()).collect();
        keys.into_iter().cloned().map(CostGroup::Tag).collect()
    }

    fn of(&self, row: &CostRow) -> String {
        let word = match self {
            CostGroup::Day => row.day.to_string(),
            CostGroup::Job => row.job.clone(),
            CostGroup::Market => row.market.clone(),
            CostGroup::Type => row.instance_type.clone(),
            CostGroup::Owner => row.owner.clone().unwrap_or_default(),
            CostGroup::Tag(key) => {
                return row.tags.get(key).cloned().unwrap_or_else(|| "(no tag)".to_owned());
            }
        };
        if word.is_empty() { "unknown".to_owned() } else { word }
    }
}

/// The text is not the word of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write day, job, market, type, owner, or tag:KEY for your own tag")]
pub struct CostGroupError;

impl FromStr for CostGroup {
    type Err = CostGroupError;

    fn from_str(text: &str) -> Result<Self, CostGroupError> {
        match text.strip_prefix("tag:") {
            Some("") => Err(CostGroupError),
            Some(key) => Ok(CostGroup::Tag(key.to_owned())),
            // As others call it.
            None if text == "user" => Ok(CostGroup::Owner),
            None => {
                CostGroup::ALL.into_iter().find(|group| group.word() == text).ok_or(CostGroupError)
            }
        }
    }
}

impl Serialize for CostGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.word())
    }
}

/// The sums of a group of rows. An unknown share of one row makes the sum unknown, and not smaller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CostSum {
    pub key: String,
    pub usd: Usd,
    pub idle_usd: Option<Usd>,
    pub lost_usd: Option<Usd>,
    pub on_demand_usd: Option<Usd>,
    /// Against on demand; negative if it cost more.
    pub saved_usd: Option<Usd>,
    pub estimated: bool,
}

impl CostSum {
    pub fn of<'a>(key: String, rows: impl Iterator<Item = &'a CostRow>) -> CostSum {
        let none = CostSum {
            key,
            usd: Usd::ZERO,
            idle_usd: Some(Usd::ZERO),
            lost_usd: Some(Usd::ZERO),
            on_demand_usd: Some(Usd::ZERO),
            saved_usd: None,
            estimated: false,
        };
        let plus = |one: Option<Usd>, other: Option<Usd>| Some(one? + other?);
        let sum = rows.fold(none, |sum, row| CostSum {
            key: sum.key,
            usd: sum.usd + row.usd,
            idle_usd: plus(sum.idle_usd, row.idle_usd),
            lost_usd: plus(sum.lost_usd, row.lost_usd),
            on_demand_usd: plus(sum.on_demand_usd, row.on_demand_usd),
            saved_usd: None,
            estimated: sum.estimated || row.estimated,
        });
        CostSum { saved_usd: sum.on_demand_usd.map(|full| full - sum.usd), ..sum }
    }
}

/// Days newest first, everything else dearest first.
pub fn sums(rows: &[CostRow], group: &CostGroup) -> Vec<CostSum> {
    let mut groups: BTreeMap<String, Vec<&CostRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(group.of(row)).or_default().push(row);
    }
    let mut sums: Vec<CostSum> =
        groups.into_iter().map(|(key, rows)| CostSum::of(key, rows.into_iter())).collect();
    match group {
        CostGroup::Day => sums.reverse(),
        _ => sums.sort_by_key(|sum| std::cmp::Reverse(sum.usd)),
    }
    sums
}

/// The sum of all rows.
pub fn total(rows: &[CostRow]) -> CostSum {
    CostSum::of("total".to_owned(), rows.iter())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn receipt() -> Receipt {
        serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
            .expect("a receipt")
    }

    proptest! {
        #[test]
        fn days_add_up_to_the_cost(
            start in 1_700_000_000_i64..1_800_000_000,
            secs in 0_i64..40 * 86_400,
            micros in 0_i64..100_000_000_000,
        ) {
            let at = |secs| Timestamp::from_second(secs).expect("a moment of this century");
            let zone = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC);
            let days = by_day(at(start), at(start + secs), Usd::from_micros(micros), &zone);
            prop_assert_eq!(days.iter().map(|part| part.usd.micros()).sum::<i64>(), micros);
            prop_assert!(days.iter().all(|part| part.usd.micros() >= 0));
            prop_assert!(days.windows(2).all(|pair| pair[0].to == pair[1].from));
            prop_assert!(
                days.windows(2).all(|pair| pair[0].day.tomorrow().ok() == Some(pair[1].day))
            );
        }
    }

    #[test]
    fn rows_of_a_receipt_add_up_to_its_total() {
        let receipt = receipt();
        let rows = rows(&receipt, &TimeZone::UTC);
        assert!(!rows.is_empty());
        for group in CostGroup::ALL {
            let sums = sums(&rows, &group);
            assert_eq!(sums.iter().map(|sum| sum.usd).sum::<Usd>(), receipt.total_usd);
        }
    }

    #[test]
    fn rows_of_a_tag_are_added_up_and_untagged_ones_are_named() {
        let mut rows = rows(&receipt(), &TimeZone::UTC);
        rows.extend(rows.clone());
        let half = rows.len() / 2;
        for row in &mut rows[..half] {
            row.tags.insert("team".to_owned(), "vision".to_owned());
        }
        let team: CostGroup = "tag:team".parse().expect("a group");
        assert_eq!(CostGroup::tags(&rows), std::slice::from_ref(&team));
        let sums = sums(&rows, &team);
        let mut keys: Vec<&str> = sums.iter().map(|sum| sum.key.as_str()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["(no tag)", "vision"]);
        assert_eq!(sums.iter().map(|sum| sum.usd).sum::<Usd>(), total(&rows).usd);
        assert_eq!(sums[0].usd, sums[1].usd);
        assert!("tag:".parse::<CostGroup>().is_err() && "team".parse::<CostGroup>().is_err());
    }

    #[test]
    fn unknown_share_makes_the_sum_unknown_and_not_smaller() {
        let mut rows = rows(&receipt(), &TimeZone::UTC);
        let usd = |dollars| Usd::from_dollars(dollars).ok();
        for row in &mut rows {
            (row.idle_usd, row.on_demand_usd) = (usd(0.5), usd(9.0));
        }
        let all = total(&rows);
        let expected = 9.0 * rows.len() as f64;
        assert_eq!(all.on_demand_usd, usd(expected));
        assert_eq!(all.saved_usd, usd(expected).map(|full| full - all.usd));
        assert_eq!(all.lost_usd, None);
        rows[0].on_demand_usd = None;
        let all = total(&rows);
        assert_eq!((all.on_demand_usd, all.saved_usd), (None, None));
        assert!(all.idle_usd.is_some());
    }
}
