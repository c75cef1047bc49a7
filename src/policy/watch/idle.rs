//! Is it idle? It is if every known signal was quiet for the whole window. With fewer signals the
//! window is longer.
//!
//! ```text
//!   Rates ─> signals ─┬─ one shows work ───────────> the clock restarts; the pause is remembered
//!                     ├─ one could not be read ────> the clock stops: unknown is never idle
//!                     └─ all quiet ────────────────> the clock runs ─> idle when quiet ≥ window
//!
//!   window = the largest of   the spec's window, longer with fewer signals (GPU alone: never)
//!                             spec window + a quarter of an hour − time worked  (a young job)
//!                             3 × the job's own longest pause before more work
//! ```
//! A pure fold over [`Rates`], live in the agent or recorded in `lamp replay`. Each constant has
//! its reason; docs/policies.md compares results with published rules. This module has no clock.

use serde::{Deserialize, Serialize};

use super::activity_signals::{RATE, Sight, SignalsSeen, Whole, rate, seen};
use super::coverage::{Pace, span};
use super::verdict::{Activity, WatchAction, WatchVerdict};
use crate::instance::{Rates, Reading};
use crate::job::IdleSpec;
use crate::market::Span;

/// A longer window: this many windows, at most `enough_secs`, at least one window.
#[derive(Clone, Copy)]
struct Patience {
    windows: f64,
    enough_secs: f64,
}

/// A quarter of an hour if only the main process's CPU is known. Its children (data loaders,
/// kernels) may work unseen. In recorded jobs, such phases rarely exceed ten minutes.
const MAIN_PROCESS: Patience = Patience { windows: 3.0, enough_secs: 900.0 };

/// An hour if neither disk nor network is known: waiting for a transfer looks like the end of a
/// job. One recorded job paused for 45 minutes and then finished; the published rule of an hour is
/// safe for it. Also for a machine that was never seen working.
const NO_TRANSFERS: Patience = Patience { windows: 12.0, enough_secs: 3600.0 };

/// A pause is suspicious only after a quarter of an hour of work without one; before that, the
/// window grows by the missing time. Otherwise the first evaluation or download after a warm-up
/// looks like the end.
const YOUNG: Patience = Patience { windows: 3.0, enough_secs: 900.0 };

/// Three times the longest pause so far. Pauses have heavy tails, and the next record is often
/// twice the last. On recorded jobs, a factor of two stops one by mistake,
/// and one of four misses a forgotten machine.
const TIMES_PAUSE: f64 = 3.0;

/// Half of the quiet time. The network belongs to the whole machine: a burst (an update, a log
/// upload) may be unrelated, but steady traffic is probably a download for the job.
const NETWORK_SHARE: f64 = 0.5;

/// A quarter of an hour after the last key stroke: users read and think between commands, but a
/// forgotten terminal must not keep a machine.
const TYPING: Patience = Patience { windows: 3.0, enough_secs: 900.0 };

/// Work begins after a GPU was used for a fifth of a window, at most one minute. A driver probe at
/// start-up (`nvidia-smi`, `torch.cuda.is_available()`) is shorter.
const SUSTAINED_SHARE: f64 = 0.2;
const SUSTAINED_SECS_MAX: f64 = 60.0;

/// A change of device memory: 64 MiB is more than an allocator's fragment and less than a CUDA
/// context.
const MEMORY_STEP_MIB: f64 = 64.0;

/// The window of a young job: the configured one plus the time without pauses that it must still
/// show. `None`: idle is not judged.
pub fn young_window(spec: &IdleSpec) -> Option<YoungWindow> {
    let window = spec.window?;
    let until =
        Span::from_secs((YOUNG.windows * window.secs_f64()).min(YOUNG.enough_secs).round() as u64);
    Some(YoungWindow {
        asked: window,
        first: Span::from_duration(window.duration() + until.duration()),
        until,
    })
}

/// The window at the beginning of the work, and the work time after which the configured one
/// applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YoungWindow {
    pub asked: Span,
    pub first: Span,
    pub until: Span,
}

#[derive(Clone, Debug)]
pub struct IdleWatch {
    spec: IdleSpec,
    pace: Pace,
    began_secs: Option<f64>,
    /// GPU time until the work has begun.
    sustained_secs: f64,
    begun: bool,
    /// Work time since the work began, without pauses and unknown time.
    worked_secs: f64,
    /// Measured quiet time since the last activity.
    quiet_secs: f64,
    network_busy_secs: f64,
    /// The poorest view in this quiet time.
    sight: Sight,
    /// The current pause (a change of device memory does not end it), and the longest that ended in
    /// work.
    pause_secs: f64,
    pause_secs_max: f64,
    memory_mib: Option<f64>,
}

/// Knowledge of a workload's rhythm, kept across agents. The clocks towards a verdict are not kept,
/// because the time between two agents is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleRhythm {
    pace: Pace,
    sustained_secs: f64,
    begun: bool,
    worked_secs: f64,
    pause_secs_max: f64,
}

