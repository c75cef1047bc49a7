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

use super::final_upload::UNKEPT_WITHIN;
use super::shutdown_deadline::Ahead;
use crate::agent::checkpoint::failed_resume::WentBack;
use crate::agent::checkpoint::save_request::{NO_HANDLER, Saved};
use crate::agent::decide::UPLOAD_ALLOWANCE;
use crate::agent::report::retry_sender::{TRY_SECS_MAX, chain};
use crate::agent::run_loop::{Agent, Finish};
use crate::agent::startup::attempt::{Ending, Held};
use crate::agent::startup::boot::keep_alive;
use crate::agent::wake::Wake;
use crate::job::{AttemptPhase, EndedBecause, Outcome, RECORD_FORMAT, Reason};
use crate::jobdir::What;
use crate::market::{Span, elapsed};
use crate::policy::{Afterwards, End, Stage, afterwards, limit_points};
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

/// A kept machine's terminals are told this long before it terminates, the last time first.
const TOLD_BEFORE: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(10 * 60)];

/// The reason for a loss when time ran out.
pub(crate) const TIME_WAS_UP: &str = "the time of the machine was up";

/// The least time for each sender at the end of a notice, even if saving used all of it.
pub(crate) const FLUSH_MIN: Duration = Duration::from_secs(2);

impl Agent {
    pub(crate) async fn drain(&mut self, end: End, reason: Reason) -> Drained {
        if let (Afterwards::Hold(time), Some(_)) = (end.then, self.memory.held) {
            // An earlier agent has drained and crashed while the machine was held: continue to hold
            // it.
            self.ended = self
                .workload
                .as_ref()
                .and_then(|workload| workload.ended().now_or_never())
                .or(self.ended);
            self.hold(time).await;
            return self.finish(end, reason).await;
        }
        self.begin_end(Ending::End { end, reason: reason.clone() });
        self.enter(AttemptPhase::Draining);
        let (losses, until) = match self.is_last_way() {
            Some(text) => self.drain_nothing(&end, text).await,
            None => self.drain_all(&end).await,
        };
        if let Afterwards::LeaveToCloud { at } = end.then {
            return self.wait_for_reclaim(at, reason).await;
        }
        let is_written = self.write_outcome(&end, losses, until).await;
        // A user who inspects the machine need not wait for a silent store: that has cost half an
        // hour already.
        let is_asked_for =
            matches!(afterwards(&self.attempt.resolved.spec.on, end.because), Afterwards::Hold(_));
        if let (Afterwards::Hold(time), true) = (end.then, is_written || is_asked_for) {
            self.hold(time).await;
        }
        self.finish(end, reason).await
    }

    /// Saves, ends the workload and uploads the rest. Returns the losses, and the deadline for the
    /// records.
    async fn drain_all(&mut self, end: &End) -> (Vec<String>, Duration) {
        let asked_by = end.because.word();
        self.release_at(end);
        let mut losses = Vec::new();
        if self.ended.is_none() && self.workload.is_some() && self.memory.stage == Stage::Main {
            let ahead = self.ahead(end, UPLOAD_ALLOWANCE);
            if end.save {
                let lost = self.final_save(end, &ahead, asked_by).await;
                // An interruption ends without an outcome, so the loss must be in the journal.
                losses.extend(lost.map(|text| self.lose(text)));
            }
            self.stop_workload(self.grace(end), Some(&ahead)).await;
        } else {
            self.stop_workload(Duration::ZERO, None).await;
        }
        // One deadline for all uploads: a later step does not get new time.
        let ahead = self.ahead(end, OUTCOME_MIN);
        let until = self.out.clock.mono() + self.within(ahead.fixed(), UPLOAD_MAX).max(FLUSH_MIN);
        losses.extend(self.upload_rest(&ahead, until, asked_by).await);
        if matches!(end.then, Afterwards::Terminate | Afterwards::Hold(_)) {
            let left = self.left(&ahead, until).min(UNKEPT_WITHIN);
            let lost = self.unkept(left).await;
            losses.extend(lost.map(|text| self.lose(text)));
        }
        (losses, until)
    }

