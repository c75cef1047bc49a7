//! What a machine that was launched for the job does beside the workload's own tree.
//!
//! A container is containerd's child, and what `systemd-run` starts is systemd's. The job asked for both, and nobody else is
//! there. What must never live here: on which machines that is so, and how much of it is work (that is `policy`).

use std::collections::VecDeque;
use std::time::Duration;

use super::{Reading, Sample};

/// The mean of a minute: within one second a timer or a monitor uses a whole core, and would hold an idle machine with every
/// burst. Much longer, and the silence after work is seen late.
const MEAN_OVER: Duration = Duration::from_secs(60);

/// The processor time of the rest over the last minute.
#[derive(Clone, Debug, Default)]
pub struct RestCpu {
    /// When, and how much it had used until then. The first is a minute old, as soon as there is such a one.
    seen: VecDeque<(Duration, Duration)>,
}

impl RestCpu {
    /// Takes one sample in; gives percent of **one** core.
    pub fn take(&mut self, sample: &Sample) -> Reading<f64> {
        let used = match (&sample.machine_cpu, &sample.tree_cpu) {
            (Reading::Known(machine), Reading::Known(tree)) => machine.saturating_sub(*tree),
            (Reading::Unknown(why), _) | (_, Reading::Unknown(why)) => return Reading::Unknown(why.clone()),
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

    /// Another workload has another tree: nothing can be compared with what was before.
    pub fn forget(&mut self) {
        self.seen.clear();
    }
}
