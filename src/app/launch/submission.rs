//! A job that was read, and what it would ship: all errors in it, before it is submitted.
//!
//! `lamp check` prints them. The other commands refuse a job with errors ([`Submission::accept`]).
//! Not here: the walk and the scan (`wire`), and the flags (`cli::plan::job_args`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::saved_files;
use crate::app::text::counted;
use crate::app::{ExitCode, Fault, outputs};
use crate::config::{self, Loaded, shown};
use crate::job::seat_leader;
use crate::job::{Finding, FindingCause, JobId, RECORD_FORMAT, ResolvedSpec, Severity, shell_word};
use crate::jobdir::layout;
use crate::market::CloudKind;
use crate::policy::schedule::calendar::Calendar;
use crate::wire::{self, PackError, PackKind, Secret, Survey};

/// The usual names of a Python environment in a folder.
pub const ENVIRONMENT_FOLDERS: &[&str] = &[".venv", "venv", "env"];

/// A job without errors, and the files that it ships.
#[derive(Clone)]
pub struct Submission {
    pub loaded: Loaded,
    pub survey: Survey,
    /// The workdir as people read it.
    pub folder: String,
}

impl Submission {
    /// Takes a job that [`examine`] has seen. `current_dir`: the folder from which people read
    /// paths.
    ///
    /// # Errors
    /// Fails when the job has errors, or its workdir holds what must not ship.
    pub fn accept(
        loaded: Loaded,
        survey: Option<Survey>,
        current_dir: &Path,
    ) -> Result<Submission, Fault> {
        let findings = &loaded.findings;
        let mut errors =
            findings.iter().filter(|finding| finding.severity == Severity::Error).peekable();
        if let (None, Some(survey)) = (errors.peek(), survey) {
            let folder = shown(&loaded.workdir, current_dir);
            return Ok(Submission { loaded, survey, folder });
        }
        let file = shown_file(&loaded, current_dir);
        let in_words =
            findings.iter().any(|finding| finding.rule.is_some() && finding.file.is_none());
        let only_secrets = errors.all(|finding| finding.rule.is_some());
        let fault = if only_secrets {
            let place = if in_words { "environment, setup or command" } else { "workdir" };
            let what = format!("the {place} of `{file}` holds what looks like secrets");
            Fault::new(ExitCode::REFUSED, what)
                .hint("if they are meant to ship, acknowledge each with `--allow-secret PATH:RULE`")
        } else {
            Fault::new(ExitCode::FINDINGS, format!("`{file}` cannot run"))
        };
        Err(fault.meaning("nothing was started or billed").findings(file, loaded.findings))
    }

    /// The spec of a new job. Its code is not packed yet.
    pub fn spec(&self, owner: &str, now: Timestamp) -> ResolvedSpec {
        let loaded = &self.loaded;
        let mut spec = ResolvedSpec {
            format: RECORD_FORMAT,
            job: JobId::from_name(&loaded.spec.name, wire::random_letters()),
            created: now,
            written_by: format!("lamp {}", env!("CARGO_PKG_VERSION")),
            spec: loaded.spec.clone(),
            code: None,
            origins: loaded.origins.clone(),
            applied: None,
            owner: Some(owner.to_owned()),
            continues: None,
            trial: None,
            tuned: None,
        };
        seat_leader(&mut spec);
        spec
    }

    pub fn next_run(&self, now: Timestamp) -> Option<Timestamp> {
        Calendar::of(self.loaded.schedule.as_ref()?).ok()?.begins_after(now)
    }

    pub fn ships(&self) -> String {
        format!(
            "ships {}, {}",
            counted(self.survey.files, "file"),
            wire::show_bytes(self.survey.bytes)
        )
    }
}

/// Adds to the findings of a job what its workdir shows. `None`: the file does not say clearly what
/// ships.
///
/// # Errors
/// Fails when the workdir cannot be read.
pub fn examine(loaded: &mut Loaded, job_root: &str) -> Result<Option<Survey>, Fault> {
    if !is_workdir_known(loaded) {
        // Secrets in the spec itself are reported all the same.
        let found = secrets_in_words(loaded, None);
        loaded.findings.extend(found);
        return Ok(None);
    }
    let kept = kept_in_workdir(job_root, &loaded.workdir);
    let survey = survey(loaded, job_root);
    let setup = loaded.spec.setup.as_deref();
    let mut found = not_too_many(
        survey.findings.iter().filter_map(|finding| in_user_words(finding, &kept, setup)),
    );
    found.extend(command_that_does_not_ship(loaded, &survey));
    found.extend(saved_files::findings(loaded));
    found.extend(cloud_of_another_build(loaded.spec.machine.cloud));
    // A workdir that is far too large is not read: its findings say what to ignore first.
    let in_files = if survey.bytes <= loaded.workdir_bytes_max {
        wire::scan_for_secrets(&survey)?
    } else {
        Vec::new()
    };
    found.extend(secrets_in_words(loaded, Some(&in_files)));
    found.extend(secrets_in_files(loaded, in_files));
    loaded.findings.extend(found);
    Ok(Some(survey))
}

