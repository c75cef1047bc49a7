//! The state of the program of a rank, and small helpers to write its records.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use crate::job::{
    AttemptNo, AttemptPhase, EpochCause, EpochOver, GangEnd, GangEndCause, GangMember, GangSpec,
    JobId, RECORD_FORMAT, RankMark, ResolvedSpec, RetriesSpec, Wish,
};
use crate::jobdir::{GangDir, JobDir, JobDirError};
use crate::ports::{Clock, Files, RankHost, Store};

/// Between two looks into the job directory. An epoch that is over is seen within two looks, so its
/// processes end within five seconds. Shorter costs requests: at one a second they cost $0.0015 an
/// hour.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// From SIGTERM to SIGKILL when an epoch is over and another begins. The record is at most two
/// seconds old then.
pub(super) const EPOCH_GRACE: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub struct RankPorts {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    pub host: Arc<dyn RankHost>,
}

/// The identity of this start of a rank.
#[derive(Clone, Debug)]
pub struct RankSelf {
    pub attempt: AttemptNo,
    pub instance: String,
    /// Drawn anew for each start of this program.
    pub start: String,
    /// `None`: unknown.
    pub gpus: Option<u32>,
    /// The command of the user.
    pub command: Vec<String>,
}

/// Files that the agent and this program share.
#[derive(Clone, Debug)]
pub struct RankPaths {
    pub checkpoints: PathBuf,
    pub notice: PathBuf,
    /// The progress file of the workload.
    pub progress: PathBuf,
    pub hostfile: PathBuf,
}

/// How long a rank asks for its own job. A store that fails for longer fails for the gang too;
/// shorter ends a gang because one call failed.
const RESOLVED_WITHIN: Duration = Duration::from_secs(600);

/// The job of a rank. A store that does not answer is asked again.
///
/// # Errors
/// When the store does not answer for long.
pub async fn read_resolved(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    job: &JobId,
) -> Result<Option<ResolvedSpec>, JobDirError> {
    let dir = JobDir::new(Arc::clone(store), job.clone());
    let until = clock.mono() + RESOLVED_WITHIN;
    loop {
        match dir.spec().await {
            Err(_) if clock.mono() < until => clock.sleep(LOOK_EVERY).await,
            found => return found,
        }
    }
}

/// How long a rank that has ended the gang asks the others. It only helps, and its own machine
/// bills meanwhile.
const ASKED_WITHIN: Duration = Duration::from_secs(20);

/// The program of one rank.
pub(super) struct RankState {
    pub ports: RankPorts,
    pub me: RankSelf,
    pub paths: RankPaths,
    pub resolved: ResolvedSpec,
    pub gang: GangSpec,
    pub member: GangMember,
    pub dir: GangDir,
}

impl RankState {
    pub fn rank(&self) -> u32 {
        self.member.rank
    }

    pub fn job(&self) -> &JobId {
        &self.resolved.job
    }

    pub fn job_of(&self, rank: u32) -> JobDir {
        let job = self.member.seats[rank as usize].job.clone();
        JobDir::new(Arc::clone(&self.ports.store), job)
    }

    pub fn own_job(&self) -> JobDir {
        JobDir::new(Arc::clone(&self.ports.store), self.job().clone())
    }

    /// How often the gang begins again after a failure.
    pub fn retries(&self) -> RetriesSpec {
        RetriesSpec {
            max: self.member.retries_max,
            exit_codes: self.member.retry_exit_codes.clone(),
            delay: self.member.retry_delay,
        }
    }

    pub fn leader(&self) -> JobDir {
        self.job_of(0)
    }

    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub fn say(&self, text: impl AsRef<str>) {
        self.ports.host.say(&format!("lamp: rank {}: {}", self.rank(), text.as_ref()));
    }

    pub async fn pause(&self) {
        self.ports.clock.sleep(LOOK_EVERY).await;
    }

    /// Whether this machine will be interrupted.
    pub fn has_notice(&self) -> bool {
        matches!(self.ports.files.stamp(&self.paths.notice), Ok(Some(_)))
    }