    pub(crate) fn lose(&self, text: String) -> String {
        self.journal.record(What::Loss { text: text.clone() });
        text
    }

    /// Asks once more for a checkpoint and waits. Without a signal of its own, the SIGTERM that
    /// follows asks.
    async fn final_save(
        &mut self,
        end: &End,
        ahead: &Ahead,
        asked_by: &'static str,
    ) -> Option<String> {
        let (checkpoints, spec) =
            self.checkpoints.clone().zip(self.attempt.resolved.spec.checkpoint.clone())?;
        let signal = spec.signal.as_deref().and_then(Signal::from_name)?;
        // One grace for everything: the cost estimate has room for only one.
        let mono = self.out.clock.mono();
        let until = mono + self.left(ahead, mono + spec.grace.duration());
        let was_asked = self.saves.is_under_way();
        let under_way = self.save_under_way(ahead, until).await;
        let is_saved = matches!(under_way, Some(Saved::Complete(_)));
        // Before a notice ends there is no time for a second save. Before any other end, later work
        // is saved too. An event that the cloud has scheduled may be days away.
        let is_near = self.within(end.by, UPLOAD_MAX) < UPLOAD_MAX;
        if is_near && is_saved {
            return None;
        }
        if was_asked && self.out.clock.mono() >= until {
            let slow = || {
                format!(
                    "no last checkpoint: the one that was under way was not complete within {}",
                    spec.grace
                )
            };
            return (!is_saved).then(slow);
        }
        self.saves.forget();
        let (out, left) = (self.out.clone(), until.saturating_sub(self.out.clock.mono()));
        let Some(ask) =
            self.until_saved(ahead, out.within(left, checkpoints.ask())).await.flatten()
        else {
            return Some(format!(
                "no last checkpoint: the checkpoint folder did not answer within {}",
                Span::from_duration(left)
            ));
        };
        let workload = self.workload.clone()?;
        if self.ended.is_some() {
            return None;
        }
        // A signal that ends the workload goes first to the processes that handle it, as at any
        // stop.
        let asked = if signal.asks() { workload.ask(signal) } else { workload.tell(signal) };
        if let (Ok(processes), Some(signal)) = (&asked, spec.signal) {
            self.journal.record(What::Asked {
                by: asked_by.to_owned(),
                signal,
                processes: *processes,
            });
        }
        match asked {
            Ok(0) => return Some(format!("no last checkpoint: {}", NO_HANDLER)),
            Ok(_) => {}
            Err(error) => return Some(format!("no last checkpoint: {}", chain(&error))),
        }
        let within = until.saturating_sub(self.out.clock.mono());
        let saved = self.until_saved(ahead, checkpoints.save(ask, asked_by, within)).await;
        match saved.unwrap_or_else(|| Saved::Failed(TIME_WAS_UP.into())) {
            Saved::Complete(_) => None,
            Saved::NoChange(_) => Some(format!(
                "the workload was asked to save ({asked_by}) and changed nothing in its checkpoint folder within {}",
                Span::from_duration(within)
            )),
            Saved::Failed(why) => Some(format!("the last checkpoint is not kept: {why}")),
        }
    }

