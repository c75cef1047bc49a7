//! `lamp init`: a commented job file for the script that is already there.
//!
//! It looks, it guesses, it writes one new file and never an existing one. What it wrote is then read back as `lamp check`
//! would, so that a starter with a mistake cannot leave this verb unseen.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde::Serialize;

use super::printer::shell_word;
use super::{Context, ExitCode, Fault, Format};
use crate::config::{self, CommandWord, JOB_FILE, JobFile};
use crate::job::{COMMAND_PLACEHOLDER, Command, JobId};

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
    /// The script to run, relative to the folder [default: train.py, main.py, or the only script there]
    #[arg(long, value_name = "FILE")]
    pub script: Option<String>,
}

#[cfg(feature = "aws")]
#[derive(Clone, Debug, clap::Subcommand)]
pub enum What {
    Aws(super::init_aws::Args),
}

/// What was found in the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Found {
    script: Option<String>,
    /// The one program that `pyproject.toml` installs, where there is no script.
    program: Option<String>,
    /// The script starts a process group of PyTorch: it is run by `torchrun`.
    distributed: bool,
    requirements: Option<String>,
    checkpoints: Option<String>,
    signal: Option<&'static str>,
}

impl Found {
    fn is_placeholder(&self) -> bool {
        self.script.is_none() && self.program.is_none()
    }
}

/// Names that training scripts have, the most telling first.
const SCRIPTS: [&str; 7] = ["train.py", "main.py", "run.py", "src/train.py", "src/main.py", "scripts/train.py", "train.sh"];
/// What a script says that is meant to be run by `torchrun`, with one process for each GPU.
const DISTRIBUTED: [&str; 2] = ["init_process_group", "LOCAL_RANK"];
const CHECKPOINT_FOLDERS: [&str; 5] = ["checkpoints", "checkpoint", "ckpts", "ckpt", "outputs/checkpoints"];

/// # Errors
/// The folder is not there or not writable, a named script is not in it, or it has a job file already.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let folder = context.current_dir.join(&args.folder);
    if !folder.is_dir() {
        let shown = args.folder.display().to_string();
        let fault = Fault::new(ExitCode::NOT_FOUND, format!("no folder `{shown}`")).meaning("nothing was written");
        return Err(fault.hint(format!("`mkdir -p {}` makes it; without a folder, `lamp init` writes into this one", shell_word(&shown))));
    }
    if let Some(script) = &args.script
        && !folder.join(script).is_file()
    {
        return Err(Fault::new(ExitCode::NOT_FOUND, format!("no script `{script}` in `{}`", args.folder.display())));
    }
    let found = look(&folder, args.script.clone());
    let path = folder.join(JOB_FILE);
    let shown = config::shown(&path, &context.current_dir);
    let shown = shown.strip_prefix("./").unwrap_or(&shown).to_owned();
    write_new(&path, &starter(&found, &folder)).map_err(|error| refused(&error, &shown))?;
    // A placeholder is a finding, and meant to be one; all the rest must be as `check` wants it.
    let command = Command::Shell("true".to_owned());
    let flags = JobFile { command: found.is_placeholder().then_some(CommandWord(command)), ..JobFile::default() };
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
    let program = if script.is_none() { read(&folder.join("pyproject.toml")).and_then(|text| only_program(&text)) } else { None };
    let mentioned = CHECKPOINT_FOLDERS.iter().find(|name| folder.join(name).is_dir() || quotes(&text, name));
    // Our own word for it, whatever the folder is called.
    let mentioned = mentioned.or_else(|| CHECKPOINT_FOLDERS.first().filter(|_| text.contains("LAMP_CHECKPOINT_DIR")));
    Found {
        script,
        program,
        distributed: DISTRIBUTED.iter().any(|word| text.contains(word)),
        requirements: ["requirements.txt", "pyproject.toml"].iter().find(is_file).map(|name| (*name).to_owned()),
        checkpoints: mentioned.map(|name| (*name).to_owned()),
        signal: ["SIGUSR1", "SIGTERM"].into_iter().find(|signal| text.contains(signal)),
    }
}

