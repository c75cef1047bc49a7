//! Begins a tuning, or finds the one that is there.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::app::record_errors::record_fault;
use crate::app::{ExitCode, Fault};
use crate::job::{JobId, RECORD_FORMAT, ResolvedSpec, Spec, TuneSpec, Tuning, seat_leader};
use crate::jobdir::TuningDir;
use crate::market::CloudKind;
use crate::wire::StoreHandle;

/// The name of the tuning of a job.
pub fn tuning_name(job: &str) -> String {
    JobId::slug(job)
}

/// The record of a new tuning. `job`: the job of a trial, without its values. `here`: this
/// workstation.
pub fn tuning_of(job: &ResolvedSpec, tune: &TuneSpec, here: &str) -> Tuning {
    Tuning {
        format: RECORD_FORMAT,
        name: tuning_name(&job.spec.name),
        created: job.created,
        written_by: job.written_by.clone(),
        owner: job.owner.clone().unwrap_or_default(),
        tune: tune.clone(),
        seed: seed(&job.spec.name),
        spec: spec_without_id(job),
        code: job.code.clone(),
        origins: job.origins.clone(),
        here: (job.spec.machine.cloud == CloudKind::Local).then(|| here.to_owned()),
    }
}

/// The seats of a gang follow from its job. A new id would make the same job file another tuning.
fn spec_without_id(job: &ResolvedSpec) -> Spec {
    let mut job = job.clone();
    job.job = JobId::from_name(&job.spec.name, [0; 6]);
    seat_leader(&mut job);
    job.spec
}

/// The same name gives the same random choices.
fn seed(name: &str) -> u64 {
    let hash = Sha256::digest(name.as_bytes());
    // 53 bits: Python and JSON readers keep them exactly.
    hash.iter().take(6).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// How a tuning that is there already is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TuningAgain {
    /// With the same settings, it goes on.
    #[default]
    GoesOn,
    /// Its name is taken.
    Refused,
}

/// Writes the tuning, code first.
///
/// # Errors
/// Fails when another tuning has this name, or the job root refuses.
pub async fn begin(
    dir: &TuningDir,
    tuning: &Tuning,
    archive: Option<&Path>,
    again: TuningAgain,
) -> Result<Tuning, Fault> {
    if let (Some(code), Some(path)) = (&tuning.code, archive) {
        dir.put_code(&code.sha256, path).await.map_err(|error| record_fault(&error))?;
    }
    let there = dir.create(tuning).await.map_err(|error| record_fault(&error))?;
    let name = &tuning.name;
    // After a lost reply, our own record is there.
    if again == TuningAgain::Refused && there != *tuning {
        return Err(name_is_taken(&tuning.spec.name));
    }
    if is_same(&there, tuning) {
        return Ok(there);
    }
    let other = if has_same_search(&there, tuning) { "files in the workdir" } else { "settings" };
    Err(Fault::new(ExitCode::REFUSED, format!("a tuning `{name}` with other {other} is there"))
        .meaning("nothing was started or billed")
        .hint(format!(
            "`lamp tune drive {name}` goes on with it as it was; `--name OTHER` begins another"
        )))
}

/// # Errors
/// Fails when a tuning has this name, or the job root does not answer.
pub async fn refuse_taken(store: &StoreHandle, job: &str) -> Result<(), Fault> {
    let dir = TuningDir::new(store.clone(), &tuning_name(job));
    match dir.record().await.map_err(|error| record_fault(&error))? {
        Some(_) => Err(name_is_taken(job)),
        None => Ok(()),
    }
}

fn name_is_taken(job: &str) -> Fault {
    Fault::new(
        ExitCode::REFUSED,
        format!("a job `{job}` exists: the tuning `{}`", tuning_name(job)),
    )
    .meaning("nothing was started or billed")
    .hint(format!("take another name, as `{job}_$(date +%Y%m%d_%H%M%S)`"))
}

/// The same search over the same work.
fn is_same(there: &Tuning, new: &Tuning) -> bool {
    let tree = |tuning: &Tuning| {
        tuning.code.as_ref().map(|code| code.tree.clone().unwrap_or_else(|| code.sha256.clone()))
    };
    has_same_search(there, new) && tree(there) == tree(new)
}

fn has_same_search(there: &Tuning, new: &Tuning) -> bool {
    there.tune == new.tune && there.spec == new.spec && there.owner == new.owner
}
