//! Before the first start: find a running workload, or fetch code and checkpoint, and check the
//! machine.
//!
//! While this waits for the store, a cancel, a notice and the limits still take effect.
//! `fetch_status` decides how long it waits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::attempt::{Attempt, Mode, PendingEnd};
use super::boot::is_work_kept;
use super::fetch_status::Fetching;
use super::kept_setup::restore_setup;
use super::preflight::preflight;
use crate::agent::agent::Agent;
use crate::agent::checkpoint::handle::Checkpoints;
use crate::agent::checkpoint::restore::{RestoreError, restore};
use crate::agent::report::attention::Topic;
use crate::agent::report::retry_sender::{Outbox, TRY_SECS_MAX, chain};
use crate::agent::wake::WakeReason;
use crate::agent::workload_stop::in_no_time;
use crate::instance::Sample;
use crate::job::{AttemptPhase, CodeArchive, EndedBecause, Manifest, Reason, Severity, setup_argv};
use crate::jobdir::{EventDetail, layout};
use crate::policy::{Activity, Decision, End, SuperviseStep, WorkloadStage, afterwards};
use crate::ports::{Ended, Scope};

/// How long the driver may take to answer for the first time.
const FIRST_SAMPLE_MAX: Duration = Duration::from_secs(15);

/// How long an ending attempt looks for its workload, for its last save. Longer only bills.
const ENDING_UNSEEN_MAX: Duration = Duration::from_secs(30);

/// The beginning of these messages.
const UNSEEN: &str = "nobody can tell whether";