/// The files that would ship.
pub fn survey(loaded: &Loaded, job_root: &str) -> Survey {
    let checkpoints =
        loaded.spec.checkpoint.iter().map(|checkpoint| PathBuf::from(&checkpoint.path));
    // Fetched outputs stay here, as do jobs that are kept in the workdir.
    let kept = kept_in_workdir(job_root, &loaded.workdir);
    let never: Vec<PathBuf> =
        checkpoints.chain([PathBuf::from(outputs::FOLDER)]).chain(kept).collect();
    wire::survey_workdir(&loaded.workdir, &never, loaded.workdir_bytes_max)
}

/// Findings of one kind: a wrong folder such as `/` has tens of thousands.
const OF_A_KIND: usize = 10;

/// The first of each kind, and the number of the others. A kind has the same hint.
fn not_too_many(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut kinds: BTreeMap<(Severity, Option<String>), Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        kinds.entry((finding.severity, finding.hint.clone())).or_default().push(finding);
    }
    let few = kinds.into_values().flat_map(|mut kind| {
        let more = kind.len().saturating_sub(OF_A_KIND);
        kind.truncate(OF_A_KIND);
        let last = kind
            .last()
            .filter(|_| more > 0)
            .map(|last| Finding { message: format!("and {more} more like these"), ..last.clone() });
        kind.into_iter().chain(last)
    });
    few.collect()
}

/// The job root's folders inside the workdir. If they shipped, each job would contain all earlier
/// ones.
fn kept_in_workdir(job_root: &str, workdir: &Path) -> Vec<PathBuf> {
    let folder = job_root
        .strip_prefix("file://")
        .map(|folder| Path::new(folder).canonicalize().unwrap_or_else(|_| folder.into()));
    match folder.as_deref().and_then(|folder| folder.strip_prefix(workdir).ok()) {
        None => Vec::new(),
        // The workdir is the job root: its folders have known names.
        Some(below) if below.as_os_str().is_empty() => layout::SHIPPED.map(PathBuf::from).to_vec(),
        Some(below) => vec![below.to_owned()],
    }
}

/// A survey finding, reworded if it is about a folder of ours. `None`: the user expects that it
/// does not ship.
fn in_user_words(finding: &Finding, kept: &[PathBuf], setup: Option<&str>) -> Option<Finding> {
    let FindingCause::DoesNotShip(shown) = &finding.cause else { return Some(finding.clone()) };
    let is_about = |folder: &Path| folder.display().to_string() == *shown;
    // The setup makes an environment of that name on each machine.
    let names = |folder: &str| {
        setup.is_some_and(|setup| {
            setup
                .split(|c: char| c.is_whitespace() || "\"'/;&".contains(c))
                .any(|word| word == folder)
        })
    };
    let is_made =
        ENVIRONMENT_FOLDERS.iter().any(|folder| is_about(Path::new(folder)) && names(folder));
    if is_about(Path::new(outputs::FOLDER)) || is_made {
        return None;
    }
    let Some(folder) = kept.iter().find(|folder| is_about(folder)) else {
        return Some(finding.clone());
    };
    let message = format!(
        "`{}` does not ship: jobs are kept there, and each would hold all those before it",
        folder.display()
    );
    let hint = "a job root elsewhere is out of the way: `--job-root ~/lamp-jobs`, LAMP_JOB_ROOT, or `job_root` in the configuration";
    Some(Finding::warning("workdir", message).hint(hint))
}

/// With an error in these keys, a wrong folder would give a finding for each file.
fn is_workdir_known(loaded: &Loaded) -> bool {
    let mut errors = loaded.findings.iter().filter(|finding| finding.severity == Severity::Error);
    loaded.workdir.is_dir() && !errors.any(is_about_workdir)
}

/// An error after which the folder that ships, or its files, are unknown.
fn is_about_workdir(error: &Finding) -> bool {
    const KEYS: [&str; 4] = ["workdir", "checkpoint", "secrets_allowed", "outputs"];
    let is_meant = |key: &&str| match &error.cause {
        FindingCause::UnknownKey(Some(meant)) => {
            meant.name == **key || meant.tables.iter().any(|table| table == *key)
        }
        cause => *cause == FindingCause::WrongWorkdir,
    };
    KEYS.iter().any(|key| error.path.starts_with(key) || is_meant(key))
}

