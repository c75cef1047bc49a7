//! The loop: wake, observe, decide, act.
//!
//! One value holds the attempt; the phases are in their own files. `prepare` is before the first
//! start, `decide` for a decision, `act` for carrying it out, `drain` for the end. Not here: a wait
//! for the store (the senders do that), or a second place that decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::activity_board::ActivityCounters;
use super::checkpoint::handle::Checkpoints;
use super::log::handle::LogShip;
use super::log::output::Output;
use super::log::progress_tail::ProgressTail;
use super::log::shipping_state::{LogPace, LogSettings};
use super::report::heartbeat::{Heartbeat, Seen};
use super::report::journal::Journal;
use super::report::metrics::Metrics;
use super::report::notice_watch::NoticeWatch;
use super::report::request_watch::RequestWatch;
use super::report::retry_sender::Outbox;
use super::report::samples::Samples;
use super::shutdown::deadman::{Deadman, SwitchFiles};
use super::shutdown::drain::Drained;
use super::startup::attempt::{AGENT_STATE_FILE, AgentState, Attempt, ClockAnchor, Mode};
use super::wake::{News, TICK, Wake};
use super::watch_workload::Watching;
use crate::agent::report::attention::{Attention, Topic};
use crate::instance::{Reading, Sample, Status};
use crate::job::{AttemptPhase, EndedBecause, ExitStatus, RECORD_FORMAT, Reason};
use crate::jobdir::What;
use crate::market::Span;
use crate::policy::{Decision, LimitLevel, Stage, Step, WatchAction};
use crate::ports::{
    Ended, Metadata, Meter, People, Power, Scope, SensorFeed, Service, Stacks, Workload, Workloads,
};

pub struct World {
    pub sensors: Box<dyn SensorFeed>,
    pub workloads: Arc<dyn Workloads>,
    /// `None`: there are no notices (a stand-alone run).
    pub metadata: Option<Arc<dyn Metadata>>,
    pub power: Arc<dyn Power>,
    /// The power switch is the machine's own, and is retried. A user's command runs once.
    pub insist: bool,
    /// Bytes that this process itself sent and received.
    pub own_network: Arc<AtomicU64>,
    /// The files that the dead-man's switch reads. `None`: this machine has no such switch.
    pub switch_files: Option<SwitchFiles>,
    /// The machine was launched for the job, and no other program uses it.
    pub own_machine: bool,
    /// Where measurements are published, if anywhere.
    pub meter: Option<Arc<dyn Meter>>,
    pub service: Arc<dyn Service>,
    pub stacks: Arc<dyn Stacks>,
    pub people: Arc<dyn People>,
    /// How many termination signals this process has received (stand-alone runs).
    pub signals: tokio::sync::watch::Receiver<u32>,
}

/// How it ended, for the exit code and the last message.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub because: EndedBecause,
    pub exit: Option<ExitStatus>,
    pub reason: Reason,
    /// Why the `--then` action failed: the machine is as it was.
    pub still_on: Option<String>,
}

pub struct Agent {
    pub(crate) attempt: Attempt,
    pub(crate) world: World,
    pub(crate) out: Outbox,
    pub(crate) journal: Journal,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) samples: Samples,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) logs: LogShip,
    pub(crate) board: ActivityCounters,
    pub(crate) progress: ProgressTail,
    pub(crate) checkpoints: Option<Checkpoints>,
    pub(crate) requests: RequestWatch,
    pub(crate) deadman: Option<Deadman>,
    /// Polling continues while this is held.
    _notices: Option<NoticeWatch>,
    pub(crate) news: News,
    pub(crate) memory: AgentState,
    /// The base of [`Agent::steady_now`]; also in `memory`, for an agent after a crash.
    pub(crate) anchor: ClockAnchor,
    pub(crate) watching: Watching,
    pub(crate) workload: Option<Arc<dyn Workload>>,
    /// The end of the present process, until the agent has acted on it.
    pub(crate) ended: Option<Ended>,
    pub(crate) ran: super::timers::Ran,
    pub(crate) phase: AttemptPhase,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) attention: Vec<Attention>,
    pub(crate) held_until: Option<Timestamp>,
    /// The last recorded verdict and action: only changes are recorded.
    pub(crate) noted: Option<(String, WatchAction, String)>,
    pub(crate) warned: super::decide::Warned,
    /// The result of the newest request for a checkpoint.
    pub(crate) saves: super::checkpoint::save_request::Saving,
    /// Printed and dropped bytes of the last process; and the total of all processes.
    pub(crate) printed: Option<(u64, u64)>,
    pub(crate) output: Output,
    /// How near the next limit was at the last tick.
    pub(crate) limit_level: LimitLevel,
    next_sample: Duration,
    pub(crate) next_keep: Duration,
    /// When this agent started, by the monotonic clock, and how long it stays silent.
    pub(crate) began: Duration,
    pub(crate) quiet_for: Duration,
}

