//! Network bytes that are not the agent's own.
//!
//! Cgroups do not count network bytes. So this is the machine's traffic less the bytes that the
//! agent reports. Otherwise the upload of its own log would keep a machine from idling. Not here:
//! the peers.

use std::collections::HashMap;
use std::path::Path;

use super::kernel_file::ProcFile;
use crate::instance::{IoCounters, Reading};

/// The part of the agent's reported bytes still expected one sample later. The agent counts a
/// request some seconds before or after its bytes are sent. Smaller shows the rest as the
/// workload's traffic. Larger hides the workload's traffic after a transfer over loopback.
const CREDIT_KEPT: f64 = 0.875;

pub(crate) struct Network {
    file: ProcFile,
    hardware: HashMap<String, bool>,
    buffer: Vec<u8>,
    last: Option<Totals>,
    own_last: u64,
    credit: u64,
    counted: IoCounters,
}

/// Sums over all interfaces that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    received: u64,
    sent: u64,
}

impl Network {
    pub fn new() -> Self {
        Network {
            file: ProcFile::new("/proc/net/dev"),
            hardware: HashMap::new(),
            buffer: Vec::new(),
            last: None,
            own_last: 0,
            credit: 0,
            counted: IoCounters::default(),
        }
    }

    /// `own`: bytes that the agent moved since it started.
    pub fn read(&mut self, own: u64) -> Reading<IoCounters> {
        let totals = match self.file.read(&mut self.buffer) {
            Ok(text) => totals(text, |name| {
                *self.hardware.entry(name.into()).or_insert_with(|| is_hardware(name))
            }),
            Err(error) => return Reading::Unknown(format!("/proc/net/dev: {error}")),
        };
        match totals {
            Some(totals) => Reading::Known(self.count(totals, own)),
            None => Reading::Absent,
        }
    }

    fn count(&mut self, now: Totals, own: u64) -> IoCounters {
        let before = self.last.replace(now);
        let announced = own.saturating_sub(std::mem::replace(&mut self.own_last, own));
        let Some(before) = before else { return self.counted };
        self.credit = (self.credit as f64 * CREDIT_KEPT) as u64 + announced;
        let mut less = |bytes: u64| {
            let own = bytes.min(self.credit);
            self.credit -= own;
            bytes - own
        };
        // Sent first: the agent mostly sends logs and checkpoints.
        self.counted.written_bytes += less(now.sent.saturating_sub(before.sent));
        self.counted.read_bytes += less(now.received.saturating_sub(before.received));
        self.counted
    }
}

/// `None`: there is only loopback. If there is hardware, only hardware counts: bytes of a bridge,
/// tunnel or container pass through it too.
fn totals(text: &str, mut is_hardware: impl FnMut(&str) -> bool) -> Option<Totals> {
    let mut all = None;
    let mut hardware = None;
    for (name, found) in text.lines().filter_map(interface) {
        if name == "lo" {
            continue;
        }
        let add = |sum: &mut Option<Totals>| {
            let sum = sum.get_or_insert_with(Totals::default);
            sum.received += found.received;
            sum.sent += found.sent;
        };
        add(&mut all);
        if is_hardware(name) {
            add(&mut hardware);
        }
    }
    hardware.or(all)
}

/// `  eth0: received packets errs drop fifo frame compressed multicast sent ...`
fn interface(line: &str) -> Option<(&str, Totals)> {
    let (name, numbers) = line.split_once(':')?;
    let mut fields = numbers.split_ascii_whitespace();
    let received = fields.next()?.parse().ok()?;
    let sent = fields.nth(7)?.parse().ok()?;
    Some((name.trim(), Totals { received, sent }))
}

fn is_hardware(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("device").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 900 6 0 0 0 0 0 0 900 6 0 0 0 0 0 0
docker0: 50 1 0 0 0 0 0 0 60 1 0 0 0 0 0 0
  eth0: 1000 6 0 0 0 0 0 0 300 6 0 0 0 0 0 0
  eth1: 5 6 0 0 0 0 0 0 7 6 0 0 0 0 0 0
";

    #[test]
    fn hardware_counts_once_and_loopback_never() {
        assert_eq!(
            totals(DEV, |name| name.starts_with("eth")),
            Some(Totals { received: 1005, sent: 307 })
        );
        assert_eq!(
            totals(DEV, |_| false),
            Some(Totals { received: 1055, sent: 367 }),
            "inside a container nothing is hardware"
        );
        let only_loopback: String = DEV.lines().take(3).map(|line| format!("{line}\n")).collect();
        assert_eq!(totals(&only_loopback, |_| false), None);
    }

    fn at(received: u64, sent: u64) -> Totals {
        Totals { received, sent }
    }

    #[test]
    fn agents_own_bytes_are_left_out() {
        let mut network = Network::new();
        network.count(at(1000, 1000), 0);
        assert_eq!(
            network.count(at(1000, 6000), 5000),
            IoCounters { read_bytes: 0, written_bytes: 0 }
        );
        assert_eq!(
            network.count(at(1300, 6000), 5000),
            IoCounters { read_bytes: 300, written_bytes: 0 },
            "this is somebody else's"
        );
    }

    #[test]
    fn bytes_announced_early_are_still_the_agents_when_they_come() {
        let mut network = Network::new();
        network.count(at(0, 0), 0);
        network.count(at(0, 1000), 4000);
        network.count(at(0, 2000), 4000);
        assert_eq!(network.count(at(0, 3000), 4000).written_bytes, 0);
    }

    #[test]
    fn what_was_announced_and_never_came_is_forgotten() {
        let mut network = Network::new();
        network.count(at(0, 0), 0);
        network.count(at(0, 0), 1_000_000);
        for _ in 0..120 {
            network.count(at(0, 0), 1_000_000);
        }
        let before = network.counted.written_bytes;
        assert!(network.count(at(0, 1000), 1_000_000).written_bytes > before + 900);
    }

    #[test]
    fn interface_that_begins_anew_is_no_traffic() {
        let mut network = Network::new();
        network.count(at(5000, 5000), 0);
        assert_eq!(network.count(at(10, 10), 0), IoCounters::default());
    }
}
