//! When is it stalled, and what is done about it, rung by rung.

use lamplighter::instance::{Rates, Reading};
use lamplighter::job::StallSpec;
use lamplighter::market::Span;
use lamplighter::policy::{Activity, StallWatch, WatchAction};
use proptest::prelude::*;

use crate::watch::script::{HOUR, MINUTE, Script};

fn step(rates: &mut Rates) {
    (rates.gpu_percent, rates.gpu_power_watts) = (Reading::Known(98.0), Reading::Known(300.0));
    rates.progress_marks = Reading::Known(1.0);
}

fn spin(rates: &mut Rates) {
    (rates.gpu_percent, rates.gpu_power_watts) = (Reading::Known(100.0), Reading::Known(110.0));
    rates.progress_marks = Reading::Known(0.0);
}

#[test]
fn a_hung_collective_climbs_the_ladder() {
    let judged = Script::live().phase(HOUR, step).phase(HOUR, spin).stall();
    let at = |action| judged.action_at(action).map(|t| (t - HOUR) / MINUTE);
    assert_eq!(at(WatchAction::Notify), Some(20.0));
    assert_eq!(at(WatchAction::Stacks), Some(21.0));
    assert_eq!(at(WatchAction::Restart), Some(22.0));
    assert_eq!(at(WatchAction::Stop), None, "restarts are left");
    let text = &judged.last().text;
    assert!(
        text.ends_with("GPU 100 % at 110 of its usual 300 W, as in a hung collective"),
        "{text}"
    );
}

#[test]
fn when_the_restarts_are_used_up_it_is_stopped() {
    let spec = StallSpec { restarts_max: 2, ..StallSpec::default() };
    let mut watch = StallWatch::new(&spec);
    let script = Script::live().phase(HOUR, step);
    script.series.iter().for_each(|rates| drop(watch.step(rates, 0)));
    let hung = Script::live().phase(HOUR, spin).series;
    for (restarts, last) in
        [(0, WatchAction::Restart), (1, WatchAction::Restart), (2, WatchAction::Stop)]
    {
        let actions: Vec<WatchAction> =
            hung.iter().map(|rates| watch.step(rates, restarts).action).collect();
        assert_eq!(*actions.last().unwrap(), last, "after {restarts} restarts");
        assert!(actions.is_sorted(), "a rung is never taken back without progress");
        assert_eq!(actions[0], WatchAction::None, "the clock starts again with the workload");
    }
}

#[test]
fn restarted_workload_that_hangs_at_once_is_known_to_report() {
    let mut watch = StallWatch::new(&StallSpec::default());
    Script::live().phase(HOUR, step).series.iter().for_each(|rates| drop(watch.step(rates, 0)));
    watch.started_again();
    let hung = Script::live().phase(HOUR, spin).series;
    let last = hung.iter().map(|rates| watch.step(rates, 0)).last().unwrap();
    assert_eq!((last.standing, last.action), (Activity::Stalled, WatchAction::Restart));
}

/// A checkpoint lives longer than its machine: what the script did there is known on the next one.
#[test]
fn moved_workload_that_hangs_at_once_is_known_to_report() {
    let before = |script: Script| {
        let mut watch = StallWatch::new(&StallSpec::default());
        script.series.iter().for_each(|rates| drop(watch.step(rates, 0)));
        watch.longest_silence()
    };
    let after = |longest: Option<f64>| {
        let mut watch = StallWatch::new(&StallSpec::default());
        longest.into_iter().for_each(|secs| watch.goes_on(secs));
        let hung = Script::live().phase(4.0 * HOUR, spin).series;
        let actions: Vec<WatchAction> =
            hung.iter().map(|rates| watch.step(rates, 0).action).collect();
        let at = |wanted| actions.iter().position(|action| *action == wanted);
        let secs = hung.iter().map(|rates| rates.interval_secs).sum::<f64>() / hung.len() as f64;
        (
            at(WatchAction::Notify).map(|at| (at as f64 * secs / MINUTE).round()),
            at(WatchAction::Restart).is_some(),
            watch.longest_silence(),
        )
    };
    let reported = before(Script::live().phase(HOUR, step));
    assert!(reported.is_some_and(|secs| secs < MINUTE), "{reported:?}");
    let (told, restarted, handed_on) = after(reported);
    assert_eq!(
        (told, restarted),
        (Some(60.0), true),
        "three windows: a big model may load for long"
    );
    assert_eq!(handed_on, reported, "the machine after this one knows it too, and no hang");
    // Twice a silence that was not over yet when the checkpoint was made, and was no hang.
    let patient = Script::live()
        .phase(HOUR, step)
        .phase(19.0 * MINUTE, spin)
        .phase(MINUTE, step)
        .phase(35.0 * MINUTE, spin);
    let (told, restarted, _) = after(before(patient));
    assert_eq!((told, restarted), (Some(70.0), true));
    // One that saves when it is asked, and says nothing ever: the checkpoint says no more than
    // that.
    let asked = |rates: &mut Rates| rates.checkpoint_marks = Reading::Known(1.0);
    assert_eq!(before(Script::live().phase(HOUR, spin).phase(MINUTE, asked)), None);
    let (told, restarted, _) = after(None);
    assert_eq!((told, restarted), (Some(60.0), false), "told of, and not ended");
}

