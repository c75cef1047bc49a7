//! Whether a controller that has not launched a plan knows that nobody has.
//!
//! ```text
//!   planned ──> sure ─┬─ refused, with each answer heard ──> sure for a moment more
//!                     ├─ not answered at all ─────────────> sure for half an hour
//!                     └─ an answer was lost ──────────────> never again
//! ```
//! What another plans is not sure here at any time. Not here: what follows from it
//! (`policy::lifecycle::missing_machine`, `policy::billing::settlement`).

use std::time::Duration;

/// A refusal says for so long that nobody has launched the plan: another controller waits longer
/// than this for whoever made it (`policy::lifecycle::missing_machine`). Shorter than the wait of a
/// throttled cloud, and a refusal is made sure of for minutes.
const REFUSAL_HOLDS: Duration = Duration::from_secs(40);

/// Who has made a plan and was not answered at all says so for this long. What another launches
/// meanwhile the cloud still shows by then, if it has ended: half of the hour for which it does.
const PLAN_HOLDS: Duration = Duration::from_secs(30 * 60);

/// By the steady clock of this controller.
#[derive(Clone, Debug, Default)]
pub struct Certainty {
    /// What is sure until then, unless a launch is refused once more before.
    sure_until: Option<Duration>,
}

impl Certainty {
    /// Takes note of a plan that this controller has made: nobody has launched it before.
    pub fn planned(&mut self, now: Duration) {
        self.sure_until = Some(now + PLAN_HOLDS);
    }

    /// Takes note of a refused launch: a refusal of later than the last one held makes nothing sure
    /// again.
    pub fn refused(&mut self, now: Duration) {
        self.looked(now);
        self.sure_until = self.sure_until.map(|_| now + REFUSAL_HOLDS);
    }

    /// Takes note of a launch whose answer was lost: it may have come through.
    pub fn lost(&mut self) {
        self.sure_until = None;
    }

    /// Takes note of the present.
    pub fn looked(&mut self, now: Duration) {
        self.sure_until = self.sure_until.filter(|until| now < *until);
    }

    pub fn is_sure(&self) -> bool {
        self.sure_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 102433: the cloud said nothing for a quarter of an hour, and then another controller
    /// launched what had been refused.
    #[test]
    fn a_refusal_of_long_ago_does_not_say_that_nobody_launched_since() {
        let secs = Duration::from_secs;
        let mut certainty = planned();
        certainty.refused(secs(10));
        certainty.looked(secs(25));
        assert!(certainty.is_sure());
        certainty.looked(secs(900));
        assert!(!certainty.is_sure());
        certainty.refused(secs(901));
        assert!(!certainty.is_sure(), "another was perhaps given meanwhile what is refused now");
    }

    /// Seed 65022589 of 24 h: nobody was answered for an hour and more, and another had launched
    /// the plan just before.
    #[test]
    fn a_plan_of_long_ago_may_have_been_launched_by_another() {
        let mut certainty = planned();
        certainty.looked(PLAN_HOLDS - Duration::from_secs(1));
        assert!(certainty.is_sure());
        certainty.looked(Duration::from_secs(87 * 60));
        assert!(!certainty.is_sure());
    }

    #[test]
    fn nothing_is_sure_of_a_lost_answer_nor_of_what_another_plans() {
        let mut certainty = planned();
        certainty.lost();
        certainty.refused(Duration::from_secs(1));
        assert!(!certainty.is_sure());
        let mut theirs = Certainty::default();
        theirs.refused(Duration::ZERO);
        assert!(!theirs.is_sure());
    }

    fn planned() -> Certainty {
        let mut certainty = Certainty::default();
        certainty.planned(Duration::ZERO);
        certainty
    }
}
