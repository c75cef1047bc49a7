//! `lamp stop` and `lamp cancel` of a job whose spec is gone: its agent still reads requests.

use serde_json::{Value, json};

use super::missing_spec::SpecGone;
use super::session::Session;
use super::text::verb;
use super::{ExitCode, Fault};
use super::{find_job, record_errors};
use crate::job::Wish;
use crate::jobdir::JobDir;

/// `lamp stop` and `lamp cancel` of such a job; `None`: it has a spec or no attempt.
///
/// # Errors
/// Fails when its attempt is over, the user declines to end another owner's machine, or the job
/// root is unreachable.
pub async fn end(
    session: &Session<'_>,
    dir: &JobDir,
    wish: Wish,
    wait: bool,
) -> Result<Option<(ExitCode, Value)>, Fault> {
    let fault = |error| record_errors::record_fault(&error);
    if !matches!(dir.spec().await, Ok(None)) {
        return Ok(None);
    }
    let Some(gone) = SpecGone::of(dir).await.map_err(fault)? else { return Ok(None) };
    if !gone.may_run() {
        return Err(gone.fault(dir));
    }
    let workstation = session.workstation;
    session.confirm_owner(dir.job(), find_job::owner_of(dir).await.ok().flatten())?;
    let verb = verb(wish);
    let before =
        dir.requests().await.map_err(fault)?.into_iter().rev().find(|request| request.wish == wish);
    let request = match before {
        Some(request) => request,
        None => {
            dir.add_request(wish, &workstation.name, session.clock.now()).await.map_err(fault)?
        }
    };
    session.warn(format!("{}: {}", gone.what(dir), gone.meaning()));
    session
        .note(format!("asked {} to {verb}; its agent reads that as long as it lives", dir.job()));
    session.hint(format!("`lamp stop {}` again says whether it is over; if its machine runs on, `lamp sweep` names it, and how to end it", dir.job()));
    // No controller settles it, so its end cannot be confirmed.
    let code = if wait { ExitCode::UNREACHABLE } else { ExitCode::SUCCESS };
    Ok(Some((code, json!({ "job": dir.job(), "request": request.number, "wish": wish }))))
}
