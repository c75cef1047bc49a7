//! `lamp prices`: what machines cost now on both markets, what a rule would bid, and whether buying
//! is cheaper.
//!
//! It asks EC2; without an answer it shows the shipped catalogue and its date. Buys nothing.

use clap::Args as ClapArgs;
use serde_json::json;

use super::history as course;
use super::source::PriceSource;
use super::table;
use super::{buy_or_rent, plot};
use crate::app::launch::region_hint;
use crate::app::prices::price_row::{self, PriceRow};
use crate::app::session::saying;
use crate::cli::shell::flags::one_name;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault, Format, Stream};
use crate::config::closest;
use crate::job::{MachineSpec, MarketChoice};
use crate::market::{
    Catalog, CloudKind, GpuRequirement, PriceHistory, PriceRule, Region, Span, Supply,
    did_you_mean, has_a_size,
};
use crate::policy::purchase::bid::{HONEST, back};

/// Show what machines cost: on-demand and spot
///
/// For each type that satisfies what is asked for, in the zone of each region where it is cheapest,
/// or in every zone (--zones): the prices now, what a bid rule gives, and how often that bid would
/// have been exceeded.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The same as --gpu
    #[arg(value_name = "GPUS", conflicts_with = "gpu")]
    pub wanted: Option<GpuRequirement>,
    /// GPUs, like `A10G`, `H100:8` or `at least 24GiB` [default: any]
    #[arg(long, visible_alias = "gpus", value_name = "GPUS")]
    pub gpu: Option<GpuRequirement>,
    /// At least so many GPUs
    #[arg(long, value_name = "N")]
    pub count: Option<u32>,
    /// At least so much memory on each GPU, like `24GiB`
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Only this instance type; may be repeated
    #[arg(long = "type", visible_alias = "instance-type", value_name = "TYPE", value_parser = one_name)]
    pub types: Vec<String>,
    /// Only this region; may be repeated [default: `regions` in [aws] of the configuration, else
    /// AWS_REGION, else the region of the profile]
    #[arg(long, value_name = "REGION", value_parser = one_name)]
    pub region: Vec<String>,
    /// A line for every zone, instead of one for each type in a region; `-o json` and `-o csv` have
    /// every zone anyway
    #[arg(long)]
    pub zones: bool,
    /// How many days of spot prices to look at, up to 90
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=90))]
    pub days: u32,
    /// The rule that gives the bid: 0.65, `80% of on-demand`, `p95 of 14d` or `auto`
    #[arg(long, value_name = "PRICE", default_value = "auto")]
    pub bid: PriceRule,
    /// Show the choice of the rule for every six hours of that time
    #[arg(long)]
    pub backtest: bool,
    /// Comma-separated values instead of the table, like `-o csv`
    #[arg(long)]
    pub csv: bool,
    /// The spot prices of those days instead of the table, a row for each change: with `-o csv` or
    /// `-o jsonl`
    #[arg(long)]
    pub history: bool,
    /// The zone whose spot price over time is shown [default: in the plot the cheapest zone,
    /// else all]
    #[arg(long, value_name = "ZONE", value_parser = one_name)]
    pub zone: Option<String>,
    #[command(flatten)]
    pub buy: buy_or_rent::Purchase,
}