/// The job file as people read it.
pub fn shown_file(loaded: &Loaded, current_dir: &Path) -> String {
    loaded
        .file
        .as_deref()
        .map_or_else(|| config::COMMAND_LINE.to_owned(), |path| shown(path, current_dir))
}

fn secrets_in_files(loaded: &Loaded, found: Vec<Secret>) -> Vec<Finding> {
    let refused = found
        .into_iter()
        .filter(|secret| !wire::is_secret_allowed(secret, &loaded.secrets_allowed));
    refused
        .map(|secret| {
            let message = format!("looks like {} (rule {})", secret.what, secret.rule);
            let hint =
                format!("remove it, ignore the file in .lampignore, or allow it with `--allow-secret {}:{}`", shell_word(&secret.path), secret.rule);
            let line = (secret.line > 0).then_some(secret.line);
            Finding::error("", message).hint(hint).in_file(secret.path, secret.rule).at_line(line)
        })
        .collect()
}

/// All readers of the job root can see these words. `in_files`: `None` if the files were not
/// scanned; then the job file's own exceptions apply here too.
fn secrets_in_words(loaded: &Loaded, in_files: Option<&[Secret]>) -> Vec<Finding> {
    let spec = &loaded.spec;
    let job_file = loaded
        .file
        .as_deref()
        .and_then(|file| file.strip_prefix(&loaded.workdir).ok())
        .map(|file| file.to_string_lossy());
    let env =
        spec.env.iter().map(|(name, value)| (format!("env.{name}"), format!("{name}={value}")));
    let setup = spec.setup.iter().map(|setup| ("setup".to_owned(), setup.clone()));
    let words = env.chain(setup).chain([("command".to_owned(), spec.command.display())]);
    let found = words.flat_map(|(place, text)| wire::scan_words_for_secrets(&place, &text));
    // A secret in a job file that ships is reported there.
    let is_in_job_file = |secret: &Secret| match (in_files, job_file.as_deref()) {
        (Some(in_files), file) => in_files
            .iter()
            .any(|other| other.rule == secret.rule && Some(other.path.as_str()) == file),
        (None, Some(file)) => wire::is_secret_allowed(
            &Secret { path: file.to_owned(), ..*secret },
            &loaded.secrets_allowed,
        ),
        (None, None) => false,
    };
    let secrets: Vec<Secret> = found.filter(|secret| !is_in_job_file(secret)).collect();
    let sounds = spec.env.iter().filter(|(name, value)| wire::sounds_secret(name, value));
    let is_known = |path: &str| {
        let by_name = Secret { path: path.to_owned(), line: 0, rule: "env-file", what: "" };
        secrets.iter().any(|secret| secret.path == path)
            || wire::is_secret_allowed(&by_name, &loaded.secrets_allowed)
    };
    let doubtful: Vec<Finding> = sounds
        .map(|(name, _)| format!("env.{name}"))
        .filter(|path| !is_known(path))
        .map(|path| {
            let hint = format!(
                "if it may stand there, say so with `--allow-secret {path}`; else name it in [secrets]: {} = \"env\"",
                path.trim_start_matches("env.")
            );
            Finding::warning(&path, "sounds like a secret; it is kept as it is in the job directory").hint(hint)
        })
        .collect();
    let refused = secrets
        .into_iter()
        .filter(|secret| !wire::is_secret_allowed(secret, &loaded.secrets_allowed));
    let refused = refused.map(|secret| {
        let message = format!("looks like {} (rule {}), and would be kept as it is in the job directory", secret.what, secret.rule);
        let hint = format!(
            "name it in [secrets] with the place where it is read, as NAME = \"env\" or \"ssm:PARAMETER\", or allow it with `--allow-secret {}:{}`",
            secret.path, secret.rule
        );
        Finding { rule: Some(secret.rule), ..Finding::error(&secret.path, message).hint(hint) }
    });
    refused.chain(doubtful).collect()
}

/// A job for a cloud that this program was built without is only a warning.
fn cloud_of_another_build(cloud: CloudKind) -> Option<Finding> {
    if wire::is_built_for(cloud) {
        return None;
    }
    let message = format!(
        "is `{cloud}`, and this `lamp` was built without it: here `lamp run` refuses the job"
    );
    let hint = format!(
        "build it with the feature `{cloud}` (it is there by default), or run it here with `--cloud local`"
    );
    Some(Finding::warning("machine.cloud", message).hint(hint))
}

