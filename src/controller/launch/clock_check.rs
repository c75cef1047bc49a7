//! Whose clock counts: where this workstation's own is wrong, the job root's.
//!
//! ```text
//!   a new plan ──────────────────> further off than five minutes? ──> nothing is launched, and somebody is told
//!   a schedule that is due ──────> the same ──> nothing is decided, and that is logged
//!   a machine is shown no more ──> the store's present, and when its outcome came ──> policy::billing::billed_until
//! ```
//! A machine's hard end is counted from its plan, and whoever ends it goes by the cloud's clock: by
//! a clock that is a day behind it would be launched beyond its own end, by one that is a day ahead
//! it might bill a day longer than was said. A job root that is a folder has no other clock. Not
//! here: a length of time (the steady clock measures those).

use std::time::Duration;

use jiff::Timestamp;

use crate::controller::act::ActError;
use crate::controller::drive::Controller;
use crate::controller::observe::Observed;
use crate::instance::InstanceView;
use crate::jobdir::{JobDir, layout};
use crate::market::{Span, elapsed};
use crate::policy::lifecycle::continuation::is_kept_for;
use crate::policy::lifecycle::reconcile::{CloudAnswer, Unshown};
use crate::ports::StoreError;

/// As much as the drain before a hard end allows for, and as much as EC2 allows a signature. Clocks
/// that are set over the network are a second apart; less would refuse one that a person has set.
const OFF_MAX: Duration = Duration::from_secs(5 * 60);

/// A machine that is settled was missing for a minute; sooner nobody asks for its end.
const MISSED: Duration = Duration::from_secs(60);

/// A store that does not say what time it is gets so long, and then this workstation's clock has to
/// do.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// A clock that was right is right for so long, unless it was set since: a launch follows its plan
/// by less.
const RIGHT_FOR: Duration = Duration::from_secs(60);

/// When the clock was seen to be right: by the steady clock, and by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenRight {
    steady: Duration,
    wall: Timestamp,
}

impl SeenRight {
    /// It has gone as far as the steady clock since, so nobody has set it (seed 28000341 of 24 h: a
    /// day back, between the question and the plan).
    fn holds(self, steady: Duration, wall: Timestamp) -> bool {
        let went = steady.saturating_sub(self.steady);
        let ought = self.wall.saturating_add(went).unwrap_or(Timestamp::MAX);
        went < RIGHT_FOR && apart(ought, wall) <= OFF_MAX
    }
}

/// However they lie.
fn apart(one: Timestamp, other: Timestamp) -> Duration {
    elapsed(one, other).max(elapsed(other, one))
}

impl Controller {
    /// Refuses to plan by a clock that is wrong. A store that does not say what time it is refuses
    /// nothing here: a person stands beside it, and the plan has to be written there next. Asked
    /// beside something else that takes as long, the launch that follows need not ask.
    ///
    /// # Errors
    /// [`ActError::ClockOff`].
    pub async fn check_clock(&self) -> Result<(), ActError> {
        self.compare_clocks().await.map(drop)
    }

    /// The same where nobody stands by: what the store does not say is not known, and is asked
    /// again at the next look.
    ///
    /// # Errors
    /// [`ActError::ClockOff`], or [`ActError::Record`] where the store does not answer.
    pub(crate) async fn must_know_the_time(&self) -> Result<(), ActError> {
        match self.compare_clocks().await? {
            None => Ok(()),
            Some(error) => Err(ActError::Record(error.into())),
        }
    }

    /// `Some`: the store did not say, and why.
    async fn compare_clocks(&self) -> Result<Option<StoreError>, ActError> {
        let known = || {
            self.clock_right
                .lock()
                .expect("nobody panics while holding it: a moment is read or put in")
        };
        let is_known = known().is_some_and(|seen| seen.holds(self.clock.mono(), self.clock.now()));
        if self.is_home() || is_known {
            return Ok(None);
        }
        let look = || SeenRight { steady: self.clock.mono(), wall: self.clock.now() };
        let before = look();
        let theirs = match self.store_time().await {
            Ok(Some(theirs)) => theirs,
            // It has no clock, and the workstation's own has to do.
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        };
        // A lid that was closed between the question and the answer makes one of them late, and no
        // clock wrong.
        let ours = [before, look()]
            .into_iter()
            .min_by_key(|ours| apart(ours.wall, theirs))
            .expect("there are two");
        let off = apart(ours.wall, theirs);
        if off <= OFF_MAX {
            *known() = Some(ours);
            return Ok(None);
        }
        let (off, side) = (
            Span::from_secs(off.as_secs()),
            if ours.wall < theirs { "behind" } else { "ahead of" },
        );
        Err(ActError::ClockOff {
            what: format!("this workstation's clock is {off} {side} that of {}", self.store.url()),
        })
    }

    /// Dates what is known of a machine that the cloud does not show any more, or shows dark and
    /// does not say since when, as EC2 does of one that powered itself off. `Some`: the store does
    /// not say, and may yet.
    pub(crate) async fn date_unshown(
        &self,
        dir: &JobDir,
        observed: &mut Observed,
        answer: &CloudAnswer,
    ) -> Option<CloudAnswer> {
        let CloudAnswer::Known(views) = answer else { return None };
        let open = observed.attempts.iter_mut().find(|attempt| attempt.settled.is_none())?;
        let is_its = |view: &&InstanceView| {
            view.client_token.as_deref() == Some(&open.plan.client_token)
                || is_kept_for(&open.plan, view)
        };
        let (due, since) = match views.iter().find(is_its) {
            None => (open.watched.missing_for >= MISSED, open.watched.missing_for),
            // Not of one that stands as it was kept: it is asked for at each look until it starts.
            Some(view)
                if open
                    .plan
                    .starts
                    .as_ref()
                    .is_some_and(|starts| starts.launched == view.launched) =>
            {
                return None;
            }
            Some(view) => (
                view.state.is_out() && view.ended.is_none(),
                open.watched.dark_for.unwrap_or_default(),
            ),
        };
        if self.is_home() || !due {
            return None;
        }
        let [plan, outcome, ending] = [layout::plan, layout::outcome, layout::ending]
            .map(|path| path(dir.job(), open.plan.attempt));
        match tokio::join!(self.store_now(), self.store.head(&plan), self.store.head(&outcome), self.store.head(&ending)) {
            (Some(now), Ok(plan), Ok(outcome), Ok(ending)) => {
                let [planned, outcome, ending] = [plan, outcome, ending].map(|found| found.map(|meta| meta.modified));
                open.watched.unshown = Some(Unshown { now, planned, outcome, ending });
            }
            _ if since > PATIENCE => {}
            _ => return Some(CloudAnswer::Unknown("the cloud does not say when the machine ended, and the job root not what time it is".into())),
        }
        None
    }
}
