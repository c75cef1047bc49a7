//! Laws of `market = "auto"` and of the bid, for any course of capacity: also for one that is
//! searched for, which learns from each answer what makes the job latest.

use std::time::Duration;

use lamplighter::instance::Status;
use lamplighter::job::{
    AttemptPhase, AttemptRecord, CheckpointSpec, EndedBecause, Outcome, Plan, Refusal, Settled,
    Spec,
};
use lamplighter::market::{
    self, Market, Offer, PriceHistory, PricePoint, Region, Span, Usd, UsdPerHour, Zone,
};
use lamplighter::policy::market::auto_market::{AutoFacts, AutoStep, LOOK_EVERY, SpotPool, judge};
use lamplighter::policy::market::deadline_choice::{
    Capacity, MarketFacts, MarketStep, MarketWatch, Others, Running,
};
use lamplighter::policy::market::pool_history::Pool;
use lamplighter::policy::market::zones::{ZoneLook, ZonesWatch};
use lamplighter::policy::purchase::bid::bid;
use proptest::prelude::*;

use crate::lifecycle::reconcile_facts::{now, outcome, plan, settled, spec, status};

fn usd(dollars: f64) -> UsdPerHour {
    UsdPerHour::new(Usd::from_dollars(dollars).unwrap())
}

/// Capacity in spells of so many minutes, there and gone in turn, again and again.
#[derive(Clone, Debug)]
struct Course(Vec<u64>);

impl Course {
    fn there(&self, minute: u64) -> bool {
        let whole: u64 = self.0.iter().sum();
        let mut left = minute % whole.max(1);
        for (n, spell) in self.0.iter().enumerate() {
            if left < *spell {
                return n % 2 == 0;
            }
            left -= spell;
        }
        false
    }
}

fn course() -> impl Strategy<Value = Course> {
    prop::collection::vec(1..90_u64, 2..12).prop_map(Course)
}

/// Changes one spell after the other for as long as the job ends later by it; gives the worst end
/// that was found.
fn searched(begin: &[Course], played: impl Fn(&[Course]) -> Option<u64>) -> Option<u64> {
    let (mut worst, mut courses) = (played(begin)?, begin.to_vec());
    for round in 0..2 {
        for zone in 0..courses.len() {
            for spell in 0..courses[zone].0.len() {
                for minutes in [1, 11, 13, 25, 70] {
                    let mut tried = courses.clone();
                    tried[zone].0[spell] = minutes + round;
                    let end = played(&tried)?;
                    if end > worst {
                        (worst, courses) = (end, tried);
                    }
                }
            }
        }
    }
    Some(worst)
}

// The controller's own rule: it sees capacity only where a machine is asked for.

const MINUTE: u64 = 60;

/// A start as long as one that nobody has measured is taken to be, and the hand-over before it.
const START: u64 = 10 * MINUTE;
const HANDOVER: u64 = 2 * MINUTE;

fn job(work: u64, deadline: u64) -> Spec {
    let mut spec = spec().spec;
    spec.limits.work = Some(Span::from_secs(work));
    spec.limits.deadline = Some(now() + Duration::from_secs(deadline));
    let (interval, grace) = (Span::from_secs(300), Span::from_secs(30));
    spec.checkpoint = Some(CheckpointSpec { path: "c".into(), interval, signal: None, grace });
    spec
}

/// The end of a job: the last save, its workload's end, and logs and outputs.
const END: u64 = 30 + 30 + 60;

/// The least time in which a job of so much work is promised: its start, its end, and one look.
fn reachable(work: u64) -> u64 {
    work + START + HANDOVER + END + 6 * MINUTE
}

struct Machine {
    plan: Plan,
    begun: u64,
    working: u64,
}

struct Played<'a> {
    spec: &'a Spec,
    course: &'a Course,
    history: Vec<AttemptRecord>,
    pool: Pool,
    watch: MarketWatch,
    now: u64,
    refused: Option<u64>,
}

