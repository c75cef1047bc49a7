//! Spot, on-demand or wait: cases, then laws for any availability.

use std::time::Duration;

use lamplighter::market::{Usd, UsdPerHour};
use lamplighter::policy::market::deadline_choice::{
    Because, Capacity, MarketFacts, MarketStep, MarketVerdict, MarketWatch, Running,
};
use proptest::prelude::*;

/// A job in whole seconds.
#[derive(Clone, Copy, Debug)]
struct Job {
    work: u64,
    deadline: u64,
    startup: u64,
    tick: u64,
    /// What is lost with a spot machine, at most.
    unsaved: u64,
    /// It saves nothing: `unsaved` is its work.
    begins_anew: bool,
}

/// Three ticks to an hour and a start of twelve minutes, as recorded: two hours of work.
const SHORT: Job =
    Job { work: 7200, deadline: 3 * 3600, startup: 720, tick: 600, unsaved: 0, begins_anew: false };

fn price(dollars: f64) -> UsdPerHour {
    UsdPerHour::new(Usd::from_dollars(dollars).unwrap())
}

fn facts(job: Job, spot: Capacity, running: Running) -> MarketFacts {
    MarketFacts {
        time_left: Duration::from_secs(job.deadline),
        work_left: Duration::from_secs(job.work),
        tick: Duration::from_secs(job.tick),
        since_look: Duration::from_secs(job.tick),
        spot,
        running,
        startup: Duration::from_secs(job.startup),
        unsaved: Duration::from_secs(job.unsaved),
        begins_anew: job.begins_anew,
        spot_price: price(1.0),
        on_demand_price: price(3.0),
    }
}

fn first(job: Job, spot: Capacity, running: Running) -> MarketVerdict {
    MarketWatch::default().step(&facts(job, spot, running))
}

/// What the world does: whether spot is there in a tick, knowing what runs.
type World<'a> = &'a mut dyn FnMut(usize, Running) -> Capacity;

/// Plays a job to its end: the second at which the work was done, or `None` when it was not by the
/// deadline.
fn play(job: Job, world: World<'_>) -> Option<u64> {
    let mut watch = MarketWatch::default();
    let (mut running, mut done, mut at_risk) = (Running::Nothing, 0, 0);
    for tick in 0..job.deadline.div_ceil(job.tick) {
        let now = tick * job.tick;
        let spot = world(tick as usize, running);
        if matches!(running, Running::Spot { .. }) && spot == Capacity::Gone {
            running = Running::Nothing;
            done -= at_risk;
        }
        let asked = Job { work: job.work - done, deadline: job.deadline - now, ..job };
        let step = watch.step(&facts(asked, spot, running)).step;
        let fresh = Duration::from_secs(job.startup);
        if job.begins_anew && running != Running::Nothing {
            let stays = matches!(
                (step, running),
                (MarketStep::Spot, Running::Spot { .. })
                    | (MarketStep::OnDemand, Running::OnDemand { .. })
            );
            assert!(stays, "it left a machine with all that it had done");
        }
        running = match (step, running) {
            (MarketStep::Wait, _) => Running::Nothing,
            (MarketStep::Spot, Running::Spot { .. })
            | (MarketStep::OnDemand, Running::OnDemand { .. }) => running,
            (MarketStep::Spot, _) => {
                assert_eq!(spot, Capacity::There, "spot was bought where it was not");
                at_risk = 0;
                Running::Spot { startup_left: fresh }
            }
            (MarketStep::OnDemand, _) => Running::OnDemand { startup_left: fresh },
        };
        let (Running::Spot { startup_left } | Running::OnDemand { startup_left }) = &mut running
        else {
            continue;
        };
        let owed = startup_left.as_secs().min(job.tick);
        *startup_left -= Duration::from_secs(owed);
        let worked = (job.tick - owed).min(job.work - done);
        done += worked;
        at_risk = (at_risk + worked).min(job.unsaved);
        if done == job.work {
            let end = now + owed + worked;
            return (end <= job.deadline).then_some(end);
        }
    }
    None
}

fn capacity(there: bool) -> Capacity {
    if there { Capacity::There } else { Capacity::Gone }
}