/// The wait between two tries of a download.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("the code archive of the job is not in the job directory")]
    NoCode,
    #[error("the code archive does not have the checksum that the spec names")]
    BadCode,
    #[error("cannot unpack the code")]
    Unpack(#[source] std::io::Error),
    #[error("cannot bring back the checkpoint")]
    Restore(#[source] RestoreError),
}

/// The wait between two tries to find out whether a workload runs. More often fills the log of a
/// machine with a hung disk; less often leaves a workload unwatched.
const ATTACH_AGAIN: Duration = Duration::from_secs(2);

/// Most files of the code in the checkpoint folder. With more, the memory file would be large, so
/// rollback is off.
const SHIPPED_MAX: usize = 1000;

impl Agent {
    /// Re-attaches, or prepares and starts. Returns a decision if the attempt ends before it began.
    pub(crate) async fn begin(&mut self) -> Option<Decision> {
        self.state.count_run();
        self.keep();
        if self.state.count_ending_run() {
            self.keep();
        }
        // The next steps may take minutes, and the boot deadline counts: the lease is held, so
        // renew it.
        self.reporter.renew_deadline(&self.status_facts());
        let attached = match self.attach().await {
            Ok(attached) => attached,
            Err(decision) => return Some(decision),
        };
        let (version, instance) =
            (env!("CARGO_PKG_VERSION").to_owned(), self.attempt.instance.clone());
        self.reporter.journal.record(EventDetail::Agent {
            version,
            instance,
            reattached: attached,
        });
        self.ports.service.ready();
        match self.state.ending.clone() {
            Some(PendingEnd::End { end, reason }) => {
                self.know_checkpoints();
                // The earlier agent may have ended the workload already: then no last save can be
                // asked for.
                let over =
                    self.workload.clone().and_then(|workload| workload.ended().now_or_never());
                match over {
                    Some(ended) if self.state.last_way().is_some() => self.ended = Some(ended),
                    Some(ended) => self.observe(WakeReason::Ended(ended)).await,
                    None => {
                        self.ended = self.state.exit.map(|exit| Ended {
                            exit,
                            orphans: 0,
                            ..Default::default()
                        })
                    }
                }
                self.reporter.reasons.push(reason.clone());
                return Some(Decision {
                    step: SuperviseStep::End(end),
                    standing: Activity::Starting,
                    reason,
                });
            }
            Some(PendingEnd::Restart) => {
                self.stop_workload(self.attempt.resolved.spec.watch.term_grace.duration(), None)
                    .await;
                return self.proceed().await;
            }
            None => {}
        }
        // An earlier agent may have ended the work without being able to record it.
        let has_ended =
            self.workload.clone().is_some_and(|workload| workload.ended().now_or_never().is_some());
        if self.state.start > 0
            && (!attached || has_ended)
            && let Some(over) = self.over_already().await
        {
            return Some(over);
        }
        if !attached && self.state.start > 0 {
            let text = format!(
                "{} is gone with an earlier life of the machine: the work is started again",
                self.state.start_name()
            );
            self.reporter.journal.record(EventDetail::Verdict {
                reason: Reason::new(self.out.clock.now(), "agent", "restarted", text),
            });
        }
        if attached {
            self.watching.reattached();
            self.open_checkpoints();
            self.enter(if self.state.stage == WorkloadStage::Setup {
                AttemptPhase::Setup
            } else {
                AttemptPhase::Running
            });
            return None;
        }
        self.proceed().await
    }

    /// The remaining steps before the command, and the command.
    pub(crate) async fn proceed(&mut self) -> Option<Decision> {
        if !self.state.prepared {
            self.enter(AttemptPhase::Preparing);
            if let Some(decision) = self.prepare().await {
                return Some(decision);
            }
            self.state.prepared = true;
            self.keep();
        }
        if let Err(decision) = self.bring_back().await {
            return Some(decision);
        }
        if self.checkpoints.is_none() {
            self.open_checkpoints();
        }
        match self.attempt.resolved.spec.setup.clone() {
            Some(script) if self.state.stage == WorkloadStage::Setup && !self.state.setup_kept => {
                self.enter(AttemptPhase::Setup);
                self.start(setup_argv(&script)).await
            }
            _ => self.start_main().await,
        }
    }

    /// For the outcome of an agent that saves nothing more: the known checkpoints, without a look
    /// at their folder.
    pub(crate) fn know_checkpoints(&mut self) {
        if self.state.last_way().is_none() || Checkpoints::are_known(&self.out) {
            self.open_checkpoints();
        }
    }

    /// An agent with a full disk cannot record that it was ending the attempt, but its outcome
    /// proves it. Without this check the work would be done twice. A silent store is asked once.
    async fn over_already(&mut self) -> Option<Decision> {
        let attempt = self.attempt.no;
        let outcome = self
            .alive_while(self.out.within(TRY_SECS_MAX, self.out.dir.outcome(attempt)))
            .await?
            .ok()??;
        let text = format!(
            "the outcome of this attempt is written already ({}): nothing is started again",
            outcome.because.word()
        );
        let reason = Reason::new(self.out.clock.now(), "agent", outcome.because.word(), text);
        self.reporter.journal.record(EventDetail::Verdict { reason: reason.clone() });
        self.reporter.reasons.clone_from(&outcome.reasons);
        let end = End {
            because: outcome.because,
            save: false,
            by: None,
            then: afterwards(&self.attempt.resolved.spec.on, outcome.because),
        };
        Some(Decision { step: SuperviseStep::End(end), standing: Activity::Starting, reason })
    }

    /// Whether the newest start is still there, running or ended. Asks again while that is unknown:
    /// a second workload beside a running first would spoil both. Returns the decision that ends
    /// the attempt meanwhile.
    async fn attach(&mut self) -> Result<bool, Decision> {
        if self.state.start == 0 {
            return Ok(false);
        }
        let dir = self.attempt.start_dir(self.state.start);
        let until = self.out.clock.mono() + ENDING_UNSEEN_MAX;
        loop {
            let found = self
                .alive_while(self.out.within(ENDING_UNSEEN_MAX, self.ports.workloads.attach(&dir)))
                .await;
            let error = match found.unwrap_or_else(|| Err(in_no_time("find", ENDING_UNSEEN_MAX))) {
                Ok(Some(workload)) => {
                    self.reporter.attention.take_back(&Topic::UnseenWorkload);
                    self.board.restarted(self.state.started);
                    self.reporter.logs.follow_as(self.state.start, &dir, &self.state.start_name());
                    self.workload = Some(workload.into());
                    return Ok(true);
                }
                Ok(None) => {
                    self.reporter.attention.take_back(&Topic::UnseenWorkload);
                    return Ok(false);
                }
                Err(error) if error.is_final() => {
                    tracing::warn!(
                        "the agent before this one could not start the workload: {}",
                        chain(&error)
                    );
                    return Ok(false);
                }
                Err(error) => error,
            };
            tracing::warn!(
                "cannot find the workload of the agent before this one: {}",
                chain(&error)
            );
            self.reporter.attention.attend(
                Topic::UnseenWorkload,
                format!(
                    "{UNSEEN} {} still runs, so none is started: {}",
                    self.state.start_name(),
                    chain(&error)
                ),
            );
            if matches!(self.state.ending, Some(PendingEnd::End { .. })) {
                // The next step is power-off, which ends every process.
                if self.out.clock.mono() >= until {
                    return Ok(false);
                }
                self.alive_while(self.out.clock.sleep(ATTACH_AGAIN)).await;
            } else if let Some(decision) = self.guard_for(ATTACH_AGAIN).await {
                return Err(decision);
            }
        }
    }

    async fn prepare(&mut self) -> Option<Decision> {
        if self.attempt.mode == Mode::Launched {
            let Fetched { resumed, shipped, setup_kept } = match self.fetched().await {
                Ok(fetched) => fetched,
                Err(decision) => return Some(decision),
            };
            self.state.shipped = shipped;
            self.state.setup_kept = setup_kept;
            if let Some(longest) = resumed.as_ref().and_then(|manifest| manifest.silent_secs) {
                self.watching.goes_on(longest);
                self.state.cadence = self.watching.cadence();
            }
            self.state.resumed_from = resumed.map(|manifest| manifest.summary());
        }
        self.look_at_machine().await
    }

    /// Code and checkpoint, or the decision that ends the attempt meanwhile.
    async fn fetched(&mut self) -> Result<Fetched, Decision> {
        let fetching = Fetching::new(Arc::clone(&self.out.clock));
        let work = fetch(
            self.out.clone(),
            self.attempt.clone(),
            self.reporter.journal.clone(),
            fetching.clone(),
        );
        match self.patient_fetch(&fetching, work).await? {
            Ok(fetched) => fetched.map_err(|error| self.unprepared(chain(&error))),
            Err(text) => Err(self.unprepared(text)),
        }
    }

    /// The first call into a driver wakes the GPUs, which can take seconds.
    async fn first_sample(&mut self, scope: &Scope) -> Option<Sample> {
        let until = self.out.clock.mono() + FIRST_SAMPLE_MAX;
        loop {
            if let Some(sample) = self.ports.sensors.sample(scope).await {
                return Some(sample);
            }
            if self.out.clock.mono() >= until {
                return None;
            }
            self.out.clock.sleep(Duration::from_millis(500)).await;
            self.ports.service.alive();
        }
    }

    async fn look_at_machine(&mut self) -> Option<Decision> {
        let mut scope = self.scope();
        scope.workdir = self.attempt.folders.work.clone();
        let Some(sample) = self.first_sample(&scope).await else {
            let text = "the sensors do not answer: this machine was not looked at before the start"
                .to_owned();
            self.reporter.attention.attend(Topic::Other, text);
            return None;
        };
        let mono = self.out.clock.mono();
        let findings = preflight(&self.attempt.resolved.spec, &sample);
        self.watching.take(Some(sample), self.board.marks(), mono, 0);
        for finding in findings.iter().filter(|finding| finding.severity == Severity::Warning) {
            self.reporter.attention.attend(Topic::Other, finding.to_string());
        }
        let errors: Vec<String> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(ToString::to_string)
            .collect();
        if errors.is_empty() || self.alone() {
            None
        } else {
            Some(self.unprepared(errors.join("; ")))
        }
    }

    fn unprepared(&mut self, text: String) -> Decision {
        self.gives_up("preflight", EndedBecause::PreflightFailed, text)
    }
}

/// What was fetched.
struct Fetched {
    /// The checkpoint that was restored.
    resumed: Option<Manifest>,
    /// The checkpoint files that came with the code.
    shipped: Option<Vec<String>>,
    /// The setup of an earlier trial is there.
    setup_kept: bool,
}

/// The work folder of an earlier job on this disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptWork {
    None,
    /// Only the setup of another trial is left.
    Setup,
    /// All of it: the same job goes on.
    All,
}

