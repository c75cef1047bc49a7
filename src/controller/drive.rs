//! The loops: one job until its receipt, or all jobs for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinHandle;
use tracing::warn;

use super::act::{ActError, Done};
use super::cloud_answers::{Answers, Place};
use super::daemon_round::{Left, Root};
use super::job_memory::JobMemory;
use super::launch::agent_shipping::Shipper;
use super::launch::clock_check::SeenRight;
use super::launch::cost_ledger::Ledger;
use super::launch::current_caps::CapsInForce;
use super::launch::scheduled_runs::ScheduleMemory;
use super::launch::spending_cap::Launching;
use super::notify::notify::SweeperSeen;
use super::observe::observe;
use super::retry_delay::backoff;
use super::sweep::periodic::SweepMemory;
use crate::job::{JobId, Receipt};
use crate::jobdir::{JobDir, JobDirError, RecordError};
use crate::market::{self, Zone};
use crate::policy::lifecycle::reconcile::{Act, Facts, is_elsewhere, reconcile};
use crate::ports::{Clock, Cloud, CloudError, Notifier, Store};

/// Drives jobs of one job root. Use one per loop; its parts are cheap to clone.
pub struct Controller {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: BTreeMap<market::Cloud, Arc<dyn Cloud>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) owner: String,
    /// For people: the author of a plan.
    pub(super) name: String,
    /// This workstation as a zone of the local cloud.
    pub(super) here: Zone,
    pub(super) notifier: Option<Arc<dyn Notifier>>,
    /// Brings the agent to a machine; `None`: the machine has it already.
    pub(super) shipper: Option<Shipper>,
    /// The caps over all jobs, and the costs of ended jobs.
    pub(super) caps: Arc<CapsInForce>,
    pub(super) ledger: Arc<Ledger>,
    /// The ledgers of this process's other job roots: one user's caps count them all.
    pub(super) beside: Vec<Arc<Ledger>>,
    /// Jobs plan and launch one at a time: a cap counts earlier launches, and a full zone is not
    /// asked twice.
    pub(super) launching: Launching,
    /// Notifications in progress.
    pub(super) telling: Mutex<Vec<JoinHandle<()>>>,
    /// When this workstation's clock was last found right.
    pub(super) clock_right: Mutex<Option<SeenRight>>,
    pub(super) sweeper: Mutex<SweeperSeen>,
    /// Since when no round has succeeded, by the steady clock.
    pub(super) troubled: Mutex<Option<Duration>>,
}

/// Why this controller stops driving a job.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error("job `{job}` is not in this job root")]
    NoJob { job: JobId },
    /// Written by a newer version: neither read nor changed.
    #[error("job `{job}` cannot be driven by this version")]
    Newer {
        job: JobId,
        #[source]
        cause: RecordError,
    },
    /// Its agent does everything itself; a machine for it would run the same command twice.
    #[error("`{job}` is a run of the agent alone: no controller drives it")]
    Alone { job: JobId },
}

/// The result of a tick.
#[derive(Debug)]
pub enum Ticked {
    /// The receipt is written.
    Final(Box<Receipt>),
    /// Look again after the usual time, or earlier at this moment of the steady clock.
    Active,
    /// Another controller's job, for this reason: only watched.
    Elsewhere(String),
    /// The store or the cloud gave no answer: the state is unknown, and no act was done.
    Unknown(ActError),
}

/// Between two looks at a job that a user waits for. Less reads the same records more often; more
/// delays the end of every attempt.
const TICK_ATTACHED: Duration = Duration::from_millis(500);

/// The same for a bucket, where looks cost money: a third of a cent an hour for eight reads at this
/// pace. More delays the end of the job.
const TICK_ATTACHED_AWAY: Duration = Duration::from_secs(5);

/// Between two looks of a daemon at a folder with open jobs: a relaunch may wait two seconds.
const TICK_BUSY_HOME: Duration = Duration::from_secs(2);