    pub fn mark(&self, rank: u32) -> RankMark {
        RankMark { format: RECORD_FORMAT, rank, at: self.now() }
    }

    /// Tells the agent that the steps so far belong to earlier epochs: no checkpoint of this one
    /// has them. A killed engine may have left half a line.
    pub fn tell_epoch(&self, epoch: u32) {
        let line = format!("\n{{\"gang_epoch\": {epoch}}}\n");
        if let Err(error) = self.ports.files.append(&self.paths.progress, line.as_bytes()) {
            self.say(format!("cannot write to the progress file: {error}"));
        }
    }

    /// Ends an epoch, unless another rank has ended it.
    pub async fn end_epoch(
        &self,
        epoch: u32,
        rank: u32,
        because: EpochCause,
        exit: Option<i32>,
        text: &str,
    ) {
        let over = EpochOver {
            format: RECORD_FORMAT,
            epoch,
            at: self.now(),
            rank,
            because,
            exit,
            text: text.to_owned(),
        };
        self.insist("the end of an epoch", || self.dir.create_over(&over)).await;
    }

    /// Ends the gang, unless another rank has ended it.
    pub async fn end_gang(
        &self,
        because: GangEndCause,
        exit: Option<i32>,
        missing: Vec<u32>,
        text: &str,
    ) {
        let end = GangEnd {
            format: RECORD_FORMAT,
            at: self.now(),
            rank: self.rank(),
            because,
            exit,
            missing,
            text: text.to_owned(),
        };
        self.insist("the end of the gang", || self.dir.create_end(&end)).await;
    }

    /// Stops the ranks whose machines boot or prepare: their programs, which would read the end of
    /// the gang, do not run yet. The rank that has ended the gang asks them.
    pub async fn stop_unready(&self) {
        let asked = (0..self.gang.nodes.max).map(|rank| async move {
            if rank != self.rank() && matches!(self.has_not_begun(rank).await, Ok(true)) {
                self.ask(rank, Wish::Stop).await;
            }
        });
        tokio::select! {
            _all = join_all(asked) => {}
            () = self.ports.host.told_to_end() => {}
            () = self.ports.clock.sleep(ASKED_WITHIN) => {}
        }
    }

    async fn has_not_begun(&self, rank: u32) -> Result<bool, JobDirError> {
        let dir = self.job_of(rank);
        if dir.spec().await?.is_none() || self.has_ended(rank).await?.is_some() {
            return Ok(false);
        }
        let Some(last) = dir.attempts().await?.pop() else { return Ok(true) };
        // An agent that starts again prepares, and its program may have run before.
        let epoch = self.dir.epochs().await?.pop().unwrap_or(1);
        let ready = self.dir.ready(epoch).await?;
        if ready.iter().any(|member| member.rank == rank && member.attempt == last) {
            return Ok(false);
        }
        let status = dir.status(last).await?;
        Ok(status.is_none_or(|status| {
            matches!(status.phase, AttemptPhase::Preparing | AttemptPhase::Setup)
        }))
    }

    /// Leaves a request; it only helps, so a failure is told and not repeated.
    pub async fn ask(&self, rank: u32, wish: Wish) {
        let by = format!("rank {} of the gang", self.rank());
        if let Err(error) = self.job_of(rank).add_request(wish, &by, self.now()).await {
            self.say(format!("cannot ask rank {rank} to {wish}: {error}"));
        }
    }

    /// Repeats a write until the store takes it.
    pub async fn insist<T, F>(&self, what: &str, mut write: impl FnMut() -> F) -> T
    where
        F: Future<Output = Result<T, JobDirError>>,
    {
        let mut is_told = false;
        loop {
            match write().await {
                Ok(done) => return done,
                Err(error) if !is_told => {
                    is_told = true;
                    self.say(format!("cannot read or write {what}, trying again: {error}"));
                }
                Err(_) => {}
            }
            self.pause().await;
        }
    }
}
