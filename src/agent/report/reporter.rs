//! The reporter: the phase, the verdicts and the messages of this attempt, in the journal, the
//! heartbeat and the metrics.
//!
//! Each report gets the present facts as an argument. Not here: a decision, or a call of the store
//! (the senders beside the loop do that).

use std::sync::Arc;

use jiff::Timestamp;

use super::attention::{AttentionList, Topic};
use super::heartbeat::{Heartbeat, ShownFacts};
use super::journal::Journal;
use super::metrics::Metrics;
use super::metrics_exposition::ExposedMetrics;
use super::samples::Samples;
use crate::agent::activity_counters::ActivityCounters;
use crate::agent::checkpoint::handle::Checkpoints;
use crate::agent::log::handle::LogShip;
use crate::agent::shutdown::deadman::Deadman;
use crate::agent::startup::attempt::{AgentState, Attempt};
use crate::agent::startup::crash_loop::CrashLoop;
use crate::agent::watch_workload::WorkloadWatch;
use crate::instance::{AttentionKind, Notice, Status};
use crate::job::{AttemptPhase, ExitStatus, RECORD_FORMAT, Reason};
use crate::jobdir::EventDetail;
use crate::policy::gang::gang_verdict::is_long_quiet_by;
use crate::policy::{Activity, Decision, SuperviseStep, WatchAction};
use crate::ports::Clock;

pub(crate) struct Reporter {
    pub clock: Arc<dyn Clock>,
    pub journal: Journal,
    pub heartbeat: Heartbeat,
    pub samples: Samples,
    pub metrics: Option<Metrics>,
    pub exposed: Option<Arc<ExposedMetrics>>,
    pub logs: LogShip,
    pub deadman: Option<Deadman>,
    pub attention: AttentionList,
    pub crash_loop: CrashLoop,
    pub phase: AttemptPhase,
    /// The reasons of all actions, oldest first.
    pub reasons: Vec<Reason>,
    /// The last recorded policy, action and verdict: only changes are recorded.
    pub noted: Option<(String, WatchAction, String)>,
    pub held_until: Option<Timestamp>,
}

/// The present facts of the attempt, for a report.
pub(crate) struct StatusFacts<'a> {
    pub attempt: &'a Attempt,
    pub state: &'a AgentState,
    pub watching: &'a WorkloadWatch,
    pub board: &'a ActivityCounters,
    pub checkpoints: Option<&'a Checkpoints>,
    pub notice: Option<&'a Notice>,
    /// How the command has ended.
    pub exit: Option<ExitStatus>,
    /// Bytes that the present process has printed.
    pub printed: u64,
    /// When the machine must be off, and the present time by the agent's own clock.
    pub hard_end: Option<Timestamp>,
    pub steady_now: Timestamp,
}

impl Reporter {
    /// Offers the heartbeat the present facts. It writes when that is worth a write.
    pub(crate) fn report(&self, facts: &StatusFacts<'_>) {
        self.renew_deadline(facts);
        if let Some(metrics) = self.metrics.as_ref().filter(|_| !self.is_quiet()) {
            metrics.beat();
        }
        if let Some(exposed) = &self.exposed {
            exposed.see_status(self.status(facts), facts.hard_end);
        }
        self.logs.look(facts.printed);
        if self.heartbeat.wants(&self.seen(facts)) {
            self.beat(facts);
        }
    }

    /// Keeps the dead-man's switch at this machine's hard end.
    pub(crate) fn renew_deadline(&self, facts: &StatusFacts<'_>) {
        let Some(deadman) = self.deadman.as_ref().filter(|_| !self.is_quiet()) else { return };
        deadman.say_alive();
        deadman.renew(facts.hard_end, facts.steady_now);
    }

    /// Records a new phase.
    pub(crate) fn enter(&mut self, phase: AttemptPhase) {
        if self.phase != phase {
            self.phase = phase;
            self.journal.record(EventDetail::Phase { phase });
        }
    }

    /// Records a decision if it differs from the last one.
    pub(crate) fn note(&mut self, decision: &Decision, action: WatchAction) {
        let key = (decision.reason.policy.clone(), action, decision.reason.verdict.clone());
        if self.noted.as_ref() == Some(&key) {
            return;
        }
        self.noted = Some(key);
        tracing::info!(policy = %decision.reason.policy, verdict = %decision.reason.verdict, "{}", decision.reason.text);
        self.journal.record(EventDetail::Verdict { reason: decision.reason.clone() });
        if !matches!(decision.step, SuperviseStep::Continue) {
            self.reasons.push(decision.reason.clone());
        }
    }

    /// Records a verdict that no policy gave, and its reason.
    pub(crate) fn note_reason(&mut self, reason: &Reason) {
        self.journal.record(EventDetail::Verdict { reason: reason.clone() });
        self.reasons.push(reason.clone());
    }

