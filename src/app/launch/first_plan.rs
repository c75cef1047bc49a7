//! The plan of a job's first attempt, or the fault if there is none.

use super::{no_image_hints, no_offer_hints, region_hint};
use crate::app::record_errors;
use crate::app::session::{Session, saying};
use crate::app::text::waits_text;
use crate::app::{ExitCode, Fault};
use crate::controller::{ActError, Controller, Planned};
use crate::job::ResolvedSpec;

/// The reason why the launch would wait, as it follows "waits for": a cheaper machine, or a cap.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn held_back(
    controller: &Controller,
    planned: &Planned,
) -> Result<Option<String>, Fault> {
    if let Some(waits) = &planned.waits {
        return Ok(Some(waits_text(&waits.reason.text, waits.until)));
    }
    let reason = controller
        .cap_on(&planned.plan)
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
    Ok(reason.map(|reason| reason.text))
}

/// The plan of the first attempt if it started now; nothing is written.
///
/// # Errors
/// Fails when no offer fits, or the cloud is unreachable.
pub async fn first(
    session: &Session<'_>,
    controller: &Controller,
    spec: &ResolvedSpec,
) -> Result<Planned, Fault> {
    let asked = format!("asking {} what it sells", spec.spec.machine.cloud);
    let work = controller.first_plan(spec);
    saying(session.clock, session.face, asked, work).await.map_err(|error| {
        let fault = fault(&error).meaning("nothing was started or billed");
        let slip = spec.spec.machine.regions.iter().find_map(|name| region_hint::hint_of(name));
        // An unknown region has no address, so trying again fails the same way.
        match slip.filter(|_| error.is_silence()) {
            Some(slip) => fault.hint(slip),
            None => fault,
        }
    })
}

/// Tells a silent cloud or wrong credentials apart from a job without an offer.
pub fn fault(error: &ActError) -> Fault {
    if error.is_denial() {
        Fault::from_error(ExitCode::UNREACHABLE, error)
            .or_hint("`lamp doctor` says who you are to the cloud, and what is missing")
    } else if error.is_silence() {
        let fault = Fault::from_error(ExitCode::UNREACHABLE, error);
        let slip = region_hint::hint(&fault.sentence());
        fault.or_hint(
            slip.unwrap_or_else(|| "try again; `lamp doctor` looks at the way there".to_owned()),
        )
    } else {
        let fault = Fault::from_error(ExitCode::LAUNCH_FAILED, error);
        if let Some((region, is_published)) = error.missing_image() {
            return fault.hint(no_image_hints::hint(region, is_published));
        }
        let none = match error {
            ActError::NoOffer(none) | ActError::NotReady { none: Some(none), .. } => none,
            _ => return fault,
        };
        let hints = no_offer_hints::hints(none);
        if hints.is_empty() { fault } else { fault.hint(hints.join("; ")) }
    }
}
