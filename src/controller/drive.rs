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

/// Drives jobs of one job root on one cloud. Cheap to clone the parts of, expensive to share: one loop each.
pub struct Controller {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: BTreeMap<market::Cloud, Arc<dyn Cloud>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) owner: String,
    /// For people: who wrote a plan.
    pub(super) name: String,
    /// This workstation as a zone of the local cloud.
    pub(super) here: Zone,
    pub(super) notifier: Option<Arc<dyn Notifier>>,
    /// Brings the agent to a machine; `None`: the machine has it already.
    pub(super) shipper: Option<Shipper>,
    /// What all jobs together may cost, and what is known of those that have ended.
    pub(super) caps: Arc<CapsInForce>,
    pub(super) ledger: Arc<Ledger>,
    /// Those of the other job roots that this process drives: one user's caps count them all.
    pub(super) beside: Vec<Arc<Ledger>>,
    /// Of jobs that are driven at once, one is planned and launched at a time: a cap counts what was launched before, and a zone
    /// that just had nothing is not asked again.
    pub(super) launching: Launching,
    /// Tellings that are still under way.
    pub(super) telling: Mutex<Vec<JoinHandle<()>>>,
    /// When this workstation's clock was last seen to be right.
    pub(super) clock_right: Mutex<Option<SeenRight>>,
    pub(super) sweeper: Mutex<SweeperSeen>,
    /// Since when no round went well, by the steady clock.
    pub(super) troubled: Mutex<Option<Duration>>,
}

/// Why a job is driven no further by this controller.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error("job `{job}` is not in this job root")]
    NoJob { job: JobId },
    /// Written by a newer version: neither read nor touched.
    #[error("job `{job}` cannot be driven by this version")]
    Newer {
        job: JobId,
        #[source]
        cause: RecordError,
    },
    /// Its agent does everything itself; a machine for it would run the same command a second time.
    #[error("`{job}` is a run of the agent alone: no controller drives it")]
    Alone { job: JobId },
}

/// What a tick came to.
#[derive(Debug)]
pub enum Ticked {
    /// The receipt is there; nothing is left to do.
    Final(Box<Receipt>),
    /// Look again after the usual time, or at this moment of the steady clock if that is sooner.
    Active,
    /// Another controller's, for this reason: it is watched, and nothing of it is launched or ended from here.
    Elsewhere(String),
    /// The store or the cloud did not answer: nothing is known and nothing was done.
    Unknown(ActError),
}

/// Between two looks at a job that somebody waits for. Shorter only reads the same records more often; longer is felt at
/// the end of every attempt.
const TICK_ATTACHED: Duration = Duration::from_millis(500);

/// The same where the job root is a bucket, which takes money for each look: eight reads are a third of a cent an hour at
/// this pace. Longer is felt at the end of the job.
const TICK_ATTACHED_AWAY: Duration = Duration::from_secs(5);

/// Between two looks of the daemon while a job is under way and the job root is a folder: a relaunch may wait for two
/// seconds.
const TICK_BUSY_HOME: Duration = Duration::from_secs(2);

/// Between two looks of the daemon otherwise. More often is requests to the bucket that find nothing new; less often, and a
/// wish or a new job waits longer.
const TICK_REST: Duration = Duration::from_secs(15);

/// The same where the job root is a folder: a listing of a thousand jobs costs a millisecond there and no money, and a job
/// that was left to the daemon begins sooner. Every two seconds would be two CPU seconds an hour, for nothing.
const TICK_REST_HOME: Duration = Duration::from_secs(5);

/// Acts in one tick before the facts of another job have a turn. A whole life without waiting is eight; each place that has
/// none takes two more, and `relaunch` asks twelve in a row before it pauses.
const ACTS_MAX: u32 = 32;

impl Controller {
    /// `clouds`: those that this controller can drive, each by the word that offers name it with.
    pub fn new(
        store: Arc<dyn Store>,
        clouds: BTreeMap<market::Cloud, Arc<dyn Cloud>>,
        clock: Arc<dyn Clock>,
        owner: String,
        name: String,
        here: Zone,
    ) -> Self {
        let (caps, ledger, launching) = (Arc::default(), Arc::new(Ledger::new(Arc::clone(&store), &owner)), Launching::default());
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
        self.clouds.get(&which).ok_or(CloudError::Unsupported { cloud: which.word(), act: "be driven by this program" })
    }

    /// Tells somebody what a person should know.
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

