//! Plays one world from its seed: the job is submitted, some hours of faults, then all is well and
//! it must come to its end.
//!
//! How long those hours are scales the world: jobs, their limits, and how many faults there are. At
//! six, which is what the seeds that have a name were found by, everything is as the dice say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::continue_job;
use super::drivers::{Party, sweep};
use crate::controller::submit;
use crate::job::{OnSpec, Reaction, Receipt, ResolvedSpec, Spec, Wish};
use crate::jobdir::JobDir;
use crate::market::Market;
use crate::ports::Store;
use crate::sim::faults::fault_plan::{self, Story};
use crate::sim::faults::fault_times::{self, Strikes};
use crate::sim::faults::planted_bugs::Bug;
use crate::sim::faults::recovery_times::{self, Measured};
use crate::sim::faults::single_fault::Lone;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::virtual_time::{Timeline, at, in_virtual_time};
use crate::sim::laws::receipt_check;
use crate::sim::world::active_faults::Trouble;
use crate::sim::world::foreign_machines;
use crate::sim::world::offers::{Course, Sold, take_away};
use crate::sim::world::store::Line;
use crate::sim::world::training_checkpoints::Saves;
use crate::sim::world::workload::{End, Habit};
use crate::sim::world::world::{Death, Deed, JOB, OWNER, Roughly, Violation, World};

/// How a world is played.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    pub seed: u64,
    /// How long faults befall it. The length of its job, the limits of that and the number of
    /// faults grow with it.
    pub hours: u64,
    /// Without any: the story as it should be.
    pub calm: bool,
    /// Who dies at which call.
    pub death: Option<Death>,
    /// Every line of the trace is kept.
    pub told: bool,
    /// The plain job of the exhaustive tests: some minutes, one interruption, a resume.
    pub short: bool,
    /// One job for all the hours, to see what it costs to play.
    pub long: bool,
    /// What befalls the plain job of the exhaustive tests instead of what its seed says.
    pub story: Option<Story>,
    /// One fault alone, instead of what its seed says.
    pub lone: Option<Lone>,
    /// A bug of the product, on purpose.
    pub planted: Option<Bug>,
    /// How its work saves, instead of what its seed says: the seeds that were named before there
    /// were others are of `Renamed`.
    pub saves: Option<Saves>,
    /// Faults too that came into the world after seeds of a time before were named.
    pub newer: bool,
    /// Layouts of saves too that came later than the seeds that are named.
    pub layouts: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Played {
    pub seed: u64,
    /// What to type to see it again.
    pub command: String,
    pub sha256: String,
    pub deeds: u64,
    pub violations: Vec<Violation>,
    pub receipt: Option<Receipt>,
    /// What machines of ours were powered for, together.
    pub machine_time: Duration,
    /// How long it was played, in its own time.
    pub lived: Duration,
    /// From the end of all faults and a wish to stop to the receipt, where what was there then was
    /// well.
    pub converged: Option<Duration>,
    /// What came of the one fault that it had.
    pub measured: Option<Measured>,
    /// What befell it, by kind: how often, and how often a machine was there for it.
    pub strikes: Strikes,
    /// The lines that people want to see.
    pub story: Vec<String>,
    /// Whether the death that was asked for came.
    pub died: bool,
}

/// The length of a world for which the dice are made.
pub const HOURS: u64 = 6;

/// After the faults: what may still run out (a lease, a breaker, a stall) before the last of the
/// work is done.
const CONVERGES_WITHIN: Duration = Duration::from_secs(2 * 3600);

/// Seed 16004644 of 24 h: what takes a step in eighteen minutes is known to hang after ten of them
/// and the two rungs to its restart (`policy::watch::stall`); its machine may be launched only when
/// the faults are over.
const STEPS_OF_A_STALL: u32 = 11;

/// Seed 918: what hangs before its first step has left no mark, and may be a job that leaves none.
/// It is told of and not ended (`policy::watch::stall`), and its longest run time ends it: an hour
/// more than the faults last. Of one that goes on from a checkpoint of its own it is known that it
/// reports, unless an old list of the store hid that.
fn longest_run_hours(play: &Play) -> u64 {
    play.hours + 1
}

/// After a wish to end, with all well: a machine that hangs waits for its lease, nothing else
/// waits.
const ENDS_WITHIN: Duration = Duration::from_secs(45 * 60);

/// The same where kernel and agent of the machine run, or there is none: a launch that may have
/// come through is made sure of for seven minutes. (The longest that was seen took 592 s, seed
/// 3000377 of 24 h.)
const ENDS_WELL_WITHIN: Duration = Duration::from_secs(10 * 60);

