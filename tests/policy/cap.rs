//! What all jobs together may cost.

use std::time::Duration;

use jiff::Timestamp;
use lamplighter::market::{Usd, UsdPerHour};
use lamplighter::policy::purchase::spending_cap::{AttemptCost, Caps, judge, spending};
use proptest::prelude::*;

const HOUR: i64 = 3600;

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + hours * HOUR).unwrap()
}

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

fn hourly(text: &str) -> UsdPerHour {
    UsdPerHour::new(usd(text))
}

fn runs(price: &str, from: i64) -> AttemptCost {
    AttemptCost { hourly: hourly(price), at_most: hourly(price), from: at(from), ended: None }
}

fn ended(price: &str, from: i64, to: i64, cost: &str) -> AttemptCost {
    AttemptCost { ended: Some((at(to), usd(cost))), ..runs(price, from) }
}

fn says(caps: Caps, spells: &[AttemptCost], price: &str) -> Option<String> {
    judge(&caps, &spending(spells, at(0)), hourly(price), at(0)).map(|reason| reason.text)
}

#[test]
fn what_runs_and_what_is_asked_for_fit_under_the_hours_cap() {
    let caps = Caps { usd_per_hour: Some(hourly("10")), usd_per_day: None };
    let three = [runs("2.2", -1), runs("3", -50), runs("3", 0), ended("9", -2, -1, "9")];
    assert_eq!(says(caps, &three, "1.8"), None, "to the cent");
    assert_eq!(
        says(caps, &three, "1.81").unwrap(),
        "the cap of $10.00 an hour: 3 machines run at $8.20/h, and this one costs up to $1.81/h"
    );
    let alone = "the cap of $10.00 an hour: no machine runs, and this one costs up to $12.00/h, more than the cap allows with nothing beside it";
    assert_eq!(says(caps, &[], "12").unwrap(), alone);
    assert_eq!(says(caps, &three, "0"), None, "what costs nothing may always run");
    assert_eq!(says(Caps::default(), &three, "1000"), None);
}

/// It holds as a brake; whoever meant "no cap" by it is told how that is said.
#[test]
fn zero_cap_refuses_paid_launches_and_says_how_to_remove_it() {
    let (hour, day) = (Some(hourly("0")), Some(usd("0")));
    let said = |kind: &str, key: &str| {
        format!(
            "the cap of $0.00 {kind}: it lets nothing be launched that costs anything, and this one costs up to $1.00/h; without `{key}` in [caps] there is no cap"
        )
    };
    for (usd_per_hour, usd_per_day, kind, key) in [
        (hour, None, "an hour", "usd_per_hour"),
        (None, day, "a day", "usd_per_day"),
        (Some(hourly("5")), day, "a day", "usd_per_day"),
    ] {
        let caps = Caps { usd_per_hour, usd_per_day };
        assert_eq!(says(caps, &[], "1"), Some(said(kind, key)));
        assert_eq!(says(caps, &[], "0"), None, "what costs nothing may always run");
    }
    assert!(!Caps::default().let_nothing());
}

/// What it has cost is known; what the next hour costs may rise to its bid.
#[test]
fn running_spot_machine_counts_at_bid_and_spends_at_its_price() {
    let caps = Caps { usd_per_hour: Some(hourly("3")), usd_per_day: Some(usd("20")) };
    let spot = [AttemptCost { at_most: hourly("2.5"), ..runs("1", -10) }];
    let spent = spending(&spot, at(0));
    assert_eq!((spent.usd_per_hour, spent.usd_last_day), (hourly("2.5"), usd("10")));
    assert_eq!(says(caps, &spot, "0.5"), None);
    assert_eq!(
        says(caps, &spot, "0.6").unwrap(),
        "the cap of $3.00 an hour: 1 machine runs at $2.50/h, and this one costs up to $0.60/h"
    );
}

#[test]
fn daily_cap_counts_24_hours_and_the_next_hour_of_what_runs() {
    let caps = Caps { usd_per_hour: None, usd_per_day: Some(usd("50")) };
    // Of $40 over 20 hours the last 10 fall into the day: $20; and 10 hours at $2 are $20 more.
    let spells = [ended("2", -34, -14, "40"), runs("2", -10), ended("5", -100, -30, "350")];
    assert_eq!(spending(&spells, at(0)).usd_last_day, usd("40"));
    assert_eq!(says(caps, &spells, "8"), None);
    let why = says(caps, &spells, "8.01").unwrap();
    assert_eq!(
        why,
        "the cap of $50.00 a day: $40.00 were spent in 24 hours, 1 machine runs at $2.00/h, and this one costs up to $8.01/h"
    );
}

fn spells() -> impl Strategy<Value = Vec<AttemptCost>> {
    let one = (0_i64..5_000_000, -60_i64..0, 0_i64..60, any::<bool>()).prop_map(
        |(micros, from, hours, is_over)| {
            let hourly = UsdPerHour::new(Usd::from_micros(micros));
            let to = (from + hours).min(0);
            let cost = hourly.cost_of(Duration::from_secs(((to - from) * HOUR) as u64));
            AttemptCost {
                hourly,
                at_most: hourly,
                from: at(from),
                ended: is_over.then(|| (at(to), cost)),
            }
        },
    );
    prop::collection::vec(one, 0..12)
}

proptest! {
    /// More that runs or was spent never lets a launch pass; a higher cap never holds one back.
    #[test]
    fn more_spending_never_frees_a_launch(all in spells(), more in spells(), hour in 0_i64..40, day in 0_i64..200, asked in 1_i64..5_000_000) {
        let caps = |factor: i64| Caps {
            usd_per_hour: Some(UsdPerHour::new(Usd::from_micros(hour * factor * 1_000_000))),
            usd_per_day: Some(Usd::from_micros(day * factor * 1_000_000)),
        };
        let asked = UsdPerHour::new(Usd::from_micros(asked));
        let may = |caps: Caps, spells: &[AttemptCost]| judge(&caps, &spending(spells, at(0)), asked, at(0)).is_none();
        let both: Vec<AttemptCost> = all.iter().chain(&more).copied().collect();
        prop_assert!(may(caps(1), &all) || !may(caps(1), &both));
        prop_assert!(!may(caps(1), &all) || may(caps(2), &all));
    }
}
