//! Plays one world from its seed: submits the job, plays hours of faults, ends all faults, and
//! waits for the end of the job.
//!
//! The number of hours scales the job, its limits and the number of faults. The named seeds were
//! found with six hours, which scale nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

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
use crate::sim::faults::recovery_times::{self, RecoveryTimes};
use crate::sim::faults::single_fault::Lone;
use crate::sim::gang::gang_play;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::virtual_time::{Timeline, at, in_virtual_time};
use crate::sim::laws::receipt_check;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::foreign_machines;
use crate::sim::world::offers::{Course, SimMarket, take_away};
use crate::sim::world::store::Line;
use crate::sim::world::training_checkpoints::SaveStyle;
use crate::sim::world::workload::{Habit, WorkEnd};
use crate::sim::world::world::{Death, Deed, JOB, OWNER, Roughly, Violation, World};

/// How a world is played.
#[derive(Clone, Copy, Debug)]
pub struct WorldRun {
    pub seed: u64,
    /// How many hours have faults. The length of the job, its limits and the number of faults grow
    /// with it.
    pub hours: u64,
    /// Without faults.
    pub calm: bool,
    /// Which process dies, and at which call.
    pub death: Option<Death>,
    /// Every line of the trace is kept.
    pub told: bool,
    /// The short job of the exhaustive tests: some minutes, one interruption, a resume.
    pub short: bool,
    /// One job for all the hours, to measure the cost of playing.
    pub long: bool,
    /// A story for the short job of the exhaustive tests, in place of the seed's faults.
    pub story: Option<Story>,
    /// A single fault, in place of the seed's faults.
    pub lone: Option<Lone>,
    /// A planted bug of the product.
    pub planted: Option<Bug>,
    /// How its work saves, in place of the seed's choice. The oldest named seeds use `Renamed`.
    pub saves: Option<SaveStyle>,
    /// With faults that were added after the older seeds were named.
    pub newer: bool,
    /// With checkpoint layouts that were added after the seeds were named.
    pub layouts: bool,
    /// The job has several machines.
    pub gang: bool,
}

/// The result of a world.
#[derive(Debug)]
pub struct WorldResult {
    pub seed: u64,
    /// The command that plays it again.
    pub command: String,
    pub sha256: String,
    pub deeds: u64,
    pub violations: Vec<Violation>,
    pub receipt: Option<Receipt>,
    /// The total time for which our machines were billed.
    pub machine_time: Duration,
    /// The length of the world in virtual time.
    pub lived: Duration,
    /// The time from a stop request at the end of all faults to the receipt. `None` if the machine
    /// did not work then.
    pub converged: Option<Duration>,
    /// The recovery after its single fault.
    pub measured: Option<RecoveryTimes>,
    /// Its faults by kind: how many, and how many struck a machine.
    pub strikes: Strikes,
    /// The lines of the trace for people.
    pub story: Vec<String>,
    /// Whether the planned death happened.
    pub died: bool,
}

/// The default hours of a world.
pub const HOURS: u64 = 6;

/// The time after the faults for a lease, a circuit breaker or a stall to run out before the work
/// is done.
const CONVERGES_WITHIN: Duration = Duration::from_secs(2 * 3600);

/// The steps until a hang is found and the work restarted (`policy::watch::stall`). The machine may
/// only be launched after the faults (seed 16004644 of 24 h: a step takes eighteen minutes).
const STEPS_OF_A_STALL: u32 = 11;

/// Work that hangs before its first step may be work that never reports. The agent warns about it,
/// and its run time limit ends it (`policy::watch::stall`, seed 918): an hour after the end of the
/// faults. Work with its own checkpoint is known to report, unless a stale listing hid the
/// checkpoint.
fn longest_run_hours(play: &WorldRun) -> u64 {
    play.hours + 1
}

/// After a wish to end, without faults: only a machine that hangs waits for its lease.
const ENDS_WITHIN: Duration = Duration::from_secs(45 * 60);

/// The same if kernel and agent run, or there is no machine. A launch without an answer takes seven
/// minutes to confirm. (The longest took 592 s, seed 3000377 of 24 h.)
const ENDS_WELL_WITHIN: Duration = Duration::from_secs(10 * 60);

/// The same if a machine hangs in its end. The controller forces it after ten minutes
/// (`policy::lifecycle::reconcile`). Before that a call may take 90 s and the wait 60 s, and checks
/// follow (seed 37027451 of 24 h: 610 s).
const ENDS_STUCK_WITHIN: Duration = Duration::from_secs(14 * 60);

impl WorldRun {
    pub fn seed(seed: u64) -> Self {
        WorldRun {
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
            gang: false,
        }
    }

    /// Whether its job keeps the disk of its machine, so that another job may continue there. Only
    /// then `policy::lifecycle::continuation` is used.
    pub fn keeps_a_disk(&self) -> bool {
        let dice = Dice::new(self.seed);
        let spec =
            spec(&dice.fork("spec"), habit(&dice.fork("habit"), self), self, at(Duration::ZERO));
        spec.spec.on.success == Reaction::Stop
    }
}

/// Plays it.
pub fn play(play: WorldRun) -> WorldResult {
    play_on(play, &[])
}

