//! `lamp init`: writes a commented job file for an existing script.
//!
//! It looks, guesses, and writes one new file, never over an existing one. Then it reads the file
//! back as `lamp check` does, so that a faulty starter is noticed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde::Serialize;

use super::python_source::Script;
use super::save_detection::{self, Saves};
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
    pub what: Option<What>,
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
pub enum What {
    Aws(crate::cli::account::init_aws::Args),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    pub script: Option<String>,
    /// The only program that `pyproject.toml` installs, if there is no script.
    pub program: Option<String>,
    /// The script starts a process group of PyTorch, so `torchrun` runs it.
    pub distributed: bool,
    pub launcher: Launcher,
    pub requirements: Option<String>,
    /// The Python of an environment in the folder, if no file lists what to install.
    pub venv: Option<String>,
    pub checkpoints: Option<String>,
    pub signal: Option<&'static str>,
    pub saves: Saves,
    pub asks: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Launcher {
    #[default]
    None,
    Torchrun,
    Accelerate,
}

impl Found {
    fn is_placeholder(&self) -> bool {
        self.script.is_none() && self.program.is_none()
    }
}

/// Usual names of training scripts, the best first.
const SCRIPTS: [&str; 7] = [
    "train.py",
    "main.py",
    "run.py",
    "src/train.py",
    "src/main.py",
    "scripts/train.py",
    "train.sh",
];
/// Words in a script for `torchrun`, with one process for each GPU.
const DISTRIBUTED: [&str; 2] = ["init_process_group", "LOCAL_RANK"];
/// These start their own processes, and use such words for another launcher.
const LAUNCH_THEMSELVES: [&str; 2] = ["Lightning", "Ultralytics"];
const CHECKPOINT_FOLDERS: [&str; 5] =
    ["checkpoints", "checkpoint", "ckpts", "ckpt", "outputs/checkpoints"];

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
    let inputs = config::Inputs {
        flags: &flags,
        user: &context.user,
        environment: &context.environment,
        current_dir: &context.current_dir,
        now: context.clock.now(),
    };
    let loaded = config::load_job(Some(&path), &inputs)?;
    tell(context, &shown, &found, &loaded.spec.name);
    Ok(ExitCode::SUCCESS)
}

fn look(folder: &Path, script: Option<String>) -> Found {
    let is_file = |name: &&&str| folder.join(name).is_file();
    let known = || SCRIPTS.iter().find(is_file).map(|name| (*name).to_owned());
    let script = script.or_else(known).or_else(|| only_script(folder));
    let text = script.as_ref().and_then(|script| read(&folder.join(script))).unwrap_or_default();
    let python = Script::new(&text);
    let saves = save_detection::look(&python);
    let program = if script.is_none() {
        read(&folder.join("pyproject.toml")).and_then(|text| only_program(&text))
    } else {
        None
    };
    let there = || {
        CHECKPOINT_FOLDERS
            .iter()
            .find(|name| folder.join(name).is_dir())
            .map(|name| (*name).to_owned())
    };
    let launches_itself = saves.framework.is_some_and(|name| LAUNCH_THEMSELVES.contains(&name));
    let distributed = !launches_itself && DISTRIBUTED.iter().any(|word| python.has(word));
    let launcher = match distributed {
        true => Launcher::Torchrun,
        false if !python.calls("Accelerator").is_empty() => Launcher::Accelerate,
        false => Launcher::None,
    };
    let requirements = ["requirements.txt", "uv.lock", "pyproject.toml"]
        .iter()
        .find(is_file)
        .map(|name| (*name).to_owned());
    let venv = || {
        [".venv/bin/python", "venv/bin/python"]
            .iter()
            .map(|name| folder.join(name))
            .find(|path| path.is_file())
    };
    let asks = python
        .required
        .values()
        .filter(|option| !saves.arguments.contains(option) && python.demands(option))
        .cloned()
        .collect();
    Found {
        script,
        program,
        distributed,
        launcher,
        venv: if requirements.is_none() {
            venv().and_then(|path| {
                std::path::absolute(path).ok()?.into_os_string().into_string().ok()
            })
        } else {
            None
        },
        requirements,
        checkpoints: saves.folder.clone().or_else(there),
        signal: ["SIGUSR1", "SIGTERM"].into_iter().find(|signal| text.contains(signal)),
        saves,
        asks,
    }
}

/// The command of a package that has only one.
fn only_program(pyproject: &str) -> Option<String> {
    let document = toml_edit::Document::parse(pyproject).ok()?;
    let programs = document.get("project")?.get("scripts")?.as_table_like()?;
    let mut names = programs.iter().map(|(name, _)| name.to_owned());
    names.next().filter(|_| names.next().is_none())
}

fn only_script(folder: &Path) -> Option<String> {
    let names =
        folder.read_dir().ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_script = |name: &String| {
        name.ends_with(".py")
            && !name.starts_with("test_")
            && !["setup.py", "conftest.py"].contains(&name.as_str())
    };
    let mut scripts: Vec<String> = names.filter(is_script).collect();
    if scripts.len() == 1 { scripts.pop() } else { None }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the script that the user wants to run is read to guess its settings"
)]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
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

fn tell(context: &Context, shown: &str, found: &Found, name: &str) {
    let word = shell_word(shown);
    let mut next = vec![format!("lamp check {word}"), format!("lamp run {word}")];
    if found.is_placeholder() {
        next.insert(0, format!("put your command into {shown}"));
    }
    if context.format != Format::Text {
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
    printer.note(format!("next: {first}`lamp check {shown}`, then `lamp run {shown}`"));
}
