//! All requests of a job, folded into what they ask for together.
//!
//! A wish is never lost and never counted twice: the fold reads every request each time, so a crash in between changes
//! nothing. A cancel wins over a stop whatever the order.

use super::supervise::EndWish;
use crate::job::{Request, Wish};
use crate::market::{Span, Usd};

#[derive(Clone, Debug, PartialEq, Default)]
pub struct Wishes {
    pub end: Option<EndWish>,
    /// Added to `max_runtime`, and to the time that a machine is held after the end.
    pub more_time: Span,
    pub more_budget: Usd,
    /// The number of the newest request for a checkpoint.
    pub checkpoint: Option<u32>,
    /// The number of the newest request for more time: it also restarts the idle clock.
    pub extended: Option<u32>,
}

pub fn wishes(requests: &[Request]) -> Wishes {
    let mut folded = Wishes::default();
    for request in requests {
        match request.wish {
            Wish::Cancel => folded.end = Some(EndWish { cancel: true, by: request.by.clone() }),
            Wish::Stop if folded.end.is_none() => folded.end = Some(EndWish { cancel: false, by: request.by.clone() }),
            Wish::Stop | Wish::Interrupt { .. } => {}
            Wish::Checkpoint => folded.checkpoint = folded.checkpoint.max(Some(request.number)),
            Wish::Extend { time, budget } => {
                folded.more_time = Span::from_duration(folded.more_time.duration().saturating_add(time.unwrap_or(Span::ZERO).duration()));
                folded.more_budget += budget.unwrap_or(Usd::ZERO);
                folded.extended = folded.extended.max(Some(request.number));
            }
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u32, wish: Wish) -> Request {
        Request { format: 1, number, at: jiff::Timestamp::UNIX_EPOCH, by: "me@here".into(), wish }
    }

    #[test]
    fn a_cancel_wins_and_extensions_add_up() {
        let hour = |hours: u64| Wish::Extend { time: Some(Span::from_secs(hours * 3600)), budget: Some(Usd::from_micros(1)) };
        let folded = wishes(&[request(1, Wish::Cancel), request(2, hour(1)), request(3, Wish::Stop), request(4, hour(2))]);
        assert_eq!(folded.end, Some(EndWish { cancel: true, by: "me@here".into() }));
        assert_eq!(folded.more_time, Span::from_secs(3 * 3600));
        assert_eq!(folded.more_budget, Usd::from_micros(2));
        assert_eq!(folded.extended, Some(4));
        assert_eq!(wishes(&[]), Wishes::default());
    }
}
