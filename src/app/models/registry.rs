//! The models of a job root: make, list, describe and delete them and their versions.

use std::collections::BTreeMap;
use std::path::Path;

use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use super::model_format::{ModelFormatError, framework_of, known_files};
use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::app::record_errors::record_fault;
use crate::config::{closest, did_you_mean};
use crate::job::{
    DefaultVersion, ModelFile, ModelFramework, ModelName, ModelRecord, ModelVersion, RECORD_FORMAT,
    ServeCommand,
};
use crate::jobdir::{self, JobDirError, ModelDir};
use crate::wire::{Created, ModelFolderError, StoreError, StoreHandle, model_files};

/// The owner that makes a record, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    pub owner: &'a str,
    pub now: Timestamp,
}

impl Maker<'_> {
    fn default_of(&self, version: &ModelName) -> DefaultVersion {
        DefaultVersion {
            format: RECORD_FORMAT,
            version: version.clone(),
            at: self.now,
            by: self.owner.to_owned(),
        }
    }
}

/// A model with the name of its default version.
#[derive(Clone, Debug)]
pub struct ListedModel {
    pub model: ModelName,
    pub record: Option<ModelRecord>,
    pub default: Option<ModelName>,
}

/// The notes of a user about a new model or version, for people.
#[derive(Clone, Debug, Default)]
pub struct ModelNotes {
    pub description: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub runtime_version: Option<String>,
    pub python_version: Option<String>,
}

/// The request of `versions create`.
#[derive(Clone, Debug)]
pub struct NewVersion<'a> {
    pub model: &'a ModelName,
    pub version: &'a ModelName,
    pub folder: &'a Path,
    /// The folder as the user wrote it.
    pub origin: &'a str,
    pub framework: Option<ModelFramework>,
    pub serve: Option<ServeCommand>,
    pub notes: ModelNotes,
    /// Twelve hexadecimal digits that nothing else has.
    pub upload: String,
}

/// The new version, and what else came to be.
#[derive(Clone, Debug)]
pub struct MadeVersion {
    pub version: ModelVersion,
    pub made_model: bool,
    pub is_default: bool,
}

/// Files that are copied at once. More hardly go faster, and each large one has parts of its own.
pub const FILES_IN_FLIGHT: usize = 8;

fn silent(error: StoreError) -> Fault {
    record_fault(&JobDirError::Store(error))
}

fn unread(error: JobDirError) -> Fault {
    record_fault(&error)
}

/// All models of a job root, in order.
///
/// # Errors
/// When the job root does not answer.
pub async fn list(store: &StoreHandle) -> Result<Vec<ListedModel>, Fault> {
    let dirs = jobdir::models(store).await.map_err(silent)?;
    let listed = try_join_all(dirs.iter().map(listed)).await.map_err(unread)?;
    // A folder without a record was made by no `models create`, or is being removed.
    Ok(listed.into_iter().filter(|model| model.record.is_some()).collect())
}

async fn listed(dir: &ModelDir) -> Result<ListedModel, JobDirError> {
    let record = jobdir::unless_damaged(dir.record().await)?;
    let default = jobdir::unless_damaged(dir.default_version().await)?;
    let default = default.map(|default| default.version);
    Ok(ListedModel { model: dir.model().clone(), record, default })
}

/// # Errors
/// When the model exists, or the job root does not answer.
pub async fn create_model(
    store: &StoreHandle,
    model: &ModelName,
    notes: ModelNotes,
    maker: Maker<'_>,
) -> Result<ModelRecord, Fault> {
    let record = model_record(model, notes, maker);
    let dir = ModelDir::new(store.clone(), model.clone());
    match dir.create(&record).await.map_err(unread)? {
        Created::New => Ok(record),
        Created::Exists => Err(Fault::new(
            ExitCode::REFUSED,
            format!("model `{model}` exists already"),
        )
        .meaning("nothing was changed")
        .hint(format!("`lamp models describe {model}` shows it; a version is added by `lamp models versions create`"))),
    }
}

fn model_record(model: &ModelName, notes: ModelNotes, maker: Maker<'_>) -> ModelRecord {
    ModelRecord {
        format: RECORD_FORMAT,
        model: model.clone(),
        created: maker.now,
        by: maker.owner.to_owned(),
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        description: notes.description,
        labels: notes.labels,
    }
}

/// The model of that name.
///
/// # Errors
/// When it is missing, or the job root is unreachable.
pub async fn find_model(store: &StoreHandle, model: &ModelName) -> Result<ListedModel, Fault> {
    let dir = ModelDir::new(store.clone(), model.clone());
    let found = listed(&dir).await.map_err(unread)?;
    if found.record.is_some() {
        return Ok(found);
    }
    let names: Vec<String> =
        list(store).await?.iter().map(|known| known.model.to_string()).collect();
    let fault = Fault::new(ExitCode::NOT_FOUND, format!("no model `{model}` in {}", store.url()));
    Err(fault.hint(meant(model.as_str(), &names, "`lamp models list` lists all")))
}

