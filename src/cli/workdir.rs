//! What a job would ship, and everything that is wrong with it: the step between a spec and a submitted job.
//!
//! `lamp check` prints it; `lamp run` and `lamp rehearse` call [`JobArgs::prepare`], which refuses on errors. What must
//! never live here: the walk or the scan themselves (`wire` hands them in).

use std::path::{Path, PathBuf};

use super::flags::JobArgs;
use super::{Context, ExitCode, Fault, outputs};
use crate::config::{self, Loaded};
use crate::job::{Command, Finding, Severity};
use crate::wire::{self, PackError, PackKind, Survey};

/// A job without errors, and the files that ship with it.
pub struct Prepared {
    pub loaded: Loaded,
    pub survey: Survey,
}

/// A job as far as it could be read.
pub struct Examined {
    pub loaded: Loaded,
    pub survey: Survey,
    /// All of them: of the spec, of the workdir, of secrets.
    pub findings: Vec<Finding>,
}

impl JobArgs {
    /// Reads the job and looks through its workdir; warnings go to stderr, errors are the fault.
    ///
    /// # Errors
    /// The job has errors, or its workdir holds what must not ship.
    pub fn prepare(&self, context: &Context) -> Result<Prepared, Fault> {
        let Examined { loaded, survey, findings } = self.examine(context)?;
        let file = shown_file(&loaded, context);
        let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error).peekable();
        if errors.peek().is_none() {
            context.printer.findings(Some(&file), &findings);
            return Ok(Prepared { loaded, survey });
        }
        let only_secrets = errors.all(|finding| finding.rule.is_some());
        let fault = if only_secrets {
            let what = format!("the workdir of `{file}` holds what looks like secrets");
            Fault::new(ExitCode::REFUSED, what).hint("if they are meant to ship, acknowledge each with `--allow-secret PATH:RULE`")
        } else {
            Fault::new(ExitCode::FINDINGS, format!("`{file}` cannot run"))
        };
        Err(fault.meaning("nothing was started, and nothing bills").findings(file, findings))
    }

    /// Everything that is to be known about the job before it is submitted.
    ///
    /// # Errors
    /// The spec itself has errors, or the workdir cannot be read.
    pub fn examine(&self, context: &Context) -> Result<Examined, Fault> {
        let loaded = self.load(context)?;
        let checkpoints = loaded.spec.checkpoint.iter().map(|checkpoint| PathBuf::from(&checkpoint.path));
        // What earlier runs brought home stays at home.
        let never: Vec<PathBuf> = checkpoints.chain([PathBuf::from(outputs::FOLDER)]).collect();
        let survey = wire::survey_workdir(&loaded.workdir, &never, loaded.workdir_bytes_max)?;
        let mut findings = loaded.findings.clone();
        // That our own folder stays at home surprises nobody.
        let ours = format!("`{}`", outputs::FOLDER);
        findings.extend(survey.findings.iter().filter(|finding| !finding.message.starts_with(&ours)).cloned());
        findings.extend(command_that_does_not_ship(&loaded, &survey));
        // A workdir that is far too large is not read as well: its findings say what to ignore first.
        if survey.bytes <= loaded.workdir_bytes_max {
            findings.extend(secrets(&loaded, &survey)?);
        }
        Ok(Examined { loaded, survey, findings })
    }
}

pub fn shown_file(loaded: &Loaded, context: &Context) -> String {
    loaded.file.as_deref().map_or_else(|| "the command line".to_owned(), |path| config::shown(path, &context.current_dir))
}

fn secrets(loaded: &Loaded, survey: &Survey) -> Result<Vec<Finding>, PackError> {
    let found = wire::scan_for_secrets(survey)?;
    let refused = found.into_iter().filter(|secret| !wire::is_secret_allowed(secret, &loaded.secrets_allowed));
    Ok(refused
        .map(|secret| {
            let message = format!("looks like {} (rule {})", secret.what, secret.rule);
            let hint = format!("remove it, ignore the file in .lampignore, or allow it with `--allow-secret {}:{}`", secret.path, secret.rule);
            let line = (secret.line > 0).then_some(secret.line);
            Finding::error("", message).hint(hint).in_file(secret.path, secret.rule).at_line(line)
        })
        .collect())
}

/// The script or program is in the workdir, but an ignore file keeps it at home.
fn command_that_does_not_ship(loaded: &Loaded, survey: &Survey) -> Option<Finding> {
    let Command::Args(args) = &loaded.spec.command else { return None };
    let is_relative = |word: &&String| !word.starts_with(['/', '-']) && !word.is_empty();
    let named = args.iter().take(2).filter(is_relative).find(|word| loaded.workdir.join(word).is_file())?;
    let plain: PathBuf = Path::new(named).components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
    if survey.entries.iter().any(|entry| entry.path == plain && entry.kind != PackKind::Folder) {
        return None;
    }
    let message = format!("`{named}` is in the workdir but does not ship");
    Some(match loaded.spec.setup {
        Some(_) => Finding::warning("command", format!("{message}; `setup` has to bring it")),
        None => Finding::error("command", message).hint("an ignore file or a virtual environment keeps it at home; add `!PATH` to .lampignore"),
    })
}

impl From<PackError> for Fault {
    fn from(error: PackError) -> Self {
        let fault = Fault::from_error(ExitCode::UNREACHABLE, &error);
        match error {
            PackError::Changed { .. } => fault.hint("run it again when nothing writes to the workdir, or ignore the file in .lampignore"),
            _ => fault,
        }
    }
}
