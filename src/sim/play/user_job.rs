//! A job of somebody's own in the false world: `lamp simulate`. The shipped controller and the
//! shipped agent run it to its end under one course of capacity and prices, and nothing else
//! befalls it.
//!
//! ```text
//!   spec, market_run::Play ──> the job of a world: as much work, as many saves, the same limits
//!   Course ──> Sold: refusals, interruptions, prices           ──> the ledger, the receipt, the steps ──> market_run::Ran
//! ```
//! What is left out is what a world does not have: the script, its setup and its outputs, the real
//! type of its machine. What must never live here: what is shown of it (`cli::simulate::text`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::drivers::{Party, sweep};
use super::play::minutes;
use crate::controller::submit;
use crate::job::{
    AlarmRule, CheckpointSpec, Command, EndedBecause, GpuSelection, JobId, LimitsSpec, MachineSpec,
    MarketChoice, OnSpec, Receipt, ResolvedSpec, Spec, WatchSpec,
};
use crate::jobdir::layout;
use crate::market::{Cloud, Market, Span, Usd, UsdPerHour, elapsed};
use crate::policy::market::replay::{Goes, Play, Ran, Unfinished};
use crate::ports::Store;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::virtual_time::{Timeline, at, in_virtual_time};
use crate::sim::laws::receipt_check;
use crate::sim::world::active_faults::Trouble;
use crate::sim::world::offers::{Course, Sold, take_away};
use crate::sim::world::store::Line;
use crate::sim::world::training_checkpoints::Saves;
use crate::sim::world::workload::{End, Habit, Start};
use crate::sim::world::world::{JOB, OWNER, Roughly, Violation, World};

/// The steps of its work. Shorter ones cost the playing time and show nothing more; a save lies
/// between two of them.
const STEP: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// How often it is looked whether there is a receipt.
const LOOK: Duration = Duration::from_secs(60);

/// After a deadline: the settlement of what was still there then.
const SETTLES_WITHIN: Duration = Duration::from_secs(3600);

/// A job, and the course that it is played on.
#[derive(Clone, Debug)]
pub struct OwnJob<'a> {
    pub spec: &'a ResolvedSpec,
    /// Its work, its limits and its prices, in numbers.
    pub play: &'a Play,
    pub goes: Goes,
    /// What of its prices stands beside the machine: a disk and an address.
    pub extras: UsdPerHour,
    pub course: Course,
    pub seed: u64,
    /// From when on its deadline counts.
    pub now: Timestamp,
}

/// What came of it.
#[derive(Debug)]
pub struct Lived {
    pub ran: Ran,
    /// How lamp says that it ended; `None`: it had not by then.
    pub receipt: Option<Receipt>,
    /// Laws of the world that were broken: mistakes of lamp's own.
    pub violations: Vec<Violation>,
}

/// Plays it, and asks `goes_on` about every minute of its life. `None`: it did not go on.
pub fn live(job: &OwnJob<'_>, goes_on: impl FnMut() -> bool) -> Option<Lived> {
    in_virtual_time(|timeline| to_the_end(job, timeline, goes_on))
}

async fn to_the_end(
    job: &OwnJob<'_>,
    timeline: Arc<Timeline>,
    mut goes_on: impl FnMut() -> bool,
) -> Option<Lived> {
    let habit = habit(job.play, &job.spec.spec);
    let dice = Dice::new(job.seed);
    let sold = Sold::on(job.course.clone(), job.play.spot, job.play.on_demand, job.extras);
    let world = World::new(
        timeline,
        &dice,
        spec(job),
        habit,
        (true, Roughly::default()),
        (None, None),
        sold,
    );
    let store: Arc<dyn Store> = Arc::new(Line {
        world: Arc::clone(&world),
        who: "user".into(),
        cut_by: Trouble::LaptopOffline,
        disk: None,
    });
    let dir = submit(&store, &world.spec, None).await.expect("nothing is wrong with this store");
    let tasks = [
        tokio::task::spawn_local(Party::new(&world, "laptop").drive()),
        tokio::task::spawn_local(minutes(Arc::clone(&world))),
        tokio::task::spawn_local(sweep(Arc::clone(&world))),
        tokio::task::spawn_local(take_away(Arc::clone(&world))),
    ];
    let deadline = deadline(&world).map(|deadline| deadline + SETTLES_WITHIN);
    let limit = deadline.map_or_else(
        || job.play.given_up_after(),
        |deadline| deadline.min(job.play.given_up_after()),
    );
    let receipt = || {
        world
            .objects
            .body(&layout::receipt(dir.job()))
            .and_then(|body| serde_json::from_slice::<Receipt>(&body).ok())
    };
    let mut is_left = false;
    while !is_left && receipt().is_none() && world.timeline.now() < limit {
        world.timeline.sleep(LOOK).await;
        is_left = !goes_on();
    }
    let receipt = receipt();
    receipt.iter().for_each(|receipt| receipt_check::compare(&world, &[receipt]));
    let lived = (!is_left).then(|| Lived {
        ran: ran(&world, receipt.as_ref()),
        receipt,
        violations: world.violations(),
    });
    tasks.into_iter().for_each(|task| task.abort());
    tokio::task::yield_now().await;
    world.dismantle();
    lived
}

