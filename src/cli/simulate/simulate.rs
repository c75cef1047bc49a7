//! `lamp simulate`: plays the user's job on recorded or drawn courses of spot capacity. Shows cost,
//! finish, interruptions and lost work.
//!
//! ```text
//!   job, prices, courses ─> simulate::world: the shipped controller and agent ─┐
//!                      └──> --quick: policy::market::replay, the choice alone ─┴─> simulate::text
//! ```
//!
//! Starts nothing. Not here: a rule, or how it is shown (`simulate::text`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::json;

use super::text;
use super::text::MarketRow;
use super::world;
use super::world::Worlds;
use crate::app::drive;
use crate::app::launch::checkpoint_cadence;
use crate::app::launch::first_plan;
use crate::app::launch::limit_check::OutOfReach;
use crate::app::launch::preflight;
use crate::app::text::counted;
use crate::cli::plan::forecast::{self, TICK};
use crate::cli::plan::text::warn_out_of_reach;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault, JobArgs, Stream};
use crate::config::Hourly;
use crate::controller::Outlook;
use crate::job::{MachineSpec, MarketChoice, ResolvedSpec, Spec};
use crate::market::{CloudKind, Span, UsdPerHour};
use crate::policy::market::auto_market::{self, AutoFacts, WorkState};
use crate::policy::market::deadline_choice::Others;
use crate::policy::market::pool_history::Pool;
use crate::policy::market::remaining_work::times;
use crate::policy::market::replay::{Goes, Play, PlayLimits, Ran, planned, run as play_once};
use crate::wire::simulator::PriceRound;
use crate::wire::{CapacityTrace, PriceCourseError, TraceError, read_capacity, read_prices};

/// Live a job through many times, in a false world: what it would cost, when it would end, how
/// often it would be interrupted
///
/// The controller and the agent that ship live it through in virtual time, over a false EC2 that
/// bills, refuses and takes machines away as the course of capacity and of prices says. --quick
/// plays the choice of the market alone, in an instant and more often. Without --market all three
/// are shown. Courses are recorded ones (--trace, --prices), or drawn from what is known of the
/// pool, or of spot machines in general. With both prices given no cloud is asked. A deadline,
/// `max_runtime` and a budget end a job that is not done; without a deadline, a job that finds no
/// capacity is given up after ten times its work and two days. All of these are shown as not
/// finished, and what a job costs and when it ends is told of those that finished. Where none did,
/// in no market that is shown, it ends with 100.
///
/// A recorded course is a file like `{"gap_seconds": 600, "first": 1, "runs": [12, 3, 40]}`: looks
/// 600 seconds apart, capacity was there (`first` is 1; 0: gone) at 12 of them, then gone for 3,
/// then there for 40, and so on in turn.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
    /// A recorded course of capacity, as above; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Simulation")]
    pub trace: Vec<PathBuf>,
    /// A recorded course of the spot price of one pool, as
    /// `lamp prices --type TYPE --zone ZONE -o json` prints it: of the machine alone; its disk and
    /// its address come on top at the price of now, and not at all where --spot-price says what
    /// there is all in; not with --quick
    #[arg(long, value_name = "FILE", conflicts_with = "quick", help_heading = "Simulation")]
    pub prices: Option<PathBuf>,
    /// Play the choice of the market alone: without boots, notices and the
    /// delay of a controller
    #[arg(long, help_heading = "Simulation")]
    pub quick: bool,
    /// How often the job is played, 10 to 10000 times [default: 10 to 40 by its length; with
    /// --quick 200, and fewer where it works for weeks]. A world of a day takes seconds; who types
    /// Ctrl-C is shown what there is (not with --quick)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000), help_heading = "Simulation")]
    pub runs: Option<u32>,
    /// From the launch call to work [default: as measured, or 12m]
    #[arg(long, value_name = "TIME", help_heading = "Simulation")]
    pub start: Option<Span>,
    /// The price of an hour of a spot machine, all in, beside --on-demand-price [default: both as
    /// they are now]; what of it is disk and address is not known then, so that a machine which EC2
    /// takes back within its first hour costs nothing here
    #[arg(long, value_name = "USD", requires = "on_demand_price", help_heading = "Simulation")]
    pub spot_price: Option<Hourly>,
    /// The price of an hour on demand, all in, beside --spot-price [default: both as they are now]
    #[arg(long, value_name = "USD", requires = "spot_price", help_heading = "Simulation")]
    pub on_demand_price: Option<Hourly>,
}

