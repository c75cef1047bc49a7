//! When a scheduled job is due, and whether it may start now.
//!
//! ```text
//!   cron, timezone ──> Calendar: the due times
//!   due? ─> missed long ago? ─> the last one still runs? ─> in its hours? ─> spot cheap? ─> run
//! ```
//! If several due times have passed, only the latest counts. Two daemons may decide the same due
//! time. Each tries to create a record named by it, and only one succeeds. The module has no clock.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::cron_field::wrong_field;
use crate::job::{CatchUp, JobId, Overlap, Reason, ScheduleSpec};
use crate::market::{UsdPerHour, elapsed};

/// The due times and open hours of a schedule.
#[derive(Clone, Debug)]
pub struct Calendar {
    cron: Option<Cron>,
    zone: TimeZone,
    hours: Option<(Time, Time)>,
}

/// The invalid part of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    #[error("`{text}` is not five fields of cron: {problem}")]
    Cron { text: String, problem: String },
    #[error("`{text}` {problem}")]
    CronField { text: String, problem: String },
    #[error("`{text}` is not a time zone that this machine knows")]
    Zone { text: String },
    #[error("`{text}` is never due")]
    Never { text: String },
}

#[derive(Clone, Copy, Debug)]
pub struct ScheduleFacts<'a> {
    pub spec: &'a ScheduleSpec,
    pub calendar: &'a Calendar,
    /// Nothing is due before this.
    pub since: Timestamp,
    /// The newest due time that has a decision: run or skipped.
    pub decided: Option<Timestamp>,
    /// Its run that has not ended.
    pub running: Option<&'a JobId>,
    /// A due time that a daemon saw in time and that has waited since: it was not missed.
    pub seen: Option<Timestamp>,
    pub spot: &'a Spot,
    pub now: Timestamp,
}

/// The job's current price on the spot market.
#[derive(Clone, Debug, PartialEq)]
pub enum Spot {
    /// Not asked yet; the price is asked last, if everything else permits the run.
    NotAsked,
    Unknown(String),
    /// No spot machine fits, and why.
    NoneFits(String),
    Costs(UsdPerHour),
}

#[derive(Clone, Debug, PartialEq)]
pub enum DueVerdict {
    /// Nothing is due before `next`; `None`: never again.
    Rest {
        next: Option<Timestamp>,
    },
    Run {
        due: Timestamp,
        reason: Reason,
    },
    /// This due time gets no run.
    Skip {
        due: Timestamp,
        reason: Reason,
    },
    /// It is due but may not start yet.
    Wait {
        due: Timestamp,
        until: Option<Timestamp>,
        reason: Reason,
    },
    /// Everything else permits the run: ask for the price and judge again.
    AskPrice {
        due: Timestamp,
    },
}

/// A run that would start later than this was missed: no daemon ran when it was due. A daemon looks
/// every 15 s, and a restart or update of the workstation takes minutes. With a longer time, a
/// morning's job would run at noon against its spec.
pub const MISSED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Limit for the count of missed runs; the number is only for people.
const MISSED_COUNTED: usize = 1000;

/// A backward search is checked by a forward search from this long before. It must exceed any clock
/// change (one hour each year, once three hours). A schedule of every minute must still take
/// microseconds.
const BEFORE: Duration = Duration::from_secs(4 * 3600);

/// Retries if only the backward search finds a due time. Such a time is next to a clock change, and
/// two changes never come in a row.
const SEARCHES_MAX: usize = 3;

/// How many due times are searched for one inside the open hours: a year of daily times. Fewer
/// would miss a monthly time; each costs microseconds.
const LOOKED_AHEAD: usize = 366;

impl Calendar {
    /// # Errors
    /// When a part of the schedule is invalid.
    pub fn of(spec: &ScheduleSpec) -> Result<Calendar, CalendarError> {
        let zone = TimeZone::get(&spec.timezone)
            .map_err(|_| CalendarError::Zone { text: spec.timezone.clone() })?;
        let cron = spec.cron.as_deref().map(parse).transpose()?;
        Ok(Calendar { cron, zone, hours: spec.only_between })
    }

    /// The first due time after a moment.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let cron = self.cron.as_ref()?;
        let next = cron.find_next_occurrence(&after.to_zoned(self.zone.clone()), false).ok()?;
        // At a clock change the result could go backwards, and the caller's loop would run forever.
        Some(next.timestamp()).filter(|next| *next > after)
    }

    /// When the next run after a moment can begin. A due time outside the open hours waits for
    /// them. A schedule without cron waits only for its hours.
    pub fn begins_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.cron {
            Some(_) => self.next_after(after).map(|due| self.begins(due)),
            None => self.opens(after),
        }
    }

    /// When a run that is due at this moment can begin.
    pub fn begins(&self, due: Timestamp) -> Timestamp {
        self.opens(due).unwrap_or(due)
    }

    /// Whether every due time searched is outside the open hours.
    pub fn is_never_in_its_hours(&self, now: Timestamp) -> bool {
        self.hours.is_some()
            && self.cron.is_some()
            && self.walk(now).take(LOOKED_AHEAD).all(|due| self.opens(due).is_some())
    }

    /// The latest due time after `after` and up to `until`.
    fn latest_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let cron = self.cron.as_ref()?;
        let mut end = until;
        for _ in 0..SEARCHES_MAX {
            if end <= after {
                break;
            }
            let near = cron
                .find_previous_occurrence(&end.to_zoned(self.zone.clone()), true)
                .ok()?
                .timestamp();
            let begin = near.saturating_sub(BEFORE).unwrap_or(Timestamp::MIN).max(after);
            // The forward search decides, because its times are shown to users.
            if let Some(latest) = self.walk(begin).take_while(|due| *due <= until).last() {
                return Some(latest);
            }
            end = near.min(end).saturating_sub(1.second()).ok()?;
        }
        None
    }

    fn walk(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.next_after(after), |due| self.next_after(*due))
    }

    /// When the open hours begin; `None`: they are open now, or there are none.
    fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let (from, to) = self.hours?;
        let local = now.to_zoned(self.zone.clone());
        let time = local.time();
        let open = if from <= to { from <= time && time < to } else { from <= time || time < to };
        if open {
            return None;
        }
        let day = if time < from { local.date() } else { local.date().tomorrow().ok()? };
        // A time inside a clock change becomes the moment after it.
        Some(day.to_datetime(from).to_zoned(self.zone.clone()).ok()?.timestamp())
    }

    fn shown(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M %Z").to_string()
    }
}

