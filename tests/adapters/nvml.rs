//! The real NVML path against the fake library: each script, and what the sensors make of it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lamplighter::adapters::host::sensors::{SensorOptions, SystemSensors, system_sensors};
use lamplighter::instance::{GpuHealth, GpuSample, Reading, Sample};
use lamplighter::market::Cuda;
use lamplighter::ports::{Scope, SensorFeed, Sensors};

use lamp_test_support::fake_nvml::{BUSY, FakeNvml, HANG, IDLE, LOST, MISMATCH};

/// The tests may run where there are GPUs.
const NO_DEVICE: &str = "/nowhere/nvidiactl";

/// A machine with scripted GPUs whose driver problems are looked at again at each sample.
struct Bench {
    _dir: tempfile::TempDir,
    fake: FakeNvml,
    sensors: SystemSensors,
}

impl Bench {
    fn playing(script: &str) -> Bench {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let fake = FakeNvml::in_dir(dir.path());
        fake.play(script);
        let options = SensorOptions {
            nvml_library: fake.library().into(),
            nvidia_device: NO_DEVICE.into(),
            nvml_retry_every: Duration::ZERO,
        };
        Bench { _dir: dir, fake, sensors: system_sensors(&options) }
    }

    fn sample(&mut self) -> Sample {
        self.sensors.sample(&Scope::default())
    }

    fn gpus(&mut self) -> Vec<GpuSample> {
        match self.sample().gpus {
            Reading::Known(gpus) => gpus,
            other => panic!("no GPUs: {other:?}"),
        }
    }

    /// Stops the script's clock at a moment; the rest of the script as given.
    fn at(&mut self, seconds: f64, script: &str) -> GpuSample {
        self.fake.play(&format!("time {seconds}\n{script}"));
        self.gpus().remove(0)
    }
}

fn unknown_why<T: std::fmt::Debug>(reading: &Reading<T>) -> &str {
    match reading {
        Reading::Unknown(why) => why,
        other => panic!("should be unknown: {other:?}"),
    }
}

#[test]
fn driver_says_which_cuda_it_runs() {
    let cuda = |script: &str| Bench::playing(script).sample().cuda;
    assert_eq!(cuda(BUSY), Reading::Known(Cuda { major: 12, minor: 4 }));
    assert_eq!(cuda(&format!("{BUSY}cuda 13010\n")), Reading::Known(Cuda { major: 13, minor: 1 }));
    assert!(matches!(cuda("init mismatch"), Reading::Unknown(_)));
    assert_eq!(cuda("init not-loaded"), Reading::Absent);
}

#[test]
fn busy_gpu_is_read_in_full() {
    let mut bench = Bench::playing(&format!("gpus 2\n{BUSY}gpu 1 util 12\ngpu 0 ecc 3\n"));
    let gpus = bench.gpus();
    assert_eq!(gpus.len(), 2);
    let gpu = &gpus[0];
    assert_eq!((gpu.index, gpu.uuid.as_str(), gpu.name.as_str()), (0, "GPU-fake-0", "Fake GPU"));
    assert_eq!(gpu.util_percent, Reading::Known(97.0));
    assert_eq!(gpu.memory_util_percent, Reading::Known(60.0));
    assert_eq!(
        (&gpu.memory_used_mib, &gpu.memory_total_mib),
        (&Reading::Known(40_000), &Reading::Known(81_920))
    );
    assert_eq!(gpu.power_watts, Reading::Known(350.0));
    assert_eq!(gpu.temperature_celsius, Reading::Known(68.0));
    assert_eq!(gpu.ecc_uncorrected, Reading::Known(3));
    assert_eq!(gpu.used_by_workload, Reading::Known(false));
    assert_eq!(gpus[1].util_percent, Reading::Known(12.0));
    assert_eq!(bench.sensors.gpu_problem(), None);
}

#[test]
fn idle_and_a_hung_gpu_are_told_apart_by_their_power() {
    let mut bench = Bench::playing(IDLE);
    assert_eq!(bench.gpus()[0].util_percent, Reading::Known(0.0));
    bench.fake.play(HANG);
    bench.gpus();
    let gpu = bench.gpus().remove(0);
    assert_eq!((gpu.util_percent, gpu.power_watts), (Reading::Known(100.0), Reading::Known(75.0)));
}

