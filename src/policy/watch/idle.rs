//! Is it idle? Every known signal quiet for the whole window; the window is longer where less is known.
//!
//! ```text
//!   Rates ─> signals ─┬─ one says work ────────────> the clock starts again; the pause that ended is remembered
//!                     ├─ one should be there, is not > the clock stands still: unknown is never idle
//!                     └─ all quiet ────────────────> the clock goes on ─> idle when quiet ≥ window
//!
//!   window = the largest of   the spec's window, longer where less is seen (GPU alone: never)
//!                             spec window + a quarter of an hour − time worked   (a young job has not shown its rhythm)
//!                             3 × the job's own longest pause                    (that ended in work again)
//! ```
//! A pure fold over [`Rates`]: the agent feeds it live, `lamp replay` from a recording. Each factor's reason stands at
//! its constant; measured figures beside the published rules are in docs/policies.md.
//! What must never live here: a clock, and constants that only fit one recording.

use serde::{Deserialize, Serialize};

use super::activity_signals::{RATE, Seen, Sight, Whole, rate, seen};
use super::coverage::{Pace, span};
use super::verdict::{Standing, WatchAction, WatchVerdict};
use crate::instance::{Rates, Reading};
use crate::job::IdleSpec;
use crate::market::Span;

/// A longer patience: so many windows, but no more than is enough in any case, and never less than the window.
#[derive(Clone, Copy)]
struct Patience {
    windows: f64,
    enough_secs: f64,
}

/// A quarter of an hour where only the main process's CPU is known: its children (data loaders, kernels) may be at work
/// unseen, and long phases of that kind rarely pass ten minutes in recorded jobs.
const MAIN_PROCESS: Patience = Patience { windows: 3.0, enough_secs: 900.0 };

/// An hour where neither disk nor network is known: a job that waits for a transfer looks exactly like one that has
/// ended. One recorded job did nothing for 45 minutes and then finished well; an hour is the published rule that is safe
/// there. Also for a machine on which nothing was ever seen to work.
const NO_TRANSFERS: Patience = Patience { windows: 12.0, enough_secs: 3600.0 };

/// A pause after work is a surprise only if there was work without such pauses: for a quarter of an hour, else the pause
/// must be longer by what is missing. Without it the first evaluation or download after a warm-up looks like the end.
const YOUNG: Patience = Patience { windows: 3.0, enough_secs: 900.0 };

/// Three times the longest pause so far. Pauses have heavy tails, the next record is often twice the last; on recorded
/// jobs two stops one by mistake, four misses a forgotten machine.
const TIMES_PAUSE: f64 = 3.0;

/// Half of the quiet time: the network is the whole machine's. A burst (an update, a log upload) is somebody else's
/// business, traffic for most of the time is likely a download that the job waits for.
const NETWORK_SHARE: f64 = 0.5;

/// A quarter of an hour after the last key stroke: people read and think between commands; a forgotten terminal must not
/// keep a machine.
const TYPING: Patience = Patience { windows: 3.0, enough_secs: 900.0 };

/// Work begins when a GPU was used for a fifth of a window, one minute at most in all: a probe of the driver at start-up
/// (`nvidia-smi`, `torch.cuda.is_available()`) is shorter.
const SUSTAINED_SHARE: f64 = 0.2;
const SUSTAINED_SECS_MAX: f64 = 60.0;

/// Somebody allocated or freed device memory: 64 MiB is more than an allocator's fragment and less than a CUDA context.
const MEMORY_STEP_MIB: f64 = 64.0;

/// How long a window that somebody asks for is while a job is young: what is asked for and what is missing of the proof that it works
/// without such pauses. `None`: nothing is judged.
pub fn young_window(spec: &IdleSpec) -> Option<YoungWindow> {
    let window = spec.window?;
    let until = Span::from_secs((YOUNG.windows * window.secs_f64()).min(YOUNG.enough_secs).round() as u64);
    Some(YoungWindow { asked: window, first: Span::from_duration(window.duration() + until.duration()), until })
}

/// The window at the beginning of the work, and how long it must have worked for the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YoungWindow {
    pub asked: Span,
    pub first: Span,
    pub until: Span,
}

/// Watches one workload from its start.
#[derive(Clone, Debug)]
pub struct IdleWatch {
    spec: IdleSpec,
    pace: Pace,
    began_secs: Option<f64>,
    /// Time in which a GPU was used, until the work has begun.
    sustained_secs: f64,
    begun: bool,
    /// Time worked since the work has begun; pauses and unknown time are not in it.
    worked_secs: f64,
    /// Measured quiet time since the last sign of life.
    quiet_secs: f64,
    network_busy_secs: f64,
    /// The least that was seen in this quiet time.
    sight: Sight,
    /// The pause going on (a change of device memory does not end it) and the longest that ended in work.
    pause_secs: f64,
    pause_secs_max: f64,
    memory_mib: Option<f64>,
}

