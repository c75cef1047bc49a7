//! Cloud resources that ended jobs still keep, and their monthly cost, from the records alone.

use std::sync::Arc;

use serde::Serialize;

use crate::controller::continuation_of;
use crate::job::{LeavingFate, Receipt};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Region, Usd};

/// One kept thing. The field names are an interface (docs/cli-json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct KeptThing {
    pub kind: String,
    pub id: String,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub region: Region,
    pub detail: String,
    pub usd_per_month: Usd,
}

pub fn kept_in(receipt: &Receipt) -> Usd {
    receipt
        .left
        .iter()
        .filter(|left| left.fate == LeavingFate::Kept)
        .map(|left| left.usd_per_month)
        .sum()
}

/// Nothing once it was given up, or another job continued it. Only a job that kept something costs
/// more reads.
///
/// # Errors
/// Fails when the store is unreachable.
pub async fn kept_of(dir: &JobDir, receipt: &Receipt) -> Result<Vec<KeptThing>, JobDirError> {
    let kept = receipt.left.iter().filter(|left| left.fate == LeavingFate::Kept);
    let things: Vec<KeptThing> = kept
        .map(|left| KeptThing {
            kind: left.kind.clone(),
            id: left.id.clone(),
            region: left.region.clone(),
            detail: left.detail.clone(),
            usd_per_month: left.usd_per_month,
        })
        .collect();
    if things.is_empty() {
        return Ok(things);
    }
    let next = JobDir::new(Arc::clone(dir.store()), continuation_of(dir.job(), &receipt.name));
    let (given_up, spec, ended) = tokio::try_join!(dir.given_up(), next.spec(), next.receipt())?;
    // A continuation takes the machine over. If it ended before it used the machine, the machine is
    // still kept here.
    let taken = spec.and_then(|next| next.continues).and_then(|from| from.machine);
    let went_on = taken.is_some_and(|machine| {
        ended.is_none_or(|ended| {
            ended
                .attempts
                .iter()
                .any(|attempt| attempt.instance.as_ref() == Some(&machine.instance))
        })
    });
    Ok(if given_up.is_some() || went_on { Vec::new() } else { things })
}

pub fn sentence(job: &str, things: &[KeptThing]) -> String {
    let cost: Usd = things.iter().map(|thing| thing.usd_per_month).sum();
    let ids: Vec<String> = things
        .iter()
        .map(|thing| format!("{} {} in {} ({})", thing.kind, thing.id, thing.region, thing.detail))
        .collect();
    match ids.join(", ") {
        ids if cost > Usd::ZERO => {
            format!("{job} keeps {ids}: {cost} a month, until `lamp cancel {job}` gives it up")
        }
        ids => format!("{job} keeps {ids}, until `lamp cancel {job}` gives it up"),
    }
}

pub fn hint(job: &str) -> String {
    format!("`lamp start {job}` goes on with it, `lamp cancel {job}` gives it up with its disk")
}

/// `, $8.00 a month`; empty for what costs nothing.
pub fn a_month(usd: Usd) -> String {
    if usd > Usd::ZERO { format!(", {usd} a month") } else { String::new() }
}