/// # Errors
/// Fails when the job has errors or gives no work, a recording is invalid, or prices are unknown.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let submission = args.job.prepare_unbought(context)?;
    let mut spec = submission.spec(&context.config.user.owner, context.clock.now());
    let loaded = submission.loaded;
    let named = loaded
        .origins
        .get("machine.market")
        .is_some_and(|origin| origin == "flag")
        .then_some(spec.spec.machine.market);
    spec.spec.machine.market = MarketChoice::Auto;
    let Given { mut play, pool, extras, out_of_reach } =
        self::given(args, context, &spec, named).await?;
    let work = play.work;
    let saves = AssumedSaves::measured(context, &spec).await;
    if let Some(saves) = &saves {
        play.work = times(play.work, saves.stretch());
    }
    let traces: Vec<CapacityTrace> =
        args.trace.iter().map(|file| read_capacity(file)).collect::<Result<_, _>>()?;
    let prices = args.prices.as_deref().map(read_prices).transpose()?;
    let prices = prices.and_then(|(course, made)| PriceRound::of(&course, made)).map(Arc::new);
    let markets = [
        (MarketChoice::Auto, Goes::Auto),
        (MarketChoice::Spot, Goes::Spot),
        (MarketChoice::OnDemand, Goes::OnDemand),
    ];
    let shown: Vec<(MarketChoice, Goes)> = markets
        .into_iter()
        .filter(|(market, _)| named.is_none_or(|named| named == *market))
        .collect();
    let played =
        CoursePlayer { play: &play, pool: &pool, extras, traces: &traces, prices: prices.as_ref() };
    if !context.is_machine_output() {
        out_of_reach.iter().for_each(|out_of_reach| warn_out_of_reach(context, out_of_reach));
    }
    let world::Played { ran, courses: (times, asked), is_cut, lived, broken } =
        played.ran(args, context, &spec, &shown);
    if times == 0 {
        let none = format!(
            "left before one course was lived through in each market ({} {} done)",
            counted(lived as u64, "world"),
            if lived == 1 { "was" } else { "were" }
        );
        return Err(Fault::new(ExitCode::CTRL_C, none).meaning("nothing was started or billed"));
    }
    let rows: Vec<MarketRow> = shown
        .iter()
        .zip(ran)
        .map(|((market, _), ran)| MarketRow::of(*market, &ran, work))
        .collect();
    let code = match rows.iter().any(|row| row.usd.is_some()) {
        _ if is_cut => ExitCode::CTRL_C,
        true => ExitCode::SUCCESS,
        // A script that asks before it buys needs this exit code.
        false => ExitCode::FINDINGS,
    };
    let from = source(args, &pool, &traces);
    if context.is_machine_output() {
        let job = json!({
            "work_hours": hours(work), "deadline_hours": play.deadline.map(hours), "start_seconds": play.start.as_secs_f64(),
            "max_runtime_seconds": play.limits.max_runtime.map(|time| time.as_secs_f64()), "budget_usd": play.limits.budget,
            "save_seconds": saves.as_ref().map(|saves| saves.each), "saves_every_seconds": play.saves_every.as_secs_f64(),
            "spot_usd_per_hour": play.spot, "on_demand_usd_per_hour": play.on_demand,
            "extras_usd_per_hour": extras,
        });
        let traces: Vec<String> =
            args.trace.iter().map(|file| file.display().to_string()).collect();
        let (plays, prices) = (
            if args.quick { "choice" } else { "world" },
            args.prices.as_ref().map(|file| file.display().to_string()),
        );
        context.printer.json(&json!({
            "job": job, "plays": plays, "runs": times, "runs_asked": asked, "from": from, "traces": traces, "prices": prices, "markets": rows,
            "out_of_reach": out_of_reach, "broken_laws": broken,
        }));
        return Ok(code);
    }
    let width = context.printer.columns(Stream::Out);
    context.printer.line(text::table(&rows, width));
    if !context.printer.is_quiet() {
        context.printer.line(format!("\n{}", text::plot(&rows, width)));
    }
    text::legend(&rows, &play).into_iter().for_each(|line| context.printer.note(line));
    saves.iter().filter_map(AssumedSaves::sentence).for_each(|line| context.printer.note(line));
    let what = if args.quick {
        "the choice of the market alone, played"
    } else {
        "lamp itself, in a false world without other faults, lived through"
    };
    let at_prices = args
        .prices
        .as_ref()
        .map(|file| format!(", at the recorded prices {}", file.display()))
        .unwrap_or_default();
    context.printer.note(format!("{what} {} on {from}{at_prices}", counted(times.into(), "time")));
    if is_cut {
        context.printer.note(format!(
            "left before the rest: {asked} were to be played, and fewer are a rougher picture"
        ));
    }
    context.printer.note("nothing was started");
    Ok(code)
}

