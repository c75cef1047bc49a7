//! Act: carries out a step. Every choice is already made.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint::save_request::{NO_HANDLER, Saved};
use super::report::stack_dumps;
use super::run_loop::Agent;
use super::shutdown::shutdown_deadline::Ahead;
use super::startup::attempt::{Ending, Mode};
use super::startup::environment::{Place, environment, hostfile};
use super::timers::Ran;
use super::watch_workload;
use crate::agent::report::attention::{Attention, Topic};
use crate::job::{AttemptPhase, EndedBecause, Reason, shown};
use crate::jobdir::What;
use crate::market::Span;
use crate::policy::{Afterwards, Decision, End, SERVICE, Stage, Step};
use crate::ports::{Ended, Launch, Signal, Workload, WorkloadError};

/// Disk space for the log of one start while the store does not take it. It holds some minutes of a
/// verbose program, and is small beside the disks of training machines.
const LOG_SPOOL_BYTES_MAX: u64 = 512 << 20;

/// How long to wait for a killed process. The holder waits ten seconds, and as long again for the
/// record of the end. A healthy kernel needs milliseconds.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(35);

/// How long a start may take. The holder waits thirty seconds for the first reply. Shorter than a
/// minute gives up starts on a busy machine; longer pays for a start that never happens.
const START_MAX: Duration = Duration::from_secs(120);

/// The limit for the kill of a tree, which needs about thirty seconds. Other processes end with the
/// machine.
const KILLED_WITHIN: Duration = Duration::from_secs(60);

/// The last part of the SIGTERM grace, for processes without a handler. Longer cuts the last save
/// short; shorter kills processes that would have exited.
const TREE_GRACE: Duration = Duration::from_secs(2);

/// The error for an act without an answer in time.
pub(super) fn in_no_time(act: &'static str, within: Duration) -> WorkloadError {
    let cause =
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", within.as_secs()));
    WorkloadError::Failed { act, cause }
}

impl Agent {
    pub(super) async fn act(&mut self, decision: Option<Decision>) -> Option<Decision> {
        let decision = decision?;
        // The policy may have skipped its `Stacks` step between two samples. Record them before the
        // restart.
        if decision.reason.policy == "stall"
            && matches!(decision.step, Step::Restart { .. } | Step::End(_))
        {
            self.record_stacks(&decision.reason).await;
        }
        match decision.step.clone() {
            Step::End(_) => return Some(decision),
            Step::Continue => {}
            Step::Save { asked_by } => self.begin_save(asked_by),
            Step::Notify => self.tell(&decision.reason),
            Step::Stacks => self.record_stacks(&decision.reason).await,
            Step::GoBack { before } => return Box::pin(self.go_back(before)).await,
            Step::Restart { after } => return self.restart(&decision, after).await,
        }
        self.obey_checkpoint_wish();
        None
    }

    /// Tells people: in the status, the journal and the agent's own output.
    fn tell(&mut self, reason: &Reason) {
        let kind = format!("{}:", reason.verdict);
        let text = if reason.text.starts_with(&kind) {
            reason.text.clone()
        } else {
            format!("{kind} {}", reason.text)
        };
        let topic = Topic::Verdict(reason.verdict.clone());
        if !self.has_said(&topic) {
            self.attend(topic, text);
        }
    }

    async fn record_stacks(&mut self, reason: &Reason) {
        if self.warned_of_stacks(reason) {
            return;
        }
        let scope = self.scope();
        self.alive_while(stack_dumps::collect(
            &self.out,
            &self.journal,
            &*self.world.stacks,
            &scope,
        ))
        .await;
    }

    /// One stack dump per stall is enough.
    fn warned_of_stacks(&mut self, reason: &Reason) -> bool {
        if self.has_said(&Topic::Stacks) {
            return true;
        }
        self.tell(reason);
        let text = "stalled: what the processes wait for was written down".to_owned();
        self.attention.push(Attention { topic: Topic::Stacks, text });
        false
    }

    /// Asks the workload for a checkpoint, unless a save is in progress. The upload runs beside the
    /// loop.
    pub(super) fn begin_save(&mut self, asked_by: &'static str) {
        let Some((checkpoints, spec)) =
            self.checkpoints.clone().zip(self.attempt.resolved.spec.checkpoint.clone())
        else {
            return;
        };
        // A signal that ends the workload is only for its end.
        let signal =
            spec.signal.as_deref().and_then(Signal::from_name).filter(|signal| signal.asks());
        let Some((signal, workload)) = signal.zip(self.workload.clone()) else { return };
        self.warned.asked = Some(self.out.clock.now());
        self.warned.joined = self.saves.is_under_way();
        if self.warned.joined {
            return;
        }
        let (journal, saves, within) =
            (self.journal.clone(), self.saves.begin(), spec.grace.duration());
        tokio::spawn(async move {
            // Look at the folder first: later changes are then known to be the answer to the
            // signal.
            let ask = checkpoints.ask().await;
            let asked = workload.ask(signal);
            if let (Ok(processes), Some(signal)) = (&asked, spec.signal) {
                journal.record(What::Asked { by: asked_by.into(), signal, processes: *processes });
            }
            let saved = match asked {
                Ok(0) => Saved::Failed(NO_HANDLER.into()),
                Ok(_) => checkpoints.save(ask, asked_by, within).await,
                Err(error) => Saved::Failed(super::report::retry_sender::chain(&error)),
            };
            if saves.is_closed() {
                // Another save replaced this one and reports its own result.
                return;
            }
            match &saved {
                Saved::Failed(why) if why != NO_HANDLER => {
                    let text = format!(
                        "the workload was asked to save ({asked_by}), and no complete checkpoint came: {why}"
                    );
                    journal.record(What::Attention { text });
                }
                _ => {}
            }
            saves.send_replace(Some(saved));
        });
    }

