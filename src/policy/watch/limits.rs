//! When a limit ends the attempt: time, money, a deadline, the machine's hard cap.
//!
//! ```text
//!   spec + extensions, price, spent so far ─> points, earliest first ─> judge(now) ─> level
//!
//!   began ───────────────── warn 80 % ──── warn 95 % ── drain ══════ ends
//!                                                        └ allowance for the last save and upload
//! ```
//! Every limit is a moment known in advance, so that a plan can show it and a test can name it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::job::{EndedBecause, LimitsSpec, Reason};
use crate::market::{Span, Usd, UsdPerHour};

#[derive(Clone, Debug, PartialEq)]
pub struct LimitFacts {
    /// When billing of this attempt began.
    pub began: Timestamp,
    pub price: UsdPerHour,
    pub spent_before: Usd,
    pub limits: LimitsSpec,
    pub extended: Extension,
    /// The current hard cap of the machine; a controller raises it after an extension.
    pub kill_at: Option<Timestamp>,
    /// Longest time for saving, uploading and powering off.
    pub drain: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extension {
    /// Added to the run time and to the deadline.
    pub time: Span,
    pub budget: Usd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    MaxRuntime,
    Budget,
    Deadline,
    KillAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPoint {
    pub kind: LimitKind,
    /// Billing must have ended by then.
    pub at: Timestamp,
    /// The drain must begin by then, at the earliest when the attempt began.
    pub drain_at: Timestamp,
}

/// How near the next limit is. The warnings are levels, not edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitLevel {
    Far,
    Warn80,
    Warn95,
    /// Drain now.
    Reached,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LimitVerdict {
    pub level: LimitLevel,
    /// `None`: the attempt has no limit.
    pub next: Option<LimitPoint>,
    pub reason: Option<Reason>,
}

/// At 80 % there is time to extend by hand; 95 % is the last warning.
const WARN_SHARES: [(f64, LimitLevel); 2] =
    [(0.95, LimitLevel::Warn95), (0.80, LimitLevel::Warn80)];

/// Part of the text for an approaching limit.
pub const NEARS: &str = "saving begins in";

/// All limits of an attempt, the earliest drain first.
pub fn limit_points(account: &LimitFacts) -> Vec<LimitPoint> {
    let LimitFacts { began, limits, extended, .. } = account;
    let runtime = limits
        .max_runtime
        .map(|most| after(after(*began, most.duration()), extended.time.duration()));
    let money = limits.budget.and_then(|budget| {
        let left = budget + extended.budget - account.spent_before;
        account.price.time_for(left).map(|time| after(*began, time))
    });
    let deadline = limits.deadline.map(|deadline| after(deadline, extended.time.duration()));
    let mut points: Vec<LimitPoint> = [
        (LimitKind::MaxRuntime, runtime),
        (LimitKind::Budget, money),
        (LimitKind::Deadline, deadline),
        (LimitKind::KillAt, account.kill_at),
    ]
    .into_iter()
    .filter_map(|(kind, at)| {
        at.map(|at| LimitPoint {
            kind,
            at,
            drain_at: before(at, account.drain.duration()).max(*began),
        })
    })
    .collect();
    points.sort_by_key(|point| point.drain_at);
    points
}

/// How near the next limit is, without words; `None`: no limit.
pub fn limit_level(account: &LimitFacts, now: Timestamp) -> Option<LimitLevel> {
    let next = limit_points(account).into_iter().next()?;
    Some(level(&next, used(account, &next, now).1, now))
}

fn level(next: &LimitPoint, share: f64, now: Timestamp) -> LimitLevel {
    if now >= next.drain_at {
        return LimitLevel::Reached;
    }
    WARN_SHARES.iter().find(|(warn, _)| share >= *warn).map_or(LimitLevel::Far, |(_, level)| *level)
}

/// Seconds since the attempt began, and their share of the time until the drain.
fn used(account: &LimitFacts, next: &LimitPoint, now: Timestamp) -> (f64, f64) {
    let used = now.duration_since(account.began).as_secs_f64().max(0.0);
    let whole = next.drain_at.duration_since(account.began).as_secs_f64();
    (used, if whole > 0.0 { used / whole } else { 1.0 })
}

pub fn judge_limits(account: &LimitFacts, now: Timestamp) -> LimitVerdict {
    let Some(next) = limit_points(account).into_iter().next() else {
        return LimitVerdict { level: LimitLevel::Far, next: None, reason: None };
    };
    let (used, share) = used(account, &next, now);
    let level = level(&next, share, now);
    let left = next.drain_at.duration_since(now).as_secs_f64();
    let spent = account.spent_before + account.price.cost_of(Duration::from_secs_f64(used));
    let text = match level {
        // Also read later in the receipt.
        LimitLevel::Reached => {
            match Span::from_secs(next.at.duration_since(next.drain_at).as_secs().unsigned_abs()) {
                Span::ZERO => format!("{} was reached at {:.0}", next.kind.words(), next.at),
                drain => format!(
                    "{} is at {:.0}; saving and ending began {drain} before",
                    next.kind.words(),
                    next.at
                ),
            }
        }
        _ => format!(
            "{} falls at {:.0}, {NEARS} {}",
            next.kind.words(),
            next.at,
            Span::from_secs(left.max(0.0) as u64)
        ),
    };
    let verdict =
        if level == LimitLevel::Reached { next.kind.ended_because().word() } else { "go_on" };
    let reason = Reason::new(now, "budget", verdict, text)
        .with("used_share", share)
        .with("left_secs", left)
        .with("drain_secs", account.drain.secs_f64())
        .with("spent_usd", spent.dollars());
    LimitVerdict { level, next: Some(next), reason: Some(reason) }
}

impl LimitKind {
    /// The outcome's word for an end by this limit.
    pub fn ended_because(self) -> EndedBecause {
        match self {
            LimitKind::MaxRuntime => EndedBecause::MaxRuntime,
            LimitKind::KillAt => EndedBecause::HardEnd,
            LimitKind::Budget => EndedBecause::Budget,
            LimitKind::Deadline => EndedBecause::Deadline,
        }
    }

    fn words(self) -> &'static str {
        match self {
            LimitKind::MaxRuntime => "the longest run time",
            LimitKind::Budget => "the budget",
            LimitKind::Deadline => "the deadline",
            LimitKind::KillAt => "the machine's hard end",
        }
    }
}

/// A later time, or the largest timestamp on overflow.
fn after(at: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time)
        .ok()
        .and_then(|time| at.checked_add(time).ok())
        .unwrap_or(Timestamp::MAX)
}

fn before(at: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time)
        .ok()
        .and_then(|time| at.checked_sub(time).ok())
        .unwrap_or(Timestamp::MIN)
}