/// nvtop#109, distributed#5342: under WSL2 the driver counts no utilisation, says 0 and lists no
/// processes.
#[test]
fn zero_at_the_power_of_work_is_unknown() {
    for (script, known) in [
        ("gpu 0 power 250\ngpu 0 unsupported processes\n", false),
        ("gpu 0 power 60\ngpu 0 unsupported processes\n", true),
        ("gpu 0 power 250\n", true),
        ("gpu 0 util 5\ngpu 0 power 250\ngpu 0 unsupported processes\n", true),
        ("gpu 0 power 200\ngpu 0 power-limit 700\ngpu 0 unsupported processes\n", true),
        ("gpu 0 power 400\ngpu 0 power-limit 700\ngpu 0 unsupported processes\n", false),
        ("gpu 0 power 66\ngpu 0 power-limit 70\ngpu 0 unsupported processes\n", false),
    ] {
        let mut bench = Bench::playing(&format!("gpu 0 util 0\n{script}"));
        let util = bench.gpus().remove(0).util_percent;
        assert_eq!(util.known().is_some(), known, "{script}: {util:?}");
    }
}

#[test]
fn utilisation_is_the_mean_of_the_interval_not_of_the_moment() {
    // Busy for half of each second; every reading falls into a pause.
    let script = "period 0.1\ngpu 0 util 100 for 0.5, 0 for 0.5\n";
    let mut bench = Bench::playing("");
    bench.at(9.9, script);
    for second in 10..20 {
        let util = bench.at(f64::from(second) + 0.9, script).util_percent.known().copied().unwrap();
        assert!((util - 50.0).abs() <= 10.0, "{util} at {second}");
    }
}

/// To fetch the buffer costs fifty times as much as the latest value on a real driver.
#[test]
fn utilisation_mean_is_reused_only_while_the_gpu_works() {
    let (busy, other, resting) = (
        "period 0.1\ngpu 0 util 90\n",
        "period 0.1\ngpu 0 util 60\n",
        "period 0.1\ngpu 0 util 0\n",
    );
    let mut bench = Bench::playing("");
    for second in [10.0, 11.0] {
        assert_eq!(bench.at(second, busy).util_percent, Reading::Known(90.0), "at {second}");
    }
    assert_eq!(
        bench.at(12.0, other).util_percent,
        Reading::Known(90.0),
        "it works, and nobody has looked how much"
    );
    assert_eq!(
        bench.at(13.0, resting).util_percent,
        Reading::Known(0.0),
        "it may rest, and somebody has looked"
    );
    assert_eq!(bench.at(14.0, busy).util_percent, Reading::Known(90.0), "it works again");
}

#[test]
fn weak_blips_of_a_gpu_that_rests_are_told_second_by_second() {
    // Eighty milliseconds in ten seconds: over all of them less than what counts as quiet.
    let script = "period 0.02\ngpu 0 util 100 for 0.08, 0 for 9.92\n";
    let mut bench = Bench::playing("");
    bench.at(9.5, script);
    let told: Vec<f64> = (10..40)
        .map(|second| {
            bench.at(f64::from(second) + 0.5, script).util_percent.known().copied().unwrap()
        })
        .collect();
    assert_eq!(told.iter().filter(|percent| **percent > 1.0).count(), 3, "{told:?}");
}

#[test]
fn resting_gpu_is_not_busy_when_the_driver_stops_measuring() {
    let script = "dry\ngpu 0 util 90 for 20, 0\n";
    let mut bench = Bench::playing("");
    assert_eq!(bench.at(19.5, script).util_percent, Reading::Known(90.0));
    bench.at(21.0, script);
    for second in 22..60 {
        assert_eq!(
            bench.at(f64::from(second), script).util_percent,
            Reading::Known(0.0),
            "at {second}"
        );
    }
    let mut late = Bench::playing("");
    assert_eq!(
        late.at(500.0, script).util_percent,
        Reading::Known(0.0),
        "what is left in the buffer was before we looked"
    );
}

#[test]
fn driver_that_measures_slower_than_we_ask_is_still_believed() {
    let script = "period 5\ngpu 0 util 80\n";
    let mut bench = Bench::playing("");
    for second in 100..112 {
        assert_eq!(
            bench.at(f64::from(second), script).util_percent,
            Reading::Known(80.0),
            "at {second}"
        );
    }
}

