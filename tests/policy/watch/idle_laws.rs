//! Laws of the idle rule, for any series.

use lamplighter::instance::{Rates, Reading};
use lamplighter::job::IdleSpec;
use lamplighter::market::Span;
use lamplighter::policy::{Activity, IdleWatch, WatchAction};
use proptest::prelude::*;

use crate::watch::script::{Script, Sight, idle_verdicts, level};

/// One interval in the making: its length and whether it worked.
#[derive(Clone, Copy, Debug)]
struct Interval {
    secs: f64,
    gpu: f64,
    cpu: f64,
    net: f64,
}

fn interval() -> impl Strategy<Value = Interval> {
    let level = prop_oneof![4 => Just(0.0), 1 => 0.0..100.0f64];
    (1.0..60.0f64, level.clone(), level, prop_oneof![3 => Just(0.0), 1 => 0.0..1e6f64])
        .prop_map(|(secs, gpu, cpu, net)| Interval { secs, gpu, cpu, net })
}

/// Work first, so that the rule has something to judge; then anything.
fn series(intervals: &[Interval], sight: Sight) -> Vec<Rates> {
    let mut script = Script::new(sight, 30.0).work(1500.0);
    for interval in intervals {
        script.t += interval.secs;
        let rates = Rates {
            t_secs: script.t,
            interval_secs: interval.secs,
            ..level(sight, interval.gpu, interval.cpu)
        };
        let net = if rates.net_bytes_per_sec == Reading::Absent {
            Reading::Absent
        } else {
            Reading::Known(interval.net)
        };
        script.series.push(Rates { net_bytes_per_sec: net, ..rates });
    }
    script.series
}

fn sight() -> impl Strategy<Value = Sight> {
    prop_oneof![
        Just(Sight::Tree),
        Just(Sight::Machine),
        Just(Sight::MainProcess),
        Just(Sight::NoTransfers),
        Just(Sight::GpuOnly)
    ]
}

fn stop_at(series: &[Rates]) -> Option<f64> {
    idle_verdicts(series, &IdleSpec::default())
        .into_iter()
        .find(|(_, verdict)| verdict.action == WatchAction::Stop)
        .map(|(t, _)| t)
}

