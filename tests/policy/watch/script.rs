//! Series made up for a case: phases of work and of silence, in the shapes that recorded jobs have.

use lamplighter::instance::{Rates, Reading};
use lamplighter::job::{IdleSpec, StallSpec};
use lamplighter::policy::{Activity, IdleWatch, StallWatch, WatchAction, WatchVerdict};

pub const MINUTE: f64 = 60.0;
pub const HOUR: f64 = 3600.0;

/// What is known of the machine besides its GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sight {
    /// As the agent sees it: the workload's own tree.
    Tree,
    /// A recording with the whole machine's CPU and network.
    Machine,
    /// A recording with the main process's CPU and the network.
    MainProcess,
    /// The whole machine's CPU, and nothing of disk or network.
    NoTransfers,
    GpuOnly,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub sight: Sight,
    pub interval: f64,
    pub t: f64,
    pub series: Vec<Rates>,
}

impl Script {
    /// Begins with the first sample, which has nothing to compare itself with.
    pub fn new(sight: Sight, interval: f64) -> Self {
        let first = Rates { t_secs: 0.0, interval_secs: 0.0, ..level(sight, 0.0, 0.0) };
        Script { sight, interval, t: 0.0, series: vec![first] }
    }

    /// A live agent on an ordinary machine, one sample in ten seconds.
    pub fn live() -> Self {
        Script::new(Sight::Tree, 10.0)
    }

    pub fn phase(mut self, secs: f64, make: impl Fn(&mut Rates)) -> Self {
        let end = self.t + secs;
        while self.t + self.interval <= end + 1e-9 {
            self.t += self.interval;
            let mut rates = Rates {
                t_secs: self.t,
                interval_secs: self.interval,
                ..level(self.sight, 0.0, 0.4)
            };
            make(&mut rates);
            self.series.push(rates);
        }
        self
    }

    pub fn work(self, secs: f64) -> Self {
        let sight = self.sight;
        self.phase(secs, move |rates| {
            *rates = Rates {
                t_secs: rates.t_secs,
                interval_secs: rates.interval_secs,
                ..level(sight, 97.0, 110.0)
            }
        })
    }

    pub fn quiet(self, secs: f64) -> Self {
        self.phase(secs, |_| {})
    }

    /// Nothing is measured for so long, then one quiet sample.
    pub fn gap(mut self, secs: f64) -> Self {
        self.t += secs;
        self.series.push(Rates {
            t_secs: self.t,
            interval_secs: secs,
            ..level(self.sight, 0.0, 0.4)
        });
        self
    }

    pub fn idle(&self) -> Judged {
        self.idle_with(&IdleSpec::default())
    }

    pub fn idle_with(&self, spec: &IdleSpec) -> Judged {
        Judged(idle_verdicts(&self.series, spec))
    }

    pub fn stall(&self) -> Judged {
        self.stall_with(&StallSpec::default())
    }

    pub fn stall_with(&self, spec: &StallSpec) -> Judged {
        let mut watch = StallWatch::new(spec);
        Judged(self.series.iter().map(|rates| (rates.t_secs, watch.step(rates, 0))).collect())
    }
}

pub fn idle_verdicts(series: &[Rates], spec: &IdleSpec) -> Vec<(f64, WatchVerdict)> {
    let mut watch = IdleWatch::new(spec);
    series.iter().map(|rates| (rates.t_secs, watch.step(rates))).collect()
}

/// An interval with the GPU and the processor at these levels, as far as they are seen.
pub fn level(sight: Sight, gpu: f64, cpu: f64) -> Rates {
    let known = Reading::Known;
    let rates =
        Rates { gpu_percent: known(gpu), net_bytes_per_sec: known(1_000.0), ..Rates::default() };
    match sight {
        Sight::Tree => Rates {
            cpu_percent: known(cpu),
            disk_bytes_per_sec: known(0.0),
            log_bytes: known(0.0),
            ..rates
        },
        Sight::Machine => Rates { machine_cpu_percent: known(cpu), ..rates },
        Sight::MainProcess => Rates { cpu_percent_min: known(cpu), ..rates },
        Sight::NoTransfers => {
            Rates { machine_cpu_percent: known(cpu), net_bytes_per_sec: Reading::Absent, ..rates }
        }
        Sight::GpuOnly => Rates { net_bytes_per_sec: Reading::Absent, ..rates },
    }
}

/// The verdict at each moment.
pub struct Judged(pub Vec<(f64, WatchVerdict)>);

impl Judged {
    pub fn stop_at(&self) -> Option<f64> {
        self.action_at(WatchAction::Stop)
    }

    pub fn action_at(&self, action: WatchAction) -> Option<f64> {
        self.0.iter().find(|(_, verdict)| verdict.action == action).map(|(t, _)| *t)
    }

    pub fn last(&self) -> &WatchVerdict {
        &self.0.last().expect("a script has a first sample").1
    }

    pub fn standing(&self) -> Activity {
        self.last().standing
    }

    pub fn ever(&self, standing: Activity) -> bool {
        self.0.iter().any(|(_, verdict)| verdict.standing == standing)
    }
}
