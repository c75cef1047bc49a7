//! `lamp local`: training and prediction on this workstation, without a job.

use clap::{Args as ClapArgs, Subcommand};

use super::gcloud_flags::GcloudFlags;
use super::local_train;
use crate::cli::models::predict;
use crate::cli::{Context, ExitCode, Fault};

/// Train or predict on this workstation, without a job
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub gcloud: GcloudFlags,
    #[command(subcommand)]
    pub what: LocalCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum LocalCommand {
    Train(local_train::Args),
    Predict(Box<predict::LocalArgs>),
}

/// # Errors
/// As the command.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    args.gcloud.say_what_is_ignored(context);
    run_command(&args.what, &args.gcloud, context).await
}

/// # Errors
/// As the command.
pub async fn run_command(
    what: &LocalCommand,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    match what {
        LocalCommand::Train(train) => local_train::run(train, context).await,
        LocalCommand::Predict(args) => predict::run_local(args, gcloud, context).await,
    }
}