/// Its long evaluations are the same there, after a line that it prints at its start.
#[test]
fn silence_of_another_machine_is_borne_after_the_first_mark_too() {
    let series = Script::live().phase(30.0 * MINUTE, step).phase(50.0 * MINUTE, spin).series;
    let most = |before: Option<f64>| {
        let mut watch = StallWatch::new(&StallSpec::default());
        before.into_iter().for_each(|secs| watch.goes_on(secs));
        series.iter().map(|rates| watch.step(rates, 0).action).max()
    };
    assert_eq!(
        (most(Some(30.0 * MINUTE)), most(None)),
        (Some(WatchAction::None), Some(WatchAction::Restart))
    );
}

/// It says what it goes on from, and hangs. What it used at that one sign is no measure of its work
/// (seeds 1392, 1583 and 1884 of 6 h).
#[test]
fn hang_after_first_line_on_another_machine_is_not_usual_work() {
    let mut watch = StallWatch::new(&StallSpec::default());
    watch.goes_on(60.0);
    let alike = |rates: &mut Rates| rates.gpu_power_watts = Reading::Known(300.0);
    let mut series = Script::live().phase(3.0 * HOUR, spin).series;
    series.iter_mut().for_each(alike);
    step(&mut series[0]);
    alike(&mut series[0]);
    assert_eq!(
        series.iter().map(|rates| watch.step(rates, 0).action).max(),
        Some(WatchAction::Restart)
    );
}

/// A setup that prints is no sign that the command does, nor is its hang a silence to be borne.
#[test]
fn what_a_setup_printed_says_nothing_of_the_command() {
    let mut watch = StallWatch::new(&StallSpec::default());
    watch.goes_on(60.0);
    Script::live()
        .phase(HOUR, step)
        .phase(19.0 * MINUTE, spin)
        .series
        .iter()
        .for_each(|rates| drop(watch.step(rates, 0)));
    watch.begins();
    assert_eq!(watch.longest_silence(), Some(60.0), "what came before this machine stays");
    let first = |series: &[Rates], watch: &mut StallWatch| {
        series.iter().position(|rates| watch.step(rates, 0).action > WatchAction::None)
    };
    let hung = Script::live().phase(2.0 * HOUR, spin).series;
    let secs = hung.iter().map(|rates| rates.interval_secs).sum::<f64>() / hung.len() as f64;
    assert_eq!(first(&hung, &mut watch).map(|at| (at as f64 * secs / MINUTE).round()), Some(60.0));
}

/// A silence that was taken for a hang is none that the next machine bears.
#[test]
fn hang_does_not_lengthen_patience() {
    let mut watch = StallWatch::new(&StallSpec::default());
    Script::live()
        .phase(HOUR, step)
        .phase(21.0 * MINUTE, spin)
        .series
        .iter()
        .for_each(|rates| drop(watch.step(rates, 0)));
    assert!(
        watch.longest_silence().is_some_and(|secs| secs < MINUTE),
        "{:?}",
        watch.longest_silence()
    );
}

