//! Workloads that misbehave and machines that run out of things: nothing hangs, and the end is told
//! as it was.

use std::process::{Command, Stdio};

use crate::bench::{Bench, Finish as _, Running, alive, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code, text};
use lamp_test_support::skipped;

#[test]
fn workload_that_ignores_sigterm_and_forks_away_is_killed() {
    let bench = Bench::new();
    bench.shell(
        "trap '' TERM\nsetsid sh -c 'trap \"\" TERM; echo $$ > $E2E_BENCH/away; sleep 300 & wait; sleep 300' &\n\
         while [ ! -s $E2E_BENCH/away ]; do sleep 0.05; done\necho $$ > $E2E_BENCH/pid; while :; do sleep 1; done",
        "[watch]\ngrace = '1s'\n[limits]\nmax_runtime = '12s'\n",
    );
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 124);
    for file in ["pid", "away"] {
        let pid: u32 = std::fs::read_to_string(bench.file(file)).unwrap().trim().parse().unwrap();
        assert!(!alive(pid), "{file} is gone");
    }
    let receipt = bench.receipt();
    adds_up(&receipt);
    // The limit, the grace, and half a minute for a busy machine; without a SIGKILL it would be
    // five minutes.
    let billed = receipt["attempts"][0]["billed_seconds"].as_f64().unwrap();
    eprintln!(
        "measured: a workload that ignores SIGTERM was gone {:.0} s after its limit, of 31 s",
        billed - 12.0
    );
    assert!(billed <= 12.0 + 1.0 + 30.0, "{receipt:#}");
}

#[test]
fn what_forked_away_is_ended_with_the_command() {
    let bench = Bench::new();
    bench.shell("setsid sh -c 'echo $$ > $E2E_BENCH/away; exec sleep 300' & while [ ! -s $E2E_BENCH/away ]; do sleep 0.05; done; exit 0", "");
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 0);
    let pid: u32 = std::fs::read_to_string(bench.file("away")).unwrap().trim().parse().unwrap();
    assert!(!alive(pid));
}

#[test]
fn one_that_closes_its_output_works_on() {
    let bench = Bench::new();
    bench.shell(
        "echo before; exec >&- 2>&-; sleep 2; echo never; touch $E2E_BENCH/worked; exit 4",
        "",
    );
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 4);
    assert_eq!(text(&out.stdout), "before\n");
    assert!(bench.file("worked").exists());
}

/// The most that a process has ever had in memory, in MiB.
fn peak_mib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[test]
fn gigabyte_in_a_flood_does_not_fill_the_memory() {
    let bench = Bench::new();
    bench.shell("head -c 1000000000 /dev/zero | tr '\\0' 'x' | fold -w 200; echo the end; touch $E2E_BENCH/flooded; while [ ! -e $E2E_BENCH/go ]; do sleep 0.1; done", "");
    let mut run = Running::start(
        bench.lamp(&["run", "job.toml"]).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    let ours = || {
        bench.processes().into_iter().filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("lamp"))
        })
    };
    wait_until("the flood is over", || bench.file("flooded").exists().then_some(()));
    let peaks: Vec<(u32, u64)> = ours().filter_map(|pid| Some((pid, peak_mib(pid)?))).collect();
    assert!(peaks.len() >= 4, "controller, machine, agent and holder: {peaks:?}");
    // The flood is a thousand; what is held is a few pieces. An unoptimised build has megabytes of
    // its own.
    assert!(peaks.iter().all(|(_, mib)| *mib < 200), "MiB at the most: {peaks:?}");
    bench.go();
    assert_eq!(run.wait().code(), Some(0));
    let receipt = bench.receipt();
    let log = bench.lamp(&["logs"]).finish().stdout;
    assert!(log.ends_with(b"the end\n"), "the end is kept");
    assert!(
        log.len() >= 1_000_000_000 || receipt["losses"].to_string().contains("bytes"),
        "all of it, or the loss is told: {}",
        receipt["losses"]
    );
}

#[test]
fn a_line_of_ten_megabytes_is_kept_whole() {
    let script = "head -c 10000000 /dev/zero | tr '\\0' 'y'; echo; head -c 1000000 /dev/urandom > noise; cat noise; cp noise $E2E_BENCH/noise";
    for (settings, is_pipe) in [("", false), ("[watch]\nterminal = false\n", true)] {
        let bench = Bench::new();
        bench.shell(script, settings);
        let out = bench.lamp(&["run", "job.toml"]).finish();
        assert_code(&out, 0);
        assert!(
            out.stdout[..10_000_000].iter().all(|byte| *byte == b'y')
                && out.stdout[10_000_000] == b'\n',
            "{settings}"
        );
        // Noise has carriage returns: at a terminal they draw over what was there.
        let noise = std::fs::read(bench.file("noise")).unwrap();
        assert!(!is_pipe || out.stdout[10_000_001..] == noise, "byte for byte");
    }
}

