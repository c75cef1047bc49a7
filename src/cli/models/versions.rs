//! `lamp models versions`: the versions of a model, each a folder that a training wrote.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::model_flags::{label, maker, say_ignored};
use crate::app::models::model_fetch::{cache_fault, fetch_origin, place_of_job_dir};
use crate::app::models::registry::{self, FoundVersion, ModelNotes, NewVersion};
use crate::app::models::version_config::{VersionConfig, version_config};
use crate::cli::ml_engine::document;
use crate::cli::ml_engine::gcloud_flags::GcloudFlags;
use crate::cli::output::progress::with_progress;
use crate::cli::shell::confirm::confirm;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::job::{ModelFramework, ModelName, ModelVersion, ServeCommand};
use crate::wire::{ScratchFolder, StoreHandle, random_letters, show_bytes};

#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub command: VersionsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum VersionsCommand {
    Create(Box<CreateVersion>),
    /// List the versions of a model
    List(VersionsOf),
    /// Show one version
    Describe(OneVersion),
    Delete(DeleteVersion),
    /// Choose the version that answers when none is named
    #[command(name = "set-default", alias = "set_default")]
    SetDefault(OneVersion),
}

/// Copy a model folder into the job root as a version, which then never changes
///
/// The folder holds a SavedModel (saved_model.pb), a scikit-learn model (model.joblib, model.pkl),
/// an XGBoost model (model.bst, model.json, model.ubj), a Keras model (model.keras) or an MLflow
/// model (MLmodel). Any other folder needs --serve-command. A missing model is made.
#[derive(Clone, Debug, ClapArgs)]
pub struct CreateVersion {
    pub version: ModelName,
    #[arg(long)]
    pub model: ModelName,
    /// The folder, or its URL in the job root
    #[arg(long, value_name = "FOLDER")]
    pub origin: Option<String>,
    /// tensorflow, keras, scikit-learn, xgboost, mlflow or custom [default: by its files]
    #[arg(long)]
    pub framework: Option<ModelFramework>,
    /// Kept for people: the Python that predicts decides
    #[arg(long, value_name = "VERSION")]
    pub runtime_version: Option<String>,
    /// Kept for people: the Python that predicts decides
    #[arg(long, value_name = "VERSION")]
    pub python_version: Option<String>,
    /// A version of ML Engine as YAML; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// KEY=VALUE, separated by commas
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub serve: ServeFlags,
    #[command(flatten)]
    pub google: GoogleMachine,
}

/// The user's own server.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ServeFlags {
    /// A line for `sh` that serves {model} on 127.0.0.1:{port}, in place of MLflow
    #[arg(long, value_name = "LINE")]
    pub serve_command: Option<String>,
    /// The server is ready when this answers, other than with 503
    #[arg(long, value_name = "PATH", default_value = "/v1/models/{name}")]
    pub health_route: String,
    /// Gets {"instances": [...]} by POST
    #[arg(long, value_name = "PATH", default_value = "/v1/models/{name}:predict")]
    pub predict_route: String,
}

impl ServeFlags {
    /// # Errors
    /// When the line names no port.
    pub fn command(&self) -> Result<Option<ServeCommand>, Fault> {
        let Some(line) = &self.serve_command else { return Ok(None) };
        if !line.contains("{port}") && !line.contains("LAMP_PORT") {
            return Err(Fault::new(
                ExitCode::USAGE,
                "the serve command lacks {port}: lamp cannot reach its server",
            )
            .hint("write {port} where the port stands; {model} is the folder"));
        }
        Ok(Some(ServeCommand {
            line: line.clone(),
            health_route: self.health_route.clone(),
            predict_route: self.predict_route.clone(),
        }))
    }
}

/// Flags of gcloud without a meaning here.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct GoogleMachine {
    #[arg(long, hide = true)]
    pub staging_bucket: Option<String>,
    #[arg(long, hide = true)]
    pub region: Option<String>,
    #[arg(long, hide = true)]
    pub machine_type: Option<String>,
    #[arg(long, hide = true)]
    pub accelerator: Option<String>,
    #[arg(long, hide = true)]
    pub service_account: Option<String>,
    #[arg(long = "async", hide = true)]
    pub is_async: bool,
}

impl GoogleMachine {
    fn say_what_is_ignored(&self, context: &Context) {
        say_ignored(
            context,
            &[
                ("--staging-bucket", self.staging_bucket.is_some()),
                ("--region", self.region.is_some()),
                ("--machine-type", self.machine_type.is_some()),
                ("--accelerator", self.accelerator.is_some()),
                ("--service-account", self.service_account.is_some()),
                ("--async", self.is_async),
            ],
        );
    }
}