struct AssumedSaves {
    each: f64,
    interval: Span,
    measured_by: String,
}

impl AssumedSaves {
    /// `None`: the job root has no measured save of this name.
    async fn measured(context: &Context, spec: &ResolvedSpec) -> Option<AssumedSaves> {
        let interval = spec.spec.checkpoint.as_ref()?.interval;
        let measured =
            checkpoint_cadence::ever_measured(&job_root::open_existing(context).await.ok()?, spec)
                .await?;
        let (each, measured_by) = measured.save()?;
        (interval > Span::ZERO).then(|| AssumedSaves {
            each,
            interval,
            measured_by: measured_by.to_owned(),
        })
    }

    /// The factor by which saves make the work longer.
    fn stretch(&self) -> f64 {
        1.0 + self.each / self.interval.duration().as_secs_f64()
    }

    /// `None`: less than a thousandth of the work.
    fn sentence(&self) -> Option<String> {
        let AssumedSaves { each, interval, measured_by } = self;
        let share = (self.stretch() - 1.0) * 100.0;
        let text = format!(
            "the work stands still for {each:.1} s each {interval}, as `{measured_by}` measured its saves: that makes it {share:.1}% longer"
        );
        (share >= 0.1).then_some(text)
    }
}

struct CoursePlayer<'a> {
    play: &'a Play,
    pool: &'a Pool,
    extras: Option<UsdPerHour>,
    traces: &'a [CapacityTrace],
    prices: Option<&'a Arc<PriceRound>>,
}

impl CoursePlayer<'_> {
    fn ran(
        &self,
        args: &Args,
        context: &Context,
        spec: &ResolvedSpec,
        markets: &[(MarketChoice, Goes)],
    ) -> world::Played {
        let CoursePlayer { play, pool, extras, traces, prices } = *self;
        if args.quick {
            let times = args.runs.unwrap_or_else(|| forecast::courses(play.work));
            if forecast::is_long(play.work) || times > forecast::RUNS {
                let work = Span::from_secs(play.work.as_secs());
                context.printer.note(format!(
                    "playing {work} of work {times} times; this may take a while ..."
                ));
            }
            let ran =
                markets.iter().map(|(_, goes)| runs(times, play, *goes, pool, traces)).collect();
            return world::Played {
                ran,
                courses: (times, times),
                is_cut: false,
                lived: 0,
                broken: Vec::new(),
            };
        }
        let times = args.runs.unwrap_or_else(|| world::courses(play));
        let worlds =
            Worlds { spec, play, pool, extras, traces, prices, times, now: context.clock.now() };
        world::runs(&worlds, markets, context)
    }
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

/// The job as it is played, its pool, and a limit that it cannot keep on any market.
struct Given {
    play: Play,
    pool: Pool,
    extras: Option<UsdPerHour>,
    out_of_reach: Option<OutOfReach>,
}