impl IdleWatch {
    /// Whether the work has begun: a GPU in use for a while, or progress.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Continues with the knowledge of an earlier watch of the same workload.
    pub fn resumed(spec: &IdleSpec, learned: &IdleRhythm) -> Self {
        let IdleRhythm { pace, sustained_secs, begun, worked_secs, pause_secs_max } =
            learned.clone();
        IdleWatch {
            pace,
            sustained_secs,
            begun,
            worked_secs,
            pause_secs_max,
            ..IdleWatch::new(spec)
        }
    }

    /// The knowledge so far: finite numbers only.
    pub fn rhythm(&self) -> IdleRhythm {
        let IdleWatch { sustained_secs, begun, worked_secs, pause_secs_max, .. } = *self;
        IdleRhythm { pace: self.pace.clone(), sustained_secs, begun, worked_secs, pause_secs_max }
    }

    pub fn new(spec: &IdleSpec) -> Self {
        IdleWatch {
            spec: spec.clone(),
            pace: Pace::default(),
            began_secs: None,
            sustained_secs: 0.0,
            begun: false,
            worked_secs: 0.0,
            quiet_secs: 0.0,
            network_busy_secs: 0.0,
            sight: Sight::Tree,
            pause_secs: 0.0,
            pause_secs_max: 0.0,
            memory_mib: None,
        }
    }

    /// The workload was restarted: its pauses are remembered, but it is young again.
    pub fn started_again(&mut self) {
        (self.worked_secs, self.pause_secs, self.memory_mib) = (0.0, 0.0, None);
        self.start_again();
    }

    pub fn step(&mut self, rates: &Rates) -> WatchVerdict {
        let Some(window) = self.spec.window.map(Span::secs_f64) else {
            return self.with_numbers(
                rates,
                None,
                WatchVerdict::new(Activity::Busy, WatchAction::None, "idle is off: not judged"),
            );
        };
        let began = *self.began_secs.get_or_insert(rates.t_secs);
        let memory_changed = self.memory_changed(rates);
        let seen = seen(rates, &self.spec);
        if rates.interval_secs <= 0.0 {
            let verdict = WatchVerdict::new(
                Activity::Starting,
                WatchAction::None,
                "the first sample: nothing to compare it with",
            );
            return self.with_numbers(rates, None, verdict);
        }
        if !seen.busy.is_empty() {
            let counted = self.pace.counted(rates.interval_secs, window);
            self.worked(counted, window, &seen);
        } else if !seen.unknown.is_empty() {
            let text = format!(
                "unknown: {}; the idle clock stands at {}",
                seen.unknown.join(", "),
                span(self.quiet_secs)
            );
            return self.with_numbers(
                rates,
                None,
                WatchVerdict::new(Activity::Unknown, WatchAction::None, text),
            );
        } else {
            let counted = self.pace.counted(rates.interval_secs, window);
            self.was_quiet(counted, memory_changed, &seen);
        }
        let needed = self.needed(window, self.sight, rates.t_secs - began);
        let verdict = self.judge(rates, &seen, needed, memory_changed, window);
        self.with_numbers(rates, needed, verdict)
    }

    fn worked(&mut self, counted: f64, window: f64, seen: &SignalsSeen) {
        if seen.computing {
            self.sustained_secs += counted;
        }
        let sustained = (window * SUSTAINED_SHARE).min(SUSTAINED_SECS_MAX);
        if self.begun {
            self.pause_secs_max = self.pause_secs_max.max(self.pause_secs);
            self.worked_secs += counted;
        } else if seen.progressed || self.sustained_secs >= sustained {
            self.begun = true;
            self.worked_secs = self.sustained_secs.max(counted);
        }
        self.pause_secs = 0.0;
        self.start_again();
    }

    fn was_quiet(&mut self, counted: f64, memory_changed: bool, seen: &SignalsSeen) {
        self.pause_secs += counted;
        if memory_changed {
            self.start_again();
            return;
        }
        self.sight = self.sight.max(seen.sight);
        self.quiet_secs += counted;
        if seen.network_busy == Some(true) {
            self.network_busy_secs += counted;
        }
    }

    fn start_again(&mut self) {
        (self.quiet_secs, self.network_busy_secs, self.sight) = (0.0, 0.0, Sight::Tree);
    }

    /// The window for the current knowledge; `None`: cannot be judged.
    fn needed(&self, window: f64, sight: Sight, elapsed: f64) -> Option<f64> {
        let young = window + (YOUNG.windows * window).min(YOUNG.enough_secs) - self.worked_secs;
        if !self.begun {
            // The work was never seen. Then the workload's own silence counts, and the machine's
            // only after an hour: an unseen slow start is as likely as a hung one.
            let grace = self.spec.grace.secs_f64();
            return match sight {
                Sight::Tree if elapsed >= grace => Some(young),
                Sight::Machine if elapsed >= grace => Some(young.max(NO_TRANSFERS.secs(window))),
                _ => None,
            };
        }
        let seen_so_well = match sight {
            Sight::Tree | Sight::Machine => window,
            Sight::MainProcess => MAIN_PROCESS.secs(window),
            Sight::NoTransfers => NO_TRANSFERS.secs(window),
            Sight::GpuOnly => return None,
        };
        Some(seen_so_well.max(young).max(TIMES_PAUSE * self.pause_secs_max))
    }

