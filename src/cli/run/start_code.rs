//! Which code a job continues with: its old code, or its folder as it is now.
//!
//! ```text
//!   --code ───────────────────────────────> the folder as it is now
//!   --same-code, or nothing has changed ──> its old code
//!   the folder has changed ───────────────> the user is asked; without a terminal it is refused
//! ```
//!
//! Not here: what else the next job gets (`start`).

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;

use crate::app::launch::submission::{self, Submission};
use crate::cli::shell::ctrl_c;
use crate::cli::shell::flags::{JobArgs, JobFlags};
use crate::cli::{Context, ExitCode, Fault};
use crate::config::shown;
use crate::controller::Kept;
use crate::job::{CodeSource, Command, JobId, ResolvedSpec, Spec};
use crate::wire::{self, Survey, Workstation};

/// Named changed files: enough to recognise the change, few enough for a line.
const NAMED: usize = 3;

#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Code options")]
pub struct CodeArgs {
    /// Go on with the folder as it is now, and with the command, setup, env and outputs that its
    /// job file says now
    #[arg(long, conflicts_with = "same_code")]
    pub code: bool,

    /// Go on with the code that ran before, also where its folder has changed since
    #[arg(long)]
    pub same_code: bool,

    /// With --code, ship this file though it looks like it holds a secret; may be repeated
    #[arg(long, value_name = "PATH[:RULE]", requires = "code")]
    pub allow_secret: Vec<String>,

