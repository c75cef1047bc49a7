//! When is it idle: the cases, in the order in which the rule's documentation has them.

use lamplighter::instance::{Rates, Reading};
use lamplighter::job::IdleSpec;
use lamplighter::market::Span;
use lamplighter::policy::{Activity, IdleWatch, young_window};

use crate::watch::script::{HOUR, MINUTE, Script, Sight};

fn known(value: f64) -> Reading<f64> {
    Reading::Known(value)
}

#[test]
fn five_quiet_minutes_after_half_an_hour_of_work_are_idle() {
    let judged = Script::live().work(30.0 * MINUTE).quiet(10.0 * MINUTE).idle();
    assert_eq!(judged.stop_at(), Some(35.0 * MINUTE));
    let verdict = judged.last();
    assert_eq!(verdict.standing, Activity::Idle);
    assert_eq!((verdict.numbers["quiet_secs"], verdict.numbers["window_secs"]), (600.0, 300.0));
    assert!(
        verdict
            .text
            .starts_with("idle: nothing for 10m, 5m was enough: GPU 0 %, CPU 0.4 % of a core"),
        "{}",
        verdict.text
    );
}

#[test]
fn while_the_window_fills_the_verdict_says_how_far() {
    let judged = Script::live().work(30.0 * MINUTE).quiet(4.0 * MINUTE).idle();
    assert_eq!(judged.standing(), Activity::Busy);
    assert!(judged.last().text.starts_with("quiet for 4m of 5m"), "{}", judged.last().text);
}

