//! When a scheduled job is due, and whether it may start now.
//!
//! ```text
//!   cron, timezone ──> Calendar: the due times
//!   due? ──> missed long ago? ──> the last one still runs? ──> in its hours? ──> is spot cheap enough? ──> run
//! ```
//! Several due times that have passed are one: the latest. Which of two daemons runs it is not decided here: they create a
//! record named by the due time, and one of them succeeds. What must never live here: a clock, a call.

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

/// Which word of a schedule cannot be understood.
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

/// What is known of a schedule at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleFacts<'a> {
    pub spec: &'a ScheduleSpec,
    pub calendar: &'a Calendar,
    /// Nothing is due before.
    pub since: Timestamp,
    /// The newest due time that was decided, run or left out.
    pub decided: Option<Timestamp>,
    /// Its run that has not ended.
    pub running: Option<&'a JobId>,
    /// A due time that was seen in time and has waited since: it was not missed.
    pub seen: Option<Timestamp>,
    pub spot: &'a Spot,
    pub now: Timestamp,
}

/// What the job would pay on the spot market if it began now.
#[derive(Clone, Debug, PartialEq)]
pub enum Spot {
    /// Nobody has asked yet; asked only when everything else holds.
    NotAsked,
    Unknown(String),
    /// No machine of that market would do, and why.
    NoneFits(String),
    Costs(UsdPerHour),
}

/// What is to be done about a schedule.
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
    /// This due time is over without a run.
    Skip {
        due: Timestamp,
        reason: Reason,
    },
    /// It is due, and may not start yet.
    Wait {
        due: Timestamp,
        until: Option<Timestamp>,
        reason: Reason,
    },
    /// Everything else holds: ask for the price, and judge again.
    AskPrice {
        due: Timestamp,
    },
}

/// A run that starts later than this was missed: nobody drove when it was due. A daemon looks every quarter of a minute, and
/// a restart or an update of the workstation takes minutes; longer would run a morning's job at noon though it said not to.
pub const MISSED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Missed runs are counted up to so many: the number is for people.
const MISSED_COUNTED: usize = 1000;

/// A search backwards is made good by one forwards from so long before: it must be longer than any jump of a clock (three
/// hours, once; one hour every year), and short enough that a schedule of every minute is walked in microseconds.
const BEFORE: Duration = Duration::from_secs(4 * 3600);

/// A due time that only the search backwards finds is passed over so often: it stands beside a jump of the clock, and there
/// are not two of those in a row.
const SEARCHES_MAX: usize = 3;

/// So many due times are looked at for one that is in its hours: a year of every day. Fewer would not see a time that comes once a
/// month; each costs a search of microseconds.
const LOOKED_AHEAD: usize = 366;

impl Calendar {
    /// # Errors
    /// When a word of it cannot be understood.
    pub fn of(spec: &ScheduleSpec) -> Result<Calendar, CalendarError> {
        let zone = TimeZone::get(&spec.timezone).map_err(|_| CalendarError::Zone { text: spec.timezone.clone() })?;
        let cron = spec.cron.as_deref().map(parse).transpose()?;
        Ok(Calendar { cron, zone, hours: spec.only_between })
    }

