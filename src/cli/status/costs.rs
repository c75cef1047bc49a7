//! `lamp costs`: what jobs cost, by day, job, market, machine type, owner or tag.

use clap::Args as ClapArgs;
use serde::Serialize;

use crate::app::costs::details::CostReader;
use crate::app::costs::export;
use crate::app::overview::overview::OverviewReader;
use crate::app::view::costs::{CostGroup, CostRow, CostSum, sums, total};
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Format, Give, Stream, render_table_within};
use crate::market::Usd;

/// Show what jobs cost: by day, job, market, type, owner or your own tag
///
/// IDLE is the money of idle time. LOST is the money of work that an interruption took before a
/// checkpoint held it. SAVED compares with the same time on demand. `?` means unknown.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The group of each sum: day, job, market, type, owner, or tag:KEY for a tag of `[tags]`
    #[arg(long, value_name = "WORD", default_value = "day")]
    pub by: CostGroup,

    /// The rows as comma-separated values, one for each attempt and day, like `-o csv`
    #[arg(long)]
    pub csv: bool,

    /// The same as FOCUS 1.2, which programs for cloud costs read
    #[arg(long, conflicts_with = "csv")]
    pub focus: bool,
}

/// The output for programs.
#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CostDocument<'a> {
    /// The word of `--by`.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    by: &'a CostGroup,
    groups: &'a [CostSum],
    total: &'a CostSum,
    rows: &'a [CostRow],
}

/// # Errors
/// Fails when the job root is unreachable, or two forms are asked for.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let is_file = args.csv || args.focus;
    if is_file && context.is_machine_output() {
        return Err(Fault::new(
            ExitCode::USAGE,
            "`--csv` and `--focus` are forms of their own, and `-o` asks for another",
        )
        .hint("leave one of them away"));
    }
    let store = job_root::open_existing(context).await?;
    let workstation = job_root::workstation(context)?;
    let now = context.clock.now();
    let overview = OverviewReader::default().read(&store, &workstation, now).await?;
    let rows = CostReader::default().rows(&store, &overview).await;
    let printer = &context.printer;
    if is_file {
        printer.speak_beside_rows();
        let text = if args.focus { export::focus(&rows) } else { export::csv(&rows) };
        printer.line(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let group = &args.by;
    let (groups, total) = (sums(&rows, group), total(&rows));
    match context.printer.format() {
        Format::Json => {
            printer.json(&CostDocument { by: group, groups: &groups, total: &total, rows: &rows })
        }
        Format::Jsonl => rows.iter().for_each(|row| printer.json(row)),
        Format::Text => show(context, group, &groups, &total, &rows),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(
    context: &Context,
    group: &CostGroup,
    groups: &[CostSum],
    total: &CostSum,
    rows: &[CostRow],
) {
    let printer = &context.printer;
    if rows.is_empty() {
        printer.line("no job has cost anything");
        return;
    }
    let word = group.word();
    let headings = [word.as_str(), "cost", "idle", "lost", "on demand", "saved"];
    let lines: Vec<Vec<String>> = groups.iter().chain(std::iter::once(total)).map(cells).collect();
    let give = Give { cut: &[0], go: &[4] };
    printer.line(render_table_within(
        printer.columns(Stream::Out),
        &headings,
        &lines,
        &[1, 2, 3, 4, 5],
        give,
    ));
    if total.estimated {
        printer.note("<= marks sums with an estimate: the most that they can be");
    }
}

fn cells(sum: &CostSum) -> Vec<String> {
    let known = |usd: Option<Usd>| usd.map_or_else(|| "?".to_owned(), |usd| usd.to_string());
    let at_most = if sum.estimated { "<= " } else { "" };
    vec![
        sum.key.clone(),
        format!("{at_most}{}", sum.usd),
        known(sum.idle_usd),
        known(sum.lost_usd),
        known(sum.on_demand_usd),
        known(sum.saved_usd),
    ]
}
