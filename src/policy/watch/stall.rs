//! Is it stalled? It runs, perhaps with all GPUs at 100 %, but too long without a step, a log line
//! or a checkpoint.
//!
//! ```text
//!   signs came four times and over a whole window: they have a rhythm, and their absence is judged
//!   silent ≥ window          notify        the user is told
//!   + a twentieth of it      stacks        record what the processes wait for
//!   + another twentieth      restart       SIGTERM, grace, SIGKILL, start from the last checkpoint
//!   the same, after the last allowed restart   stop
//! ```
//! `window` is the largest of the spec's window, `steps` median steps, and twice the longest
//! silence before progress (an evaluation, a compilation). The action is a level, not an edge: it
//! repeats until the next rung, and the agent acts on its changes.
//!
//! Without a rhythm the user is told after three windows, for one rung, and nothing is ended: an
//! early log line promises no others. With a rhythm it is the same while GPU or CPU work as usual,
//! unless the job file sets its own window. A job that reported five steps is judged after three
//! windows, as is one with a rhythm on an earlier machine. A stalled job may be fully busy, so
//! `idle` is separate.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::coverage::{Pace, Recent, span};
use super::verdict::{Activity, WatchAction, WatchVerdict};
use crate::instance::{Rates, Reading};
use crate::job::StallSpec;
use crate::market::Span;

/// One rung is a twentieth of the window, by default one minute: enough for a stack dump, and the
/// restart comes two minutes after the verdict.
const RUNG_SHARE: f64 = 1.0 / 20.0;

/// Three windows for a workload without any mark yet: a big model may load and compile for an hour.
const TIMES_MARKLESS: f64 = 3.0;

/// Twice the longest silence that ended in progress: it returns at the next epoch, and data grow.
const TIMES_SILENCE: f64 = 2.0;

/// The last 32 steps: enough for a median, few enough to follow a change of pace.
const STEPS_KEPT: usize = 32;

/// A fully used GPU below 60 % of its usual power is probably spinning in a collective: a waiting
/// kernel counts as busy but draws little.
const POWER_SHARE_LOW: f64 = 0.6;

/// A rhythm needs signs in this many quarters of a window, over at least a window. With fewer, a
/// start-up that downloads and compiles would be a rhythm, and the long step after it a hang. With
/// more, a job that prints every ten minutes would have none in its first hours.
const SLOTS: u32 = 4;

/// This many reported steps promise more, however early they came.
const STEPS_TOLD: usize = 5;

/// At 60 % of its level between signs, a GPU or CPU does its usual work. A GPU waiting in a
/// collective draws less.
const USUAL_SHARE: f64 = POWER_SHARE_LOW;
/// Share of the silence. A GPU rests between two batches, and one such sample must not end a long
/// evaluation.
const USUAL_TIME_SHARE: f64 = 0.5;
/// A working GPU uses more than this, and a working process more than half of a core.
const GPU_PERCENT_MIN: f64 = 10.0;
const CPU_PERCENT_MIN: f64 = 50.0;

/// When signs came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Signs {
    /// Measured time since the first sign, and the time of the last one.
    since_secs: f64,
    until_secs: f64,
    /// Quarters of a window with a sign, and the newest of them.
    slots: u32,
    slot: Option<u64>,
}

impl Signs {
    fn sign(&mut self, window: f64) {
        self.until_secs = self.since_secs;
        let slot = (self.since_secs / (window / f64::from(SLOTS))) as u64;
        if self.slot.replace(slot) != Some(slot) {
            self.slots = self.slots.saturating_add(1);
        }
    }

    fn are_a_rhythm(&self, window: f64) -> bool {
        self.slots >= SLOTS && self.until_secs >= window
    }
}

#[derive(Clone, Debug)]
pub struct StallWatch {
    spec: StallSpec,
    pace: Pace,
    restarts: u32,
    /// Measured time since the last mark, or since the start.
    silent_secs: f64,
    silent_secs_max: f64,
    /// Seconds of that silence with the GPU's or CPU's usual work.
    usual_secs: f64,
    /// Whether any mark was ever seen, and one since the last restart.
    marked_ever: bool,
    marked: bool,
    /// Time since the last step, and the lengths of the last steps.
    step_secs: f64,
    steps: Recent,
    step: Option<f64>,
    /// GPU power during progress.
    power_watts: Recent,
    /// CPU use during progress.
    cpu_percent: Recent,
    /// Steps, log lines and progress bars; a requested checkpoint shows less.
    signs: Signs,
    /// The same since the last start.
    signs_here: Signs,
    /// Steps that the job itself reported.
    told: usize,
    /// The longest silence of earlier attempts, if the job reported.
    silent_before: Option<f64>,
}