impl Played<'_> {
    fn judge(&mut self, machine: Option<&Machine>) -> AutoStep {
        self.pool.learn(&self.history);
        let mut pool = self.pool.clone();
        let beat = machine.map(|machine| self.beat(machine));
        let at = now() + Duration::from_secs(self.now);
        if let Some(machine) = machine.filter(|machine| machine.plan.offer.market == Market::Spot) {
            pool.ran(machine.plan.created, at);
        }
        // What placement remembers of a refusal.
        let there = self.refused.is_none_or(|refused| self.now >= refused + 3 * MINUTE);
        let spot = SpotPool {
            pool: &pool,
            hourly: usd(1.0),
            there,
            others: Others::default(),
            elsewhere: 0.0,
        };
        let running = machine.zip(beat.as_ref()).map(|(machine, beat)| (&machine.plan, Some(beat)));
        let (history, more_time) = (&self.history, Span::ZERO);
        judge(
            &mut self.watch,
            &AutoFacts {
                spec: self.spec,
                history,
                running,
                more_time,
                spot: Some(spot),
                on_demand: Some(usd(3.0)),
                speed: 1.0,
                now: at,
            },
        )
        .step
    }

    fn beat(&self, machine: &Machine) -> Status {
        let useful = Span::from_secs(self.now.saturating_sub(machine.working));
        let working_since =
            (self.now >= machine.working).then(|| now() + Duration::from_secs(machine.working));
        Status {
            useful,
            working_since,
            ..status(AttemptPhase::Running, now() + Duration::from_secs(self.now))
        }
    }

    fn launch(&self, market: Market) -> Machine {
        let number = u32::try_from(self.history.len()).unwrap() + 1;
        let created = now() + Duration::from_secs(self.now);
        let base = plan(market::CloudKind::Aws, number, 0);
        let plan = Plan { created, offer: Offer { market, ..base.offer.clone() }, ..base };
        Machine { plan, begun: self.now, working: self.now + START }
    }

    fn over(&mut self, machine: Option<&Machine>, saved: u64, because: EndedBecause) {
        let number = u32::try_from(self.history.len()).unwrap() + 1;
        let at = |secs: u64| Some(now() + Duration::from_secs(secs));
        let record = match machine {
            None => {
                let refused = Settled {
                    instance: None,
                    billed_from: None,
                    billed_to: None,
                    refusal: Some(Refusal::Capacity),
                    outcome: None,
                    ..settled(number, because)
                };
                AttemptRecord {
                    plan: self.launch(Market::Spot).plan.into(),
                    settled: refused.into(),
                }
            }
            Some(machine) => {
                let working_since = (self.now >= machine.working)
                    .then(|| now() + Duration::from_secs(machine.working));
                let outcome = Outcome {
                    saved: Span::from_secs(saved),
                    working_since,
                    ..outcome(number, because)
                };
                let settled = Settled {
                    billed_from: at(machine.begun),
                    billed_to: at(self.now),
                    outcome: Some(outcome),
                    ..settled(number, because)
                };
                AttemptRecord { plan: machine.plan.clone().into(), settled: settled.into() }
            }
        };
        self.history.push(record);
    }
}

/// Plays a job by the controller's rule; the second at which its work was done, or `None` when that
/// was after the deadline.
fn played(work: u64, deadline: u64, course: &Course) -> Option<u64> {
    let spec = job(work, deadline);
    let mut world = Played {
        spec: &spec,
        course,
        history: Vec::new(),
        pool: Pool::new("z", "t"),
        watch: MarketWatch::default(),
        now: 0,
        refused: None,
    };
    let (mut machine, mut safe): (Option<Machine>, u64) = (None, 0);
    while world.now < deadline {
        let there = world.course.there(world.now / MINUTE);
        let Some(runs) = &machine else {
            match world.judge(None) {
                AutoStep::Take(Market::Spot) if there => machine = Some(world.launch(Market::Spot)),
                AutoStep::Take(Market::Spot) => {
                    world.over(None, 0, EndedBecause::LaunchFailed);
                    // The next look is at once, and knows of it.
                    world.refused = Some(world.now);
                }
                AutoStep::Take(Market::OnDemand) => machine = Some(world.launch(Market::OnDemand)),
                _ => world.now += MINUTE,
            }
            continue;
        };
        let done = world.now.saturating_sub(runs.working);
        if safe + done >= work {
            return Some(world.now - (safe + done - work));
        }
        let spot = runs.plan.offer.market == Market::Spot;
        let (mut saved, mut because) = (0, None);
        if spot && !there {
            // Up to the last checkpoint, and the worst that the spec allows is lost.
            (saved, because) = (done.saturating_sub(330), Some(EndedBecause::Interrupted));
        } else if (world.now - runs.begun).is_multiple_of(LOOK_EVERY.as_secs())
            && matches!(world.judge(Some(runs)), AutoStep::Move(_))
        {
            (saved, because) = (done, Some(EndedBecause::Moved));
        }
        if let Some(because) = because {
            safe += saved;
            let ended = machine.take().expect("it runs");
            world.over(Some(&ended), saved, because);
            world.now += if because == EndedBecause::Moved { HANDOVER } else { 0 };
        } else {
            world.now += MINUTE;
        }
    }
    None
}

