//! The idle and stall rules on recorded samples: each change of verdict, and what another idle
//! window would have done.
//!
//! The rules are the shipped ones; only the clock is the recording's. Not here: a rule.

use std::time::Duration;

use serde::Serialize;

use crate::instance::{Rates, Reading};
use crate::job::{IdleSpec, StallSpec};
use crate::market::{Span, Usd, UsdPerHour};
use crate::policy::{Activity, IdleWatch, StallWatch, WatchAction, WatchVerdict};

#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedVerdict {
    pub t_secs: f64,
    /// `idle` or `stall`.
    pub rule: &'static str,
    pub verdict: WatchVerdict,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    pub samples: usize,
    /// From the first to the last sample.
    pub secs: f64,
    /// Whether the stall rule had anything to judge.
    pub stall_judged: bool,
    pub changes: Vec<ReplayedVerdict>,
    pub last: WatchVerdict,
}

impl Replayed {
    pub fn first_stop(&self) -> Option<&ReplayedVerdict> {
        self.changes.iter().find(|change| change.verdict.action == WatchAction::Stop)
    }
}

/// Runs both rules on a series. A recording cannot restart its job, so the stall rule stays at that
/// step until there is progress.
pub fn replay_idle(series: &[Rates], idle: &IdleSpec, stall: &StallSpec) -> Replayed {
    let mut replay = IdleReplay::new(idle, stall, series.iter().any(has_marks));
    series.iter().for_each(|rates| replay.step(rates));
    replay.end()
}

fn has_marks(rates: &Rates) -> bool {
    rates.step.is_some()
        || [&rates.progress_marks, &rates.log_bytes, &rates.checkpoint_marks]
            .iter()
            .any(|reading| **reading != Reading::Absent)
}

/// A replay that takes one sample after the other: a week of them does not fit in memory.
pub struct IdleReplay {
    idle: IdleWatch,
    stall: Option<StallWatch>,
    first_secs: Option<f64>,
    last_secs: f64,
    samples: usize,
    changes: Vec<ReplayedVerdict>,
    last: WatchVerdict,
}

impl IdleReplay {
    pub fn new(idle: &IdleSpec, stall: &StallSpec, stall_judged: bool) -> IdleReplay {
        IdleReplay {
            idle: IdleWatch::new(idle),
            stall: stall_judged.then(|| StallWatch::new(stall)),
            first_secs: None,
            last_secs: 0.0,
            samples: 0,
            changes: Vec::new(),
            last: WatchVerdict::new(Activity::Starting, WatchAction::None, "no samples"),
        }
    }

    pub fn step(&mut self, rates: &Rates) {
        let of_idle = self.idle.step(rates);
        // As in `policy::watch::supervise`: an idle verdict goes before stall steps that only
        // report.
        let stands = |verdict: &WatchVerdict| {
            verdict.standing == Activity::Stalled
                && (verdict.action >= WatchAction::Restart || of_idle.standing != Activity::Idle)
        };
        let of_stall = self.stall.as_mut().map(|stall| stall.step(rates, 0)).filter(stands);
        let (rule, verdict) = match of_stall {
            Some(verdict) => ("stall", verdict),
            None => ("idle", of_idle),
        };
        let known = |change: &ReplayedVerdict| {
            (change.rule, change.verdict.standing, change.verdict.action)
                == (rule, verdict.standing, verdict.action)
        };
        if !self.changes.last().is_some_and(known) {
            self.changes.push(ReplayedVerdict {
                t_secs: rates.t_secs,
                rule,
                verdict: verdict.clone(),
            });
        }
        self.last = verdict;
        self.first_secs.get_or_insert(rates.t_secs);
        self.last_secs = rates.t_secs;
        self.samples += 1;
    }

    pub fn end(self) -> Replayed {
        Replayed {
            samples: self.samples,
            secs: self.first_secs.map_or(0.0, |first| self.last_secs - first),
            stall_judged: self.stall.is_some(),
            changes: self.changes,
            last: self.last,
        }
    }
}

/// The effect of another idle window on one attempt. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleWindowTrial {
    pub window: Span,
    pub samples: usize,
    /// From the first to the last sample.
    pub secs: f64,
    /// When the idle rule would have ended it; `null`: never.
    pub ends_at_secs: Option<f64>,
    /// The sentence of that verdict.
    pub reason: Option<String>,
    /// The machine's time after that end.
    pub saved: Span,
    pub saved_usd: Usd,
    /// The work that the rule counted after that end.
    pub worked_after: Span,
    /// The last step of the job's progress at that end, and at the last sample.
    pub step_then: Option<f64>,
    pub step_last: Option<f64>,
}

/// One trial, fed with the samples of an attempt in order.
pub struct IdleTrial {
    window: Span,
    hourly: UsdPerHour,
    replay: IdleReplay,
    stop: Option<Stop>,
    step: Option<f64>,
}

/// The end that the rule would have brought.
struct Stop {
    t_secs: f64,
    text: String,
    worked_secs: f64,
    step: Option<f64>,
}

impl IdleTrial {
    /// `idle`: the job's own rule, whose window is replaced.
    pub fn new(idle: &IdleSpec, window: Span, hourly: UsdPerHour) -> IdleTrial {
        let idle = IdleSpec { window: Some(window), ..idle.clone() };
        let replay = IdleReplay::new(&idle, &StallSpec::default(), false);
        IdleTrial { window, hourly, replay, stop: None, step: None }
    }