async fn given(
    args: &Args,
    context: &Context,
    spec: &ResolvedSpec,
    named: Option<MarketChoice>,
) -> Result<Given, Fault> {
    let known = match (&args.spot_price, &args.on_demand_price) {
        (Some(spot), Some(on_demand)) => KnownMarket {
            spot: spot.0,
            spot_most: None,
            on_demand: on_demand.0,
            extras: None,
            speed: 1.0,
            pool: Pool::new("", ""),
        },
        // Without an account, the user can still give both prices.
        _ => prices(context, spec).await.map_err(|fault| {
            let fault = match &fault.hint {
                Some(_) if fault.code != ExitCode::UNREACHABLE => fault,
                Some(hint) => {
                    let hint = format!("{hint}; or {BOTH}");
                    fault.hint(hint)
                }
                None => fault.hint(BOTH),
            };
            work(&spec.spec).err().iter().fold(fault, also)
        })?,
    };
    let KnownMarket { spot, spot_most, on_demand, extras, speed, pool } = known;
    let standing = auto_market::standing(&AutoFacts {
        spec: &spec.spec,
        history: &[],
        running: None,
        more_time: Span::ZERO,
        spot: Some(auto_market::SpotPool {
            pool: &pool,
            hourly: spot,
            there: true,
            others: Others::default(),
            elsewhere: 0.0,
        }),
        on_demand: Some(on_demand),
        speed,
        now: context.clock.now(),
    });
    let time = |hours: f64| Duration::from_secs((hours * 3600.0).round() as u64);
    let play = Play {
        work: times(work(&spec.spec)?, 1.0 / speed),
        deadline: standing.time_left.map(time),
        start: args.start.map_or(time(standing.start), Span::duration),
        saves_every: time(standing.unsaved),
        begins_anew: standing.begins_anew,
        tick: TICK,
        spot,
        on_demand,
        limits: PlayLimits { spot_most, ..PlayLimits::of(&spec.spec) },
    };
    // On the cheapest of the shown markets: a limit that is too tight there is too tight on all.
    let spot_hour = spot_most.unwrap_or(spot);
    let hours_cost = match named {
        Some(MarketChoice::OnDemand) => [on_demand; 2],
        Some(MarketChoice::Spot) => [spot_hour; 2],
        Some(MarketChoice::Auto) | None => [spot_hour.min(on_demand), spot_hour.max(on_demand)],
    };
    let is_taken = named != Some(MarketChoice::OnDemand);
    let mut bought = Spec {
        machine: MachineSpec { cloud: CloudKind::Aws, ..spec.spec.machine.clone() },
        ..spec.spec.clone()
    };
    // With recorded prices, the paid hours are unknown.
    bought.limits.budget = bought.limits.budget.filter(|_| args.prices.is_none());
    let out_of_reach = OutOfReach::by_the_hour(
        &bought,
        &WorkState { start: hours(play.start), ..standing },
        (hours_cost, is_taken),
        speed,
        context.clock.now(),
    );
    Ok(Given { play: play.bounded(), pool, extras, out_of_reach })
}

/// Adds what else is missing, so that the user can fix both at once.
fn also(fault: Fault, missing: &Fault) -> Fault {
    let hints: Vec<String> = fault.hint.iter().chain(&missing.hint).cloned().collect();
    fault.also(&missing.what).hint(hints.join("; and "))
}

/// The hint to play without a cloud.
const BOTH: &str =
    "give both prices, and no cloud is asked: --spot-price 0.4 --on-demand-price 1.2";

fn work(spec: &Spec) -> Result<Duration, Fault> {
    let missing = || {
        Fault::new(ExitCode::FINDINGS, "the job does not say how much work it is")
            .hint("--work 20h, or `limits.work` in the job file")
    };
    spec.limits.work.map(Span::duration).filter(|work| *work > Duration::ZERO).ok_or_else(missing)
}

