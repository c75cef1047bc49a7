//! The ordered end of an attempt: save, end the workload, upload, write the outcome, power off.
//!
//! ```text
//!   ask to save -> SIGTERM -> grace -> SIGKILL of the tree
//!     -> outputs, log, samples, journal -> outcome -> (hold) -> power off
//! ```
//! Every wait has a limit, so that a hung store or workload cannot keep a machine billing. An
//! interruption ends without an outcome: the cloud stops the machine, or the work continues.

use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};

use super::final_upload::{UNKEPT_WITHIN, unkept, upload_rest};
use super::shutdown_deadline::{FLUSH_MIN, ShutdownDeadline, TIME_WAS_UP};
use crate::agent::agent::{Agent, Finish};
use crate::agent::checkpoint::save_request::{NO_HANDLER, Saved};
use crate::agent::limits::UPLOAD_ALLOWANCE;
use crate::agent::report::retry_sender::{TRY_SECS_MAX, chain};
use crate::agent::startup::attempt::{HeldMachine, PendingEnd};
use crate::agent::startup::boot::keep_alive;
use crate::agent::startup::failed_resume::RollbackRecord;
use crate::agent::wake::WakeReason;
use crate::job::{AttemptPhase, EndedBecause, Outcome, RECORD_FORMAT, Reason};
use crate::jobdir::EventDetail;
use crate::market::{Span, elapsed};
use crate::policy::{Afterwards, End, WorkloadStage, afterwards, limit_points};
use crate::ports::{PowerError, PowerOff, Signal};

pub(crate) enum Drained {
    Over(Finish),
    /// The cloud gave notice but did not interrupt the machine, so the work should continue.
    NoticeWasVoid,
}

/// The limit for uploads without another limit. An idle machine that bills without end is worse
/// than a loss.
const UPLOAD_MAX: Duration = Duration::from_secs(30 * 60);

/// The least time for the records of the end. Without them the controller takes the attempt for
/// lost.
const OUTCOME_MIN: Duration = Duration::from_secs(60);

/// How long after the announced time a running machine counts as spared. EC2 may be a minute or two
/// late.
const NOTICE_VOID_AFTER: SignedDuration = SignedDuration::from_secs(180);

/// How long the end waits for a save that is being written. Ten gigabytes take about this long.
/// Longer bills a file that is no save.
const SAVE_WITHIN: Duration = Duration::from_secs(30);

/// Between two looks at such a save.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// A kept machine's terminals are warned this long before it terminates, shortest time first.
const TOLD_BEFORE: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(10 * 60)];

/// The end of one attempt, in order.
pub(crate) struct ShutdownSequence<'a> {
    agent: &'a mut Agent,
    end: End,
    /// The reason that the decision gave.
    reason: Reason,
}

impl<'a> ShutdownSequence<'a> {
    pub(crate) fn new(agent: &'a mut Agent, end: End, reason: Reason) -> Self {
        ShutdownSequence { agent, end, reason }
    }

    pub(crate) async fn run(mut self) -> Drained {
        let end = self.end;
        if let (Afterwards::Hold(time), Some(_)) = (end.then, self.agent.state.held) {
            // An earlier agent has drained and crashed while the machine was held: continue to hold
            // it.
            self.agent.ended = self
                .agent
                .workload
                .as_ref()
                .and_then(|workload| workload.ended().now_or_never())
                .or(self.agent.ended);
            self.hold(time).await;
            return Drained::Over(self.finish().await);
        }
        let (ending, exit) = (
            PendingEnd::End { end, reason: self.reason.clone() },
            self.agent.ended.map(|ended| ended.exit),
        );
        self.agent.state.begin_end(ending, exit);
        self.agent.keep();
        self.agent.enter(AttemptPhase::Draining);
        let (losses, until) = match self.agent.state.last_way() {
            Some(text) => self.drain_nothing(text).await,
            None => self.drain_all().await,
        };
        if let Afterwards::LeaveToCloud { at } = end.then {
            return self.wait_for_reclaim(at).await;
        }
        let is_written = self.write_outcome(losses, until).await;
        // A user who inspects the machine need not wait for a silent store: that has cost half an
        // hour already.
        let is_asked_for = matches!(
            afterwards(&self.agent.attempt.resolved.spec.on, end.because),
            Afterwards::Hold(_)
        );
        if let (Afterwards::Hold(time), true) = (end.then, is_written || is_asked_for) {
            self.hold(time).await;
        }
        Drained::Over(self.finish().await)
    }