/// The script or program is in the workdir, but an ignore file excludes it.
fn command_that_does_not_ship(loaded: &Loaded, survey: &Survey) -> Option<Finding> {
    let args = loaded.spec.command.plain_words();
    let is_relative = |word: &&&str| !word.starts_with(['/', '-']) && !word.is_empty();
    let is_made = |word: &&&str| {
        loaded.spec.setup.is_some() && word.contains("/bin/") && config::is_made_by_setup(word)
    };
    let named = args
        .iter()
        .take(2)
        .filter(is_relative)
        .filter(|word| !is_made(word))
        .find(|word| loaded.workdir.join(word).is_file())?;
    // A path outside the workdir has a finding already.
    if Path::new(named).components().any(|part| part == std::path::Component::ParentDir) {
        return None;
    }
    let plain: PathBuf = Path::new(named)
        .components()
        .filter(|part| !matches!(part, std::path::Component::CurDir))
        .collect();
    if survey.entries.iter().any(|entry| entry.path == plain && entry.kind != PackKind::Folder) {
        return None;
    }
    let message = format!("`{named}` is in the workdir but does not ship");
    Some(match loaded.spec.setup {
        Some(_) => Finding::warning("command", format!("{message}; `setup` has to bring it")),
        None => Finding::error("command", message).hint(does_not_come(&loaded.workdir, named)),
    })
}

fn does_not_come(workdir: &Path, named: &str) -> String {
    let environment = named
        .split_once("/bin/")
        .filter(|(folder, _)| workdir.join(folder).join("pyvenv.cfg").is_file());
    match environment {
        Some((folder, program)) => format!(
            "a virtual environment stays where it is: here, activate it (`. {folder}/bin/activate`) and name `{program}` alone; \
             elsewhere, a requirements.txt and `lamp init` make one on each machine"
        ),
        None => "an ignore file keeps it at home; add `!PATH` to .lampignore".to_owned(),
    }
}

impl From<PackError> for Fault {
    fn from(error: PackError) -> Self {
        let fault = Fault::from_error(ExitCode::UNREACHABLE, &error)
            .meaning("nothing was started or billed");
        match error {
            PackError::Changed { .. } => fault.hint("run it again when nothing writes to the workdir, or ignore the file in .lampignore"),
            PackError::Write { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                fault.hint("the disk of the state folder is full: free some space, or keep the state elsewhere, XDG_STATE_HOME=/a/larger/disk")
            }
            PackError::Read { .. } => {
                fault.hint("what cannot be read is named in .lampignore, or the workdir is another folder: `--workdir FOLDER`, `.` by default")
            }
            PackError::Write { .. } => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::KeySuggestion;

    #[test]
    fn workdir_is_known_unless_a_key_of_it_is_wrong() {
        let meant = |name: &str, tables: &[&str]| {
            let tables = tables.iter().map(|table| (*table).to_owned()).collect();
            FindingCause::UnknownKey(Some(KeySuggestion { name: name.into(), tables }))
        };
        for (path, cause, is_about) in [
            ("checkpoint.path", FindingCause::Other, true),
            ("workdri", meant("workdir", &[]), true),
            ("path", meant("path", &["checkpoint"]), true),
            ("command", FindingCause::WrongWorkdir, true),
            ("comand", meant("command", &[]), false),
            ("command", FindingCause::Other, false),
        ] {
            let hint = "is `workdir` right, or `outputs`?";
            let error = Finding::error(path, "is wrong").hint(hint).because(cause);
            assert_eq!(is_about_workdir(&error), is_about, "{error:?}");
        }
    }

    #[test]
    fn many_equal_findings_show_the_first_and_count_the_rest() {
        let links = (0..500)
            .map(|n| Finding::warning("workdir", format!("`{n}` is a link")).hint("follow it"));
        let large = Finding::error("workdir", "holds 9.8 GiB").hint("ignore some of it");
        let told = not_too_many(links.chain([large.clone()]));
        assert_eq!(told.len(), OF_A_KIND + 2);
        assert_eq!(told[OF_A_KIND].message, "and 490 more like these");
        assert_eq!(told.last(), Some(&large), "errors come last, where they are read");
    }

    #[test]
    fn unreadable_file_says_that_nothing_started_and_what_to_do() {
        let error = PackError::Read {
            path: "proc/1/cwd".into(),
            source: std::io::ErrorKind::PermissionDenied.into(),
        };
        let fault = Fault::from(error);
        assert_eq!(fault.meaning.as_deref(), Some("nothing was started or billed"));
        assert!(
            fault.hint.as_deref().is_some_and(
                |hint| hint.contains("--workdir FOLDER") && hint.contains(".lampignore")
            )
        );
    }
}
