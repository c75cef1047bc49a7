//! Decide: gathers the facts and lets `policy::watch::supervise` order them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::run_loop::Agent;
use super::startup::attempt::{ASKED_FOR, BEHIND_MAX, Ending};
use crate::agent::report::attention::Topic;
use crate::instance::{Notice, NoticeKind};
use crate::job::{AttemptPhase, EndedBecause, ExitStatus, Reason};
use crate::jobdir::What;
use crate::market::{Span, elapsed};
use crate::policy::{
    Account, Afterwards, Decision, End, EndWish, Extension, Facts, HardwareFault, LimitLevel,
    MoveWish, Reached, Stage, Standing, WorkloadFact, check_cadence, judge_limits, limit_level,
    standing, supervise,
};
use crate::ports::PowerOff;

/// The notice that EC2 gives before it interrupts a spot machine.
const CLOUDS_NOTICE: Span = Span::from_secs(120);

/// For logs, outputs and power-off: they usually take a few seconds.
pub(crate) const UPLOAD_ALLOWANCE: Duration = Duration::from_secs(15);

/// How often time counters and rhythm are written to disk: the most that a crash loses.
const KEEP_EVERY: Duration = Duration::from_secs(30);

/// The cloud's notices so far, and their results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warned {
    pub notice: Option<Notice>,
    /// The notice's time on the agent's clock, recomputed from the present clocks.
    pub at: Option<Timestamp>,
    pub first_seen: Option<Timestamp>,
    /// When the notice made the agent ask for a save, and whether a complete checkpoint followed.
    pub asked: Option<Timestamp>,
    pub saved: bool,
    /// A save was already in progress, and its result counts.
    pub joined: bool,
    /// Notices that passed without an interruption.
    pub void: Vec<Notice>,
}

impl Agent {
    pub(crate) fn decide(&mut self) -> Decision {
        let now = self.steady_now();
        self.look_at_start();
        self.look_for_notice(now);
        self.look_for_extension();
        self.look_at_cadence();
        let (warning, limit) = (self.warning(now), self.limit(now));
        let (hardware, moves, start_up) = (self.look_for_faults(), self.moves(), self.start_up());
        let decision = supervise(&Facts {
            now,
            on: &self.attempt.resolved.spec.on,
            retries: &self.attempt.resolved.spec.retries,
            workload: self.workload_fact(),
            stage: self.memory.stage,
            retries_used: self.memory.retries_used,
            start_up: start_up.as_ref(),
            warning,
            over_by: self.taken_by(now),
            wish: self.wish(),
            moves: moves.as_ref(),
            limit,
            hardware: hardware.as_ref(),
            stall: &self.watching.stall,
            idle: &self.watching.idle,
            setup_for: self
                .memory
                .setup_since
                .map(|since| Span::from_duration(elapsed(since, now))),
            setup_most: self.attempt.resolved.spec.limits.setup,
            done_for: self.done_for(),
            told: self.ended.is_some_and(|ended| ended.told),
            left_behind: self.ended.map_or(0, |ended| ended.orphans),
            in_background: self.ended.map_or(0, |ended| ended.behind),
            ran_for: self.ran.lasted(self.ended.is_some(), self.out.clock.mono()),
            // On a workstation, and in a stand-alone run, the typing user waits for the job's end.
            typed: self.watching.typed().filter(|_| self.world.own_machine && !self.alone()),
        });
        let action = self.watch_action(&decision);
        self.note(&decision, action);
        decision
    }

    /// A hardware fault: reported once, and kept over a crash. A stand-alone run has no other
    /// machine.
    fn look_for_faults(&mut self) -> Option<HardwareFault> {
        let fault = self.watching.fault();
        if fault.as_ref().map(|fault| &fault.text)
            != self.memory.hardware.as_ref().map(|fault| &fault.text)
        {
            if let Some(fault) = &fault {
                self.attend(Topic::Other, fault.text.clone());
            }
            self.memory.hardware.clone_from(&fault);
            self.keep();
        }
        fault.filter(|_| !self.alone())
    }

    /// The time for limits, deadlines and waits: see [`super::startup::attempt::ClockAnchor`].
    pub(crate) fn steady_now(&self) -> Timestamp {
        self.anchor.carried(self.out.clock.mono())
    }

    /// Corrects a clock that was wrong at boot, by the job root's clock.
    pub(crate) fn look_at_clock(&mut self) {
        let Some(put_right) = self
            .heartbeat
            .dated()
            .and_then(|dated| self.anchor.by_the_store(self.attempt.launched, dated))
        else {
            return;
        };
        tracing::warn!(
            "this machine's clock was wrong when it booted: by the job root's, which counts, it is {}",
            put_right.carried(self.out.clock.mono())
        );
        self.anchor = put_right;
        self.memory.anchor = Some(self.anchor.by(self.out.clock.mono()));
        self.keep();
    }

    /// A crash or a reboot may lose half a minute of this.
    pub(crate) fn keep_now_and_then(&mut self) {
        self.look_at_clock();
        self.look_at_age();
        let mono = self.out.clock.mono();
        if mono >= self.next_keep {
            self.next_keep = mono + KEEP_EVERY;
            self.memory.rhythm = self.watching.rhythm();
            self.memory.anchor = Some(self.anchor.by(mono));
            self.keep();
        }
    }