/// The known prices and pool; hourly prices include disk and address.
struct KnownMarket {
    spot: UsdPerHour,
    /// With its bid; `None`: unknown.
    spot_most: Option<UsdPerHour>,
    on_demand: UsdPerHour,
    /// The part of the hourly price besides the machine.
    extras: Option<UsdPerHour>,
    speed: f64,
    pool: Pool,
}

async fn prices(context: &Context, spec: &ResolvedSpec) -> Result<KnownMarket, Fault> {
    let unknown = || {
        Fault::new(ExitCode::FINDINGS, "the prices of both markets are not known here").hint(BOTH)
    };
    if spec.spec.machine.cloud == CloudKind::Local {
        return Err(unknown());
    }
    preflight::refuse_cloud(spec.spec.machine.cloud)?;
    let store = job_root::open(context).await?;
    let controller = drive::controller(&job_root::workstation(context)?, &store)?;
    let terminal = Terminal::new(context, false);
    let outlook = first_plan::first(&terminal.session(&store)?, &controller, spec)
        .await?
        .outlook
        .ok_or_else(unknown)?;
    let Outlook { spot, spot_most, on_demand, extras, speed, pool, .. } = outlook;
    Ok(KnownMarket {
        spot,
        spot_most: Some(spot_most),
        on_demand,
        extras: Some(extras),
        speed,
        pool,
    })
}

impl From<TraceError> for Fault {
    fn from(error: TraceError) -> Self {
        let is_missing = matches!(&error, TraceError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        Fault::from_error(if is_missing { ExitCode::NOT_FOUND } else { ExitCode::FINDINGS }, &error)
            .hint(r#"a course is {"gap_seconds": 600, "first": 1, "runs": [12, 3, 40]}; `lamp simulate --help` explains it"#)
    }
}

impl From<PriceCourseError> for Fault {
    fn from(error: PriceCourseError) -> Self {
        let is_missing = matches!(&error, PriceCourseError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        Fault::from_error(if is_missing { ExitCode::NOT_FOUND } else { ExitCode::FINDINGS }, &error)
            .hint(
                "`lamp prices --type g5.xlarge --zone us-east-1a -o json > prices.json` writes one",
            )
    }
}

/// All runs on one market, by the market choice alone.
fn runs(times: u32, play: &Play, goes: Goes, pool: &Pool, traces: &[CapacityTrace]) -> Vec<Ran> {
    if traces.is_empty() {
        return forecast::drawn(play, goes, &pool.spells, times);
    }
    let mut ran = Vec::new();
    let each = times.div_ceil(u32::try_from(traces.len()).unwrap_or(u32::MAX)) as usize;
    for trace in traces {
        let play = Play { tick: trace.tick, ..*play };
        let watch = planned(&play, &pool.spells);
        let starts = (0..each).map(|n| n * trace.there.len() / each);
        ran.extend(starts.map(|start| {
            // A recording starts again at its end: a job may be longer than the rest of it.
            let mut course = trace.there.iter().cycle().skip(start);
            play_once(&play, goes, &watch, || course.next().copied().unwrap_or(false))
        }));
    }
    ran
}

fn source(args: &Args, pool: &Pool, traces: &[CapacityTrace]) -> String {
    match (traces.len(), pool.looked) {
        (0, Some(_)) => format!("courses drawn from what is known of {} in {}", pool.instance_type, pool.zone),
        (0, None) => "courses drawn from the law of spot machines in general (docs/policies.md); this pool was never asked for".to_owned(),
        (1, _) => format!("the recorded course {}", args.trace[0].display()),
        (many, _) => format!("{many} recorded courses"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_lengthen_the_work_by_their_measured_time() {
        let saves = |each: f64| AssumedSaves {
            each,
            interval: Span::from_secs(600),
            measured_by: "x-222222".into(),
        };
        assert!((saves(60.0).stretch() - 1.1).abs() < 1e-9);
        let said = "the work stands still for 60.0 s each 10m, as `x-222222` measured its saves: that makes it 10.0% longer";
        assert_eq!((saves(60.0).sentence().as_deref(), saves(0.1).sentence()), (Some(said), None));
    }
}
