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

use super::found_table;
use super::stop_cost::AtStake;
use super::sweep_report::Swept;
use crate::app::overview::found_machine::{is_orphan, is_stray};
use crate::cli::shell::confirm::confirm;
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Controller, Judged, SweepFindings};
use crate::instance::InstanceState;
use crate::policy::lifecycle::orphan::OrphanVerdict;
use crate::wire::StoreHandle;

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

pub fn hint(context: &Context, found: &SweepFindings) {
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

/// `lamp sweep --machine ID`.
pub struct NamedMachines<'a> {
    pub machines: &'a [String],
    pub dry_run: bool,
    pub yes: bool,
}

/// Ends the named machines, or none when one of them may be needed.
///
/// # Errors
/// Fails when one is missing, its job is known or unreadable, or the user declines.
pub async fn end_named(
    named: &NamedMachines<'_>,
    context: &Context,
    store: &StoreHandle,
    controller: &Controller,
    mut found: SweepFindings,
) -> Result<ExitCode, Fault> {
    let is_named = |judged: &Judged| named.machines.contains(&judged.view.id);
    if let Some(missing) =
        named.machines.iter().find(|id| !found.machines.iter().any(|judged| judged.view.id == **id))
    {
        return Err(not_seen(context, missing, &found));
    }
    found.machines.retain(is_named);
    found.residue.clear();
    if let Some(fault) = found.machines.iter().find_map(refused) {
        return Err(fault);
    }
    let (at_stake, mut swept) = (AtStake::of(context, store, &found).await, Swept::default());
    found_table::show(context, &found, &at_stake);
    let code = end_those(named, context, controller, &found, &mut swept).await;
    swept.tell(context, &found, &at_stake);
    code
}

async fn end_those(
    named: &NamedMachines<'_>,
    context: &Context,
    controller: &Controller,
    found: &SweepFindings,
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
    if named.dry_run {
        let would = if ends.is_empty() {
            String::new()
        } else {
            format!("; without `--dry-run` {}", will_do(&ends))
        };
        context.printer.note(format!("nothing was done{would}"));
    }
    if named.dry_run || ends.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    confirm(context, &will_do(&ends), named.yes, "nothing was ended: what is listed bills on")?;
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

fn not_seen(context: &Context, id: &str, found: &SweepFindings) -> Fault {
    let owner = &context.config.user.owner;
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
        .hint("`lamp sweep --dry-run` lists your machines, `lamp sweep --foreign` the others")
}
