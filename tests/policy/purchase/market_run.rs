//! A job played against courses of capacity: the sums add up, the deadline holds, the draw follows
//! the law.

use std::time::Duration;

use lamplighter::market::{Usd, UsdPerHour};
use lamplighter::policy::market::capacity_periods::ZoneSpells;
use lamplighter::policy::market::deadline_choice::MarketWatch;
use lamplighter::policy::market::replay::{
    Drawn, Goes, Play, PlayLimits, Ran, Spread, Unfinished, planned, run,
};

const HOUR: Duration = Duration::from_secs(3600);

fn price(dollars: f64) -> UsdPerHour {
    UsdPerHour::new(Usd::from_dollars(dollars).unwrap())
}

fn play(work: u32, deadline: Option<u32>) -> Play {
    Play {
        work: HOUR * work,
        deadline: deadline.map(|deadline| HOUR * deadline),
        start: Duration::from_secs(720),
        saves_every: Duration::from_secs(600),
        begins_anew: false,
        tick: Duration::from_secs(600),
        spot: price(1.0),
        on_demand: price(3.0),
        limits: PlayLimits::default(),
    }
}

#[test]
fn with_capacity_for_ever_it_costs_its_work_and_one_start() {
    let ran = run(&play(10, None), Goes::Spot, &MarketWatch::default(), || true);
    assert!((ran.usd - 10.2).abs() < 1e-9 && (ran.finish_hours - 10.2).abs() < 1e-9, "{ran:?}");
    assert_eq!((ran.starts, ran.interruptions, ran.unfinished), (1, 0, None));
    let ran = run(&play(10, Some(12)), Goes::OnDemand, &MarketWatch::default(), || false);
    assert!((ran.usd - 30.6).abs() < 1e-9 && (ran.on_demand_hours - 10.2).abs() < 1e-9, "{ran:?}");
    assert!(
        (ran.machine_hours - 10.2).abs() < 1e-9 && (ran.finish_hours - 10.2).abs() < 1e-9,
        "it never waits: {ran:?}"
    );
}

#[test]
fn interruption_costs_a_start_and_what_was_not_saved() {
    let mut tick = 0;
    let ran = run(&play(2, None), Goes::Spot, &MarketWatch::default(), || {
        tick += 1;
        tick != 5
    });
    assert_eq!((ran.interruptions, ran.starts), (1, 2));
    assert!(ran.lost_hours > 0.0 && ran.lost_hours <= 600.0 / 3600.0, "{ran:?}");
    assert!((ran.usd - (2.0 + ran.lost_hours + 0.4)).abs() < 1e-9, "{ran:?}");
    assert!(
        (ran.machine_hours - ran.usd).abs() < 1e-9 && ran.finish_hours > ran.machine_hours,
        "it waits while none is there: {ran:?}"
    );
}

#[test]
fn drawn_courses_meet_the_deadline_and_a_later_one_costs_less() {
    let spells = ZoneSpells::default();
    let mean = |deadline: u32| {
        let play = play(20, Some(deadline));
        let watch = planned(&play, &spells);
        let all: Vec<Ran> = (0..60)
            .map(|seed| {
                let mut course = Drawn::new(seed, &spells, play.tick);
                run(&play, Goes::Auto, &watch, || course.step())
            })
            .collect();
        assert!(all.iter().all(|ran| ran.unfinished.is_none()), "by {deadline} h");
        Spread::of(&all, |ran| ran.usd).unwrap().mean
    };
    let (soon, late) = (mean(22), mean(40));
    assert!(late < soon && soon < 60.6, "{late} {soon}");
}

#[test]
fn unfinished_job_ends_at_its_deadline_and_its_cost_is_told() {
    let ran = run(&play(10, Some(5)), Goes::Spot, &MarketWatch::default(), || true);
    assert!(
        ran.unfinished == Some(Unfinished::Deadline)
            && (ran.usd - 5.0).abs() < 1e-9
            && (ran.finish_hours - 5.0).abs() < 1e-9,
        "{ran:?}"
    );
    let job = play(10, None);
    let ran = run(&job, Goes::Spot, &MarketWatch::default(), || false);
    assert!(ran.unfinished == Some(Unfinished::GivenUp) && ran.usd == 0.0, "{ran:?}");
    assert!(
        (ran.finish_hours * 3600.0 - job.given_up_after().as_secs_f64()).abs() < 1.0,
        "{ran:?}"
    );
}

