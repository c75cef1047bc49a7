//! What counts as a broken machine, and what as a workload that copes.

use lamplighter::instance::{GpuHealth, GpuSample, Rates, Reading};
use lamplighter::job::GpuSelection;
use lamplighter::policy::HardwareWatch;

fn gpu(index: u32, xids: &[u64], lost: bool) -> GpuSample {
    GpuSample {
        index,
        uuid: String::new(),
        name: String::new(),
        util_percent: Reading::Absent,
        memory_util_percent: Reading::Absent,
        memory_used_mib: Reading::Absent,
        memory_total_mib: Reading::Absent,
        power_watts: Reading::Absent,
        power_limit_watts: Reading::Absent,
        clock_mhz: Reading::Absent,
        temperature_celsius: Reading::Absent,
        used_by_workload: Reading::Absent,
        used_by_others: Reading::Absent,
        throttled_by: Reading::Absent,
        processes: Vec::new(),
        ecc_uncorrected: Reading::Absent,
        xids: xids.to_vec(),
        health: GpuHealth::default(),
        lost: lost.then(|| "GPU is lost".into()),
    }
}

/// A watch, and what each second shows.
struct Machine {
    watch: HardwareWatch,
    gpus: Reading<Vec<GpuSample>>,
    selection: GpuSelection,
}

impl Machine {
    fn new(gpus: Vec<GpuSample>) -> Self {
        Machine {
            watch: HardwareWatch::default(),
            gpus: Reading::Known(gpus),
            selection: GpuSelection::Workload,
        }
    }

    fn show(&mut self, gpus: Vec<GpuSample>) {
        self.gpus = Reading::Known(gpus);
    }

    /// So many seconds, in each of which so many marks were left and so many bytes printed.
    fn pass(&mut self, secs: u32, marks: f64, printed: f64) {
        for _ in 0..secs {
            let rates = Rates {
                interval_secs: 1.0,
                progress_marks: Reading::Known(marks),
                log_bytes: Reading::Known(printed),
                ..Rates::default()
            };
            self.watch.step(&self.gpus, &self.selection, Some(&rates));
        }
    }

    fn hangs(&self) -> bool {
        self.watch.fault().is_some_and(|fault| fault.hangs())
    }
}

#[test]
fn gpu_off_the_bus_and_three_silent_minutes_are_a_hang() {
    let mut machine = Machine::new(vec![gpu(0, &[], false), gpu(1, &[], false)]);
    machine.pass(600, 1.0, 10.0);
    assert_eq!(machine.watch.fault(), None);
    machine.show(vec![gpu(0, &[], false), gpu(1, &[79], true)]);
    // Errors are printed all the time: of a workload that reports its steps that is no progress.
    machine.pass(100, 0.0, 500.0);
    assert_eq!(
        machine.watch.fault().expect("it is told at once").text,
        "GPU 1: GPU is lost (Xid 79)"
    );
    assert!(!machine.hangs());
    machine.pass(90, 0.0, 500.0);
    assert!(machine.hangs());
}

#[test]
fn workload_on_the_other_gpus_goes_on() {
    let mut machine = Machine::new(vec![gpu(0, &[79], true), gpu(1, &[], false)]);
    for _ in 0..20 {
        machine.pass(150, 0.0, 0.0);
        machine.pass(1, 1.0, 0.0);
        assert!(machine.watch.fault().is_some() && !machine.hangs(), "lost, and no obstacle");
    }
    let mut chosen = Machine::new(vec![gpu(0, &[79], true), gpu(1, &[], false)]);
    chosen.selection = GpuSelection::Indices(vec![1]);
    chosen.pass(1000, 0.0, 0.0);
    assert_eq!(chosen.watch.fault(), None, "the job file says that GPU 0 is not the job's");
}

#[test]
fn xid_that_the_workload_survives_is_forgotten_until_the_next() {
    let mut machine = Machine::new(vec![gpu(0, &[13, 31], false)]);
    machine.pass(300, 1.0, 0.0);
    assert_eq!(machine.watch.fault(), None, "these are the program's own mistakes");
    machine.show(vec![gpu(0, &[13, 31, 48], false)]);
    machine.pass(30, 1.0, 0.0);
    assert!(machine.watch.fault().is_some());
    machine.pass(60, 1.0, 0.0);
    assert_eq!(machine.watch.fault(), None);
    machine.show(vec![gpu(0, &[13, 31, 48, 48], false)]);
    machine.pass(1, 0.0, 0.0);
    assert!(machine.watch.fault().is_some());
}

/// Seed 16000692 of 24 h: the driver answered late, and showed no GPU at all.
#[test]
fn no_gpu_at_all_is_a_fault_where_the_job_asks_for_one() {
    for (asked, hangs) in [(true, true), (false, false)] {
        let mut machine = Machine::new(Vec::new());
        machine.watch = HardwareWatch::new(asked);
        machine.pass(600, 1.0, 0.0);
        assert!(!machine.hangs(), "it does well without");
        machine.pass(200, 0.0, 0.0);
        assert_eq!(machine.hangs(), hangs, "asked: {asked}");
    }
}

#[test]
fn driver_that_does_not_answer_is_no_broken_machine() {
    let mut machine = Machine::new(vec![gpu(0, &[], false)]);
    machine.pass(60, 1.0, 0.0);
    machine.gpus = Reading::unknown("driver and library do not match");
    machine.pass(3600, 0.0, 0.0);
    assert_eq!(machine.watch.fault(), None);
}

#[test]
fn long_steps_are_waited_for_and_never_longer_than_ten_minutes() {
    let mut machine = Machine::new(vec![gpu(0, &[], false)]);
    for _ in 0..3 {
        machine.pass(150, 0.0, 0.0);
        machine.pass(1, 1.0, 0.0);
    }
    machine.show(vec![gpu(0, &[], true)]);
    machine.pass(290, 0.0, 0.0);
    assert!(!machine.hangs());
    machine.pass(20, 0.0, 0.0);
    assert!(machine.hangs(), "twice its longest silence");
    let mut slow = Machine::new(vec![gpu(0, &[], false)]);
    slow.pass(3600, 0.0, 0.0);
    slow.show(vec![gpu(0, &[], true)]);
    slow.pass(430, 0.0, 0.0);
    assert!(slow.hangs());
}
