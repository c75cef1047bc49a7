//! `lamp sweep` of our machines whose job is unknown here. They are shown apart, and ended only by
//! id.
//!
//! ```text
//!   --machine ID ─┬─ gone ───────────────────────────> said
//!                 ├─ its job is known or unreadable ─> refused
//!                 └─ stray or orphan ──> a question ──> looked at again ──> ended
//! ```
//!
//! Not here: whether a job is known (`policy::lifecycle::orphan`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::stop_cost::AtStake;
use super::sweep::{self, is_orphan};
use super::sweep_report::Swept;
use crate::app::text::counted;
use crate::cli::shell::confirm::confirm;
use crate::cli::{Context, ExitCode, Fault, Give, Stream, render_table_within};
use crate::controller::{Controller, Found, Judged};
use crate::instance::{InstanceState, InstanceView};
use crate::market::{Catalog, Cloud, Market, Span, Usd, UsdPerHour, elapsed};
use crate::policy::lifecycle::orphan::OrphanVerdict;
use crate::wire::Store;

pub fn is_stray(judged: &Judged) -> bool {
    matches!(judged.verdict, OrphanVerdict::Stray { .. })
}

/// On demand, by the shipped catalogue: a spot machine costs less. `None`: it bills nothing, or its
/// price is unknown.
fn hour(view: &InstanceView) -> Option<UsdPerHour> {
    match view.cloud {
        _ if !view.state.bills() => None,
        Cloud::Local => Some(UsdPerHour::new(Usd::ZERO)),
        Cloud::Aws => Catalog::shipped().on_demand(&view.instance_type, &view.region),
    }
}

/// The bill so far, at the on-demand price; `None` when that is unknown.
pub fn so_far(view: &InstanceView, now: Timestamp) -> Option<Usd> {
    hour(view).map(|hour| hour.cost_of(elapsed(view.launched, now)))
}