    pub fn step(&mut self, rates: &Rates) {
        self.replay.step(rates);
        self.step = rates.step.or(self.step);
        let verdict = &self.replay.last;
        if self.stop.is_none() && verdict.action == WatchAction::Stop {
            self.stop = Some(Stop {
                t_secs: rates.t_secs,
                text: verdict.text.clone(),
                worked_secs: worked_secs(verdict),
                step: self.step,
            });
        }
    }

    pub fn end(self) -> IdleWindowTrial {
        let IdleTrial { window, hourly, replay, stop, step } = self;
        let (last_secs, worked) = (replay.last_secs, worked_secs(&replay.last));
        let replayed = replay.end();
        let span = |secs: f64| Span::from_secs(secs.max(0.0).round() as u64);
        let saved = stop.as_ref().map_or(Span::ZERO, |stop| span(last_secs - stop.t_secs));
        let after = stop.as_ref().map_or(0.0, |stop| worked - stop.worked_secs);
        IdleWindowTrial {
            window,
            samples: replayed.samples,
            secs: replayed.secs,
            ends_at_secs: stop.as_ref().map(|stop| stop.t_secs),
            saved,
            saved_usd: hourly.cost_of(Duration::from_secs(saved.duration().as_secs())),
            worked_after: span(after),
            step_then: stop.as_ref().and_then(|stop| stop.step),
            step_last: step,
            reason: stop.map(|stop| stop.text),
        }
    }
}

fn worked_secs(verdict: &WatchVerdict) -> f64 {
    verdict.numbers.get("worked_secs").copied().unwrap_or(0.0)
}

/// Less work than this after an end was a burst, and no loss.
const WORK_SECS_MIN: u64 = 60;

impl IdleWindowTrial {
    /// Whether work followed that end: it would have stopped a job that went on.
    pub fn is_wrong(&self) -> bool {
        self.ends_at_secs.is_some() && self.worked_after.duration().as_secs() >= WORK_SECS_MIN
    }

    /// In words. `began`: the moment of zero seconds, as people write it.
    pub fn text(&self, ended_at: Option<&str>) -> String {
        let window = self.window;
        let Some(secs) = self.ends_at_secs else {
            return format!(
                "with `idle = \"{window}\"` the idle rule would not have ended it in {}",
                Span::from_secs(self.secs.round() as u64)
            );
        };
        let when = match ended_at {
            Some(at) => format!("at {at}"),
            None => format!("after {}", Span::from_secs(secs.round() as u64)),
        };
        let money = match self.saved_usd.micros() {
            0 => String::new(),
            _ => format!(" and {}", self.saved_usd),
        };
        let steps = match (self.step_then, self.step_last) {
            (Some(then), Some(last)) if last > then => format!(", from step {then} to step {last}"),
            _ => String::new(),
        };
        let end = format!("with `idle = \"{window}\"` the idle rule would have ended it {when}");
        if self.is_wrong() {
            return format!(
                "{end}: wrongly, because it worked for {} after that{steps}",
                self.worked_after
            );
        }
        format!("{end}: that would have saved {} of its machine{money}", self.saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that works for `minutes`, and is quiet for the rest of `total`.
    fn series(works: impl Fn(i32) -> bool, total: i32) -> Vec<Rates> {
        let rates = |second: i32| Rates {
            t_secs: f64::from(second),
            interval_secs: if second == 0 { 0.0 } else { 10.0 },
            gpu_percent: Reading::Known(if works(second) { 90.0 } else { 0.0 }),
            cpu_percent: Reading::Known(if works(second) { 90.0 } else { 0.0 }),
            disk_bytes_per_sec: Reading::Known(0.0),
            net_bytes_per_sec: Reading::Known(0.0),
            step: works(second).then(|| f64::from(second / 60)),
            ..Rates::default()
        };
        (0..=total * 6).map(|ten| rates(ten * 10)).collect()
    }

    fn trial(series: &[Rates], minutes: u64) -> IdleWindowTrial {
        let hourly = UsdPerHour::new("$6".parse().expect("money"));
        let window = Span::from_secs(minutes * 60);
        let mut trial = IdleTrial::new(&IdleSpec::default(), window, hourly);
        series.iter().for_each(|rates| trial.step(rates));
        trial.end()
    }

    #[test]
    fn forgotten_machine_ends_sooner_with_a_shorter_idle_window() {
        let quiet = series(|second| second < 3600, 120);
        let (short, long) = (trial(&quiet, 10), trial(&quiet, 30));
        let ends = |trial: &IdleWindowTrial| trial.ends_at_secs.expect("it ends");
        assert!((4170.0..4230.0).contains(&ends(&short)), "{short:?}");
        assert!((5370.0..5430.0).contains(&ends(&long)), "{long:?}");
        assert!(!short.is_wrong() && short.saved_usd > long.saved_usd, "{short:?} {long:?}");
        let saved = short.text(Some("noon"));
        assert!(
            saved.contains("would have ended it at noon: that would have saved 50m"),
            "{saved}"
        );
        assert!(trial(&quiet, 90).text(None).contains("would not have ended it in 2h"));
    }

    #[test]
    fn stop_before_more_work_is_called_wrong() {
        let pauses = series(|second| !(3600..4800).contains(&second), 120);
        let trial = trial(&pauses, 10);
        assert!(trial.is_wrong(), "{trial:?}");
        let said = trial.text(None);
        assert!(
            said.contains("wrongly, because it worked for 40m") && said.contains("to step 120"),
            "{said}"
        );
    }
}
