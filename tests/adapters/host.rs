//! What the sensors say of real processes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lamplighter::adapters::host::sensors::{SensorOptions, SystemSensors, system_sensors};
use lamplighter::instance::{IoCounters, Reading, Sample};
use lamplighter::ports::{Scope, Sensors};

use crate::workload::workload::LONG;

/// A shell whose lines we write; it and its children are killed with the guard.
struct Shell(Child);

impl Shell {
    fn start() -> Shell {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.arg("-s").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        Shell(command.spawn().expect("sh exists"))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().expect("it was asked for"), "{line}")
            .expect("the shell reads");
    }

    fn scope(&self) -> Scope {
        Scope { root_pid: Some(self.0.id()), workdir: "/".into(), ..Scope::default() }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn sensors() -> SystemSensors {
    system_sensors(&SensorOptions {
        nvml_library: "/nowhere/libnvidia-ml.so.1".into(),
        ..SensorOptions::default()
    })
}

/// Samples until the condition holds; gives that sample.
fn until(
    what: &str,
    sensors: &mut SystemSensors,
    scope: &Scope,
    mut holds: impl FnMut(&Sample) -> bool,
) -> Sample {
    let end = Instant::now() + LONG;
    loop {
        let sample = sensors.sample(scope);
        if holds(&sample) {
            return sample;
        }
        assert!(Instant::now() < end, "not within {LONG:?}: {what}; the last sample: {sample:?}");
        std::thread::yield_now();
    }
}

fn known<T: Clone + std::fmt::Debug>(reading: &Reading<T>) -> T {
    reading.known().cloned().unwrap_or_else(|| panic!("should be known: {reading:?}"))
}

#[test]
fn machine_is_read() {
    let mut sensors = sensors();
    let sample = sensors.sample(&Scope { workdir: "/".into(), ..Scope::default() });
    assert!(sample.cores >= 1);
    let (used, total) = known(&sample.machine_memory_bytes);
    assert!(0 < used && used < total);
    assert!(known(&sample.machine_cpu) > Duration::ZERO);
    assert!(known(&sample.disk_free_bytes) > 0);
    assert_eq!(sample.gpus, Reading::Absent);
    assert_eq!(known(&sample.tree_processes), 0, "nothing runs");
    assert_eq!(known(&sample.tree_cpu), Duration::ZERO);
}

#[test]
fn busy_child_takes_about_one_core() {
    let mut shell = Shell::start();
    shell.say("while :; do :; done & wait");
    let (scope, mut sensors) = (shell.scope(), sensors());
    let first = until("the loop runs", &mut sensors, &scope, |sample| {
        known(&sample.tree_processes) == 2 && known(&sample.tree_cpu) > Duration::ZERO
    });
    let used = |sample: &Sample| known(&sample.tree_cpu).saturating_sub(known(&first.tree_cpu));
    // Long beside the pause that a busy machine makes between the two clocks that a sample reads.
    let last = until("it has used two seconds", &mut sensors, &scope, |sample| {
        used(sample) >= Duration::from_secs(2)
    });
    let share = used(&last).as_secs_f64() / (last.mono - first.mono).as_secs_f64();
    assert!(share < 1.5, "one loop cannot take more than one core: {share}");
    assert!(known(&last.tree_memory_bytes) > 100_000);
    assert!(
        known(&last.machine_cpu) - known(&first.machine_cpu) >= Duration::from_millis(100),
        "the machine was busy as well"
    );
}

#[test]
fn time_of_children_that_ended_stays_counted() {
    let mut shell = Shell::start();
    let (scope, mut sensors) = (shell.scope(), sensors());
    sensors.sample(&scope);
    shell.say("i=0; (while [ $i -lt 200000 ]; do i=$((i+1)); done)");
    let busy = until("the child worked", &mut sensors, &scope, |sample| {
        known(&sample.tree_cpu) >= Duration::from_millis(30)
    });
    let after =
        until("it has ended", &mut sensors, &scope, |sample| known(&sample.tree_processes) == 1);
    assert!(known(&after.tree_cpu) >= known(&busy.tree_cpu));
}

/// A folder on a real disk: writes to memory file systems never reach storage.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target folder can be written")
}