    fn obey_checkpoint_wish(&mut self) {
        let wished = self.requests.wishes.borrow().checkpoint;
        // A request during a save is served after it, to include the work since.
        let may_ask = self.phase == AttemptPhase::Running && !self.saves.is_under_way();
        if may_ask && wished > self.memory.checkpoint_wish {
            self.memory.checkpoint_wish = wished;
            self.keep();
            self.begin_save("request");
        }
    }

    async fn restart(&mut self, decision: &Decision, after: Span) -> Option<Decision> {
        match decision.reason.policy.as_str() {
            "stall" => self.memory.stall_restarts += 1,
            SERVICE => {}
            _ => self.memory.retries_used += 1,
        }
        // Before the first signal: a workload that answers it with exit code 0 has not succeeded.
        self.memory.ending = Some(Ending::Restart);
        self.keep();
        self.stop_workload(self.attempt.resolved.spec.watch.term_grace.duration(), None).await;
        // The delay may be long. A notice, a request or a limit interrupts it, and no restart
        // follows.
        if let Some(decision) = self.guard_for(after.duration()).await {
            return Some(decision);
        }
        self.take_back(&Topic::Verdict("stalled".into()));
        self.take_back(&Topic::Stacks);
        // The stopped command may be the setup.
        self.proceed().await
    }

    /// Ends the running process and its whole tree.
    pub(super) async fn stop_workload(&mut self, grace: Duration, ahead: Option<&Ahead>) {
        let Some(workload) = self.workload.take() else { return };
        if self.ended.is_none() {
            // First the processes that have a handler; the others when these are gone, or near the
            // end of the grace.
            if let Err(error) = workload.tell(Signal::Term) {
                tracing::warn!("{error}");
            }
            let tail = TREE_GRACE.min(grace / 5);
            let mut ended = self.patiently(&*workload, grace - tail, ahead).await;
            if ended.is_none() && *self.news.signals.borrow() <= 1 {
                workload.tell_rest();
                ended = self.patiently(&*workload, tail, ahead).await;
            }
            if let Some(ended) = ended {
                self.observe(super::wake::Wake::Ended(ended)).await;
            }
        }
        let killed = self.alive_while(self.out.within(KILLED_WITHIN, workload.kill_tree())).await;
        if let Err(error) = killed.unwrap_or_else(|| Err(in_no_time("kill", KILLED_WITHIN))) {
            self.journal.record(What::Attention {
                text: format!("something of the workload could not be killed: {error}"),
            });
        }
        if self.ended.is_none() {
            // A process that hangs in a driver or file system only ends with the machine.
            let ended =
                self.patiently(&*workload, UNKILLABLE_AFTER, None).await.unwrap_or_default();
            self.observe(super::wake::Wake::Ended(ended)).await;
        }
        self.printed = Some(workload.printed());
        self.logs.ended(self.memory.start);
    }

    /// Waits for the workload's end, at most this long, and keeps the watchdog fed.
    async fn patiently(
        &mut self,
        workload: &dyn Workload,
        grace: Duration,
        ahead: Option<&Ahead>,
    ) -> Option<Ended> {
        let until = self.out.clock.mono() + grace;
        loop {
            let left = match ahead {
                Some(ahead) => self.left(ahead, until),
                None => until.saturating_sub(self.out.clock.mono()),
            };
            if left.is_zero() {
                return None;
            }
            tokio::select! {
                biased;
                ended = workload.ended() => return Some(ended),
                () = self.out.clock.sleep(left.min(Duration::from_secs(1))) => {}
            }
            self.world.service.alive();
            self.report();
            if *self.news.signals.borrow() > 1 {
                // After a second Ctrl-C the user does not want to wait.
                return None;
            }
        }
    }

    /// Starts the user's command. A command that cannot be executed ends the attempt.
    pub(super) async fn start_main(&mut self) -> Option<Decision> {
        self.memory.stage = Stage::Main;
        let argv = self.attempt.resolved.spec.command.argv();
        let before = self.board.marks();
        if self.memory.main_since.is_none() {
            self.watching.main_begins();
        }
        let failed = self.start(argv).await;
        self.watching.restart(before, watch_workload::JUST_STARTED);
        self.enter(AttemptPhase::Running);
        failed
    }

