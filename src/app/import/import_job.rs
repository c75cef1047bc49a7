//! Recognises the format of a foreign job file, and imports it.

use super::imported_job::{ImportNote, ImportedJob};
use super::source_format::SourceFormat;
use super::yaml_node::{YamlNode, documents};
use super::{dstack, job_text, ml_engine, skypilot};

/// A job file of ours, and what it does not say.
#[derive(Debug)]
pub struct Imported {
    pub format: SourceFormat,
    pub text: String,
    pub notes: Vec<ImportNote>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file is no YAML")]
    Yaml(#[source] saphyr::ScanError),
    #[error("no job of SkyPilot, dstack or ML Engine is in the file")]
    Unknown,
    #[error("the file is for {found}, not for {asked}")]
    OtherTool { asked: SourceFormat, found: SourceFormat },
    #[error("no job of {0} is in the file")]
    NotOf(SourceFormat),
    #[error("the file describes {0}")]
    NotAJob(&'static str),
}

/// `name`: the name of a job whose file has none. `has_folder`: whether a workdir is there.
///
/// # Errors
/// Fails when the text is invalid YAML, or lacks a job.
pub fn import_job(
    text: &str,
    from: Option<SourceFormat>,
    name: &str,
    has_folder: impl Fn(&str) -> bool,
) -> Result<Imported, ImportError> {
    let documents = documents(text).map_err(ImportError::Yaml)?;
    let found = |document: &YamlNode| format_of(document);
    // A pipeline begins with a document that only has its name.
    let at = documents.iter().position(|document| found(document).is_some());
    let unknown = || from.map_or(ImportError::Unknown, ImportError::NotOf);
    let at = at.ok_or_else(unknown)?;
    let document = &documents[at];
    let format = found(document).ok_or_else(unknown)?;
    if let Some(asked) = from.filter(|asked| *asked != format) {
        return Err(ImportError::OtherTool { asked, found: format });
    }
    let mut job = match format {
        SourceFormat::Sky => skypilot::read(document),
        SourceFormat::Dstack => match dstack::not_a_job(document) {
            Some(what) => return Err(ImportError::NotAJob(what)),
            None => dstack::read(document),
        },
        SourceFormat::MlEngine => ml_engine::read(document),
    };
    let others = documents.iter().skip(at + 1);
    others
        .for_each(|other| job.note(other.line, "---", "a further task: give it a file of its own"));
    complete(&mut job, name, has_folder);
    job.notes.sort_by_key(|note| note.line);
    Ok(Imported { format, text: job_text::job_file(&job, format), notes: job.notes })
}

fn format_of(document: &YamlNode) -> Option<SourceFormat> {
    let has = |key: &str| document.get(key).is_some();
    let kinds = ["task", "service", "dev-environment", "fleet", "volume", "gateway"];
    if has("trainingInput") {
        Some(SourceFormat::MlEngine)
    } else if document.text_of("type").is_some_and(|kind| kinds.contains(&kind)) {
        Some(SourceFormat::Dstack)
    } else if ["apiVersion", "services", "jobs"].iter().any(|key| has(key)) {
        None
    } else {
        let keys = ["run", "setup", "resources", "file_mounts"];
        keys.iter().any(|key| has(key)).then_some(SourceFormat::Sky)
    }
}

/// Fills in or names the missing values of a job that buys a machine.
fn complete(job: &mut ImportedJob, name: &str, has_folder: impl Fn(&str) -> bool) {
    job.name.get_or_insert_with(|| name.to_owned());
    if job.script.as_deref().is_none_or(|script| script.trim().is_empty()) && job.args.is_empty() {
        job.script = Some("sleep infinity\n".to_owned());
        job.decide(None, "command", "the file runs nothing: the job only waits until it is idle");
    }
    if job.max_runtime.is_none() {
        job.decide(None, "max_runtime", "the file has no end: one attempt may run for 24 hours");
    }
    if job.gpus.is_none() && job.instance_types.is_empty() {
        job.decide(None, "gpus", "the file asks for no GPU: the cheapest machine fits");
    }
    if let Some(folder) = job.workdir.take_if(|folder| !has_folder(folder)) {
        job.decide(
            None,
            "workdir",
            format!("`{folder}` is no folder here: the folder of the job file is shipped"),
        );
    }
}