#[test]
fn cheapest_answer_that_is_safe() {
    let roomy = Job { deadline: 8 * 3600, ..SHORT };
    let tight = Job { deadline: SHORT.work + SHORT.startup, ..SHORT };
    let on_demand = Running::OnDemand { startup_left: Duration::ZERO };
    let spot = Running::Spot { startup_left: Duration::ZERO };
    let cases = [
        (
            "time to spare and spot",
            roomy,
            Capacity::There,
            Running::Nothing,
            MarketStep::Spot,
            Because::Cheapest,
        ),
        (
            "time to spare, no spot",
            roomy,
            Capacity::Gone,
            Running::Nothing,
            MarketStep::Wait,
            Because::Cheapest,
        ),
        (
            "time to spare, nobody knows",
            roomy,
            Capacity::Unknown,
            Running::Nothing,
            MarketStep::Wait,
            Because::Cheapest,
        ),
        (
            "a spot machine that runs is there",
            roomy,
            Capacity::Unknown,
            spot,
            MarketStep::Spot,
            Because::Cheapest,
        ),
        (
            "back to spot for hours",
            Job { work: 6 * 3600, deadline: 9 * 3600, ..SHORT },
            Capacity::There,
            on_demand,
            MarketStep::Spot,
            Because::Cheapest,
        ),
        (
            "no change for the last minutes",
            Job { work: 300, ..roomy },
            Capacity::There,
            on_demand,
            MarketStep::OnDemand,
            Because::Cheapest,
        ),
        (
            "nothing to spare",
            tight,
            Capacity::There,
            Running::Nothing,
            MarketStep::OnDemand,
            Because::OnlySafe,
        ),
        (
            "spot that runs costs no slack",
            tight,
            Capacity::There,
            spot,
            MarketStep::Spot,
            Because::Cheapest,
        ),
        (
            "spot with work to lose does",
            Job { unsaved: 600, ..tight },
            Capacity::There,
            spot,
            MarketStep::OnDemand,
            Because::OnlySafe,
        ),
        (
            "too late for another start",
            Job { deadline: 7300, ..SHORT },
            Capacity::There,
            spot,
            MarketStep::Spot,
            Because::Late,
        ),
        (
            "too late",
            Job { deadline: 7300, ..SHORT },
            Capacity::There,
            Running::Nothing,
            MarketStep::OnDemand,
            Because::Late,
        ),
        (
            "it passed",
            Job { deadline: 0, ..SHORT },
            Capacity::Gone,
            Running::Nothing,
            MarketStep::OnDemand,
            Because::Late,
        ),
        (
            "no work",
            Job { work: 0, ..SHORT },
            Capacity::There,
            Running::Nothing,
            MarketStep::Wait,
            Because::Done,
        ),
    ];
    for (name, job, spot, running, step, because) in cases {
        let verdict = first(job, spot, running);
        assert_eq!((verdict.step, verdict.because), (step, because), "{name}: {verdict:?}");
    }
}

#[test]
fn numbers_are_money_to_the_end() {
    let verdict =
        first(Job { deadline: 2 * 24 * 3600, ..SHORT }, Capacity::There, Running::Nothing);
    let (spot, on_demand) = (verdict.spot_usd.unwrap(), verdict.on_demand_usd.unwrap());
    // Two hours of work and a start: 2.2 dollars if nothing interrupts, 6.6 on demand if nothing
    // changes.
    assert!((2.2..3.0).contains(&spot), "{verdict:?}");
    assert!(spot < on_demand && on_demand < 6.6, "{verdict:?}");
    let only = first(
        Job { deadline: SHORT.work + SHORT.startup, ..SHORT },
        Capacity::Gone,
        Running::Nothing,
    );
    assert!(
        (only.on_demand_usd.unwrap() - 6.6).abs() < 1e-6 && only.wait_usd.is_none(),
        "{only:?}"
    );
}

#[test]
fn spot_that_is_not_cheaper_is_left_alone() {
    let dear = MarketFacts {
        spot_price: price(3.0),
        ..facts(SHORT, Capacity::There, Running::OnDemand { startup_left: Duration::ZERO })
    };
    assert_eq!(MarketWatch::default().step(&dear).step, MarketStep::OnDemand);
    let free = MarketFacts { spot_price: price(0.0), on_demand_price: price(0.0), ..dear };
    assert_eq!(
        MarketWatch::default().step(&free).step,
        MarketStep::OnDemand,
        "nothing has a price: no change"
    );
}