/// The same where a machine hangs in its end by then: it is forced once it was seen so for ten
/// minutes (`policy::lifecycle::reconcile`), and a call of the last fault may take 90 s before
/// that, the wait after it 60, and the looks after the force (seed 37027451 of 24 h: 610 s).
const ENDS_STUCK_WITHIN: Duration = Duration::from_secs(14 * 60);

impl Play {
    pub fn seed(seed: u64) -> Self {
        Play {
            seed,
            hours: HOURS,
            calm: false,
            death: None,
            told: false,
            short: false,
            long: false,
            story: None,
            lone: None,
            planted: None,
            saves: None,
            newer: true,
            layouts: true,
        }
    }

    /// Whether its job keeps the disk of its machine, by which another job may go on there. Where
    /// none does, nothing of `policy::lifecycle::continuation` is ever asked.
    pub fn keeps_a_disk(&self) -> bool {
        let dice = Dice::new(self.seed);
        let spec =
            spec(&dice.fork("spec"), habit(&dice.fork("habit"), self), self, at(Duration::ZERO));
        spec.spec.on.success == Reaction::Stop
    }
}

/// Plays it.
pub fn play(play: Play) -> Played {
    play_on(play, &[])
}

/// Plays it where the capacity of each zone goes as one of these recordings does, which takes
/// machines away too; without any, by the dice.
pub fn play_on(play: Play, recordings: &[Course]) -> Played {
    in_virtual_time(|timeline| live(play, recordings, timeline))
}

async fn live(play: Play, recordings: &[Course], timeline: Arc<Timeline>) -> Played {
    let dice = Dice::new(play.seed);
    let habit = match () {
        () if play.short || play.story.is_some() => SHORT,
        () if play.long => Habit { steps: play.hours * 60, step: Duration::from_secs(60), ..SHORT },
        () => play
            .lone
            .into_iter()
            .fold(habit(&dice.fork("habit"), &play), |habit, lone| lone.habit(habit)),
    };
    let spec = spec(&dice.fork("spec"), habit, &play, timeline.wall());
    let swept =
        play.lone.map_or_else(|| !play.short && dice.fork("swept").percent(80), Lone::is_swept);
    let sold = if recordings.is_empty() {
        Sold::of_the_laws()
    } else {
        Sold::recorded(recordings, &dice.fork("recordings"))
    };
    let is_rough = !play.calm && !play.short && play.lone.is_none();
    let roughly = Roughly { is_rough, writes_land_late: is_rough && play.newer };
    let world = World::new(
        timeline,
        &dice,
        spec,
        habit,
        (swept, roughly),
        (play.death, play.planted),
        sold,
    );
    if play.told {
        world.trace().keep_all();
    }
    world.told(format_args!("seed {}: {habit:?}, swept: {swept}", play.seed));
    foreign_machines::add(&world);
    let store: Arc<dyn Store> = Arc::new(Line {
        world: Arc::clone(&world),
        who: "user".into(),
        cut_by: Trouble::LaptopOffline,
        disk: None,
    });
    let dir = submit(&store, &world.spec, None).await.expect("the weather is calm at the start");
    let laptop = Party::new(&world, "laptop");
    let mut tasks = vec![
        tokio::task::spawn_local(Arc::clone(&laptop).drive()),
        tokio::task::spawn_local(minutes(Arc::clone(&world))),
    ];
    if !recordings.is_empty() {
        tasks.push(tokio::task::spawn_local(take_away(Arc::clone(&world))));
    }
    if swept {
        tasks.push(tokio::task::spawn_local(sweep(Arc::clone(&world))));
    }
    let faults = Duration::from_secs(play.hours * 3600);
    let work = world.habit.work();
    // Most of them while there is work.
    let busy = faults.min(work + work / 2 + scaled(900, play.hours));
    let due = match () {
        () if play.calm => Vec::new(),
        () if let Some(story) = play.story => fault_plan::story(story),
        () if play.short => short_fates(),
        () if let Some(lone) = play.lone => lone.due(&dice),
        () => fault_plan::of(&dice.fork("fates"), busy, play.hours, play.newer),
    };
    let (struck, lone_struck): (Arc<Mutex<Strikes>>, Arc<Mutex<Option<recovery_times::Struck>>>) =
        Default::default();
    tasks.extend(play.lone.map(|lone| {
        tokio::task::spawn_local(recovery_times::watch(
            Arc::clone(&world),
            lone,
            lone.at(&dice),
            Arc::clone(&lone_struck),
        ))
    }));
    tasks.push(tokio::task::spawn_local(fault_times::watch(
        Arc::clone(&world),
        due.clone(),
        Arc::clone(&struck),
    )));
    tasks.push(tokio::task::spawn_local(fault_plan::befall(
        Arc::clone(&world),
        Arc::clone(&laptop),
        due,
    )));
    let (receipts, converged) = to_the_end(&world, dir, &laptop, &play, faults).await;
    let strikes = std::mem::take(&mut *struck.lock().expect("nobody panics while counting"));
    let lone_struck = lone_struck.lock().expect("nobody panics while setting it").take();
    let measured = lone_struck.map(|struck| recovery_times::measure(&world, &struck));
    let played = Played { converged, strikes, measured, ..judge(&world, &play, receipts) };
    tasks.into_iter().for_each(|task| task.abort());
    tokio::task::yield_now().await;
    world.dismantle();
    played
}