    pub(super) async fn start(&mut self, argv: Vec<String>) -> Option<Decision> {
        if self.memory.stage == Stage::Main {
            self.memory.main_since.get_or_insert(self.out.clock.now());
        }
        self.memory.start += 1;
        let is_setup = self.memory.stage == Stage::Setup;
        self.memory.setups += u32::from(is_setup);
        self.memory.setup_since = is_setup.then(|| self.steady_now());
        (self.memory.ending, self.memory.exit) = (None, None);
        self.ended = None;
        self.output.begins();
        self.ran = Ran::from((!is_setup).then(|| self.out.clock.mono()));
        // The process that was saving is gone.
        self.saves.forget();
        self.warned.asked = None;
        self.board.restarted(self.out.clock.now());
        self.note_beginning().await;
        if let Err(decision) = self.keep_start().await {
            return Some(decision);
        }
        if let Some(gpus) = self.watching.gpu_count()
            && let Err(error) =
                self.out.files.replace(&self.attempt.host_file(), hostfile(gpus).as_bytes())
        {
            tracing::warn!("the list of machines for MPI is not written: {error}");
        }
        let launch = self.launch(argv);
        let command = shown(&launch.argv);
        // The holder's first reply may take as long as the watchdog timeout.
        let started =
            self.alive_while(self.out.within(START_MAX, self.world.workloads.start(&launch))).await;
        match started.unwrap_or_else(|| Err(in_no_time("start", START_MAX))) {
            Ok(workload) => {
                let pid = workload.scope().root_pid.unwrap_or_default();
                self.journal.record(What::WorkloadStarted {
                    start: self.memory.start,
                    pid,
                    command,
                });
                self.logs.follow_as(self.memory.start, &launch.dir, &self.memory.start_name());
                let workload: Arc<dyn Workload> = workload.into();
                if let Some(checkpoints) = &self.checkpoints {
                    checkpoints.workload_started(Some(Arc::clone(&workload)));
                }
                self.workload = Some(workload);
                None
            }
            Err(error) => Some(self.cannot_start(&error)),
        }
    }

    pub(super) fn cannot_start(&mut self, error: &WorkloadError) -> Decision {
        let text = super::report::retry_sender::chain(error);
        let because = if self.memory.stage == Stage::Setup {
            EndedBecause::SetupFailed
        } else {
            EndedBecause::Failed
        };
        // As in a shell: 127 for not found, 126 for not executable.
        if let WorkloadError::CannotExecute { cause, .. } = error {
            let code = if cause.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            let exit = crate::job::ExitStatus { code: Some(code), ..Default::default() };
            self.ended = Some(Ended { exit, orphans: 0, ..Default::default() });
        }
        self.gives_up("workload", because, text)
    }

    pub(super) fn gives_up(
        &mut self,
        policy: &str,
        because: EndedBecause,
        text: String,
    ) -> Decision {
        let reason = Reason::new(self.out.clock.now(), policy, because.word(), text);
        self.journal.record(What::Verdict { reason: reason.clone() });
        self.reasons.push(reason.clone());
        let end = End { because, save: false, by: None, then: Afterwards::Terminate };
        Decision { step: Step::End(end), standing: self.standing(), reason }
    }

    fn launch(&self, argv: Vec<String>) -> Launch {
        let attempt = &self.attempt;
        let spec = &attempt.resolved.spec;
        // A second start in this attempt resumes from what the previous one saved.
        let resume = self
            .checkpoints
            .as_ref()
            .and_then(|checkpoints| checkpoints.last())
            .or_else(|| self.memory.resumed_from.clone());
        let place = Place {
            job: attempt.job(),
            name: &spec.name,
            attempt: attempt.no,
            instance: &attempt.instance,
            workdir: &attempt.folders.work,
            checkpoint_dir: &attempt.checkpoint_dir(),
            output_dir: &attempt.output_dir(),
            cache_dir: &attempt.folders.cache,
            progress: &attempt.progress_file(),
            done: &attempt.done_file(),
            notice: &attempt.notice_file(),
            hostfile: &attempt.host_file(),
            resumed: resume.is_some(),
            resume_step: resume.and_then(|summary| summary.step),
            gpus: self.watching.gpu_count(),
        };
        Launch {
            name: format!("{}-{}-{}", attempt.job(), attempt.no, self.memory.start),
            argv,
            cwd: attempt.folders.work.clone(),
            env: environment(&place, &spec.env),
            dir: attempt.start_dir(self.memory.start),
            log_bytes_max: LOG_SPOOL_BYTES_MAX,
            echo: attempt.mode == Mode::Alone,
            terminal: spec.watch.terminal,
        }
    }
}
