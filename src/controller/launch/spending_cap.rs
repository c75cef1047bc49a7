//! What all jobs of the owner cost, asked of the job root before each launch, where the user has
//! set a cap.
//!
//! A daemon of several job roots counts them together, and one that does not answer as it was last
//! known; where nothing was, nothing is launched, as where its own job root does not answer. From
//! that look to the plan, which the next look counts, the processes of a workstation take turns:
//! the drivers of a folder of jobs all wait for the same machine to end. Controllers of two
//! workstations do not see each other in that second: then a cap may be passed by one machine of
//! each. Not here: whether a machine may be launched (`policy::purchase::spending_cap`).

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tracing::{debug, info, warn};

use super::current_caps::CapsInForce;
use crate::controller::drive::Controller;
use crate::controller::job_memory::JobMemory;
use crate::job::{Plan, RECORD_FORMAT, Reason, Waiting};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::UsdPerHour;
use crate::policy::purchase::spending_cap::{self, Caps, Spending};
use crate::ports::{Turn, Turns, chain};

/// Between two looks at whether a cap still holds. Machines end in minutes; shorter reads every job
/// of the root for nothing.
pub(crate) const LOOK: Duration = Duration::from_secs(15);

/// Nobody's turn takes so long but that of a process that hangs, or of a job root that does not
/// answer; then the cap is looked at again at the next tick.
const TURN_MAX: Duration = Duration::from_secs(30);

/// Who may launch just now: one of the jobs that this controller drives, and one of the processes
/// of this workstation.
#[derive(Default)]
pub struct Launching {
    pub here: tokio::sync::Mutex<()>,
    /// Of each job root that a cap counts, in the same order for all who take them.
    turns: Vec<Arc<dyn Turns>>,
}

/// What a launch goes by: the caps of its moment; and its turn, until it is dropped.
#[derive(Default)]
pub(crate) struct MayLaunch {
    pub caps: Caps,
    #[expect(dead_code, reason = "held, and never looked at")]
    turns: Vec<Turn>,
}

/// A launch that a cap holds back.
#[derive(Clone, Debug)]
pub struct HeldBack {
    /// On the steady clock.
    pub until: Duration,
    pub said: String,
}

impl Controller {
    /// Checks these before each launch.
    #[must_use]
    pub fn capped(self, caps: Caps) -> Self {
        self.capped_by(Arc::new(CapsInForce::fixed(caps)))
    }

    /// Checks those that are in force by then.
    #[must_use]
    pub fn capped_by(mut self, caps: Arc<CapsInForce>) -> Self {
        self.caps = caps;
        self
    }

    /// Takes turns with these before a launch that a cap may hold back.
    #[must_use]
    pub fn taking_turns(mut self, turns: Arc<dyn Turns>) -> Self {
        self.launching.turns = vec![turns];
        self
    }

    /// Has each of these, one for each job root that a process drives, count what all of them
    /// spend.
    pub fn count_together(controllers: &mut [&mut Controller]) {
        let ledgers: Vec<_> = controllers.iter().map(|one| Arc::clone(&one.ledger)).collect();
        let turns: Vec<_> =
            controllers.iter().flat_map(|one| one.launching.turns.clone()).collect();
        for (at, one) in controllers.iter_mut().enumerate() {
            let others = ledgers.iter().enumerate().filter(|(other, _)| *other != at);
            one.beside = others.map(|(_, ledger)| Arc::clone(ledger)).collect();
            one.launching.turns.clone_from(&turns);
        }
    }

    /// With the caps as they are by then. `None`: it is another process's turn, or another job
    /// root's.
    pub(crate) async fn turn_to_launch(&self, plan: &Plan) -> Option<MayLaunch> {
        if !is_paid(plan) {
            return Some(MayLaunch::default());
        }
        let (mut caps, mut turns) = (self.caps.anew(), Vec::new());
        if !caps.are_none() && !self.launching.turns.is_empty() {
            for each in &self.launching.turns {
                turns.push(each.take(TURN_MAX).await?);
            }
            // It may have waited, and somebody may have written another meanwhile.
            caps = self.caps.anew();
        }
        Some(MayLaunch { caps, turns })
    }

    /// What all jobs of this owner in this job root cost now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn spending(&self) -> Result<Spending, JobDirError> {
        let now = self.clock.now();
        Ok(spending_cap::spending(&self.ledger.read(now).await?, now))
    }

    /// Why this plan may not be launched, by the caps as they were read last: for what is said
    /// before a launch, which reads them anew. `None`: it may.
    ///
    /// # Errors
    /// When the store does not answer: what is not known is not spent.
    pub async fn cap_on(&self, plan: &Plan) -> Result<Option<Reason>, JobDirError> {
        self.cap_of(&self.caps.last(), plan).await
    }

    /// The same, by these.
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
                // Nobody launches there through us while it does not answer, and what ran there may
                // have ended since.
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
        let reason = spending_cap::judge(
            caps,
            &spending_cap::spending(&spells, now),
            plan.offer.hourly_at_most(plan.bid),
            now,
        );
        Ok(reason.map(|reason| self.counted(reason, &by_heart)))
    }

    /// Says of several job roots that they were counted together: who looks at one sees no machine
    /// of the others.
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

    /// Why this plan could not even be launched if nothing else ran and nothing had been spent;
    /// `None`: it could.
    pub fn cap_forbids(&self, plan: &Plan) -> Option<Reason> {
        spending_cap::never(
            &self.caps.last(),
            plan.offer.hourly_at_most(plan.bid),
            self.clock.now(),
        )
    }

    /// Whether a launch that a cap held back need not be tried yet.
    pub(crate) fn is_held_back(&self, memory: &JobMemory) -> bool {
        memory.held_back.as_ref().is_some_and(|held| self.clock.mono() < held.until)
    }

    /// Whether one of these caps holds this plan back; then it is recorded why.
    pub(crate) async fn hold_back(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        plan: &Plan,
        caps: &Caps,
    ) -> Result<bool, JobDirError> {
        let reason = self.cap_of(caps, plan).await?;
        self.ledger.tell_jobs_over().await;
        let held = reason.is_some();
        match reason {
            Some(reason) => self.wait_for(dir, memory, reason, None, LOOK).await,
            None => memory.held_back = None,
        }
        Ok(held)
    }

    /// Records why a job waits, once for each sentence.
    pub(crate) async fn wait_for(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        reason: Reason,
        until: Option<Timestamp>,
        look: Duration,
    ) {
        let said = memory.held_back.take().map(|held| held.said);
        if said.as_ref() != Some(&reason.text) {
            info!(job = %dir.job(), "not launched: {}", reason.text);
            let waiting = Waiting {
                format: RECORD_FORMAT,
                at: reason.at,
                by: self.name.clone(),
                why: reason.text.clone(),
                until,
                due: None,
                seen: None,
            };
            if let Err(error) = dir.put_waiting(&waiting).await {
                warn!(job = %dir.job(), "cannot record why it waits: {}", chain(&error));
            }
        }
        memory.held_back = Some(HeldBack { until: self.clock.mono() + look, said: reason.text });
    }
}

fn is_paid(plan: &Plan) -> bool {
    plan.offer.hourly_at_most(plan.bid) > UsdPerHour::ZERO
}
