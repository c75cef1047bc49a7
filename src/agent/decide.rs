//! Decide: gathers the facts and lets `policy::watch::supervise` order them.

use std::time::Duration;

use jiff::Timestamp;

use super::agent::Agent;
use super::notice_tracker::SaveFacts;
use super::startup::attempt::PendingEnd;
use crate::agent::report::attention::Topic;
use crate::job::AttemptPhase;
use crate::market::{Span, elapsed};
use crate::policy::{
    Decision, HardwareFault, SuperviseFacts, Warning, WatchAction, WorkloadFact, WorkloadStage,
    check_cadence, supervise,
};

/// The notice that EC2 gives before it interrupts a spot machine.
const CLOUDS_NOTICE: Span = Span::from_secs(120);

impl Agent {
    pub(crate) fn decide(&mut self) -> Decision {
        let now = self.steady_now();
        self.look_at_start();
        self.look_for_notice(now);
        self.look_for_extension();
        self.look_for_keep(now);
        self.look_at_cadence();
        let (warning, limit) = (self.warning(now), self.limit(now));
        let (hardware, moves, start_up) = (self.look_for_faults(), self.moves(), self.start_up());
        let decision = supervise(&SuperviseFacts {
            now,
            on: &self.attempt.resolved.spec.on,
            retries: &self.attempt.resolved.spec.retries,
            workload: self.workload_fact(),
            stage: self.state.stage,
            retries_used: self.state.retries_used,
            start_up: start_up.as_ref(),
            warning,
            over_by: self.notices.deadline(now),
            wish: self.wish(),
            moves: moves.as_ref(),
            limit,
            hardware: hardware.as_ref(),
            stall: &self.watching.stall,
            idle: &self.watching.idle,
            setup_for: self.state.setup_since.map(|since| Span::from_duration(elapsed(since, now))),
            setup_most: self.attempt.resolved.spec.limits.setup,
            done_for: self.done_for(),
            told: self.ended.is_some_and(|ended| ended.told),
            left_behind: self.ended.map_or(0, |ended| ended.orphans),
            in_background: self.ended.map_or(0, |ended| ended.behind),
            ran_for: self.ran.lasted(self.ended.is_some(), self.out.clock.mono()),
            // On a workstation, and in a stand-alone run, the typing user waits for the job's end.
            typed: self.watching.typed().filter(|_| self.ports.own_machine && !self.alone()),
        });
        let action = self.watch_action(&decision);
        self.reporter.note(&decision, action);
        decision
    }

    fn warning(&mut self, now: Timestamp) -> Warning {
        let work = SaveFacts {
            spec: self.attempt.resolved.spec.checkpoint.as_ref(),
            checkpoints: self.checkpoints.as_ref(),
            step: self.board.own_step(),
            is_running: self.reporter.phase == AttemptPhase::Running,
        };
        self.notices.warning(now, &work, &mut self.saves, &mut self.reporter.attention)
    }

    /// A hardware fault: reported once, and kept over a crash. A stand-alone run has no other
    /// machine.
    fn look_for_faults(&mut self) -> Option<HardwareFault> {
        let fault = self.watching.fault();
        if fault.as_ref().map(|fault| &fault.text)
            != self.state.hardware.as_ref().map(|fault| &fault.text)
        {
            if let Some(fault) = &fault {
                self.reporter.attention.attend(Topic::Other, fault.text.clone());
            }
            self.state.hardware.clone_from(&fault);
            self.keep();
        }
        fault.filter(|_| !self.alone())
    }

    /// A user asked for more time: idle time counts from zero again.
    fn look_for_extension(&mut self) {
        let (granted, kill_at) = (self.granted(), self.kill_at());
        if granted != self.state.granted || kill_at != self.state.kill_at {
            (self.state.granted, self.state.kill_at) = (granted, kill_at);
            self.keep();
        }
        let extended = self.requests.wishes.borrow().extended;
        if extended > self.state.extended {
            self.state.extended = extended;
            let marks = self.marks();
            self.watching.restart(marks, "it was given more time: watched from here on");
            self.keep();
        }
    }

    /// A person keeps the machine for a while, whatever it does.
    fn look_for_keep(&mut self, now: Timestamp) {
        let until = self.requests.wishes.borrow().kept_until;
        if let Some(until) = until.filter(|until| *until > now) {
            self.watching.hold_off(&format!("kept until {until} by request"));
        } else if self.attempt.resolved.member().is_some()
            && !self.requests.are_current(self.out.clock.mono())
        {
            // The rank may have asked for time while it waits for the others. The lease still ends
            // a machine that stays cut off.
            self.watching.hold_off("kept, because the store did not answer a minute ago");
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
            && !self.reporter.attention.has_said(&Topic::SaveCadence)
        {
            self.reporter.attention.attend(Topic::SaveCadence, format!("checkpoints: {fault}"));
        }
    }

    fn workload_fact(&self) -> WorkloadFact {
        match self.ended {
            _ if matches!(self.state.ending, Some(PendingEnd::Restart)) => WorkloadFact::Between,
            Some(ended) => WorkloadFact::Ended { exit: ended.exit, stage: self.state.stage },
            None => WorkloadFact::Running,
        }
    }

    fn done_for(&self) -> Option<Span> {
        if self.state.stage != WorkloadStage::Main || self.reporter.phase != AttemptPhase::Running {
            return None;
        }
        self.board
            .done()
            .map(|since| Span::from_duration(self.out.clock.mono().saturating_sub(since)))
    }

    fn watch_action(&self, decision: &Decision) -> WatchAction {
        match decision.reason.policy.as_str() {
            "stall" => self.watching.stall.action,
            "idle" => self.watching.idle.action,
            _ => WatchAction::None,
        }
    }
}