    /// A machine kept for inspection now terminates: a restarted agent continues with the
    /// termination.
    pub(crate) fn forget_the_look(&mut self, how: PowerOff, end: End, reason: &Reason) {
        if how == PowerOff::Terminate && end.then != Afterwards::Terminate {
            self.memory.ending = Some(Ending::End {
                end: End { then: Afterwards::Terminate, ..end },
                reason: reason.clone(),
            });
            self.keep();
        }
    }

    /// A user asked for more time: idle time counts from zero again.
    fn look_for_extension(&mut self) {
        let (granted, kill_at) = (self.granted(), self.kill_at());
        if granted != self.memory.granted || kill_at != self.memory.kill_at {
            (self.memory.granted, self.memory.kill_at) = (granted, kill_at);
            self.keep();
        }
        let extended = self.requests.wishes.borrow().extended;
        if extended > self.memory.extended {
            self.memory.extended = extended;
            let marks = self.marks();
            self.watching.restart(marks, "it was given more time: watched from here on");
            self.keep();
        }
    }

    /// Reports once, with numbers, a save that takes longer than the interval or the cloud's
    /// notice.
    fn look_at_cadence(&mut self) {
        let Some((spec, save)) = self
            .attempt
            .resolved
            .spec
            .checkpoint
            .as_ref()
            .zip(self.checkpoints.as_ref().and_then(|saves| saves.secs_p95()))
        else {
            return;
        };
        let save = Span::from_duration(Duration::from_secs_f64(save));
        if let Err(fault) = check_cadence(spec.interval, save, Some(CLOUDS_NOTICE))
            && !self.has_said(&Topic::SaveCadence)
        {
            self.attend(Topic::SaveCadence, format!("checkpoints: {fault}"));
        }
    }

    fn workload_fact(&self) -> WorkloadFact {
        match self.ended {
            _ if matches!(self.memory.ending, Some(Ending::Restart)) => WorkloadFact::Between,
            Some(ended) => WorkloadFact::Ended { exit: ended.exit, stage: self.memory.stage },
            None => WorkloadFact::Running,
        }
    }

    pub(crate) fn exit_of_main(&self) -> Option<ExitStatus> {
        self.ended.filter(|_| self.memory.stage == Stage::Main).map(|ended| ended.exit)
    }

    /// The wishes of users: requests in the job directory, and Ctrl-C in a stand-alone run.
    pub(crate) fn wish(&self) -> Option<EndWish> {
        let pressed = *self.news.signals.borrow();
        let by_signal = (pressed > 0).then(|| EndWish {
            cancel: pressed > 1,
            by: "a signal".into(),
            at: self.out.clock.now(),
        });
        by_signal.or_else(|| self.requests.wishes.borrow().end.clone())
    }

    /// The controller's request that this attempt moves to another machine.
    pub(crate) fn moves(&self) -> Option<MoveWish> {
        self.requests
            .wishes
            .borrow()
            .moves
            .clone()
            .filter(|wish| wish.attempt == self.attempt.no && !self.alone())
    }

    pub(crate) fn standing(&self) -> Standing {
        standing(&self.watching.stall, &self.watching.idle)
    }

    fn done_for(&self) -> Option<Span> {
        if self.memory.stage != Stage::Main || self.phase != AttemptPhase::Running {
            return None;
        }
        self.board
            .done()
            .map(|since| Span::from_duration(self.out.clock.mono().saturating_sub(since)))
    }

    fn watch_action(&self, decision: &Decision) -> crate::policy::WatchAction {
        match decision.reason.policy.as_str() {
            "stall" => self.watching.stall.action,
            "idle" => self.watching.idle.action,
            _ => crate::policy::WatchAction::None,
        }
    }

    /// Keeps the newest interruption or scheduled end, and tells the workload about it.
    pub(crate) fn look_for_notice(&mut self, now: Timestamp) {
        let Some(channel) = &mut self.news.notices else { return };
        let facts = channel.borrow_and_update().clone();
        self.tell_of_silence(facts.silent_since);
        self.tell_of_measurements();
        // The cloud may cancel a scheduled event, but never an interruption.
        if let Some(notice) = &self.warned.notice
            && notice.kind == NoticeKind::Maintenance
            && facts.failures == 0
            && !facts.notices.contains(notice)
        {
            self.warned.notice = None;
        }
        let standing = || facts.notices.iter().filter(|notice| !self.warned.void.contains(notice));
        let ends = standing()
            .filter(|notice| notice.kind != NoticeKind::Rebalance)
            .min_by_key(|notice| notice.at);
        let newest = ends
            .or_else(|| standing().find(|notice| notice.kind == NoticeKind::Rebalance))
            .cloned();
        if let Some(notice) = newest.filter(|notice| self.warned.notice.as_ref() != Some(notice)) {
            self.journal.record(What::Notice { notice: notice.clone() });
            self.tell_workload(&notice);
            let void = std::mem::take(&mut self.warned.void);
            self.warned =
                Warned { notice: Some(notice), first_seen: Some(now), void, ..Warned::default() };
        }
        // At each tick, since the clock may be set after the notice came.
        let right = self.right_time();
        self.warned.at = self.warned.notice.as_ref().map(|notice| carried(notice.at, now, right));
    }