/// Between two looks of a daemon otherwise. Less only adds requests; more delays wishes and new
/// jobs.
const TICK_REST: Duration = Duration::from_secs(15);

/// The same for a folder: listing a thousand jobs takes a millisecond and no money, and a new job
/// begins sooner. Two seconds would cost two CPU seconds an hour.
const TICK_REST_HOME: Duration = Duration::from_secs(5);

/// Acts in one tick before the next job's turn. A job needs eight without waiting, and two more for
/// each place without capacity. `relaunch` tries twelve in a row before it pauses.
const ACTS_MAX: u32 = 32;

impl Controller {
    /// `clouds`: those that this controller can drive, by the word in offers.
    pub fn new(
        store: Arc<dyn Store>,
        clouds: BTreeMap<market::Cloud, Arc<dyn Cloud>>,
        clock: Arc<dyn Clock>,
        owner: String,
        name: String,
        here: Zone,
    ) -> Self {
        let (caps, ledger, launching) = (
            Arc::default(),
            Arc::new(Ledger::new(Arc::clone(&store), &owner)),
            Launching::default(),
        );
        let (telling, clock_right, sweeper, troubled) = Default::default();
        Controller {
            store,
            clouds,
            clock,
            owner,
            name,
            here,
            notifier: None,
            shipper: None,
            caps,
            ledger,
            beside: Vec::new(),
            launching,
            telling,
            clock_right,
            sweeper,
            troubled,
        }
    }

    /// Whether the job root is a folder of this workstation.
    pub(super) fn is_home(&self) -> bool {
        self.store.is_folder()
    }

    /// The cloud that sells a machine.
    ///
    /// # Errors
    /// When this program was built without it.
    pub(super) fn cloud(&self, which: market::Cloud) -> Result<&Arc<dyn Cloud>, CloudError> {
        self.clouds.get(&which).ok_or(CloudError::Unsupported {
            cloud: which.word(),
            act: "be driven by this program",
        })
    }

    /// Sends notifications to the user.
    #[must_use]
    pub fn notifying(mut self, notifier: Arc<dyn Notifier>) -> Self {
        self.notifier = Some(notifier);
        self
    }

    /// Ships the agent to machines that come without it.
    #[must_use]
    pub fn shipping(mut self, shipper: Shipper) -> Self {
        self.shipper = Some(shipper);
        self
    }