/// Knowledge of a workload's rhythm, kept across agents. The current silence and the current step
/// are not kept, because the time between two agents is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallRhythm {
    pace: Pace,
    silent_secs_max: f64,
    marked_ever: bool,
    steps: VecDeque<f64>,
    step: Option<f64>,
    power_watts: VecDeque<f64>,
    cpu_percent: VecDeque<f64>,
    signs: Signs,
    signs_here: Signs,
    told: usize,
    silent_before: Option<f64>,
}

impl StallWatch {
    /// Continues with the knowledge of an earlier watch of the same workload.
    pub fn resumed(spec: &StallSpec, learned: &StallRhythm) -> Self {
        let StallRhythm {
            pace,
            silent_secs_max,
            marked_ever,
            steps,
            step,
            power_watts,
            cpu_percent,
            signs,
            signs_here,
            told,
            silent_before,
        } = learned.clone();
        let (steps, power_watts, cpu_percent) =
            (Recent::of(steps), Recent::of(power_watts), Recent::of(cpu_percent));
        let known = StallWatch {
            pace,
            silent_secs_max,
            marked_ever,
            steps,
            step,
            power_watts,
            cpu_percent,
            ..StallWatch::new(spec)
        };
        StallWatch { signs, signs_here, told, silent_before, ..known }
    }

    /// The attempt continues an earlier one, whose [`StallWatch::longest_silence`] is given.
    pub fn goes_on(&mut self, silent_secs: f64) {
        self.silent_before = Some(silent_secs).filter(|secs| secs.is_finite());
    }

    /// The longest silence in seconds of this and earlier attempts. The current silence counts
    /// while it is too short for a stall. `None`: the job does not report.
    pub fn longest_silence(&self) -> Option<f64> {
        let window = self.spec.window.map_or(f64::INFINITY, Span::secs_f64);
        let under_way =
            Some(self.silent_secs).filter(|secs| *secs < self.needed(window)).unwrap_or(0.0);
        let longest = self.silent_secs_max.max(under_way).max(self.silent_before.unwrap_or(0.0));
        (self.reports() || self.silent_before.is_some()).then_some(longest)
    }

    /// The main command begins after the setup. The setup is another program, so its knowledge is
    /// dropped.
    pub fn begins(&mut self) {
        *self = StallWatch {
            silent_before: self.silent_before,
            restarts: self.restarts,
            ..StallWatch::new(&self.spec)
        };
    }

    /// The knowledge so far: finite numbers only.
    pub fn rhythm(&self) -> StallRhythm {
        StallRhythm {
            pace: self.pace.clone(),
            silent_secs_max: self.silent_secs_max,
            marked_ever: self.marked_ever,
            steps: self.steps.values().clone(),
            step: self.step,
            power_watts: self.power_watts.values().clone(),
            cpu_percent: self.cpu_percent.values().clone(),
            signs: self.signs,
            signs_here: self.signs_here,
            told: self.told,
            silent_before: self.silent_before,
        }
    }

    pub fn new(spec: &StallSpec) -> Self {
        StallWatch {
            spec: spec.clone(),
            pace: Pace::default(),
            restarts: 0,
            silent_secs: 0.0,
            silent_secs_max: 0.0,
            usual_secs: 0.0,
            marked_ever: false,
            marked: false,
            step_secs: 0.0,
            steps: Recent::default(),
            step: None,
            power_watts: Recent::default(),
            cpu_percent: Recent::default(),
            signs: Signs::default(),
            signs_here: Signs::default(),
            told: 0,
            silent_before: None,
        }
    }

    /// The workload was restarted: its pace is remembered, the clocks restart.
    pub fn started_again(&mut self) {
        (self.silent_secs, self.usual_secs, self.step_secs) = (0.0, 0.0, 0.0);
        (self.marked, self.step, self.signs_here) = (false, None, Signs::default());
    }