    /// Saves, ends the workload and uploads the rest. Returns the losses, and the deadline for the
    /// records.
    async fn drain_all(&mut self) -> (Vec<String>, Duration) {
        let (end, asked_by) = (self.end, self.end.because.word());
        self.agent.release_at(&end);
        let mut losses = Vec::new();
        if self.agent.ended.is_none()
            && self.agent.workload.is_some()
            && self.agent.state.stage == WorkloadStage::Main
        {
            let ahead = ShutdownDeadline::new(self.agent, &end, UPLOAD_ALLOWANCE);
            if end.save {
                let lost = self.final_save(&ahead, asked_by).await;
                // An interruption ends without an outcome, so the loss must be in the journal.
                losses.extend(lost.map(|text| self.agent.reporter.lose(text)));
                self.let_save_end(&ahead).await;
            }
            let grace = self.grace();
            self.agent.stop_workload(grace, Some(&ahead)).await;
        } else {
            self.agent.stop_workload(Duration::ZERO, None).await;
        }
        // One deadline for all uploads: a later step does not get new time.
        let ahead = ShutdownDeadline::new(self.agent, &end, OUTCOME_MIN);
        let until = self.agent.out.clock.mono()
            + self.agent.time_until(ahead.fixed(), UPLOAD_MAX).max(FLUSH_MIN);
        losses.extend(upload_rest(self.agent, &ahead, until, asked_by).await);
        if matches!(end.then, Afterwards::Terminate | Afterwards::Hold(_)) {
            let left = ahead.left(self.agent, until).min(UNKEPT_WITHIN);
            let lost = unkept(self.agent, left).await;
            losses.extend(lost.map(|text| self.agent.reporter.lose(text)));
        }
        (losses, until)
    }

    /// An end after too many crashes: nothing more is saved or uploaded. Stops the workload in case
    /// the cloud spares the machine.
    async fn drain_nothing(&mut self, text: String) -> (Vec<String>, Duration) {
        if matches!(self.end.then, Afterwards::LeaveToCloud { .. }) {
            self.agent.stop_workload(Duration::ZERO, None).await;
        }
        (vec![self.agent.reporter.lose(text)], self.agent.out.clock.mono())
    }