    /// Drives one job until its receipt is written, through every failure of the store and the
    /// cloud.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn drive(&self, job: &JobId) -> Result<Receipt, DriveError> {
        self.drive_on(job, JobMemory::default()).await
    }

    /// As [`Controller::drive`], with this process's memory of the job.
    ///
    /// # Errors
    /// As [`Controller::drive`].
    pub async fn drive_on(
        &self,
        job: &JobId,
        mut memory: JobMemory,
    ) -> Result<Receipt, DriveError> {
        let tick = if self.is_home() { TICK_ATTACHED } else { TICK_ATTACHED_AWAY };
        let mut failures = 0;
        loop {
            let answers = self.describe(memory.places()).await;
            self.look_at_hosts(std::iter::once(&mut memory)).await;
            match self.tick(job, &mut memory, answers).await? {
                Ticked::Final(receipt) => {
                    self.finish_telling().await;
                    return Ok(*receipt);
                }
                Ticked::Active => {
                    failures = 0;
                    self.clock.sleep(tick).await;
                }
                Ticked::Elsewhere(_) => {
                    failures = 0;
                    self.clock.sleep(TICK_REST).await;
                }
                Ticked::Unknown(error) => {
                    let pause = backoff(&format!("{} {job}", self.name), failures);
                    warn!(%job, "trying again in {} s: {error}", pause.as_secs());
                    self.clock.sleep(pause).await;
                    failures += 1;
                }
            }
        }
    }

    /// Drives every job of the job root; returns only when `jobs` is not empty and all are done.
    /// Without `jobs` it also runs schedules and sweeps.
    ///
    /// `alive` is called for each job and once a tick, also in an outage, with the number of open
    /// jobs.
    pub async fn drive_all(&self, jobs: &[JobId], mut alive: impl FnMut(usize)) {
        let mut root = Root::default();
        let (mut failures, mut under_way) = (0, 0);
        let (mut schedules, mut sweeps) = (ScheduleMemory::default(), SweepMemory::default());
        let (busy, rest) =
            if self.is_home() { (TICK_BUSY_HOME, TICK_REST_HOME) } else { (TICK_REST, TICK_REST) };
        loop {
            if jobs.is_empty() {
                self.run_schedules(&mut schedules).await;
                self.sweep_when_due(&mut sweeps, &root).await;
            }
            let round = self.round(jobs, &mut root, &mut || alive(under_way)).await;
            self.note_trouble(round.is_err() || root.has_trouble());
            let pause = match round {
                Ok(Left { ours: 0, elsewhere: 0 }) if !jobs.is_empty() => {
                    return self.finish_telling().await;
                }
                Ok(left) => {
                    failures = 0;
                    under_way = left.ours;
                    if left.ours > 0 { busy } else { rest }
                }
                Err(error) => {
                    let pause = backoff(&self.name, failures);
                    warn!("cannot list the jobs, trying again in {} s: {error}", pause.as_secs());
                    failures += 1;
                    pause
                }
            };
            // Also in an outage: the loop still runs.
            alive(under_way);
            self.clock.sleep(pause).await;
        }
    }

    /// One tick, without a loop's memory.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn look(&self, job: &JobId) -> Result<Ticked, DriveError> {
        let mut memory = JobMemory::default();
        let mut ticked = self.tick(job, &mut memory, Answers::default()).await;
        if matches!(ticked, Ok(Ticked::Active)) {
            // Now the places of its machines are known.
            let answers = self.describe(memory.places()).await;
            ticked = self.tick(job, &mut memory, answers).await;
        }
        self.finish_telling().await;
        ticked
    }

    /// The clouds' answers about our machines in these places, asked all at once.
    pub async fn describe(&self, places: BTreeSet<Place>) -> Answers {
        let now = self.clock.mono();
        let asked = places.into_iter().map(|(cloud, region)| async move {
            let described = match self.cloud(cloud) {
                Ok(port) => port.describe(&self.owner, &region).await,
                Err(error) => Err(error),
            };
            ((cloud, region), described)
        });
        Answers::from_iter(join_all(asked).await).asked_at(now)
    }

    /// Observes, decides and acts until the job only waits.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn tick(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        answers: Answers,
    ) -> Result<Ticked, DriveError> {
        memory.trouble_met = None;
        let ticked = self.steps(job, memory, answers).await;
        if let Ok(ticked) = &ticked {
            Self::tell_unguarded(memory);
            self.stand(&JobDir::new(Arc::clone(&self.store), job.clone()), memory, ticked).await;
        }
        ticked
    }

    async fn steps(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        mut answers: Answers,
    ) -> Result<Ticked, DriveError> {
        let mut acts = 0;
        // Settles every refusal that only this process knows: another controller would wait to be
        // sure.
        while acts < ACTS_MAX || memory.knows_a_refusal() {
            acts += 1;
            match self.step(job, memory, &answers).await {
                Ok(Some(Step::Final(receipt))) => return Ok(Ticked::Final(receipt)),
                Ok(Some(Step::Waiting)) => return Ok(Ticked::Active),
                Ok(Some(Step::Alone)) => return Err(DriveError::Alone { job: job.clone() }),
                Ok(Some(Step::Elsewhere(why))) => {
                    if memory.elsewhere.as_ref() != Some(&why) {
                        warn!(%job, "left to its own controller: {why}");
                    }
                    memory.elsewhere = Some(why.clone());
                    return Ok(Ticked::Elsewhere(why));
                }
                Ok(Some(Step::Changed)) => answers = self.describe(memory.places()).await,
                Ok(Some(Step::Recorded)) => {}
                Ok(None) => return Err(DriveError::NoJob { job: job.clone() }),
                Err(ActError::Record(JobDirError::Record(cause @ RecordError::Newer { .. }))) => {
                    return Err(DriveError::Newer { job: job.clone(), cause });
                }
                Err(error) => return Ok(Ticked::Unknown(error)),
            }
        }
        Ok(Ticked::Active)
    }

    /// One look and its acts; `None`: there is no such job.
    async fn step(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        answers: &Answers,
    ) -> Result<Option<Step>, ActError> {
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        if let Some(receipt) = dir.receipt().await? {
            self.tell_end(&dir, memory, &receipt).await;
            return Ok(Some(Step::Final(Box::new(receipt))));
        }
        if memory.spec.is_none() {
            memory.spec = dir.spec().await?.map(Arc::new);
        }
        let Some(spec) = memory.spec.clone() else { return Ok(None) };
        if spec.is_alone() {
            return Ok(Some(Step::Alone));
        }
        let now = self.clock.mono();
        (memory.looked, memory.described) = (Some(now), answers.asked());
        let mut observed = observe(&dir, memory, answers, now).await?;
        let answer = answers.of_job(
            observed.attempts.iter().map(|attempt| (&*attempt.plan, attempt.settled.is_some())),
        );
        let answer = self.looked_for(&observed, &answer).await.unwrap_or(answer);
        let answer = self.date_unshown(&dir, &mut observed, &answer).await.unwrap_or(answer);
        self.look_who_ended(&dir, &mut observed, &answer).await?;
        self.tell_attention(&dir, &spec, memory, &observed).await;
        self.tell_refusal(&dir, &spec, memory, &observed).await;
        self.tell_of_sweeper(&dir, &spec, memory).await;
        Self::tell_lying(memory, &observed);
        if let Some(denied) = observed
            .attempts
            .iter()
            .find(|open| open.settled.is_none())
            .and_then(|open| answers.denied(&open.plan))
        {
            memory.trouble_met = Some(denied.to_owned());
        }
        let facts = Facts {
            spec: &spec,
            attempts: &observed.attempts,
            requests: &observed.requests,
            cloud: &answer,
            newest_checkpoint: observed
                .newest_checkpoint
                .or_else(|| spec.inherited().map(|from| from.checkpoint.number)),
            owner: &self.owner,
            here: self.here.as_str(),
            now: self.clock.now(),
        };
        // The creator of the newest plan drives the job; before the first plan, the owner in the
        // spec.
        let elsewhere = is_elsewhere(&spec, &observed.attempts, &self.owner, self.here.as_str());
        let mut step = elsewhere.map_or(Step::Waiting, Step::Elsewhere);
        for act in reconcile(&facts) {
            if let Act::Wait { why, .. } = &act {
                tracing::debug!(%job, "waiting: {why}");
            }
            let done = self.act_at_its_pace(&dir, &spec, memory, &observed, &act).await;
            if let Err(error) = &done {
                memory.trouble_met = Self::trouble(&act, error);
            }
            match done? {
                Done::Changed => step = Step::Changed,
                Done::Waiting => {}
                // The record in the store counts, whichever controller wrote it.
                Done::Recorded | Done::Final if !matches!(step, Step::Changed) => {
                    step = Step::Recorded
                }
                Done::Recorded | Done::Final => {}
            }
        }
        if matches!(step, Step::Waiting) {
            self.look_at_market(&dir, &spec, memory, &observed, &answer).await?;
        }
        Ok(Some(step))
    }
}

enum Step {
    Alone,
    Changed,
    /// Only the records changed.
    Recorded,
    Waiting,
    /// Waiting, for another controller.
    Elsewhere(String),
    Final(Box<Receipt>),
}
