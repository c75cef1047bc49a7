//! Before the first start: find a workload that still runs, or fetch code and checkpoint, and look at the machine.
//!
//! While this waits for the store, a person's cancel, a notice and the limits are obeyed all the same; how long it waits is `fetching`'s.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::attempt::{Attempt, Ending, Mode};
use super::boot::kept_work;
use super::fetch_status::Fetching;
use super::preflight::preflight;
use crate::agent::act::in_no_time;
use crate::agent::checkpoint::failed_resume::shipped;
use crate::agent::checkpoint::handle::{Checkpoints, restore};
use crate::agent::report::attention::Topic;
use crate::agent::report::retry_sender::{Outbox, TRY_SECS_MAX, chain};
use crate::agent::run_loop::{Agent, MEMORY};
use crate::agent::wake::Wake;
use crate::instance::Sample;
use crate::job::{AttemptPhase, CodeArchive, EndedBecause, Manifest, Reason, Severity, setup_argv};
use crate::jobdir::{What, layout};
use crate::policy::{Decision, End, Stage, Standing, Step, afterwards};
use crate::ports::{Ended, Scope, WorkloadError};

/// How long the driver may take to answer for the first time.
const FIRST_SAMPLE_MAX: Duration = Duration::from_secs(15);

/// Between two questions for a workload of which nobody can tell whether it runs. Oftener fills the log of a machine whose
/// disk does not answer; less often leaves a workload unwatched.
const ATTACH_AGAIN: Duration = Duration::from_secs(2);

/// How long an attempt that is being ended looks for its workload: with it goes the last save. Longer keeps a machine
/// lit for nothing.
const ENDING_UNSEEN_MAX: Duration = Duration::from_secs(30);

/// How long a start, or what is fetched for it, waits for room on the disk: what fills it may be a checkpoint that takes another one's place, and ten
/// minutes of a machine cost less than a job that is given up. Longer pays for a machine on which nothing runs.
pub(crate) const ROOM_WITHIN: Duration = Duration::from_secs(600);

/// How a sentence about such a disk begins.
const NO_ROOM: &str = "a start cannot be written down on this machine";

/// How a sentence about such a workload begins.
const UNSEEN: &str = "nobody can tell whether";

/// Between two tries of a download that failed.
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
    Restore(#[source] crate::agent::checkpoint::handle::RestoreError),
}

impl Agent {
    /// Re-attaches, or prepares and starts. Gives a decision when the attempt ends before it began.
    pub(crate) async fn begin(&mut self) -> Option<Decision> {
        self.count_short_life();
        self.count_life();
        // What follows may take minutes, and the time of a boot runs: the lease is held.
        self.renew_deadline();
        let attached = match self.attach().await {
            Ok(attached) => attached,
            Err(decision) => return Some(decision),
        };
        let (version, instance) = (env!("CARGO_PKG_VERSION").to_owned(), self.attempt.instance.clone());
        self.journal.record(What::Agent { version, instance, reattached: attached });
        self.world.service.ready();
        match self.memory.ending.clone() {
            Some(Ending::End { end, reason }) => {
                self.know_checkpoints();
                // The agent before this one may have ended it already: then nobody is left to be asked for a last save.
                let over = self.workload.clone().and_then(|workload| workload.ended().now_or_never());
                match over {
                    Some(ended) if self.is_last_way().is_some() => self.ended = Some(ended),
                    Some(ended) => self.observe(Wake::Ended(ended)).await,
                    None => self.ended = self.memory.exit.map(|exit| Ended { exit, orphans: 0, ..Default::default() }),
                }
                self.reasons.push(reason.clone());
                return Some(Decision { step: Step::End(end), standing: Standing::Starting, reason });
            }
            Some(Ending::Restart) => {
                self.stop_workload(self.attempt.resolved.spec.watch.term_grace.duration(), None).await;
                return self.proceed().await;
            }
            None => {}
        }
        // An agent that has ended the work and could not keep that it did finds it ended (seed 38005062 of 24 h).
        let has_ended = self.workload.clone().is_some_and(|workload| workload.ended().now_or_never().is_some());
        if self.memory.start > 0
            && (!attached || has_ended)
            && let Some(over) = self.over_already().await
        {
            return Some(over);
        }
        if !attached && self.memory.start > 0 {
            let text = format!("{} is gone with an earlier life of the machine: the work is started again", self.memory.start_name());
            self.journal.record(What::Verdict { reason: Reason::new(self.out.clock.now(), "agent", "restarted", text) });
        }
        if attached {
            self.watching.reattached();
            self.open_checkpoints();
            self.enter(if self.memory.stage == Stage::Setup { AttemptPhase::Setup } else { AttemptPhase::Running });
            return None;
        }
        self.proceed().await
    }