    /// Drives one job until its receipt is written, through every failure of the store and the cloud.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn drive(&self, job: &JobId) -> Result<Receipt, DriveError> {
        self.drive_on(job, JobMemory::default()).await
    }

    /// As [`Controller::drive`], with what this process knows of the job already.
    ///
    /// # Errors
    /// As [`Controller::drive`].
    pub async fn drive_on(&self, job: &JobId, mut memory: JobMemory) -> Result<Receipt, DriveError> {
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

    /// Drives every job of the job root; returns only when `jobs` is not empty and all of them are done. Schedules are run,
    /// and machines that no job needs are swept, only by who drives all.
    ///
    /// `alive` is called for each job in turn and once a tick, also in an outage, with the number of jobs under way.
    pub async fn drive_all(&self, jobs: &[JobId], mut alive: impl FnMut(usize)) {
        let mut root = Root::default();
        let (mut failures, mut under_way) = (0, 0);
        let (mut schedules, mut sweeps) = (ScheduleMemory::default(), SweepMemory::default());
        let (busy, rest) = if self.is_home() { (TICK_BUSY_HOME, TICK_REST_HOME) } else { (TICK_REST, TICK_REST) };
        loop {
            if jobs.is_empty() {
                self.run_schedules(&mut schedules).await;
                self.sweep_when_due(&mut sweeps, &root).await;
            }
            let round = self.round(jobs, &mut root, &mut || alive(under_way)).await;
            self.note_trouble(round.is_err() || root.has_trouble());
            let pause = match round {
                Ok(Left { ours: 0, elsewhere: 0 }) if !jobs.is_empty() => return self.finish_telling().await,
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
            // Also in an outage: the loop lives.
            alive(under_way);
            self.clock.sleep(pause).await;
        }
    }

    /// One tick, without what a loop would remember.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn look(&self, job: &JobId) -> Result<Ticked, DriveError> {
        let mut memory = JobMemory::default();
        let mut ticked = self.tick(job, &mut memory, Answers::default()).await;
        if matches!(ticked, Ok(Ticked::Active)) {
            // Now it is known where its machines are.
            let answers = self.describe(memory.places()).await;
            ticked = self.tick(job, &mut memory, answers).await;
        }
        self.finish_telling().await;
        ticked
    }

    /// What the clouds say of our machines in these places, asked all at once.
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

    /// Observes, decides and acts until there is nothing to do but wait.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn tick(&self, job: &JobId, memory: &mut JobMemory, answers: Answers) -> Result<Ticked, DriveError> {
        memory.trouble_met = None;
        let ticked = self.steps(job, memory, answers).await;
        if let Ok(ticked) = &ticked {
            Self::tell_unguarded(memory);
            self.stand(&JobDir::new(Arc::clone(&self.store), job.clone()), memory, ticked).await;
        }
        ticked
    }

    async fn steps(&self, job: &JobId, memory: &mut JobMemory, mut answers: Answers) -> Result<Ticked, DriveError> {
        let mut acts = 0;
        // A refusal that this process alone knows of is never left unsettled: whoever drives next would wait to be sure.
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
    async fn step(&self, job: &JobId, memory: &mut JobMemory, answers: &Answers) -> Result<Option<Step>, ActError> {
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
        let answer = answers.of_job(observed.attempts.iter().map(|attempt| (&*attempt.plan, attempt.settled.is_some())));
        let answer = self.looked_for(&observed, &answer).await.unwrap_or(answer);
        let answer = self.date_unshown(&dir, &mut observed, &answer).await.unwrap_or(answer);
        self.look_who_ended(&dir, &mut observed, &answer).await?;
        self.tell_attention(&dir, &spec, memory, &observed).await;
        self.tell_refusal(&dir, &spec, memory, &observed).await;
        self.tell_of_sweeper(&dir, &spec, memory).await;
        Self::tell_lying(memory, &observed);
        if let Some(denied) = observed.attempts.iter().find(|open| open.settled.is_none()).and_then(|open| answers.denied(&open.plan)) {
            memory.trouble_met = Some(denied.to_owned());
        }
        let facts = Facts {
            spec: &spec,
            attempts: &observed.attempts,
            requests: &observed.requests,
            cloud: &answer,
            newest_checkpoint: observed.newest_checkpoint.or_else(|| spec.inherited().map(|from| from.checkpoint.number)),
            owner: &self.owner,
            here: self.here.as_str(),
            now: self.clock.now(),
        };
        // Whose job it is, its newest plan says: whoever created that has won, for this attempt and those that follow. Before the
        // first one its spec does.
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
                // The record that counts is the one that is there, whoever wrote it.
                Done::Recorded | Done::Final if !matches!(step, Step::Changed) => step = Step::Recorded,
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
    /// Changed, in the records alone.
    Recorded,
    Waiting,
    /// Waiting, for another controller.
    Elsewhere(String),
    Final(Box<Receipt>),
}
