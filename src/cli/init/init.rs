//! `lamp init`: writes a commented job file for an existing script.
//!
//! It looks, guesses, and writes one new file, never over an existing one. Then it reads the file
//! back as `lamp check` does, so that a faulty starter is noticed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;

use super::project_detection::{DetectedProject, Launcher, look};
use super::starter_file::starter;
use crate::cli::output::printer::shell_word;
use crate::cli::{Context, ExitCode, Fault, Format};
use crate::config::{self, CommandWord, JOB_FILE, JobFile};
use crate::job::Command;

/// Write a commented job file for the script in a folder
#[derive(Clone, Debug, ClapArgs)]
#[command(subcommand_precedence_over_arg = true)]
pub struct Args {
    /// Or an account made ready
    #[cfg(feature = "aws")]
    #[command(subcommand)]
    pub what: Option<InitTarget>,
    /// The folder with the script
    #[arg(default_value = ".", value_name = "DIR")]
    pub folder: PathBuf,
    /// The script to run, relative to the folder [default: train.py, main.py, or the only script
    /// there]
    #[arg(long, value_name = "FILE")]
    pub script: Option<String>,
}

#[cfg(feature = "aws")]
#[derive(Clone, Debug, clap::Subcommand)]
pub enum InitTarget {
    Aws(crate::cli::account::init_aws::Args),
}

/// # Errors
/// Fails when the folder is missing or not writable, the named script is missing, or a job file
/// exists.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let folder = context.current_dir.join(&args.folder);
    if !folder.is_dir() {
        let shown = args.folder.display().to_string();
        if folder.is_file() {
            let parent = args
                .folder
                .parent()
                .map_or_else(String::new, |parent| parent.display().to_string());
            let place =
                if parent.is_empty() { String::new() } else { format!(" {}", shell_word(&parent)) };
            let script = args
                .folder
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let is_script = [".py", ".sh"].iter().any(|end| script.ends_with(end));
            let flag = if is_script {
                format!(" --script {}", shell_word(&script))
            } else {
                String::new()
            };
            let fault = Fault::new(
                ExitCode::USAGE,
                format!("`{shown}` is a file, and `lamp init` takes a folder"),
            )
            .meaning("nothing was written");
            return Err(
                fault.hint(format!("`lamp init{place}{flag}` writes `{JOB_FILE}` beside it"))
            );
        }
        let fault = Fault::new(ExitCode::NOT_FOUND, format!("no folder `{shown}`"))
            .meaning("nothing was written");
        return Err(fault.hint(format!(
            "`mkdir -p {}` makes it; without a folder, `lamp init` writes into this one",
            shell_word(&shown)
        )));
    }
    if let Some(script) = &args.script
        && !folder.join(script).is_file()
    {
        return Err(Fault::new(
            ExitCode::NOT_FOUND,
            format!("no script `{script}` in `{}`", args.folder.display()),
        ));
    }
    let found = look(&folder, args.script.clone());
    let path = folder.join(JOB_FILE);
    let shown = config::shown(&path, &context.current_dir);
    let shown = shown.strip_prefix("./").unwrap_or(&shown).to_owned();
    write_new(&path, &starter(&found, &folder)).map_err(|error| refused(&error, &shown))?;
    // A placeholder command is meant to be a finding; the rest must pass `lamp check`.
    let command = Command::Shell("true".to_owned());
    let flags = JobFile {
        command: found.is_placeholder().then_some(CommandWord(command)),
        ..JobFile::default()
    };
    let inputs = context.job_inputs(&flags);
    let loaded = config::load_job(Some(&path), &inputs)?;
    tell(context, &shown, &found, &loaded.spec.name);
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Fails when the file exists, or cannot be written.
pub fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn refused(error: &io::Error, shown: &str) -> Fault {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let fault = Fault::new(ExitCode::REFUSED, format!("`{shown}` is already there"));
        let shown = shell_word(shown);
        return fault.meaning("nothing was written").hint(format!(
            "`lamp check {shown}` says what is wrong with it; once it is deleted or has another name (`mv {shown} old-{JOB_FILE}`), `lamp init` writes a new one"
        ));
    }
    Fault::new(ExitCode::UNREACHABLE, format!("cannot write `{shown}`")).because(error)
}

fn tell(context: &Context, shown: &str, found: &DetectedProject, name: &str) {
    let word = shell_word(shown);
    let mut next = ["check", "rehearse", "run"].map(|verb| format!("lamp {verb} {word}")).to_vec();
    if found.is_placeholder() {
        next.insert(0, format!("put your command into {shown}"));
    }
    if context.printer.format() != Format::Text {
        context
            .printer
            .json(&serde_json::json!({"file": shown, "name": name, "found": found, "next": next}));
        return;
    }
    let printer = &context.printer;
    printer.line(format!("wrote {shown}"));
    match (&found.script, &found.program) {
        (Some(script), _) if found.launcher != Launcher::None => {
            printer.note(format!("it runs `{script}` with one process for each GPU"))
        }
        (Some(runs), _) | (None, Some(runs)) => printer.note(format!("it runs `{runs}`")),
        (None, None) => {
            printer.warn("no script was recognised: the job is refused until your command is in it")
        }
    }
    match (&found.checkpoints, found.signal) {
        (Some(folder), Some(signal)) => printer
            .note(format!("checkpoints are expected in `{folder}`, and {signal} asks for one")),
        (Some(folder), None) => printer.note(format!("checkpoints are expected in `{folder}`")),
        (None, _) => {
            printer.note("no checkpoint folder was recognised: an interruption would lose all work")
        }
    }
    if let Some(doubt) = &found.saves.doubt {
        printer.note(format!("not certain: {doubt}"));
    }
    if !found.asks.is_empty() {
        printer.note(format!(
            "not certain: the script may need {} in its command",
            found.asks.join(" ")
        ));
    }
    let first = if found.is_placeholder() { "put your command into it, then " } else { "" };
    let shown = shell_word(shown);
    printer.note(format!(
        "next: {first}`lamp check {shown}`, `lamp rehearse {shown}`, then `lamp run {shown}`"
    ));
}
