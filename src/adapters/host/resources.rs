//! Processors, memory and storage: of the workload's tree and of the machine.
//!
//! ```text
//!   Scope -> Tree -> Meters (per process) -.
//!        `-> cgroup cpu.stat / cpuacct ----+-> Counter (never goes back) -> HostReadings
//!   /proc/stat, /proc/vmstat, sysinfo -----'
//! ```
//! If the whole machine is watched, the "tree" is everything but the agent. Not here: rates,
//! thresholds, users (`keyboard_activity`), the network (`network`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use super::kernel_file::ProcFile;
use super::monotonic_counter::MonotonicCounter;
use super::process_scope::WorkloadTree;
use super::process_usage::{DiskUsage, Meters, Usage, cpu_ticks};
use crate::instance::{IoCounters, Reading};
use crate::ports::Scope;

/// How long the machine's process count is reused: it takes a listing of `/proc`, and no decision
/// uses it.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// How long the machine's memory and free disk space are reused: people read them, and a few
/// seconds decide nothing.
const ROOM_EVERY: Duration = Duration::from_secs(5);

/// One reading of [`HostSensors`]; the fields are those in `instance::Sample`.
#[derive(Debug)]
pub(crate) struct HostReadings {
    pub tree_cpu: Reading<Duration>,
    pub machine_cpu: Reading<Duration>,
    pub cores: u32,
    pub tree_memory_bytes: Reading<u64>,
    pub machine_memory_bytes: Reading<(u64, u64)>,
    pub tree_disk: Reading<IoCounters>,
    pub tree_processes: Reading<u32>,
    pub disk_free_bytes: Reading<u64>,
}

/// Reads the machine and the tree; keeps open files and counts.
pub(crate) struct HostSensors {
    tree: WorkloadTree,
    meters: Meters,
    cgroup: CgroupCpu,
    cpu: MonotonicCounter<CounterSource>,
    read: MonotonicCounter<CounterSource>,
    written: MonotonicCounter<CounterSource>,
    machine: ProcFile,
    own: ProcFile,
    vmstat: ProcFile,
    memory: Option<System>,
    room: Option<Room>,
    processes: Option<(Duration, u32)>,
    cores: u32,
    ticks_per_sec: u64,
    page_bytes: u64,
    buffer: Vec<u8>,
}

/// Memory and disk space as of a moment ago.
struct Room {
    at: Duration,
    workdir: PathBuf,
    memory: Reading<(u64, u64)>,
    disk_free: Reading<u64>,
}

/// The source of a counter: only values of one source can be subtracted.
#[derive(Debug, PartialEq)]
enum CounterSource {
    Processes(Option<u32>),
    Cgroup(PathBuf),
    Machine,
}

impl HostSensors {
    pub fn new() -> Self {
        HostSensors {
            tree: WorkloadTree::default(),
            meters: Meters::default(),
            cgroup: CgroupCpu::default(),
            cpu: MonotonicCounter::default(),
            read: MonotonicCounter::default(),
            written: MonotonicCounter::default(),
            machine: ProcFile::new("/proc/stat"),
            own: ProcFile::new("/proc/self/stat"),
            vmstat: ProcFile::new("/proc/vmstat"),
            memory: System::new_with_specifics(RefreshKind::nothing()).ok(),
            room: None,
            processes: None,
            cores: cores(),
            ticks_per_sec: rustix::param::clock_ticks_per_second().max(1),
            page_bytes: rustix::param::page_size() as u64,
            buffer: Vec::new(),
        }
    }

    pub fn tree(&self) -> &WorkloadTree {
        &self.tree
    }

    pub fn read(&mut self, scope: &Scope, now: Duration) -> HostReadings {
        self.tree.refresh(scope, now);
        let machine = self.machine_ticks();
        let (memory, disk_free) = self.room(&scope.workdir, now);
        let readings = HostReadings {
            tree_cpu: Reading::Absent,
            machine_cpu: machine.as_ref().map(|ticks| self.time(*ticks)),
            cores: self.cores,
            tree_memory_bytes: Reading::Absent,
            machine_memory_bytes: memory,
            tree_disk: Reading::Absent,
            tree_processes: Reading::Absent,
            disk_free_bytes: disk_free,
        };
        if scope.whole_machine {
            self.everything(readings, machine, now)
        } else {
            self.the_tree(readings, scope)
        }
    }

