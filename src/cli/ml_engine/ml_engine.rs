//! `lamp ml-engine` and `lamp ai-platform`: the commands of gcloud, in its grammar.
//!
//! Each command is a file beside this one. Not here: what a command does.

use clap::{Args as ClapArgs, Subcommand};

use super::gcloud_flags::GcloudFlags;
use super::jobs;
use super::local::{self, LocalCommand};
use crate::cli::models::models::{self, ModelsCommand};
use crate::cli::models::versions::VersionsCommand;
use crate::cli::models::{predict, versions};
use crate::cli::{Context, ExitCode, Fault};

/// Take the commands of `gcloud ml-engine`
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub gcloud: GcloudFlags,
    #[command(subcommand)]
    pub command: MlEngineCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum MlEngineCommand {
    /// Submit training jobs, and look after them
    Jobs(jobs::Args),
    /// Train or predict on this workstation, without a job
    #[command(subcommand)]
    Local(LocalCommand),
    /// Keep trained models in the job root
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Keep the versions of a model
    #[command(subcommand)]
    Versions(VersionsCommand),
    Predict(Box<predict::Args>),
}

/// # Errors
/// As the command.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    args.gcloud.say_what_is_ignored(context);
    match &args.command {
        MlEngineCommand::Jobs(jobs) => jobs::run(jobs, &args.gcloud, context).await,
        MlEngineCommand::Local(what) => local::run_command(what, &args.gcloud, context).await,
        MlEngineCommand::Models(what) => models::run(what, &args.gcloud, context).await,
        MlEngineCommand::Versions(what) => versions::run(what, &args.gcloud, context).await,
        MlEngineCommand::Predict(what) => predict::run(what, &args.gcloud, context).await,
    }
}