/// Until there is a receipt, also of the job that goes on; then a quarter of an hour more, in which
/// nothing may happen.
async fn to_the_end(
    world: &Arc<World>,
    mut dir: JobDir,
    laptop: &Arc<Party>,
    play: &Play,
    faults: Duration,
) -> (Vec<Option<Receipt>>, Option<Duration>) {
    let receipt = |dir: &JobDir| world.objects.body(&crate::jobdir::layout::receipt(dir.job()));
    let read = |dir: &JobDir| receipt(dir).and_then(|body| serde_json::from_slice(&body).ok());
    let mut receipts = Vec::new();
    let step = Duration::from_secs(20);
    let rest = Duration::from_secs(if play.short { 120 } else { 900 });
    let (mut well_at, mut stopped_at, mut within) = (None, None, ENDS_WELL_WITHIN);
    let work = world.habit.whole();
    let mut limit = faults + CONVERGES_WITHIN + work;
    match world.habit.end {
        End::Hangs => limit += Duration::from_secs(longest_run_hours(play) * 3600),
        // Before its fifth step nothing but its limit ends it (decision 31); after that law 3 has
        // its bound.
        End::HangsOnce => {
            limit += (world.habit.step * STEPS_OF_A_STALL)
                .max(Duration::from_secs(longest_run_hours(play) * 3600))
        }
        _ => {}
    }
    loop {
        let is_over = receipt(&dir).is_some();
        if is_over
            && well_at.is_none()
            && receipts.is_empty()
            && let Some(next) = continue_job::goes_on(world, &dir).await
        {
            receipts.push(read(&dir));
            // What hangs at the first step of the one that goes on has left no mark there either.
            (dir, limit) =
                (next, limit + work + work + scaled(longest_run_hours(play) * 3600, HOURS));
        } else if is_over || world.timeline.now() >= limit {
            break;
        }
        world.timeline.sleep(step).await;
        if well_at.is_none() && world.timeline.now() >= faults && !play.short {
            fault_plan::make_well(world, laptop);
            well_at = Some(world.timeline.now());
            if play.seed % 2 == 1 {
                within = if world.has_a_stuck_end() { ENDS_STUCK_WITHIN } else { within };
                stopped_at = world.is_well().then_some(world.timeline.now());
                let _ = dir.add_request(Wish::Stop, "somebody", world.timeline.wall()).await;
                limit = world.timeline.now() + ENDS_WITHIN;
            }
        }
    }
    if well_at.is_none() {
        fault_plan::make_well(world, laptop);
    }
    let converged = stopped_at.map(|since| world.timeline.now().saturating_sub(since));
    // The end was looked for once a step: it came up to a step before it was found.
    if let Some(took) = converged.filter(|took| *took > within + step) {
        world.violated(18, format!("all was well, and the job took {} s to stop", took.as_secs()));
    }
    world.timeline.sleep(rest).await;
    receipts.push(read(&dir));
    (receipts, converged)
}

/// The laws of the end.
fn judge(world: &Arc<World>, play: &Play, receipts: Vec<Option<Receipt>>) -> Played {
    let now = world.timeline.now();
    if receipts.iter().any(Option::is_none) {
        world.violated(18, "the faults are over, and the job has no end".into());
    } else {
        receipt_check::compare(world, &receipts.iter().flatten().collect::<Vec<&Receipt>>());
    }
    let receipt = receipts.into_iter().last().flatten();
    let (bills, strangers, machine_time) = world.ec2.look(|machines| {
        let ours = || machines.iter().filter(|machine| machine.owner() == Some(OWNER));
        let bills: Vec<String> = ours()
            .filter(|machine| machine.state().bills())
            .map(|machine| machine.id.clone())
            .collect();
        let strangers = machines
            .iter()
            .filter(|machine| machine.owner() != Some(OWNER) && !machine.state().bills())
            .count();
        let time = ours().map(|machine| machine.ran(now)).sum();
        (bills, strangers, time)
    });
    if !bills.is_empty() {
        world.violated(18, format!("the faults are over, and {} bills", bills.join(", ")));
    }
    if strangers > 0 {
        world.violated(5, format!("{strangers} machines of others were ended"));
    }
    let trace = world.trace();
    Played {
        seed: play.seed,
        command: play.command(),
        sha256: trace.sha256(),
        deeds: trace.count(),
        violations: world.violations(),
        receipt,
        machine_time,
        lived: now,
        converged: None,
        measured: None,
        strikes: Strikes::default(),
        story: trace.lines().map(str::to_owned).collect(),
        died: world.has_died(),
    }
}

