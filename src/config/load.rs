//! From the user's words to a spec: read, decode, merge, judge; all findings at once.
//!
//! ```text
//! file ─ Source ─ decode ─┐
//! flags ──────────────────┼─ Layers ─ Spec ─ job::spec::check ─ world checks ─ Loaded | findings
//! user configuration ─────┘
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::decode::decode;
use super::document::{JOB_FILE, Source};
use super::file_suggest::with_near;
use super::job_file::JobFile;
use super::settings::{Inputs, Layers};
use super::source_file::read_file;
use super::{ConfigError, automation, workstation_checks};
use crate::job::{
    self, Command, Finding, FindingCause, JobId, ScheduleSpec, Severity, Spec, TuneSpec,
};

/// A job that can be submitted.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub spec: Spec,
    /// The folder to pack, absolute.
    pub workdir: PathBuf,
    /// Where the job came from; `None` when the command line said it all.
    pub file: Option<PathBuf>,
    /// Where each setting came from, by its dotted path: `flag`, `file`, `user config`, `default`.
    pub origins: BTreeMap<String, String>,
    /// All that [`read_job`] found; of [`load_job`] warnings only.
    pub findings: Vec<Finding>,
    /// Files of the workdir that are not scanned for secrets, as `path` or `path:rule`.
    pub secrets_allowed: Vec<String>,
    /// The most that the workdir may hold.
    pub workdir_bytes_max: u64,
    /// SHA-256 of the job file's values, lower-case hex. A comment or another order of its keys
    /// does not change it.
    pub file_sha256: Option<String>,
    /// When it is to be run again; only a file says so.
    pub schedule: Option<ScheduleSpec>,
    /// The search of `lamp tune`.
    pub tune: Option<TuneSpec>,
}

/// Shown in place of a file.
pub const COMMAND_LINE: &str = "the command line";

/// The origin of settings for all jobs of a user.
const USER_CONFIG: &str = "user config";

/// Reads a job that can run, from a file, or from flags alone.
///
/// # Errors
/// The file is not there or cannot be read, or the job has errors: all of them, with the warnings.
pub fn load_job(file: Option<&Path>, inputs: &Inputs<'_>) -> Result<Loaded, ConfigError> {
    let loaded = read_job(file, inputs)?;
    if loaded.findings.iter().all(|finding| finding.severity != Severity::Error) {
        return Ok(loaded);
    }
    let file = loaded
        .file
        .as_deref()
        .map_or_else(|| COMMAND_LINE.to_owned(), |path| shown(path, inputs.current_dir));
    Err(ConfigError::Findings { file, findings: loaded.findings })
}

/// Reads a job as far as it can be read, with all errors. The caller may add errors of its workdir.
///
/// # Errors
/// The file does not exist, cannot be read, or is invalid TOML.
pub fn read_job(file: Option<&Path>, inputs: &Inputs<'_>) -> Result<Loaded, ConfigError> {
    let file = file.map(|path| inputs.current_dir.join(path)).or_else(|| default_file(inputs));
    let mut file_sha256 = None;
    let (source, fragment, mut found) = match &file {
        Some(path) => {
            let text = must_be_job_file(path)
                .and_then(|()| read_file("job file", path))
                .map_err(|error| with_near(error).shown_from(inputs.current_dir))?;
            let refuse = |findings| ConfigError::Findings {
                file: shown(path, inputs.current_dir),
                findings,
            };
            let source = Source::parse(path, &text).map_err(refuse)?;
            file_sha256 = Some(source.sha256());
            let (fragment, found) = decode::<JobFile>(&source);
            (source, fragment, found)
        }
        None => (Source::default(), JobFile::default(), Vec::new()),
    };
    let mut layers = Layers::new(vec![
        ("flag", inputs.flags),
        ("file", &fragment),
        (USER_CONFIG, &inputs.user.defaults),
    ]);
    let workdir = workdir(&mut layers, file.as_deref(), inputs.current_dir);
    let workdir_bytes_max = layers.workdir_bytes_max();
    let secrets_allowed = layers.secrets_allowed();
    let said_name = layers.name();
    let (mut spec, merged) = layers.spec(String::new());
    found.extend(
        said_name
            .as_deref()
            .and_then(of_the_name)
            .map(|finding| finding.at_line(source.line("name"))),
    );
    spec.name = said_name.unwrap_or_else(|| name_of(file.as_deref(), &spec.command, &workdir));

    let (schedule, of_schedule) =
        fragment.schedule.as_ref().map(|file| automation::resolve(file, &spec, inputs.now)).unzip();
    let (tune, of_tune) =
        fragment.tune.as_ref().map(|file| super::tune::resolve(file, &spec)).unzip();
    let judged = merged
        .into_iter()
        .chain(job::check(&spec))
        .chain(workstation_checks::check(&spec, &workdir, inputs))
        .chain(of_schedule.into_iter().flatten())
        .chain(of_tune.into_iter().flatten());
    // A value that could not be read and a misspelt key count as missing below. The user knows
    // about them already.
    let unread = found.clone();
    let is_reported = |path: &str| unread.iter().any(|known| known.path == path);
    let is_misspelt = |path: &str| {
        unread.iter().any(|known| {
            matches!(&known.cause, FindingCause::UnknownKey(Some(meant))
                if meant.tables.is_empty() && meant.name == path)
        })
    };
    // A limit that is unreadable or in another table is not missing.
    let is_limit = |path: &str| {
        ["max_runtime", "budget", "deadline"].contains(&path.rsplit('.').next().unwrap_or_default())
    };
    let has_said_a_limit = unread.iter().any(|known| is_limit(&known.path));
    for mut finding in judged {
        if finding.is_of_no_limit() && has_said_a_limit {
            continue;
        }
        let line = source.line(&finding.path);
        if is_reported(&finding.path) || (line.is_none() && is_misspelt(&finding.path)) {
            continue;
        }
        if finding.cause == FindingCause::NoEffect
            && layers.origin(&finding.path) == Some(USER_CONFIG)
        {
            continue;
        }
        if finding.path == "command" && !layers.says_command() {
            finding.message = "is missing".to_owned();
        }
        let of_another = |file: String, line| Finding { file: Some(file), line, ..finding.clone() };
        found.push(match (layers.origin(&finding.path), &inputs.user.path) {
            (Some("flag"), _) if file.is_some() => of_another(COMMAND_LINE.to_owned(), None),
            (Some(USER_CONFIG), Some(path)) => {
                of_another(shown(path, inputs.current_dir), inputs.user.source.line(&finding.path))
            }
            _ => finding.at_line(line),
        });
    }
    found.sort_by_key(|finding| (finding.file.is_some(), finding.line.is_none(), finding.line));
    Ok(Loaded {
        spec,
        workdir,
        file,
        origins: layers.into_origins(),
        findings: found,
        secrets_allowed,
        workdir_bytes_max,
        file_sha256,
        schedule,
        tune,
    })
}