impl Agent {
    pub fn new(attempt: Attempt, world: World, out: Outbox, mut memory: AgentState) -> Self {
        let spec = &attempt.resolved.spec;
        let (journal, heartbeat, samples) = (
            Journal::start(out.clone()),
            Heartbeat::start(out.clone(), attempt.mode == Mode::Launched),
            Samples::start(out.clone()),
        );
        let board = ActivityCounters::default();
        let pace = if attempt.mode == Mode::Launched { LogPace::Followed } else { LogPace::Kept };
        let settings = LogSettings {
            bytes_max: LOG_BYTES_MAX,
            pattern: spec.watch.log_pattern.clone(),
            done_line: spec.watch.done_marker.clone(),
            pace,
        };
        let logs = LogShip::start(out.clone(), journal.clone(), board.clone(), settings);
        let progress = ProgressTail::new(
            Arc::clone(&out.files),
            Arc::clone(&out.clock),
            board.clone(),
            journal.clone(),
            attempt.progress_file(),
            Some(attempt.done_file()),
        );
        let requests = RequestWatch::start(out.clone(), journal.clone());
        let notices = world
            .metadata
            .clone()
            .map(|metadata| NoticeWatch::start(metadata, Arc::clone(&out.clock)));
        let lease = attempt.resolved.spec.limits.lease.duration();
        let deadman = world.switch_files.clone().map(|paths| {
            Deadman::new(paths, lease, Arc::clone(&out.files), Arc::clone(&out.clock))
        });
        let meter = world.meter.clone().filter(|_| spec.watch.metrics);
        let metrics = meter
            .map(|meter| Metrics::start(meter, Arc::clone(&out.clock), attempt.instance.clone()));
        let news = News {
            notices: notices.as_ref().map(NoticeWatch::subscribe),
            requests: requests.wishes.clone(),
            signals: world.signals.clone(),
        };
        let anchor = ClockAnchor::kept_or_now(memory.anchor.take(), attempt.launched, &*out.clock);
        memory.anchor = Some(anchor.clone());
        let mut watching =
            Watching::new(spec, world.own_machine, memory.drawers, &memory.rhythm, board.marks());
        watching.remember_fault(memory.hardware.as_ref());
        board.has_been_silent(watching.longest_silence());
        Agent {
            journal,
            heartbeat,
            samples,
            metrics,
            logs,
            board,
            progress,
            checkpoints: None,
            requests,
            deadman,
            _notices: notices,
            news,
            watching,
            workload: None,
            ended: None,
            ran: super::timers::Ran::default(),
            phase: AttemptPhase::Preparing,
            reasons: Vec::new(),
            attention: Vec::new(),
            held_until: None,
            noted: None,
            warned: super::decide::Warned::default(),
            saves: super::checkpoint::save_request::Saving::default(),
            printed: None,
            output: Output::default(),
            limit_level: LimitLevel::Far,
            next_sample: Duration::ZERO,
            next_keep: Duration::ZERO,
            began: out.clock.mono(),
            quiet_for: super::startup::crash_loop::quiet_for(memory.short_lives),
            anchor,
            attempt,
            world,
            out,
            memory,
        }
    }

    /// Runs until power-off. On a real machine it does not return.
    pub async fn run(mut self) -> Finish {
        let mut decision = self.begin().await;
        loop {
            if let Some(Step::End(end)) = decision.as_ref().map(|decision| decision.step.clone()) {
                let reason = decision.take().expect("it was just read").reason;
                match self.drain(end, reason).await {
                    Drained::Over(finish) => return finish,
                    Drained::NoticeWasVoid => {
                        self.memory.ending = None;
                        decision = self.proceed().await;
                    }
                }
                continue;
            }
            if self.ended.is_some_and(|ended| ended.exit.success())
                && self.memory.stage == Stage::Setup
            {
                decision = self.start_main().await;
                continue;
            }
            let wake = self
                .news
                .wait(
                    &*self.out.clock,
                    self.tick(),
                    self.workload.as_deref().filter(|_| self.ended.is_none()),
                )
                .await;
            self.observe(wake).await;
            decision = Some(self.decide());
            decision = self.act(decision).await;
            self.report();
        }
    }

