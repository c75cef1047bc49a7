//! Several zones with their own prices, on recorded launch probes: this rule, Uniform Progress over
//! all zones, and the least that anybody could have paid who knew the future.
//!
//! The protocol is that of the bench for one zone: 48 hours of work, deadlines of 52, 60 and 70
//! hours, starts of 3 and 12 minutes; each tick begins with a look at all zones, a tick is paid
//! whole, and cost is a share of 48 hours on demand. The recordings are not in this repository
//! (docs/policies.md).

use std::path::Path;
use std::time::Duration;

use lamplighter::market::{Usd, UsdPerHour};
use lamplighter::policy::market::deadline_choice::{Capacity, MarketFacts, MarketStep, Running};
use lamplighter::policy::market::zones::{ZoneLook, ZonesWatch};
use lamplighter::wire::read_capacity;

use super::Asked;

const WORK: u64 = 48 * 3600;
const ON_DEMAND: f64 = 3.06;
const STARTS: usize = 8;

/// The recordings that were made at the same time, by zone.
const ZONES: [&str; 6] =
    ["us-east-1a", "us-east-1c", "us-east-1d", "us-east-1f", "us-west-2a", "us-west-2b"];

/// Which of them a job may use.
const SETS: [(&str, &[usize]); 5] = [
    ("all six", &[0, 1, 2, 3, 4, 5]),
    ("us-east-1, four", &[0, 1, 2, 3]),
    ("us-east-1c, d, f", &[1, 2, 3]),
    ("us-east-1a, c", &[0, 1]),
    ("us-west-2, two", &[4, 5]),
];

/// The first tick of the recordings, seconds since 1970.
const BEGINS: i64 = 1_676_504_267;

/// One zone: whether capacity was there, and what it cost, tick by tick.
struct Course {
    there: Vec<bool>,
    usd: Vec<f64>,
}

/// One job against some zones.
struct Case<'a> {
    zones: Vec<(&'a [bool], &'a [f64])>,
    tick: u64,
    deadline: u64,
    overhead: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Runs {
    Nothing,
    Spot(usize),
    OnDemand,
}

/// What a rule sees, in seconds.
struct View {
    tick: usize,
    now: u64,
    done: u64,
    on: Runs,
    owed: u64,
}

fn read(data: &Path) -> Option<(u64, Vec<Course>)> {
    let mut tick = 0;
    let mut courses = Vec::new();
    for zone in ZONES {
        let trace = read_capacity(&data.join(format!("a-2023-02-15-{zone}_v100_1.json")))
            .map_err(|error| eprintln!("{error}"))
            .ok()?;
        let text = std::fs::read_to_string(data.join(format!("prices/p3.2xlarge_{zone}_2023.csv")))
            .map_err(|error| eprintln!("{error}"))
            .ok()?;
        let changes: Vec<(i64, f64)> = text.lines().skip(1).filter_map(change).collect();
        tick = trace.tick.as_secs();
        let price = |n: usize| {
            let at = BEGINS + (n as u64 * tick) as i64;
            let known = changes.partition_point(|(from, _)| *from <= at);
            changes[known.saturating_sub(1)].1
        };
        courses
            .push(Course { usd: (0..trace.there.len()).map(price).collect(), there: trace.there });
    }
    Some((tick, courses))
}

fn change(line: &str) -> Option<(i64, f64)> {
    let (time, usd) = line.split_once(',')?;
    Some((format!("{time}Z").parse::<jiff::Timestamp>().ok()?.as_second(), usd.parse().ok()?))
}

fn cases<'a>(courses: &'a [Course], tick: u64, set: &[usize]) -> Vec<Case<'a>> {
    let ticks = courses[0].there.len();
    let window = |hours: u64| (hours * 3600).div_ceil(tick) as usize;
    let mut cases = Vec::new();
    for start in (0..STARTS).map(|k| k * (ticks - window(70) - 1) / (STARTS - 1)) {
        for hours in [52, 60, 70] {
            let end = start + window(hours);
            let zones: Vec<_> = set
                .iter()
                .map(|zone| (&courses[*zone].there[start..end], &courses[*zone].usd[start..end]))
                .collect();
            cases.extend([180, 720].map(|overhead| Case {
                zones: zones.clone(),
                tick,
                deadline: hours * 3600,
                overhead,
            }));
        }
    }
    cases
}