pub fn figures(view: &InstanceView, now: Timestamp) -> [(&'static str, Value); 3] {
    [
        ("kill_at", json!(view.tags.kill_at)),
        ("usd_per_hour", json!(hour(view))),
        ("usd_so_far", json!(so_far(view, now))),
    ]
}

/// Shows the machines with an unknown job, and what helps the user to recognise them.
pub fn show(context: &Context, found: &Found) {
    let strays: Vec<&Judged> = found.machines.iter().filter(|judged| is_stray(judged)).collect();
    if strays.is_empty() {
        return;
    }
    let now = context.clock.now();
    let many = counted(strays.len() as u64, "machine");
    context.printer.line(format!("nobody here knows the job of {many} of yours, and no sweep ends what another job root may know:"));
    let rows: Vec<Vec<String>> = strays.iter().map(|stray| row(&stray.view, now)).collect();
    context.printer.line(table(context.printer.columns(Stream::Out), &rows));
}

/// A machine id as EC2 or this workstation gives it.
///
/// # Errors
/// Fails when no machine can have such an id; then no request is sent.
pub fn machine_id(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("i-").map(|rest| rest.strip_prefix("local-").unwrap_or(rest));
    if rest.is_some_and(|rest| {
        !rest.is_empty() && rest.chars().all(|letter| letter.is_ascii_hexdigit())
    }) {
        return Ok(text.to_owned());
    }
    Err("no machine has an id like that: EC2's are like i-0123456789abcdef0, those of a workstation like i-local-0123456789ab; \
         `lamp sweep --dry-run` lists the machines of yours"
        .to_owned())
}

pub fn hint(context: &Context, found: &Found) {
    let Some(first) = found
        .machines
        .iter()
        .find(|judged| is_stray(judged))
        .filter(|_| !context.is_machine_output())
    else {
        return;
    };
    context.printer.hint(format!(
        "`lamp --job-root ROOT sweep` says whether another job root knows it; where none does, `lamp sweep --machine {}` ends it for good",
        first.view.id
    ));
}

fn table(width: Option<usize>, rows: &[Vec<String>]) -> String {
    let headings = ["machine", "type", "region", "job", "age", "ends within", "$/h", "so far"];
    render_table_within(width, &headings, rows, &[4, 5, 6, 7], Give { cut: &[3], go: &[1, 2] })
}

fn row(view: &InstanceView, now: Timestamp) -> Vec<String> {
    let age = elapsed(view.launched, now);
    let span = |time: std::time::Duration| Span::from_secs(time.as_secs()).to_string();
    let ends = match (view.state.bills(), view.tags.kill_at) {
        (false, _) => view.state.to_string(),
        (true, Some(kill_at)) => span(elapsed(now, kill_at)),
        (true, None) => "no cap".to_owned(),
    };
    let at_most = if view.market == Market::Spot { "<" } else { "" };
    let usd = |usd: Option<Usd>| {
        usd.map_or_else(|| "?".to_owned(), |usd| format!("{at_most}{:.2}", usd.dollars()))
    };
    let hour = hour(view);
    vec![
        view.id.clone(),
        view.instance_type.clone(),
        view.region.to_string(),
        view.tags.job.to_string(),
        span(age),
        ends,
        usd(hour.map(UsdPerHour::per_hour)),
        usd(hour.map(|hour| hour.cost_of(age))),
    ]
}

/// Ends the named machines, or none when one of them may be needed.
///
/// # Errors
/// Fails when one is missing, its job is known or unreadable, or the user declines.
pub async fn end_named(
    args: &sweep::Args,
    context: &Context,
    store: &Store,
    controller: &Controller,
    mut found: Found,
) -> Result<ExitCode, Fault> {
    let is_named = |judged: &Judged| args.machine.contains(&judged.view.id);
    if let Some(missing) =
        args.machine.iter().find(|id| !found.machines.iter().any(|judged| judged.view.id == **id))
    {
        return Err(not_seen(context, missing, &found));
    }
    found.machines.retain(is_named);
    found.residue.clear();
    if let Some(fault) = found.machines.iter().find_map(refused) {
        return Err(fault);
    }
    let (at_stake, mut swept) = (AtStake::of(context, store, &found).await, Swept::default());
    sweep::show_found(context, &found, &at_stake);
    let code = end_those(args, context, controller, &found, &mut swept).await;
    swept.tell(context, &found, &at_stake);
    code
}

async fn end_those(
    args: &sweep::Args,
    context: &Context,
    controller: &Controller,
    found: &Found,
    swept: &mut Swept,
) -> Result<ExitCode, Fault> {
    for gone in found.machines.iter().filter(|judged| !is_stray(judged) && !is_orphan(judged)) {
        context
            .printer
            .note(format!("{} is {}: nothing of it is left to end", gone.view.id, gone.view.state));
    }
    let strays = found.machines.iter().filter(|judged| is_stray(judged));
    let ends: Vec<&Judged> =
        strays.chain(found.machines.iter().filter(|judged| is_orphan(judged))).collect();
    if args.dry_run {
        let would = if ends.is_empty() {
            String::new()
        } else {
            format!("; without `--dry-run` {}", will_do(&ends))
        };
        context.printer.note(format!("nothing was done{would}"));
    }
    if args.dry_run || ends.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    confirm(context, &will_do(&ends), args.yes, "nothing was ended: what is listed bills on")?;
    swept.end(context, controller, &ends).await;
    Ok(if swept.is_whole() { ExitCode::SUCCESS } else { ExitCode::UNREACHABLE })
}

fn will_do(ends: &[&Judged]) -> String {
    let all: Vec<&str> = ends.iter().map(|judged| judged.view.id.as_str()).collect();
    let disks = if all.len() == 1 { "its disk" } else { "their disks" };
    let mut what = format!("this ends {} for good, with {disks}", all.join(", "));
    if ends.iter().any(|judged| is_orphan(judged)) {
        what.push_str("; where its job keeps the disk, it is stopped");
    }
    if ends.iter().any(|judged| is_stray(judged)) {
        what.push_str(
            "; where another job root of yours knows its job, that loses what it has not saved",
        );
    }
    what
}

/// Why a machine must not end by its id alone. `None`: it may, or it has ended.
fn refused(judged: &Judged) -> Option<Fault> {
    let (id, job) = (&judged.view.id, &judged.view.tags.job);
    match &judged.verdict {
        OrphanVerdict::Stray { .. } | OrphanVerdict::Orphan { .. } => None,
        OrphanVerdict::Keep { .. }
            if matches!(
                judged.view.state,
                InstanceState::ShuttingDown | InstanceState::Terminated
            ) =>
        {
            None
        }
        OrphanVerdict::Keep { why } => Some(
            Fault::new(
                ExitCode::REFUSED,
                format!("{id} is the machine of job `{job}`, which is in this job root: {why}"),
            )
            .meaning("nothing was ended")
            .hint(format!(
                "`lamp stop {job}` saves and ends it, `lamp cancel {job}` ends it at once"
            )),
        ),
        OrphanVerdict::Unknown { why } => Some(
            Fault::new(
                ExitCode::UNREACHABLE,
                format!("whether job `{job}` needs {id} is not known: {why}"),
            )
            .meaning("nothing was ended")
            .hint("`lamp doctor` looks at the way to the job root; --job-root names another"),
        ),
    }
}

fn not_seen(context: &Context, id: &str, found: &Found) -> Fault {
    let owner = &context.user.owner;
    let fault = match found.unknown.first() {
        None => Fault::new(
            ExitCode::NOT_FOUND,
            format!("no machine `{id}` with the owner `{owner}` is in any region"),
        ),
        Some((place, why)) => Fault::new(
            ExitCode::UNREACHABLE,
            format!("no machine `{id}` of yours was seen, and {place} is unknown: {why}"),
        ),
    };
    fault
        .meaning("nothing was ended")
        .hint("`lamp sweep --dry-run` lists those of yours, `lamp sweep --foreign` those of nobody")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::wrap::columns;

    #[test]
    fn a_terminal_of_80_columns_holds_what_nobody_knows_and_no_id_is_cut() {
        let cells = [
            "i-0123456789abcdef0",
            "g4dn.12xlarge",
            "ap-southeast-2",
            "llama-fine-tune-7f3k2q",
            "3h 20m",
            "12d 3h",
            "<12.24",
            "<12345.67",
        ];
        let rows = [cells.map(str::to_owned).to_vec()];
        let text = table(Some(80), &rows);
        assert!(
            text.lines().all(|line| columns(line) <= 80)
                && text.contains(cells[0])
                && text.contains(cells[5]),
            "{text}"
        );
        assert!(table(None, &rows).contains(cells[3]), "what is piped is whole");
    }
}