    /// The cloud's time: the wall clock, unless the store's clock proves it wrong.
    fn right_time(&self) -> Timestamp {
        let wall = self.out.clock.now();
        let Some((mono, dated)) = self.heartbeat.dated() else { return wall };
        let passed = SignedDuration::try_from(self.out.clock.mono().saturating_sub(mono))
            .unwrap_or(SignedDuration::ZERO);
        let at_least = dated.saturating_add(passed).unwrap_or(wall);
        let ahead = wall.duration_since(at_least);
        if (-BEHIND_MAX..=ASKED_FOR).contains(&ahead) { wall } else { at_least }
    }

    /// Writes the notice file, for scripts that poll it instead of handling a signal.
    fn tell_workload(&self, notice: &Notice) {
        let bytes = crate::jobdir::encode(notice);
        if let Err(error) = self.out.files.replace(&self.attempt.notice_file(), &bytes) {
            tracing::warn!("cannot write the notice file: {error}");
        }
    }

    /// The first limit that is reached. Earlier warning levels are told once.
    pub(crate) fn limit(&mut self, now: Timestamp) -> Option<Reached> {
        let account = self.account();
        // Usually the level is unchanged, and the text can be skipped.
        let level = limit_level(&account, now)?;
        if level <= self.limit_level && level != LimitLevel::Reached {
            self.limit_level = level;
            return None;
        }
        let verdict = judge_limits(&account, now);
        let (next, reason) = verdict.next.zip(verdict.reason)?;
        if verdict.level == LimitLevel::Reached {
            // Requests may have raised the limits at the launch (seed 18000253 of 24 h): wait until
            // they are read. Only the hard cap already includes every grant. A wrong clock at boot
            // may also make limits seem over.
            let mono = self.out.clock.mono();
            let may_judge = self.requests.are_known(mono)
                && (self.heartbeat.is_dated() || self.requests.were_waited_for(mono));
            if next.kind.ended_because() != EndedBecause::HardEnd && !may_judge {
                return None;
            }
            return Some(Reached { because: next.kind.ended_because(), reason, by: next.at });
        }
        if verdict.level > self.limit_level {
            let share = if verdict.level == LimitLevel::Warn95 { 95 } else { 80 };
            let text = format!("{share} % of the way to a limit: {}", reason.text);
            self.take_back(&Topic::NearLimit);
            self.attend(Topic::NearLimit, text);
        }
        self.limit_level = verdict.level;
        None
    }

    /// The hard cap from the launch, or as the user has raised it since.
    pub(crate) fn kill_at(&self) -> Option<Timestamp> {
        let raised = self.news.notices.as_ref().and_then(|channel| channel.borrow().kill_at);
        self.attempt.kill_at.max(self.memory.kill_at).max(raised)
    }

    /// The time and budget granted so far. They only grow, so the last values hold while the store
    /// is silent.
    pub(crate) fn granted(&self) -> Extension {
        let (wishes, kept) = (self.requests.wishes.borrow(), self.memory.granted);
        Extension {
            time: wishes.more_time.max(kept.time),
            budget: wishes.more_budget.max(kept.budget),
        }
    }

    pub(crate) fn account(&self) -> Account {
        Account {
            began: self.attempt.launched,
            price: self.attempt.price,
            spent_before: self.attempt.spent_before,
            limits: self.attempt.resolved.spec.limits.clone(),
            extended: self.granted(),
            kill_at: self.kill_at(),
            drain: self.drain_allowance(),
        }
    }

    /// The time that the end needs before a limit: the measured save (else the grace), the
    /// workload's end, and some seconds to upload and power off. At most a tenth of the run time
    /// limit, for short jobs.
    fn drain_allowance(&self) -> Span {
        let spec = &self.attempt.resolved.spec;
        let save = match (&self.checkpoints, &spec.checkpoint) {
            (Some(checkpoints), Some(checkpoint)) => {
                checkpoints.secs_p95().map_or(checkpoint.grace.duration(), Duration::from_secs_f64)
            }
            _ => Duration::ZERO,
        };
        let whole = save + spec.watch.term_grace.duration() + UPLOAD_ALLOWANCE;
        let tenth = spec.limits.max_runtime.map_or(Duration::MAX, |most| most.duration() / 10);
        Span::from_duration(whole.min(tenth))
    }
}

/// Converts a time from the cloud to the agent's clock, at the same distance from now. The clocks
/// differ if the agent started with a wrong time. In whole seconds, as clouds report them.
fn carried(at: Timestamp, now: Timestamp, right: Timestamp) -> Timestamp {
    let ahead = (now.duration_since(right).as_secs_f64()).round() as i64;
    at.checked_add(SignedDuration::from_secs(ahead)).unwrap_or(at)
}
