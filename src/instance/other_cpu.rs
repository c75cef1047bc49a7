//! CPU use of the machine outside the workload's process tree.
//!
//! A container is a child of containerd, and a unit of `systemd-run` is a child of systemd. If the
//! machine was launched for the job, both belong to the job. `policy` decides how much of it is
//! work.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Reading, Sample};

/// One minute. Over one second, a timer or a monitor can use a whole core and keep an idle machine
/// busy. A longer mean would detect the end of the work late.
const MEAN_OVER: Duration = Duration::from_secs(60);

/// CPU time outside the tree over the last minute.
#[derive(Clone, Debug, Default)]
pub struct RestCpu {
    /// Pairs of (time, CPU time used so far). The first pair is a minute old, once there are
    /// enough.
    seen: VecDeque<(Duration, Duration)>,
}

impl RestCpu {
    /// Adds a sample and returns percent of **one** core.
    pub fn take(&mut self, sample: &Sample) -> Reading<f64> {
        let used = match (&sample.machine_cpu, &sample.tree_cpu) {
            (Reading::Known(machine), Reading::Known(tree)) => machine.saturating_sub(*tree),
            (Reading::Unknown(why), _) | (_, Reading::Unknown(why)) => {
                return Reading::Unknown(why.clone());
            }
            _ => return Reading::Absent,
        };
        while self.seen.get(1).is_some_and(|(at, _)| sample.mono.saturating_sub(*at) >= MEAN_OVER) {
            self.seen.pop_front();
        }
        self.seen.push_back((sample.mono, used));
        let (began, before) = self.seen[0];
        let time = sample.mono.saturating_sub(began).as_secs_f64();
        if time <= 0.0 {
            return Reading::unknown("no time has passed");
        }
        Reading::Known(used.saturating_sub(before).as_secs_f64() / time * 100.0)
    }

    /// Another workload has another tree, so older samples cannot be compared.
    pub fn forget(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Marks;

    fn sample(secs: u64, machine: Reading<Duration>, tree: Duration) -> Sample {
        Sample {
            at: jiff::Timestamp::UNIX_EPOCH,
            mono: Duration::from_secs(secs),
            gpus: Reading::Absent,
            cuda: Reading::Absent,
            tree_cpu: Reading::Known(tree),
            machine_cpu: machine,
            cores: 4,
            tree_memory_bytes: Reading::Absent,
            machine_memory_bytes: Reading::Absent,
            tree_disk: Reading::Absent,
            network: Reading::Absent,
            disk_free_bytes: Reading::Absent,
            tree_processes: Reading::Absent,
            typing: Reading::Absent,
            marks: Marks::default(),
        }
    }

    /// One sample a second: idle for two minutes, then four cores for one second, then idle, then
    /// two cores.
    #[test]
    fn cpu_burst_of_a_second_counts_little_and_steady_load_fully() {
        let (mut rest, mut tree, mut cpu) = (RestCpu::default(), Duration::ZERO, Duration::ZERO);
        let said: Vec<Option<f64>> = (0..400)
            .map(|secs| {
                tree += Duration::from_secs(1);
                cpu += Duration::from_secs(match secs {
                    120 => 4,
                    300.. => 2,
                    _ => 0,
                });
                rest.take(&sample(secs, Reading::Known(cpu + tree), tree)).known().copied()
            })
            .collect();
        assert_eq!(said[0], None, "nothing to compare it with");
        assert_eq!((said[119], said[181]), (Some(0.0), Some(0.0)));
        assert!(
            said[120..180].iter().all(|said| said.is_some_and(|percent| percent < 7.0)),
            "{:?}",
            &said[120..180]
        );
        assert_eq!(said[399], Some(200.0), "what the tree itself uses is not in it");
        assert!(rest.take(&sample(400, Reading::unknown("/proc/stat"), tree)).is_unknown());
    }
}
