//! Machines that are no longer useful, and limits: each end has its word, its numbers and its exit
//! code.

use serde_json::Value;

use crate::bench::{Bench, Finish as _, alive, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code};

/// Runs the job to its end and gives the receipt and the reason chain.
fn run(bench: &Bench, code: i32) -> (Value, Vec<Value>) {
    let out = bench.lamp(&["run", "job.toml", "-o", "json"]).finish();
    assert_code(&out, code);
    let receipt: Value = serde_json::from_slice(&out.stdout).expect("-o json is JSON");
    adds_up(&receipt);
    let explained = bench.ask(&["explain"]);
    let reasons =
        explained["attempts"][0]["reasons"].as_array().expect("a stop has a reason chain").clone();
    assert!(!reasons.is_empty(), "a stop has a reason chain: {explained:#}");
    (receipt, reasons)
}

fn ended_because(receipt: &Value) -> &str {
    receipt["attempts"][0]["ended_because"]
        .as_str()
        .expect("an attempt has ended because of something")
}

#[test]
fn an_idle_job_is_stopped_with_the_numbers_of_the_verdict() {
    let bench = Bench::new();
    bench.shell(
        "echo $$ > $E2E_BENCH/pid; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exec sleep 300",
        "[watch]\nidle = '1s'\nidle_grace = '1s'\n",
    );
    let (receipt, reasons) = run(&bench, 107);
    assert_eq!(ended_because(&receipt), "idle");
    assert!(receipt["idle_seconds"].as_f64().unwrap() >= 1.0, "{receipt:#}");
    let last = reasons.last().unwrap();
    assert_eq!(last["policy"], "idle", "{last:#}");
    assert!(last["numbers"]["quiet_secs"].as_f64().unwrap() >= 1.0, "{last:#}");
    let pid: u32 = std::fs::read_to_string(bench.file("pid")).unwrap().trim().parse().unwrap();
    assert!(!alive(pid), "the workload is gone");
    // What both mistakes would have cost is told beside it.
    let cost = &bench.ask(&["explain"])["attempts"][0]["idle_cost"];
    assert!(cost["waited"].is_string() && cost["lost"].is_string(), "{cost:#}");
    let told =
        String::from_utf8_lossy(&bench.lamp(&["explain"]).finish().stdout).replace('\n', " ");
    assert!(
        told.contains("being sure took ") && told.contains("a stop by mistake would have cost"),
        "{told}"
    );
}

#[test]
fn stalled_job_climbs_the_ladder() {
    let bench = Bench::new();
    bench.shell(
        "echo begin >> $E2E_BENCH/starts; for i in $(seq 24); do echo line $i; sleep 0.3; done; while :; do :; done",
        "[watch]\nidle = 'off'\nstall = '2s'\nstall_steps = 1\nstall_restarts = 1\ngrace = '1s'\n",
    );
    let (receipt, reasons) = run(&bench, 107);
    assert_eq!(ended_because(&receipt), "stalled");
    assert_eq!(reasons.last().unwrap()["policy"], "stall");
    assert_eq!(
        std::fs::read_to_string(bench.file("starts")).unwrap().lines().count(),
        2,
        "once, and one restart"
    );
    assert!(!bench.events_of(1, "stacks").is_empty(), "what it waited for was written down");
    assert!(!bench.find("jobs-root", "stacks/0001.txt").is_empty(), "and can be read");
    let said: Vec<String> = bench
        .events_of(1, "verdict")
        .iter()
        .map(|event| event["reason"]["verdict"].to_string())
        .collect();
    assert!(said.iter().any(|verdict| verdict.contains("stalled")), "{said:?}");
}

/// Runs a trainer that would go on for ever against a limit.
fn limited(limits: &str, word: &str, said: &str, price: &str) {
    let bench = Bench::new();
    let machine = if price.is_empty() {
        String::new()
    } else {
        format!("[machine]\nusd_per_hour = {price}\n")
    };
    bench.trainer("", &format!("{machine}{SAVES}[watch]\ngrace = '1s'\n[limits]\n{limits}\n"));
    let out = bench.lamp(&["run", "job.toml", "-o", "json"]).finish();
    assert_code(&out, 124);
    let receipt: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(ended_because(&receipt), word, "{receipt:#}");
    assert_eq!(receipt["outcome"], "ended");
    assert!(
        receipt["last_checkpoint"]["step"].as_f64().is_some(),
        "{word}: what was done is saved before the limit: {receipt:#}"
    );
    let explained = bench.ask(&["explain"]);
    let reasons = explained["attempts"][0]["reasons"].as_array().unwrap();
    let reason = reasons
        .iter()
        .find(|reason| reason["verdict"] == word)
        .unwrap_or_else(|| panic!("no `{word}`: {reasons:#?}"));
    let number = |name: &str| {
        reason["numbers"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {reason:#}"))
    };
    assert!(reason["text"].as_str().unwrap().starts_with(&format!("{said} is at 2")), "{reason:#}");
    assert!(
        number("used_share") >= 1.0 && number("left_secs") <= 0.0 && number("drain_secs") > 0.0,
        "{reason:#}"
    );
    assert!((1e-6..=200.0).contains(&number("spent_usd")), "{reason:#}");
    if word == "budget" {
        let budget = 200.0;
        assert!(
            receipt["total_usd"].as_f64().unwrap() <= budget,
            "a budget is a limit: {receipt:#}"
        );
    }
    bench.never_twice();
}

#[test]
fn each_limit_ends_the_job_with_its_own_word() {
    std::thread::scope(|scope| {
        scope.spawn(|| limited("max_runtime = '20s'", "max_runtime", "the longest run time", ""));
        // A second costs five dollars; saving and uploading must fit, so the drain begins well
        // before the 40 seconds are over.
        scope.spawn(|| limited("budget = 200", "budget", "the budget", "18000"));
        scope.spawn(|| {
            let deadline = jiff::Timestamp::now() + std::time::Duration::from_secs(40);
            limited(&format!("deadline = '{deadline}'"), "deadline", "the deadline", "");
        });
    });
}

#[test]
fn limit_that_is_over_before_it_began_starts_nothing() {
    let bench = Bench::new();
    bench.trainer("", "[limits]\ndeadline = '2020-01-01T00:00:00Z'\n");
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert!(matches!(out.status.code(), Some(100 | 124)), "{out:?}");
    assert!(bench.begins().is_empty());
}

#[test]
fn notify_keeps_an_idle_job_and_says_so() {
    let bench = Bench::new();
    bench.shell(
        "while [ ! -e $E2E_BENCH/go ]; do sleep 0.2; done",
        "[watch]\nidle = '1s'\nidle_grace = '1s'\n[on]\nidle = 'notify'\n",
    );
    bench.submit();
    wait_until("somebody is told", || {
        bench
            .events(1)
            .iter()
            .any(|event| event["kind"] == "verdict" && event["reason"]["verdict"] == "idle")
            .then_some(())
    });
    bench.go();
    assert_eq!(bench.receipt()["outcome"], "succeeded", "nothing was stopped");
}
