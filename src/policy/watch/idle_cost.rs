//! The cost of the idle rule's two errors: waiting too long, and stopping a job that would have
//! continued.
//!
//! The rule (`idle`) ignores money and waits as long as the job's rhythm needs. This figure helps
//! the user to choose another window.

use std::time::Duration;

use serde::Serialize;

use crate::market::{Span, Usd, UsdPerHour};

/// One idle verdict, from its records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleFacts {
    pub quiet: Duration,
    /// Time from the last safe point (a checkpoint, or the beginning of the work) to the verdict;
    /// zero after a save.
    pub unsaved: Duration,
    /// Time from the plan to the first work, which another machine would need again.
    pub start: Duration,
    pub hourly: UsdPerHour,
}

/// Both errors, in time and money.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct IdleCost {
    /// Quiet time paid until the verdict.
    pub waited: Span,
    pub waited_usd: Usd,
    /// Work that a wrong stop would have repeated.
    pub lost: Span,
    pub start: Span,
    pub lost_usd: Usd,
}

/// Quiet time is not counted as lost work. If the verdict was wrong, the true loss is larger by at
/// most that time.
pub fn idle_cost(facts: &IdleFacts) -> IdleCost {
    let lost = facts.unsaved.saturating_sub(facts.quiet);
    IdleCost {
        waited: Span::from_duration(facts.quiet),
        waited_usd: facts.hourly.cost_of(facts.quiet),
        lost: Span::from_duration(lost),
        start: Span::from_duration(facts.start),
        lost_usd: facts.hourly.cost_of(lost + facts.start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_mistakes_have_their_price() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let hourly = UsdPerHour::new("$1.20".parse().expect("a price"));
        let cost = idle_cost(&IdleFacts {
            quiet: minutes(15),
            unsaved: minutes(45),
            start: minutes(10),
            hourly,
        });
        assert_eq!(
            (cost.waited_usd, cost.lost_usd),
            ("$0.30".parse().expect("money"), "$0.80".parse().expect("money"))
        );
        let saved = idle_cost(&IdleFacts {
            quiet: minutes(15),
            unsaved: Duration::ZERO,
            start: minutes(10),
            hourly,
        });
        assert_eq!((saved.lost, saved.lost_usd), (Span::ZERO, "$0.20".parse().expect("money")));
    }
}