    /// Takes in new facts. Samples keep their own interval: events must not make them denser.
    pub(crate) async fn observe(&mut self, wake: Wake) {
        if let Wake::Ended(ended) = wake {
            self.ended = Some(ended);
            self.note_end(ended);
        }
        self.progress.poll();
        let mono = self.out.clock.mono();
        if mono >= self.next_sample || self.may_have_lost_a_gpu(wake) {
            self.next_sample = mono + TICK - TICK / 10;
            let mut scope =
                self.workload.as_ref().map(|workload| workload.scope()).unwrap_or_default();
            scope.workdir = self.attempt.folders.work.clone();
            scope.own_network_bytes = self.world.own_network.load(Ordering::Relaxed);
            let sample = self.world.sensors.sample(&scope).await;
            self.look_for_xids(sample.as_ref());
            self.tell_of_room(sample.as_ref());
            let marks = self.marks();
            if let Some(rates) = self.watching.take(sample, marks, mono, self.memory.stall_restarts)
            {
                self.samples.push(&rates);
                self.board.has_been_silent(self.watching.longest_silence());
                if let Some(metrics) = &self.metrics {
                    metrics.add(&rates, self.watching.idle.numbers.get("quiet_secs").copied());
                }
            }
        }
        if self.memory.stage == Stage::Main {
            self.memory.drawers = self.watching.drawers;
        }
        self.look_at_work();
        self.keep_now_and_then();
        self.world.service.alive();
    }

    /// When the work began, and how much of it is saved: input for a plan of the rest of the job.
    fn look_at_work(&mut self) {
        let now = self.out.clock.now();
        let stepped = self.board.progress().at.is_some_and(|at| at >= self.memory.started);
        if self.memory.working_since.is_none()
            && self.memory.stage == Stage::Main
            && (stepped || self.watching.has_worked())
        {
            self.memory.working_since = Some(now);
        }
        let newest = self
            .checkpoints
            .as_ref()
            .and_then(Checkpoints::last)
            .filter(|newest| newest.attempt == self.attempt.no);
        if let Some(newest) = newest
            .filter(|newest| self.memory.saved.is_none_or(|(number, _)| number != newest.number))
        {
            // Work during the upload is not in it.
            let since = crate::market::elapsed(newest.created, now);
            let saved = self.memory.drawers.useful().duration().saturating_sub(since);
            self.memory.saved = Some((newest.number, Span::from_duration(saved)));
        }
    }

    /// The useful time of this attempt that its newest checkpoint holds.
    pub(crate) fn saved(&self) -> Span {
        self.memory.saved.map_or(Span::ZERO, |(_, saved)| saved)
    }

    /// A workload has just failed on a GPU machine: the driver may know more now than at the last
    /// tick.
    fn may_have_lost_a_gpu(&self, wake: Wake) -> bool {
        matches!(wake, Wake::Ended(ended) if !ended.exit.success())
            && self.watching.gpu_count().is_some()
            && !self.alone()
    }

    /// Reports the driver's Xid errors to people. `policy::watch::hardware` decides which of them
    /// count.
    fn look_for_xids(&mut self, sample: Option<&Sample>) {
        let Some(Reading::Known(gpus)) = sample.map(|sample| &sample.gpus) else { return };
        let lines = gpus.iter().flat_map(|gpu| {
            gpu.xids.iter().map(|xid| format!("GPU {}: the driver reported Xid {xid}", gpu.index))
        });
        for line in lines.collect::<Vec<_>>() {
            self.attend(Topic::Other, line);
        }
    }

    pub(crate) fn marks(&mut self) -> crate::instance::Marks {
        let mut marks = self.board.marks();
        let printed = self.workload.as_ref().map_or(0, |workload| workload.printed().0);
        marks.log_bytes = self.output.count(printed, marks.log_bytes);
        marks
    }