    /// The first due time after a moment.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let cron = self.cron.as_ref()?;
        let next = cron.find_next_occurrence(&after.to_zoned(self.zone.clone()), false).ok()?;
        // A fold or a gap must never lead backwards: the loop that asks would not end.
        Some(next.timestamp()).filter(|next| *next > after)
    }

    /// When the next run after a moment can begin: what is due outside of its hours waits for them. Without times of its own, a
    /// schedule waits for nothing else.
    pub fn begins_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.cron {
            Some(_) => self.next_after(after).map(|due| self.begins(due)),
            None => self.opens(after),
        }
    }

    /// When what is due at this moment can begin.
    pub fn begins(&self, due: Timestamp) -> Timestamp {
        self.opens(due).unwrap_or(due)
    }

    /// Whether every run would wait for its hours, as far as anybody looks ahead.
    pub fn is_never_in_its_hours(&self, now: Timestamp) -> bool {
        self.hours.is_some() && self.cron.is_some() && self.walk(now).take(LOOKED_AHEAD).all(|due| self.opens(due).is_some())
    }

    /// The latest due time after one moment and not after another.
    fn latest_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let cron = self.cron.as_ref()?;
        let mut end = until;
        for _ in 0..SEARCHES_MAX {
            if end <= after {
                break;
            }
            let near = cron.find_previous_occurrence(&end.to_zoned(self.zone.clone()), true).ok()?.timestamp();
            let begin = near.saturating_sub(BEFORE).unwrap_or(Timestamp::MIN).max(after);
            // What is due is what the search forwards finds: it is the one that is shown.
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

    /// When its hours begin; `None`: they are now, or it has none.
    fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let (from, to) = self.hours?;
        let local = now.to_zoned(self.zone.clone());
        let time = local.time();
        let open = if from <= to { from <= time && time < to } else { from <= time || time < to };
        if open {
            return None;
        }
        let day = if time < from { local.date() } else { local.date().tomorrow().ok()? };
        // A time that a gap leaves out is the moment after the gap.
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
    parser.parse(text).map_err(|error| CalendarError::Cron { text: text.to_owned(), problem: error.to_string() })
}

/// Checks what only the whole shows: a day that no month has is a good pattern, and never due.
///
/// # Errors
/// When it cannot be understood, or is never due.
pub fn check(spec: &ScheduleSpec, now: Timestamp) -> Result<Calendar, CalendarError> {
    let calendar = Calendar::of(spec)?;
    match &spec.cron {
        Some(text) if calendar.next_after(now).is_none() => Err(CalendarError::Never { text: text.clone() }),
        _ => Ok(calendar),
    }
}

/// What is to be done now. Deciding the same due time twice is up to the records.
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
    let missed = if once { 0 } else { facts.calendar.walk(after).take(MISSED_COUNTED).take_while(|earlier| *earlier < due).count() };
    let late = elapsed(due, facts.now);
    if !once && facts.spec.catch_up == CatchUp::None && late > MISSED_AFTER && facts.seen != Some(due) {
        let text = format!("it was due {}, {} ago, and nobody drove", facts.calendar.shown(due), minutes(late));
        return DueVerdict::Skip { due, reason: reason("missed", text).with("late_secs", late.as_secs_f64()) };
    }
    if let Some(running) = facts.running {
        let text = format!("its last run, {running}, has not ended");
        // The one run of a schedule without times is never left out.
        return match facts.spec.overlap {
            Overlap::Skip if !once => DueVerdict::Skip { due, reason: reason("overlap", text) },
            Overlap::Skip | Overlap::Queue => DueVerdict::Wait { due, until: None, reason: reason("wait", text) },
        };
    }
    if let Some(opens) = facts.calendar.opens(facts.now) {
        let text = format!("outside of its hours; they begin {}", facts.calendar.shown(opens));
        return DueVerdict::Wait { due, until: Some(opens), reason: reason("wait", text) };
    }
    match spot(facts) {
        Price::Fits => {}
        Price::Ask => return DueVerdict::AskPrice { due },
        Price::Not(text) => return DueVerdict::Wait { due, until: None, reason: reason("wait", text) },
    }
    let due_text = if once { "it was applied".to_owned() } else { format!("it was due {}", facts.calendar.shown(due)) };
    let missed_text = match missed {
        0 => String::new(),
        1 => "; one earlier time was missed, and is not made up for".to_owned(),
        more => format!("; {more} earlier times were missed, and are not made up for"),
    };
    let numbers = reason("run", format!("{due_text}{missed_text}")).with("late_secs", late.as_secs_f64()).with("missed", missed as f64);
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
        Spot::Costs(price) => Price::Not(format!("spot costs {price}, and it waits for less than {under}")),
        Spot::NoneFits(why) => Price::Not(format!("it waits for spot under {under}, and no machine of that market would do: {why}")),
        Spot::Unknown(why) => Price::Not(format!("it waits for spot under {under}, and the price is not known: {why}")),
    }
}

fn minutes(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    if minutes < 120 { format!("{minutes} minutes") } else { format!("{} hours", minutes / 60) }
}
