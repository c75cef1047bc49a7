//! `lamp predict` and `lamp local predict`: asks a model once, on this workstation.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::model_flags::say_ignored;
use super::versions::{ServeFlags, cache, scratch};
use crate::app::models::instances::{INSTANCES_MAX, InstanceForm, InstancesError, instances};
use crate::app::models::model_fetch::fetch_version;
use crate::app::models::model_server::{ServedAnswer, ServedModel, ServingHost, ask_once};
use crate::app::models::prediction_table::{PredictionTable, predictions, table};
use crate::app::models::registry;
use crate::cli::ml_engine::document;
use crate::cli::ml_engine::gcloud_flags::{GcloudFlags, GcloudFormat};
use crate::cli::output::progress::with_progress;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::job::{ModelFramework, ModelName};
use crate::market::Span;
use crate::wire::{ScratchFolder, model_files, read_instances};

/// Ask a model of the job root for predictions
///
/// A server starts on this workstation, on loopback, answers once, and ends. It is MLflow's
/// `models serve`, run by your Python, or the serve command of the version. A model may run code
/// when it is loaded: ask only models that you trust.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[arg(long)]
    pub model: ModelName,
    /// [default: the default version of the model]
    #[arg(long)]
    pub version: Option<ModelName>,
    #[command(flatten)]
    pub question: QuestionFlags,
    #[arg(long, hide = true)]
    pub region: Option<String>,
}

/// Ask a model folder for predictions, without a job root
///
/// As `lamp predict`, with the folder that a training wrote.
#[derive(Clone, Debug, ClapArgs)]
pub struct LocalArgs {
    #[arg(long, value_name = "FOLDER")]
    pub model_dir: PathBuf,
    /// tensorflow, keras, scikit-learn, xgboost, mlflow or custom [default: by its files]
    #[arg(long)]
    pub framework: Option<ModelFramework>,
    #[command(flatten)]
    pub question: QuestionFlags,
    #[command(flatten)]
    pub serve: ServeFlags,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct QuestionFlags {
    #[command(flatten)]
    pub input: InstanceFlags,
    /// The signature of a SavedModel [default: serving_default]
    #[arg(long, value_name = "NAME")]
    pub signature_name: Option<String>,
    /// The Python that has MLflow [default: the active environment, else python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// How long the model may take to load and answer
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub timeout: Span,
}

#[derive(Clone, Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub struct InstanceFlags {
    /// A file with one JSON value a line; `-`: standard input
    #[arg(long, value_name = "FILE")]
    pub json_instances: Option<PathBuf>,
    /// A file with one text a line
    #[arg(long, value_name = "FILE")]
    pub text_instances: Option<PathBuf>,
    /// A file with {"instances": [...]}
    #[arg(long, value_name = "FILE")]
    pub json_request: Option<PathBuf>,
}

impl InstanceFlags {
    fn chosen(&self) -> Option<(&Path, InstanceForm)> {
        let one = |file: &'_ Option<PathBuf>| file.is_some();
        let (file, form) = if one(&self.json_instances) {
            (&self.json_instances, InstanceForm::JsonLines)
        } else if one(&self.text_instances) {
            (&self.text_instances, InstanceForm::TextLines)
        } else {
            (&self.json_request, InstanceForm::Request)
        };
        file.as_deref().map(|file| (file, form))
    }

    fn read(&self, context: &Context, max: Option<usize>) -> Result<Vec<Value>, Fault> {
        let Some((file, form)) = self.chosen() else {
            return Err(Fault::new(ExitCode::USAGE, "no instances were named")
                .hint("`--json-instances FILE` has one JSON value a line"));
        };
        let path =
            if file == Path::new("-") { file.to_owned() } else { context.current_dir.join(file) };
        let bytes = read_instances(&path).map_err(|error| {
            Fault::new(ExitCode::NOT_FOUND, format!("cannot read `{}`", file.display()))
                .because(&error)
        })?;
        instances(&bytes, form, max).map_err(|error| wrong(file, &error))
    }
}

fn wrong(file: &Path, error: &InstancesError) -> Fault {
    let what = format!("`{}`: {error}", file.display());
    let fault = Fault::new(ExitCode::FINDINGS, what).meaning("no model was asked");
    match error {
        InstancesError::TooMany { .. } => {
            fault.hint(format!("`split -l {INSTANCES_MAX}` makes files of {INSTANCES_MAX} lines"))
        }
        InstancesError::NotRequest(_) => fault.hint("write {\"instances\": [...]}"),
        _ => fault.hint("each line is one instance in JSON, like [5.1, 3.5, 1.4, 0.2]"),
    }
}