/// A small disk, taken away when dropped.
pub struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(bench: &Bench, name: &str, size: &str) -> Option<Disk> {
        Disk::mount_at(bench.file(name), size)
    }

    /// `None`, with a word, where nobody may mount.
    pub fn mount_at(path: std::path::PathBuf, size: &str) -> Option<Disk> {
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        let disk = mounted.is_ok_and(|status| status.success()).then_some(Disk(path));
        if disk.is_none() {
            skipped("root", "no right to mount a small disk");
        }
        disk
    }

    /// It has this size from now on.
    pub fn becomes(&self, size: &str) {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,size={size}")])
            .arg(&self.0)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "what is on it fits");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disk_on_the_machine_hangs_nothing_and_is_told() {
    let bench = Bench::new();
    bench.shell("head -c 120000000 /dev/zero > fill 2> /dev/null; for i in 1 2 3 4 5 6; do echo step $i; sleep 0.3; done; rm -f fill; exit 5", "");
    let Some(_disk) = Disk::mount(&bench, "state", "100m") else { return };
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 5);
    let receipt = bench.receipt();
    adds_up(&receipt);
    let whole = (1..=6).all(|step| text(&out.stdout).contains(&format!("step {step}\n")));
    assert!(
        whole || receipt["losses"].to_string().contains("bytes of output"),
        "kept, or its loss is told: {receipt:#} {}",
        text(&out.stdout)
    );
}

/// It waited for ever for room for its last records.
#[test]
fn machine_whose_disk_stays_full_ends() {
    let bench = Bench::new();
    bench.shell("head -c 120000000 /dev/zero > fill 2> /dev/null; sleep 1; exit 5", "");
    let Some(_disk) = Disk::mount(&bench, "state", "100m") else { return };
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 5);
    adds_up(&bench.receipt());
    assert!(bench.processes().is_empty(), "{:?}", bench.processes());
}

#[test]
fn full_disk_at_submission_is_explained_and_nothing_starts() {
    for (full, said) in [("jobs-root", "`--job-root ~/lamp-jobs`"), ("state", "XDG_STATE_HOME=")] {
        let bench = Bench::new();
        bench.shell("touch $E2E_BENCH/ran", "");
        // Two megabytes that cannot be packed smaller, and a disk of one.
        let noise =
            Command::new("head").args(["-c", "2000000", "/dev/urandom"]).output().unwrap().stdout;
        std::fs::write(bench.file("w/noise"), noise).unwrap();
        let Some(_disk) = Disk::mount(&bench, full, "1m") else { return };
        let out = bench.lamp(&["run", "job.toml"]).finish();
        assert_code(&out, 103);
        let err = text(&out.stderr);
        for word in ["No space left on device", "nothing was started or billed", "hint: ", said] {
            assert!(err.contains(word), "{full}: `{word}` is not said:\n{err}");
        }
        assert!(!bench.file("ran").exists() && bench.processes().is_empty(), "{full}");
    }
}

#[test]
fn full_job_root_stops_no_work_and_the_receipt_comes_later() {
    let bench = Bench::new();
    bench.trainer("SAVE_EVERY = '5'", SAVES);
    let Some(_disk) = Disk::mount(&bench, "jobs-root", "8m") else { return };
    bench.submit();
    bench.trains(1, 1.0);
    // All that is left, to the last byte.
    let filled = Command::new("dd")
        .env("LC_ALL", "C")
        .args(["if=/dev/zero", "bs=4096"])
        .arg(format!("of={}", bench.file("jobs-root/fill").display()))
        .finish();
    assert!(text(&filled.stderr).contains("No space left on device"), "{}", text(&filled.stderr));
    let begins = bench.begins();
    let told = "the heartbeat is not written and will be tried again";
    wait_until("a write fails", || {
        let logs = bench.find("state", "/agent.log").into_iter();
        logs.filter_map(|log| std::fs::read_to_string(log).ok())
            .any(|log| log.contains(told))
            .then_some(())
    });
    // What it has done, by its own words on the machine's disk.
    let done = || -> Option<f64> {
        let said = std::fs::read_to_string(bench.find("state", "/progress.jsonl").first()?).ok()?;
        serde_json::from_str::<serde_json::Value>(said.lines().rev().nth(1)?).ok()?["step"].as_f64()
    };
    let full = wait_until("it says how far it is", done);
    wait_until("the work goes on", || done().filter(|step| *step > full + 20.0));
    assert!(alive(begins[0].1) && bench.begins() == begins);
    std::fs::remove_file(bench.file("jobs-root/fill")).unwrap();
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    assert_eq!(bench.begins(), begins);
    let kept = receipt["last_checkpoint"]["step"].as_f64().unwrap_or_default();
    assert!(
        kept > full + 10.0,
        "what was saved while there was no room is kept when there is: {kept}, {full}: {receipt:#}"
    );
}