/// A version, and whether it answers when none is named.
#[derive(Clone, Debug)]
pub struct FoundVersion {
    pub record: ModelVersion,
    pub is_default: bool,
}

/// The version of that name; without a name, the default version.
///
/// # Errors
/// When it is missing, or the job root is unreachable.
pub async fn find_version(
    store: &StoreHandle,
    model: &ModelName,
    version: Option<&ModelName>,
) -> Result<FoundVersion, Fault> {
    let default = find_model(store, model).await?.default;
    let dir = ModelDir::new(store.clone(), model.clone());
    let Some(version) = version.or(default.as_ref()) else {
        return Err(Fault::new(ExitCode::NOT_FOUND, format!("model `{model}` has no version"))
            .hint(format!(
                "`lamp models versions create v1 --model {model} --origin FOLDER` adds one"
            )));
    };
    if let Some(record) = dir.version(version).await.map_err(unread)? {
        return Ok(FoundVersion { record, is_default: default.as_ref() == Some(version) });
    }
    let names: Vec<String> =
        dir.versions().await.map_err(silent)?.iter().map(ModelName::to_string).collect();
    let all = format!("`lamp models versions list --model {model}` lists all");
    let what = format!("model `{model}` has no version `{version}`");
    Err(Fault::new(ExitCode::NOT_FOUND, what).hint(meant(version.as_str(), &names, &all)))
}

fn meant(word: &str, names: &[String], all: &str) -> String {
    match closest(word, names.iter().map(String::as_str)) {
        Some(name) => format!("{} {all}", did_you_mean(name)),
        None => all.to_owned(),
    }
}

/// The complete versions of a model, in order.
///
/// # Errors
/// When the model is missing, or the job root is unreachable.
pub async fn versions(store: &StoreHandle, model: &ModelName) -> Result<Vec<FoundVersion>, Fault> {
    let default = find_model(store, model).await?.default;
    let dir = ModelDir::new(store.clone(), model.clone());
    let names = dir.versions().await.map_err(silent)?;
    let read = names.iter().map(|name| dir.version(name));
    let read = try_join_all(read).await.map_err(unread)?;
    let found = read.into_iter().flatten().map(|record| FoundVersion {
        is_default: default.as_ref() == Some(&record.version),
        record,
    });
    Ok(found.collect())
}

/// Copies a folder into the job root, and then makes the record of the version. The model is made
/// if it is missing.
///
/// # Errors
/// When the version exists, the folder lacks a model, or the job root is unreachable.
pub async fn create_version(
    store: &StoreHandle,
    new: NewVersion<'_>,
    maker: Maker<'_>,
) -> Result<MadeVersion, Fault> {
    let files = model_files(new.folder).map_err(|error| folder_fault(&error))?;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let framework = framework(&paths, new.framework, new.serve.is_some(), new.origin)?;
    let dir = ModelDir::new(store.clone(), new.model.clone());
    if dir.version(new.version).await.map_err(unread)?.is_some() {
        return Err(exists(&new));
    }
    let (model, notes) = (new.model, ModelNotes::default());
    let made = dir.create(&model_record(model, notes, maker)).await.map_err(unread)?;
    let (dir_of, new_of) = (&dir, &new);
    let puts = paths.into_iter().map(|path| async move {
        let from = new_of.folder.join(path);
        dir_of.put_file(new_of.version, &new_of.upload, path, &from).await
    });
    let stored = stream::iter(puts).buffered(FILES_IN_FLIGHT).try_collect().await;
    let stored: Vec<ModelFile> = stored.map_err(silent)?;
    let version = version_record(&new, framework, stored, maker);
    if dir.create_version(&version).await.map_err(unread)? == Created::Exists {
        dir.remove_upload(new.version, &new.upload).await.map_err(silent)?;
        return Err(exists(&new));
    }
    let default = dir.create_default(&maker.default_of(new.version)).await.map_err(unread)?;
    Ok(MadeVersion {
        version,
        made_model: made == Created::New,
        is_default: default == Created::New,
    })
}

fn version_record(
    new: &NewVersion<'_>,
    framework: ModelFramework,
    files: Vec<ModelFile>,
    maker: Maker<'_>,
) -> ModelVersion {
    ModelVersion {
        format: RECORD_FORMAT,
        model: new.model.clone(),
        version: new.version.clone(),
        created: maker.now,
        by: maker.owner.to_owned(),
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        origin: new.origin.to_owned(),
        framework,
        serve: new.serve.clone(),
        runtime_version: new.notes.runtime_version.clone(),
        python_version: new.notes.python_version.clone(),
        description: new.notes.description.clone(),
        labels: new.notes.labels.clone(),
        upload: new.upload.clone(),
        files,
    }
}