    fn judge(
        &self,
        rates: &Rates,
        seen: &SignalsSeen,
        needed: Option<f64>,
        memory_changed: bool,
        window: f64,
    ) -> WatchVerdict {
        let early = if self.begun { Activity::Busy } else { Activity::Starting };
        let say = |standing, text: String| WatchVerdict::new(standing, WatchAction::None, text);
        if !seen.busy.is_empty() {
            return say(early, ["working: ", &seen.busy].concat());
        }
        if memory_changed {
            return say(early, "working: device memory was allocated or freed".into());
        }
        let (quiet, levels) = (span(self.quiet_secs), levels(rates));
        let Some(needed) = needed else {
            let why = if self.sight == Sight::GpuOnly {
                "nothing is known of the processor"
            } else {
                "no GPU was used and nothing progressed yet"
            };
            return say(early, format!("quiet for {quiet}, not judged: {why} ({levels})"));
        };
        if self.quiet_secs < needed {
            return say(early, format!("quiet for {quiet} of {}: {levels}", span(needed)));
        }
        if seen.typing_secs.is_some_and(|secs| secs < TYPING.secs(window)) {
            return say(
                early,
                format!(
                    "quiet for {quiet}, but somebody typed {} ago",
                    span(seen.typing_secs.unwrap_or(0.0))
                ),
            );
        }
        if self.network_busy_secs > NETWORK_SHARE * self.quiet_secs {
            return say(
                early,
                format!(
                    "quiet for {quiet}, but the network was busy for {} of it",
                    span(self.network_busy_secs)
                ),
            );
        }
        let text = format!("idle: nothing for {quiet}, {} was enough: {levels}", span(needed));
        WatchVerdict::new(Activity::Idle, WatchAction::Stop, text)
    }

    /// Whether device memory was allocated or freed since the last reading.
    fn memory_changed(&mut self, rates: &Rates) -> bool {
        let Some(now) = rates.gpu_memory_used_mib.known().copied() else { return false };
        self.memory_mib.replace(now).is_some_and(|before| (now - before).abs() >= MEMORY_STEP_MIB)
    }

    fn with_numbers(
        &self,
        rates: &Rates,
        needed: Option<f64>,
        verdict: WatchVerdict,
    ) -> WatchVerdict {
        let of = |reading: &Reading<f64>| reading.known().copied().unwrap_or(f64::NAN);
        // Sorted by name, so that each insertion appends.
        let numbers = [
            ("cpu_percent", of(&rates.cpu_percent)),
            ("cpu_percent_min", of(&rates.cpu_percent_min)),
            ("disk_bytes_per_sec", of(&rates.disk_bytes_per_sec)),
            ("gpu_memory_percent", of(&rates.gpu_memory_percent)),
            ("gpu_memory_used_mib", of(&rates.gpu_memory_used_mib)),
            ("gpu_percent", of(&rates.gpu_percent)),
            ("gpu_power_watts", of(&rates.gpu_power_watts)),
            ("longest_pause_secs", self.pause_secs_max),
            ("machine_cpu_percent", of(&rates.machine_cpu_percent)),
            ("net_bytes_per_sec", of(&rates.net_bytes_per_sec)),
            ("quiet_secs", self.quiet_secs),
            ("rest_cpu_percent", of(&rates.rest_cpu_percent)),
            ("typing_secs", of(&rates.typing_secs)),
            ("window_secs", needed.unwrap_or(f64::NAN)),
            ("worked_secs", self.worked_secs),
        ];
        verdict.with_all(numbers)
    }
}

impl Patience {
    fn secs(self, window: f64) -> f64 {
        (self.windows * window).min(self.enough_secs).max(window)
    }
}

fn levels(rates: &Rates) -> String {
    let all = [
        ("GPU", &rates.gpu_percent, "%"),
        ("CPU", &rates.cpu_percent, "% of a core"),
        ("machine CPU", &rates.machine_cpu_percent, "%"),
        ("the rest", &rates.rest_cpu_percent, "% of a core"),
        ("network", &rates.net_bytes_per_sec, RATE),
    ];
    let known: Vec<String> = all
        .iter()
        .filter_map(|(name, reading, unit)| {
            reading.known().map(|value| {
                if *unit == RATE {
                    format!("{name} {}", rate(*value))
                } else {
                    format!("{name} {} {unit}", rounded(*value))
                }
            })
        })
        .collect();
    known.join(", ")
}

/// Whole numbers; one decimal for small values.
fn rounded(value: f64) -> String {
    if value < 9.95 && (value - value.round()).abs() >= 0.05 {
        format!("{value:.1}")
    } else {
        Whole(value).to_string()
    }
}
