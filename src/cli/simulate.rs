//! `lamp simulate`: the user's own job on recorded or drawn courses of spot capacity: cost, finish, interruptions, lost work.
//!
//! The rule is the shipped one (`policy::market_choice`, played by `policy::market_run`). Starts nothing. What must never live
//! here: a rule, or how it is shown (`simulate_text`).

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::json;

use super::forecast::{self, TICK};
use super::simulate_text::{self as text, Row};
use super::workdir::Prepared;
use super::{Context, ExitCode, Fault, JobArgs, Stream, job_root, plan, run, submission};
use crate::config::Hourly;
use crate::job::{MarketChoice, ResolvedSpec, Spec};
use crate::market::{Span, UsdPerHour};
use crate::policy::auto::{self, AutoFacts};
use crate::policy::market_choice::Others;
use crate::policy::market_run::{Goes, Play, PlayLimits, Ran, planned, run as play_once};
use crate::policy::pool::Pool;
use crate::policy::work::times;
use crate::wire::{CapacityTrace, TraceError, read_capacity};

/// Play a job many times against courses of spot capacity: what it would cost, and when it would end
///
/// Without --market all three are shown. Courses are recorded ones (--trace), or drawn from what is known of the pool, or of
/// spot machines in general. With both prices given no cloud is asked. A deadline, `max_runtime` and a budget end a job that is not
/// done; without a deadline, a job that finds no capacity is given up after ten times its work and two days. All of these are
/// shown as not finished, and what a job costs and when it ends is told of those that finished.
///
/// A recorded course is a file like `{"gap_seconds": 600, "first": 1, "runs": [12, 3, 40]}`: looks 600 seconds apart, capacity
/// was there (`first` is 1; 0: gone) at 12 of them, then gone for 3, then there for 40, and so on in turn.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
    /// A recorded course of capacity, as above; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Simulation")]
    pub trace: Vec<PathBuf>,
    /// How often the job is played [default: 200, and fewer where it works for weeks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000), help_heading = "Simulation")]
    pub runs: Option<u32>,
    /// From the launch call to work [default: as measured, or 12m]
    #[arg(long, value_name = "TIME", help_heading = "Simulation")]
    pub start: Option<Span>,
    /// What an hour of a spot machine costs, all in [default: as it is now]
    #[arg(long, value_name = "USD", requires = "on_demand_price", help_heading = "Simulation")]
    pub spot_price: Option<Hourly>,
    /// What an hour on demand costs, all in [default: as it is now]
    #[arg(long, value_name = "USD", requires = "spot_price", help_heading = "Simulation")]
    pub on_demand_price: Option<Hourly>,
}

