//! Observe: samples become rates, rates become verdicts, and time is counted as useful, idle or
//! unknown.
//!
//! The three times add up to the run time of the workload, so a receipt can be checked by adding.
//! Not here: a decision beyond the two watching policies, or a wait.

use std::time::Duration;

use crate::instance::{GpuHealth, GpuStatus, Marks, Rates, Reading, RestCpu, Sample, rates};
use crate::job::{GpuSelection, Spec};
use crate::market::{GpuRequirement, Span};
use crate::policy::{
    Activity, HardwareFault, HardwareWatch, IdleRhythm, IdleWatch, StallRhythm, StallWatch,
    WatchAction, WatchVerdict, standing,
};

/// The verdict's text before the workload is known.
pub(crate) const JUST_STARTED: &str = "the workload has just started";

/// Time between two samples that have each GPU on its own. Eight GPUs are ten times as long as the
/// rest of a sample; longer hides which GPU waits for the others.
const GPUS_EVERY: Duration = Duration::from_secs(10);

/// Watches one workload, from its start or from the agent's restart.
pub struct WorkloadWatch {
    selection: GpuSelection,
    gpus_asked: bool,
    /// `None`: other programs may run on this machine.
    rest: Option<RestCpu>,
    idle_rule: IdleWatch,
    stall_rule: StallWatch,
    hardware_rule: HardwareWatch,
    /// The marks when this start began: activity before the first sample counts too. `None`: it was
    /// already running.
    baseline: Option<Marks>,
    began: Option<Sample>,
    previous: Option<Sample>,
    cpu_percent: Option<f64>,
    /// When the rates last had each GPU.
    gpus_told: Option<Duration>,
    /// Since when it has been busy and moving, without a pause.
    pub busy_since: Option<Duration>,
    pub idle: WatchVerdict,
    pub stall: WatchVerdict,
    pub time: TimeAccounting,
    /// The useful time since the last sign of progress.
    unproven: Duration,
}

/// The run time by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TimeAccounting {
    pub useful: Duration,
    pub idle: Duration,
    pub unknown: Duration,
}

/// The learned state of the watching policies, kept over a crash of the agent.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct LearnedCadence {
    idle: IdleRhythm,
    stall: StallRhythm,
}

impl WorkloadWatch {
    /// `own_machine`: it was launched for the job, and no other program uses it.
    pub fn new(
        spec: &Spec,
        own_machine: bool,
        time: TimeAccounting,
        learned: &LearnedCadence,
        baseline: Marks,
    ) -> Self {
        let starting = || WatchVerdict::new(Activity::Starting, WatchAction::None, JUST_STARTED);
        WorkloadWatch {
            selection: spec.watch.gpus.clone(),
            gpus_asked: spec.machine.gpus != GpuRequirement::NONE,
            rest: own_machine.then(RestCpu::default),
            idle_rule: IdleWatch::resumed(&spec.watch.idle, &learned.idle),
            stall_rule: StallWatch::resumed(&spec.watch.stall, &learned.stall),
            hardware_rule: HardwareWatch::new(spec.machine.gpus != GpuRequirement::NONE),
            baseline: Some(baseline),
            began: None,
            previous: None,
            cpu_percent: None,
            gpus_told: None,
            busy_since: None,
            idle: starting(),
            stall: starting(),
            time,
            unproven: Duration::ZERO,
        }
    }

    /// The workload of an earlier agent was found running.
    pub fn reattached(&mut self) {
        self.baseline = None;
        let again = || {
            WatchVerdict::new(
                Activity::Starting,
                WatchAction::None,
                "the agent has started again and found the workload running",
            )
        };
        (self.idle, self.stall) = (again(), again());
    }

    pub fn remember_fault(&mut self, fault: Option<&HardwareFault>) {
        self.hardware_rule.remember(fault);
    }

    /// The workload reported on an earlier machine, with at most this long a silence.
    pub fn goes_on(&mut self, silent_secs: f64) {
        self.stall_rule.goes_on(silent_secs);
    }

    pub fn longest_silence(&self) -> Option<f64> {
        self.stall_rule.longest_silence()
    }