#[test]
fn where_waiting_saves_nothing_the_slack_is_kept() {
    // The second is a job that was seen to stand until the last minute: 20 h of work, 9.5 h to
    // spare.
    let long = Job { work: 72_000, deadline: 106_080, tick: 300, ..SHORT };
    for (job, spot, on_demand) in
        [(long, 3.0, 3.0), (long, 5.0, 3.0), (SHORT, 3.0, 3.0), (SHORT, 3.1, 3.0)]
    {
        for capacity in [Capacity::There, Capacity::Gone, Capacity::Unknown] {
            let dear = MarketFacts {
                spot_price: price(spot),
                on_demand_price: price(on_demand),
                ..facts(job, capacity, Running::Nothing)
            };
            let verdict = MarketWatch::default().step(&dear);
            // At the same price either market will do.
            assert_ne!(verdict.step, MarketStep::Wait, "{verdict:?}");
            assert!(spot == on_demand || verdict.step == MarketStep::OnDemand, "{verdict:?}");
        }
    }
    // All of it would be lost with a spot machine.
    let unsaved = first(Job { unsaved: 72_000, ..long }, Capacity::There, Running::Nothing);
    assert_eq!(unsaved.step, MarketStep::OnDemand, "{unsaved:?}");
}

/// A plan was seen to wait twenty hours, with a spot machine to be had, for three cents of $1.40;
/// and later a day, for nine of 94.
#[test]
fn available_spot_machine_is_taken_over_a_wait_for_a_few_cents() {
    let mut tempted = [false; 2];
    for (work, spare, unsaved) in [1, 2, 4, 8, 24].iter().flat_map(|work| {
        [2, 6, 20, 48].iter().flat_map(move |spare| {
            [0, 900, 3600].iter().map(move |unsaved| (*work, *spare, *unsaved))
        })
    }) {
        let job =
            Job { work: work * 3600, deadline: (work + spare) * 3600, unsaved, tick: 360, ..SHORT };
        let verdict = first(job, Capacity::There, Running::Nothing);
        let (Some(spot), Some(wait), Some(on_demand)) =
            (verdict.spot_usd, verdict.wait_usd, verdict.on_demand_usd)
        else {
            continue;
        };
        let at_once = spot.min(on_demand);
        let worth = (at_once * 0.05).max(0.25);
        tempted[usize::from(wait < at_once * 0.95)] |= wait < at_once && wait > at_once - worth;
        assert_eq!(
            verdict.step == MarketStep::Wait,
            wait < at_once - worth,
            "{job:?}: {verdict:?}"
        );
    }
    assert_eq!(tempted, [true, true], "by a small share, and by a larger one of little");
}

#[test]
fn what_was_learned_goes_on_with_the_next_job() {
    let mut watch = MarketWatch::default();
    for tick in 0..40 {
        watch.step(&facts(
            Job { deadline: 20 * 3600, ..SHORT },
            capacity(tick % 2 == 0),
            Running::Nothing,
        ));
    }
    let job = Job { work: 4 * 3600, deadline: 6 * 3600, ..SHORT };
    let learned = MarketWatch::with_spells(*watch.spells()).step(&facts(
        job,
        Capacity::There,
        Running::Nothing,
    ));
    let fresh = first(job, Capacity::There, Running::Nothing);
    assert!(
        learned.spot_usd.unwrap() > fresh.spot_usd.unwrap() * 1.02,
        "a zone that flaps is dearer: {learned:?} {fresh:?}"
    );
}

/// All sequences of availability, to the last one.
#[test]
fn no_sequence_at_all_makes_a_short_job_late() {
    for unsaved in [0, 300] {
        let job = Job { work: 3600, deadline: 3600 + 720 + 2400, unsaved, ..SHORT };
        let ticks = job.deadline.div_ceil(job.tick);
        for sequence in 0_u32..1 << ticks {
            let end = play(job, &mut |tick, _| capacity(sequence >> tick & 1 == 1));
            assert!(end.is_some(), "late for {sequence:b}");
        }
    }
}