fn exists(new: &NewVersion<'_>) -> Fault {
    let what = format!("version `{}` of model `{}` exists already", new.version, new.model);
    Fault::new(ExitCode::REFUSED, what)
        .meaning("a version never changes")
        .hint("take a new name, like the date")
}

/// The framework of a folder. With a serve command, any folder will do.
///
/// # Errors
/// When no server knows it.
pub fn framework(
    paths: &[&str],
    said: Option<ModelFramework>,
    has_command: bool,
    shown: &str,
) -> Result<ModelFramework, Fault> {
    match framework_of(paths, said) {
        Ok(ModelFramework::Custom) if !has_command => {
            Err(Fault::new(ExitCode::FINDINGS, "the framework `custom` needs a server")
                .hint("`--serve-command LINE` starts it, with {port} and {model} in the line"))
        }
        Ok(framework) => Ok(framework),
        Err(_) if has_command && said.is_none() => Ok(ModelFramework::Custom),
        Err(error) => Err(format_fault(&error, shown)),
    }
}

fn format_fault(error: &ModelFormatError, shown: &str) -> Fault {
    let fault = Fault::new(ExitCode::FINDINGS, format!("`{shown}`: {error}"));
    match error {
        ModelFormatError::Below { folder, .. } => {
            fault.hint(format!("name that folder: `{}/{folder}`", shown.trim_end_matches('/')))
        }
        ModelFormatError::Several { first, second } => {
            fault.hint(format!("say which: `--framework {first}` or `--framework {second}`"))
        }
        _ => fault.hint(format!(
            "looked for: {}; `--serve-command LINE` serves any other",
            known_files()
        )),
    }
}

pub fn folder_fault(error: &ModelFolderError) -> Fault {
    let code = match error {
        ModelFolderError::Missing(_) => ExitCode::NOT_FOUND,
        ModelFolderError::Read { .. } => ExitCode::UNREACHABLE,
        _ => ExitCode::FINDINGS,
    };
    let fault = Fault::from_error(code, error);
    match error {
        ModelFolderError::IsFile(path) => {
            let folder = path.parent().map(Path::display);
            fault.hint(
                folder.map_or_else(String::new, |folder| format!("name its folder: `{folder}`")),
            )
        }
        ModelFolderError::FolderLink(_) => fault.hint("copy the folder itself to its place"),
        _ => fault.hint("the folder is what the training wrote, with the file of the model in it"),
    }
}

/// # Errors
/// When the version is missing, or the job root is unreachable.
pub async fn set_default(
    store: &StoreHandle,
    model: &ModelName,
    version: &ModelName,
    maker: Maker<'_>,
) -> Result<ModelVersion, Fault> {
    let found = find_version(store, model, Some(version)).await?.record;
    let dir = ModelDir::new(store.clone(), model.clone());
    dir.put_default(&maker.default_of(version)).await.map_err(unread)?;
    Ok(found)
}

/// Removes a version with its files. The default version goes last.
///
/// # Errors
/// When it is the default of other versions, is missing, or the job root does not answer.
pub async fn delete_version(
    store: &StoreHandle,
    model: &ModelName,
    version: &ModelName,
) -> Result<ModelVersion, Fault> {
    let found = find_version(store, model, Some(version)).await?;
    let dir = ModelDir::new(store.clone(), model.clone());
    if found.is_default {
        let others = dir.versions().await.map_err(silent)?.len() > 1;
        if others {
            let what = format!("version `{version}` is the default of model `{model}`");
            return Err(Fault::new(ExitCode::REFUSED, what)
                .meaning("nothing was changed")
                .hint(format!("`lamp models versions set-default OTHER --model {model}` first")));
        }
        dir.forget_default().await.map_err(silent)?;
    }
    dir.remove_version(version).await.map_err(silent)?;
    Ok(found.record)
}

/// # Errors
/// When the model has versions, is missing, or the job root does not answer.
pub async fn delete_model(store: &StoreHandle, model: &ModelName) -> Result<(), Fault> {
    find_model(store, model).await?;
    let dir = ModelDir::new(store.clone(), model.clone());
    let versions = dir.versions().await.map_err(silent)?;
    if let Some(first) = versions.first() {
        let what = format!("model `{model}` has versions: {}", names(&versions));
        return Err(Fault::new(ExitCode::REFUSED, what).meaning("nothing was changed").hint(
            format!("delete them first: `lamp models versions delete {first} --model {model}`"),
        ));
    }
    dir.remove().await.map_err(silent)
}

fn names(versions: &[ModelName]) -> String {
    versions.iter().map(ModelName::as_str).collect::<Vec<_>>().join(", ")
}