    /// Adds one interval and judges. `restarts` counts the restarts by this policy so far.
    pub fn step(&mut self, rates: &Rates, restarts: u32) -> WatchVerdict {
        let Some(window) = self.spec.window.map(Span::secs_f64) else {
            return WatchVerdict::new(
                Activity::Busy,
                WatchAction::None,
                "stall is off: not judged",
            );
        };
        if restarts != self.restarts {
            self.restarts = restarts;
            self.started_again();
        }
        let marks = StallMarks::of(rates, &mut self.step);
        if marks.any() {
            let counted = self.pace.counted(rates.interval_secs, window);
            self.progressed(counted, &marks, rates, window);
        } else if let Some(why) = &marks.unknown {
            let text =
                format!("unknown: {why}; the stall clock stands at {}", span(self.silent_secs));
            return self.with_numbers(
                rates,
                window,
                WatchVerdict::new(Activity::Unknown, WatchAction::None, text),
            );
        } else if marks.absent {
            let text = "not judged: neither steps nor log nor checkpoints are watched";
            return WatchVerdict::new(Activity::Busy, WatchAction::None, text);
        } else {
            let counted = self.pace.counted(rates.interval_secs, window);
            self.silent_secs += counted;
            self.usual_secs += if self.is_at_its_usual_work(rates) { counted } else { 0.0 };
            self.step_secs += counted;
            self.pass(counted);
        }
        let needed = self.needed(window);
        let verdict = self.judge(rates, needed);
        self.with_numbers(rates, needed, verdict)
    }

    fn progressed(&mut self, counted: f64, marks: &StallMarks, rates: &Rates, window: f64) {
        self.silent_secs_max = self.silent_secs_max.max(self.silent_secs);
        (self.silent_secs, self.usual_secs) = (0.0, 0.0);
        self.step_secs += counted;
        if marks.steps > 0.0 {
            if self.marked {
                self.steps.keep(self.step_secs / marks.steps, STEPS_KEPT);
            }
            self.step_secs = 0.0;
        }
        (self.marked, self.marked_ever) = (true, true);
        self.pass(counted);
        if marks.steps > 0.0 || rates.log_bytes.known().is_some_and(|bytes| *bytes > 0.0) {
            self.signs.sign(window);
            self.signs_here.sign(window);
        }
        self.told = self.told.saturating_add(marks.told as usize);
        if let Some(watts) = rates.gpu_power_watts.known() {
            self.power_watts.keep(*watts, STEPS_KEPT);
        }
        if let Some(percent) = rates.cpu_percent.known() {
            self.cpu_percent.keep(*percent, STEPS_KEPT);
        }
    }

    fn pass(&mut self, secs: f64) {
        for signs in [&mut self.signs, &mut self.signs_here] {
            signs.since_secs += if signs.slots > 0 { secs } else { 0.0 };
        }
    }

    fn has_rhythm(&self) -> bool {
        self.spec.window.is_some_and(|window| self.signs.are_a_rhythm(window.secs_f64()))
    }

    /// Its usual work since this start is known.
    fn works_usually(&self) -> bool {
        let has_rhythm = || {
            self.spec.window.is_some_and(|window| self.signs_here.are_a_rhythm(window.secs_f64()))
        };
        self.restarts == 0 && self.reports() || has_rhythm()
    }

    /// It is known to report progress.
    fn reports(&self) -> bool {
        self.has_rhythm() || self.told >= STEPS_TOLD
    }

    /// GPU or CPU work as they did between the signs. For a GPU the power decides, because a
    /// waiting kernel counts as busy.
    fn is_at_its_usual_work(&self, rates: &Rates) -> bool {
        let as_usual = |now: &Reading<f64>, usual: Option<f64>| {
            now.known().zip(usual).is_some_and(|(now, usual)| *now >= USUAL_SHARE * usual)
        };
        match &rates.gpu_percent {
            Reading::Known(percent) if *percent >= GPU_PERCENT_MIN => {
                as_usual(&rates.gpu_power_watts, self.usual_watts())
            }
            Reading::Unknown(_) => false,
            _ => {
                rates.cpu_percent.known().is_some_and(|now| *now >= CPU_PERCENT_MIN)
                    && as_usual(&rates.cpu_percent, self.cpu_percent.median())
            }
        }
    }

    fn needed(&self, window: f64) -> f64 {
        let silence = TIMES_SILENCE * self.silent_secs_max.max(self.silent_before.unwrap_or(0.0));
        if !self.marked_ever || !(self.has_rhythm() || self.silent_before.is_some()) {
            return (TIMES_MARKLESS * window).max(silence);
        }
        let steps = self.steps.median().unwrap_or(0.0) * self.spec.steps;
        window.max(steps).max(silence)
    }

