//! Whether a controller knows for certain that its plan was never launched.
//!
//! ```text
//!   planned ──> sure ─┬─ refused, with each answer heard ──> sure for a moment more
//!                     ├─ not answered at all ─────────────> sure for half an hour
//!                     └─ an answer was lost ──────────────> never again
//! ```
//! Plans of other controllers are never certain. `policy::lifecycle::missing_machine` and
//! `policy::billing::settlement` use this.

use std::time::Duration;

/// For so long a refusal proves that the plan was not launched: another controller waits longer for
/// the author of a plan (`policy::lifecycle::missing_machine`). If this is shorter than the delay
/// after throttling, a refusal waits minutes for certainty.
const REFUSAL_HOLDS: Duration = Duration::from_secs(40);

/// For so long an unanswered author of a plan counts as certain. If another controller launches
/// meanwhile, the cloud still shows the ended machine: this is half of the hour for which it does.
const PLAN_HOLDS: Duration = Duration::from_secs(30 * 60);

/// By the steady clock of this controller.
#[derive(Clone, Debug, Default)]
pub struct Certainty {
    /// Certain until then, unless a launch is refused before.
    sure_until: Option<Duration>,
}

impl Certainty {
    /// Notes a new plan of this controller.
    pub fn planned(&mut self, now: Duration) {
        self.sure_until = Some(now + PLAN_HOLDS);
    }

    /// Notes a refused launch. A refusal after the certainty has ended does not bring it back.
    pub fn refused(&mut self, now: Duration) {
        self.looked(now);
        self.sure_until = self.sure_until.map(|_| now + REFUSAL_HOLDS);
    }

    /// Notes a launch whose answer was lost: it may have made a machine.
    pub fn lost(&mut self) {
        self.sure_until = None;
    }

    /// Notes the present time.
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
    fn old_refusal_proves_nothing() {
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

    /// Seed 65022589 of 24 h: the cloud did not answer for over an hour, and another controller had
    /// launched the plan just before.
    #[test]
    fn old_plan_is_not_certain() {
        let mut certainty = planned();
        certainty.looked(PLAN_HOLDS - Duration::from_secs(1));
        assert!(certainty.is_sure());
        certainty.looked(Duration::from_secs(87 * 60));
        assert!(!certainty.is_sure());
    }

    #[test]
    fn lost_answer_or_another_plan_is_never_certain() {
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
