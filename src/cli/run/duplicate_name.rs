//! `lamp run` when a job of this name is under way: on a terminal it asks first, elsewhere it
//! warns.
//!
//! A loop over seeds makes many jobs of a name on purpose; a second Enter makes one by mistake.
//! `job_root` says which job a name means.

use crate::app::find_job;
use crate::cli::shell::confirm::{can_ask, says_yes};
use crate::cli::{Context, ExitCode, Fault};
use crate::job::JobId;
use crate::wire::StoreHandle;

const NOTHING: &str = "nothing was started or billed";

/// The unfinished jobs of this name, if the user can be asked; else nothing is read.
pub async fn others(context: &Context, store: &StoreHandle, name: &str, again: bool) -> Vec<JobId> {
    if again || !can_ask(context) {
        return Vec::new();
    }
    find_job::under_way(store, name).await.unwrap_or_default()
}

/// # Errors
/// Fails when the user says no.
pub fn ask(context: &Context, others: &[JobId]) -> Result<(), Fault> {
    let Some(other) = others.first() else { return Ok(()) };
    let more = if others.len() > 1 {
        format!(" and {} more of this name are", others.len() - 1)
    } else {
        " of this name is".to_owned()
    };
    if says_yes(
        context,
        &format!("`{other}`{more} under way already; run one more? [y/N]"),
        NOTHING,
    )? {
        return Ok(());
    }
    Err(Fault::new(ExitCode::REFUSED, format!("`{other}` is under way already"))
        .meaning(NOTHING)
        .hint(format!(
            "`lamp logs -f {other}` follows it; `lamp run --again` runs one more without a question"
        )))
}

/// Warns about a job of this name after the launch, so that the launch does not wait. An
/// unreachable store changes nothing.
pub async fn say(context: &Context, store: &StoreHandle, job: &JobId, asked: &[JobId]) {
    let Ok(others) = find_job::under_way(store, job.name()).await else { return };
    if let Some(other) = others.iter().find(|other| *other != job && !asked.contains(other)) {
        context
            .printer
            .warn(format!("`{other}` of this name is under way already, and this is one more"));
        context.printer.hint(format!("`lamp cancel {job}` ends this one"));
    }
}