    /// What is left to do before the command runs, and the command.
    pub(crate) async fn proceed(&mut self) -> Option<Decision> {
        if !self.memory.prepared {
            self.enter(AttemptPhase::Preparing);
            if let Some(decision) = self.prepare().await {
                return Some(decision);
            }
            self.memory.prepared = true;
            self.keep();
        }
        if let Err(decision) = self.bring_back().await {
            return Some(decision);
        }
        if self.checkpoints.is_none() {
            self.open_checkpoints();
        }
        match self.attempt.resolved.spec.setup.clone() {
            Some(script) if self.memory.stage == Stage::Setup => {
                self.enter(AttemptPhase::Setup);
                self.start(setup_argv(&script)).await
            }
            _ => self.start_main().await,
        }
    }

    /// An agent whose disk is full cannot keep that it was ending the attempt; its outcome says so to whoever comes after it, and
    /// would say so of work that is done once more. A store that does not answer is asked once: nobody knows, and the work goes on.
    async fn over_already(&mut self) -> Option<Decision> {
        let attempt = self.attempt.no;
        let outcome = self.alive_while(self.out.within(TRY_SECS_MAX, self.out.dir.outcome(attempt))).await?.ok()??;
        let text = format!("the outcome of this attempt is written already ({}): nothing is started again", outcome.because.word());
        let reason = Reason::new(self.out.clock.now(), "agent", outcome.because.word(), text);
        self.journal.record(What::Verdict { reason: reason.clone() });
        self.reasons.clone_from(&outcome.reasons);
        let end = End { because: outcome.because, save: false, by: None, then: afterwards(&self.attempt.resolved.spec.on, outcome.because) };
        Some(Decision { step: Step::End(end), standing: Standing::Starting, reason })
    }

    /// Whether the newest start is still there, running or ended. As long as nobody can tell, it is asked again: a second
    /// workload beside a first that runs unseen spoils the work of both. Gives the decision that ends the attempt meanwhile.
    async fn attach(&mut self) -> Result<bool, Decision> {
        if self.memory.start == 0 {
            return Ok(false);
        }
        let dir = self.attempt.start_dir(self.memory.start);
        let until = self.out.clock.mono() + ENDING_UNSEEN_MAX;
        loop {
            let found = self.alive_while(self.out.within(ENDING_UNSEEN_MAX, self.world.workloads.attach(&dir))).await;
            let error = match found.unwrap_or_else(|| Err(in_no_time("find", ENDING_UNSEEN_MAX))) {
                Ok(Some(workload)) => {
                    self.take_back(&Topic::UnseenWorkload);
                    self.board.restarted(self.memory.started);
                    self.logs.follow_as(self.memory.start, &dir, &self.memory.start_name());
                    self.workload = Some(workload.into());
                    return Ok(true);
                }
                Ok(None) => {
                    self.take_back(&Topic::UnseenWorkload);
                    return Ok(false);
                }
                Err(error) if error.is_final() => {
                    tracing::warn!("the agent before this one could not start the workload: {}", chain(&error));
                    return Ok(false);
                }
                Err(error) => error,
            };
            tracing::warn!("cannot find the workload of the agent before this one: {}", chain(&error));
            self.attend(Topic::UnseenWorkload, format!("{UNSEEN} {} still runs, so none is started: {}", self.memory.start_name(), chain(&error)));
            if matches!(self.memory.ending, Some(Ending::End { .. })) {
                // What follows is the power switch, which ends whatever runs.
                if self.out.clock.mono() >= until {
                    return Ok(false);
                }
                self.alive_while(self.out.clock.sleep(ATTACH_AGAIN)).await;
            } else if let Some(decision) = self.guard_for(ATTACH_AGAIN).await {
                return Err(decision);
            }
        }
    }