    /// Asks once more for a checkpoint and waits. Without a signal of its own, the SIGTERM that
    /// follows asks.
    async fn final_save(
        &mut self,
        ahead: &ShutdownDeadline,
        asked_by: &'static str,
    ) -> Option<String> {
        let (checkpoints, spec) = self
            .agent
            .checkpoints
            .clone()
            .zip(self.agent.attempt.resolved.spec.checkpoint.clone())?;
        let signal = spec.signal.as_deref().and_then(Signal::from_name)?;
        // One grace for everything: the cost estimate has room for only one.
        let mono = self.agent.out.clock.mono();
        let until = mono + ahead.left(self.agent, mono + spec.grace.duration());
        let was_asked = self.agent.saves.is_under_way();
        let under_way = self.save_under_way(ahead, until).await;
        let is_saved = matches!(under_way, Some(Saved::Complete(_)));
        // Before a notice ends there is no time for a second save. Before any other end, later work
        // is saved too. An event that the cloud has scheduled may be days away.
        let is_near = self.agent.time_until(self.end.by, UPLOAD_MAX) < UPLOAD_MAX;
        if is_near && is_saved {
            return None;
        }
        if was_asked && self.agent.out.clock.mono() >= until {
            let slow = || {
                format!(
                    "no last checkpoint: the one that was under way was not complete within {}",
                    spec.grace
                )
            };
            return (!is_saved).then(slow);
        }
        self.agent.saves.forget();
        let (out, left) =
            (self.agent.out.clone(), until.saturating_sub(self.agent.out.clock.mono()));
        let Some(ask) =
            self.until_saved(ahead, out.within(left, checkpoints.ask())).await.flatten()
        else {
            return Some(format!(
                "no last checkpoint: the checkpoint folder did not answer within {}",
                Span::from_duration(left)
            ));
        };
        let workload = self.agent.workload.clone()?;
        if self.agent.ended.is_some() {
            return None;
        }
        // A signal that ends the workload goes first to the processes that handle it, as at any
        // stop.
        let asked = if signal.asks() { workload.ask(signal) } else { workload.tell(signal) };
        if let (Ok(processes), Some(signal)) = (&asked, spec.signal) {
            self.agent.reporter.journal.record(EventDetail::Asked {
                by: asked_by.to_owned(),
                signal,
                processes: *processes,
            });
        }
        let within = until.saturating_sub(self.agent.out.clock.mono());
        let saved = match asked {
            Ok(0) => Some(Saved::NoHandler),
            Ok(_) => self.until_saved(ahead, checkpoints.save(ask, asked_by, within)).await,
            Err(error) => return Some(format!("no last checkpoint: {}", chain(&error))),
        };
        match saved.unwrap_or_else(|| Saved::Failed(TIME_WAS_UP.into())) {
            Saved::Complete(_) => None,
            Saved::NoChange(_) => Some(format!(
                "the workload was asked to save ({asked_by}) and changed nothing in its checkpoint folder within {}",
                Span::from_duration(within)
            )),
            Saved::NoHandler => Some(format!("no last checkpoint: {NO_HANDLER}")),
            Saved::Failed(why) => Some(format!("the last checkpoint is not kept: {why}")),
        }
    }

    /// The result of a save that was requested before the end, at the latest at `until`
    /// (monotonic). The agent does not ask again: a handler that runs twice would corrupt its file.
    async fn save_under_way(&mut self, ahead: &ShutdownDeadline, until: Duration) -> Option<Saved> {
        let (mut answers, out) = (self.agent.saves.heard()?, self.agent.out.clone());
        let answer = async move { answers.wait_for(Option::is_some).await.ok()?.clone() };
        self.until_saved(ahead, async move {
            out.within(until.saturating_sub(out.clock.mono()), answer).await.flatten()
        })
        .await
        .flatten()
    }