/// The searches begin here: spells as long as a start, a little more, and half of it.
const HARD: [&[u64]; 4] = [&[10, 12], &[13, 2], &[5, 5, 22, 1], &[40, 3, 2, 9]];

#[test]
fn controller_job_is_late_on_no_course_that_is_searched_for() {
    for spare in [0, 7, 30] {
        for begin in HARD {
            let (work, spare) = (90 * MINUTE, spare * MINUTE);
            let deadline = reachable(work) + spare;
            let worst =
                searched(&[Course(begin.to_vec())], |courses| played(work, deadline, &courses[0]));
            assert!(
                worst.is_some_and(|end| end + END <= deadline),
                "late from {begin:?} with {spare} s to spare: {worst:?}"
            );
        }
    }
}

// Several zones, all of them looked at.

#[derive(Clone, Copy)]
struct Job {
    work: u64,
    deadline: u64,
    startup: u64,
    tick: u64,
}

/// As above; machines are a third, a half and two thirds of the price on demand.
fn played_in_zones(job: Job, courses: &[Course]) -> Option<u64> {
    let mut watch = ZonesWatch::default();
    let (mut here, mut running, mut done) = (None, Running::Nothing, 0);
    for tick in 0..job.deadline.div_ceil(job.tick) {
        let at = tick * job.tick;
        let there = |zone: usize| courses[zone].there(at / MINUTE);
        if here.is_some_and(|zone| !there(zone)) {
            (here, running) = (None, Running::Nothing);
        }
        let looks: Vec<ZoneLook> = (0..courses.len())
            .map(|zone| ZoneLook {
                capacity: if there(zone) { Capacity::There } else { Capacity::Gone },
                hourly: usd(1.0 + zone as f64 / 2.0),
            })
            .collect();
        let secs = Duration::from_secs;
        let facts = MarketFacts {
            time_left: secs(job.deadline - at),
            work_left: secs(job.work - done),
            tick: secs(job.tick),
            since_look: secs(job.tick),
            spot: Capacity::Unknown,
            running,
            startup: secs(job.startup),
            unsaved: Duration::ZERO,
            begins_anew: false,
            spot_price: usd(0.0),
            on_demand_price: usd(3.0),
        };
        let (zone, verdict) = watch.step(&looks, here, &facts);
        let fresh = secs(job.startup);
        (here, running) = match (verdict.step, running) {
            (MarketStep::Wait, _) => (None, Running::Nothing),
            (MarketStep::OnDemand, Running::OnDemand { .. }) => (None, running),
            (MarketStep::OnDemand, _) => (None, Running::OnDemand { startup_left: fresh }),
            (MarketStep::Spot, Running::Spot { .. }) if here == Some(zone) => (here, running),
            (MarketStep::Spot, _) => {
                assert!(there(zone), "spot was bought where it was not");
                (Some(zone), Running::Spot { startup_left: fresh })
            }
        };
        let (Running::Spot { startup_left } | Running::OnDemand { startup_left }) = &mut running
        else {
            continue;
        };
        let owed = startup_left.as_secs().min(job.tick);
        *startup_left -= secs(owed);
        done += (job.tick - owed).min(job.work - done);
        if done == job.work {
            return Some(at + job.tick).filter(|_| at + owed <= job.deadline);
        }
    }
    None
}