    /// The intent before the act: a start that is not written down would be made once more by the agent after this one, beside
    /// the first. A disk without room is waited for. Gives the decision that ends the attempt meanwhile.
    pub(crate) async fn keep_start(&mut self) -> Result<(), Decision> {
        let until = self.out.clock.mono() + ROOM_WITHIN;
        while let Err(cause) = self.out.try_keep(MEMORY, &self.memory) {
            if self.out.clock.mono() >= until {
                return Err(self.cannot_start(&WorkloadError::Failed { act: "write down the start of", cause }));
            }
            self.attend(Topic::UnwrittenStart, format!("{NO_ROOM}, so the work is not started: {cause}"));
            if let Some(decision) = self.guard_for(ATTACH_AGAIN).await {
                return Err(decision);
            }
        }
        self.take_back(&Topic::UnwrittenStart);
        Ok(())
    }

    /// As [`Agent::guard`], for so long at most.
    pub(crate) async fn guard_for(&mut self, time: Duration) -> Option<Decision> {
        let clock = Arc::clone(&self.out.clock);
        tokio::select! {
            biased;
            decision = self.guard() => Some(decision),
            () = clock.sleep(time) => None,
        }
    }

    pub(crate) fn open_checkpoints(&mut self) {
        let attempt = &self.attempt;
        let Some(spec) = attempt.resolved.spec.checkpoint.as_ref().filter(|_| attempt.mode == Mode::Launched) else { return };
        let folder = attempt.checkpoint_dir();
        // One that is over may have left half of what is there, also where an agent before this one has ended it (seed 33000089 of 24 h).
        let over = self.workload.as_ref().and_then(|workload| workload.ended().now_or_never()).map(|ended| ended.exit);
        let gone = self.memory.start > 0 && (self.workload.is_none() || over.is_some());
        let exit = over.or(self.ended.map(|ended| ended.exit)).or(self.memory.exit);
        // How the last of the job before ended, whose disk this is, nobody here has seen.
        let of_another = self.memory.start == 0 && is_work_kept(&self.out, attempt);
        let unseen_end = of_another || gone && !exit.is_some_and(|exit| exit.is_in_order());
        let checkpoints = Checkpoints::start(self.out.clone(), self.journal.clone(), self.board.clone(), spec, folder, unseen_end);
        if self.workload.is_some() && !gone {
            checkpoints.workload_started(self.workload.clone());
        }
        self.checkpoints = Some(checkpoints);
        self.hold_back();
    }

    async fn prepare(&mut self) -> Option<Decision> {
        if self.attempt.mode == Mode::Launched {
            let (resumed, shipped) = match self.fetched().await {
                Ok(fetched) => fetched,
                Err(decision) => return Some(decision),
            };
            self.memory.shipped = shipped;
            if let Some(longest) = resumed.as_ref().and_then(|manifest| manifest.silent_secs) {
                self.watching.goes_on(longest);
                self.memory.rhythm = self.watching.rhythm();
            }
            self.memory.resumed_from = resumed.map(|manifest| manifest.summary());
        }
        self.look_at_machine().await
    }

    /// Code and checkpoint, or the decision that ends the attempt before they are here.
    async fn fetched(&mut self) -> Result<(Option<Manifest>, Option<Vec<String>>), Decision> {
        let fetching = Fetching::new(Arc::clone(&self.out.clock));
        let work = fetch(self.out.clone(), self.attempt.clone(), self.journal.clone(), fetching.clone());
        match self.patient_fetch(&fetching, work).await? {
            Ok(fetched) => fetched.map_err(|error| self.unprepared(chain(&error))),
            Err(text) => Err(self.unprepared(text)),
        }
    }

    /// The first call into a driver wakes the GPUs, which takes seconds where nothing keeps them awake.
    async fn first_sample(&mut self, scope: &Scope) -> Option<Sample> {
        let until = self.out.clock.mono() + FIRST_SAMPLE_MAX;
        loop {
            if let Some(sample) = self.world.sensors.sample(scope).await {
                return Some(sample);
            }
            if self.out.clock.mono() >= until {
                return None;
            }
            self.out.clock.sleep(Duration::from_millis(500)).await;
            self.world.service.alive();
        }
    }