/// Whether the script has the word as a text of its own: `"checkpoints"` or `'checkpoints/'`.
fn quotes(text: &str, word: &str) -> bool {
    ['"', '\''].iter().any(|quote| text.contains(&format!("{quote}{word}{quote}")) || text.contains(&format!("{quote}{word}/")))
}

/// The command of a package, if it has one alone.
fn only_program(pyproject: &str) -> Option<String> {
    let document = toml_edit::Document::parse(pyproject).ok()?;
    let programs = document.get("project")?.get("scripts")?.as_table_like()?;
    let mut names = programs.iter().map(|(name, _)| name.to_owned());
    names.next().filter(|_| names.next().is_none())
}

fn only_script(folder: &Path) -> Option<String> {
    let names = folder.read_dir().ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_script = |name: &String| name.ends_with(".py") && !name.starts_with("test_") && !["setup.py", "conftest.py"].contains(&name.as_str());
    let mut scripts: Vec<String> = names.filter(is_script).collect();
    if scripts.len() == 1 { scripts.pop() } else { None }
}

#[expect(clippy::disallowed_methods, reason = "the script that the user wants to run is read to guess its settings")]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn refused(error: &io::Error, shown: &str) -> Fault {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let fault = Fault::new(ExitCode::REFUSED, format!("`{shown}` is already there"));
        return fault.meaning("nothing was written").hint(format!(
            "`lamp check {shown}` says what is wrong with it; once it is deleted or has another name (`mv {shown} old-{JOB_FILE}`), `lamp init` writes a new one"
        ));
    }
    Fault::new(ExitCode::UNREACHABLE, format!("cannot write `{shown}`")).because(error)
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn starter(found: &Found, folder: &Path) -> String {
    let name = folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_else(|| "job".into());
    let mut text = format!(
        "# A job for Lamplighter. `lamp check` finds what is wrong with it, `lamp run` runs it.\n\
         # docs/job-file.md explains every key. A length of time needs its unit: 30s, 15m, 2h, 3d.\n\n\
         name = {}\n\n",
        quoted(&JobId::slug(&name))
    );
    text.push_str(&what_runs(found));
    text.push_str(
        "\n# Files to keep at the end, below this folder.\n# outputs = [\"model.pt\", \"metrics/*.json\"]\n\n\
         # Packed and shipped is this folder, without what .gitignore and .lampignore name.\n\n\
         # [env]\n# SEED = 1\n\n\
         [machine]\ncloud = \"local\"            # this workstation; \"aws\" buys a machine: docs/aws.md\n\
         # gpus = \"A10G:1\"          # or \"at least 24GiB\"\n# market = \"spot\"          # of \"aws\": cheaper, can be interrupted\n\n",
    );
    text.push_str(&how_it_saves(found));
    text.push_str(
        "\n[watch]\nidle = \"5m\"                # every known signal quiet for this long; \"off\" never judges\n\
         stall = \"20m\"              # alive, but no step, log line or checkpoint for this long\n\
         # log_pattern = \"step (\\\\d+)\" # how far it is, from its own lines; or it appends {\"step\": N} to the file LAMP_PROGRESS\n\n\
         [limits]\nmax_runtime = \"12h\"        # of one attempt\n# budget = \"$5\"            # over all attempts\n\n\
         [on]\nfailure = \"terminate\"      # or \"keep 1h\" for a look at the machine\n",
    );
    text
}