async fn kept_work(out: &Outbox, attempt: &Attempt) -> KeptWork {
    let only_setup = attempt.resolved.continues.as_ref().is_some_and(|from| from.only_setup);
    if !is_work_kept(out, attempt) {
        return KeptWork::None;
    }
    if !only_setup {
        tracing::info!("this disk was kept: its work goes on as it was left");
        return KeptWork::All;
    }
    match restore_setup(out, attempt).await {
        Ok(true) => {
            tracing::info!("this disk was kept: its setup does not run again");
            KeptWork::Setup
        }
        Ok(false) => KeptWork::None,
        Err(error) => {
            tracing::warn!("what an earlier trial left cannot be removed: {error}");
            KeptWork::None
        }
    }
}

/// Fetches code, then the newest checkpoint over it.
async fn fetch(
    out: Outbox,
    attempt: Attempt,
    journal: crate::agent::report::journal::Journal,
    fetching: Fetching,
) -> Result<Fetched, PrepareError> {
    let folders = &attempt.folders;
    let kept = kept_work(&out, &attempt).await;
    let (is_kept, setup_kept) = (kept == KeptWork::All, kept == KeptWork::Setup);
    if kept == KeptWork::None {
        // An earlier agent may have crashed halfway: code is unpacked into an empty folder.
        out.files.remove_aside(&folders.work).await.map_err(PrepareError::Unpack)?;
    }
    for folder in [&folders.work, &folders.cache, &attempt.output_dir()] {
        out.files.create_folder(folder).map_err(PrepareError::Unpack)?;
    }
    let is_new = attempt.resolved.continues.as_ref().is_some_and(|continues| continues.new_code);
    if let Some(code) = attempt.resolved.code.as_ref().filter(|_| !is_kept || is_new) {
        let archive = folders.state.join("code.tar.zst");
        let sha256 =
            download(&out, &layout::code(attempt.job(), &code.sha256), &archive, &fetching).await?;
        fetching.done();
        if sha256 != code.sha256 {
            return Err(PrepareError::BadCode);
        }
        if kept != KeptWork::None {
            lay_over(&out, &archive, &folders.work, code).await.map_err(PrepareError::Unpack)?;
        } else {
            out.files
                .unpack_aside(&archive, &folders.work, code)
                .await
                .map_err(PrepareError::Unpack)?;
        }
        if let Err(error) = out.files.remove(&archive) {
            tracing::warn!("cannot remove the code archive: {error}");
        }
    }
    if attempt.resolved.spec.checkpoint.is_none() {
        return Ok(Fetched { resumed: None, shipped: None, setup_kept });
    }
    let shipped = shipped(&out, &attempt, is_kept).await;
    let inherited = attempt.resolved.inherited().map(|from| &from.job);
    let restored =
        restore(&out, inherited, &journal, (&attempt.checkpoint_dir(), is_kept), &fetching)
            .await
            .map_err(PrepareError::Restore)?;
    fetching.done();
    // Scripts expect the folder to exist, also at the first start without a restore.
    out.files.create_folder(&attempt.checkpoint_dir()).map_err(PrepareError::Unpack)?;
    Ok(Fetched { resumed: restored, shipped, setup_kept })
}