#[test]
fn without_buffers_the_latest_value_is_taken() {
    let mut bench = Bench::playing("gpu 0 util 70\ngpu 0 unsupported samples\n");
    let gpu = bench.gpus().remove(0);
    assert_eq!(
        (gpu.util_percent, gpu.memory_util_percent),
        (Reading::Known(70.0), Reading::Known(35.0))
    );
}

#[test]
fn what_a_device_does_not_offer_is_absent() {
    let mut bench = Bench::playing(
        "gpu 0 unsupported util,memory-util,power,temperature,processes,ecc,events\n",
    );
    let gpu = bench.gpus().remove(0);
    assert_eq!((gpu.util_percent, gpu.memory_util_percent), (Reading::Absent, Reading::Absent));
    assert_eq!((gpu.power_watts, gpu.temperature_celsius), (Reading::Absent, Reading::Absent));
    assert_eq!(gpu.ecc_uncorrected, Reading::Absent);
    assert!(
        gpu.used_by_workload.is_unknown(),
        "nobody knows who holds it, which is not the same as nobody"
    );
    assert_eq!(gpu.memory_total_mib, Reading::Known(81_920), "the rest is read");
}

#[test]
fn old_driver_is_asked_in_the_old_way() {
    let mut bench = Bench::playing(&format!(
        "legacy\ngpu 0 memory 100/16384\ngpu 0 pids {}\n",
        std::process::id()
    ));
    let gpu = bench.gpus().remove(0);
    assert_eq!(
        (gpu.memory_used_mib, gpu.memory_total_mib),
        (Reading::Known(100), Reading::Known(16_384))
    );
    assert_eq!(gpu.used_by_others, Reading::Known(true));
}

#[test]
fn machine_without_the_library_has_no_gpus() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let options = SensorOptions {
        nvml_library: dir.path().join("libnvidia-ml.so.1"),
        nvidia_device: NO_DEVICE.into(),
        ..SensorOptions::default()
    };
    let mut sensors = system_sensors(&options);
    assert_eq!(sensors.sample(&Scope::default()).gpus, Reading::Absent);
    assert!(sensors.gpu_problem().expect("there is a reason").contains("libnvidia-ml.so.1"));
}

/// A container without the driver's `utility` part, or a library that was never installed: the
/// kernel's driver runs, and the workload may use its GPUs without NVML.
#[test]
fn driver_without_its_library_is_unknown_and_not_absent() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let device = dir.path().join("nvidiactl");
    std::fs::write(&device, "").expect("it can be written");
    let missing = SensorOptions {
        nvml_library: dir.path().join("libnvidia-ml.so.1"),
        nvidia_device: device.clone(),
        ..SensorOptions::default()
    };
    let mut sensors = system_sensors(&missing);
    let why = sensors.sample(&Scope::default()).gpus;
    assert!(
        unknown_why(&why).contains("nvidiactl") && unknown_why(&why).contains("libnvidia-ml.so.1"),
        "{why:?}"
    );

    let fake = FakeNvml::in_dir(dir.path());
    fake.play("init not-loaded\n");
    let mut sensors = system_sensors(&SensorOptions {
        nvml_library: fake.library().into(),
        nvidia_device: device,
        ..SensorOptions::default()
    });
    assert!(
        unknown_why(&sensors.sample(&Scope::default()).gpus)
            .contains("the NVIDIA driver is not loaded")
    );
}

#[test]
fn library_that_cannot_be_loaded_is_a_broken_machine() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let library = dir.path().join("libnvidia-ml.so.1");
    std::fs::write(&library, "not a library").expect("it can be written");
    let mut sensors =
        system_sensors(&SensorOptions { nvml_library: library, ..SensorOptions::default() });
    assert!(sensors.sample(&Scope::default()).gpus.is_unknown());
}

#[test]
fn unloaded_driver_is_absent_until_it_has_been_loaded_once() {
    let mut bench = Bench::playing("init not-loaded\n");
    assert_eq!(bench.sample().gpus, Reading::Absent);
    assert_eq!(bench.sensors.gpu_problem().as_deref(), Some("the NVIDIA driver is not loaded"));
    bench.fake.play(BUSY);
    assert_eq!(bench.gpus().len(), 1);
    assert_eq!(bench.sensors.gpu_problem(), None);
    bench.fake.play("init not-loaded\nbroken not-loaded\n");
    for _ in 0..3 {
        assert_eq!(
            unknown_why(&bench.sample().gpus),
            "the NVIDIA driver is not loaded",
            "it had a GPU, so it did not lose the need for one"
        );
    }
}