    /// Waits for a save and keeps the watchdog fed. Notices when the workload ends. `None`: time is
    /// up.
    async fn until_saved<T>(
        &mut self,
        ahead: &ShutdownDeadline,
        saving: impl Future<Output = T>,
    ) -> Option<T> {
        let began = self.agent.out.clock.mono();
        let mut saving = Box::pin(saving);
        let workload = self.agent.workload.clone();
        loop {
            let ends = async {
                match &workload {
                    Some(workload) => workload.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                saved = &mut saving => return Some(saved),
                // It saved and ended: the folder's content is final, and the upload of the rest
                // includes it.
                ended = ends, if self.agent.ended.is_none() => {
                    self.agent.observe(WakeReason::Ended(ended)).await;
                }
                () = self.agent.out.clock.sleep(Duration::from_secs(1)) => {}
            }
            self.agent.ports.service.alive();
            self.agent.report();
            if ahead.is_over(self.agent, began, Duration::MAX) {
                return None;
            }
        }
    }

    /// SIGTERM may end a script inside a save, whose file has replaced the one before. So this
    /// waits until no file of a save is open. A script that is interrupted has worked until the
    /// upload needs the rest of the notice.
    async fn let_save_end(&mut self, ahead: &ShutdownDeadline) {
        let checkpoints = self.agent.checkpoints.clone().filter(|_| !ahead.is_left_to_cloud());
        let Some(checkpoints) = checkpoints else { return };
        let spec = self.agent.attempt.resolved.spec.checkpoint.as_ref();
        let within = spec.map_or(SAVE_WITHIN, |spec| SAVE_WITHIN.min(spec.grace.duration()));
        // The uploads need the most of a short time.
        let mono = self.agent.out.clock.mono();
        let until = mono + within.min(ahead.left(self.agent, mono + 4 * within) / 4);
        while self.agent.ended.is_none() && *self.agent.events.signals.borrow() <= 1 {
            checkpoints.look_again(LOOKS_EVERY).await;
            let left = ahead.left(self.agent, until);
            if left.is_zero() || !checkpoints.is_being_written() {
                return;
            }
            let out = self.agent.out.clone();
            self.until_saved(ahead, out.clock.sleep(LOOKS_EVERY.min(left))).await;
        }
    }

    /// How long the workload may take to end. If the cloud interrupts the machine and no signal
    /// asks for a save, complete files must still be uploaded: a workload that ignores SIGTERM is
    /// killed before that.
    fn grace(&self) -> Duration {
        let end = &self.end;
        let grace = self.agent.attempt.resolved.spec.watch.term_grace.duration();
        let asks = self
            .agent
            .attempt
            .resolved
            .spec
            .checkpoint
            .as_ref()
            .is_some_and(|spec| spec.signal.is_some());
        let Some(checkpoints) = self
            .agent
            .checkpoints
            .as_ref()
            .filter(|_| !asks && matches!(end.then, Afterwards::LeaveToCloud { .. }))
        else {
            return grace;
        };
        let left = self.agent.time_until(end.by, Duration::MAX);
        let needed = checkpoints.upload_p95().map_or(left / 2, |(p95, backlog)| p95 + backlog);
        grace.min(left.saturating_sub(needed).max(left / 4))
    }

    /// Waits for the cloud to interrupt the machine at `at`. A machine that ends itself would pay
    /// for time that EC2 gives free, and would lose the last seconds for uploads.
    async fn wait_for_reclaim(&mut self, at: Timestamp) -> Drained {
        self.agent.reporter.journal.flush(FLUSH_MIN).await;
        self.agent.reporter.beat(&self.agent.status_facts());
        self.agent.reporter.heartbeat.flush(FLUSH_MIN).await;
        while self.agent.steady_now().duration_since(at) < NOTICE_VOID_AFTER {
            self.agent.out.clock.sleep(Duration::from_secs(1)).await;
            self.agent.ports.service.alive();
            self.agent.report();
            let now = self.agent.steady_now();
            if self.agent.wish().is_some() || self.agent.limit(now).is_some() {
                return Drained::Over(self.after_reclaim_wish().await);
            }
        }
        let text =
            "the cloud gave notice and did not take the machine: the work goes on".to_owned();
        let void = Reason::new(self.agent.out.clock.now(), "interruption", "void", text);
        self.agent.reporter.note_reason(&void);
        self.agent.notices.pass();
        Drained::NoticeWasVoid
    }

    /// The user stopped the job while it waited for the interruption: the attempt ends here.
    async fn after_reclaim_wish(&mut self) -> Finish {
        let now = self.agent.steady_now();
        let because = match (self.agent.wish(), self.agent.limit(now)) {
            (Some(wish), _) => wish.because(),
            (None, Some(reached)) => reached.because,
            (None, None) => EndedBecause::Interrupted,
        };
        self.end = End { because, save: false, by: None, then: Afterwards::Terminate };
        self.write_outcome(Vec::new(), self.agent.out.clock.mono() + UPLOAD_MAX).await;
        self.finish().await
    }

    /// Returns whether the outcome is written. `until`: the deadline on the monotonic clock. The
    /// tries continue past a notice or a hard end, as long as the machine runs.
    async fn write_outcome(&mut self, losses: Vec<String>, until: Duration) -> bool {
        let end = self.end;
        let (journal, ahead) = (
            self.agent.reporter.journal.clone(),
            ShutdownDeadline::new(self.agent, &end, OUTCOME_MIN),
        );
        let mono = self.agent.out.clock.mono();
        let until =
            until.max(mono + self.agent.time_until(ahead.fixed(), OUTCOME_MIN).max(FLUSH_MIN));
        // The journal gets at most half: the controller acts on the outcome, which needs its own
        // time.
        let half = mono + until.saturating_sub(mono) / 2;
        let left = ahead.left(self.agent, half).max(FLUSH_MIN);
        ahead.in_time(self.agent, half, journal.flush(left)).await;
        let now = self.agent.out.clock.now();
        let outcome = Outcome {
            format: RECORD_FORMAT,
            job: self.agent.attempt.job().clone(),
            attempt: self.agent.attempt.no,
            instance: self.agent.attempt.instance.clone(),
            started: self.agent.state.started,
            ended: now,
            because: end.because,
            exit: self.agent.ended.filter(|_| self.agent.state.start > 0).map(|ended| ended.exit),
            reasons: self.agent.reporter.reasons.clone(),
            useful: self.agent.state.time.useful(),
            idle: self.agent.state.time.idle(),
            unknown: self.agent.state.time.unknown(),
            last_checkpoint: self
                .agent
                .checkpoints
                .as_ref()
                .and_then(|checkpoints| checkpoints.last()),
            checkpoints: self
                .agent
                .checkpoints
                .as_ref()
                .map_or(0, |checkpoints| checkpoints.count()),
            resumed_from: self.agent.state.resumed_from.clone(),
            went_back: self.agent.state.went_back.last().map(RollbackRecord::in_words),
            progress: Some(self.agent.board.progress()),
            metric: self.agent.board.metric(),
            working_since: self.agent.state.working_since,
            saved: self.agent.state.saved_work(),
            losses,
        };
        loop {
            let left =
                until.saturating_sub(self.agent.out.clock.mono()).max(FLUSH_MIN).min(TRY_SECS_MAX);
            let why = match self
                .agent
                .alive_while(
                    self.agent.out.within(left, self.agent.out.dir.create_outcome(&outcome)),
                )
                .await
            {
                // Our own outcome from before a crash is there. It was true then and stays.
                Some(Ok(_)) => return true,
                None => "the job root does not answer".to_owned(),
                Some(Err(error)) => chain(&error),
            };
            if self.agent.out.clock.mono() >= until {
                tracing::error!("the outcome could not be written: {why}");
                return false;
            }
            tracing::warn!("the outcome is not written yet: {why}");
            self.agent.alive_while(self.agent.out.clock.sleep(Duration::from_secs(2))).await;
        }
    }

    /// Keeps the machine for inspection. `lamp extend` gives more time, `lamp stop` ends it, and
    /// the limits hold.
    async fn hold(&mut self, time: Span) {
        let now = self.agent.steady_now();
        // Time that was granted while the work ran was for the work.
        let granted = self.agent.granted().time;
        let mut held =
            self.agent.state.held.unwrap_or(HeldMachine { since: now, granted, until: now });
        self.agent.enter(AttemptPhase::Held);
        let mut said = None;
        loop {
            let more = self
                .agent
                .requests
                .wishes
                .borrow()
                .more_time
                .duration()
                .saturating_sub(held.granted.duration());
            let whole =
                SignedDuration::try_from(time.duration() + more).unwrap_or(SignedDuration::MAX);
            // Never sooner than promised before: after a crash the requests are not read yet.
            held.until = held.until.max(held.since.saturating_add(whole).unwrap_or(Timestamp::MAX));
            if self.agent.state.held != Some(held) {
                self.agent.state.held = Some(held);
                self.agent.keep();
            }
            let until = limit_points(&self.agent.account())
                .first()
                .map_or(held.until, |limit| held.until.min(limit.drain_at));
            self.agent.reporter.held_until = Some(until);
            self.agent.keep_now_and_then();
            self.agent.report();
            let now = self.agent.steady_now();
            self.tell_terminals(&mut said, elapsed(now, until));
            if now >= until || self.agent.wish().is_some() || self.agent.limit(now).is_some() {
                return;
            }
            self.agent
                .events
                .wait(
                    self.agent.notices.changes(),
                    &*self.agent.out.clock,
                    Duration::from_secs(1),
                    None,
                )
                .await;
            self.agent.ports.service.alive();
        }
    }

    /// At the beginning, and again at each of the times before the end.
    fn tell_terminals(&self, said: &mut Option<Duration>, left: Duration) {
        let next =
            TOLD_BEFORE.iter().find(|before| left <= **before).copied().unwrap_or(Duration::MAX);
        if said.replace(next) != Some(next) {
            let (job, left) = (
                self.agent.attempt.job(),
                Span::from_duration(Duration::from_secs(left.as_secs().max(1))),
            );
            self.agent.ports.people.tell(&format!("{job} is over, and this machine goes in {left}, with its disk. More time: lamp extend {job} 1h"));
        }
    }

    /// The last heartbeat, then power-off.
    async fn finish(&mut self) -> Finish {
        let (end, reason) = (self.end, self.reason.clone());
        self.agent.enter(AttemptPhase::Ended);
        self.agent.reporter.journal.flush(FLUSH_MIN).await;
        self.agent.reporter.last_beat(&self.agent.status_facts());
        self.agent.reporter.heartbeat.flush(FLUSH_MIN).await;
        if self.agent.alone() && *self.agent.events.signals.borrow() > 0 {
            // A user who stops the agent by hand decides about the machine.
            return Finish {
                because: end.because,
                exit: self.agent.ended.map(|ended| ended.exit),
                reason,
                still_on: None,
            };
        }
        let how = if end.then == Afterwards::Stop { PowerOff::Stop } else { PowerOff::Terminate };
        self.forget_inspection(how, end, &reason);
        let why = reason.text.clone();
        let mut still_on = None;
        while let Err(error) = self.power_off(how, &why).await {
            if !self.agent.ports.insist {
                still_on = Some(error.to_string());
                break;
            }
            tracing::error!("{error}; the machine is still on, and it is tried again");
            self.agent.out.clock.sleep(Duration::from_secs(5)).await;
        }
        // Not earlier: from this call on, systemd waits for the agent, and the power-off waits too.
        self.agent.ports.service.stopping();
        Finish {
            because: end.because,
            exit: self.agent.ended.map(|ended| ended.exit),
            reason,
            still_on,
        }
    }

    /// A machine kept for inspection now terminates: a restarted agent continues with the
    /// termination.
    fn forget_inspection(&mut self, how: PowerOff, end: End, reason: &Reason) {
        if how == PowerOff::Terminate && end.then != Afterwards::Terminate {
            self.agent.state.ending = Some(PendingEnd::End {
                end: End { then: Afterwards::Terminate, ..end },
                reason: reason.clone(),
            });
            self.agent.keep();
        }
    }

    /// Runs the power-off steps and keeps the watchdog fed: a killed agent would restart them from
    /// the first. A SIGTERM meanwhile comes from our own shutdown, so return at once and do not
    /// delay it.
    async fn power_off(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        let mut signals = self.agent.ports.signals.clone();
        signals.mark_unchanged();
        tokio::select! {
            biased;
            done = self.agent.ports.power.off(how, why) => done,
            Ok(()) = signals.changed() => Ok(()),
            never = keep_alive(&*self.agent.ports.service, &*self.agent.out.clock) => match never {},
        }
    }
}