/// `lamp.toml` of the current folder, when nothing else says what to run.
fn default_file(inputs: &Inputs<'_>) -> Option<PathBuf> {
    if inputs.flags.command.is_some() {
        return None;
    }
    Some(inputs.current_dir.join(JOB_FILE))
}

/// A folder, a pipe or a script in place of the job file gets an error with a command that works.
fn must_be_job_file(path: &Path) -> Result<(), ConfigError> {
    let plain: PathBuf = path.components().collect();
    if path.is_dir() {
        return Err(ConfigError::Folder { has_file: path.join(JOB_FILE).is_file(), path: plain });
    }
    // Opening a pipe would wait for a writer.
    if path.exists() && !path.is_file() {
        return Err(ConfigError::NoFile { path: plain });
    }
    let runner = match path.extension().and_then(|extension| extension.to_str()) {
        Some("py") => "python3",
        Some("sh" | "bash") => "sh",
        _ => return Ok(()),
    };
    if path.is_file() { Err(ConfigError::Script { path: plain, runner }) } else { Ok(()) }
}

/// Relative to the file that says it; a flag is relative to where it was typed.
fn workdir(layers: &mut Layers<'_>, file: Option<&Path>, current_dir: &Path) -> PathBuf {
    let beside_file = file.and_then(Path::parent).unwrap_or(current_dir);
    let folder = match layers.workdir() {
        Some((said, true)) => current_dir.join(said),
        Some((said, false)) => beside_file.join(said),
        None => beside_file.to_owned(),
    };
    folder.canonicalize().unwrap_or(folder)
}

/// The longest name. No machine takes a variable of 128 KiB.
const NAME_BYTES_MAX: usize = 1000;

/// An id has small letters, digits and `-`. Warns if other signs of the name change in a way that
/// the user may not expect.
fn of_the_name(name: &str) -> Option<Finding> {
    if name.trim().is_empty() {
        return Some(
            Finding::error("name", "is empty")
                .hint("leave it out: then the job is called like its file or its folder"),
        );
    }
    if name.len() > NAME_BYTES_MAX {
        return Some(Finding::error("name", format!("is longer than {NAME_BYTES_MAX} bytes")));
    }
    let slug = JobId::slug(name);
    let expected = name.to_lowercase().replace([' ', '_', '.'], "-");
    (slug != expected)
        .then(|| Finding::warning("name", format!("the id of each of its jobs begins with `{slug}-`: an id takes a to z, 0 to 9 and `-`")))
}

/// The file's name; the folder's for a `lamp.toml`; the script's for a bare command line.
fn name_of(file: Option<&Path>, command: &Command, workdir: &Path) -> String {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let folder = || workdir.file_name().map(|name| name.to_string_lossy().into_owned());
    let named_file = file.filter(|path| path.file_name().is_none_or(|name| name != JOB_FILE));
    let name = match (named_file, file) {
        (Some(path), _) => stem(path),
        (None, Some(_)) => folder(),
        (None, None) => {
            script_of(command).and_then(|script| stem(Path::new(&script))).or_else(folder)
        }
    };
    name.unwrap_or_else(|| "job".to_owned())
}

/// The first word that looks like a script, else the program.
fn script_of(command: &Command) -> Option<String> {
    let words: Vec<String> = match command {
        Command::Args(args) => args.clone(),
        Command::Shell(script) => script.split_whitespace().map(str::to_owned).collect(),
    };
    let is_script =
        |word: &&String| [".py", ".sh"].iter().any(|extension| word.ends_with(extension));
    words.iter().find(is_script).or(words.first()).cloned()
}

/// The path as the user would type it from here.
pub fn shown(path: &Path, current_dir: &Path) -> String {
    let short = path.strip_prefix(current_dir).unwrap_or(path);
    if short.as_os_str().is_empty() { ".".to_owned() } else { short.display().to_string() }
}
