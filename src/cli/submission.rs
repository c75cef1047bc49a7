//! From a loaded job to a submitted one: what ships, what must not, what it can cost.

use std::path::{Path, PathBuf};

use super::status::local_time;
use super::{Context, ExitCode, Fault, job_root};
use crate::config::{Loaded, shown};
use crate::controller::{SubmitError, submit};
use crate::job::{CodeArchive, Finding, JobId, Plan, RECORD_FORMAT, ResolvedSpec, Severity};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::Usd;
use crate::wire::{self, PackError, Store, Survey};

/// What will ship; judged, so that what it holds may ship.
///
/// # Errors
/// The workdir cannot be read, is too large, or holds something that looks like a secret.
pub fn survey(context: &Context, loaded: &Loaded) -> Result<Survey, Fault> {
    let checkpoints = loaded.spec.checkpoint.iter().map(|checkpoint| PathBuf::from(&checkpoint.path));
    let never: Vec<PathBuf> = checkpoints.chain([PathBuf::from(super::outputs::FOLDER)]).collect();
    let survey = wire::survey_workdir(&loaded.workdir, &never, loaded.workdir_bytes_max).map_err(|error| pack_fault(&error))?;
    let folder = shown(&loaded.workdir, &context.current_dir);
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) = survey.findings.iter().cloned().partition(|found| found.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(Fault::new(ExitCode::FINDINGS, format!("the workdir `{folder}` cannot ship"))
            .findings(folder, errors)
            .meaning("nothing was started, and nothing bills"));
    }
    context.printer.findings(Some(&folder), &warnings);
    refuse_secrets(&survey, loaded, &folder)?;
    Ok(survey)
}

fn refuse_secrets(survey: &Survey, loaded: &Loaded, folder: &str) -> Result<(), Fault> {
    let found = wire::scan_for_secrets(survey).map_err(|error| pack_fault(&error))?;
    let refused: Vec<Finding> = found
        .iter()
        .filter(|secret| !wire::is_secret_allowed(secret, &loaded.secrets_allowed))
        .map(|secret| {
            Finding::error(&format!("{}:{}", secret.path, secret.line), format!("looks like {} (rule {})", secret.what, secret.rule))
                .hint(format!("if it may ship: --allow-secret {}:{}", secret.path, secret.rule))
        })
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(Fault::new(ExitCode::REFUSED, format!("{} in the workdir look like secrets", refused.len()))
        .findings(folder, refused)
        .meaning("nothing was packed, nothing was started")
        .hint("name such files in .lampignore, or hand the value over with --env"))
}

/// Packs, uploads and writes the spec; the job exists when this returns.
///
/// # Errors
/// The workdir cannot be packed, or the job root refuses.
pub async fn make(context: &Context, store: &Store, loaded: &Loaded, survey: &Survey) -> Result<JobDir, Fault> {
    let job = JobId::from_name(&loaded.spec.name, wire::random_letters());
    let scratch = Scratch(
        job_root::workstation(context)?
            .scratch_file(&format!("{job}.tar.zst"))
            .map_err(|error| Fault::new(ExitCode::UNREACHABLE, "cannot write in the state folder").because(&error))?,
    );
    let code = wire::pack_workdir(survey, &scratch.0).map_err(|error| pack_fault(&error))?;
    context.printer.note(shipped_text(survey, &code, &shown(&loaded.workdir, &context.current_dir)));
    let spec = ResolvedSpec {
        format: RECORD_FORMAT,
        job,
        created: context.clock.now(),
        written_by: format!("lamp {}", env!("CARGO_PKG_VERSION")),
        spec: loaded.spec.clone(),
        code: Some(code),
        origins: loaded.origins.clone(),
    };
    submit(store, &spec, Some(&scratch.0)).await.map_err(|error| submit_fault(&error))
}

fn shipped_text(survey: &Survey, code: &CodeArchive, folder: &str) -> String {
    format!("packed {} files of {folder}: {}, {} compressed", survey.files, wire::show_bytes(survey.bytes), wire::show_bytes(code.packed_bytes))
}

/// What a plan says before anything is started.
pub fn plan_text(plan: &Plan) -> Vec<String> {
    let offer = &plan.offer;
    let most = match plan.most_usd {
        Some(most) if most == Usd::ZERO => "costs nothing".to_owned(),
        Some(most) => format!("costs at most {most}"),
        None => "nothing bounds what it can cost; `limits.max_runtime` or `limits.budget` would".to_owned(),
    };
    let mut lines = vec![format!("{} in {}, {}, {}: {most}", offer.instance_type, offer.zone, offer.market, offer.price)];
    lines.extend(plan.reasons.iter().skip(1).map(|reason| format!("because it is {reason}").replace("it is this", "this")));
    lines.extend(plan.kill_at.map(|at| format!("the machine ends at {} at the latest", local_time(at))));
    lines.extend(plan.rejected.iter().map(|no| format!("not {} in {}: {}", no.offer.instance_type, no.offer.zone, no.because)));
    lines
}

/// Removes the packed workdir when the call ends, however it ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        wire::remove_scratch(&self.0);
    }
}

fn pack_fault(error: &PackError) -> Fault {
    Fault::from_error(ExitCode::UNREACHABLE, error).meaning("nothing was started, and nothing bills")
}

fn submit_fault(error: &SubmitError) -> Fault {
    let fault = match error {
        SubmitError::Store(_) | SubmitError::Record(JobDirError::Store(_)) => Fault::from_error(ExitCode::UNREACHABLE, error),
        SubmitError::Record(error) => job_root::record_fault(error),
        SubmitError::Exists(_) => Fault::from_error(ExitCode::REFUSED, error),
        SubmitError::Changed => Fault::from_error(ExitCode::REFUSED, error).hint("run it again"),
    };
    fault.meaning("no job was made: nothing was started, and nothing bills")
}

/// The folder of a path as one would type it.
pub fn display(path: &Path, context: &Context) -> String {
    shown(path, &context.current_dir)
}
