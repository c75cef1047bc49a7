//! A job's end in advance: whether it was requested, how long its machine is kept, and the end that
//! its silence would bring.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::local_time;
use crate::instance::Status;
use crate::job::{AttemptPhase, OnSpec, Reaction};
use crate::market::{Span, Usd, elapsed};
use crate::policy::EndWish;
use crate::policy::lifecycle::reconcile::AttemptFacts;

/// A request to end that is not carried out yet. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct EndAsked {
    /// `stop` or `cancel`.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub wish: &'static str,
    pub by: String,
    pub at: Timestamp,
}

impl From<EndWish> for EndAsked {
    fn from(wish: EndWish) -> Self {
        EndAsked { wish: if wish.cancel { "cancel" } else { "stop" }, by: wish.by, at: wish.at }
    }
}

/// A machine that is kept after the end (`[on] failure = "keep 30m"`). The field names are an
/// interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Held {
    pub until: Timestamp,
    pub usd: Usd,
    /// The folder of its work, for a local machine.
    #[cfg_attr(feature = "web", schema(value_type = Option<String>))]
    pub folder: Option<PathBuf>,
}

impl Held {
    pub fn of(attempt: &AttemptFacts, now: Timestamp) -> Option<Held> {
        let status = attempt
            .status
            .as_ref()
            .filter(|status| status.phase == AttemptPhase::Held && attempt.settled.is_none())?;
        let until = status.held_until?;
        Some(Held {
            until,
            usd: attempt.plan.offer.hourly().cost_of(elapsed(now, until)),
            folder: None,
        })
    }

    /// The text after "held".
    pub fn text(&self) -> String {
        let costs =
            if self.usd > Usd::ZERO { format!(", {} from now", self.usd) } else { String::new() };
        let folder = self
            .folder
            .as_ref()
            .map(|folder| format!("; its work is in {}", folder.display()))
            .unwrap_or_default();
        format!("until {}{costs}{folder}", local_time(self.until))
    }
}

/// One end that a job is heading for. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Countdown {
    pub at: Timestamp,
    /// `hard cap`, `budget`, `idle` and so on.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub what: &'static str,
    /// The state that must last for this end; `null`: it comes in any case.
    #[cfg_attr(feature = "web", schema(value_type = Option<String>))]
    pub condition: Option<&'static str>,
}

/// The end that a watching policy brings if nothing changes.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEnd {
    pub at: Timestamp,
    pub policy: WatchPolicy,
    /// The time without a sign, and the time that is enough for the verdict.
    pub quiet: Span,
    pub window: Span,
    /// The time from the heartbeat to the end: the rest of the window, longer during a keep.
    pub left: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchPolicy {
    Idle,
    Stall,
}

/// A shorter share of the window is an ordinary pause, and a view would flicker.
const PAUSE_SHARE: f64 = 0.1;

/// From here on a person should decide: at most half of a window is left.
const SOON_SHARE: f64 = 0.5;

impl WatchEnd {
    /// During a keep (`lamp extend JOB --keep 1h`) the end comes after it. `None`: no clock runs,
    /// or its verdict was given and no keep holds it off.
    pub fn of(status: &Status, kept_until: Option<Timestamp>) -> Option<WatchEnd> {
        let reason = status.reason.as_ref()?;
        let policy = match reason.policy.as_str() {
            "idle" => WatchPolicy::Idle,
            "stall" => WatchPolicy::Stall,
            _ => return None,
        };
        let span = |secs: f64| Duration::try_from_secs_f64(secs).ok().map(Span::from_duration);
        let (quiet, window) = reason.clock()?;
        let (quiet, window) = (span(quiet)?, span(window)?);
        let kept_until = kept_until.filter(|until| *until > status.at);
        if quiet == Span::ZERO || (quiet >= window && kept_until.is_none()) {
            return None;
        }
        let rest = window.duration().saturating_sub(quiet.duration());
        let window_end = status.at.checked_add(rest).ok()?;
        let at = kept_until.map_or(window_end, |until| until.max(window_end));
        let left = Span::from_duration(elapsed(status.at, at));
        Some(WatchEnd { at, policy, quiet, window, left })
    }