fn what_runs(found: &Found) -> String {
    let (words, is_python) = match (&found.script, &found.program) {
        (Some(script), _) => (script.clone(), script.ends_with(".py")),
        (None, Some(program)) => (program.clone(), true),
        (None, None) => {
            return format!(
                "# What to run: a list is executed as it is, a string by the shell. Until it is there, the job is refused.\n\
                 command = {}\n",
                quoted(COMMAND_PLACEHOLDER)
            );
        }
    };
    let install = match found.requirements.as_deref() {
        Some("requirements.txt") if is_python => Some(r#""$venv/bin/pip" install --quiet -r requirements.txt"#),
        Some("pyproject.toml") if is_python => Some(r#""$venv/bin/pip" install --quiet ."#),
        _ => None,
    };
    let program = match (is_python, install) {
        (true, Some(_)) => ".venv/bin/python",
        (true, None) => "python3",
        (false, _) => "bash",
    };
    let command: Vec<String> = match &found.script {
        None => vec![quoted(&format!(".venv/bin/{words}"))],
        Some(_) if is_python && found.distributed => {
            [program, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=auto", &words].map(quoted).to_vec()
        }
        Some(_) => [program, &words].map(quoted).to_vec(),
    };
    let mut text = format!(
        "# A list is executed as it is, a string by the shell. `lamp run {JOB_FILE} -- ...` replaces it.\n\
         command = [{}]\n",
        command.join(", ")
    );
    if let Some(install) = install {
        text.push_str(&format!(
            "\n# Runs once per attempt, before the command; each line must succeed. The environment is kept on the machine for the next one.\n\
             setup = [\n    {},\n    {},\n    {},\n    {},\n]\n",
            quoted("venv=$LAMP_CACHE_DIR/venv-$LAMP_JOB_NAME"),
            quoted(r#"test -x "$venv/bin/pip" || python3 -m venv "$venv""#),
            quoted(install),
            quoted(r#"ln -sfn "$venv" .venv"#)
        ));
    }
    text
}

fn how_it_saves(found: &Found) -> String {
    let signal = match found.signal {
        Some(signal) => format!("signal = {}         # asks the script to save", quoted(signal)),
        None => "# signal = \"SIGUSR1\"       # asks the script to save, if it listens for one".to_owned(),
    };
    match &found.checkpoints {
        Some(folder) => format!(
            "[checkpoint]\npath = {}       # also in LAMP_CHECKPOINT_DIR; an interruption costs at most one interval\n\
             interval = \"10m\"\n{signal}\n",
            quoted(folder)
        ),
        None => format!(
            "# Without this table an interruption loses all work.\n# [checkpoint]\n\
             # path = \"checkpoints\"     # the folder that the script saves to; also in LAMP_CHECKPOINT_DIR\n\
             # interval = \"10m\"\n{}\n",
            if signal.starts_with('#') { signal } else { format!("# {signal}") }
        ),
    }
}

fn tell(context: &Context, shown: &str, found: &Found, name: &str) {
    let mut next = vec![format!("lamp check {shown}"), format!("lamp run {shown}")];
    if found.is_placeholder() {
        next.insert(0, format!("put your command into {shown}"));
    }
    if context.format != Format::Text {
        context.printer.json(&serde_json::json!({"file": shown, "name": name, "found": found, "next": next}));
        return;
    }
    let printer = &context.printer;
    printer.line(format!("wrote {shown}"));
    match (&found.script, &found.program) {
        (Some(script), _) if found.distributed => printer.note(format!("it runs `{script}` with one process for each GPU")),
        (Some(runs), _) | (None, Some(runs)) => printer.note(format!("it runs `{runs}`")),
        (None, None) => printer.warn("no script was recognised: the job is refused until your command is in it"),
    }
    match (&found.checkpoints, found.signal) {
        (Some(folder), Some(signal)) => printer.note(format!("checkpoints are expected in `{folder}`, and {signal} asks for one")),
        (Some(folder), None) => printer.note(format!("checkpoints are expected in `{folder}`")),
        (None, _) => printer.note("no checkpoint folder was recognised: an interruption would lose all work"),
    }
    let first = if found.is_placeholder() { "put your command into it, then " } else { "" };
    printer.note(format!("next: {first}`lamp check {shown}`, then `lamp run {shown}`"));
}