    fn note_end(&mut self, ended: Ended) {
        let start = self.memory.start;
        self.logs.ended(start);
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.workload_ended(ended.exit);
        }
        self.journal.record(What::WorkloadEnded {
            start,
            exit: ended.exit,
            orphans: ended.orphans,
        });
    }

    pub(crate) fn note(&mut self, decision: &Decision, action: WatchAction) {
        let key = (decision.reason.policy.clone(), action, decision.reason.verdict.clone());
        if self.noted.as_ref() == Some(&key) {
            return;
        }
        self.noted = Some(key);
        tracing::info!(policy = %decision.reason.policy, verdict = %decision.reason.verdict, "{}", decision.reason.text);
        self.journal.record(What::Verdict { reason: decision.reason.clone() });
        if !matches!(decision.step, Step::Continue) {
            self.reasons.push(decision.reason.clone());
        }
    }

    pub(crate) fn enter(&mut self, phase: AttemptPhase) {
        if self.phase != phase {
            self.phase = phase;
            self.journal.record(What::Phase { phase });
        }
        self.report();
    }

    pub(crate) fn keep(&self) {
        self.out.keep(AGENT_STATE_FILE, &self.memory);
    }

    pub(crate) fn alone(&self) -> bool {
        self.attempt.mode == Mode::Alone
    }

    /// Offers the heartbeat the present facts. It writes when that is worth a write.
    pub(crate) fn report(&self) {
        self.renew_deadline();
        if let Some(metrics) = self.metrics.as_ref().filter(|_| !self.is_quiet()) {
            metrics.beat();
        }
        self.logs.look(self.workload.as_ref().map_or(0, |workload| workload.printed().0));
        if self.heartbeat.wants(&self.seen()) {
            self.beat();
        }
    }

    /// The part of the status whose changes users should see at once.
    fn seen(&self) -> Seen<'_> {
        Seen {
            phase: self.phase,
            verdict: self.verdict_word(),
            exit: self.exit_of_main(),
            notice: self.warned.notice.as_ref(),
            starts: self.memory.start,
            held_until: self.held_until,
            attention: self.attention.len() + self.save_troubles().len(),
            last_checkpoint: self
                .checkpoints
                .as_ref()
                .and_then(Checkpoints::last)
                .map(|checkpoint| checkpoint.number),
        }
    }

    fn save_troubles(&self) -> Vec<String> {
        self.checkpoints.as_ref().map(Checkpoints::troubles).unwrap_or_default()
    }

    fn verdict_word(&self) -> &str {
        let verdict = self.noted.as_ref().map_or("starting", |(_, _, verdict)| verdict.as_str());
        if self.phase == AttemptPhase::Running { self.standing().word() } else { verdict }
    }

    pub(crate) fn status(&self) -> Status {
        let idle_reason = self.watching.idle.reason(self.out.clock.now(), "idle");
        Status {
            format: RECORD_FORMAT,
            instance: self.attempt.instance.clone(),
            sequence: 0,
            at: self.out.clock.now(),
            phase: self.phase,
            started: self.memory.started,
            verdict: self.verdict_word().to_owned(),
            reason: self
                .reasons
                .last()
                .filter(|_| self.phase != AttemptPhase::Running)
                .cloned()
                .or(Some(idle_reason)),
            progress: Some(self.board.progress()),
            gpus: self.watching.gpu_status(),
            cpu_percent: self.watching.cpu_percent(),
            memory_bytes: self.watching.memory_bytes(),
            useful: self.memory.drawers.useful(),
            idle: self.memory.drawers.idle(),
            last_checkpoint: self.checkpoints.as_ref().and_then(Checkpoints::last),
            checkpoints: self.checkpoints.as_ref().map_or(0, Checkpoints::count),
            working_since: self.memory.working_since,
            saved: self.saved(),
            notice: self.warned.notice.clone(),
            starts: self.memory.start,
            held_until: self.held_until,
            attention: self
                .attention
                .iter()
                .map(|said| said.text.clone())
                .chain(self.save_troubles())
                .collect(),
            exit: self.exit_of_main(),
            unmeasured: self.is_unmeasured(),
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.workload.as_ref().map(|workload| workload.scope()).unwrap_or_default()
    }
}

/// One GiB is an hour of a program that prints its tensors. Beyond it, the start and the end are
/// kept.
const LOG_BYTES_MAX: u64 = 1 << 30;