/// # Errors
/// When the instances are wrong, the model is missing, or its server fails.
pub async fn run(args: &Args, gcloud: &GcloudFlags, context: &Context) -> Result<ExitCode, Fault> {
    say_ignored(context, &[("--region", args.region.is_some())]);
    let instances = args.question.input.read(context, Some(INSTANCES_MAX))?;
    let store = job_root::open_existing(context).await?;
    let version = registry::find_version(&store, &args.model, args.version.as_ref()).await?.record;
    if version.by != context.config.user.owner {
        let (by, owner) = (&version.by, &context.config.user.owner);
        context.printer.warn(format!(
            "`{by}` made this version, and you are `{owner}`: its files can run code here"
        ));
    }
    let scratch = scratch(context)?;
    let cache = cache(context)?;
    let fetch = fetch_version(&store, &version, &scratch, &cache);
    let folder = with_progress(context, || "fetching the model".to_owned(), fetch).await?;
    let model = ServedModel {
        folder: &folder,
        framework: version.framework,
        serve: version.serve.as_ref(),
        name: args.model.as_str(),
        signature: args.question.signature_name.as_deref(),
    };
    let answer = ask(context, &args.question, &scratch, &model, &instances).await?;
    print(context, gcloud, &answer, instances.len())
}

/// # Errors
/// When the instances are wrong, the folder holds no model, or its server fails.
pub async fn run_local(
    args: &LocalArgs,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let instances = args.question.input.read(context, None)?;
    let folder = context.current_dir.join(&args.model_dir);
    let files = model_files(&folder).map_err(|error| registry::folder_fault(&error))?;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let serve = args.serve.command()?;
    let shown = args.model_dir.display().to_string();
    let framework = registry::framework(&paths, args.framework, serve.is_some(), &shown)?;
    let model = ServedModel {
        folder: &folder,
        framework,
        serve: serve.as_ref(),
        name: "model",
        signature: args.question.signature_name.as_deref(),
    };
    let answer = ask(context, &args.question, &scratch(context)?, &model, &instances).await?;
    print(context, gcloud, &answer, instances.len())
}

/// `has_command`: a command of the user serves it, and gets the name in the request.
fn has_signatures(framework: ModelFramework, has_command: bool) -> bool {
    has_command || framework == ModelFramework::Tensorflow
}

async fn ask(
    context: &Context,
    question: &QuestionFlags,
    scratch: &ScratchFolder,
    model: &ServedModel<'_>,
    instances: &[Value],
) -> Result<ServedAnswer, Fault> {
    let active = context.environment.python.as_ref().map(|folder| folder.join("bin/python"));
    let python = match &question.python {
        Some(python) if python.components().count() > 1 => context.current_dir.join(python),
        Some(python) => python.clone(),
        None => active.filter(|python| python.is_file()).unwrap_or_else(|| "python3".into()),
    };
    let path = context.environment.path.clone().unwrap_or_default();
    let host = ServingHost {
        python: &python,
        search_path: &path.to_string_lossy(),
        scratch,
        clock: &context.clock,
        patience: question.timeout.duration(),
    };
    if model.signature.is_some() && !has_signatures(model.framework, model.serve.is_some()) {
        let told = "--signature-name has no meaning here: only a SavedModel has signatures";
        context.printer.note(told);
    }
    let server = model.serve.map_or("MLflow", |_| "its serve command");
    let told = || format!("{server} loads the {} model on this workstation", model.framework);
    let answer = ask_once(&host, model, instances, ctrl_c::left());
    let answer = with_progress(context, told, answer).await?;
    answer.warnings.iter().for_each(|warning| context.printer.warn(warning));
    Ok(answer)
}

fn print(
    context: &Context,
    gcloud: &GcloudFlags,
    answer: &ServedAnswer,
    asked: usize,
) -> Result<ExitCode, Fault> {
    let form = gcloud.form(context);
    let Some(rows) = predictions(&answer.body, asked) else {
        // gcloud prints an answer of another shape as it is.
        let form = if form == GcloudFormat::Table { GcloudFormat::Json } else { form };
        document::print(&context.printer, &form, &answer.body);
        return Ok(ExitCode::SUCCESS);
    };
    if document::print(&context.printer, &form, &json!({ "predictions": rows })) {
        return Ok(ExitCode::SUCCESS);
    }
    match table(&rows) {
        PredictionTable::Line(line) => context.printer.line(line),
        PredictionTable::Columns { keys, rows } => {
            let headings: Vec<&str> = keys.iter().map(String::as_str).collect();
            context.printer.line(render_table(&headings, &rows, &[]));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_of_a_model_without_signatures_is_said() {
        assert!(has_signatures(ModelFramework::Tensorflow, false));
        assert!(has_signatures(ModelFramework::Custom, true));
        assert!(!has_signatures(ModelFramework::ScikitLearn, false));
    }
}