/// Plays a world whose capacity follows one of these recordings in each zone, with interruptions.
/// Without recordings the seed decides.
pub fn play_on(play: WorldRun, recordings: &[Course]) -> WorldResult {
    if play.gang {
        return in_virtual_time(|timeline| gang_play::live(play, timeline));
    }
    in_virtual_time(|timeline| live(play, recordings, timeline))
}

async fn live(play: WorldRun, recordings: &[Course], timeline: Arc<Timeline>) -> WorldResult {
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
        SimMarket::of_the_laws()
    } else {
        SimMarket::recorded(recordings, &dice.fork("recordings"))
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
        cut_by: WorldFault::LaptopOffline,
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
    // Most faults come while there is work.
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
    let strikes = std::mem::take(&mut *struck.lock().expect("the lock is not poisoned"));
    let lone_struck = lone_struck.lock().expect("the lock is not poisoned").take();
    let measured = lone_struck.map(|struck| recovery_times::measure(&world, &struck));
    let played = WorldResult { converged, strikes, measured, ..judge(&world, &play, receipts) };
    close(&world, tasks).await;
    played
}

/// Ends the tasks of a world, which hold it.
pub(crate) async fn close(world: &World, tasks: Vec<JoinHandle<()>>) {
    tasks.into_iter().for_each(|task| task.abort());
    tokio::task::yield_now().await;
    world.dismantle();
}

/// Waits for the receipt of the job and of a continued job. Then the world must stay quiet for a
/// quarter of an hour.
async fn to_the_end(
    world: &Arc<World>,
    mut dir: JobDir,
    laptop: &Arc<Party>,
    play: &WorldRun,
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
        WorkEnd::Hangs => limit += Duration::from_secs(longest_run_hours(play) * 3600),
        // Before its fifth step only its limit ends it (decision 31). After that law 3 has its
        // bound.
        WorkEnd::HangsOnce => {
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
            // The continued job may also hang before its first mark.
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
    // The loop checks once per `step`, so the end came up to one step earlier.
    if let Some(took) = converged.filter(|took| *took > within + step) {
        world.violated(18, format!("all was well, and the job took {} s to stop", took.as_secs()));
    }
    world.timeline.sleep(rest).await;
    receipts.push(read(&dir));
    (receipts, converged)
}

/// Checks the laws at the end of a world.
pub(crate) fn judge(
    world: &Arc<World>,
    play: &WorldRun,
    receipts: Vec<Option<Receipt>>,
) -> WorldResult {
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
    WorldResult {
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
    saves: SaveStyle::Renamed,
    end: WorkEnd::Succeeds,
    saves_when_asked: true,
    ignores_term: false,
    quiet: false,
    prepares: Duration::ZERO,
};

/// EC2 takes the machine during the work, with half a minute of notice.
fn short_fates() -> Vec<fault_plan::Due> {
    vec![fault_plan::Due {
        at: Duration::ZERO,
        fate: fault_plan::FaultKind::ReclaimFirst(Duration::from_secs(45)),
    }]
}

/// Scales seconds of a six-hour world to a world of `hours`.
pub(crate) fn scaled(secs: u64, hours: u64) -> Duration {
    Duration::from_secs(secs * hours / HOURS)
}

fn habit(dice: &Dice, play: &WorldRun) -> Habit {
    let hours = play.hours;
    let saves = play.saves.unwrap_or_else(|| {
        let saves = SaveStyle::of(&dice.fork("saves"));
        if play.layouts && play.lone.is_none() {
            saves.laid_out(&dice.fork("layout")).laid_out_again(&dice.fork("newest layout"))
        } else {
            saves
        }
    });
    // Long evaluations that use only the GPU: shorter than a stall, longer than an idle window.
    let quiet = dice.percent(10);
    let step = if quiet { 18 * 60 } else { dice.pick(&[10, 20, 30, 60]) };
    let minutes = dice.pick(&[4, 30, 60, 120, 240, 330]) * hours / HOURS;
    let end = match dice.roll(20) {
        0 => WorkEnd::Fails(3),
        1 | 2 => WorkEnd::FailsOnce(1),
        3 | 4 => WorkEnd::HangsOnce,
        5 => WorkEnd::Hangs,
        6 => WorkEnd::Idles,
        _ => WorkEnd::Succeeds,
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

/// The job that the user submits.
fn spec(dice: &Dice, habit: Habit, play: &WorldRun, now: jiff::Timestamp) -> ResolvedSpec {
    let (short, long) = (play.short || play.story.is_some(), play.long);
    let rolled = short || (!long && dice.percent(65));
    let spot = play.lone.and_then(Lone::market).map_or(rolled, |market| market == Market::Spot);
    let signal = habit.saves_when_asked.then_some("SIGUSR1");
    let budget = dice.percent(20).then_some(4.0 * play.hours as f64 / HOURS as f64);
    let (whole, quarter) = (longest_run_hours(play) * 60, play.hours * 15);
    // Only a machine that can be stopped can be kept.
    let kept = !spot && !long && play.lone.is_none() && dice.fork("kept").percent(30);
    let max_runtime = if long { 100 * 60 } else { dice.pick(&[whole, whole, whole, quarter]) };
    // A world with a single fault has a limit only if the fault needs one.
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