/// Plays a rule; the cost, and whether it was late.
fn play(case: &Case<'_>, mut rule: impl FnMut(&Case<'_>, &View) -> Runs) -> (f64, bool) {
    let (mut on, mut owed, mut done, mut usd) = (Runs::Nothing, 0, 0, 0.0);
    for n in 0..case.zones[0].0.len() {
        if matches!(on, Runs::Spot(zone) if !case.zones[zone].0[n]) {
            (on, owed) = (Runs::Nothing, 0);
        }
        let to = rule(case, &View { tick: n, now: n as u64 * case.tick, done, on, owed });
        assert!(
            !matches!(to, Runs::Spot(zone) if !case.zones[zone].0[n]),
            "spot was bought where it was not"
        );
        owed = if to == on {
            owed
        } else if to == Runs::Nothing {
            0
        } else {
            case.overhead
        };
        on = to;
        let hourly = match on {
            Runs::Nothing => continue,
            Runs::Spot(zone) => case.zones[zone].1[n],
            Runs::OnDemand => ON_DEMAND,
        };
        usd += hourly * case.tick as f64 / 3600.0;
        let starting = owed.min(case.tick);
        owed -= starting;
        let worked = (case.tick - starting).min(WORK - done);
        done += worked;
        if done == WORK {
            return (share(usd), n as u64 * case.tick + starting + worked > case.deadline);
        }
    }
    let rest = (WORK - done + case.overhead).div_ceil(case.tick) * case.tick;
    (share(usd + ON_DEMAND * rest as f64 / 3600.0), true)
}

fn share(usd: f64) -> f64 {
    usd / (ON_DEMAND * WORK as f64 / 3600.0)
}

/// The cheapest zone that is there.
fn cheapest(case: &Case<'_>, n: usize) -> Option<usize> {
    let there = case.zones.iter().enumerate().filter(|(_, zone)| zone.0[n]);
    there.min_by(|(_, a), (_, b)| a.1[n].total_cmp(&b.1[n])).map(|(zone, _)| zone)
}

/// Wu et al., NSDI 2024, where every zone is looked at, and the cheapest that is there is taken and
/// kept until it goes.
fn uniform_progress(case: &Case<'_>, view: &View) -> Runs {
    let left = (case.deadline - view.now) / case.tick;
    let needs = |starts: u64| (WORK - view.done + starts * case.overhead).div_ceil(case.tick);
    let expected = |at: u64| WORK as f64 / case.deadline as f64 * at as f64;
    let runs_spot = matches!(view.on, Runs::Spot(_));
    if needs(1) >= left {
        return if runs_spot && view.owed == 0 { view.on } else { Runs::OnDemand };
    }
    if needs(2) >= left && !runs_spot {
        return Runs::OnDemand;
    }
    match (view.on, cheapest(case, view.tick)) {
        (Runs::Spot(_), _) => view.on,
        (Runs::OnDemand, Some(zone))
            if view.done as f64 > expected(view.now + 2 * case.overhead) =>
        {
            Runs::Spot(zone)
        }
        (Runs::OnDemand, _) => Runs::OnDemand,
        (Runs::Nothing, Some(zone)) => Runs::Spot(zone),
        (Runs::Nothing, None) if (view.done as f64) < expected(view.now) => Runs::OnDemand,
        (Runs::Nothing, None) => Runs::Nothing,
    }
}

/// The shipped rule.
fn this_rule() -> impl FnMut(&Case<'_>, &View) -> Runs {
    let mut watch = ZonesWatch::default();
    let usd = |dollars: f64| UsdPerHour::new(Usd::from_dollars(dollars).expect("a price"));
    let secs = Duration::from_secs;
    move |case, view| {
        let looks: Vec<ZoneLook> = case
            .zones
            .iter()
            .map(|(there, price)| ZoneLook {
                capacity: if there[view.tick] { Capacity::There } else { Capacity::Gone },
                hourly: usd(price[view.tick]),
            })
            .collect();
        let startup_left = secs(view.owed);
        let (here, running) = match view.on {
            Runs::Nothing => (None, Running::Nothing),
            Runs::Spot(zone) => (Some(zone), Running::Spot { startup_left }),
            Runs::OnDemand => (None, Running::OnDemand { startup_left }),
        };
        let facts = MarketFacts {
            time_left: secs(case.deadline - view.now),
            work_left: secs(WORK - view.done),
            tick: secs(case.tick),
            since_look: secs(if view.tick == 0 { 0 } else { case.tick }),
            spot: Capacity::Unknown,
            running,
            startup: secs(case.overhead),
            unsaved: Duration::ZERO,
            begins_anew: false,
            spot_price: usd(0.0),
            on_demand_price: usd(ON_DEMAND),
        };
        let (zone, verdict) = watch.step(&looks, here, &facts);
        match verdict.step {
            MarketStep::Spot => Runs::Spot(zone),
            MarketStep::OnDemand => Runs::OnDemand,
            MarketStep::Wait => Runs::Nothing,
        }
    }
}

