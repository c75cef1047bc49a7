//! Whether one more machine may be launched under the limit for all of a user's jobs.
//!
//! Checked only before a launch: a cap never ends a running machine. The caller reads all jobs.
//! This module has no clock.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::Reason;
use crate::market::{Usd, UsdPerHour, elapsed};

/// The user's caps. Both cover all jobs of one owner in the job roots of the launching controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Caps {
    pub usd_per_hour: Option<UsdPerHour>,
    pub usd_per_day: Option<Usd>,
}

/// The cost data of one attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptCost {
    /// Cost of an hour, with disk and address; used for the money already spent.
    pub hourly: UsdPerHour,
    /// The most that an hour may still cost: a spot machine's bid.
    pub at_most: UsdPerHour,
    pub from: Timestamp,
    /// When it ended, and its total cost; `None`: it runs, or may run.
    pub ended: Option<(Timestamp, Usd)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Spending {
    pub machines: usize,
    /// The most that an hour of all of them may cost.
    pub usd_per_hour: UsdPerHour,
    /// In the last 24 hours.
    pub usd_last_day: Usd,
}

impl Caps {
    pub fn are_none(&self) -> bool {
        *self == Caps::default()
    }

    /// Whether the caps forbid every paid launch: the user stops spending, or meant zero as "no
    /// cap".
    pub fn let_nothing(&self) -> bool {
        self.usd_per_hour == Some(UsdPerHour::ZERO) || self.usd_per_day == Some(Usd::ZERO)
    }
}

/// A rolling day: a calendar day would allow two days' money within an hour around midnight.
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// Running machines count for this much longer. With less, a launch is allowed that the cap forbids
/// minutes later. With more, a job of ten minutes waits for the money of a long one.
const AHEAD: Duration = Duration::from_secs(3600);

pub fn spending(spells: &[AttemptCost], now: Timestamp) -> Spending {
    let mut sum = Spending::default();
    for spell in spells {
        if spell.ended.is_none() {
            // A free workstation is not a machine to wait for.
            sum.machines += usize::from(spell.at_most > UsdPerHour::ZERO);
            sum.usd_per_hour =
                UsdPerHour::new(sum.usd_per_hour.per_hour() + spell.at_most.per_hour());
        }
        sum.usd_last_day += of_last_day(spell, now);
    }
    sum
}

/// Cost of an attempt in the last day; for a longer one, its share by time.
fn of_last_day(spell: &AttemptCost, now: Timestamp) -> Usd {
    let begin = now.saturating_sub(DAY).unwrap_or(Timestamp::MIN).max(spell.from);
    let lasted = |from: Timestamp, to: Timestamp| elapsed(from, to);
    let Some((ended, usd)) = spell.ended else { return spell.hourly.cost_of(lasted(begin, now)) };
    let (whole, part) = (lasted(spell.from, ended), lasted(begin, ended));
    if part >= whole {
        return if ended >= begin { usd } else { Usd::ZERO };
    }
    let share = part.as_secs_f64() / whole.as_secs_f64();
    Usd::from_micros((usd.micros() as f64 * share).ceil() as i64)
}

/// Why a machine at this price may not be launched now; `None`: it may.
pub fn judge(
    caps: &Caps,
    spending: &Spending,
    hourly: UsdPerHour,
    now: Timestamp,
) -> Option<Reason> {
    if hourly <= UsdPerHour::ZERO {
        return None;
    }
    let together = UsdPerHour::new(spending.usd_per_hour.per_hour() + hourly.per_hour());
    let reason = |text: String| {
        let reason = Reason::new(now, "cap", "wait", text)
            .with("usd_per_hour", spending.usd_per_hour.per_hour().dollars());
        reason
            .with("usd_last_day", spending.usd_last_day.dollars())
            .with("asked_usd_per_hour", hourly.per_hour().dollars())
    };
    if caps.let_nothing() {
        let (cap, key) = if caps.usd_per_hour == Some(UsdPerHour::ZERO) {
            ("an hour", "usd_per_hour")
        } else {
            ("a day", "usd_per_day")
        };
        return Some(reason(format!(
            "the cap of $0.00 {cap}: it lets nothing be launched that costs anything, and this one costs up to {hourly}; without `{key}` in [caps] there is no cap"
        )));
    }
    let alone =
        |never: bool| if never { ", more than the cap allows with nothing beside it" } else { "" };
    if let Some(cap) = caps.usd_per_hour.filter(|cap| together > *cap) {
        let alone = alone(hourly > cap);
        return Some(reason(format!(
            "the cap of {} an hour: {}, and this one costs up to {hourly}{alone}",
            cap.per_hour(),
            running(spending)
        )));
    }
    let cap = caps.usd_per_day?;
    let ahead = spending.usd_last_day + together.cost_of(AHEAD);
    (ahead > cap).then(|| {
        let spent = spending.usd_last_day;
        reason(format!("the cap of {cap} a day: {spent} were spent in 24 hours, {}, and this one costs up to {hourly}", running(spending)))
    })
}

/// Why a machine at this price can never be launched under these caps; `None`: it can.
pub fn never(caps: &Caps, hourly: UsdPerHour, now: Timestamp) -> Option<Reason> {
    judge(caps, &Spending::default(), hourly, now)
}

fn running(spending: &Spending) -> String {
    match spending.machines {
        0 => "no machine runs".to_owned(),
        1 => format!("1 machine runs at {}", spending.usd_per_hour),
        more => format!("{more} machines run at {}", spending.usd_per_hour),
    }
}