    fn judge(&self, rates: &Rates, needed: f64) -> WatchVerdict {
        let silent = span(self.silent_secs);
        if self.silent_secs < needed {
            let standing = if self.marked { Activity::Busy } else { Activity::Starting };
            return WatchVerdict::new(
                standing,
                WatchAction::None,
                format!("the last sign of progress {silent} ago, stalled at {}", span(needed)),
            );
        }
        let rung = needed * RUNG_SHARE;
        let only_told = match (
            self.reports() || self.silent_before.is_some(),
            self.usual_secs >= USUAL_TIME_SHARE * self.silent_secs,
        ) {
            (false, _) => Some("it has shown no rhythm that it could have lost"),
            // A rhythm since this start shows its usual work. The few signs of a hung start do not.
            (true, true)
                if self.works_usually() && self.spec.window == StallSpec::default().window =>
            {
                Some("its GPU or CPU work as usual")
            }
            _ => None,
        };
        if let Some(why) = only_told {
            let told = self.silent_secs >= needed + rung;
            let text = format!(
                "no step, log line or checkpoint in {silent}, and {why}: you are told once, nothing is ended"
            );
            return match told {
                false => WatchVerdict::new(Activity::Stalled, WatchAction::Notify, text),
                true => WatchVerdict::new(Activity::Busy, WatchAction::None, text),
            };
        }
        let (action, next) = match self.silent_secs - needed {
            over if over < rung => (WatchAction::Notify, "told"),
            over if over < 2.0 * rung => (WatchAction::Stacks, "stacks recorded"),
            _ if self.restarts < self.spec.restarts_max => (WatchAction::Restart, "restart"),
            _ => (WatchAction::Stop, "restarts used up: stop"),
        };
        let text = format!(
            "stalled: no step, log line or checkpoint for {silent}, {} was enough: {next}{}",
            span(needed),
            self.power_hint(rates)
        );
        WatchVerdict::new(Activity::Stalled, action, text)
    }

    /// Busy but with low power, like a hung collective.
    fn power_hint(&self, rates: &Rates) -> String {
        let (Some(gpu), Some(now), Some(usual)) =
            (rates.gpu_percent.known(), rates.gpu_power_watts.known(), self.usual_watts())
        else {
            return String::new();
        };
        if *gpu < 90.0 || *now >= POWER_SHARE_LOW * usual {
            return String::new();
        }
        format!("; GPU {gpu:.0} % at {now:.0} of its usual {usual:.0} W, as in a hung collective")
    }

    fn usual_watts(&self) -> Option<f64> {
        self.power_watts.median()
    }

    fn with_numbers(&self, rates: &Rates, needed: f64, verdict: WatchVerdict) -> WatchVerdict {
        let or_nan = |number: Option<f64>| number.unwrap_or(f64::NAN);
        // Sorted by name, so that each insertion appends.
        verdict.with_all([
            ("gpu_percent", or_nan(rates.gpu_percent.known().copied())),
            ("gpu_power_watts", or_nan(rates.gpu_power_watts.known().copied())),
            ("longest_silence_secs", self.silent_secs_max),
            ("median_step_secs", or_nan(self.steps.median())),
            ("restarts", f64::from(self.restarts)),
            ("sign_slots", f64::from(self.signs.slots)),
            ("silent_secs", self.silent_secs),
            ("usual_power_watts", or_nan(self.usual_watts())),
            ("usual_work_secs", self.usual_secs),
            ("window_secs", needed),
        ])
    }
}

struct StallMarks {
    steps: f64,
    /// Reported by the job itself.
    told: f64,
    other: f64,
    unknown: Option<String>,
    absent: bool,
}

impl StallMarks {
    fn of(rates: &Rates, last_step: &mut Option<f64>) -> StallMarks {
        let readings = [&rates.progress_marks, &rates.log_bytes, &rates.checkpoint_marks];
        let known = |reading: &Reading<f64>| reading.known().copied().unwrap_or(0.0).max(0.0);
        // A recording may have only the step: its change is a mark.
        let stepped = rates.step.is_some() && *last_step != rates.step;
        if rates.step.is_some_and(f64::is_finite) {
            *last_step = rates.step;
        }
        StallMarks {
            told: known(&rates.progress_marks),
            steps: known(&rates.progress_marks).max(if stepped { 1.0 } else { 0.0 }),
            other: known(&rates.log_bytes) + known(&rates.checkpoint_marks),
            unknown: readings.iter().find_map(|reading| match reading {
                Reading::Unknown(why) => Some(why.clone()),
                _ => None,
            }),
            absent: rates.step.is_none()
                && readings.iter().all(|reading| matches!(reading, Reading::Absent)),
        }
    }

    fn any(&self) -> bool {
        self.steps > 0.0 || self.other > 0.0
    }
}