    fn the_tree(&mut self, readings: HostReadings, scope: &Scope) -> HostReadings {
        let usage = self.meters.read(self.tree.pids());
        if !usage.gone.is_empty() {
            self.tree.forget(&usage.gone);
        }
        let by_cgroup =
            scope.cgroup.as_deref().and_then(|cgroup| self.cgroup.used(cgroup, &mut self.buffer));
        let cpu_nanos = match (by_cgroup, &scope.cgroup) {
            (Some(nanos), Some(cgroup)) => {
                self.cpu.feed(CounterSource::Cgroup(cgroup.clone()), nanos)
            }
            _ => {
                self.cpu.feed(CounterSource::Processes(scope.root_pid), self.nanos(usage.cpu_ticks))
            }
        };
        HostReadings {
            tree_cpu: Reading::Known(Duration::from_nanos(cpu_nanos)),
            tree_memory_bytes: Reading::Known(usage.resident_pages * self.page_bytes),
            tree_processes: Reading::Known(usage.processes),
            tree_disk: self.disk(usage, scope),
            ..readings
        }
    }

    fn disk(&mut self, usage: Usage, scope: &Scope) -> Reading<IoCounters> {
        match usage.disk {
            DiskUsage::Bytes { read, written } => Reading::Known(IoCounters {
                read_bytes: self.read.feed(CounterSource::Processes(scope.root_pid), read),
                written_bytes: self.written.feed(CounterSource::Processes(scope.root_pid), written),
            }),
            DiskUsage::NotCounted => Reading::Absent,
            DiskUsage::Unreadable(why) => Reading::Unknown(why),
        }
    }

    fn everything(
        &mut self,
        readings: HostReadings,
        machine: Reading<u64>,
        now: Duration,
    ) -> HostReadings {
        let own = self.own.read(&mut self.buffer).ok().and_then(cpu_ticks).unwrap_or(0);
        let others = machine.map(|ticks| {
            self.cpu.feed(CounterSource::Machine, self.nanos(ticks.saturating_sub(own)))
        });
        if self.processes.is_none_or(|(at, _)| now.saturating_sub(at) >= COUNT_EVERY) {
            self.processes = Some((now, super::process_tree::count().saturating_sub(1)));
        }
        HostReadings {
            tree_cpu: others.map(Duration::from_nanos),
            tree_memory_bytes: readings.machine_memory_bytes.as_ref().map(|(used, _)| *used),
            tree_processes: self
                .processes
                .map_or(Reading::Absent, |(_, count)| Reading::Known(count)),
            tree_disk: self.machine_disk(),
            ..readings
        }
    }

    /// Busy time of all cores: without idle, I/O wait and steal time.
    fn machine_ticks(&mut self) -> Reading<u64> {
        match self.machine.first_line(&mut self.buffer) {
            Ok(line) => parse_busy(line)
                .map_or_else(|| Reading::unknown("/proc/stat cannot be read"), Reading::Known),
            Err(error) => Reading::Unknown(format!("/proc/stat: {error}")),
        }
    }

    fn room(&mut self, workdir: &Path, now: Duration) -> (Reading<(u64, u64)>, Reading<u64>) {
        let fresh =
            |room: &&Room| room.workdir == workdir && now.saturating_sub(room.at) < ROOM_EVERY;
        if let Some(room) = self.room.as_ref().filter(fresh) {
            return (room.memory.clone(), room.disk_free.clone());
        }
        let (memory, disk_free) = (self.machine_memory(), disk_free(workdir));
        self.room = Some(Room {
            at: now,
            workdir: workdir.to_owned(),
            memory: memory.clone(),
            disk_free: disk_free.clone(),
        });
        (memory, disk_free)
    }

    /// (used, total); used is what programs cannot have now.
    fn machine_memory(&mut self) -> Reading<(u64, u64)> {
        let Some(system) = &mut self.memory else {
            return Reading::unknown("memory cannot be read");
        };
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        match system.total_memory() {
            0 => Reading::unknown("/proc/meminfo cannot be read"),
            total => Reading::Known((total.saturating_sub(system.available_memory()), total)),
        }
    }