/// What was learned of a workload's rhythm. It outlives whoever watches; the clocks that run towards a verdict do not, since
/// nobody knows what happened until the next one watches.
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
    /// Whether the work was seen to begin: a GPU in use for a while, or progress.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Goes on with what an earlier watch learned of the same workload.
    pub fn resumed(spec: &IdleSpec, learned: &IdleRhythm) -> Self {
        let IdleRhythm { pace, sustained_secs, begun, worked_secs, pause_secs_max } = learned.clone();
        IdleWatch { pace, sustained_secs, begun, worked_secs, pause_secs_max, ..IdleWatch::new(spec) }
    }

    /// What was learned so far: finite numbers only.
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

    /// The workload was started again: its pauses are remembered, but it is young again.
    pub fn started_again(&mut self) {
        (self.worked_secs, self.pause_secs, self.memory_mib) = (0.0, 0.0, None);
        self.start_again();
    }

    /// Takes in one interval and judges.
    pub fn step(&mut self, rates: &Rates) -> WatchVerdict {
        let Some(window) = self.spec.window.map(Span::secs_f64) else {
            return self.with_numbers(rates, None, WatchVerdict::new(Standing::Busy, WatchAction::None, "idle is off: not judged"));
        };
        let began = *self.began_secs.get_or_insert(rates.t_secs);
        let memory_changed = self.memory_changed(rates);
        let seen = seen(rates, &self.spec);
        if rates.interval_secs <= 0.0 {
            let verdict = WatchVerdict::new(Standing::Starting, WatchAction::None, "the first sample: nothing to compare it with");
            return self.with_numbers(rates, None, verdict);
        }
        if !seen.busy.is_empty() {
            let counted = self.pace.counted(rates.interval_secs, window);
            self.worked(counted, window, &seen);
        } else if !seen.unknown.is_empty() {
            let text = format!("unknown: {}; the idle clock stands at {}", seen.unknown.join(", "), span(self.quiet_secs));
            return self.with_numbers(rates, None, WatchVerdict::new(Standing::Unknown, WatchAction::None, text));
        } else {
            let counted = self.pace.counted(rates.interval_secs, window);
            self.was_quiet(counted, memory_changed, &seen);
        }
        let needed = self.needed(window, self.sight, rates.t_secs - began);
        let verdict = self.judge(rates, &seen, needed, memory_changed, window);
        self.with_numbers(rates, needed, verdict)
    }

    fn worked(&mut self, counted: f64, window: f64, seen: &Seen) {
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

    fn was_quiet(&mut self, counted: f64, memory_changed: bool, seen: &Seen) {
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

    /// The window for what is known now; `None`: cannot be judged.
    fn needed(&self, window: f64, sight: Sight, elapsed: f64) -> Option<f64> {
        let young = window + (YOUNG.windows * window).min(YOUNG.enough_secs) - self.worked_secs;
        if !self.begun {
            // Nothing was ever seen to work. Then only the workload's own silence counts, and the machine's only after
            // an hour: a slow start of something unseen is as likely as a start that hangs.
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

    fn judge(&self, rates: &Rates, seen: &Seen, needed: Option<f64>, memory_changed: bool, window: f64) -> WatchVerdict {
        let early = if self.begun { Standing::Busy } else { Standing::Starting };
        let say = |standing, text: String| WatchVerdict::new(standing, WatchAction::None, text);
        if !seen.busy.is_empty() {
            return say(early, ["working: ", &seen.busy].concat());
        }
        if memory_changed {
            return say(early, "working: device memory was allocated or freed".into());
        }
        let (quiet, levels) = (span(self.quiet_secs), levels(rates));
        let Some(needed) = needed else {
            let why = if self.sight == Sight::GpuOnly { "nothing is known of the processor" } else { "no GPU was used and nothing progressed yet" };
            return say(early, format!("quiet for {quiet}, not judged: {why} ({levels})"));
        };
        if self.quiet_secs < needed {
            return say(early, format!("quiet for {quiet} of {}: {levels}", span(needed)));
        }
        if seen.typing_secs.is_some_and(|secs| secs < TYPING.secs(window)) {
            return say(early, format!("quiet for {quiet}, but somebody typed {} ago", span(seen.typing_secs.unwrap_or(0.0))));
        }
        if self.network_busy_secs > NETWORK_SHARE * self.quiet_secs {
            return say(early, format!("quiet for {quiet}, but the network was busy for {} of it", span(self.network_busy_secs)));
        }
        let text = format!("idle: nothing for {quiet}, {} was enough: {levels}", span(needed));
        WatchVerdict::new(Standing::Idle, WatchAction::Stop, text)
    }

    /// Whether device memory was allocated or freed since the last reading.
    fn memory_changed(&mut self, rates: &Rates) -> bool {
        let Some(now) = rates.gpu_memory_used_mib.known().copied() else { return false };
        self.memory_mib.replace(now).is_some_and(|before| (now - before).abs() >= MEMORY_STEP_MIB)
    }

    fn with_numbers(&self, rates: &Rates, needed: Option<f64>, verdict: WatchVerdict) -> WatchVerdict {
        let of = |reading: &Reading<f64>| reading.known().copied().unwrap_or(f64::NAN);
        // In the order of their names, in which none makes room for the next.
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

/// The levels that people ask for first.
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
            reading.known().map(|value| if *unit == RATE { format!("{name} {}", rate(*value)) } else { format!("{name} {} {unit}", rounded(*value)) })
        })
        .collect();
    known.join(", ")
}

/// Whole numbers, but a tenth where a whole number would say nothing.
fn rounded(value: f64) -> String {
    if value < 9.95 && (value - value.round()).abs() >= 0.05 { format!("{value:.1}") } else { Whole(value).to_string() }
}