#[test]
fn a_driver_upgraded_under_us_is_unknown_and_mended_by_itself() {
    let mut bench = Bench::playing(BUSY);
    assert_eq!(bench.gpus().len(), 1);
    bench.fake.play(MISMATCH);
    for _ in 0..3 {
        assert!(unknown_why(&bench.sample().gpus).contains("different versions"));
    }
    bench.fake.play(BUSY);
    assert_eq!(bench.gpus()[0].util_percent, Reading::Known(97.0));
    assert_eq!(bench.sensors.gpu_problem(), None);
}

#[test]
fn mismatch_from_the_start_is_unknown_too() {
    let mut bench = Bench::playing(MISMATCH);
    assert!(bench.sample().gpus.is_unknown());
    bench.fake.play(IDLE);
    assert_eq!(bench.gpus().len(), 1);
}

#[test]
fn broken_driver_is_not_asked_more_often_than_agreed() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let fake = FakeNvml::in_dir(dir.path());
    fake.play(MISMATCH);
    let mut sensors = system_sensors(&SensorOptions {
        nvml_library: fake.library().into(),
        ..SensorOptions::default()
    });
    assert!(sensors.sample(&Scope::default()).gpus.is_unknown());
    fake.play(BUSY);
    assert!(sensors.sample(&Scope::default()).gpus.is_unknown(), "the minute is not over");
}

#[test]
fn of_two_gpus_one_is_lost() {
    let mut bench = Bench::playing(&format!("gpus 2\n{BUSY}"));
    assert_eq!(bench.gpus().len(), 2);
    bench.fake.play(&format!("gpus 2\n{BUSY}{LOST}gpu 0 xid 79\n"));
    for _ in 0..3 {
        let gpus = bench.gpus();
        assert_eq!(unknown_why(&gpus[0].util_percent), "GPU is lost");
        assert_eq!(unknown_why(&gpus[0].used_by_workload), "GPU is lost");
        assert_eq!(gpus[0].uuid, "GPU-fake-0", "which one it was stays known");
        assert_eq!(gpus[0].xids, [79], "and why");
        assert_eq!((gpus[0].lost.as_deref(), &gpus[1].lost), (Some("GPU is lost"), &None));
        assert_eq!(gpus[1].util_percent, Reading::Known(97.0), "the other goes on");
    }
    assert_eq!(bench.sensors.gpu_problem().as_deref(), Some("GPU 0: GPU is lost"));
    bench.fake.play(&format!("gpus 2\n{BUSY}"));
    let gpu = bench.gpus().remove(0);
    assert_eq!((gpu.util_percent, gpu.lost), (Reading::Known(97.0), None), "it came back");
    assert_eq!(bench.sensors.gpu_problem(), None);
}

#[test]
fn a_gpu_at_work_that_gives_errors_is_unknown_at_once() {
    let mut bench = Bench::playing(BUSY);
    for _ in 0..3 {
        assert_eq!(bench.gpus()[0].util_percent, Reading::Known(97.0));
    }
    bench.fake.play(&format!("{BUSY}gpu 0 fault unknown\n"));
    assert!(bench.gpus()[0].util_percent.is_unknown(), "not what it was before");
    assert!(bench.sensors.gpu_problem().is_some());
}

#[test]
fn gpu_that_gives_errors_is_unknown_until_it_no_longer_does() {
    let mut bench = Bench::playing("gpu 0 fault unknown\n");
    assert!(unknown_why(&bench.gpus()[0].util_percent).contains("internal driver error"));
    assert!(bench.sensors.gpu_problem().is_some());
    bench.fake.play(BUSY);
    assert_eq!(bench.gpus()[0].util_percent, Reading::Known(97.0));
    assert_eq!(bench.sensors.gpu_problem(), None);
}

#[test]
fn gpu_that_is_no_longer_counted_is_not_forgotten() {
    let mut bench = Bench::playing(&format!("gpus 2\n{BUSY}"));
    assert_eq!(bench.gpus().len(), 2);
    bench.fake.play("broken uninitialized\n");
    assert!(bench.sample().gpus.is_unknown());
    bench.fake.play(&format!("gpus 1\n{BUSY}"));
    let gpus = bench.gpus();
    assert_eq!(gpus[0].util_percent, Reading::Known(97.0));
    assert_eq!(unknown_why(&gpus[1].util_percent), "GPU is no longer there");
}