    /// All traffic of block devices, including the agent's few bytes.
    fn machine_disk(&mut self) -> Reading<IoCounters> {
        let read = self.vmstat.read(&mut self.buffer).ok().and_then(parse_paged);
        match read {
            Some((read, written)) => Reading::Known(IoCounters {
                read_bytes: self.read.feed(CounterSource::Machine, read),
                written_bytes: self.written.feed(CounterSource::Machine, written),
            }),
            None => Reading::unknown("/proc/vmstat cannot be read"),
        }
    }

    fn nanos(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(1_000_000_000 / self.ticks_per_sec)
    }

    fn time(&self, ticks: u64) -> Duration {
        Duration::from_nanos(self.nanos(ticks))
    }
}

/// Processor time of a cgroup, including its ended processes.
#[derive(Debug, Default)]
struct CgroupCpu {
    cgroup: PathBuf,
    file: Option<ProcFile>,
    v1: bool,
}

impl CgroupCpu {
    /// In nanoseconds; `None`: this cgroup does not say.
    fn used(&mut self, cgroup: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
        if self.cgroup != cgroup {
            let v2 = cgroup.join("cpu.stat");
            let v1 = cgroup.join("cpuacct.usage");
            self.v1 = v1.exists();
            self.file = Some(ProcFile::new(if self.v1 { v1 } else { v2 }));
            self.cgroup = cgroup.to_owned();
        }
        let text = self.file.as_mut()?.read(buffer).ok()?;
        if self.v1 {
            return text.trim().parse().ok();
        }
        let micros: u64 =
            text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
        micros.checked_mul(1000)
    }
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; user includes guest.
fn parse_busy(line: &str) -> Option<u64> {
    let fields: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let field = |at: usize| fields.get(at).copied();
    Some(field(0)? + field(1)? + field(2)? + field(5).unwrap_or(0) + field(6).unwrap_or(0))
}

/// Bytes, from counters in KiB.
fn parse_paged(vmstat: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        vmstat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((field("pgpgin ")? * 1024, field("pgpgout ")? * 1024))
}

/// All processors of the machine, even if this process may use fewer.
fn cores() -> u32 {
    let mut buffer = Vec::new();
    let listed = ProcFile::new("/proc/stat")
        .read(&mut buffer)
        .map(|text| text.lines().filter(|line| is_core(line)).count());
    listed.ok().filter(|count| *count > 0).and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

fn is_core(line: &str) -> bool {
    line.strip_prefix("cpu")
        .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Space for an unprivileged writer.
fn disk_free(workdir: &Path) -> Reading<u64> {
    if workdir.as_os_str().is_empty() {
        return Reading::Absent;
    }
    match rustix::fs::statvfs(workdir) {
        Ok(found) => Reading::Known(found.f_bavail.saturating_mul(found.f_frsize)),
        Err(errno) => Reading::Unknown(format!("{}: {errno}", workdir.display())),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "lays out the files that are read")]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_not_busy() {
        assert_eq!(parse_busy("cpu  100 1 20 5000 999 3 4 77 50 0"), Some(100 + 1 + 20 + 3 + 4));
        assert_eq!(parse_busy("cpu0 1 2 3"), None);
        assert_eq!(parse_busy("intr 5"), None);
    }

    #[test]
    fn paging_counts_in_kib() {
        assert_eq!(
            parse_paged("nr_free_pages 1\npgpgin 10\npgpgout 20\n"),
            Some((10 * 1024, 20 * 1024))
        );
        assert_eq!(parse_paged("nr_free_pages 1\n"), None);
    }

    #[test]
    fn cgroup_says_what_it_used() {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let mut buffer = Vec::new();
        assert_eq!(CgroupCpu::default().used(dir.path(), &mut buffer), None, "no file, no answer");
        std::fs::write(
            dir.path().join("cpu.stat"),
            "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
        )
        .expect("it can be written");
        assert_eq!(CgroupCpu::default().used(dir.path(), &mut buffer), Some(1_500_000));
        std::fs::write(dir.path().join("cpuacct.usage"), "42\n").expect("it can be written");
        assert_eq!(
            CgroupCpu::default().used(dir.path(), &mut buffer),
            Some(42),
            "version 1 counts in nanoseconds"
        );
    }

    #[test]
    fn free_space_of_nowhere_is_unknown() {
        assert!(disk_free(Path::new("/nowhere/at/all")).is_unknown());
        assert_eq!(disk_free(Path::new("")), Reading::Absent);
        assert!(disk_free(Path::new("/")).known().is_some());
    }
}