    /// The result of a save that was requested before the end, at the latest at `until`
    /// (monotonic). The agent does not ask again: a handler that runs twice would corrupt its file.
    async fn save_under_way(&mut self, ahead: &Ahead, until: Duration) -> Option<Saved> {
        let (mut answers, out) = (self.saves.heard()?, self.out.clone());
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
        ahead: &Ahead,
        saving: impl Future<Output = T>,
    ) -> Option<T> {
        let began = self.out.clock.mono();
        let mut saving = Box::pin(saving);
        let workload = self.workload.clone();
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
                ended = ends, if self.ended.is_none() => {
                    self.observe(Wake::Ended(ended)).await;
                }
                () = self.out.clock.sleep(Duration::from_secs(1)) => {}
            }
            self.world.service.alive();
            self.report();
            if self.is_over(ahead, began, Duration::MAX) {
                return None;
            }
        }
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
            self.world.service.alive();
            self.report();
        }
    }

    /// Waits for the cloud to interrupt the machine at `at`. A machine that ends itself would pay
    /// for time that EC2 gives free, and would lose the last seconds for uploads.
    async fn wait_for_reclaim(&mut self, at: Timestamp, reason: Reason) -> Drained {
        self.journal.flush(FLUSH_MIN).await;
        self.beat();
        self.heartbeat.flush(FLUSH_MIN).await;
        while self.steady_now().duration_since(at) < NOTICE_VOID_AFTER {
            self.out.clock.sleep(Duration::from_secs(1)).await;
            self.world.service.alive();
            self.report();
            let now = self.steady_now();
            if self.wish().is_some() || self.limit(now).is_some() {
                return Drained::Over(self.after_reclaim_wish(reason).await);
            }
        }
        let text =
            "the cloud gave notice and did not take the machine: the work goes on".to_owned();
        let void = Reason::new(self.out.clock.now(), "interruption", "void", text);
        self.journal.record(What::Verdict { reason: void.clone() });
        self.reasons.push(void);
        let notice = self.warned.notice.take();
        self.warned.void.extend(notice);
        Drained::NoticeWasVoid
    }

    /// The user stopped the job while it waited for the interruption: the attempt ends here.
    async fn after_reclaim_wish(&mut self, reason: Reason) -> Finish {
        let now = self.steady_now();
        let because = match (self.wish(), self.limit(now)) {
            (Some(wish), _) => wish.because(),
            (None, Some(reached)) => reached.because,
            (None, None) => EndedBecause::Interrupted,
        };
        let end = End { because, save: false, by: None, then: Afterwards::Terminate };
        self.write_outcome(&end, Vec::new(), self.out.clock.mono() + UPLOAD_MAX).await;
        match self.finish(end, reason).await {
            Drained::Over(finish) => finish,
            Drained::NoticeWasVoid => unreachable!("finishing never voids a notice"),
        }
    }

    /// Returns whether the outcome is written. `until`: the deadline on the monotonic clock. The
    /// tries continue past a notice or a hard end, as long as the machine runs.
    async fn write_outcome(&mut self, end: &End, losses: Vec<String>, until: Duration) -> bool {
        let (journal, ahead) = (self.journal.clone(), self.ahead(end, OUTCOME_MIN));
        let mono = self.out.clock.mono();
        let until = until.max(mono + self.within(ahead.fixed(), OUTCOME_MIN).max(FLUSH_MIN));
        // The journal gets at most half: the controller acts on the outcome, which needs its own
        // time.
        let half = mono + until.saturating_sub(mono) / 2;
        let left = self.left(&ahead, half).max(FLUSH_MIN);
        self.in_time(&ahead, half, journal.flush(left)).await;
        let now = self.out.clock.now();
        let outcome = Outcome {
            format: RECORD_FORMAT,
            job: self.attempt.job().clone(),
            attempt: self.attempt.no,
            instance: self.attempt.instance.clone(),
            started: self.memory.started,
            ended: now,
            because: end.because,
            exit: self.ended.filter(|_| self.memory.start > 0).map(|ended| ended.exit),
            reasons: self.reasons.clone(),
            useful: self.memory.drawers.useful(),
            idle: self.memory.drawers.idle(),
            unknown: self.memory.drawers.unknown(),
            last_checkpoint: self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.last()),
            checkpoints: self.checkpoints.as_ref().map_or(0, |checkpoints| checkpoints.count()),
            resumed_from: self.memory.resumed_from.clone(),
            went_back: self.memory.went_back.last().map(WentBack::in_words),
            progress: Some(self.board.progress()),
            working_since: self.memory.working_since,
            saved: self.saved(),
            losses,
        };
        loop {
            let left = until.saturating_sub(self.out.clock.mono()).max(FLUSH_MIN).min(TRY_SECS_MAX);
            let why = match self
                .alive_while(self.out.within(left, self.out.dir.create_outcome(&outcome)))
                .await
            {
                // Our own outcome from before a crash is there. It was true then and stays.
                Some(Ok(_)) => return true,
                None => "the job root does not answer".to_owned(),
                Some(Err(error)) => chain(&error),
            };
            if self.out.clock.mono() >= until {
                tracing::error!("the outcome could not be written: {why}");
                return false;
            }
            tracing::warn!("the outcome is not written yet: {why}");
            self.alive_while(self.out.clock.sleep(Duration::from_secs(2))).await;
        }
    }

    /// Keeps the machine for inspection. `lamp extend` gives more time, `lamp stop` ends it, and
    /// the limits hold.
    async fn hold(&mut self, time: Span) {
        let now = self.steady_now();
        // Time that was granted while the work ran was for the work.
        let granted = self.granted().time;
        let mut held = self.memory.held.unwrap_or(Held { since: now, granted, until: now });
        self.enter(AttemptPhase::Held);
        let mut said = None;
        loop {
            let more = self
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
            if self.memory.held != Some(held) {
                self.memory.held = Some(held);
                self.keep();
            }
            let until = limit_points(&self.account())
                .first()
                .map_or(held.until, |limit| held.until.min(limit.drain_at));
            self.held_until = Some(until);
            self.keep_now_and_then();
            self.report();
            let now = self.steady_now();
            self.tell_terminals(&mut said, elapsed(now, until));
            if now >= until || self.wish().is_some() || self.limit(now).is_some() {
                return;
            }
            self.news.wait(&*self.out.clock, Duration::from_secs(1), None).await;
            self.world.service.alive();
        }
    }

    /// At the beginning, and again at each of the times before the end.
    fn tell_terminals(&self, said: &mut Option<Duration>, left: Duration) {
        let next =
            TOLD_BEFORE.iter().find(|before| left <= **before).copied().unwrap_or(Duration::MAX);
        if said.replace(next) != Some(next) {
            let (job, left) = (
                self.attempt.job(),
                Span::from_duration(Duration::from_secs(left.as_secs().max(1))),
            );
            self.world.people.tell(&format!("{job} is over, and this machine goes in {left}, with its disk. More time: lamp extend {job} 1h"));
        }
    }

    /// The last heartbeat, then power-off.
    async fn finish(&mut self, end: End, reason: Reason) -> Drained {
        self.enter(AttemptPhase::Ended);
        self.journal.flush(FLUSH_MIN).await;
        self.last_beat();
        self.heartbeat.flush(FLUSH_MIN).await;
        if self.alone() && *self.news.signals.borrow() > 0 {
            // A user who stops the agent by hand decides about the machine.
            return Drained::Over(Finish {
                because: end.because,
                exit: self.ended.map(|ended| ended.exit),
                reason,
                still_on: None,
            });
        }
        let how = if end.then == Afterwards::Stop { PowerOff::Stop } else { PowerOff::Terminate };
        self.forget_the_look(how, end, &reason);
        let why = reason.text.clone();
        let mut still_on = None;
        while let Err(error) = self.put_out(how, &why).await {
            if !self.world.insist {
                still_on = Some(error.to_string());
                break;
            }
            tracing::error!("{error}; the machine is still on, and it is tried again");
            self.out.clock.sleep(Duration::from_secs(5)).await;
        }
        // Not earlier: from this call on, systemd waits for the agent, and the power-off waits too.
        self.world.service.stopping();
        Drained::Over(Finish {
            because: end.because,
            exit: self.ended.map(|ended| ended.exit),
            reason,
            still_on,
        })
    }

    /// Runs the power-off steps and keeps the watchdog fed: a killed agent would restart them from
    /// the first. A SIGTERM meanwhile comes from our own shutdown, so return at once and do not
    /// delay it.
    async fn put_out(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        let mut signals = self.world.signals.clone();
        signals.mark_unchanged();
        tokio::select! {
            biased;
            done = self.world.power.off(how, why) => done,
            Ok(()) = signals.changed() => Ok(()),
            never = keep_alive(&*self.world.service, &*self.out.clock) => match never {},
        }
    }

    /// The time left until `by`, at most `most`, on the agent's own time: a set clock does not
    /// shorten it.
    pub(crate) fn within(&self, by: Option<Timestamp>, most: Duration) -> Duration {
        match by {
            Some(by) => elapsed(self.steady_now(), by).min(most),
            None => most,
        }
    }
}
