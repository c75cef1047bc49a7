//! `lamp sweep`: ends our machines that no job needs, in every region. With `--foreign` it only
//! lists machines that no `lamp` launched.

use std::sync::Arc;

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt};
use serde_json::json;

use super::found_table;
use super::stop_cost::AtStake;
use super::sweep_report::Swept;
use super::unknown_job_machines::{self, NamedMachines};
use crate::account::{ForeignMachine, Residue};
use crate::app::drive;
use crate::app::overview::found_machine::{is_orphan, is_shown};
use crate::app::text::counted;
use crate::cli::output::unreachable;
use crate::cli::shell::confirm::confirm;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Give, Stream, render_table_within};
use crate::config::AwsFile;
use crate::controller::{Controller, Everywhere, Judged, SweepFindings};
use crate::jobdir::{self, JobDir};
use crate::market::{CloudKind, Market};
use crate::wire::StoreHandle;

/// End machines of ours without a living job, in all regions
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Show what would be done; do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// List machines that no `lamp` launched, with GPUs or with a tag of ours, with their age and
    /// cost; touch none of them
    #[arg(long)]
    pub foreign: bool,

    /// Do not ask before machines are ended, or what is left over is removed; without a
    /// terminal, it must be given
    #[arg(short, long)]
    pub yes: bool,

    /// Remove disks, addresses, network interfaces, spot requests and alarms of ours that no
    /// machine needs, too
    #[arg(long, conflicts_with = "foreign")]
    pub residue: bool,

    /// End this machine of yours, although its job is unknown here; may be repeated. A sweep
    /// never does it by itself, because another job root of yours may know the job
    #[arg(long, value_name = "ID", value_parser = unknown_job_machines::machine_id, conflicts_with_all = ["foreign", "residue"])]
    pub machine: Vec<String>,
}

/// # Errors
/// Fails when the job root cannot be used, or the user declines.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let workstation = job_root::workstation(context)?;
    let store = job_root::open(context).await?;
    let controller = drive::controller(&workstation, &store)?;
    let Everywhere { places, mut unknown, unsigned } = controller.ask_everywhere().await;
    context.printer.note(format!("looking in {}", counted(places.len() as u64, "region")));
    if args.foreign {
        let (machines, also_unknown) = controller.foreign(&places).await;
        return Ok(show_foreign(context, &machines, &[unknown, also_unknown].concat()));
    }
    let mut found = controller.look_for_orphans(&places).await;
    if !args.machine.is_empty() {
        found.unknown.extend(unknown);
        let named = NamedMachines { machines: &args.machine, dry_run: args.dry_run, yes: args.yes };
        return unknown_job_machines::end_named(&named, context, &store, &controller, found).await;
    }
    if unsigned.contains(&CloudKind::Aws) && never_at_aws(context, &store).await {
        found.unasked =
            unknown.extract_if(.., |(place, _)| place.as_str() == CloudKind::Aws.word()).collect();
    }
    found.unknown.extend(unknown);
    let (at_stake, mut swept) = (AtStake::of(context, &store, &found).await, Swept::default());
    show(context, &found, &at_stake);
    let code = act(args, context, &controller, &found, &mut swept).await;
    swept.tell(context, &found, &at_stake);
    code
}

async fn act(
    args: &Args,
    context: &Context,
    controller: &Controller,
    found: &SweepFindings,
    swept: &mut Swept,
) -> Result<ExitCode, Fault> {
    let orphans: Vec<&Judged> = found.machines.iter().filter(|judged| is_orphan(judged)).collect();
    let residue: Vec<&Residue> =
        found.residue.iter().filter(|left| args.residue && left.is_removable()).collect();
    if args.dry_run || orphans.len() + residue.len() == 0 {
        context.printer.note(if args.dry_run { "nothing was done" } else { "nothing was ended" });
        return Ok(code(found));
    }
    confirm(
        context,
        &will_do(orphans.len(), residue.len()),
        args.yes,
        "nothing was ended or removed: what is listed bills on",
    )?;
    swept.end(context, controller, &orphans).await;
    swept.clear(context, controller, &residue).await;
    Ok(if swept.is_whole() { code(found) } else { ExitCode::UNREACHABLE })
}

/// A folder without jobs for AWS, and without `[aws]`. Then missing credentials are no error: a
/// timer would fail every five minutes.
async fn never_at_aws(context: &Context, store: &StoreHandle) -> bool {
    if !context.roots.url.starts_with("file://") || context.config.user.aws != AwsFile::default() {
        return false;
    }
    // An unreadable job may have been for AWS.
    let Ok(jobs) = jobdir::jobs(store.as_ref()).await else { return false };
    let read = stream::iter(jobs).map(|job| async move {
        let spec = JobDir::new(Arc::clone(store), job).spec().await;
        spec.is_ok_and(|spec| spec.is_none_or(|spec| spec.spec.machine.cloud == CloudKind::Local))
    });
    read.buffered(READS_IN_FLIGHT).all(std::future::ready).await
}

const READS_IN_FLIGHT: usize = 32;