    /// Whether it is quiet for longer than an ordinary pause, whatever follows from that.
    pub fn is_quiet(status: &Status) -> bool {
        matches!(status.verdict.as_str(), "idle" | "stalled")
            || WatchEnd::of(status, None).is_some_and(|end| end.share() >= PAUSE_SHARE)
    }

    fn share(&self) -> f64 {
        self.quiet.secs_f64() / self.window.secs_f64()
    }

    /// `None` also for an ordinary pause, or if only a message follows.
    pub fn seen(status: &Status, on: &OnSpec, kept_until: Option<Timestamp>) -> Option<WatchEnd> {
        let end = WatchEnd::of(status, kept_until)?;
        let reaction = match end.policy {
            WatchPolicy::Idle => on.idle,
            WatchPolicy::Stall => on.stall,
        };
        let is_seen = reaction != Reaction::Notify && end.share() >= PAUSE_SHARE;
        is_seen.then_some(end)
    }

    pub fn is_soon(&self) -> bool {
        self.left.secs_f64() <= SOON_SHARE * self.window.secs_f64()
    }
}

impl WatchPolicy {
    /// The text before the time.
    pub fn what(self) -> &'static str {
        match self {
            WatchPolicy::Idle => "it ends as idle, if it stays quiet, at",
            WatchPolicy::Stall => "without progress it is restarted or ended at",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn end(quiet: f64, on: serde_json::Value) -> Option<WatchEnd> {
        kept_end(quiet, on, None)
    }

    /// `kept`: the seconds from the heartbeat to the end of the keep.
    fn kept_end(quiet: f64, on: serde_json::Value, kept: Option<i64>) -> Option<WatchEnd> {
        let at = Timestamp::from_second(1_700_000_000).expect("a moment");
        let numbers = json!({ "quiet_secs": quiet, "window_secs": 900.0 });
        let reason = json!({ "at": at, "policy": "idle", "verdict": "busy", "text": "t", "numbers": numbers });
        let status = json!({ "format": 1, "instance": "i", "sequence": 1, "at": at, "phase": "running",
            "started": at, "verdict": "busy", "reason": reason, "useful": "1s", "idle": "0s" });
        let status: Status = serde_json::from_value(status).expect("a heartbeat");
        let on = serde_json::from_value(on).expect("reactions");
        let kept = kept.map(|secs| at + jiff::SignedDuration::from_secs(secs));
        WatchEnd::seen(&status, &on, kept)
    }

    #[test]
    fn pause_becomes_an_end_unless_only_a_message_follows() {
        assert_eq!(end(60.0, json!({})), None, "an ordinary pause");
        let quiet = end(720.0, json!({})).expect("an end");
        assert_eq!(quiet.at.as_second(), 1_700_000_180);
        assert!(quiet.is_soon());
        assert_eq!(end(900.0, json!({})), None, "the verdict was given");
        assert_eq!(end(720.0, json!({ "idle": "notify" })), None);
    }

    #[test]
    fn end_by_silence_comes_after_a_keep() {
        let left = |quiet: f64, kept: i64| {
            let end = kept_end(quiet, json!({}), Some(kept))?;
            Some((end.at.as_second() - 1_700_000_000, end.is_soon()))
        };
        assert_eq!(left(720.0, 3600), Some((3600, false)));
        assert_eq!(left(720.0, 60), Some((180, true)), "the window ends later");
        assert_eq!(left(720.0, -60), Some((180, true)), "the keep is over");
        assert_eq!(left(2000.0, 300), Some((300, true)), "the verdict is held off");
        assert_eq!(left(2000.0, 0), None, "the verdict was given");
        assert_eq!(left(0.0, 3600), None, "no clock runs");
    }
}
