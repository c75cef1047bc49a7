//! The costs of all jobs of the owner before each launch, if the user has set a cap.
//!
//! A daemon of several job roots counts them together. A job root without an answer counts as it
//! was last known; if it was never known, the launch waits. Between the check and the plan the
//! processes of a workstation take turns: drivers of many jobs may wait for the same machine to
//! end. Controllers of two workstations may pass a cap by one machine each in the same second.
//! `policy::purchase::spending_cap` decides.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tracing::debug;

use super::cost_ledger::Ledger;
use super::current_caps::CapsInForce;
use crate::controller::clocks::Clocks;
use crate::job::{Plan, Reason};
use crate::jobdir::JobDirError;
use crate::market::UsdPerHour;
use crate::policy::purchase::spending_cap::{self, Caps, Spending};
use crate::ports::{Clock, Store, Turn, Turns, chain};

/// Between two checks of a cap. Machines end within minutes. A shorter time reads every job of the
/// root in vain.
pub(crate) const LOOK: Duration = Duration::from_secs(15);

/// A longer turn means that a process hangs, or that a job root does not answer. Then the next tick
/// checks the cap again.
const TURN_MAX: Duration = Duration::from_secs(30);

/// The caps over all jobs of the owner, and the costs of those jobs.
pub struct CapCheck {
    caps: Arc<CapsInForce>,
    ledger: Arc<Ledger>,
    /// The ledgers of this process's other job roots: one user's caps count them all.
    beside: Vec<Arc<Ledger>>,
    /// For each job root that a cap counts, the turns of this workstation's processes. All take
    /// them in the same order.
    turns: Vec<Arc<dyn Turns>>,
    clock: Clocks,
}

/// The caps of this moment, and the turn until it is dropped.
#[derive(Default)]
pub(crate) struct MayLaunch {
    pub caps: Caps,
    #[expect(dead_code, reason = "held until it is dropped")]
    turns: Vec<Turn>,
}

impl CapCheck {
    pub fn new(store: &Arc<dyn Store>, owner: &str, clock: Clocks) -> Self {
        let ledger = Arc::new(Ledger::new(Arc::clone(store), owner));
        let (caps, beside, turns) = (Arc::default(), Vec::new(), Vec::new());
        CapCheck { caps, ledger, beside, turns, clock }
    }

    /// Checks the caps that are in force at each launch.
    pub fn set(&mut self, caps: Arc<CapsInForce>) {
        self.caps = caps;
    }

    /// Takes turns with these before a launch that a cap may hold back.
    pub fn take_turns(&mut self, turns: Arc<dyn Turns>) {
        self.turns = vec![turns];
    }

    /// Lets each of these, one for each job root of a process, count the costs of all of them.
    pub fn count_together(checks: &mut [&mut CapCheck]) {
        let ledgers: Vec<_> = checks.iter().map(|one| Arc::clone(&one.ledger)).collect();
        let turns: Vec<_> = checks.iter().flat_map(|one| one.turns.clone()).collect();
        for (at, one) in checks.iter_mut().enumerate() {
            let others = ledgers.iter().enumerate().filter(|(other, _)| *other != at);
            one.beside = others.map(|(_, ledger)| Arc::clone(ledger)).collect();
            one.turns.clone_from(&turns);
        }
    }

    /// Waits for the turn. `None`: another process or job root still has it.
    pub(crate) async fn turn_to_launch(&self, plan: &Plan) -> Option<MayLaunch> {
        if !is_paid(plan) {
            return Some(MayLaunch::default());
        }
        let (mut caps, mut turns) = (self.caps.anew(), Vec::new());
        if !caps.are_none() && !self.turns.is_empty() {
            for each in &self.turns {
                turns.push(each.take(TURN_MAX).await?);
            }
            // The user may have changed the caps during the wait.
            caps = self.caps.anew();
        }
        Some(MayLaunch { caps, turns })
    }

    /// The costs of all jobs of this owner in this job root now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn spending(&self) -> Result<Spending, JobDirError> {
        let now = self.clock.now();
        Ok(spending_cap::spending(&self.ledger.read(now).await?, now))
    }

    /// Why the caps of the last read forbid this plan, for a message before the launch. The launch
    /// reads them again. `None`: they allow it.
    ///
    /// When the store does not answer. With unknown costs there is no launch.
    pub async fn cap_on(&self, plan: &Plan) -> Result<Option<Reason>, JobDirError> {
        self.cap_of(&self.caps.last(), plan).await
    }

    /// The same, with these caps.
    pub(crate) async fn cap_of(
        &self,
        caps: &Caps,
        plan: &Plan,
    ) -> Result<Option<Reason>, JobDirError> {
        if caps.are_none() || !is_paid(plan) {
            return Ok(None);
        }
        let now = self.clock.now();
        let (ours, others) = tokio::join!(
            self.ledger.read(now),
            join_all(self.beside.iter().map(|ledger| ledger.read(now)))
        );
        let mut spells = ours?;
        let mut by_heart = Vec::new();
        for (ledger, read) in self.beside.iter().zip(others) {
            match (read, ledger.last_known()) {
                (Ok(read), _) => spells.extend(read),
                // Without an answer, this process launches no machine there. Machines there may
                // have ended.
                (Err(error), Some(known)) => {
                    debug!("{} counts as it was last known: {}", ledger.url(), chain(&error));
                    spells.extend(known);
                    by_heart.push(ledger.url());
                }
                (Err(error), None) => {
                    let text = format!(
                        "{} to answer, whose spending counts under the same caps: {}",
                        ledger.url(),
                        chain(&error)
                    );
                    return Ok(Some(Reason::new(now, "cap", "wait", text)));
                }
            }
        }
        let reason =
            spending_cap::judge(caps, &spending_cap::spending(&spells, now), hourly(plan), now);
        Ok(reason.map(|reason| self.counted(reason, &by_heart)))
    }

    /// Adds that several job roots were counted: in one of them the user sees no machine of the
    /// others.
    fn counted(&self, reason: Reason, by_heart: &[String]) -> Reason {
        if self.beside.is_empty() {
            return reason;
        }
        let known = if by_heart.is_empty() {
            String::new()
        } else {
            format!(", {} as last known", by_heart.join(", "))
        };
        let text =
            format!("{} ({} job roots are counted{known})", reason.text, self.beside.len() + 1);
        Reason { text, ..reason }
    }

    /// Why the caps always forbid this plan, even without other machines and costs; `None`: they
    /// may allow it.
    pub fn forbids(&self, plan: &Plan) -> Option<Reason> {
        self.forbids_rate(hourly(plan))
    }

    /// The same for machines that cost so much an hour together.
    pub fn forbids_rate(&self, rate: UsdPerHour) -> Option<Reason> {
        spending_cap::never(&self.caps.last(), rate, self.clock.now())
    }

    /// Tells the next process which jobs no longer count.
    pub(super) async fn tell_jobs_over(&self) {
        self.ledger.tell_jobs_over().await;
    }

    /// Counts a plan before it is written.
    pub(super) fn planned(&self, plan: &Plan) {
        self.ledger.planned(plan);
    }
}

fn is_paid(plan: &Plan) -> bool {
    hourly(plan) > UsdPerHour::ZERO
}

/// The most that an hour of all machines costs that begin with its launch.
fn hourly(plan: &Plan) -> UsdPerHour {
    plan.offer.hourly_at_most(plan.bid).times(f64::from(plan.machines_to_come()))
}