#[test]
fn xids_are_kept_in_their_order() {
    let mut bench = Bench::playing("gpus 2\ngpu 1 xid 13\n");
    bench.gpus();
    bench.fake.play("gpus 2\ngpu 1 xid 13\ngpu 1 xid 48\n");
    let gpus = bench.gpus();
    assert_eq!(gpus[0].xids, Vec::<u64>::new());
    assert_eq!(gpus[1].xids, [13, 48]);
}

struct Killed(Child);
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for its standard input to end.
fn child() -> Killed {
    Killed(Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat exists"))
}

#[test]
fn gpu_processes_are_the_workloads_or_others_or_unknown() {
    let (ours, theirs) = (child(), child());
    let nobody = 4_000_000_000_u32;
    let scope = Scope { root_pid: Some(ours.0.id()), ..Scope::default() };
    let case = |pids: &str| {
        let mut bench = Bench::playing(pids);
        let Reading::Known(gpus) = bench.sensors.sample(&scope).gpus else { panic!("no GPUs") };
        (gpus[0].used_by_workload.clone(), gpus[0].used_by_others.clone())
    };
    let (ours, theirs) = (ours.0.id(), theirs.0.id());
    assert_eq!(case(&format!("gpu 0 pids {ours}")), (Reading::Known(true), Reading::Known(false)));
    assert_eq!(
        case(&format!("gpu 0 pids {theirs}")),
        (Reading::Known(false), Reading::Known(true))
    );
    assert_eq!(
        case(&format!("gpu 0 pids {ours}\ngpu 0 graphics {theirs}")),
        (Reading::Known(true), Reading::Known(true))
    );
    assert_eq!(case(""), (Reading::Known(false), Reading::Known(false)));
    let (workload, others) = case(&format!("gpu 0 pids {nobody}"));
    assert!(workload.is_unknown() && others.is_unknown(), "it may live in another namespace");
    assert_eq!(case(&format!("gpu 0 pids {nobody},{ours}")).0, Reading::Known(true));
}

#[test]
fn when_the_whole_machine_is_watched_everybody_is_the_workload() {
    let theirs = child();
    let mut bench = Bench::playing(&format!("gpu 0 pids {}\n", theirs.0.id()));
    let scope = Scope { whole_machine: true, ..Scope::default() };
    let Reading::Known(gpus) = bench.sensors.sample(&scope).gpus else { panic!("no GPUs") };
    assert_eq!(
        (&gpus[0].used_by_workload, &gpus[0].used_by_others),
        (&Reading::Known(true), &Reading::Known(false))
    );
}

#[tokio::test]
async fn driver_that_hangs_hangs_alone() {
    use lamplighter::adapters::host::sensor_thread::SensorThread;
    let bench = Bench::playing("block 600\n");
    let mut thread = SensorThread::start(Box::new(bench.sensors), Duration::from_millis(50))
        .expect("a thread can be made");
    assert!(thread.sample(&Scope::default()).await.is_none());
    assert!(thread.sample(&Scope::default()).await.is_none());
    bench.fake.play(BUSY);
    let end = std::time::Instant::now() + crate::workload::workload::LONG;
    let sample = loop {
        assert!(std::time::Instant::now() < end, "the sensors never came back");
        match thread.sample(&Scope::default()).await {
            Some(sample) => break sample,
            None => tokio::task::yield_now().await,
        }
    };
    assert!(sample.gpus.known().is_some());
}

#[test]
fn health_is_what_the_driver_tells_and_unknown_else() {
    let mut bench = Bench::playing("gpus 2\ngpu 0 remapped 3,1,1,0\ngpu 0 pcie-replays 4\n");
    let [told, silent] = bench.gpus().try_into().expect("two GPUs");
    let health = told.health;
    assert_eq!(health.driver.as_deref(), Some("550.54.15"));
    assert_eq!(health.cuda.as_deref(), Some("12.4"));
    assert_eq!((health.rows_remapped, health.pcie_replays), (Some(4), Some(4)));
    assert_eq!((health.remap_pending, health.remap_failed), (Some(true), Some(false)));
    assert_eq!(health.pcie_received_bytes_per_sec, None, "the first reading has no rate");
    let (driver, cuda) = (silent.health.driver.clone(), silent.health.cuda.clone());
    let known = GpuHealth { driver, cuda, ..GpuHealth::default() };
    assert_eq!(silent.health, known);
}
