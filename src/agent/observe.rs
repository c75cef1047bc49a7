//! Observe: takes in new facts, and keeps what a crash must not lose.
//!
//! Not here: what follows from a fact (`decide`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::agent::Agent;
use super::checkpoint::handle::Checkpoints;
use super::startup::attempt::{ASKED_FOR, BEHIND_MAX};
use super::timers::TICK;
use super::wake::WakeReason;
use crate::agent::report::attention::Topic;
use crate::instance::{Notice, Reading, Sample};
use crate::jobdir::EventDetail;
use crate::market::{Span, elapsed};
use crate::policy::WorkloadStage;
use crate::ports::Ended;

/// How often time counters and cadence are written to disk: the most that a crash loses.
const KEEP_EVERY: Duration = Duration::from_secs(30);

impl Agent {
    /// Takes in new facts. Samples keep their own interval: events must not make them denser.
    pub(crate) async fn observe(&mut self, wake: WakeReason) {
        if let WakeReason::Ended(ended) = wake {
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
            scope.own_network_bytes = self.ports.own_network.load(Ordering::Relaxed);
            let sample = self.ports.sensors.sample(&scope).await;
            self.look_for_xids(sample.as_ref());
            self.reporter.attention.tell_of_room(sample.as_ref());
            let shown = self.reporter.exposed.is_some().then(|| sample.clone()).flatten();
            let marks = self.marks();
            if let Some(rates) = self.watching.take(sample, marks, mono, self.state.stall_restarts)
            {
                self.reporter.samples.push(&rates);
                self.board.has_been_silent(self.watching.longest_silence());
                let quiet_secs = self.watching.idle.numbers.get("quiet_secs").copied();
                if let Some(metrics) = &self.reporter.metrics {
                    metrics.add(&rates, quiet_secs);
                }
                if let Some(exposed) = &self.reporter.exposed {
                    exposed.see_sample(shown, rates, quiet_secs);
                }
            }
        }
        if self.state.stage == WorkloadStage::Main {
            self.state.time = self.watching.time;
        }
        self.look_at_work();
        self.keep_now_and_then();
        self.ports.service.alive();
    }

    /// When the work began, and how much of it is saved: input for a plan of the rest of the job.
    fn look_at_work(&mut self) {
        let now = self.out.clock.now();
        let stepped = self.board.progress().at.is_some_and(|at| at >= self.state.started);
        if self.state.working_since.is_none()
            && self.state.stage == WorkloadStage::Main
            && (stepped || self.watching.has_worked())
        {
            self.state.working_since = Some(now);
        }
        let newest = self
            .checkpoints
            .as_ref()
            .and_then(Checkpoints::last)
            .filter(|newest| newest.attempt == self.attempt.no);
        if let Some(newest) = newest
            .filter(|newest| self.state.saved.is_none_or(|(number, _)| number != newest.number))
        {
            // Work during the upload is not in it.
            let since = elapsed(newest.created, now);
            let saved = self.state.time.useful().duration().saturating_sub(since);
            self.state.saved = Some((newest.number, Span::from_duration(saved)));
        }
    }

    /// A workload has just failed on a GPU machine: the driver may know more now than at the last
    /// tick.
    fn may_have_lost_a_gpu(&self, wake: WakeReason) -> bool {
        matches!(wake, WakeReason::Ended(ended) if !ended.exit.success())
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
            self.reporter.attention.attend(Topic::Other, line);
        }
    }

    fn note_end(&mut self, ended: Ended) {
        let start = self.state.start;
        self.reporter.logs.ended(start);
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.workload_ended(ended.exit);
        }
        self.reporter.journal.record(EventDetail::WorkloadEnded {
            start,
            exit: ended.exit,
            orphans: ended.orphans,
        });
    }

    /// Corrects a clock that was wrong at boot, by the job root's clock.
    pub(crate) fn look_at_clock(&mut self) {
        let Some(put_right) = self
            .reporter
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
        self.state.anchor = Some(self.anchor.by(self.out.clock.mono()));
        self.keep();
    }

    /// A crash or a reboot may lose half a minute of this.
    pub(crate) fn keep_now_and_then(&mut self) {
        self.look_at_clock();
        self.look_at_age();
        let mono = self.out.clock.mono();
        if mono >= self.next_keep {
            self.next_keep = mono + KEEP_EVERY;
            self.state.cadence = self.watching.cadence();
            self.state.anchor = Some(self.anchor.by(mono));
            self.keep();
        }
    }

    /// After a run that was not short, the count of short runs starts again.
    fn look_at_age(&mut self) {
        if self.state.short_lives > 0 && self.reporter.crash_loop.is_over(self.out.clock.mono()) {
            self.state.short_lives = 0;
            self.keep();
        }
    }

    /// Takes in the cloud's newest notice, and tells the workload about it.
    pub(crate) fn look_for_notice(&mut self, now: Timestamp) {
        let Some(answers) = self.notices.read() else { return };
        self.reporter.attention.tell_of_silence(answers.silent_since, self.out.clock.mono());
        self.reporter.attention.tell_of_measurements(self.reporter.is_unmeasured());
        if let Some(notice) = self.notices.take_in(&answers, now).cloned() {
            self.reporter.journal.record(EventDetail::Notice { notice: notice.clone() });
            self.tell_workload(&notice);
        }
        self.notices.date(now, self.right_time());
    }

    /// The cloud's time: the wall clock, unless the store's clock proves it wrong.
    fn right_time(&self) -> Timestamp {
        let wall = self.out.clock.now();
        let Some((mono, dated)) = self.reporter.heartbeat.dated() else { return wall };
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
}
