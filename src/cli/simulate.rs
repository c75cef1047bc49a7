//! `lamp simulate`: the user's own job on recorded or drawn courses of spot capacity: cost, finish, interruptions, lost work.
//!
//! The rule is the shipped one (`policy::market_choice`, played by `policy::market_run`). Starts nothing. What must never live
//! here: a rule.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::Serialize;
use serde_json::json;
use textplots::{Chart, LabelBuilder, LabelFormat, Plot, Shape, TickDisplay, TickDisplayBuilder};

use super::forecast::{self, TICK};
use super::table;
use super::workdir::Prepared;
use super::{Context, ExitCode, Fault, JobArgs, job_root, plan, run, submission};
use crate::config::Hourly;
use crate::job::{MarketChoice, ResolvedSpec, Spec};
use crate::market::{Span, UsdPerHour};
use crate::policy::auto::{self, AutoFacts};
use crate::policy::market_choice::Others;
use crate::policy::market_run::{Goes, Play, Ran, Spread, planned, run as play_once};
use crate::policy::pool::Pool;
use crate::wire::{CapacityTrace, TraceError, read_capacity};

/// Play a job many times against courses of spot capacity: what it would cost, and when it would end
///
/// Without --market all three are shown. Courses are recorded ones (--trace), or drawn from what is known of the pool, or of
/// spot machines in general. With both prices given no cloud is asked.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
    /// A recorded course of capacity, `{"gap_seconds", "first", "runs"}`; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Simulation")]
    pub trace: Vec<PathBuf>,
    /// How often the job is played
    #[arg(long, value_name = "N", default_value_t = forecast::RUNS, value_parser = clap::value_parser!(u32).range(10..=10_000), help_heading = "Simulation")]
    pub runs: u32,
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

/// One market's runs, for people and programs.
#[derive(Clone, Debug, Serialize)]
struct Row {
    market: &'static str,
    usd: Spread,
    finish_hours: Spread,
    late_share: f64,
    interruptions: f64,
    lost_hours: f64,
    on_demand_hours: f64,
    starts: f64,
    #[serde(skip)]
    costs: Vec<f64>,
}