type Signal = (&'static str, fn(&mut Rates));

#[test]
fn every_one_signal_is_enough_to_be_busy() {
    let signals: [Signal; 9] = [
        ("GPU", |rates| rates.gpu_percent = known(1.5)),
        ("GPU memory traffic", |rates| rates.gpu_memory_percent = known(3.0)),
        ("CPU of the tree", |rates| rates.cpu_percent = known(6.0)),
        ("CPU at least", |rates| rates.cpu_percent_min = known(6.0)),
        ("disk", |rates| rates.disk_bytes_per_sec = known(200_000.0)),
        ("log", |rates| rates.log_bytes = known(1.0)),
        ("progress", |rates| rates.progress_marks = known(1.0)),
        ("checkpoint", |rates| rates.checkpoint_marks = known(1.0)),
        ("network, all the time", |rates| rates.net_bytes_per_sec = known(200_000.0)),
    ];
    for (name, signal) in signals {
        let judged = Script::live().work(30.0 * MINUTE).phase(2.0 * HOUR, signal).idle();
        assert_eq!(judged.stop_at(), None, "{name}");
        assert_eq!(judged.standing(), Activity::Busy, "{name}");
    }
}

#[test]
fn machine_cpu_counts_only_where_the_process_tree_is_unknown() {
    let neighbour = |rates: &mut Rates| rates.machine_cpu_percent = known(80.0);
    assert!(Script::live().work(HOUR).phase(10.0 * MINUTE, neighbour).idle().stop_at().is_some());
    assert_eq!(
        Script::new(Sight::Machine, 10.0).work(HOUR).phase(2.0 * HOUR, neighbour).idle().stop_at(),
        None
    );
}

/// `docker run`: the container is no child of the job's, whose own tree does nothing.
#[test]
fn on_a_machine_of_our_own_the_rest_of_the_box_is_the_jobs() {
    let stop_at = |cores: f64, rest: f64| {
        let box_of = |rates: &mut Rates| {
            (rates.rest_cpu_percent, rates.machine_cpu_percent) = (known(rest), known(rest / cores))
        };
        Script::live().work(HOUR).phase(2.0 * HOUR, box_of).idle().stop_at()
    };
    assert_eq!(stop_at(4.0, 350.0), None, "a phase on the processors alone");
    assert_eq!(
        stop_at(96.0, 100.0),
        None,
        "one thread prepares data, on a machine of ninety-six cores"
    );
    let daemons = [(4.0, 30.0), (96.0, 45.0)].map(|(cores, rest)| stop_at(cores, rest));
    assert_eq!(
        daemons,
        [Some(HOUR + 5.0 * MINUTE); 2],
        "what daemons and kernel use holds nothing"
    );
    let lost =
        |rates: &mut Rates| rates.rest_cpu_percent = Reading::unknown("/proc/stat cannot be read");
    assert_eq!(
        Script::live().work(HOUR).phase(2.0 * HOUR, lost).idle().standing(),
        Activity::Unknown
    );
    let told = |rates: &mut Rates| {
        (rates.rest_cpu_percent, rates.machine_cpu_percent) = (known(210.0), known(2.2))
    };
    let judged = Script::live().work(HOUR).phase(MINUTE, told).idle();
    assert_eq!(judged.last().text, "working: CPU outside the job's own processes 210 % of a core");
}

#[test]
fn network_burst_does_not_reset_idle() {
    let burst = |rates: &mut Rates| rates.net_bytes_per_sec = known(2e6);
    let judged = Script::live()
        .work(HOUR)
        .quiet(2.0 * MINUTE)
        .phase(90.0, burst)
        .quiet(10.0 * MINUTE)
        .idle();
    assert_eq!(judged.stop_at(), Some(HOUR + 5.0 * MINUTE));
}

#[test]
fn less_is_seen_more_is_waited() {
    for (sight, minutes) in [
        (Sight::Tree, Some(5.0)),
        (Sight::Machine, Some(5.0)),
        (Sight::MainProcess, Some(15.0)),
        (Sight::NoTransfers, Some(60.0)),
        (Sight::GpuOnly, None),
    ] {
        let judged = Script::new(sight, 30.0).work(2.0 * HOUR).quiet(5.0 * HOUR).idle();
        assert_eq!(
            judged.stop_at(),
            minutes.map(|minutes| 2.0 * HOUR + minutes * MINUTE),
            "{sight:?}"
        );
    }
}

#[test]
fn least_that_was_seen_in_the_quiet_time_decides() {
    let blind = |rates: &mut Rates| {
        (rates.net_bytes_per_sec, rates.disk_bytes_per_sec) = (Reading::Absent, Reading::Absent)
    };
    let judged = Script::live().work(HOUR).phase(MINUTE, blind).quiet(2.0 * HOUR).idle();
    assert_eq!(judged.stop_at(), Some(2.0 * HOUR));
}

/// What `lamp check` says of a window is what the rule does with it.
#[test]
fn window_at_the_beginning_is_told_as_it_is_held() {
    let secs = |asked: Option<u64>| {
        let told =
            young_window(&IdleSpec { window: asked.map(Span::from_secs), ..IdleSpec::default() })?;
        Some([told.asked, told.first, told.until].map(Span::secs_f64))
    };
    assert_eq!(secs(Some(30)), Some([30.0, 120.0, 90.0]));
    assert_eq!(secs(Some(300)), Some([300.0, 1200.0, 900.0]));
    assert_eq!(secs(Some(3600)), Some([3600.0, 4500.0, 900.0]));
    assert_eq!(secs(None), None);
    // Two minutes of work take two of the twenty off: the case below.
    let judged = Script::live().work(2.0 * MINUTE).quiet(30.0 * MINUTE).idle();
    assert_eq!(
        judged.stop_at().map(|at| at - 2.0 * MINUTE),
        secs(Some(300)).map(|[_, first, _]| first - 2.0 * MINUTE)
    );
}

#[test]
fn young_job_gets_more_patience() {
    for (worked, needed) in [(2.0, 18.0), (5.0, 15.0), (10.0, 10.0), (15.0, 5.0), (60.0, 5.0)] {
        let judged = Script::live().work(worked * MINUTE).quiet(30.0 * MINUTE).idle();
        assert_eq!(
            judged.stop_at(),
            Some((worked + needed) * MINUTE),
            "after {worked} minutes of work"
        );
    }
}

#[test]
fn pause_that_ended_in_work_makes_the_next_one_ordinary() {
    let epoch = |script: Script| script.quiet(4.0 * MINUTE).work(20.0 * MINUTE);
    let judged = epoch(epoch(Script::live().work(30.0 * MINUTE))).quiet(HOUR).idle();
    let began = (30.0 + 24.0 + 24.0) * MINUTE;
    assert_eq!(judged.stop_at(), Some(began + 12.0 * MINUTE), "three times four minutes");
    assert_eq!(judged.last().numbers["longest_pause_secs"], 240.0);
}

#[test]
fn forty_five_minutes_without_transfers_recorded_are_not_enough() {
    let judged = Script::new(Sight::NoTransfers, 30.0)
        .work(10.0 * HOUR)
        .quiet(45.0 * MINUTE)
        .work(MINUTE)
        .idle();
    assert_eq!(judged.stop_at(), None);
}

#[test]
fn unknown_stands_still_and_says_what_is_missing() {
    let lost = |rates: &mut Rates| rates.gpu_percent = Reading::unknown("GPU is lost");
    let script = Script::live().work(HOUR).quiet(3.0 * MINUTE).phase(10.0 * HOUR, lost);
    let judged = script.idle();
    assert_eq!((judged.standing(), judged.stop_at()), (Activity::Unknown, None));
    assert_eq!(judged.last().text, "unknown: GPU (GPU is lost); the idle clock stands at 3m");
    // The two minutes that were missing are enough once it can be read again.
    let after = script.quiet(5.0 * MINUTE).idle();
    assert_eq!(after.stop_at(), Some(11.0 * HOUR + 5.0 * MINUTE));
}

#[test]
fn work_that_is_seen_is_work_whatever_is_unknown() {
    let half = |rates: &mut Rates| {
        (rates.gpu_percent, rates.cpu_percent) = (Reading::unknown("GPU is lost"), known(300.0))
    };
    assert_eq!(Script::live().work(HOUR).phase(MINUTE, half).idle().standing(), Activity::Busy);
}

#[test]
fn machine_without_a_gpu_is_judged_by_its_processor() {
    let no_gpu = |busy: f64| {
        move |rates: &mut Rates| {
            (rates.gpu_percent, rates.cpu_percent) = (Reading::Absent, known(busy))
        }
    };
    let judged = Script::live().phase(HOUR, no_gpu(350.0)).phase(10.0 * MINUTE, no_gpu(0.2)).idle();
    assert_eq!(judged.stop_at(), Some(HOUR + 5.0 * MINUTE));
}

#[test]
fn before_the_first_work_only_the_workloads_own_silence_counts() {
    let cases = [
        (Sight::Tree, Some(20.0)),
        (Sight::Machine, Some(60.0)),
        (Sight::MainProcess, None),
        (Sight::GpuOnly, None),
    ];
    for (sight, minutes) in cases {
        let judged = Script::new(sight, 10.0).quiet(8.0 * HOUR).idle();
        assert_eq!(judged.stop_at(), minutes.map(|minutes| minutes * MINUTE), "{sight:?}");
        assert!(!judged.ever(Activity::Busy), "{sight:?}");
    }
}

#[test]
fn grace_holds_off_a_job_that_has_not_begun_and_no_other() {
    let spec = IdleSpec {
        window: Some(Span::from_secs(60)),
        grace: Span::from_secs(3600),
        ..IdleSpec::default()
    };
    assert_eq!(Script::live().quiet(2.0 * HOUR).idle_with(&spec).stop_at(), Some(HOUR));
    assert_eq!(
        Script::live().work(10.0 * MINUTE).quiet(HOUR).idle_with(&spec).stop_at(),
        Some(11.0 * MINUTE)
    );
}

#[test]
fn probe_of_the_driver_is_not_yet_work() {
    let judged = Script::live().quiet(MINUTE).work(20.0).quiet(10.0 * MINUTE).idle();
    assert_eq!(judged.standing(), Activity::Starting);
}

#[test]
fn progress_without_a_gpu_is_work() {
    let step = |rates: &mut Rates| rates.progress_marks = known(1.0);
    let judged = Script::live().phase(20.0 * MINUTE, step).quiet(6.0 * MINUTE).idle();
    assert_eq!(judged.stop_at(), Some(25.0 * MINUTE));
}

#[test]
fn changed_device_memory_counts_as_work() {
    let used = |mib: f64| move |rates: &mut Rates| rates.gpu_memory_used_mib = known(mib);
    let script = Script::live().work(HOUR).phase(4.0 * MINUTE, used(500.0));
    assert_eq!(script.clone().phase(4.0 * MINUTE, used(20_000.0)).idle().stop_at(), None);
    assert!(
        script.phase(4.0 * MINUTE, used(520.0)).idle().stop_at().is_some(),
        "a few MiB are an allocator's"
    );
}

#[test]
fn typing_holds_the_machine_for_a_quarter_of_an_hour() {
    let typed = |secs: f64| move |rates: &mut Rates| rates.typing_secs = known(secs);
    let at_work = Script::live().work(HOUR).phase(8.0 * MINUTE, typed(200.0));
    assert_eq!(at_work.idle().stop_at(), None);
    assert!(
        at_work.idle().last().text.contains("somebody typed 3m 20s ago"),
        "{}",
        at_work.idle().last().text
    );
    assert!(
        Script::live()
            .work(HOUR)
            .phase(8.0 * MINUTE, typed(16.0 * MINUTE))
            .idle()
            .stop_at()
            .is_some()
    );
}

#[test]
fn laptop_that_slept_is_not_idle() {
    let judged = Script::live().work(HOUR).gap(8.0 * HOUR).quiet(MINUTE).idle();
    assert_eq!(judged.stop_at(), None);
    assert_eq!(
        judged.last().numbers["quiet_secs"],
        20.0 + 60.0,
        "the gap counts as two usual intervals"
    );
}

#[test]
fn samples_that_come_too_slowly_need_at_least_three() {
    let judged = Script::new(Sight::Tree, 15.0 * MINUTE).work(10.0 * HOUR).quiet(2.0 * HOUR).idle();
    assert_eq!(judged.stop_at(), Some(10.0 * HOUR + 45.0 * MINUTE));
}

#[test]
fn restarted_workload_is_young_and_keeps_its_rhythm() {
    let mut watch = IdleWatch::new(&IdleSpec::default());
    let script = Script::live().work(HOUR).quiet(4.0 * MINUTE).work(HOUR);
    script.series.iter().for_each(|rates| drop(watch.step(rates)));
    watch.started_again();
    let verdict =
        Script::live().quiet(MINUTE).series.iter().map(|rates| watch.step(rates)).last().unwrap();
    assert_eq!(
        (verdict.numbers["window_secs"], verdict.numbers["longest_pause_secs"]),
        (20.0 * MINUTE, 4.0 * MINUTE)
    );
}

/// What a person asks for is not multiplied: half an hour is half an hour, and at most a quarter
/// more for a young job.
#[test]
fn long_window_is_long_enough() {
    let spec =
        IdleSpec { window: Some(Span::from_secs(1800)), grace: Span::ZERO, ..IdleSpec::default() };
    for (sight, minutes) in [
        (Sight::Tree, Some(30.0)),
        (Sight::MainProcess, Some(30.0)),
        (Sight::NoTransfers, Some(60.0)),
    ] {
        let judged = Script::new(sight, 10.0).work(HOUR).quiet(3.0 * HOUR).idle_with(&spec);
        assert_eq!(judged.stop_at(), minutes.map(|minutes| HOUR + minutes * MINUTE), "{sight:?}");
    }
    assert_eq!(
        Script::live().work(5.0 * MINUTE).quiet(HOUR).idle_with(&spec).stop_at(),
        Some(45.0 * MINUTE)
    );
    assert_eq!(Script::live().quiet(HOUR).idle_with(&spec).stop_at(), Some(45.0 * MINUTE));
}

#[test]
fn off_is_off() {
    let spec = IdleSpec { window: None, ..IdleSpec::default() };
    assert_eq!(Script::live().work(HOUR).quiet(48.0 * HOUR).idle_with(&spec).stop_at(), None);
}