/// As much work, and as many saves, as the job says.
fn habit(play: &Play, spec: &Spec) -> Habit {
    let (least, most) = STEP;
    let interval =
        spec.checkpoint.as_ref().map_or(most, |checkpoint| checkpoint.interval.duration());
    let step = interval.clamp(least, most).min(play.work.max(Duration::from_secs(1)));
    let steps = play.work.as_nanos().div_ceil(step.as_nanos()).max(1) as u64;
    // Without a checkpoint nothing of it is found again on another machine; the save at its end is
    // the result.
    let save_every = if spec.checkpoint.is_some() {
        (interval.as_nanos() / step.as_nanos()).max(1) as u64
    } else {
        steps
    };
    Habit {
        steps,
        step,
        save_every,
        saves: Saves::Renamed,
        end: End::Succeeds,
        saves_when_asked: spec
            .checkpoint
            .as_ref()
            .is_some_and(|checkpoint| checkpoint.signal.is_some()),
        ignores_term: false,
        quiet: false,
        prepares: play.start.saturating_sub(BOOT),
    }
}

/// What the false machine takes of a start by itself: it is shown, it boots, its agent begins.
const BOOT: Duration = Duration::from_secs(30);

/// The user's words as this world can play them: its own machine, no script, no code. What decides
/// when it ends and what is bought is as it was said.
fn spec(job: &OwnJob<'_>) -> ResolvedSpec {
    let said = &job.spec.spec;
    let market = match job.goes {
        Goes::Auto => MarketChoice::Auto,
        Goes::Spot => MarketChoice::Spot,
        Goes::OnDemand => MarketChoice::OnDemand,
    };
    let gpus = "A10G:1".parse().expect("a requirement of ours");
    let machine = MachineSpec {
        cloud: Cloud::Aws,
        gpus,
        market,
        max_price: said.machine.max_price,
        ..MachineSpec::default()
    };
    let watch = WatchSpec {
        log_pattern: None,
        done_marker: None,
        gpus: GpuSelection::All,
        alarm: AlarmRule::Off,
        ..said.watch.clone()
    };
    // One that saves and ends when it is asked would be started again for what is played here as
    // going on.
    let asked = |checkpoint: CheckpointSpec| CheckpointSpec {
        signal: checkpoint.signal.map(|_| "SIGUSR1".into()),
        ..checkpoint
    };
    let mut limits = said.limits.clone();
    limits.deadline = limits.deadline.map(|deadline| {
        at(Duration::ZERO)
            .saturating_add(deadline.duration_since(job.now))
            .unwrap_or(Timestamp::MAX)
    });
    limits.work = Some(Span::from_secs(job.play.work.as_secs()));
    // A job of a workstation may have none, and no machine is bought then: this one is never
    // reached.
    if !limits.bound_a_machine() {
        limits.max_runtime = Some(Span::from_duration(job.play.given_up_after().saturating_mul(2)));
    }
    let spec = Spec {
        command: Command::Shell("train".into()),
        setup: None,
        outputs: Vec::new(),
        checkpoint: said.checkpoint.clone().map(asked),
        // What is kept for a look is no cost of the work, and nobody looks.
        on: OnSpec::default(),
        machine,
        watch,
        limits,
        ..said.clone()
    };
    let name: JobId = JOB.parse().expect("a name of ours");
    ResolvedSpec {
        job: name,
        created: at(Duration::ZERO),
        code: None,
        applied: None,
        owner: None,
        continues: None,
        spec,
        ..job.spec.clone()
    }
}