/// The least possible cost: backward over (tick, what runs, progress) with the whole window known.
/// A start takes its time off the progress, which may so be below zero, as in the bench for one
/// zone.
fn omniscient(case: &Case<'_>) -> f64 {
    let unit = [case.overhead, WORK].iter().fold(case.tick, |a, b| gcd(a, *b));
    let (need, start, ticks) =
        ((WORK / unit) as usize, (case.overhead / unit) as usize, case.zones[0].0.len());
    let size = need + start + 1;
    // What it costs from here, by progress, where this runs: nothing, on demand, and each zone.
    let done = || {
        let mut row = vec![f32::INFINITY; size];
        row[size - 1] = 0.0;
        row
    };
    let mut later: Vec<Vec<f32>> = (0..case.zones.len() + 2).map(|_| done()).collect();
    let mut now = later.clone();
    for n in (0..ticks).rev() {
        let usable = if n + 1 == ticks { case.deadline - n as u64 * case.tick } else { case.tick };
        let gain = (usable / unit) as usize;
        let paid = |hourly: f64| (hourly * case.tick as f64 / 3600.0) as f32;
        let after = |row: &[f32], i: usize, gain: isize| match i as isize + gain {
            below if below < 0 => f32::INFINITY,
            at => row[(at as usize).min(size - 1)],
        };
        let (goes, starts) = (gain as isize, gain as isize - start as isize);
        for i in 0..size {
            let mut idle = later[0][i].min(paid(ON_DEMAND) + after(&later[1], i, starts));
            for (zone, (there, price)) in case.zones.iter().enumerate() {
                if there[n] {
                    idle = idle.min(paid(price[n]) + after(&later[zone + 2], i, starts));
                }
            }
            now[0][i] = idle;
            now[1][i] = idle.min(paid(ON_DEMAND) + after(&later[1], i, goes));
            for (zone, (there, price)) in case.zones.iter().enumerate() {
                now[zone + 2][i] = if there[n] {
                    idle.min(paid(price[n]) + after(&later[zone + 2], i, goes))
                } else {
                    idle
                };
            }
        }
        now.iter_mut().for_each(|row| row[size - 1] = 0.0);
        std::mem::swap(&mut now, &mut later);
    }
    share(f64::from(later[0][start]))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub fn measure(asked: &Asked) {
    let Some((tick, courses)) = read(&asked.data) else {
        return println!("no recordings there; --data FOLDER names another");
    };
    println!(
        "| Zones | runs | Uniform Progress over all | this rule | late | knowing the future | of the distance |\n|---|---|---|---|---|---|---|"
    );
    for (name, set) in SETS {
        let cases = cases(&courses, tick, set);
        let mean = |costs: &[(f64, bool)]| {
            costs.iter().map(|(cost, _)| cost).sum::<f64>() / costs.len() as f64
        };
        let up: Vec<(f64, bool)> = cases.iter().map(|case| play(case, uniform_progress)).collect();
        let ours: Vec<(f64, bool)> = cases.iter().map(|case| play(case, this_rule())).collect();
        let bound = cases.iter().map(omniscient).sum::<f64>() / cases.len() as f64;
        let late = ours.iter().filter(|(_, late)| *late).count();
        let (up, ours) = (mean(&up), mean(&ours));
        println!(
            "| {name} | {} | {up:.4} | {ours:.4} | {late} | {bound:.4} | {:.0} % |",
            cases.len(),
            100.0 * (up - ours) / (up - bound)
        );
    }
}