/// An adversary who sees what runs: offers spot, and takes it back after so many ticks, again and
/// again.
#[test]
fn no_adversary_makes_a_job_late() {
    for (lives, hides) in [(1, 0), (1, 1), (2, 0), (2, 3), (3, 1), (7, 0), (30, 5)] {
        for spare in [0, 1, 59, 600, 719, 720, 721, 1440, 4000, 9000] {
            let job = Job { work: 4 * 3600, deadline: 4 * 3600 + 720 + spare, ..SHORT };
            let (mut lived, mut hidden) = (0, 0);
            let end = play(job, &mut |_, running| {
                if matches!(running, Running::Spot { .. }) {
                    lived += 1;
                    if lived >= lives {
                        (lived, hidden) = (0, hides);
                        return Capacity::Gone;
                    }
                    return Capacity::There;
                }
                lived = 0;
                hidden = u64::saturating_sub(hidden, 1);
                capacity(hidden == 0)
            });
            assert!(end.is_some(), "late with {spare} s to spare against {lives}, {hides}");
        }
    }
}

/// Nothing is saved: a start and all of the work are what on demand costs, and spot is taken where
/// all of it can be done once more.
#[test]
fn what_saves_nothing_begins_anew_and_leaves_no_machine() {
    let anew = Job { unsaved: SHORT.work, begins_anew: true, ..SHORT };
    let tries = [
        (2 * (SHORT.work + SHORT.startup) + SHORT.tick, MarketStep::Spot),
        (2 * (SHORT.work + SHORT.startup) - 60, MarketStep::OnDemand),
    ];
    for (deadline, step) in tries {
        let verdict = first(Job { deadline, ..anew }, Capacity::There, Running::Nothing);
        assert_eq!(verdict.step, step, "{verdict:?}");
        let on_demand = verdict.on_demand_usd.expect("it is always safe");
        assert!((on_demand - 3.0 * (2.0 + 0.2)).abs() < 1e-3, "{verdict:?}");
    }
    let roomy = Job { deadline: 24 * 3600, ..anew };
    for running in [
        Running::OnDemand { startup_left: Duration::ZERO },
        Running::Spot { startup_left: Duration::ZERO },
    ] {
        let verdict = first(Job { work: 3600, ..roomy }, Capacity::There, running);
        assert_eq!(
            (verdict.step == MarketStep::Spot, verdict.because),
            (matches!(running, Running::Spot { .. }), Because::Unsaved),
            "{verdict:?}"
        );
    }
}

fn job() -> impl Strategy<Value = Job> {
    let numbers =
        (600..4 * 3600_u64, 0..10 * 3600_u64, 0..1800_u64, 60..900_u64, 0..900_u64, any::<bool>());
    numbers.prop_map(|(work, spare, startup, tick, unsaved, begins_anew)| Job {
        work,
        deadline: work + startup + spare,
        startup,
        tick,
        unsaved: if begins_anew { work } else { unsaved },
        begins_anew,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn deadline_in_reach_is_met(job in job(), looks in prop::collection::vec(0..4_u8, 400)) {
        let world = &mut |tick: usize, running: Running| match (looks[tick % looks.len()], running) {
            // Nobody can tell; a machine that runs is then there.
            (3, _) => Capacity::Unknown,
            (look, _) => capacity(look > 0),
        };
        prop_assert!(play(job, world).is_some());
    }

    #[test]
    fn later_deadline_never_costs_more(work in 1..20_u64, slack in 1..30_u64, later in 1..12_u64, startup in 0..1500_u64, there: bool) {
        let expected = |slack: u64| {
            let verdict = first(Job { work: work * 900, deadline: work * 900 + startup + slack * 600, startup, tick: 600, ..SHORT }, capacity(there), Running::Nothing);
            [verdict.wait_usd, verdict.spot_usd, verdict.on_demand_usd].into_iter().flatten().fold(f64::INFINITY, f64::min)
        };
        let (soon, late) = (expected(slack), expected(slack + later));
        prop_assert!(late <= soon * 1.0001, "{soon} by then, {late} later");
    }

    #[test]
    fn unseen_offer_is_never_bought(job in job(), on_demand: bool) {
        let running = if on_demand { Running::OnDemand { startup_left: Duration::ZERO } } else { Running::Nothing };
        let verdict = first(job, Capacity::Unknown, running);
        prop_assert!(verdict.step != MarketStep::Spot && verdict.spot_usd.is_none(), "{:?}", verdict);
    }
}