#[test]
fn no_course_that_is_searched_for_makes_a_job_in_two_zones_late() {
    for spare in [0, 1, 719, 2000] {
        let job = Job { work: 2 * 3600, deadline: 2 * 3600 + 720 + spare, startup: 720, tick: 600 };
        let begin = [Course(HARD[0].to_vec()), Course(HARD[2].to_vec())];
        assert!(
            searched(&begin, |courses| played_in_zones(job, courses)).is_some(),
            "late with {spare} s to spare"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn controllers_rule_meets_a_deadline_in_reach(work in 20..200_u64, spare in 0..240_u64, course in course()) {
        let (work, spare) = (work * MINUTE, spare * MINUTE);
        let deadline = reachable(work) + spare;
        let end = played(work, deadline, &course);
        prop_assert!(end.is_some_and(|end| end + END <= deadline), "{end:?} of {deadline}");
    }

    #[test]
    fn zones_meet_a_deadline_in_reach(
        work in 10..200_u64, spare in 0..10_000_u64, startup in 0..1500_u64, tick in 60..900_u64, courses in prop::collection::vec(course(), 1..4),
    ) {
        let job = Job { work: work * MINUTE, deadline: work * MINUTE + startup + spare, startup, tick };
        prop_assert!(played_in_zones(job, &courses).is_some());
    }

    /// For a pool of any past: what the job is expected to cost, as the controller would say it.
    #[test]
    fn later_deadline_never_costs_more_in_the_controller(work in 120..600_u64, spare in 0..300_u64, later in 5..300_u64, lives in prop::collection::vec(1..300_u64, 0..8)) {
        let (work, mut pool, mut from) = (work * MINUTE, Pool::new("z", "t"), 100_000_u64);
        for minutes in lives {
            let to = from.saturating_sub(minutes * MINUTE);
            pool.ran(now() - Duration::from_secs(from), now() - Duration::from_secs(to));
            from = to.saturating_sub(MINUTE);
        }
        let expected = |deadline: u64| {
            let spec = job(work, deadline);
            let spot = SpotPool { pool: &pool, hourly: usd(1.0), there: true, others: Others::default(), elsewhere: 0.0 };
            let (more_time, on_demand) = (Span::ZERO, Some(usd(3.0)));
            let facts = AutoFacts { spec: &spec, history: &[], running: None, more_time, spot: Some(spot), on_demand, speed: 1.0, now: now() };
            let numbers = judge(&mut MarketWatch::default(), &facts).reason.numbers;
            ["spot_usd", "on_demand_usd", "wait_usd"].iter().filter_map(|name| numbers.get(name).copied()).fold(f64::INFINITY, f64::min)
        };
        let (soon, late) = (expected(reachable(work) + spare * MINUTE), expected(reachable(work) + (spare + later) * MINUTE));
        // The table has steps of ten minutes, and of five of slack: for a job of two hours that is
        // less than a percent.
        prop_assert!(late <= soon * 1.03, "{soon} by then, {late} later");
    }

    /// A machine lives until the price rises above its bid: by any rule, whoever bids more lives as
    /// long at least.
    #[test]
    fn raising_the_bid_never_shortens_survival(
        past in prop::collection::vec((1_u64..100_000, 1_i64..5_000_000), 1..20), to_come in prop::collection::vec((1_u64..100_000, 1_i64..5_000_000), 0..20),
        low in 0.0..100.0_f64, more in 0.0..100.0_f64,
    ) {
        let price = |micros: i64| UsdPerHour::new(Usd::from_micros(micros));
        let before = past.iter().map(|(ago, micros)| PricePoint { at: now() - Duration::from_secs(*ago), price: price(*micros) });
        let after = to_come.iter().map(|(later, micros)| PricePoint { at: now() + Duration::from_secs(*later), price: price(*micros) });
        let history = PriceHistory::new(Region::new("r"), Zone::new("z"), "t", before.chain(after).collect());
        let offer = Offer { price: history.at(now()).unwrap(), on_demand: Some(usd(4.0)), ..plan(market::CloudKind::Aws, 1, 0).offer };
        let end = now() + Duration::from_secs(100_000);
        let taken = |rule: String| {
            let bid = bid(rule.parse().unwrap(), &offer, Some(&history), now()).unwrap().price;
            history.first_above(bid, now(), end).unwrap_or(end)
        };
        let high = (low + more).min(100.0);
        for (less, more) in [(format!("{low}% of on-demand"), format!("{high}% of on-demand")), (format!("p{low:.3} of 7d"), format!("p{high:.3} of 7d"))] {
            prop_assert!(taken(less) <= taken(more));
        }
        // What `auto` has bought is not taken at once, unless on-demand is the cheaper one.
        prop_assert!(offer.price > usd(4.0) || taken("auto".into()) > now());
    }
}
