//! A user's job in the simulated world: `lamp simulate`. The shipped controller and agent run it to
//! its end under one course of capacity and prices, without other faults.
//!
//! ```text
//!   spec, replay::Play ──> the job of a world: as much work, as many saves, the same limits
//!   Course ──> refusals, interruptions, prices
//!       ──> bills, receipt, steps ──> replay::Ran
//! ```
//! It leaves out the script, its setup, its outputs and the real machine type. Not here: the
//! display (`cli::simulate::text`).

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
use crate::market::{CloudKind, Market, Span, Usd, UsdPerHour, elapsed};
use crate::policy::market::replay::{Goes, Play, Ran, Unfinished};
use crate::ports::Store;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::virtual_time::{Timeline, at, in_virtual_time};
use crate::sim::laws::receipt_check;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::offers::{Course, SimMarket, take_away};
use crate::sim::world::store::Line;
use crate::sim::world::training_checkpoints::SaveStyle;
use crate::sim::world::workload::{Habit, Start, WorkEnd};
use crate::sim::world::world::{JOB, OWNER, Roughly, Violation, World};

/// The shortest and longest step. Shorter steps only take more time to play. A save comes between
/// two steps.
const STEP: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// How often to check for a receipt.
const LOOK: Duration = Duration::from_secs(60);

/// The time after a deadline for the settlement.
const SETTLES_WITHIN: Duration = Duration::from_secs(3600);

/// A job, and its course of capacity and prices.
#[derive(Clone, Debug)]
pub struct OwnJob<'a> {
    pub spec: &'a ResolvedSpec,
    /// Its work, its limits and its prices, in numbers.
    pub play: &'a Play,
    pub goes: Goes,
    /// The part of the price for disk and address.
    pub extras: UsdPerHour,
    pub course: Course,
    pub seed: u64,
    /// The start of the world, for its deadline.
    pub now: Timestamp,
}

/// The result of a simulated job.
#[derive(Debug)]
pub struct Lived {
    pub ran: Ran,
    /// The receipt; `None` if the job had not ended.
    pub receipt: Option<Receipt>,
    /// Broken laws, which are bugs of lamp.
    pub violations: Vec<Violation>,
}

/// Plays the job, and asks `goes_on` about every minute of virtual time. `None`: `goes_on` was
/// false.
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
    let sold = SimMarket::on(job.course.clone(), job.play.spot, job.play.on_demand, job.extras);
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
        cut_by: WorldFault::LaptopOffline,
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

/// The amount of work and saves that the job has.
fn habit(play: &Play, spec: &Spec) -> Habit {
    let (least, most) = STEP;
    let interval =
        spec.checkpoint.as_ref().map_or(most, |checkpoint| checkpoint.interval.duration());
    let step = interval.clamp(least, most).min(play.work.max(Duration::from_secs(1)));
    let steps = play.work.as_nanos().div_ceil(step.as_nanos()).max(1) as u64;
    // Without checkpoints only the save at the end counts: it is the result.
    let save_every = if spec.checkpoint.is_some() {
        (interval.as_nanos() / step.as_nanos()).max(1) as u64
    } else {
        steps
    };
    Habit {
        steps,
        step,
        save_every,
        saves: SaveStyle::Renamed,
        end: WorkEnd::Succeeds,
        saves_when_asked: spec
            .checkpoint
            .as_ref()
            .is_some_and(|checkpoint| checkpoint.signal.is_some()),
        ignores_term: false,
        quiet: false,
        prepares: play.start.saturating_sub(BOOT),
    }
}

/// The time that the simulated machine takes to boot and to start its agent.
const BOOT: Duration = Duration::from_secs(30);

/// The job as this world can play it: with its own machine, without script and code. Limits and
/// purchase settings stay.
fn spec(job: &OwnJob<'_>) -> ResolvedSpec {
    let said = &job.spec.spec;
    let market = match job.goes {
        Goes::Auto => MarketChoice::Auto,
        Goes::Spot => MarketChoice::Spot,
        Goes::OnDemand => MarketChoice::OnDemand,
    };
    let gpus = "A10G:1".parse().expect("a requirement of ours");
    let machine = MachineSpec {
        cloud: CloudKind::Aws,
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
    // Work that ends after the signal would start again. Here the work continues after its save.
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
    // A local job may have no limit. This one is never reached.
    if !limits.bound_a_machine() {
        limits.max_runtime = Some(Span::from_duration(job.play.given_up_after().saturating_mul(2)));
    }
    let spec = Spec {
        command: Command::Shell("train".into()),
        setup: None,
        outputs: Vec::new(),
        checkpoint: said.checkpoint.clone().map(asked),
        // A machine that is kept for the user is no cost of the work.
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

/// All computed work, with begun steps, minus the work that counts. This is the whole work of a
/// finished job, the progress of a running start, or the newest checkpoint in the store.
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

/// The deadline of its job in virtual time.
fn deadline(world: &World) -> Option<Duration> {
    world.spec.spec.limits.deadline.map(|deadline| elapsed(at(Duration::ZERO), deadline))
}

/// Why it ended before its work was done.
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

/// How long before its deadline a job may end because of it.
const WAY_OUT: Duration = Duration::from_secs(15 * 60);

/// A hard end comes from the first limit of the job. The receipt does not say from which.
fn by_its_hard_end(limits: &LimitsSpec, receipt: &Receipt) -> Unfinished {
    let ran = receipt
        .attempts
        .last()
        .map_or(Duration::ZERO, |attempt| Duration::from_secs_f64(attempt.billed_seconds));
    // The end comes before the run time limit, for the last save and the power-off.
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