#[test]
fn run_time_and_a_budget_end_a_job_that_is_not_done() {
    let limited = |limits: PlayLimits, there: &mut dyn FnMut() -> bool| {
        run(&Play { limits, ..play(10, None) }, Goes::Spot, &MarketWatch::default(), there)
    };
    let run_time = PlayLimits { max_runtime: Some(HOUR * 4), ..PlayLimits::default() };
    let ran = limited(run_time, &mut || true);
    assert_eq!((ran.unfinished, ran.starts), (Some(Unfinished::RunTime), 1));
    assert!((ran.usd - 4.0).abs() < 1e-9 && (ran.finish_hours - 4.0).abs() < 1e-9, "{ran:?}");
    // Each machine begins its run time anew: taken away every three hours, the job comes to its
    // end.
    let mut tick = 0;
    let ran = limited(run_time, &mut || {
        tick += 1;
        tick % 18 != 0
    });
    assert!(ran.unfinished.is_none() && ran.interruptions >= 3, "{ran:?}");
    // A budget is of all machines, and is divided by the bid.
    let budget = PlayLimits {
        budget: Some(Usd::from_dollars(6.0).unwrap()),
        spot_most: Some(price(2.0)),
        ..PlayLimits::default()
    };
    let ran = limited(budget, &mut || true);
    assert_eq!(ran.unfinished, Some(Unfinished::Budget));
    assert!((ran.usd - (3.0 - 120.0 / 3600.0)).abs() < 1e-9, "the power-off is in it: {ran:?}");
    let mut tick = 0;
    let ran = limited(budget, &mut || {
        tick += 1;
        tick % 6 != 0
    });
    assert!(
        ran.unfinished == Some(Unfinished::Budget) && ran.starts > 1 && ran.usd <= 6.0,
        "{ran:?}"
    );
    let none = limited(
        PlayLimits { budget: Some(Usd::from_dollars(0.1).unwrap()), ..PlayLimits::default() },
        &mut || true,
    );
    assert_eq!(
        (none.unfinished, none.starts, none.usd),
        (Some(Unfinished::Budget), 0, 0.0),
        "not worth a start"
    );
    let ample = PlayLimits {
        max_runtime: Some(HOUR * 11),
        budget: Some(Usd::from_dollars(11.0).unwrap()),
        ..PlayLimits::default()
    };
    assert_eq!(
        limited(ample, &mut || true),
        run(&play(10, None), Goes::Spot, &MarketWatch::default(), || true)
    );
}

/// The rule of the controller: a scarce zone is left for a machine on demand, any other is waited
/// for.
#[test]
fn auto_without_a_deadline_leaves_a_zone_where_spot_costs_more() {
    let auto = |job: &Play, there: bool| {
        run(job, Goes::Auto, &planned(job, &ZoneSpells::default()), || there)
    };
    let cheap = play(10, None);
    assert_eq!(
        (auto(&cheap, true).on_demand_hours, auto(&cheap, false).unfinished),
        (0.0, Some(Unfinished::GivenUp)),
        "nothing presses"
    );
    let scarce = Play { spot: price(2.9), start: HOUR, ..cheap };
    for there in [true, false] {
        let ran = auto(&scarce, there);
        assert!(
            (ran.on_demand_hours - 11.0).abs() < 1e-9
                && (ran.usd - 33.0).abs() < 1e-9
                && ran.starts == 1,
            "{ran:?}"
        );
    }
}

#[test]
fn draw_repeats_for_a_seed_and_has_capacity_half_of_the_time() {
    let spells = ZoneSpells::default();
    let course = |seed| {
        let mut course = Drawn::new(seed, &spells, Duration::from_secs(600));
        (0..5000).map(|_| course.step()).collect::<Vec<bool>>()
    };
    assert_eq!(course(7), course(7));
    let there = (0..40)
        .map(|seed| course(seed).iter().filter(|there| **there).count())
        .sum::<usize>() as f64
        / 200_000.0;
    assert!((0.4..0.6).contains(&there), "{there}");
}