    pub fn fault(&self) -> Option<HardwareFault> {
        self.hardware_rule.fault()
    }

    /// The state of the work; stalled overrides idle.
    pub fn standing(&self) -> Activity {
        standing(&self.stall, &self.idle)
    }

    /// Whether the workload was seen working.
    pub fn has_worked(&self) -> bool {
        self.idle_rule.has_begun()
    }

    pub fn cadence(&self) -> LearnedCadence {
        LearnedCadence { idle: self.idle_rule.rhythm(), stall: self.stall_rule.rhythm() }
    }

    /// The workload was restarted, or was given more time: what was learned stays, the clocks
    /// restart.
    pub fn restart(&mut self, baseline: Marks, why: &str) {
        let starting = || WatchVerdict::new(Activity::Starting, WatchAction::None, why);
        self.idle_rule.started_again();
        self.stall_rule.started_again();
        self.hardware_rule.started_again();
        // `began` stays: recorded time never goes back within an attempt.
        (self.previous, self.cpu_percent, self.busy_since) = (None, None, None);
        self.rest.iter_mut().for_each(RestCpu::forget);
        self.baseline = Some(baseline);
        (self.idle, self.stall) = (starting(), starting());
    }

    /// It is kept for this reason: neither verdict on the last sample ends or restarts it.
    pub fn hold_off(&mut self, why: &str) {
        for verdict in [&mut self.idle, &mut self.stall] {
            if matches!(verdict.action, WatchAction::Stop | WatchAction::Restart) {
                verdict.action = WatchAction::None;
                verdict.text.push_str(&format!("; {why}"));
            }
        }
    }

    /// The command itself starts for the first time.
    pub fn main_begins(&mut self) {
        self.stall_rule.begins();
    }

    /// Takes in one sample; `None` if the sensors did not answer. Returns the rates once there are
    /// two samples.
    pub fn take(
        &mut self,
        sample: Option<Sample>,
        marks: Marks,
        mono: Duration,
        restarts: u32,
    ) -> Option<Rates> {
        let mut sample = sample.unwrap_or_else(|| blind(mono));
        sample.marks = marks;
        // The job asked for GPUs: if none is visible, a sensor or a GPU is lost. That does not mean
        // idle.
        let why = match &sample.gpus {
            Reading::Absent => Some("the job asks for GPUs and no NVIDIA driver answers"),
            Reading::Known(gpus) if gpus.is_empty() => {
                Some("the job asks for GPUs and the driver shows none")
            }
            _ => None,
        };
        let shown = why
            .filter(|_| self.gpus_asked)
            .map(|why| std::mem::replace(&mut sample.gpus, Reading::unknown(why)));
        let rest = self.rest.as_mut().map_or(Reading::Absent, |rest| rest.take(&sample));
        let began = self.began.get_or_insert_with(|| sample.clone());
        let Some(previous) = self.previous.take() else {
            let marks = self.baseline.clone().unwrap_or_else(|| sample.marks.clone());
            self.hardware_rule.step(shown.as_ref().unwrap_or(&sample.gpus), &self.selection, None);
            self.previous = Some(Sample { marks, ..sample });
            return None;
        };
        let mut rates =
            Rates { rest_cpu_percent: rest, ..rates(began, &previous, &sample, &self.selection) };
        // The GPU indices in the job file may not exist on this machine.
        let counts = self.gpus_asked && !matches!(self.selection, GpuSelection::Indices(_));
        if counts
            && (&rates.gpu_percent, &rates.gpu_memory_percent)
                == (&Reading::Absent, &Reading::Absent)
        {
            // For a part of a GPU, or a virtual one, the driver cannot tell whether it is idle.
            rates.gpu_percent = Reading::unknown("the driver cannot say how busy the GPUs are");
        }
        self.idle = self.idle_rule.step(&rates);
        self.stall = self.stall_rule.step(&rates, restarts);
        self.hardware_rule.step(
            shown.as_ref().unwrap_or(&sample.gpus),
            &self.selection,
            Some(&rates),
        );
        self.previous = Some(sample);
        if self.gpus_told.is_none_or(|told| mono.saturating_sub(told) >= GPUS_EVERY) {
            rates.gpus = self.gpu_status();
            // The newest one is in the heartbeat, and it moves slowly.
            rates.gpus.iter_mut().for_each(|gpu| gpu.health = GpuHealth::default());
            self.gpus_told = Some(mono);
        }
        self.account(&rates);
        let busy = self.idle.standing == Activity::Busy
            && !self.is_quiet()
            && self.stall.standing == Activity::Busy;
        self.busy_since = if busy { self.busy_since.or(Some(mono)) } else { None };
        self.cpu_percent = rates.cpu_percent.known().copied();
        Some(rates)
    }

