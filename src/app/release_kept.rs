//! `lamp cancel` (and `stop`) of an ended job: releases the machine that it kept, or reports it.
//!
//! Not here: whose machine it is (`controller::settle::release_kept`).

use serde_json::{Value, json};

use super::drive;
use super::find_job;
use super::record_errors;
use super::session::Session;
use super::text::verb;
use super::view::kept_machines;
use super::{ExitCode, Fault};
use crate::controller::continuation_of;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{LeavingFate, Receipt, Wish};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{CloudKind, Usd};
use crate::wire::StoreHandle;

/// Returns the exit code, and a document for programs.
///
/// # Errors
/// Fails when nothing is kept, the wish is to stop, the user declines, or the cloud does not
/// answer.
pub async fn run(
    session: &Session<'_>,
    dir: &JobDir,
    ended: &Receipt,
    wish: Wish,
) -> Result<(ExitCode, Value), Fault> {
    let store = session.store;
    let controller = drive::controller(session.workstation, store)?;
    let fault = |error| record_errors::record_fault(&error);
    unless_it_goes_on(store, dir, ended, wish).await?;
    if let Some(why) = controller.kept_elsewhere(dir).await.map_err(fault)? {
        return Err(nothing(dir, ended, Some(&why)).await.map_err(fault)?);
    }
    let found = controller.kept_machine(dir).await.map_err(|error| {
        Fault::from_error(ExitCode::UNREACHABLE, &error)
            .meaning(format!("job `{}` has ended; whether its machine is still there, and its disk bills, is not known", dir.job()))
    })?;
    let Some(view) = found else {
        // The machine was ended elsewhere, so record that. A place that does not answer may still
        // have it.
        let _seen = controller.see_gone(dir, ended).await;
        return Err(nothing(dir, ended, None).await.map_err(fault)?);
    };
    let (what, cost) = (what_it_is(&view, ended), kept_machines::kept_in(ended));
    if wish == Wish::Stop {
        return Err(find_job::has_ended(dir, ended)
            .meaning(format!("nothing was changed: {what}"))
            .hint(format!(
                "`lamp cancel {0}` gives it up for good, `lamp start {0}` goes on with it",
                dir.job()
            )));
    }
    let machine = view.machine();
    session.confirm(
        &format!(
            "job `{}` has ended, and {what}: this ends it for good, with all that is on its disk",
            dir.job()
        ),
        // A folder on this workstation bills nothing.
        if machine.cloud == CloudKind::Local {
            "nothing was ended: what is kept stays"
        } else {
            "nothing was ended: what is kept bills on"
        },
    )?;
    // The user may have taken long to answer.
    unless_it_goes_on(store, dir, ended, wish).await?;
    let gave_up = controller.give_up(dir, &machine).await.map_err(|error| {
        Fault::from_error(ExitCode::UNREACHABLE, &error)
            .meaning(format!("{machine} may be there still, and its disk bills"))
            .hint(format!("`lamp cancel {}` tries again", dir.job()))
    })?;
    let document = json!({
        "job": dir.job(), "wish": wish, "instance": machine.id, "region": machine.region, "gone": gave_up.is_gone,
        "usd_per_month": cost, "left": gave_up.left, "left_unasked": gave_up.left_unasked,
    });
    if !gave_up.is_gone {
        session.warn(format!(
            "{machine} was asked to end, and the cloud does not show yet that it is gone"
        ));
        session.hint(format!("`lamp cancel {}` looks again", dir.job()));
        return Ok((ExitCode::UNREACHABLE, document));
    }
    let saved = if cost > Usd::ZERO { format!("; {cost} a month less") } else { String::new() };
    session.note(format!("{machine} is gone, with its disk{saved}"));
    for left in &gave_up.left {
        match left.fate {
            LeavingFate::Removed => session.note(format!("removed {} {}", left.kind, left.id)),
            LeavingFate::Kept | LeavingFate::Left => {
                session.warn(format!(
                    "{} {} is still there: {}, {} a month",
                    left.kind, left.id, left.detail, left.usd_per_month
                ));
                session.hint("`lamp sweep --residue` removes what is ours");
            }
        }
    }
    for region in &gave_up.left_unasked {
        session.warn(format!("what it left in {region} is not known; `lamp sweep` looks again"));
    }
    Ok((ExitCode::SUCCESS, document))
}

fn what_it_is(view: &InstanceView, ended: &Receipt) -> String {
    let cost = kept_machines::kept_in(ended);
    let priced =
        if cost > Usd::ZERO { format!(", and costs {cost} a month") } else { String::new() };
    match view.state {
        InstanceState::Stopped | InstanceState::Stopping => {
            format!("its machine {} is stopped, and kept with its disk{priced}", view.id)
        }
        state => format!("its machine {} is {state}, and bills", view.id),
    }
}

/// # Errors
/// Fails when a later job continues this one: the machine belongs to that job.
async fn unless_it_goes_on(
    store: &StoreHandle,
    dir: &JobDir,
    ended: &Receipt,
    wish: Wish,
) -> Result<(), Fault> {
    let next = continuation_of(dir.job(), &ended.name);
    let next_dir = JobDir::new(store.clone(), next.clone());
    let fault = |error| record_errors::record_fault(&error);
    if next_dir.spec().await.map_err(fault)?.is_none()
        || next_dir.receipt().await.map_err(fault)?.is_some()
    {
        return Ok(());
    }
    let verb = verb(wish);
    Err(find_job::has_ended(dir, ended)
        .meaning(format!("nothing was changed: it went on as job `{next}`"))
        .hint(format!("`lamp {verb} {next}` ends that one")))
}

/// The machine is missing, or cannot be looked at from here. Things that the receipt lists may
/// still exist.
async fn nothing(
    dir: &JobDir,
    ended: &Receipt,
    elsewhere: Option<&str>,
) -> Result<Fault, JobDirError> {
    let (kept, given_up) = (kept_machines::kept_in(ended), dir.given_up().await?.is_some());
    let left: Usd = ended
        .left
        .iter()
        .filter(|left| left.fate == LeavingFate::Left)
        .map(|left| left.usd_per_month)
        .sum();
    let stands = if given_up { left } else { left + kept };
    let fault = find_job::has_ended(dir, ended);
    if stands == Usd::ZERO {
        return Ok(fault.meaning("nothing of it runs, and nothing of it bills"));
    }
    let look = elsewhere.map_or_else(
        || "the cloud shows no machine of it".to_owned(),
        |why| format!("nothing was looked at: {why}"),
    );
    Ok(fault
        .meaning(format!(
            "{look}; by its receipt it left or kept things that cost {stands} a month"
        ))
        .hint(
            "`lamp sweep --residue` shows what is there still, and removes what is ours and unused",
        ))
}
