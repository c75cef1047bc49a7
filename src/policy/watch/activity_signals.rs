//! Which signals of an interval show work, and how much of the machine they cover.
//!
//! There are three kinds. The workload's own signals show work above their limits. Signals of the
//! whole machine (network, users typing) only delay a verdict while they last. The third kind can
//! show work, but not its absence. `idle` measures the time.

use std::fmt;

use crate::instance::{Rates, Reading};
use crate::job::IdleSpec;

/// Five percent of **all** cores, used only if the workload's tree is unknown. An idle machine with
/// a desktop or a monitor uses up to two percent of sixteen cores. Published rules use the same
/// five.
const MACHINE_CPU_QUIET_PERCENT: f64 = 5.0;

/// Half of **one** core over a minute, outside the workload's tree, on a machine launched for the
/// job. There a container or a service belongs to the job. CPU work takes a whole core. A desktop,
/// a monitor, or the kernel of a machine with two hundred cores uses a third of one. A lower limit
/// would keep such a machine busy forever.
const REST_CPU_QUIET_PERCENT: f64 = 50.0;

/// The unit of traffic, which [`rate`] formats.
pub(crate) const RATE: &str = "B/s";

/// `5.4 MB/s`: the units of `idle_io`.
pub fn rate(bytes_per_sec: f64) -> String {
    const UNITS: [&str; 5] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
    let mut value = bytes_per_sec;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    if unit == 0 || value >= 99.95 {
        format!("{} {}", Whole(value), UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A number as `{:.0}` writes it. The general formatter takes a thousand instructions, and these
/// texts are made at every look.
pub(crate) struct Whole(pub(crate) f64);

impl Whole {
    /// The equal integer, if there is one.
    fn exact(&self) -> Option<u64> {
        const EXACT_BELOW: f64 = (1_u64 << 53) as f64;
        (self.0.is_sign_positive() && self.0 < EXACT_BELOW).then(|| self.0.round_ties_even() as u64)
    }

    fn push(&self, text: &mut String) {
        match self.exact() {
            // A percentage, the usual case.
            Some(small @ 0..1000) => {
                let digits = [small / 100, small / 10 % 10, small % 10]
                    .map(|digit| char::from(b'0' + digit as u8));
                let first = if small >= 100 { 0 } else { 2 - usize::from(small >= 10) };
                text.extend(&digits[first..]);
            }
            _ => *text += &self.to_string(),
        }
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exact() {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "{:.0}", self.0),
        }
    }
}

pub(crate) struct SignalsSeen {
    /// The signals above their limits, in words: `GPU 97 %, log output`.
    pub(crate) busy: String,
    /// The signals that could not be read, with the reason.
    pub(crate) unknown: Vec<String>,
    /// A GPU was above its limit; without any GPU, the CPU was.
    pub(crate) computing: bool,
    /// A step, a checkpoint or the like.
    pub(crate) progressed: bool,
    pub(crate) sight: Sight,
    pub(crate) network_busy: Option<bool>,
    pub(crate) typing_secs: Option<f64>,
}

/// How much of the work the known signals show, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sight {
    /// CPU time of the tree, and disk or network.
    Tree,
    /// CPU time of the machine, and disk or network.
    Machine,
    /// Only a lower bound of the CPU time; disk or network.
    MainProcess,
    /// CPU time, but neither disk nor network: a wait for a transfer looks like the end of the
    /// work.
    NoTransfers,
    /// No CPU time: preparing data looks like the end of the work.
    GpuOnly,
}

pub(crate) fn seen(rates: &Rates, spec: &IdleSpec) -> SignalsSeen {
    let tree_known = !matches!(rates.cpu_percent, Reading::Absent);
    let machine_limit = if tree_known { f64::INFINITY } else { MACHINE_CPU_QUIET_PERCENT };
    let above =
        |reading: &Reading<f64>, limit: f64| reading.known().is_some_and(|value| *value > limit);
    // Room for the usual text: growing the string costs more than the words.
    let mut busy = String::with_capacity(128);
    let mut unknown = Vec::new();
    let mut judge = |reading: &Reading<f64>, limit: f64, name: &str, unit: &str| match reading {
        Reading::Known(value) if *value > limit => say(&mut busy, name, *value, unit),
        Reading::Unknown(why) => unknown.push(format!("{name} ({why})")),
        _ => {}
    };
    judge(&rates.gpu_percent, spec.gpu_percent, "GPU", "%");
    judge(&rates.gpu_memory_percent, spec.gpu_percent, "GPU memory traffic", "%");
    judge(&rates.cpu_percent, spec.cpu_percent, "CPU", "% of a core");
    judge(&rates.cpu_percent_min, spec.cpu_percent, "CPU at least", "% of a core");
    if !tree_known {
        judge(&rates.machine_cpu_percent, machine_limit, "machine CPU", "%");
    }
    judge(
        &rates.rest_cpu_percent,
        REST_CPU_QUIET_PERCENT,
        "CPU outside the job's own processes",
        "% of a core",
    );
    judge(&rates.disk_bytes_per_sec, spec.io_bytes_per_sec, "disk", RATE);
    judge(&rates.log_bytes, 0.0, "log output", "");
    judge(&rates.progress_marks, 0.0, "progress", "");
    judge(&rates.checkpoint_marks, 0.0, "a checkpoint", "");
    for (reading, name) in [(&rates.net_bytes_per_sec, "network"), (&rates.typing_secs, "typing")] {
        judge(reading, f64::INFINITY, name, "");
    }
    // CPU outside the tree stops the idle clock but does not start the work: a machine that just
    // booted is busy with itself.
    let processor_busy = above(&rates.cpu_percent, spec.cpu_percent)
        || above(&rates.machine_cpu_percent, machine_limit);
    SignalsSeen {
        busy,
        unknown,
        computing: above(&rates.gpu_percent, spec.gpu_percent)
            || (matches!(rates.gpu_percent, Reading::Absent) && processor_busy),
        progressed: above(&rates.progress_marks, 0.0) || above(&rates.checkpoint_marks, 0.0),
        sight: sight(rates),
        network_busy: rates.net_bytes_per_sec.known().map(|rate| *rate > spec.io_bytes_per_sec),
        typing_secs: rates.typing_secs.known().copied(),
    }
}

fn say(busy: &mut String, name: &str, value: f64, unit: &str) {
    if !busy.is_empty() {
        busy.push_str(", ");
    }
    busy.push_str(name);
    match unit {
        "" => {}
        RATE => busy.extend([" ", &rate(value)]),
        _ => {
            busy.push(' ');
            Whole(value).push(busy);
            busy.extend([" ", unit]);
        }
    }
}

fn sight(rates: &Rates) -> Sight {
    let known = |reading: &Reading<f64>| reading.known().is_some();
    let transfers = known(&rates.disk_bytes_per_sec) || known(&rates.net_bytes_per_sec);
    match (
        known(&rates.cpu_percent),
        known(&rates.machine_cpu_percent),
        known(&rates.cpu_percent_min),
    ) {
        (true, _, _) if transfers => Sight::Tree,
        (_, true, _) if transfers => Sight::Machine,
        (true, _, _) | (_, true, _) => Sight::NoTransfers,
        (_, _, true) if transfers && known(&rates.gpu_percent) => Sight::MainProcess,
        _ => Sight::GpuOnly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_as_ever() {
        let halves = (0..4000).map(|n| f64::from(n) / 16.0);
        let odd = [
            f64::NAN,
            f64::INFINITY,
            -0.0,
            -0.3,
            -7.5,
            0.49999999999999994,
            9007199254740991.0,
            9007199254740992.0,
            1e300,
            f64::MIN_POSITIVE,
        ];
        for value in halves.chain(odd) {
            assert_eq!(Whole(value).to_string(), format!("{value:.0}"));
            let mut text = String::from("CPU ");
            Whole(value).push(&mut text);
            assert_eq!(text, format!("CPU {value:.0}"));
        }
    }

    #[test]
    fn traffic_is_said_in_units_that_people_read() {
        let said = [0.0, 999.0, 999.96, 5_443_638.0, 250e6, 3e12, 9e15].map(rate);
        assert_eq!(
            said,
            ["0 B/s", "999 B/s", "1.0 kB/s", "5.4 MB/s", "250 MB/s", "3.0 TB/s", "9000 TB/s"]
        );
    }
}
