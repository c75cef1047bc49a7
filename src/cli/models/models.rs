//! `lamp models`: trained models in the job root.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::model_flags::{label, maker, say_ignored};
use super::versions;
use crate::app::models::registry::{self, ListedModel, ModelNotes};
use crate::cli::ml_engine::document;
use crate::cli::ml_engine::gcloud_flags::GcloudFlags;
use crate::cli::shell::confirm::confirm;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::job::ModelName;

/// Keep trained models and their versions in the job root
///
/// `lamp models versions create` adds a folder that a training wrote. `lamp predict` asks it.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub command: ModelsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ModelsCommand {
    Create(CreateModel),
    /// List the models of the job root
    List,
    /// Show one model
    Describe(NamedModel),
    Delete(DeleteModel),
    /// Make, list, describe and delete the versions of a model
    Versions(versions::Args),
}

/// Make a model without versions
///
/// `versions create` makes a missing model by itself.
#[derive(Clone, Debug, ClapArgs)]
pub struct CreateModel {
    /// A letter, then letters, digits, `_` and `-`
    pub model: ModelName,
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// KEY=VALUE, separated by commas
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub google: GooglePlace,
}

/// Flags of gcloud without a meaning here.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct GooglePlace {
    #[arg(long, hide = true)]
    pub region: Option<String>,
    #[arg(long, hide = true)]
    pub regions: Option<String>,
    #[arg(long, hide = true)]
    pub enable_logging: bool,
    #[arg(long, hide = true)]
    pub enable_console_logging: bool,
}

impl GooglePlace {
    pub fn say_what_is_ignored(&self, context: &Context) {
        say_ignored(
            context,
            &[
                ("--region", self.region.is_some()),
                ("--regions", self.regions.is_some()),
                ("--enable-logging", self.enable_logging),
                ("--enable-console-logging", self.enable_console_logging),
            ],
        );
    }
}

#[derive(Clone, Debug, ClapArgs)]
pub struct NamedModel {
    pub model: ModelName,
    #[command(flatten)]
    pub google: GooglePlace,
}

/// Delete a model that has no versions
#[derive(Clone, Debug, ClapArgs)]
pub struct DeleteModel {
    pub model: ModelName,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub google: GooglePlace,
}

/// # Errors
/// As the command.
pub async fn run(
    command: &ModelsCommand,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    match command {
        ModelsCommand::Create(args) => create(args, gcloud, context).await,
        ModelsCommand::List => list(gcloud, context).await,
        ModelsCommand::Describe(args) => describe(args, gcloud, context).await,
        ModelsCommand::Delete(args) => delete(args, context).await,
        ModelsCommand::Versions(args) => versions::run(&args.command, gcloud, context).await,
    }
}

async fn create(
    args: &CreateModel,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    args.google.say_what_is_ignored(context);
    let store = job_root::open(context).await?;
    let notes = ModelNotes {
        description: args.description.clone(),
        labels: args.labels.iter().cloned().collect(),
        ..ModelNotes::default()
    };
    let record = registry::create_model(&store, &args.model, notes, maker(context)).await?;
    let model = ListedModel { model: args.model.clone(), record: Some(record), default: None };
    context.printer.note(format!("Created model [{}].", args.model));
    document::print(&context.printer, &gcloud.form(context), &document_of(&model));
    Ok(ExitCode::SUCCESS)
}

async fn list(gcloud: &GcloudFlags, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let models = registry::list(&store).await?;
    let documents: Vec<Value> = models.iter().map(document_of).collect();
    if document::print(&context.printer, &gcloud.form(context), &json!(documents)) {
        return Ok(ExitCode::SUCCESS);
    }
    if models.is_empty() {
        context.printer.note("Listed 0 items.");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |model: &ListedModel| {
        let default = model.default.as_ref().map(ModelName::to_string).unwrap_or_default();
        vec![model.model.to_string(), default]
    };
    let rows: Vec<Vec<String>> = models.iter().map(row).collect();
    context.printer.line(render_table(&["name", "default_version_name"], &rows, &[]));
    Ok(ExitCode::SUCCESS)
}

async fn describe(
    args: &NamedModel,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    args.google.say_what_is_ignored(context);
    let store = job_root::open_existing(context).await?;
    let model = registry::find_model(&store, &args.model).await?;
    document::show(context, gcloud, &document_of(&model));
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: &DeleteModel, context: &Context) -> Result<ExitCode, Fault> {
    args.google.say_what_is_ignored(context);
    let store = job_root::open_existing(context).await?;
    registry::find_model(&store, &args.model).await?;
    let what = format!("this deletes model `{}`", args.model);
    confirm(context, &what, args.yes || context.printer.is_quiet(), "nothing was deleted")?;
    registry::delete_model(&store, &args.model).await?;
    if context.is_machine_output() {
        context.printer.json(&json!({ "name": args.model, "deleted": true }));
    }
    context.printer.note(format!("Deleted model [{}].", args.model));
    Ok(ExitCode::SUCCESS)
}

fn document_of(model: &ListedModel) -> Value {
    let mut document = json!({ "name": model.model });
    if let Some(record) = &model.record {
        document["createTime"] = json!(record.created);
        document["owner"] = json!(record.by);
        if let Some(description) = &record.description {
            document["description"] = json!(description);
        }
        if !record.labels.is_empty() {
            document["labels"] = json!(record.labels);
        }
    }
    if let Some(default) = &model.default {
        document["defaultVersion"] = json!({ "name": default });
    }
    document
}