pub(crate) async fn minutes(world: Arc<World>) {
    loop {
        world.timeline.sleep(Duration::from_secs(60)).await;
        world.happened(&Deed::Minute);
    }
}

const SHORT: Habit = Habit {
    steps: 14,
    step: Duration::from_secs(5),
    save_every: 4,
    saves: Saves::Renamed,
    end: End::Succeeds,
    saves_when_asked: true,
    ignores_term: false,
    quiet: false,
    prepares: Duration::ZERO,
};

/// The machine is taken in the middle of the work, with the usual notice.
fn short_fates() -> Vec<fault_plan::Due> {
    vec![fault_plan::Due {
        at: Duration::ZERO,
        fate: fault_plan::Fate::ReclaimFirst(Duration::from_secs(45)),
    }]
}

/// So many seconds of a world of six hours, in one of so many.
pub(crate) fn scaled(secs: u64, hours: u64) -> Duration {
    Duration::from_secs(secs * hours / HOURS)
}

fn habit(dice: &Dice, play: &Play) -> Habit {
    let hours = play.hours;
    let saves = play.saves.unwrap_or_else(|| {
        let saves = Saves::of(&dice.fork("saves"));
        if play.layouts && play.lone.is_none() {
            saves.laid_out(&dice.fork("layout"))
        } else {
            saves
        }
    });
    // Long evaluations, in which the GPU alone has something to do: shorter than a stall, longer
    // than an idle window.
    let quiet = dice.percent(10);
    let step = if quiet { 18 * 60 } else { dice.pick(&[10, 20, 30, 60]) };
    let minutes = dice.pick(&[4, 30, 60, 120, 240, 330]) * hours / HOURS;
    let end = match dice.roll(20) {
        0 => End::Fails(3),
        1 | 2 => End::FailsOnce(1),
        3 | 4 => End::HangsOnce,
        5 => End::Hangs,
        6 => End::Idles,
        _ => End::Succeeds,
    };
    Habit {
        steps: (minutes * 60 / step).max(4),
        step: Duration::from_secs(step),
        save_every: dice.pick(&[3, 10, 40]),
        saves,
        end,
        saves_when_asked: dice.percent(70),
        ignores_term: dice.percent(10),
        quiet,
        prepares: Duration::ZERO,
    }
}

/// The user's words.
fn spec(dice: &Dice, habit: Habit, play: &Play, now: jiff::Timestamp) -> ResolvedSpec {
    let (short, long) = (play.short || play.story.is_some(), play.long);
    let rolled = short || (!long && dice.percent(65));
    let spot = play.lone.and_then(Lone::market).map_or(rolled, |market| market == Market::Spot);
    let signal = habit.saves_when_asked.then_some("SIGUSR1");
    let budget = dice.percent(20).then_some(4.0 * play.hours as f64 / HOURS as f64);
    let (whole, quarter) = (longest_run_hours(play) * 60, play.hours * 15);
    // A machine that is kept can be started again, where it can be stopped.
    let kept = !spot && !long && play.lone.is_none() && dice.fork("kept").percent(30);
    let max_runtime = if long { 100 * 60 } else { dice.pick(&[whole, whole, whole, quarter]) };
    // A fault alone is over by what asks for its end, and by a limit where that asks for it.
    let max_runtime = play.lone.map_or(max_runtime, |lone| lone.max_runtime().unwrap_or(whole));
    let spec: ResolvedSpec = serde_json::from_value(json!({
        "format": 1, "job": JOB, "created": now, "written_by": "test", "code": null, "origins": {},
        "spec": {
            "name": "digits", "command": {"shell": "train"},
            "machine": {"cloud": "aws", "gpus": "A10G:1", "market": if spot { "spot" } else { "on-demand" }},
            "limits": {
                "max_runtime": format!("{max_runtime}m"),
                "budget": budget.filter(|_| !long && play.lone.is_none()),
            },
            "checkpoint": {"path": "ckpt", "interval": if short { "10s" } else { "2m" }, "signal": signal, "grace": "1m"},
            "retries": {"max": if dice.percent(50) { 1 } else { 0 }, "exit_codes": [], "delay": "10s"},
        },
    }))
    .expect("words that the format knows");
    let on = OnSpec {
        success: Reaction::Stop,
        failure: Reaction::Stop,
        idle: Reaction::Stop,
        stall: Reaction::Stop,
        ..OnSpec::default()
    };
    if kept { ResolvedSpec { spec: Spec { on, ..spec.spec }, ..spec } } else { spec }
}