/// # Errors
/// The job has errors or does not say how much work it is, or no prices are known.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let Prepared { loaded, .. } = args.job.prepare(context)?;
    let mut spec = submission::spec(context, &loaded);
    let named = loaded.origins.get("machine.market").is_some_and(|origin| origin == "flag").then_some(spec.spec.machine.market);
    spec.spec.machine.market = MarketChoice::Auto;
    let (play, pool) = self::play(args, context, &spec).await?;
    let traces: Vec<CapacityTrace> = args.trace.iter().map(|file| read_capacity(file)).collect::<Result<_, _>>()?;
    let markets = [(MarketChoice::Auto, Goes::Auto), (MarketChoice::Spot, Goes::Spot), (MarketChoice::OnDemand, Goes::OnDemand)];
    let shown = markets.into_iter().filter(|(market, _)| named.is_none_or(|named| named == *market));
    let rows: Vec<Row> = shown.filter_map(|(market, goes)| Row::of(market, &runs(args, &play, goes, &pool, &traces))).collect();
    let from = source(args, &pool, &traces);
    if context.is_machine_output() {
        let job = json!({
            "work_hours": hours(play.work), "deadline_hours": play.deadline.map(hours), "start_seconds": play.start.as_secs_f64(),
            "saves_every_seconds": play.saves_every.as_secs_f64(), "spot_usd_per_hour": play.spot, "on_demand_usd_per_hour": play.on_demand,
        });
        let traces: Vec<String> = args.trace.iter().map(|file| file.display().to_string()).collect();
        context.printer.json(&json!({ "job": job, "runs": args.runs, "from": from, "traces": traces, "markets": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.line(text(&rows));
    if !context.printer.is_quiet() {
        context.printer.line(format!("\n{}", plot(&rows)));
    }
    context.printer.note(format!("played {} times on {from}", args.runs));
    context.printer.note("nothing was started");
    Ok(ExitCode::SUCCESS)
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

/// The job as it is played, and what is known of its pool.
async fn play(args: &Args, context: &Context, spec: &ResolvedSpec) -> Result<(Play, Pool), Fault> {
    let (spot, on_demand, pool) = match (&args.spot_price, &args.on_demand_price) {
        (Some(spot), Some(on_demand)) => (spot.0, on_demand.0, Pool::new("", "")),
        _ => prices(context, spec).await?,
    };
    let standing = auto::standing(&AutoFacts {
        spec: &spec.spec,
        history: &[],
        running: None,
        more_time: Span::ZERO,
        spot: Some(auto::SpotPool { pool: &pool, hourly: spot, there: true, others: Others::default(), elsewhere: 0.0 }),
        on_demand: Some(on_demand),
        now: context.clock.now(),
    });
    let time = |hours: f64| Duration::from_secs((hours * 3600.0).round() as u64);
    let play = Play {
        work: work(&spec.spec)?,
        deadline: standing.time_left.map(time),
        start: args.start.map_or(time(standing.start), Span::duration),
        saves_every: time(standing.unsaved),
        tick: TICK,
        spot,
        on_demand,
    };
    Ok((play.bounded(), pool))
}

fn work(spec: &Spec) -> Result<Duration, Fault> {
    let missing = || Fault::new(ExitCode::FINDINGS, "the job does not say how much work it is").hint("--work 20h, or `limits.work` in the job file");
    spec.limits.work.map(Span::duration).filter(|work| *work > Duration::ZERO).ok_or_else(missing)
}

async fn prices(context: &Context, spec: &ResolvedSpec) -> Result<(UsdPerHour, UsdPerHour, Pool), Fault> {
    let unknown =
        || Fault::new(ExitCode::FINDINGS, "the prices of both markets are not known here").hint("give both: --spot-price 0.4 --on-demand-price 1.2");
    if spec.spec.machine.cloud == crate::market::Cloud::Local {
        return Err(unknown());
    }
    run::refuse_cloud(spec.spec.machine.cloud)?;
    let store = job_root::open(context).await?;
    let controller = run::controller(&job_root::workstation(context)?, &store)?;
    let outlook = plan::first(context, &controller, spec).await?.outlook.ok_or_else(unknown)?;
    Ok((outlook.spot, outlook.on_demand, outlook.pool))
}

impl From<TraceError> for Fault {
    fn from(error: TraceError) -> Self {
        Fault::from_error(ExitCode::FINDINGS, &error)
    }
}

/// All runs of one market.
fn runs(args: &Args, play: &Play, goes: Goes, pool: &Pool, traces: &[CapacityTrace]) -> Vec<Ran> {
    if traces.is_empty() {
        return forecast::drawn(play, goes, &pool.spells, args.runs);
    }
    let mut ran = Vec::new();
    let each = args.runs.div_ceil(u32::try_from(traces.len()).unwrap_or(u32::MAX)) as usize;
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

impl Row {
    fn of(market: MarketChoice, ran: &[Ran]) -> Option<Row> {
        let mean = |number: fn(&Ran) -> f64| ran.iter().map(number).sum::<f64>() / ran.len() as f64;
        let mut costs: Vec<f64> = ran.iter().map(|ran| ran.usd).collect();
        costs.sort_by(f64::total_cmp);
        Some(Row {
            market: match market {
                MarketChoice::Auto => "auto",
                MarketChoice::Spot => "spot",
                MarketChoice::OnDemand => "on-demand",
            },
            usd: Spread::of(ran, |ran| ran.usd)?,
            finish_hours: Spread::of(ran, |ran| ran.finish_hours)?,
            late_share: mean(|ran| f64::from(u8::from(ran.late))),
            interruptions: mean(|ran| f64::from(ran.interruptions)),
            lost_hours: mean(|ran| ran.lost_hours),
            on_demand_hours: mean(|ran| ran.on_demand_hours),
            starts: mean(|ran| f64::from(ran.starts)),
            costs,
        })
    }

    fn cells(&self) -> Vec<String> {
        let Row { usd, finish_hours: finish, .. } = self;
        vec![
            self.market.to_owned(),
            format!("{:.2}", usd.mean),
            format!("{:.2}", usd.p50),
            format!("{:.2}", usd.p95),
            format!("{:.1}h", finish.p50),
            format!("{:.1}h", finish.p95),
            format!("{:.0}%", 100.0 * self.late_share),
            format!("{:.1}", self.interruptions),
            format!("{:.1}h", self.lost_hours),
            format!("{:.1}h", self.on_demand_hours),
        ]
    }
}

fn text(rows: &[Row]) -> String {
    let headings = ["market", "usd", "median", "p95", "ends after", "p95", "late", "interrupted", "lost", "on demand"];
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    table::render(&headings, &cells, &[1, 2, 3, 4, 5, 6, 7, 8, 9])
}

/// In dots: two make a column, four a line. Fits a terminal of 80 columns with its labels.
const WIDTH: u32 = 120;
const HEIGHT: u32 = 40;

/// How many of a hundred runs cost no more, over the dollars.
fn plot(rows: &[Row]) -> String {
    let most = rows.iter().filter_map(|row| row.costs.last()).fold(0.0, |most: f64, usd| most.max(*usd)) as f32;
    let steps: Vec<Vec<(f32, f32)>> = rows.iter().map(|row| rising(&row.costs, most)).collect();
    let shapes: Vec<Shape<'_>> = steps.iter().map(|steps| Shape::Lines(steps)).collect();
    let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, 0.0, most * 1.05, 0.0, 100.0);
    let mut chart = chart
        .x_label_format(LabelFormat::Custom(Box::new(|usd| format!("${usd:.0}"))))
        .y_label_format(LabelFormat::Custom(Box::new(|share| format!("{share:.0}%"))))
        .y_tick_display(TickDisplay::Sparse);
    for shape in &shapes {
        chart = chart.lineplot(shape);
    }
    chart.axis();
    chart.figures();
    let drawn = chart.to_string().replace('\u{2800}', " ");
    let lines: Vec<&str> = drawn.lines().map(str::trim_end).collect();
    let markets: Vec<&str> = rows.iter().map(|row| row.market).collect();
    format!("how many of the runs cost no more ({}, by their medians in the table)\n{}", markets.join(", "), lines.join("\n").trim_end())
}

fn rising(costs: &[f64], most: f32) -> Vec<(f32, f32)> {
    let mut steps = vec![(0.0, 0.0)];
    for (n, usd) in costs.iter().enumerate() {
        let (before, after) = (100.0 * n as f32 / costs.len() as f32, 100.0 * (n + 1) as f32 / costs.len() as f32);
        steps.extend([(*usd as f32, before), (*usd as f32, after)]);
    }
    steps.push((most * 1.05, 100.0));
    steps
}