fn will_do(orphans: usize, removed: usize) -> String {
    let ends = (orphans > 0).then(|| format!("ends {}", counted(orphans as u64, "machine")));
    let removes = (removed > 0)
        .then(|| format!("removes {} that no machine needs", counted(removed as u64, "thing")));
    format!("this {}", ends.into_iter().chain(removes).collect::<Vec<_>>().join(" and "))
}

/// With unknown places the sweep is incomplete.
fn code(found: &SweepFindings) -> ExitCode {
    if found.unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::UNREACHABLE }
}

fn show(context: &Context, found: &SweepFindings, at_stake: &AtStake) {
    if !context.is_machine_output() && !found.machines.iter().any(is_shown) {
        context.printer.line(if found.unknown.is_empty() {
            "no machine of yours runs"
        } else {
            "no machine of yours was seen"
        });
    }
    found_table::show(context, found, at_stake);
    unknown_job_machines::hint(context, found);
}

/// The name is cut first: users look a machine up by its id.
fn foreign_table(width: Option<usize>, rows: &[Vec<String>]) -> String {
    let headings = ["machine", "name", "type", "region", "$/h", "age", "so far", "cpu", "gpu"];
    render_table_within(
        width,
        &headings,
        rows,
        &[4, 5, 6, 7, 8],
        Give { cut: &[1], go: &[1, 5, 4] },
    )
}

/// Forgotten machines, and those launched with a stolen key.
fn show_foreign(
    context: &Context,
    machines: &[ForeignMachine],
    unknown: &[(String, String)],
) -> ExitCode {
    let now = context.clock.now();
    let hours = |machine: &ForeignMachine| {
        now.duration_since(machine.launched).as_secs_f64().max(0.0) / 3600.0
    };
    let cost = |machine: &ForeignMachine| {
        machine.usd_per_hour.map(|price| price.per_hour().dollars() * hours(machine))
    };
    if context.is_machine_output() {
        let list = machines.iter().map(|machine| {
            let mut value = serde_json::to_value(machine).unwrap_or_default();
            value["age_hours"] = json!(hours(machine));
            value["usd_so_far"] = json!(cost(machine));
            value
        });
        let unknown = unknown.iter().map(|(place, why)| json!({ "place": place, "why": why }));
        context.printer.json(
            &json!({ "foreign": list.collect::<Vec<_>>(), "unknown": unknown.collect::<Vec<_>>() }),
        );
    } else if machines.is_empty() {
        // A place that did not answer may have machines.
        context.printer.line(if unknown.is_empty() {
            "no GPU machine of other people runs, and every machine with your tag is from `lamp`"
        } else {
            "the regions that answered have no GPU machine of other people"
        });
    } else {
        let known = |value: Option<f64>, unit: &str| {
            value.map_or_else(|| "?".to_owned(), |value| format!("{value:.0}{unit}"))
        };
        let rows: Vec<Vec<String>> = machines
            .iter()
            .map(|machine| {
                vec![
                    machine.id.clone(),
                    machine.name.clone().unwrap_or_default(),
                    machine.instance_type.clone(),
                    machine.region.to_string(),
                    machine.usd_per_hour.map_or_else(
                        || "?".to_owned(),
                        |price| format!("{:.2}", price.per_hour().dollars()),
                    ),
                    format!("{:.1}d", hours(machine) / 24.0),
                    cost(machine).map_or_else(
                        || "?".to_owned(),
                        |usd| {
                            format!(
                                "{}${usd:.2}",
                                if machine.market == Market::Spot { "<" } else { "" }
                            )
                        },
                    ),
                    known(machine.cpu_percent, "%"),
                    known(machine.gpu_percent, "%"),
                ]
            })
            .collect();
        context.printer.line(foreign_table(context.printer.columns(Stream::Out), &rows));
        for (machine, odd) in
            machines.iter().filter_map(|machine| Some((machine, machine.odd.as_ref()?)))
        {
            context.printer.warn(format!("{} in {}: {odd}", machine.id, machine.region));
        }
        context
            .printer
            .hint("`lamp` touches none of these: ask whose they are, or end them in the console");
    }
    unreachable::sentences(unknown).iter().for_each(|unknown| context.printer.warn(unknown));
    if unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::UNREACHABLE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::wrap::columns;

    #[test]
    fn foreign_table_fits_80_columns_and_cuts_no_id() {
        let row =
            |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<String>>();
        let foreign = [
            row(&[
                "i-0123456789abcdef0",
                &"a notebook with a very long name ".repeat(2),
                "g4dn.12xlarge",
                "ap-southeast-2",
                "12.24",
                "104.2d",
                "<$12345.67",
                "12%",
                "100%",
            ]),
            row(&[
                "i-0fedcba9876543210",
                "",
                "p5.48xlarge",
                "us-east-1",
                "55.04",
                "0.1d",
                "$9.12",
                "?",
                "?",
            ]),
        ];
        let text = foreign_table(Some(80), &foreign);
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains("i-0123456789abcdef0"), "{text}");
        assert!(
            foreign_table(None, &foreign).contains("long name a notebook"),
            "what is piped is whole"
        );
    }
}