type Mark = (&'static str, fn(&mut Rates));

#[test]
fn any_mark_is_progress() {
    let marks: [Mark; 4] = [
        ("a progress line", |rates| rates.progress_marks = Reading::Known(1.0)),
        ("a log line", |rates| rates.log_bytes = Reading::Known(20.0)),
        ("a checkpoint", |rates| rates.checkpoint_marks = Reading::Known(1.0)),
        ("a step", |rates| rates.step = Some(rates.t_secs)),
    ];
    for (name, mark) in marks {
        let mut script = Script::live().phase(MINUTE, step);
        for _ in 0..6 {
            script = script.phase(15.0 * MINUTE, spin).phase(10.0, mark);
        }
        let judged = script.stall();
        assert_eq!(judged.action_at(WatchAction::Notify), None, "{name}");
        assert_eq!(judged.standing(), Activity::Busy, "{name}");
    }
}

#[test]
fn slow_steps_make_a_long_window() {
    let mut script = Script::live().phase(10.0, step);
    for _ in 0..8 {
        script = script.phase(5.0 * MINUTE - 10.0, spin).phase(10.0, step);
    }
    let began = script.t;
    let judged = script.phase(2.0 * HOUR, spin).stall();
    assert_eq!(
        judged.action_at(WatchAction::Notify),
        Some(began + 50.0 * MINUTE),
        "ten steps of five minutes"
    );
}

#[test]
fn long_silence_that_ended_well_is_expected_again() {
    let script = Script::live().phase(HOUR, step).phase(18.0 * MINUTE, spin).phase(10.0, step);
    let began = script.t;
    assert_eq!(
        script.phase(HOUR, spin).stall().action_at(WatchAction::Notify),
        Some(began + 36.0 * MINUTE)
    );
}

#[test]
fn a_job_that_never_reports_is_only_told_about() {
    let judged = Script::live().phase(10.0 * HOUR, spin).stall();
    let told: Vec<f64> = judged
        .0
        .iter()
        .filter(|(_, verdict)| verdict.action != WatchAction::None)
        .map(|(t, _)| *t)
        .collect();
    assert_eq!((told[0], told[told.len() - 1]), (HOUR, HOUR + 3.0 * MINUTE - 10.0), "for one rung");
    assert_eq!(judged.standing(), Activity::Busy);
}

/// Its lines wait in a buffer of its own: a configuration that fills it at once, and then a line a
/// second that nobody sees.
#[test]
fn one_early_line_is_no_rhythm() {
    let lines = |rates: &mut Rates| rates.log_bytes = Reading::Known(8192.0);
    let judged = Script::live().phase(10.0, lines).phase(10.0 * HOUR, spin).stall();
    assert_eq!(judged.action_at(WatchAction::Notify), Some(HOUR + 10.0), "somebody is told once");
    assert_eq!(judged.action_at(WatchAction::Restart), None);
    assert_eq!(judged.standing(), Activity::Busy);
    // The file names a short window: it is meant for signs that come.
    let spec = StallSpec { window: Some(Span::from_secs(30)), ..StallSpec::default() };
    let judged = Script::new(crate::watch::script::Sight::Tree, 1.0)
        .phase(3.0, lines)
        .phase(600.0, spin)
        .stall_with(&spec);
    assert_eq!(judged.action_at(WatchAction::Restart), None);
}

#[test]
fn lines_of_a_start_up_are_no_rhythm_for_the_step_after_it() {
    let line = |rates: &mut Rates| rates.log_bytes = Reading::Known(60.0);
    let judged = Script::live()
        .phase(9.0 * MINUTE, line)
        .phase(45.0 * MINUTE, spin)
        .phase(10.0, line)
        .stall();
    assert_eq!(judged.action_at(WatchAction::Notify), None);
}

/// After hours of lines, at the power that it has when it works.
#[test]
fn silent_step_of_45_minutes_is_told_and_not_ended() {
    let line = |rates: &mut Rates| {
        (rates.gpu_percent, rates.gpu_power_watts) = (Reading::Known(98.0), Reading::Known(300.0));
        rates.log_bytes = Reading::Known(60.0);
    };
    let silent = |rates: &mut Rates| {
        (rates.gpu_percent, rates.gpu_power_watts) = (Reading::Known(97.0), Reading::Known(290.0))
    };
    let rests = |rates: &mut Rates| {
        (rates.gpu_percent, rates.gpu_power_watts) = (Reading::Known(0.0), Reading::Known(70.0))
    };
    let mut script = Script::live().phase(3.0 * HOUR, line);
    for _ in 0..15 {
        script = script.phase(150.0, silent).phase(30.0, rests);
    }
    let judged = script.phase(HOUR, line).stall();
    assert_eq!(judged.action_at(WatchAction::Notify), Some(3.0 * HOUR + 20.0 * MINUTE));
    assert_eq!(
        (judged.action_at(WatchAction::Stacks), judged.action_at(WatchAction::Restart)),
        (None, None)
    );
    // On a machine without a GPU its CPU says the same.
    let computes = |rates: &mut Rates| {
        (rates.gpu_percent, rates.cpu_percent) = (Reading::Absent, Reading::Known(390.0))
    };
    let prints = |rates: &mut Rates| {
        computes(rates);
        rates.log_bytes = Reading::Known(60.0);
    };
    let judged = Script::live().phase(HOUR, prints).phase(45.0 * MINUTE, computes).stall();
    assert_eq!(
        (judged.action_at(WatchAction::Notify).is_some(), judged.action_at(WatchAction::Stacks)),
        (true, None)
    );
    let waits = |rates: &mut Rates| {
        (rates.gpu_percent, rates.cpu_percent) = (Reading::Absent, Reading::Known(0.5))
    };
    let judged = Script::live().phase(HOUR, prints).phase(45.0 * MINUTE, waits).stall();
    assert!(
        judged.action_at(WatchAction::Restart).is_some(),
        "one that waits for ever is begun anew"
    );
}

#[test]
fn line_at_each_epoch_is_a_rhythm_of_its_own() {
    let line = |rates: &mut Rates| rates.log_bytes = Reading::Known(60.0);
    for epoch in [30.0 * MINUTE, 50.0 * MINUTE] {
        let mut script = Script::live().phase(MINUTE, line);
        for number in 0..8 {
            script = script
                .phase(epoch * if number % 2 == 0 { 1.0 } else { 1.2 }, spin)
                .phase(10.0, line);
        }
        assert_eq!(script.stall().action_at(WatchAction::Stacks), None, "{epoch} s");
    }
}

/// They are a promise of more, but it may load for long in between.
#[test]
fn five_steps_that_the_job_tells_are_judged_after_three_windows() {
    let judged = Script::live().phase(MINUTE, step).phase(2.0 * HOUR, spin).stall();
    assert_eq!(judged.action_at(WatchAction::Notify), Some(MINUTE + HOUR));
    assert!(judged.action_at(WatchAction::Restart).is_some());
    assert_eq!(
        Script::live()
            .phase(40.0, step)
            .phase(4.0 * HOUR, spin)
            .stall()
            .action_at(WatchAction::Restart),
        None,
        "four"
    );
}

#[test]
fn without_anything_to_watch_for_it_is_not_judged() {
    let blind = |rates: &mut Rates| rates.log_bytes = Reading::Absent;
    let judged = Script::live().phase(10.0 * HOUR, blind).stall();
    assert_eq!((judged.standing(), judged.action_at(WatchAction::Notify)), (Activity::Busy, None));
}

#[test]
fn unknown_marks_stand_still() {
    let lost = |rates: &mut Rates| rates.log_bytes = Reading::unknown("the log cannot be read");
    let judged = Script::live().phase(HOUR, step).phase(10.0 * HOUR, lost).stall();
    assert_eq!((judged.standing(), judged.last().action), (Activity::Unknown, WatchAction::None));
}

#[test]
fn sleeping_laptop_is_not_a_stall() {
    let judged = Script::live().phase(HOUR, step).gap(9.0 * HOUR).stall();
    assert_eq!(judged.standing(), Activity::Busy);
}

#[test]
fn off_is_off() {
    let spec = StallSpec { window: None, ..StallSpec::default() };
    assert_eq!(
        Script::live()
            .phase(HOUR, step)
            .phase(48.0 * HOUR, spin)
            .stall_with(&spec)
            .action_at(WatchAction::Notify),
        None
    );
}

proptest! {
    // A case is a series of hundreds of samples.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However progress comes, as long as it comes within the window nothing is done.
    #[test]
    fn progress_within_the_window_is_never_stalled(pauses in prop::collection::vec(1.0..1199.0f64, 1..40), window in 1200..4000u64) {
        let spec = StallSpec { window: Some(Span::from_secs(window)), ..StallSpec::default() };
        let mut script = Script::live().phase(10.0, step);
        for pause in pauses {
            script = script.phase(pause, spin).phase(10.0, step);
        }
        let judged = script.stall_with(&spec);
        prop_assert!(!judged.ever(Activity::Stalled));
    }

    /// The rungs come in order and each gets its time.
    #[test]
    fn ladder_is_climbed_in_order(window in 60..7200u64, windows in 1.1..4.0f64) {
        let worked = windows * window as f64;
        let spec = StallSpec { window: Some(Span::from_secs(window)), ..StallSpec::default() };
        let judged = Script::new(crate::watch::script::Sight::Tree, 1.0).phase(worked, step).phase(window as f64 * 1.2 + 60.0, spin).stall_with(&spec);
        let at = |action| judged.action_at(action).expect("the silence lasts long enough");
        let rung = window as f64 / 20.0;
        prop_assert!(at(WatchAction::Stacks) - at(WatchAction::Notify) >= rung - 1.001);
        prop_assert!(at(WatchAction::Restart) - at(WatchAction::Stacks) >= rung - 1.001);
    }
}