    /// The command to run in place of the one before; everything after `--` is the program's
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl CodeArgs {
    pub fn changes_something(&self) -> bool {
        self.code || !self.command.is_empty()
    }
}

/// The folder as it is now; `None`: the job continues with its old code.
///
/// # Errors
/// Fails when the folder is unknown or cannot ship, or has changed and the user chose no code.
pub fn choose(
    args: &CodeArgs,
    dry_run: bool,
    context: &Context,
    workstation: &Workstation,
    kept: &Kept,
) -> Result<Option<Submission>, Fault> {
    let here = workstation.here().map(|here| here.as_str().to_owned()).unwrap_or_default();
    let source = kept
        .spec
        .code
        .as_ref()
        .and_then(|code| code.source.as_ref())
        .filter(|source| source.workstation == here);
    let job = &kept.spec.job;
    let Some(source) = source else {
        return if args.code { Err(unknown_folder(job)) } else { Ok(None) };
    };
    let read = job_args(source, &kept.spec.spec, &args.allow_secret);
    if args.code {
        return read.prepare_unbought(context).map(Some);
    }
    if args.same_code {
        return Ok(None);
    }
    let Some(changed) = change(context, kept, source, &read)? else { return Ok(None) };
    let folder = shown(Path::new(&source.folder), &context.current_dir);
    let folder = if folder == "." { "this folder".to_owned() } else { format!("`{folder}`") };
    let what = format!("{folder} has changed since job `{job}` packed it ({changed})");
    if dry_run {
        context.printer.warn(format!(
            "{what}; without --code or --same-code, `lamp start` asks which code is meant"
        ));
        return Ok(None);
    }
    match ask(context, job, &what)? {
        true => read.prepare_unbought(context).map(Some),
        false => Ok(None),
    }
}

fn ask(context: &Context, job: &JobId, what: &str) -> Result<bool, Fault> {
    let meaning = "nothing was started or billed";
    let hint = format!(
        "`lamp start {job} --code` goes on with the folder as it is now, `--same-code` with what ran before"
    );
    let refused = |what: String| Fault::new(ExitCode::REFUSED, what).meaning(meaning).hint(&hint);
    if !std::io::stdin().is_terminal() || context.is_machine_output() {
        return Err(refused(what.to_owned()));
    }
    let question = || {
        context.printer.note(format!(
            "{what}; go on with the new code, or with the same as before? [new/same/N]"
        ))
    };
    let Some(answer) = ctrl_c::line_or_left(question) else {
        return Err(ctrl_c::left_at_the_question(meaning));
    };
    match answer.trim().to_lowercase().as_str() {
        "new" | "n" => Ok(true),
        "same" | "s" => Ok(false),
        _ => Err(refused("neither code was chosen".into())),
    }
}

fn unknown_folder(job: &JobId) -> Fault {
    Fault::new(
        ExitCode::REFUSED,
        format!("this workstation does not know from which folder job `{job}` was packed"),
    )
    .meaning("nothing was started or billed")
    .hint(format!("`lamp run --from {job} FILE` runs a job file from its newest checkpoint"))
}

/// How to read the folder again: by its job file, or by the command line that replaced one.
fn job_args(source: &CodeSource, spec: &Spec, allow_secret: &[String]) -> JobArgs {
    let command = match (&source.file, &spec.command) {
        (Some(_), _) => Vec::new(),
        (None, Command::Args(args)) => args.clone(),
        (None, Command::Shell(line)) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
    };
    let flags = JobFlags {
        workdir: Some(source.folder.clone()),
        name: Some(spec.name.clone()),
        allow_secret: allow_secret.to_vec(),
        ..JobFlags::default()
    };
    JobArgs { file: source.file.as_ref().map(PathBuf::from), flags, command }
}

/// The changes in the folder. `None`: nothing that ships has changed, or the folder cannot be read.
fn change(
    context: &Context,
    kept: &Kept,
    source: &CodeSource,
    read: &JobArgs,
) -> Result<Option<String>, Fault> {
    let before = kept.spec.code.as_ref().expect("a source stands in what was packed");
    let Some(survey) = read.read(context).ok().and_then(|loaded| {
        loaded.workdir.is_dir().then(|| submission::survey(&loaded, &context.roots.url))
    }) else {
        context.printer.note(format!(
            "`{}` cannot be read any more: the job goes on with the code that it ran before",
            source.folder
        ));
        return Ok(None);
    };
    if (survey.files, survey.bytes) == (before.files, before.bytes) {
        // Same count and size: only now it is worth reading all files.
        if Some(wire::tree_of(&survey)?) == before.tree {
            return Ok(None);
        }
    }
    Ok(Some(changed_files(&survey, source)))
}

fn changed_files(survey: &Survey, source: &CodeSource) -> String {
    let changed = wire::changed_since(survey, source.packed.into());
    let named: Vec<String> =
        changed.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    match changed.len() {
        0 => "a file is gone, or an older one is in its place".to_owned(),
        n if n > NAMED => format!("{} and {} more", named.join(", "), n - NAMED),
        _ => named.join(", "),
    }
}

/// Takes the current job file into the spec, except for what was set by flags at the first run.
pub fn take_in(spec: &mut ResolvedSpec, now: &Submission) {
    let loaded = &now.loaded;
    if loaded.file.is_none() {
        return;
    }
    let origins: BTreeMap<String, String> = spec.origins.clone();
    let is_flag = |key: &str| origins.get(key).is_some_and(|origin| origin == "flag");
    let (spec, new) = (&mut spec.spec, &loaded.spec);
    if !is_flag("command") {
        spec.command.clone_from(&new.command);
    }
    if !is_flag("setup") {
        spec.setup.clone_from(&new.setup);
    }
    if !is_flag("outputs") {
        spec.outputs.clone_from(&new.outputs);
    }
    let typed: Vec<(String, String)> = spec
        .env
        .iter()
        .filter(|(name, _)| is_flag(&format!("env.{name}")))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    spec.env = new.env.clone().into_iter().chain(typed).collect();
}

pub fn take_command(spec: &mut ResolvedSpec, command: &[String]) {
    if !command.is_empty() {
        spec.spec.command = Command::Args(command.to_vec());
        spec.origins.insert("command".to_owned(), "flag".to_owned());
    }
}