    /// One sample, and the preflight.
    async fn look_at_machine(&mut self) -> Option<Decision> {
        let mut scope = self.scope();
        scope.workdir = self.attempt.folders.work.clone();
        let Some(sample) = self.first_sample(&scope).await else {
            let text = "the sensors do not answer: this machine was not looked at before the start".to_owned();
            self.attend(Topic::Other, text);
            return None;
        };
        let mono = self.out.clock.mono();
        let findings = preflight(&self.attempt.resolved.spec, &sample);
        self.watching.take(Some(sample), self.board.marks(), mono, 0);
        for finding in findings.iter().filter(|finding| finding.severity == Severity::Warning) {
            self.attend(Topic::Other, finding.to_string());
        }
        let errors: Vec<String> = findings.iter().filter(|finding| finding.severity == Severity::Error).map(ToString::to_string).collect();
        if errors.is_empty() || self.alone() { None } else { Some(self.unprepared(errors.join("; "))) }
    }

    /// Obeys what cannot wait while the preparation waits: resolves with the decision that ends the attempt.
    async fn guard(&mut self) -> Decision {
        loop {
            let wake = self.news.wait(&*self.out.clock, Duration::from_secs(1), None).await;
            if wake == Wake::Tick {
                self.world.service.alive();
            }
            self.look_at_clock();
            let decision = self.decide();
            if matches!(decision.step, Step::End(_)) {
                return decision;
            }
            self.report();
        }
    }

    fn unprepared(&mut self, text: String) -> Decision {
        self.gives_up("preflight", EndedBecause::PreflightFailed, text)
    }
}

/// Code into the work folder, then the newest complete checkpoint over it. Gives that, and what of its folder came with the code.
async fn fetch(
    out: Outbox,
    attempt: Attempt,
    journal: crate::agent::report::journal::Journal,
    fetching: Fetching,
) -> Result<(Option<Manifest>, Option<Vec<String>>), PrepareError> {
    let folders = &attempt.folders;
    let is_kept = is_work_kept(&out, &attempt);
    if is_kept {
        tracing::info!("this disk was kept: its work goes on as it was left");
    } else {
        // An agent before this one may have died half-way: code is unpacked into an empty folder.
        out.files.remove_aside(&folders.work).await.map_err(PrepareError::Unpack)?;
    }
    for folder in [&folders.work, &folders.cache, &attempt.output_dir()] {
        out.files.create_folder(folder).map_err(PrepareError::Unpack)?;
    }
    let is_new = attempt.resolved.continues.as_ref().is_some_and(|continues| continues.new_code);
    if let Some(code) = attempt.resolved.code.as_ref().filter(|_| !is_kept || is_new) {
        let archive = folders.state.join("code.tar.zst");
        let sha256 = download(&out, &layout::code(attempt.job(), &code.sha256), &archive, &fetching).await?;
        fetching.done();
        if sha256 != code.sha256 {
            return Err(PrepareError::BadCode);
        }
        if is_kept {
            lay_over(&out, &archive, &folders.work, code).await.map_err(PrepareError::Unpack)?;
        } else {
            out.files.unpack_aside(&archive, &folders.work, code).await.map_err(PrepareError::Unpack)?;
        }
        if let Err(error) = out.files.remove(&archive) {
            tracing::warn!("cannot remove the code archive: {error}");
        }
    }
    if attempt.resolved.spec.checkpoint.is_none() {
        return Ok((None, None));
    }
    let shipped = shipped(&out, &attempt, is_kept).await;
    let inherited = attempt.resolved.inherited().map(|from| &from.job);
    let restored = restore(&out, inherited, &journal, (&attempt.checkpoint_dir(), is_kept), &fetching).await.map_err(PrepareError::Restore)?;
    fetching.done();
    // A script writes into the folder that it was told of; at the first start nothing was restored into it.
    out.files.create_folder(&attempt.checkpoint_dir()).map_err(PrepareError::Unpack)?;
    Ok((restored, shipped))
}

/// New code on a kept disk: its files replace the old ones, and what the work wrote stays.
async fn lay_over(out: &Outbox, archive: &Path, work: &Path, code: &CodeArchive) -> std::io::Result<()> {
    // On the same disk as the work: a file moves in one step.
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

/// Whether the work folder is that of the job which this one goes on from, on the disk that was kept of it.
fn is_work_kept(out: &Outbox, attempt: &Attempt) -> bool {
    let Some(continues) = &attempt.resolved.continues else { return false };
    let noted = out.files.read(&kept_work(&out.state)).ok().flatten();
    noted.is_some_and(|job| job == continues.job.as_str().as_bytes())
}

async fn download(out: &Outbox, key: &str, to: &std::path::Path, fetching: &Fetching) -> Result<String, PrepareError> {
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