/// # Errors
/// The job has errors or does not say how much work it is, a recording is none, or no prices are known.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let Prepared { loaded, .. } = args.job.prepare(context)?;
    let mut spec = submission::spec(context, &loaded);
    let named = loaded.origins.get("machine.market").is_some_and(|origin| origin == "flag").then_some(spec.spec.machine.market);
    spec.spec.machine.market = MarketChoice::Auto;
    let (play, pool) = self::play(args, context, &spec).await?;
    let traces: Vec<CapacityTrace> = args.trace.iter().map(|file| read_capacity(file)).collect::<Result<_, _>>()?;
    let markets = [(MarketChoice::Auto, Goes::Auto), (MarketChoice::Spot, Goes::Spot), (MarketChoice::OnDemand, Goes::OnDemand)];
    let shown = markets.into_iter().filter(|(market, _)| named.is_none_or(|named| named == *market));
    let times = args.runs.unwrap_or_else(|| forecast::courses(play.work));
    if forecast::is_long(play.work) || times > forecast::RUNS {
        context.printer.note(format!("playing {} of work {times} times; this may take a while ...", Span::from_secs(play.work.as_secs())));
    }
    let rows: Vec<Row> = shown.map(|(market, goes)| Row::of(market, &runs(times, &play, goes, &pool, &traces))).collect();
    let from = source(args, &pool, &traces);
    if context.is_machine_output() {
        let job = json!({
            "work_hours": hours(play.work), "deadline_hours": play.deadline.map(hours), "start_seconds": play.start.as_secs_f64(),
            "max_runtime_seconds": play.limits.max_runtime.map(|time| time.as_secs_f64()), "budget_usd": play.limits.budget,
            "saves_every_seconds": play.saves_every.as_secs_f64(), "spot_usd_per_hour": play.spot, "on_demand_usd_per_hour": play.on_demand,
        });
        let traces: Vec<String> = args.trace.iter().map(|file| file.display().to_string()).collect();
        context.printer.json(&json!({ "job": job, "runs": times, "from": from, "traces": traces, "markets": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    let width = context.printer.columns(Stream::Out);
    context.printer.line(text::table(&rows, width));
    if !context.printer.is_quiet() {
        context.printer.line(format!("\n{}", text::plot(&rows, width)));
    }
    text::legend(&rows, &play).into_iter().for_each(|line| context.printer.note(line));
    context.printer.note(format!("played {times} times on {from}"));
    context.printer.note("nothing was started");
    Ok(ExitCode::SUCCESS)
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

/// The job as it is played, and what is known of its pool.
async fn play(args: &Args, context: &Context, spec: &ResolvedSpec) -> Result<(Play, Pool), Fault> {
    let (spot, spot_most, on_demand, speed, pool) = match (&args.spot_price, &args.on_demand_price) {
        (Some(spot), Some(on_demand)) => (spot.0, None, on_demand.0, 1.0, Pool::new("", "")),
        _ => prices(context, spec).await?,
    };
    let standing = auto::standing(&AutoFacts {
        spec: &spec.spec,
        history: &[],
        running: None,
        more_time: Span::ZERO,
        spot: Some(auto::SpotPool { pool: &pool, hourly: spot, there: true, others: Others::default(), elsewhere: 0.0 }),
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
    Ok((play.bounded(), pool))
}

fn work(spec: &Spec) -> Result<Duration, Fault> {
    let missing = || Fault::new(ExitCode::FINDINGS, "the job does not say how much work it is").hint("--work 20h, or `limits.work` in the job file");
    spec.limits.work.map(Span::duration).filter(|work| *work > Duration::ZERO).ok_or_else(missing)
}

async fn prices(context: &Context, spec: &ResolvedSpec) -> Result<(UsdPerHour, Option<UsdPerHour>, UsdPerHour, f64, Pool), Fault> {
    let unknown =
        || Fault::new(ExitCode::FINDINGS, "the prices of both markets are not known here").hint("give both: --spot-price 0.4 --on-demand-price 1.2");
    if spec.spec.machine.cloud == crate::market::Cloud::Local {
        return Err(unknown());
    }
    run::refuse_cloud(spec.spec.machine.cloud)?;
    let store = job_root::open(context).await?;
    let controller = run::controller(&job_root::workstation(context)?, &store)?;
    let outlook = plan::first(context, &controller, spec).await?.outlook.ok_or_else(unknown)?;
    Ok((outlook.spot, Some(outlook.spot_most), outlook.on_demand, outlook.speed, outlook.pool))
}

impl From<TraceError> for Fault {
    fn from(error: TraceError) -> Self {
        let is_missing = matches!(&error, TraceError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        Fault::from_error(if is_missing { ExitCode::NOT_FOUND } else { ExitCode::FINDINGS }, &error)
            .hint(r#"a course is {"gap_seconds": 600, "first": 1, "runs": [12, 3, 40]}; `lamp simulate --help` explains it"#)
    }
}

/// All runs of one market.
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
            // A recording goes round: a job may be longer than what is left of it.
            let mut course = trace.there.iter().cycle().skip(start);
            play_once(&play, goes, &watch, || course.next().copied().unwrap_or(false))
        }));
    }
    ran
}

fn source(args: &Args, pool: &Pool, traces: &[CapacityTrace]) -> String {
    match (traces.len(), pool.looked) {
        (0, Some(_)) => format!("courses drawn from what is known of {} in {}", pool.instance_type, pool.zone),
        (0, None) => "courses drawn from the law of spot machines in general (docs/policies.md); nobody has looked at this pool yet".to_owned(),
        (1, _) => format!("the recorded course {}", args.trace[0].display()),
        (many, _) => format!("{many} recorded courses"),
    }
}
