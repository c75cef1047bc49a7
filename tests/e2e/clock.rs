//! The wall clock is stepped by a day, forwards and backwards, while a job runs: nothing is stopped
//! by it, and nothing is billed for it.
//!
//! A small library put before the C library shifts what `CLOCK_REALTIME` says by what a file says;
//! the clocks that never step stay what they are, as on a machine whose clock is set by hand.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::bench::{Bench, Finish as _, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code};
use lamp_test_support::skipped;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, id, time);
    const char *bench = getenv("E2E_BENCH");
    if (result != 0 || id != CLOCK_REALTIME || !bench) return result;
    char path[4096], text[32] = {0};
    snprintf(path, sizeof path, "%s/clock", bench);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atol(text);
        close(file);
    }
    return result;
}
"#;

fn shim(bench: &Bench) -> Option<PathBuf> {
    let source = bench.write("shim.c", SHIM);
    let library = bench.file("shim.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .stderr(Stdio::null())
        .status();
    if built.is_ok_and(|status| status.success()) {
        return Some(library);
    }
    skipped("cc", "no C compiler to shift the clock with");
    None
}

/// Sets the clock, and waits until the machine says so.
fn set(bench: &Bench, seconds: i64) {
    bench.write("clock", &seconds.to_string());
    wait_until("the machine's clock was set", || {
        let at: jiff::Timestamp =
            bench.record("attempts/0001/status.json")?["at"].as_str()?.parse().ok()?;
        let off = at.duration_since(jiff::Timestamp::now()).as_secs() - seconds;
        (off.abs() < 3600).then_some(())
    });
}

fn stepped_by(seconds: i64) {
    let bench = Bench::new();
    bench.trainer("", &format!("{SAVES}[limits]\nmax_runtime = '2h'\nbudget = 100\n"));
    let Some(shim) = shim(&bench) else { return };
    let out = bench.lamp(&["run", "--detach", "job.toml"]).env("LD_PRELOAD", &shim).finish();
    assert_code(&out, 0);
    bench.trains(1, 3.0);
    set(&bench, seconds);
    bench.trains(1, 60.0);
    assert!(bench.record("receipt.json").is_none(), "nothing ended by it");
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    assert_eq!(bench.begins().len(), 1);
    let billed = receipt["attempts"][0]["billed_seconds"].as_f64().unwrap();
    assert!(
        (5.0..600.0).contains(&billed),
        "billed {billed} s with a step of {seconds} s: {receipt:#}"
    );
    adds_up(&receipt);
}

#[test]
fn a_clock_that_steps_by_a_day_stops_nothing_and_bills_nothing() {
    std::thread::scope(|scope| {
        scope.spawn(|| stepped_by(86_400));
        scope.spawn(|| stepped_by(-86_400));
    });
}

#[test]
fn last_save_before_a_limit_survives_a_clock_step_of_a_day() {
    let bench = Bench::new();
    bench.trainer("", &format!("{SAVES}[limits]\nmax_runtime = '60s'\n"));
    let Some(shim) = shim(&bench) else { return };
    let out = bench.lamp(&["run", "--detach", "job.toml"]).env("LD_PRELOAD", &shim).finish();
    assert_code(&out, 0);
    bench.trains(1, 0.0);
    set(&bench, 86_400);
    let receipt = bench.receipt();
    assert_eq!(receipt["attempts"][0]["ended_because"], "max_runtime", "{receipt:#}");
    assert!(receipt["last_checkpoint"]["step"].as_f64().is_some(), "{receipt:#}");
    let billed = receipt["attempts"][0]["billed_seconds"].as_f64().unwrap();
    assert!((50.0..600.0).contains(&billed), "the limit is where it was: {receipt:#}");
}