#[derive(Clone, Debug, ClapArgs)]
pub struct VersionsOf {
    #[arg(long)]
    pub model: ModelName,
    #[arg(long, hide = true)]
    pub region: Option<String>,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct OneVersion {
    pub version: ModelName,
    #[arg(long)]
    pub model: ModelName,
    #[arg(long, hide = true)]
    pub region: Option<String>,
}

/// Delete a version with its files
#[derive(Clone, Debug, ClapArgs)]
pub struct DeleteVersion {
    #[command(flatten)]
    pub one: OneVersion,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// # Errors
/// As the command.
pub async fn run(
    command: &VersionsCommand,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    match command {
        VersionsCommand::Create(args) => create(args, gcloud, context).await,
        VersionsCommand::List(args) => list(args, gcloud, context).await,
        VersionsCommand::Describe(one) => describe(one, gcloud, context).await,
        VersionsCommand::Delete(args) => delete(args, context).await,
        VersionsCommand::SetDefault(one) => set_default(one, gcloud, context).await,
    }
}

async fn create(
    args: &CreateVersion,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    args.google.say_what_is_ignored(context);
    let config = config_of(args, context)?;
    let store = job_root::open(context).await?;
    let origin = args.origin.clone().or_else(|| config.origin.clone()).ok_or_else(|| {
        Fault::new(ExitCode::USAGE, "no folder was named")
            .hint("`--origin FOLDER`, or `deploymentUri` in the file of --config")
    })?;
    let scratch = scratch(context)?;
    let folder = folder_of(&store, &origin, &scratch, context).await?;
    let new = NewVersion {
        model: &args.model,
        version: &args.version,
        folder: &folder,
        origin: &origin,
        framework: framework_of(args, &config)?,
        serve: args.serve.command()?,
        notes: notes_of(args, &config),
        upload: hex::encode(random_letters()),
    };
    let copied = registry::create_version(&store, new, maker(context));
    let made = with_progress(context, || "copying the model".to_owned(), copied).await?;
    say_versions(context, &made.version);
    let printer = &context.printer;
    if made.made_model {
        printer.note(format!("Created model [{}].", args.model));
    }
    let bytes = show_bytes(made.version.bytes());
    let (version, model) = (&args.version, &args.model);
    printer.note(format!(
        "Created version [{version}] of model [{model}]: {}, {bytes}.",
        made.version.framework
    ));
    let printed = document_of(&made.version, made.is_default);
    document::print(printer, &gcloud.form(context), &printed);
    printer.hint(format!(
        "`lamp predict --model {model} --version {version} --json-instances FILE` asks it"
    ));
    Ok(ExitCode::SUCCESS)
}

/// A version that was asked for is never dropped in silence.
fn say_versions(context: &Context, version: &ModelVersion) {
    let said = [
        ("--runtime-version", &version.runtime_version),
        ("--python-version", &version.python_version),
    ];
    for (flag, value) in said {
        if let Some(value) = value {
            context.printer.note(format!(
                "{flag} {value} is kept for people: the Python that predicts decides"
            ));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "reads a file that the user names")]
fn config_of(args: &CreateVersion, context: &Context) -> Result<VersionConfig, Fault> {
    let Some(file) = &args.config else { return Ok(VersionConfig::default()) };
    let text = std::fs::read_to_string(context.current_dir.join(file)).map_err(|error| {
        Fault::new(ExitCode::NOT_FOUND, format!("cannot read `{}`", file.display())).because(&error)
    })?;
    let config = version_config(&text).map_err(|fault| {
        let what = format!("`{}`: {}", file.display(), fault.what);
        Fault::new(fault.code, what)
            .meaning("nothing was made")
            .hint(fault.hint.clone().unwrap_or_default())
    })?;
    if !config.ignored.is_empty() {
        let keys = config.ignored.join(", ");
        context.printer.note(format!("of the file, these have no meaning here: {keys}"));
    }
    Ok(config)
}

fn framework_of(
    args: &CreateVersion,
    config: &VersionConfig,
) -> Result<Option<ModelFramework>, Fault> {
    let read = |text: &String| {
        text.parse().map_err(|error: crate::job::ModelFrameworkError| {
            Fault::new(ExitCode::FINDINGS, error.to_string())
        })
    };
    match args.framework {
        Some(framework) => Ok(Some(framework)),
        None => config.framework.as_ref().map(read).transpose(),
    }
}

fn notes_of(args: &CreateVersion, config: &VersionConfig) -> ModelNotes {
    let either = |flag: &Option<String>, file: &Option<String>| flag.clone().or(file.clone());
    let mut labels = config.labels.clone();
    labels.extend(args.labels.iter().cloned());
    ModelNotes {
        description: either(&args.description, &config.description),
        labels,
        runtime_version: either(&args.runtime_version, &config.runtime_version),
        python_version: either(&args.python_version, &config.python_version),
    }
}

/// A private folder in the cache.
pub fn scratch(context: &Context) -> Result<ScratchFolder, Fault> {
    ScratchFolder::new(&cache(context)?).map_err(|error| cache_fault(&error))
}

pub fn cache(context: &Context) -> Result<PathBuf, Fault> {
    context.environment.cache_dir().ok_or_else(|| {
        Fault::new(ExitCode::UNREACHABLE, "nothing says where the cache is")
            .hint("set HOME, or XDG_CACHE_HOME")
    })
}

async fn folder_of(
    store: &StoreHandle,
    origin: &str,
    scratch: &ScratchFolder,
    context: &Context,
) -> Result<PathBuf, Fault> {
    let place = place_of_job_dir(store, origin).await?;
    if let Some(place) = &place {
        context.printer.note(format!("`{origin}` is kept in the job root: {place}"));
    }
    let origin = place.as_deref().unwrap_or(origin);
    if let Some(folder) = fetch_origin(store, origin, scratch).await? {
        return Ok(folder);
    }
    if let Some(folder) = origin.strip_prefix("file://") {
        return Ok(PathBuf::from(folder));
    }
    if origin.contains("://") {
        let what = format!("`{origin}` is not in the job root {}", store.url());
        return Err(Fault::new(ExitCode::USAGE, what)
            .meaning("nothing was made")
            .hint("no job here had it as `--job-dir`; fetch the folder, then name it"));
    }
    Ok(context.current_dir.join(Path::new(origin)))
}

async fn list(
    args: &VersionsOf,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let versions = registry::versions(&store, &args.model).await?;
    let documents: Vec<Value> =
        versions.iter().map(|found| document_of(&found.record, found.is_default)).collect();
    if document::print(&context.printer, &gcloud.form(context), &json!(documents)) {
        return Ok(ExitCode::SUCCESS);
    }
    if versions.is_empty() {
        context.printer.note("Listed 0 items.");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |FoundVersion { record, .. }: &FoundVersion| {
        vec![record.version.to_string(), record.origin.clone(), READY.to_owned()]
    };
    let rows: Vec<Vec<String>> = versions.iter().map(row).collect();
    context.printer.line(render_table(&["name", "deployment_uri", "state"], &rows, &[]));
    Ok(ExitCode::SUCCESS)
}

/// A version has its record only when all its files are there.
const READY: &str = "READY";

async fn describe(
    one: &OneVersion,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let found = registry::find_version(&store, &one.model, Some(&one.version)).await?;
    document::show(context, gcloud, &document_of(&found.record, found.is_default));
    Ok(ExitCode::SUCCESS)
}

async fn set_default(
    one: &OneVersion,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let version = registry::set_default(&store, &one.model, &one.version, maker(context)).await?;
    document::show(context, gcloud, &document_of(&version, true));
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: &DeleteVersion, context: &Context) -> Result<ExitCode, Fault> {
    let OneVersion { version, model, .. } = &args.one;
    let store = job_root::open_existing(context).await?;
    let found = registry::find_version(&store, model, Some(version)).await?;
    let bytes = show_bytes(found.record.bytes());
    let what = format!("this deletes version `{version}` of model `{model}`, {bytes}");
    confirm(context, &what, args.yes || context.printer.is_quiet(), "nothing was deleted")?;
    registry::delete_version(&store, model, version).await?;
    if context.is_machine_output() {
        context.printer.json(&json!({ "name": version, "deleted": true }));
    }
    context.printer.note(format!("Deleted version [{version}] of model [{model}]."));
    Ok(ExitCode::SUCCESS)
}

fn document_of(version: &ModelVersion, is_default: bool) -> Value {
    let mut document = json!({
        "name": version.version,
        "deploymentUri": version.origin,
        "framework": version.framework,
        "createTime": version.created,
        "owner": version.by,
        "isDefault": is_default,
        "state": READY,
        "bytes": version.bytes(),
        "files": version.files.iter().map(|file| &file.path).collect::<Vec<_>>(),
    });
    let texts = [
        ("runtimeVersion", &version.runtime_version),
        ("pythonVersion", &version.python_version),
        ("description", &version.description),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            document[key] = json!(text);
        }
    }
    if !version.labels.is_empty() {
        document["labels"] = json!(version.labels);
    }
    if let Some(serve) = &version.serve {
        document["serveCommand"] = json!(serve.line);
    }
    document
}
