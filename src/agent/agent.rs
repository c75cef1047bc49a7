//! The agent: the state of its attempt, and the handles of its tasks.
//!
//! The other files act on it, each on its own layer, from the lowest to the highest: `limits`,
//! `observe`, `workload_stop`, `shutdown`, `decide`, `guarded_wait`, `workload_start`, `startup`,
//! `act`, `run_loop`. A lower file never calls a higher one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;

use super::activity_counters::ActivityCounters;
use super::checkpoint::handle::Checkpoints;
use super::checkpoint::save_request::Saving;
use super::log::handle::LogShip;
use super::log::metric_watch::MetricWatch;
use super::log::output::OutputBytes;
use super::log::progress_tail::ProgressTail;
use super::log::shipping_state::{LogPace, LogSettings};
use super::notice_tracker::NoticeTracker;
use super::report::attention::{AttentionList, Topic};
use super::report::heartbeat::Heartbeat;
use super::report::journal::Journal;
use super::report::metrics::Metrics;
use super::report::metrics_exposition::ExposedMetrics;
use super::report::reporter::{Reporter, StatusFacts};
use super::report::request_watch::RequestWatch;
use super::report::retry_sender::Outbox;
use super::report::samples::Samples;
use super::shutdown::deadman::{Deadman, SwitchFiles};
use super::startup::attempt::{AGENT_STATE_FILE, AgentState, Attempt, ClockAnchor, Mode};
use super::startup::crash_loop::CrashLoop;
use super::timers::RunTime;
use super::wake::AgentEvents;
use super::watch_workload::WorkloadWatch;
use crate::instance::Marks;
use crate::job::{AttemptPhase, EndedBecause, ExitStatus, Reason};
use crate::market::elapsed;
use crate::policy::{LimitLevel, WorkloadStage};
use crate::ports::{
    Ended, Metadata, Meter, People, Power, Scope, SensorFeed, Service, Stacks, Workload, Workloads,
};

/// One GiB is an hour of a program that prints its tensors. Beyond it, the start and the end are
/// kept.
const LOG_BYTES_MAX: u64 = 1 << 30;

pub struct AgentPorts {
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
    /// Where a scrape finds the newest values, if anything is served.
    pub exposed: Option<Arc<ExposedMetrics>>,
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
    pub(crate) ports: AgentPorts,
    pub(crate) out: Outbox,
    /// The state that survives a crash of the agent.
    pub(crate) state: AgentState,
    pub(crate) reporter: Reporter,
    pub(crate) notices: NoticeTracker,
    pub(crate) requests: RequestWatch,
    pub(crate) events: AgentEvents,
    /// The base of [`Agent::steady_now`]; also in `state`, for an agent after a crash.
    pub(crate) anchor: ClockAnchor,
    pub(crate) board: ActivityCounters,
    pub(crate) progress: ProgressTail,
    pub(crate) watching: WorkloadWatch,
    pub(crate) workload: Option<Arc<dyn Workload>>,
    /// The end of the present process, until the agent has acted on it.
    pub(crate) ended: Option<Ended>,
    pub(crate) ran: RunTime,
    pub(crate) checkpoints: Option<Checkpoints>,
    /// The result of the newest request for a checkpoint.
    pub(crate) saves: Saving,
    /// Printed and dropped bytes of the last process; and the total of all processes.
    pub(crate) printed: Option<(u64, u64)>,
    pub(crate) output: OutputBytes,
    /// How near the next limit was at the last tick.
    pub(crate) limit_level: LimitLevel,
    pub(crate) next_sample: Duration,
    pub(crate) next_keep: Duration,
}