    /// Tells people of a verdict: in the status, the journal and the agent's own output.
    pub(crate) fn tell(&mut self, reason: &Reason) {
        let kind = format!("{}:", reason.verdict);
        let text = if reason.text.starts_with(&kind) {
            reason.text.clone()
        } else {
            format!("{kind} {}", reason.text)
        };
        let topic = Topic::Verdict(reason.verdict.clone());
        if !self.attention.has_said(&topic) {
            self.attention.attend(topic, text);
        }
    }

    /// Records a loss.
    pub(crate) fn lose(&self, text: String) -> String {
        self.journal.record(EventDetail::Loss { text: text.clone() });
        text
    }

    /// Whether this agent must stay silent: it is too young after too many short runs.
    pub(crate) fn is_quiet(&self) -> bool {
        self.crash_loop.is_quiet(self.clock.mono())
    }

    /// Whether measurements of this machine are lost.
    pub(crate) fn is_unmeasured(&self) -> bool {
        self.metrics.as_ref().is_some_and(Metrics::is_unheard)
    }

    /// Hands the heartbeat the present status.
    pub(crate) fn beat(&self, facts: &StatusFacts<'_>) {
        if !self.is_quiet() {
            self.heartbeat.update(self.status(facts));
        }
    }

    /// The last heartbeat before power-off, also from a silent agent: it tells until when the
    /// machine bills. Limited to as many agents as may end an attempt (`startup::last_starts`).
    /// After that, an agent that crashes in the power-off stays silent.
    pub(crate) fn last_beat(&self, facts: &StatusFacts<'_>) {
        if !self.is_quiet() || facts.state.last_way().is_none() {
            self.heartbeat.update(self.status(facts));
        }
    }

    /// The part of the status whose changes users should see at once.
    fn seen<'a>(&'a self, facts: &StatusFacts<'a>) -> ShownFacts<'a> {
        ShownFacts {
            phase: self.phase,
            verdict: self.verdict_word(facts),
            exit: facts.exit,
            notice: facts.notice,
            starts: facts.state.start,
            held_until: self.held_until,
            attention: self.attention.len() + save_troubles(facts).len(),
            last_checkpoint: facts
                .checkpoints
                .and_then(Checkpoints::last)
                .map(|checkpoint| checkpoint.number),
        }
    }

    fn verdict_word(&self, facts: &StatusFacts<'_>) -> &str {
        let verdict = self.noted.as_ref().map_or("starting", |(_, _, verdict)| verdict.as_str());
        if self.phase == AttemptPhase::Running { facts.watching.standing().word() } else { verdict }
    }

    /// The reason of the rule that gives the verdict. A stalled job may be busy by the idle rule;
    /// while it is quiet too, the others of a gang need to know that.
    fn watch_reason(&self, facts: &StatusFacts<'_>) -> Reason {
        let now = self.clock.now();
        let idle = facts.watching.idle.reason(now, "idle");
        if facts.watching.standing() == Activity::Stalled && !is_long_quiet_by(&idle) {
            return facts.watching.stall.reason(now, "stall");
        }
        idle
    }

    fn status(&self, facts: &StatusFacts<'_>) -> Status {
        let troubles = save_troubles(facts);
        let kinds = self.attention.kinds().chain(troubles.iter().map(|_| AttentionKind::Other));
        Status {
            format: RECORD_FORMAT,
            instance: facts.attempt.instance.clone(),
            sequence: 0,
            at: self.clock.now(),
            phase: self.phase,
            started: facts.state.started,
            verdict: self.verdict_word(facts).to_owned(),
            reason: self
                .reasons
                .last()
                .filter(|_| self.phase != AttemptPhase::Running)
                .cloned()
                .or_else(|| Some(self.watch_reason(facts))),
            progress: Some(facts.board.progress()),
            metric: facts.board.metric(),
            gpus: facts.watching.gpu_status(),
            cpu_percent: facts.watching.cpu_percent(),
            memory_bytes: facts.watching.memory_bytes(),
            useful: facts.state.time.useful(),
            idle: facts.state.time.idle(),
            last_checkpoint: facts.checkpoints.and_then(Checkpoints::last),
            checkpoints: facts.checkpoints.map_or(0, Checkpoints::count),
            working_since: facts.state.working_since,
            saved: facts.state.saved_work(),
            notice: facts.notice.cloned(),
            starts: facts.state.start,
            held_until: self.held_until,
            attention_kinds: kinds.collect(),
            attention: self.attention.texts().chain(troubles).collect(),
            exit: facts.exit,
            unmeasured: self.is_unmeasured(),
            keeps: true,
            doubts: facts.checkpoints.is_some_and(Checkpoints::doubts),
        }
    }
}

fn save_troubles(facts: &StatusFacts<'_>) -> Vec<String> {
    facts.checkpoints.map(Checkpoints::troubles).unwrap_or_default()
}
