//! Combines all requests of a job. The agent and the controller obey the same result.
//!
//! Every request is read each time, so a crash can neither lose a wish nor count it twice. A cancel
//! overrides a stop in any order. Whether a wish was obeyed is decided elsewhere.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{AttemptNo, EndedBecause, Request, Wish};
use crate::market::{FallbackCost, Market, Span, Usd, elapsed};

/// Largest difference between two synchronised clocks.
pub(crate) const CLOCKS_DIFFER: Duration = Duration::from_secs(5 * 60);

/// The combined wishes of all users.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Wishes {
    pub end: Option<EndWish>,
    /// Added to `max_runtime`, to the deadline, and to the time a machine is held after the end.
    pub more_time: Span,
    pub more_budget: Usd,
    /// A higher cost limit for a fallback machine than in the spec.
    pub fallback_cost: Option<FallbackCost>,
    /// Number of the newest request for a checkpoint.
    pub checkpoint: Option<u32>,
    /// Number of the newest request for more time, which also restarts the idle clock.
    pub extended: Option<u32>,
    /// Until then it is not ended as idle or stalled.
    pub kept_until: Option<Timestamp>,
    /// The newest wish of a controller to continue on another market.
    pub moves: Option<MoveWish>,
}

/// A controller's wish to end an attempt so that the next runs on another market.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveWish {
    pub attempt: AttemptNo,
    pub to: Market,
    pub by: String,
}

/// A person's wish to end the job: the first cancel, otherwise the first stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndWish {
    pub cancel: bool,
    pub by: String,
    pub at: Timestamp,
}

impl Wishes {
    pub fn of(requests: &[Request]) -> Self {
        let mut folded = Wishes::default();
        for request in requests {
            let end = |cancel| Some(EndWish { cancel, by: request.by.clone(), at: request.at });
            match request.wish {
                Wish::Cancel if folded.end.as_ref().is_none_or(|end| !end.cancel) => {
                    folded.end = end(true)
                }
                Wish::Stop if folded.end.is_none() => folded.end = end(false),
                Wish::Cancel | Wish::Stop | Wish::Interrupt { .. } => {}
                Wish::Move { attempt, to } => {
                    folded.moves = Some(MoveWish { attempt, to, by: request.by.clone() })
                }
                Wish::Keep { time } => {
                    // A time beyond the calendar is kept for ever.
                    let until = request.at.saturating_add(time.duration());
                    let until = until.unwrap_or(Timestamp::MAX);
                    folded.kept_until = folded.kept_until.max(Some(until));
                }
                Wish::Checkpoint => folded.checkpoint = folded.checkpoint.max(Some(request.number)),
                Wish::Extend { time, budget, fallback_cost } => {
                    if let Some(wider) = fallback_cost {
                        folded.fallback_cost =
                            Some(folded.fallback_cost.map_or(wider, |known| known.or_wider(wider)));
                    }
                    // A higher fallback cost adds no time to a running machine.
                    if time.is_none() && budget.is_none() {
                        continue;
                    }
                    let time = time.unwrap_or_default().duration();
                    folded.more_time =
                        Span::from_duration(folded.more_time.duration().saturating_add(time));
                    folded.more_budget += budget.unwrap_or_default();
                    folded.extended = folded.extended.max(Some(request.number));
                }
            }
        }
        folded
    }
}

impl EndWish {
    /// Whether it is older than `than`. A date in the future comes from a wrong clock and counts as
    /// old, because the wish certainly exists.
    pub fn is_older(&self, now: Timestamp, than: Duration) -> bool {
        elapsed(self.at, now) > than || elapsed(now, self.at) > CLOCKS_DIFFER
    }

    pub fn because(&self) -> EndedBecause {
        if self.cancel { EndedBecause::UserCancelled } else { EndedBecause::UserStopped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u32, wish: Wish) -> Request {
        let at = Timestamp::from_second(number.into()).unwrap();
        Request { format: 1, number, at, by: format!("{number}@here"), wish }
    }

    fn end(number: u32, cancel: bool) -> Option<EndWish> {
        Some(EndWish {
            cancel,
            by: format!("{number}@here"),
            at: Timestamp::from_second(number.into()).unwrap(),
        })
    }

    #[test]
    fn longest_keep_counts() {
        let keep = |hours: u64| Wish::Keep { time: Span::from_secs(hours * 3600) };
        let folded = Wishes::of(&[request(1, keep(2)), request(2, keep(1))]);
        assert_eq!(folded.kept_until.map(Timestamp::as_second), Some(7201));
        assert_eq!((folded.more_time, folded.extended), (Span::ZERO, None), "no limit moves");
        let folded = Wishes::of(&[request(1, keep(1 << 40))]);
        assert_eq!(folded.kept_until, Some(Timestamp::MAX), "beyond the calendar");
    }

    #[test]
    fn cancel_wins_and_extensions_add_up() {
        let hour = |hours: u64| Wish::Extend {
            time: Some(Span::from_secs(hours * 3600)),
            budget: Some(Usd::from_micros(1)),
            fallback_cost: None,
        };
        let folded = Wishes::of(&[
            request(1, Wish::Cancel),
            request(2, hour(1)),
            request(3, Wish::Stop),
            request(4, hour(2)),
        ]);
        assert_eq!(folded.end, end(1, true));
        assert_eq!(folded.more_time, Span::from_secs(3 * 3600));
        assert_eq!(folded.more_budget, Usd::from_micros(2));
        assert_eq!(folded.extended, Some(4));
        assert_eq!(Wishes::of(&[]), Wishes::default());
    }

    #[test]
    fn first_request_of_a_kind_counts_and_repeats_delay_nothing() {
        let stop_stop = [request(1, Wish::Stop), request(2, Wish::Stop)];
        assert_eq!(Wishes::of(&stop_stop).end, end(1, false));
        let stop_cancel_cancel =
            [request(1, Wish::Stop), request(2, Wish::Cancel), request(3, Wish::Cancel)];
        assert_eq!(Wishes::of(&stop_cancel_cancel).end, end(2, true));
    }
}