impl Agent {
    pub fn new(attempt: Attempt, ports: AgentPorts, out: Outbox, mut state: AgentState) -> Self {
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
        let progress = ProgressTail::of_trial(
            Arc::clone(&out.files),
            Arc::clone(&out.clock),
            board.clone(),
            journal.clone(),
            attempt.progress_file(),
            Some(attempt.done_file()),
            attempt.resolved.tuned.as_ref().map(|tuned| {
                MetricWatch::new(&tuned.metric, attempt.hypertune_file(), board.clone())
            }),
        );
        let requests = RequestWatch::start(out.clone(), journal.clone());
        let notices = NoticeTracker::start(ports.metadata.clone(), &out.clock);
        let lease = attempt.resolved.spec.limits.lease.duration();
        let deadman = ports.switch_files.clone().map(|paths| {
            Deadman::new(paths, lease, Arc::clone(&out.files), Arc::clone(&out.clock))
        });
        let meter = ports.meter.clone().filter(|_| spec.watch.metrics);
        let metrics = meter
            .map(|meter| Metrics::start(meter, Arc::clone(&out.clock), attempt.instance.clone()));
        let events =
            AgentEvents { requests: requests.wishes.clone(), signals: ports.signals.clone() };
        let anchor = ClockAnchor::kept_or_now(state.anchor.take(), attempt.launched, &*out.clock);
        state.anchor = Some(anchor.clone());
        let mut watching =
            WorkloadWatch::new(spec, ports.own_machine, state.time, &state.cadence, board.marks());
        watching.remember_fault(state.hardware.as_ref());
        board.has_been_silent(watching.longest_silence());
        let reporter = Reporter {
            clock: Arc::clone(&out.clock),
            attention: AttentionList::new(journal.clone()),
            journal,
            heartbeat,
            samples,
            metrics,
            exposed: ports.exposed.clone(),
            logs,
            deadman,
            crash_loop: CrashLoop::new(out.clock.mono(), state.short_lives),
            phase: AttemptPhase::Preparing,
            reasons: Vec::new(),
            noted: None,
            held_until: None,
        };
        Agent {
            reporter,
            notices,
            requests,
            events,
            anchor,
            board,
            progress,
            watching,
            workload: None,
            ended: None,
            ran: RunTime::default(),
            checkpoints: None,
            saves: Saving::default(),
            printed: None,
            output: OutputBytes::default(),
            limit_level: LimitLevel::Far,
            next_sample: Duration::ZERO,
            next_keep: Duration::ZERO,
            attempt,
            ports,
            out,
            state,
        }
    }

    /// Also tells people these facts of its start, once.
    #[must_use]
    pub fn telling(mut self, texts: Vec<String>) -> Self {
        for text in texts {
            self.reporter.attention.attend(Topic::Other, text);
        }
        self
    }

    pub(crate) fn keep(&self) {
        self.out.keep(AGENT_STATE_FILE, &self.state);
    }

    pub(crate) fn alone(&self) -> bool {
        self.attempt.mode == Mode::Alone
    }

    /// The time for limits, deadlines and waits: see [`ClockAnchor`].
    pub(crate) fn steady_now(&self) -> Timestamp {
        self.anchor.carried(self.out.clock.mono())
    }

    /// The time left until `by`, at most `most`, on the agent's own time: a set clock does not
    /// shorten it.
    pub(crate) fn time_until(&self, by: Option<Timestamp>, most: Duration) -> Duration {
        match by {
            Some(by) => elapsed(self.steady_now(), by).min(most),
            None => most,
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.workload.as_ref().map(|workload| workload.scope()).unwrap_or_default()
    }

    pub(crate) fn marks(&mut self) -> Marks {
        let mut marks = self.board.marks();
        let printed = self.workload.as_ref().map_or(0, |workload| workload.printed().0);
        marks.log_bytes = self.output.count(printed, marks.log_bytes);
        marks
    }

    pub(crate) fn exit_of_main(&self) -> Option<ExitStatus> {
        self.ended.filter(|_| self.state.stage == WorkloadStage::Main).map(|ended| ended.exit)
    }

    /// The hard cap from the launch, or as the user has raised it since.
    pub(crate) fn kill_at(&self) -> Option<Timestamp> {
        self.attempt.kill_at.max(self.state.kill_at).max(self.notices.raised_end())
    }

    pub(crate) fn status_facts(&self) -> StatusFacts<'_> {
        StatusFacts {
            attempt: &self.attempt,
            state: &self.state,
            watching: &self.watching,
            board: &self.board,
            checkpoints: self.checkpoints.as_ref(),
            notice: self.notices.notice(),
            exit: self.exit_of_main(),
            printed: self.workload.as_ref().map_or(0, |workload| workload.printed().0),
            hard_end: self.kill_at(),
            steady_now: self.steady_now(),
        }
    }

    /// Offers the heartbeat the present facts.
    pub(crate) fn report(&self) {
        self.reporter.report(&self.status_facts());
    }

    pub(crate) fn enter(&mut self, phase: AttemptPhase) {
        self.reporter.enter(phase);
        self.report();
    }

    /// Keeps watchdog and heartbeat going during a slow step.
    pub(crate) async fn alive_while<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = Box::pin(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.out.clock.sleep(Duration::from_secs(1)) => {}
            }
            self.ports.service.alive();
            self.report();
        }
    }
}