/// New code on a kept disk: its files replace the old ones, and files that the work wrote stay.
async fn lay_over(
    out: &Outbox,
    archive: &Path,
    work: &Path,
    code: &CodeArchive,
) -> std::io::Result<()> {
    // On the same disk as the work, so that a file moves in one step.
    let fresh = work.with_file_name("new-code");
    out.files.remove_aside(&fresh).await?;
    out.files.unpack_aside(archive, &fresh, code).await?;
    let files_max = usize::try_from(code.files).unwrap_or(usize::MAX);
    let tree = out.files.walk_aside(&fresh, files_max).await?;
    for file in &tree.files {
        out.files.place(&fresh.join(&file.path), &work.join(&file.path), None)?;
    }
    for link in &tree.links {
        out.files.link(&work.join(&link.path), &link.target)?;
    }
    out.files.remove_aside(&fresh).await
}

async fn download(
    out: &Outbox,
    key: &str,
    to: &std::path::Path,
    fetching: &Fetching,
) -> Result<String, PrepareError> {
    fetching.begin("the code of the job".into());
    loop {
        match out.dir.store().get_file_counted(key, to, &fetching.counter()).await {
            Ok(Some((_, sha256))) => return Ok(sha256),
            Ok(None) => return Err(PrepareError::NoCode),
            Err(error) => {
                tracing::warn!("cannot fetch `{key}`, trying again: {}", chain(&error));
                fetching.failed(&error.into());
            }
        }
        out.clock.sleep(RETRY).await;
    }
}

/// The files that came with the code, before any restore. On a kept disk all files are the job's.
async fn shipped(out: &Outbox, attempt: &Attempt, is_kept: bool) -> Option<Vec<String>> {
    if is_kept {
        return Some(Vec::new());
    }
    let tree = out
        .files
        .walk_aside(&attempt.checkpoint_dir(), SHIPPED_MAX)
        .await
        .ok()
        .filter(|tree| !tree.truncated)?;
    Some(tree.files.into_iter().map(|file| file.path).collect())
}
