//! Starts the workload: the setup or the command. A command that cannot be executed ends the
//! attempt.

use std::sync::Arc;
use std::time::Duration;

use super::agent::Agent;
use super::gang::RANK_PROGRAM;
use super::startup::attempt::{AGENT_STATE_FILE, Mode};
use super::startup::environment::{RankOf, TrialPlace, WorkloadPaths, environment, hostfile};
use super::startup::fetch_status::ROOM_WITHIN;
use super::timers::RunTime;
use super::watch_workload;
use super::workload_stop::in_no_time;
use crate::agent::report::attention::Topic;
use crate::agent::report::retry_sender::chain;
use crate::job::{AttemptPhase, EndedBecause, ExitStatus, Reason, shown};
use crate::jobdir::EventDetail;
use crate::policy::{Afterwards, Decision, End, SuperviseStep, WorkloadStage};
use crate::ports::{Ended, Launch, Workload, WorkloadError};

/// Disk space for the log of one start while the store does not take it. It holds some minutes of a
/// verbose program, and is small beside the disks of training machines.
const LOG_SPOOL_BYTES_MAX: u64 = 512 << 20;

/// How long a start may take. The holder waits thirty seconds for the first reply. Shorter than a
/// minute gives up starts on a busy machine; longer pays for a start that never happens.
const START_MAX: Duration = Duration::from_secs(120);

/// The wait between two tries to write down a start.
const ROOM_AGAIN: Duration = Duration::from_secs(2);

/// The beginning of these messages.
const NO_ROOM: &str = "a start cannot be written down on this machine";

impl Agent {
    /// Starts the user's command. A command that cannot be executed ends the attempt.
    pub(crate) async fn start_main(&mut self) -> Option<Decision> {
        self.state.stage = WorkloadStage::Main;
        let mut argv = self.attempt.resolved.spec.command.argv();
        if self.attempt.resolved.member().is_some() {
            argv.splice(0..0, RANK_PROGRAM.map(String::from));
        }
        let before = self.board.marks();
        if self.state.main_since.is_none() {
            self.watching.main_begins();
        }
        let failed = self.start(argv).await;
        self.watching.restart(before, watch_workload::JUST_STARTED);
        self.enter(AttemptPhase::Running);
        failed
    }

    pub(crate) async fn start(&mut self, argv: Vec<String>) -> Option<Decision> {
        if self.state.stage == WorkloadStage::Main {
            self.state.main_since.get_or_insert(self.out.clock.now());
        }
        self.state.start += 1;
        let is_setup = self.state.stage == WorkloadStage::Setup;
        self.state.setups += u32::from(is_setup);
        self.state.setup_since = is_setup.then(|| self.steady_now());
        (self.state.ending, self.state.exit) = (None, None);
        self.ended = None;
        self.output.begins();
        self.ran = RunTime::from((!is_setup).then(|| self.out.clock.mono()));
        // The process that was saving is gone.
        self.saves.forget();
        self.notices.forget_request();
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
            self.alive_while(self.out.within(START_MAX, self.ports.workloads.start(&launch))).await;
        match started.unwrap_or_else(|| Err(in_no_time("start", START_MAX))) {
            Ok(workload) => {
                let pid = workload.scope().root_pid.unwrap_or_default();
                self.reporter.journal.record(EventDetail::WorkloadStarted {
                    start: self.state.start,
                    pid,
                    command,
                });
                self.reporter.logs.follow_as(
                    self.state.start,
                    &launch.dir,
                    &self.state.start_name(),
                );
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

    /// Records the start first: a restarted agent would repeat an unrecorded one. Waits for disk
    /// space.
    pub(crate) async fn keep_start(&mut self) -> Result<(), Decision> {
        let until = self.out.clock.mono() + ROOM_WITHIN;
        while let Err(cause) = self.out.try_keep(AGENT_STATE_FILE, &self.state) {
            if self.out.clock.mono() >= until {
                return Err(self.cannot_start(&WorkloadError::Failed {
                    act: "write down the start of",
                    cause,
                }));
            }
            self.reporter.attention.attend(
                Topic::UnwrittenStart,
                format!("{NO_ROOM}, so the work is not started: {cause}"),
            );
            if let Some(decision) = self.guard_for(ROOM_AGAIN).await {
                return Err(decision);
            }
        }
        self.reporter.attention.take_back(&Topic::UnwrittenStart);
        Ok(())
    }

    pub(crate) fn cannot_start(&mut self, error: &WorkloadError) -> Decision {
        let text = chain(error);
        let because = if self.state.stage == WorkloadStage::Setup {
            EndedBecause::SetupFailed
        } else {
            EndedBecause::Failed
        };
        // As in a shell: 127 if the command is missing, 126 if it is not executable.
        if let WorkloadError::CannotExecute { cause, .. } = error {
            let code = if cause.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            let exit = ExitStatus { code: Some(code), ..Default::default() };
            self.ended = Some(Ended { exit, orphans: 0, ..Default::default() });
        }
        self.gives_up("workload", because, text)
    }

    pub(crate) fn gives_up(
        &mut self,
        policy: &str,
        because: EndedBecause,
        text: String,
    ) -> Decision {
        let reason = Reason::new(self.out.clock.now(), policy, because.word(), text);
        self.reporter.note_reason(&reason);
        let end = End { because, save: false, by: None, then: Afterwards::Terminate };
        Decision { step: SuperviseStep::End(end), standing: self.watching.standing(), reason }
    }

    fn launch(&self, argv: Vec<String>) -> Launch {
        let attempt = &self.attempt;
        let spec = &attempt.resolved.spec;
        // A second start in this attempt resumes from what the previous one saved.
        let resume = self
            .checkpoints
            .as_ref()
            .and_then(|checkpoints| checkpoints.last())
            .or_else(|| self.state.resumed_from.clone());
        let hypertune = attempt.hypertune_file();
        let place = WorkloadPaths {
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
            trial: attempt
                .resolved
                .tuned
                .as_ref()
                .map(|tuned| TrialPlace { number: tuned.number, metric_file: &hypertune }),
            resumed: resume.is_some(),
            resume_step: resume.and_then(|summary| summary.step),
            gpus: self.watching.gpu_count(),
            rank: attempt.resolved.member().map(|member| RankOf {
                rank: member.rank,
                nodes: u32::try_from(member.seats.len()).unwrap_or(u32::MAX),
            }),
        };
        Launch {
            name: format!("{}-{}-{}", attempt.job(), attempt.no, self.state.start),
            argv,
            cwd: attempt.folders.work.clone(),
            env: environment(&place, &spec.env),
            dir: attempt.start_dir(self.state.start),
            log_bytes_max: LOG_SPOOL_BYTES_MAX,
            echo: attempt.mode == Mode::Alone,
            terminal: spec.watch.terminal,
        }
    }
}
