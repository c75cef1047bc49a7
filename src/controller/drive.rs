//! The loops: one job until its receipt, or all jobs for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::{debug, warn};

use super::act_result::{DriveError, Ticked};
use super::cloud_answers::Answers;
use super::controller::Controller;
use super::daemon_round::OpenJobs;
use super::job_memory::JobMemory;
use super::launch::scheduled_runs::ScheduleMemory;
use super::retry_delay::backoff;
use super::root_memory::RootMemory;
use super::sweep::forgotten_disks::KeptTold;
use super::sweep::periodic::SweepMemory;
use crate::instance::InstanceView;
use crate::job::{JobId, Receipt};
use crate::ports::Clock;

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

/// A longer look at kept disks is given up until the next sweep: the jobs need their ticks.
const KEPT_MAX: Duration = Duration::from_secs(45);

/// A daemon's memory of what ended jobs keep.
#[derive(Default)]
struct KeptMemory {
    /// Forgotten disks that the user was told of.
    told: KeptTold,
    /// Jobs that keep nothing any more, as their records say.
    gone: BTreeSet<JobId>,
}

impl Controller {
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
        let tick = if self.store.is_folder() { TICK_ATTACHED } else { TICK_ATTACHED_AWAY };
        let mut failures = 0;
        loop {
            let answers = self.describe(memory.places()).await;
            self.settler.look_at_hosts(std::iter::once(&mut memory)).await;
            match self.tick(job, &mut memory, answers).await? {
                Ticked::Final(receipt) => {
                    self.notifier.finish().await;
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
        let mut root = RootMemory::default();
        let (mut failures, mut under_way) = (0, 0);
        let (mut schedules, mut sweeps) = (ScheduleMemory::default(), SweepMemory::default());
        let mut kept = KeptMemory::default();
        let (busy, rest) = if self.store.is_folder() {
            (TICK_BUSY_HOME, TICK_REST_HOME)
        } else {
            (TICK_REST, TICK_REST)
        };
        loop {
            if jobs.is_empty() {
                self.schedules.run(&mut schedules).await;
                let sweep = self.sweeper.sweep_when_due(&mut sweeps, &root, &self.notifier);
                if let Some(stopped) = sweep.await {
                    self.look_at_kept(&mut kept, &root, &stopped).await;
                }
            }
            let round = self.round(jobs, &mut root, &mut || alive(under_way)).await;
            self.note_trouble(round.is_err() || root.has_trouble());
            let pause = match round {
                Ok(OpenJobs { ours: 0, elsewhere: 0 }) if !jobs.is_empty() => {
                    return self.notifier.finish().await;
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
        self.notifier.finish().await;
        ticked
    }

    /// Looks at what ended jobs keep, among the machines that do not bill.
    async fn look_at_kept(
        &self,
        memory: &mut KeptMemory,
        root: &RootMemory,
        stopped: &[InstanceView],
    ) {
        let told = self.sweeper.tell_kept(&self.notifier, &mut memory.told, stopped);
        if self.clock.bounded(KEPT_MAX, told).await.is_none() {
            warn!("what forgotten disks cost was not told within {} s", KEPT_MAX.as_secs());
        }
        let missed = self.settler.miss_kept(&mut memory.gone, &root.kept, stopped);
        if self.clock.bounded(KEPT_MAX, missed).await.is_none() {
            debug!(
                "whether what ended jobs kept is still there was not found out within {} s",
                KEPT_MAX.as_secs()
            );
        }
    }
}
