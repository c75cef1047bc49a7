//! `lamp ml-engine jobs list`.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::document;
use super::gcloud_flags::GcloudFlags;
use crate::app::submit::job_view::{self, JobView};
use crate::app::text::local_time;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, render_table};

#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub command: JobsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum JobsCommand {
    /// List the jobs of the job root
    List(ListArgs),
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ListArgs {
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// # Errors
/// As the command.
pub async fn run(args: &Args, gcloud: &GcloudFlags, context: &Context) -> Result<ExitCode, Fault> {
    match &args.command {
        JobsCommand::List(list) => list_jobs(list, gcloud, context).await,
    }
}

async fn list_jobs(
    args: &ListArgs,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let mut jobs = job_view::list(&store, context.clock.now()).await?;
    jobs.truncate(args.limit.unwrap_or(usize::MAX));
    let documents: Vec<Value> = jobs.iter().map(as_row).collect();
    if document::print(&context.printer, &gcloud.form(context), &json!(documents)) {
        return Ok(ExitCode::SUCCESS);
    }
    if jobs.is_empty() {
        context.printer.note("Listed 0 items.");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |job: &JobView| {
        vec![job.job_id.clone(), job.state.word().to_owned(), local_time(job.created)]
    };
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    context.printer.line(render_table(&["job_id", "status", "created"], &rows, &[]));
    Ok(ExitCode::SUCCESS)
}

fn as_row(job: &JobView) -> Value {
    json!({ "jobId": job.job_id, "state": job.state.word(), "createTime": job.created })
}