    fn account(&mut self, rates: &Rates) {
        let interval = Duration::from_secs_f64(rates.interval_secs.max(0.0));
        let quiet = self.is_quiet();
        if self.stall.numbers.get("silent_secs").is_none_or(|secs| *secs == 0.0) {
            self.unproven = Duration::ZERO;
        }
        let kind = match self.idle.standing {
            Activity::Unknown => &mut self.time.unknown,
            Activity::Idle => &mut self.time.idle,
            _ if quiet => &mut self.time.idle,
            _ => {
                self.unproven += interval;
                &mut self.time.useful
            }
        };
        *kind += interval;
        // A hang is only known at its end. Until then it looked like work.
        if matches!(self.stall.action, WatchAction::Restart | WatchAction::Stop) {
            let stood = std::mem::take(&mut self.unproven).min(self.time.useful);
            self.time.useful -= stood;
            self.time.idle += stood;
        }
    }

    fn is_quiet(&self) -> bool {
        self.idle.numbers.get("quiet_secs").is_some_and(|secs| *secs > 0.0)
    }

    /// The GPUs of the newest sample, for the heartbeat.
    pub fn gpu_status(&self) -> Vec<GpuStatus> {
        let Some(Reading::Known(gpus)) = self.previous.as_ref().map(|sample| &sample.gpus) else {
            return Vec::new();
        };
        gpus.iter().map(GpuStatus::of).collect()
    }

    /// How long ago a user typed at a terminal of the machine, if one did.
    pub fn typed(&self) -> Option<Span> {
        self.previous
            .as_ref()
            .and_then(|sample| sample.typing.known().copied().flatten())
            .map(Span::from_duration)
    }

    /// CPU of the workload's tree in percent of one core, over the last interval.
    pub fn cpu_percent(&self) -> Option<f64> {
        self.cpu_percent
    }

    pub fn memory_bytes(&self) -> Option<u64> {
        self.previous.as_ref().and_then(|sample| sample.tree_memory_bytes.known().copied())
    }

    pub fn gpu_count(&self) -> Option<u32> {
        self.previous
            .as_ref()
            .and_then(|sample| sample.gpus.known())
            .and_then(|gpus| u32::try_from(gpus.len()).ok())
    }
}

impl TimeAccounting {
    pub fn useful(&self) -> Span {
        rounded(self.useful)
    }
    pub fn idle(&self) -> Span {
        rounded(self.idle)
    }
    pub fn unknown(&self) -> Span {
        rounded(self.unknown)
    }
}

/// Whole milliseconds, which a record keeps exactly.
fn rounded(time: Duration) -> Span {
    Span::from_duration(Duration::from_millis(time.as_millis() as u64))
}

/// A sample with only unknown values, for hung sensors.
fn blind(mono: Duration) -> Sample {
    fn hangs<T>() -> Reading<T> {
        Reading::unknown("the sensors do not answer")
    }
    Sample {
        at: jiff::Timestamp::UNIX_EPOCH,
        mono,
        gpus: hangs(),
        cuda: hangs(),
        tree_cpu: hangs(),
        machine_cpu: hangs(),
        cores: 1,
        tree_memory_bytes: hangs(),
        machine_memory_bytes: hangs(),
        tree_disk: hangs(),
        network: hangs(),
        disk_free_bytes: hangs(),
        tree_processes: hangs(),
        typing: hangs(),
        marks: Marks::default(),
    }
}