proptest! {
    // A case is a series of hundreds of samples.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever came before: if an interval is idle, it is idle with each signal lower too, and the
    /// clock is never behind.
    #[test]
    fn more_quiet_never_makes_a_machine_busier(
        intervals in prop::collection::vec(interval(), 1..60), sight in sight(), share in 0.0..1.0f64,
    ) {
        let series = series(&intervals, sight);
        let (last, before) = series.split_last().unwrap();
        let mut watch = IdleWatch::new(&IdleSpec::default());
        before.iter().for_each(|rates| drop(watch.step(rates)));
        let lower = |reading: &Reading<f64>| reading.clone().map(|value| value * share);
        let quieter = Rates {
            gpu_percent: lower(&last.gpu_percent),
            cpu_percent: lower(&last.cpu_percent),
            cpu_percent_min: lower(&last.cpu_percent_min),
            machine_cpu_percent: lower(&last.machine_cpu_percent),
            net_bytes_per_sec: lower(&last.net_bytes_per_sec),
            ..last.clone()
        };
        let (as_it_was, quieter) = (watch.clone().step(last), watch.step(&quieter));
        prop_assert!(quieter.numbers["quiet_secs"] >= as_it_was.numbers["quiet_secs"]);
        if as_it_was.standing == Activity::Idle {
            prop_assert_eq!(quieter.standing, Activity::Idle);
        }
    }

    /// A machine on which nothing happens any more is stopped no later than one that did the same
    /// before and something since.
    #[test]
    fn nothing_at_all_is_never_stopped_later_than_something(intervals in prop::collection::vec(interval(), 1..80), sight in sight()) {
        let series = series(&intervals, sight);
        let (common, none) = (series.len() - intervals.len(), |reading: &Reading<f64>| reading.clone().map(|_| 0.0));
        let nothing = |rates: &Rates| Rates {
            gpu_percent: none(&rates.gpu_percent),
            gpu_memory_percent: none(&rates.gpu_memory_percent),
            cpu_percent: none(&rates.cpu_percent),
            cpu_percent_min: none(&rates.cpu_percent_min),
            machine_cpu_percent: none(&rates.machine_cpu_percent),
            disk_bytes_per_sec: none(&rates.disk_bytes_per_sec),
            net_bytes_per_sec: none(&rates.net_bytes_per_sec),
            ..rates.clone()
        };
        let quiet: Vec<Rates> = series[..common].iter().cloned().chain(series[common..].iter().map(nothing)).collect();
        if let Some(stopped) = stop_at(&series) {
            prop_assert!(stop_at(&quiet).is_some_and(|sooner| sooner <= stopped), "{stopped} with work, {:?} without", stop_at(&quiet));
        }
    }

    /// Time in which a signal could not be read is pushed in anywhere: idle comes as much later, or
    /// not at all.
    #[test]
    fn unknown_never_makes_idle_come_earlier(
        intervals in prop::collection::vec(interval(), 1..80), at in 0.0..1.0f64, count in 1..40usize, secs in 1.0..600.0f64,
    ) {
        let known = series(&intervals, Sight::Tree);
        let at = (at * known.len() as f64) as usize;
        let mut with_unknown = known[..at].to_vec();
        let mut t = at.checked_sub(1).map_or(0.0, |last| known[last].t_secs);
        for _ in 0..count {
            t += secs;
            with_unknown.push(Rates { t_secs: t, interval_secs: secs, gpu_percent: Reading::unknown("lost"), ..level(Sight::Tree, 0.0, 0.0) });
        }
        let later = secs * count as f64;
        with_unknown.extend(known[at..].iter().map(|rates| Rates { t_secs: rates.t_secs + later, ..rates.clone() }));
        for (rates, (_, verdict)) in with_unknown.iter().zip(idle_verdicts(&with_unknown, &IdleSpec::default())) {
            prop_assert!(!(rates.gpu_percent.is_unknown() && verdict.action == WatchAction::Stop), "stopped while unknown");
        }
        let reached = |stop: Option<f64>| stop.unwrap_or(f64::INFINITY);
        let expected = match stop_at(&known) {
            Some(stop) if at > 0 && stop <= known[at - 1].t_secs => stop,
            Some(stop) => stop + later,
            None => f64::INFINITY,
        };
        prop_assert!(reached(stop_at(&with_unknown)) >= expected - 1e-6);
    }

    /// From 0.3 s to 60 s between samples the verdict comes at the same time, give or take a
    /// sample.
    #[test]
    fn sampling_rate_does_not_matter(interval in 0.3..60.0f64, worked in 1200.0..4000.0f64) {
        let (coarse, fine) = (Script::new(Sight::Tree, interval), Script::new(Sight::Tree, 1.0));
        let of = |script: Script| script.work(worked).quiet(900.0).idle().stop_at().expect("fifteen quiet minutes");
        let (coarse, fine) = (of(coarse), of(fine));
        prop_assert!((coarse - fine).abs() <= 2.0 * interval + 1.0, "{coarse} and {fine}");
    }

    /// However long nothing was measured, that alone is never idle.
    #[test]
    fn gap_never_causes_idle(gap in 60.0..1e6f64, quiet in 0.0..60.0f64, interval in 1.0..30.0f64) {
        let judged = Script::new(Sight::Tree, interval).work(3600.0).quiet(quiet).gap(gap).idle();
        prop_assert_eq!(judged.stop_at(), None);
    }

    /// A longer window never stops earlier.
    #[test]
    fn longer_window_never_stops_earlier(intervals in prop::collection::vec(interval(), 1..80), window in 30..900u64, more in 0..900u64) {
        let series = series(&intervals, Sight::Tree);
        let stop = |secs: u64| {
            let spec = IdleSpec { window: Some(Span::from_secs(secs)), ..IdleSpec::default() };
            idle_verdicts(&series, &spec).into_iter().find(|(_, verdict)| verdict.action == WatchAction::Stop).map_or(f64::INFINITY, |(t, _)| t)
        };
        // The part of an interval that counts is at most a third of the window: below that length
        // windows do not compare.
        prop_assume!(window >= 180);
        prop_assert!(stop(window) <= stop(window + more) + 1e-6);
    }

    /// Nothing that can be measured makes the rule panic or emit a number that JSON cannot hold.
    #[test]
    fn any_numbers_are_judged(values in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 1..30)) {
        let mut watch = IdleWatch::new(&IdleSpec::default());
        for (t, interval, level) in values {
            let rates = Rates { t_secs: t, interval_secs: interval, gpu_percent: Reading::Known(level), cpu_percent: Reading::Known(level), ..Rates::default() };
            let verdict = watch.step(&rates);
            prop_assert!(verdict.numbers.values().all(|number| number.is_finite()));
        }
    }
}
