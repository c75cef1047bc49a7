//! A GPU that falls off the bus under the work: the machine is to blame, and the job goes on
//! elsewhere.

use std::process::Stdio;

use crate::bench::{Bench, Finish as _, Running, wait_until};
use crate::jobs::adds_up;
use lamp_test_support::fake_nvml::{BUSY, FakeNvml, LOST};

/// Saves, waits until the test has taken its GPU away, and dies of it; the next attempt goes on
/// from what was saved.
const TRAINS: &str = "mkdir -p ckpt\n\
    if [ -e ckpt/saved ]; then cp ckpt/saved $E2E_BENCH/resumed; exit 0; fi\n\
    echo forty-two > ckpt/saved\n\
    echo $$ > $E2E_BENCH/pid\n\
    while [ ! -e $E2E_BENCH/lost ]; do sleep 0.05; done\n\
    echo CUDA error >&2; exit 1\n";

#[test]
fn lost_gpu_costs_the_machine_and_not_the_job() {
    let bench = Bench::new();
    let gpu = FakeNvml::in_dir(bench.path());
    gpu.play(&format!("gpus 2\n{BUSY}"));
    bench.shell(TRAINS, "[checkpoint]\npath = 'ckpt'\ninterval = '1s'\n[retries]\nmax = 3\n");
    let mut run = Running::start(
        bench
            .lamp(&["run", "job.toml"])
            .env("LAMP_NVML_LIBRARY", gpu.library())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    wait_until("the first attempt trains beside its GPU", || {
        let status = bench.lamp(&["status", "-o", "json"]).finish();
        let seen: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
        let gpus = bench.record("attempts/0001/status.json")?["gpus"].as_array()?.len();
        (bench.file("pid").exists() && gpus == 2 && seen["jobs"].is_array()).then_some(())
    });
    gpu.play(&format!("gpus 2\n{BUSY}{LOST}gpu 0 xid 79\n"));
    bench.write("lost", "");
    assert_eq!(run.wait().code(), Some(0), "the job has succeeded");
    let receipt = bench.receipt();
    assert_eq!(receipt["attempts"][0]["ended_because"], "hardware_lost", "{receipt:#}");
    assert_eq!(receipt["attempts"].as_array().unwrap().len(), 2, "{receipt:#}");
    assert_eq!(
        std::fs::read_to_string(bench.file("resumed")).unwrap(),
        "forty-two\n",
        "from what the first one saved"
    );
    let explained = bench.ask(&["explain"]);
    let reason = explained["attempts"][0]["reasons"]
        .as_array()
        .and_then(|reasons| reasons.last().cloned())
        .unwrap();
    assert_eq!(reason["policy"], "hardware", "{reason:#}");
    assert!(
        reason["text"]
            .as_str()
            .unwrap()
            .contains("GPU 0: GPU is lost (Xid 79), and the workload ended with exit code 1"),
        "{reason:#}"
    );
    adds_up(&receipt);
}