fn write_and_end(file: &Path) -> String {
    format!("dd if=/dev/zero of={} bs=1M count=4 conv=fsync 2>/dev/null", file.display())
}

#[test]
fn bytes_to_disk_never_go_back_when_processes_end() {
    let dir = on_disk();
    let file: PathBuf = dir.path().join("data");
    let mut shell = Shell::start();
    let (scope, mut sensors) = (shell.scope(), sensors());
    let first = sensors.sample(&scope);
    if first.tree_disk == Reading::Absent {
        return; // A kernel that does not count.
    }
    let mut last = IoCounters::default();
    let mut forward = |sample: &Sample| {
        let now = known(&sample.tree_disk);
        assert!(
            now.written_bytes >= last.written_bytes && now.read_bytes >= last.read_bytes,
            "{now:?} after {last:?}"
        );
        last = now;
        now.written_bytes
    };
    let begin = forward(&first);
    shell.say(&format!("{} &", write_and_end(&file)));
    let mut wanted = begin + (4 << 20);
    until("the writer's bytes are counted", &mut sensors, &scope, |sample| {
        forward(sample) >= wanted
    });
    shell.say("wait");
    until("the writer has ended", &mut sensors, &scope, |sample| {
        forward(sample);
        known(&sample.tree_processes) == 1
    });
    // A grandchild with bytes of its own leaves the tree when its parent is killed, and nobody in
    // the tree inherits them.
    shell.say(&format!("sh -c 'sh -c \"{}; sleep 600\"; true' &", write_and_end(&file)));
    wanted += 4 << 20;
    until("the grandchild's bytes are counted", &mut sensors, &scope, |sample| {
        forward(sample) >= wanted
    });
    shell.say("kill -9 $!; wait; true | cat");
    until("the grandchild has left", &mut sensors, &scope, |sample| {
        forward(sample);
        known(&sample.tree_processes) == 1
    });
    shell.say(&format!("{}; wait", write_and_end(&file)));
    wanted += 4 << 20;
    until("what comes after is counted", &mut sensors, &scope, |sample| forward(sample) >= wanted);
}

#[test]
fn whole_machine_is_everything_but_ourselves() {
    let mut sensors = sensors();
    let scope = Scope { whole_machine: true, workdir: "/".into(), ..Scope::default() };
    let first = sensors.sample(&scope);
    assert!(known(&first.tree_processes) >= 1);
    assert!(known(&first.tree_disk).read_bytes > 0, "the machine was booted from something");
    let mut shell = Shell::start();
    shell.say("while :; do :; done");
    until("another process is busy", &mut sensors, &scope, |sample| {
        known(&sample.tree_cpu).saturating_sub(known(&first.tree_cpu)) >= Duration::from_millis(100)
    });
}

#[test]
fn cgroup_says_what_its_ended_processes_used() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let shell = Shell::start();
    let put = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("it can be written")
    };
    put("cgroup.procs", &format!("{}\n", shell.0.id()));
    put("cpu.stat", "usage_usec 5000000\n");
    let scope = Scope { cgroup: Some(dir.path().into()), ..shell.scope() };
    let mut sensors = sensors();
    assert_eq!(known(&sensors.sample(&scope).tree_cpu), Duration::from_secs(5));
    put("cpu.stat", "usage_usec 6500000\n");
    let sample = sensors.sample(&scope);
    assert_eq!(known(&sample.tree_cpu), Duration::from_millis(6500));
    assert_eq!(known(&sample.tree_processes), 1);
}

#[test]
fn workdir_that_is_gone_is_unknown() {
    assert!(
        sensors()
            .sample(&Scope { workdir: "/nowhere".into(), ..Scope::default() })
            .disk_free_bytes
            .is_unknown()
    );
}