/// # Errors
/// Fails when a request is invalid, or nothing has a known price.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    refuse_unsaid(args, context)?;
    let machine = machine(args)?;
    let window = Span::from_secs(u64::from(args.days.max(window_days(args.bid))) * 86_400);
    let (supply, source) = supply(context, &machine, window).await?;
    let (has_rows, is_asked) =
        (args.csv || context.printer.format() == Format::Jsonl, source.is_asked());
    if has_rows {
        context.printer.speak_beside_rows();
    }
    source.warn(context);
    let now = context.clock.now();
    let from = back(now, Span::from_secs(u64::from(args.days) * 86_400));
    let rows = price_row::rows(&supply, args.bid, from, now, args.backtest);
    if rows.is_empty() {
        return Err(nothing(&machine, &supply, is_asked));
    }
    let zone = args.zone.as_deref();
    let courses = course::of(&rows, &supply, zone, from);
    if args.history || zone.is_some() {
        course::refuse_none(&courses, &supply, zone, is_asked)?;
    }
    let bids = table::about_bids(&rows, args.bid);
    match context.printer.format() {
        _ if args.csv => context.printer.line(if args.history { course::csv(&courses) } else { table::csv(&rows, &source) }),
        Format::Json => context.printer.json(&json!({
            "source": source, "rule": args.bid, "days": args.days, "rows": rows, "histories": courses, "refused": supply.refused, "notes": supply.notes,
            "time": buy_or_rent::time_document(&args.buy, &rows), "buy": buy_or_rent::document(&args.buy, &rows),
        })),
        Format::Jsonl if args.history => course::points(&courses).for_each(|point| context.printer.json(&point)),
        Format::Jsonl => rows.iter().for_each(|row| context.printer.json(&table::with_source(row, &source))),
        Format::Text => show(args, context, &rows, &courses, from),
    }
    // Beside rows and beside the table; a document contains them.
    for note in bids.iter().chain(&supply.notes).chain(&shortened(&supply.refused)) {
        context.printer.note(note);
    }
    if !has_rows && rows[0].bid.is_some() {
        context.printer.note(HONEST);
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_unsaid(args: &Args, context: &Context) -> Result<(), Fault> {
    let refused = |what: &str, hint: &str| Err(Fault::new(ExitCode::USAGE, what).hint(hint));
    let all = "`-o json` has all of it in one document";
    let has_rows = args.csv || context.printer.format() == Format::Jsonl;
    if args.history && !has_rows && context.printer.format() != Format::Json {
        return refused(
            "`--history` is a row for each change of a price",
            "`-o csv` or `-o jsonl` prints it so; the plot draws one zone, `--zone` which",
        );
    }
    if args.zone.is_some() && has_rows && !args.history {
        return refused(
            "`--zone` chooses whose course of prices is shown, and rows of machines show none",
            "`--history` has the course; `--region` asks in fewer places",
        );
    }
    match (args.csv, context.printer.format()) {
        (true, Format::Json | Format::Jsonl) => {
            refused("`--csv` and `-o` ask for two forms of the same rows", "leave one of them away")
        }
        (true, _) | (_, Format::Jsonl)
            if args.history && (args.buy.buy.is_some() || args.backtest) =>
        {
            refused(
                "`--history` is of prices alone, and `--buy` and `--backtest` are about the table",
                all,
            )
        }
        (true, _) | (_, Format::Jsonl) if args.buy.buy.is_some() || args.buy.hours.is_some() => {
            refused("`--buy` and `--hours` compare, and rows have no place for that", all)
        }
        (true, _) if args.backtest => refused(
            "`--backtest` is about all rows, and comma-separated values have no place for it",
            all,
        ),
        _ => Ok(()),
    }
}

/// An unknown name is the likeliest reason and comes first. Without EC2's answer (`is_asked` is
/// false) the type may be unknown here.
fn nothing(machine: &MachineSpec, supply: &Supply, is_asked: bool) -> Fault {
    let gpus = &machine.gpus;
    let catalog = Catalog::shipped();
    let models = catalog.gpu_models();
    let all = "`lamp prices` without a word shows every GPU machine";
    if let Some(wanted) =
        gpus.model.as_deref().filter(|_| !models.iter().any(|model| gpus.is_model(model)))
    {
        let names: Vec<String> = models.iter().map(|model| model.replace(' ', "-")).collect();
        let meant = closest(wanted, names.iter().map(String::as_str))
            .map(|name| format!("did you mean `{name}`? "))
            .unwrap_or_default();
        let fault = Fault::new(
            ExitCode::NOT_FOUND,
            format!("no GPU is called `{wanted}`: there are {}", names.join(", ")),
        );
        return fault.hint(format!("{meant}{all}"));
    }
    // Unknown regions explain everything: nothing is sold there.
    if !machine.regions.is_empty()
        && machine.regions.iter().all(|name| region_hint::unknown(name).is_some())
    {
        let unknown: Vec<String> =
            machine.regions.iter().filter_map(|name| region_hint::unknown(name)).collect();
        let code = if is_asked { ExitCode::NOT_FOUND } else { ExitCode::UNREACHABLE };
        return Fault::new(code, format!("nothing is sold in {}", machine.regions.join(", ")))
            .hint(unknown.join("; "));
    }
    let odd: Vec<&str> = machine
        .instance_types
        .iter()
        .map(String::as_str)
        .filter(|name| !has_a_size(name))
        .collect();
    if let Some(first) = odd.first() {
        let fault = Fault::new(
            ExitCode::NOT_FOUND,
            format!(
                "no machine type is called {}: a size is `xlarge`, `12xlarge`, `metal` or the like",
                odd.join(", ")
            ),
        );
        return fault.hint(
            did_you_mean(first, catalog.types().iter().map(|kind| kind.name.as_str()))
                .unwrap_or_else(|| all.to_owned()),
        );
    }
    let untold: Vec<&str> = machine
        .instance_types
        .iter()
        .map(String::as_str)
        .filter(|name| catalog.machine_type(name).is_none())
        .collect();
    if let (false, Some(first)) = (is_asked, untold.first()) {
        let what = "nothing with a known price: EC2 gave no answer, and the shipped catalogue, which has machines with GPUs alone, does not know";
        let meant = did_you_mean(
            first,
            catalog
                .types()
                .iter()
                .map(|kind| kind.name.as_str())
                .filter(|name| is_a_slip(first, name)),
        );
        let fault = Fault::new(ExitCode::UNREACHABLE, format!("{what} {}", untold.join(", ")));
        return fault.hint(
            meant.unwrap_or_else(|| "`lamp doctor` says what keeps AWS from answering".to_owned()),
        );
    }
    let priced = catalog.regions();
    let is_priced = |name: &String| priced.iter().any(|region| region.as_str() == name);
    if !is_asked && !machine.regions.is_empty() && !machine.regions.iter().any(is_priced) {
        let what = format!(
            "EC2 did not answer, and the catalogue that ships with `lamp` lacks prices of {}",
            machine.regions.join(", ")
        );
        let has: Vec<&str> = priced.iter().map(Region::as_str).collect();
        return Fault::new(ExitCode::UNREACHABLE, what).hint(format!(
            "its prices are of {}; `lamp doctor` says what keeps AWS from answering",
            has.join(", ")
        ));
    }
    let because = match shortened(&supply.refused) {
        refused if refused.is_empty() && gpus.count == 0 => {
            "no such machine type is on offer".to_owned()
        }
        refused if refused.is_empty() => {
            "no machine type has that many GPUs, or so much memory on each".to_owned()
        }
        refused => said_once(&refused, &format!(", and the job needs {gpus}")),
    };
    Fault::new(ExitCode::NOT_FOUND, format!("nothing with a known price: {because}"))
        .hint(format!("{all}; --region names another region"))
}

/// Whether it is one typing error. The catalogue lacks machines without GPUs, so m5.large may be
/// right: two different letters, or the first one, do not count.
fn is_a_slip(name: &str, of: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.chars().next() == of.chars().next() && strsim::osa_distance(&name, of) == 1
}

/// Leaves a common ending only at the last reason that has it.
fn said_once(reasons: &[String], end: &str) -> String {
    let last = reasons.iter().rposition(|reason| reason.ends_with(end));
    let said = reasons.iter().enumerate().map(|(at, reason)| {
        if Some(at) == last { reason.as_str() } else { reason.strip_suffix(end).unwrap_or(reason) }
    });
    said.collect::<Vec<_>>().join("; ")
}

fn show(
    args: &Args,
    context: &Context,
    rows: &[PriceRow],
    courses: &[PriceHistory],
    from: jiff::Timestamp,
) {
    // A named zone needs its own prices, and a backtest covers every zone.
    let each = if args.zones || args.zone.is_some() || args.backtest {
        table::PriceLines::EachZone
    } else {
        table::PriceLines::EachRegion
    };
    context.printer.line(table::text(rows, each, context.printer.columns(Stream::Out)));
    context.printer.note(table::legend(rows, each, args.bid, args.days));
    if args.backtest {
        context.printer.line(format!("\n{}", table::backtest_text(rows, args.bid)));
    }
    let best = &rows[0];
    // Without a zone, the history of the cheapest machine.
    let drawn = if args.zone.is_some() {
        courses.first()
    } else {
        courses.iter().find(|course| best.is_of(course))
    };
    if let Some(history) = drawn.filter(|_| !context.printer.is_quiet()) {
        let bid = rows.iter().find(|row| row.is_of(history)).and_then(|row| row.bid);
        context.printer.line(format!("\n{}", plot::text(history, bid, from, context.clock.now())));
    }
    for line in buy_or_rent::text(&args.buy, rows) {
        context.printer.line(line);
    }
}

/// EC2's answer, or the catalogue's, and which one it is.
async fn supply(
    context: &Context,
    machine: &MachineSpec,
    window: Span,
) -> Result<(Supply, PriceSource), Fault> {
    let workstation = job_root::workstation(context)?;
    let because = match saying(
        &context.clock,
        &Terminal::new(context, false),
        "asking EC2 for types, zones and prices",
        workstation.ec2_supply(machine, window),
    )
    .await
    {
        Ok(supply) => return Ok((supply, PriceSource::ec2(context.clock.now()))),
        Err(error) => Fault::from_error(ExitCode::UNREACHABLE, &*error),
    };
    let catalog = Catalog::shipped();
    let named =
        if machine.regions.is_empty() { &workstation.aws.regions } else { &machine.regions };
    let regions: Vec<Region> =
        if named.is_empty() { catalog.regions() } else { named.iter().map(Region::new).collect() };
    let mut supply = catalog.supply(&machine.gpus, &machine.instance_types, &regions);
    let as_of = catalog.prices_as_of();
    supply.notes.push(format!(
        "this is the catalogue that ships with `lamp`: on-demand prices of {as_of}, types and zones of {}, the zones by their ids; spot prices are not in it",
        catalog.types_as_of()
    ));
    Ok((supply, PriceSource::catalogue(&because)))
}

/// The rules look back further than the window that is shown.
fn window_days(rule: PriceRule) -> u32 {
    rule.looks_back().map_or(0, |back| {
        u32::try_from(back.duration().as_secs().div_ceil(86_400)).unwrap_or(90).min(90)
    })
}

fn machine(args: &Args) -> Result<MachineSpec, Fault> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        Fault::new(ExitCode::USAGE, format!("--{what}: {error}"))
    };
    let any = GpuRequirement { count: 1, model: None, memory_mib_min: None };
    let named_type = named_type(args);
    let wanted = args.gpu.as_ref().or(args.wanted.as_ref()).filter(|_| named_type.is_none());
    let types: Vec<String> = args.types.iter().cloned().chain(named_type).collect();
    let asks_for_gpus =
        types.is_empty() || wanted.is_some() || args.memory.is_some() || args.count.is_some();
    let mut gpus =
        wanted.cloned().unwrap_or(if asks_for_gpus { any } else { GpuRequirement::NONE });
    if let Some(size) = &args.memory {
        let memory: GpuRequirement = format!("at least {size}")
            .parse()
            .map_err(|_| wrong("memory", &format!("`{size}` is no size, write 24GiB")))?;
        gpus.memory_mib_min = memory.memory_mib_min;
    }
    gpus.count = args.count.unwrap_or(gpus.count);
    Ok(MachineSpec {
        cloud: CloudKind::Aws,
        gpus,
        instance_types: types,
        regions: args.region.clone(),
        market: MarketChoice::Auto,
        max_price: args.bid,
        ..MachineSpec::default()
    })
}

/// `lamp prices g5.xlarge`: the word is a machine type.
fn named_type(args: &Args) -> Option<String> {
    let word = args.wanted.as_ref()?;
    word.model.clone().filter(|model| word.count == 1 && has_a_size(model))
}

/// Reasons under a table; `-o json` has all.
const REASONS_MAX: usize = 6;

pub fn shortened(list: &[String]) -> Vec<String> {
    let mut some: Vec<String> = list.iter().take(REASONS_MAX).cloned().collect();
    if list.len() > REASONS_MAX {
        some.push(format!("and {} more; `-o json` has all", list.len() - REASONS_MAX));
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_typing_error_is_a_slip_and_another_family_is_none() {
        for (name, of, slip) in [
            ("g5.xlarg", "g5.xlarge", true),
            ("G5.xlrage", "g5.xlarge", true),
            ("g5.large", "g5.xlarge", true),
            ("m5.large", "g5.xlarge", false),
            ("m5.xlarge", "g5.xlarge", false),
            ("g5.xlarge", "g5.xlarge", false),
        ] {
            assert_eq!(is_a_slip(name, of), slip, "{name}");
        }
    }
}
