//! What jobs cost: by day, by job and by market.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::job_summary::Summary;
use crate::job::Receipt;
use crate::market::Usd;

/// The cost of one attempt on one day. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CostRow {
    pub day: Date,
    pub job: String,
    pub name: String,
    pub attempt: u32,
    pub instance_type: String,
    pub market: String,
    pub usd: Usd,
    /// The exact end of billing is unknown: this is the most.
    pub estimated: bool,
}

/// Splits the attempts of a receipt at midnight, in proportion to the time. The rows of an attempt
/// add up to its cost.
pub fn rows(receipt: &Receipt, zone: &TimeZone) -> Vec<CostRow> {
    let mut rows = Vec::new();
    for attempt in &receipt.attempts {
        let billed = std::time::Duration::try_from_secs_f64(attempt.billed_seconds);
        let from = attempt.started.unwrap_or(receipt.started);
        let to = from.saturating_add(billed.unwrap_or_default()).unwrap_or(Timestamp::MAX);
        for (day, usd) in by_day(from, to, attempt.usd, zone) {
            rows.push(CostRow {
                day,
                job: receipt.job.to_string(),
                name: receipt.name.clone(),
                attempt: attempt.attempt.number(),
                instance_type: attempt.instance_type.clone(),
                market: attempt.market.to_string(),
                usd,
                estimated: attempt.billed_estimated,
            });
        }
    }
    rows
}

/// An unfinished job, from its start until now. Its attempts are one row for each day.
pub fn rows_under_way(summary: &Summary, now: Timestamp, zone: &TimeZone) -> Vec<CostRow> {
    let machine = summary.machine.as_ref();
    let row = |(day, usd)| CostRow {
        day,
        job: summary.job.clone(),
        name: summary.name.clone(),
        attempt: summary.attempt.unwrap_or(0),
        instance_type: machine.map(|machine| machine.instance_type.clone()).unwrap_or_default(),
        market: machine.map(|machine| machine.market.to_string()).unwrap_or_default(),
        usd,
        estimated: true,
    };
    by_day(summary.started, now, summary.usd, zone).into_iter().map(row).collect()
}

/// The days of a time, each with its share in whole micro-dollars. The last day takes what rounding
/// left.
pub fn by_day(from: Timestamp, to: Timestamp, usd: Usd, zone: &TimeZone) -> Vec<(Date, Usd)> {
    let all = to.duration_since(from).as_secs_f64().max(0.0);
    let mut days = Vec::new();
    let (mut at, mut left) = (from, usd);
    loop {
        let day = at.to_zoned(zone.clone()).date();
        let next = day.tomorrow().ok().and_then(|next| next.to_zoned(zone.clone()).ok());
        match next.map(|next| next.timestamp()).filter(|next| *next < to) {
            None => {
                days.push((day, left));
                return days;
            }
            Some(next) => {
                let share = next.duration_since(at).as_secs_f64() / all;
                let part = Usd::from_micros((usd.micros() as f64 * share) as i64);
                days.push((day, part));
                left = left - part;
                at = next;
            }
        }
    }
}

/// The sums of the rows by a word of each, for example its market.
pub fn sums(rows: &[CostRow], word: impl Fn(&CostRow) -> String) -> BTreeMap<String, Usd> {
    let mut sums: BTreeMap<String, Usd> = BTreeMap::new();
    for row in rows {
        *sums.entry(word(row)).or_insert(Usd::ZERO) += row.usd;
    }
    sums
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
            prop_assert_eq!(days.iter().map(|(_, usd)| usd.micros()).sum::<i64>(), micros);
            prop_assert!(days.iter().all(|(_, usd)| usd.micros() >= 0));
            prop_assert!(days.windows(2).all(|pair| pair[0].0.tomorrow().ok() == Some(pair[1].0)));
        }
    }

    #[test]
    fn rows_of_a_receipt_add_up_to_its_total() {
        let receipt = receipt();
        let rows = rows(&receipt, &TimeZone::UTC);
        assert!(!rows.is_empty());
        let by_market = sums(&rows, |row| row.market.clone());
        assert_eq!(by_market.values().copied().sum::<Usd>(), receipt.total_usd);
    }
}
