//! What the idle rule's two mistakes cost: waiting to be sure, and stopping a job that would have worked on.
//!
//! The rule itself knows no money (`idle`): it waits as long as the job's rhythm asks for. This says afterwards what that was
//! worth, so that somebody can choose another window. What must never live here: a verdict.

use std::time::Duration;

use serde::Serialize;

use crate::market::{Span, Usd, UsdPerHour};

/// One idle verdict, as its records tell it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleFacts {
    /// How long every signal had been quiet.
    pub quiet: Duration,
    /// From what is safe (a checkpoint, or the beginning of the work) to the verdict; zero where a save came with it.
    pub unsaved: Duration,
    /// From the plan to the first work: what another machine would need again.
    pub start: Duration,
    /// What the machine bills.
    pub hourly: UsdPerHour,
}

/// Both sides, in time and money.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleCost {
    /// Paid for while nothing happened, until the rule was sure.
    pub waited: Span,
    pub waited_usd: Usd,
    /// Of work that a stop by mistake would have had to do again.
    pub lost: Span,
    /// And for a start.
    pub start: Span,
    pub lost_usd: Usd,
}

/// The time that was quiet is not counted as work that would be lost: if the verdict was wrong it was, in part, and the true
/// figure is larger by at most that.
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
        let cost = idle_cost(&IdleFacts { quiet: minutes(15), unsaved: minutes(45), start: minutes(10), hourly });
        assert_eq!((cost.waited_usd, cost.lost_usd), ("$0.30".parse().expect("money"), "$0.80".parse().expect("money")));
        let saved = idle_cost(&IdleFacts { quiet: minutes(15), unsaved: Duration::ZERO, start: minutes(10), hourly });
        assert_eq!((saved.lost, saved.lost_usd), (Span::ZERO, "$0.20".parse().expect("money")));
    }
}