fn ran(world: &World, receipt: Option<&Receipt>) -> Ran {
    let now = world.timeline.now();
    let hours = |time: Duration| time.as_secs_f64() / 3600.0;
    let mut ran = Ran { unfinished: unfinished(world, receipt), ..Ran::default() };
    let (mut usd, mut ended, mut starts): (Usd, Duration, Vec<Arc<Start>>) =
        (Usd::ZERO, Duration::ZERO, Vec::new());
    world.ec2.look(|machines| {
        for machine in machines.iter().filter(|machine| machine.owner() == Some(OWNER)) {
            usd += machine.cost(now);
            ended = ended.max(machine.ended.unwrap_or(now));
            ran.starts += 1;
            ran.interruptions += u32::from(machine.was_taken());
            ran.machine_hours += hours(machine.ran(now));
            ran.on_demand_hours += if machine.offer.market == Market::OnDemand {
                hours(machine.ran(now))
            } else {
                0.0
            };
            starts.extend(machine.host.iter().flat_map(|host| host.state().starts.clone()));
        }
    });
    ran.usd = usd.dollars();
    ran.finish_hours = hours(if receipt.is_some() { ended } else { now });
    ran.lost_hours = hours(lost(world, &starts, ran.unfinished.is_none()));
    ran
}

/// All that was computed, the begun part of each last step too, less what is left of it: the whole
/// work of a job that is done, else what its newest checkpoint in the store holds, or what a start
/// that still runs has come to.
fn lost(world: &World, starts: &[Arc<Start>], is_done: bool) -> Duration {
    let now = world.timeline.now();
    let worked =
        |steps: u64| world.habit.step.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
    let computed: Duration =
        starts.iter().map(|start| worked(start.truth().steps) + start.truth().of_a_step(now)).sum();
    let running = starts.iter().find(|start| start.lives()).map(|start| start.truth());
    let left = match running.filter(|_| !is_done) {
        Some(running) => worked(running.step) + running.of_a_step(now),
        None => worked(if is_done { world.habit.steps } else { world.kept() }),
    };
    computed.saturating_sub(left)
}

/// By when its job must have ended, in the time of its world.
fn deadline(world: &World) -> Option<Duration> {
    world.spec.spec.limits.deadline.map(|deadline| elapsed(at(Duration::ZERO), deadline))
}

/// What ended it before it was done.
fn unfinished(world: &World, receipt: Option<&Receipt>) -> Option<Unfinished> {
    let Some(receipt) = receipt else {
        let is_over = deadline(world).is_some_and(|deadline| deadline <= world.timeline.now());
        return Some(if is_over { Unfinished::Otherwise } else { Unfinished::GivenUp });
    };
    match receipt.because {
        Some(EndedBecause::Succeeded) => None,
        Some(EndedBecause::Deadline) => Some(Unfinished::Deadline),
        Some(EndedBecause::MaxRuntime) => Some(Unfinished::RunTime),
        Some(EndedBecause::Budget) => Some(Unfinished::Budget),
        Some(EndedBecause::HardEnd) => Some(by_its_hard_end(&world.spec.spec.limits, receipt)),
        _ => Some(Unfinished::Otherwise),
    }
}

/// Who ends by a deadline is done so long before it at most.
const WAY_OUT: Duration = Duration::from_secs(15 * 60);

/// The hard end of a machine is the first of its limits; a receipt does not say of which.
fn by_its_hard_end(limits: &LimitsSpec, receipt: &Receipt) -> Unfinished {
    let ran = receipt
        .attempts
        .last()
        .map_or(Duration::ZERO, |attempt| Duration::from_secs_f64(attempt.billed_seconds));
    // Of a run time some is left for its last save and its power-off.
    let of_run_time =
        limits.max_runtime.is_some_and(|most| ran + most.duration() / 10 >= most.duration());
    let of_deadline =
        limits.deadline.is_some_and(|deadline| elapsed(receipt.ended, deadline) <= WAY_OUT);
    match () {
        () if of_deadline => Unfinished::Deadline,
        () if !of_run_time && limits.budget.is_some() => Unfinished::Budget,
        () if !of_run_time && limits.deadline.is_some() => Unfinished::Deadline,
        () => Unfinished::RunTime,
    }
}
