//! `lamp import`: writes a job file from one of SkyPilot, dstack or ML Engine.
//!
//! It never overwrites a file. Then it reads the new file back as `lamp check` does. Not here: what
//! the keys of the other tools become (`app::import`).

use std::io;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde_json::json;

use super::init::write_new;
use crate::app::import::{ImportError, ImportNote, Imported, SourceFormat, import_job};
use crate::app::text::counted;
use crate::cli::output::printer::shell_word;
use crate::cli::{Context, ExitCode, Fault, Format};
use crate::config::{self, JOB_FILE, JobFile};
use crate::job::JobId;

/// Write a job file from one of SkyPilot, dstack or ML Engine
///
/// Says line by line what could not be carried over. Starts nothing.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The job file of the other tool (YAML)
    pub file: PathBuf,

    /// `sky`, `dstack` or `mlengine` [default: by the keys of the file]
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<SourceFormat>,

    /// The job file to write
    #[arg(long, value_name = "FILE", default_value = JOB_FILE)]
    pub to: PathBuf,
}

/// Larger files are no job files. The limit keeps a wrong path from filling the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// # Errors
/// Fails when the file is missing or holds no job, or the new file exists.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let source = context.current_dir.join(&args.file);
    let text = read(&source).map_err(|error| unread(&error, &args.file))?;
    let target = context.current_dir.join(&args.to);
    let base = target.parent().unwrap_or(&context.current_dir).to_owned();
    let has_folder = |folder: &str| base.join(folder).is_dir();
    let imported = import_job(&text, args.from, &name_of(&source), has_folder)
        .map_err(|error| refused(&error, &args.file))?;
    let shown = config::shown(&target, &context.current_dir);
    let shown = shown.strip_prefix("./").unwrap_or(&shown).to_owned();
    write_new(&target, &imported.text).map_err(|error| unwritten(&error, &shown))?;
    let flags = JobFile::default();
    let inputs = context.job_inputs(&flags);
    let findings = config::read_job(Some(&target), &inputs)?.findings;
    if context.printer.format() == Format::Text {
        tell(context, &imported, &shown);
        context.printer.findings(Some(&shown), &findings);
    } else {
        let word = shell_word(&shown);
        context.printer.json(&json!({
            "file": shown,
            "from": imported.format,
            "notes": imported.notes,
            "findings": findings,
            "next": [format!("lamp check {word}"), format!("lamp plan {word}")],
        }));
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "reads a file that the user names")]
fn read(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    std::fs::read_to_string(path)
}

/// The file without its ending; for `.dstack.yml`, its folder.
fn name_of(path: &Path) -> String {
    let text =
        |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let stem = text(path.file_name()).unwrap_or_default();
    let stem = stem.split('.').find(|part| !part.is_empty()).unwrap_or_default();
    let is_told = !["dstack", "config", "task", "sky", "job"].contains(&stem);
    let folder = || text(path.parent().and_then(Path::file_name));
    JobId::slug(&if is_told { stem.to_owned() } else { folder().unwrap_or_default() })
}

fn tell(context: &Context, imported: &Imported, shown: &str) {
    let printer = &context.printer;
    printer.line(format!("wrote {shown} from a file of {}", imported.format));
    let line = |note: &ImportNote| {
        let at = note.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let decide = if note.decide { "decide: " } else { "" };
        format!("{at}{decide}{}: {}", note.key, note.text)
    };
    imported.notes.iter().for_each(|note| printer.note(line(note)));
    let open = imported.notes.iter().filter(|note| note.decide).count() as u64;
    let word = shell_word(shown);
    printer.hint(format!(
        "{} to decide: edit {word}, then `lamp check {word}` and `lamp plan {word}`",
        counted(open, "value"),
    ));
}

fn unread(error: &io::Error, file: &Path) -> Fault {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ExitCode::NOT_FOUND,
        _ => ExitCode::UNREACHABLE,
    };
    Fault::new(code, format!("cannot read `{}`", file.display()))
        .because(error)
        .meaning("nothing was written")
        .hint("`lamp import FILE` takes the YAML file of SkyPilot, dstack or ML Engine")
}

fn refused(error: &ImportError, file: &Path) -> Fault {
    let fault = Fault::from_error(ExitCode::FINDINGS, error).meaning("nothing was written");
    let word = shell_word(&file.display().to_string());
    fault.hint(match error {
        ImportError::Yaml(_) => format!("mend `{word}`: the tool that it is for reads YAML"),
        ImportError::Unknown => {
            format!("name the tool that it is for: `lamp import {word} --from sky|dstack|mlengine`")
        }
        ImportError::OtherTool { found, .. } => {
            format!("`lamp import {word} --from {}` reads it", found.word())
        }
        ImportError::NotOf(_) => {
            "a job of SkyPilot has `run` or `resources`, one of dstack `type`, one of ML Engine `trainingInput`".to_owned()
        }
        ImportError::NotAJob(_) => "import the file of a task in its place".to_owned(),
    })
}

fn unwritten(error: &io::Error, shown: &str) -> Fault {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Fault::new(ExitCode::REFUSED, format!("`{shown}` is already there"))
            .meaning("nothing was written")
            .hint("`--to FILE` names another file");
    }
    Fault::new(ExitCode::UNREACHABLE, format!("cannot write `{shown}`")).because(error)
}