fn parse(text: &str) -> Result<Cron, CalendarError> {
    if let Some(problem) = wrong_field(text) {
        return Err(CalendarError::CronField { text: text.to_owned(), problem });
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser
        .parse(text)
        .map_err(|error| CalendarError::Cron { text: text.to_owned(), problem: error.to_string() })
}

/// Checks the whole schedule: an impossible date such as 30 February is valid cron.
///
/// # Errors
/// When the schedule is invalid or never due.
pub fn check(spec: &ScheduleSpec, now: Timestamp) -> Result<Calendar, CalendarError> {
    let calendar = Calendar::of(spec)?;
    match &spec.cron {
        Some(text) if calendar.next_after(now).is_none() => {
            Err(CalendarError::Never { text: text.clone() })
        }
        _ => Ok(calendar),
    }
}

/// The decision now. The caller's records prevent a second decision for the same due time.
pub fn judge(facts: &ScheduleFacts<'_>) -> DueVerdict {
    let after = facts.decided.map_or(facts.since, |decided| decided.max(facts.since));
    let once = facts.spec.cron.is_none();
    let due = if once {
        Some(facts.since).filter(|due| facts.decided.is_none_or(|decided| decided < *due))
    } else {
        facts.calendar.latest_in(after, facts.now)
    };
    let Some(due) = due else {
        return DueVerdict::Rest { next: facts.calendar.next_after(after.max(facts.now)) };
    };
    let reason = |verdict: &str, text: String| Reason::new(facts.now, "schedule", verdict, text);
    let missed = if once {
        0
    } else {
        facts.calendar.walk(after).take(MISSED_COUNTED).take_while(|earlier| *earlier < due).count()
    };
    let late = elapsed(due, facts.now);
    if !once
        && facts.spec.catch_up == CatchUp::None
        && late > MISSED_AFTER
        && facts.seen != Some(due)
    {
        let text = format!(
            "it was due {}, {} ago, and nobody drove",
            facts.calendar.shown(due),
            minutes(late)
        );
        return DueVerdict::Skip {
            due,
            reason: reason("missed", text).with("late_secs", late.as_secs_f64()),
        };
    }
    if let Some(running) = facts.running {
        let text = format!("its last run, {running}, has not ended");
        // The single run of a schedule without cron is never skipped.
        return match facts.spec.overlap {
            Overlap::Skip if !once => DueVerdict::Skip { due, reason: reason("overlap", text) },
            Overlap::Skip | Overlap::Queue => {
                DueVerdict::Wait { due, until: None, reason: reason("wait", text) }
            }
        };
    }
    if let Some(opens) = facts.calendar.opens(facts.now) {
        let text = format!("outside of its hours; they begin {}", facts.calendar.shown(opens));
        return DueVerdict::Wait { due, until: Some(opens), reason: reason("wait", text) };
    }
    match spot(facts) {
        Price::Fits => {}
        Price::Ask => return DueVerdict::AskPrice { due },
        Price::Not(text) => {
            return DueVerdict::Wait { due, until: None, reason: reason("wait", text) };
        }
    }
    let due_text = if once {
        "it was applied".to_owned()
    } else {
        format!("it was due {}", facts.calendar.shown(due))
    };
    let missed_text = match missed {
        0 => String::new(),
        1 => "; one earlier time was missed, and is not made up for".to_owned(),
        more => format!("; {more} earlier times were missed, and are not made up for"),
    };
    let numbers = reason("run", format!("{due_text}{missed_text}"))
        .with("late_secs", late.as_secs_f64())
        .with("missed", missed as f64);
    DueVerdict::Run { due, reason: numbers }
}

enum Price {
    Fits,
    Ask,
    Not(String),
}

fn spot(facts: &ScheduleFacts<'_>) -> Price {
    let Some(under) = facts.spec.only_while_spot_under else { return Price::Fits };
    match facts.spot {
        Spot::NotAsked => Price::Ask,
        Spot::Costs(price) if *price < under => Price::Fits,
        Spot::Costs(price) => {
            Price::Not(format!("spot costs {price}, and it waits for less than {under}"))
        }
        Spot::NoneFits(why) => Price::Not(format!(
            "it waits for spot under {under}, and no machine of that market would do: {why}"
        )),
        Spot::Unknown(why) => Price::Not(format!(
            "it waits for spot under {under}, and the price is not known: {why}"
        )),
    }
}

fn minutes(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    if minutes < 120 { format!("{minutes} minutes") } else { format!("{} hours", minutes / 60) }
}
