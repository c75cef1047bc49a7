//! `lamp ml-engine jobs`: submit, list, describe, cancel, stream-logs.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::document;
use super::gcloud_flags::GcloudFlags;
use super::stream_logs;
use super::submit::{self, SubmitKind};
use crate::app::submit::job_view::{self, JobView};
use crate::app::submit::search_view::find_tuning;
use crate::app::text::local_time;
use crate::cli::control::stop;
use crate::cli::shell::job_root;
use crate::cli::tune::tune;
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::job::Wish;

#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub command: JobsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum JobsCommand {
    /// Submit a job
    #[command(subcommand)]
    Submit(SubmitKind),
    /// List the jobs of the job root
    List(ListArgs),
    /// Show one job
    Describe(DescribeArgs),
    /// End a job at once, without a checkpoint
    Cancel(OneJob),
    /// Print the log of a job until it has ended
    StreamLogs(stream_logs::Args),
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ListArgs {
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct DescribeArgs {
    /// A job: its name or its id
    pub job: String,
    /// Only its state, times and cost
    #[arg(long)]
    pub summarize: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct OneJob {
    /// A job: its name or its id
    pub job: String,
}

/// # Errors
/// As the command.
pub async fn run(args: &Args, gcloud: &GcloudFlags, context: &Context) -> Result<ExitCode, Fault> {
    match &args.command {
        JobsCommand::Submit(what) => submit::run_kind(what, gcloud, context).await,
        JobsCommand::List(list) => list_jobs(list, gcloud, context).await,
        JobsCommand::Describe(describe) => describe_job(describe, gcloud, context).await,
        JobsCommand::Cancel(one) => cancel(one, context).await,
        JobsCommand::StreamLogs(stream) => stream_logs::run(stream, context).await,
    }
}

async fn cancel(one: &OneJob, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    if let Some(memory) = find_tuning(&store, &one.job).await? {
        return tune::end(&memory.tuning.name, Wish::Cancel, context).await;
    }
    let args = stop::Args {
        jobs: vec![one.job.clone()],
        all: false,
        wait: false,
        yes: context.printer.is_quiet(),
    };
    stop::run(&args, Wish::Cancel, context).await
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

async fn describe_job(
    args: &DescribeArgs,
    gcloud: &GcloudFlags,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let view = job_view::read(&store, &args.job, context.clock.now()).await?;
    let whole = view.document();
    let shown = if args.summarize { summary(&whole) } else { whole };
    document::show(context, gcloud, &shown);
    Ok(ExitCode::SUCCESS)
}

/// The fields that tell how it stands.
fn summary(whole: &Value) -> Value {
    let keys =
        ["jobId", "state", "createTime", "startTime", "endTime", "errorMessage", "trainingOutput"];
    let pairs = keys.iter().filter_map(|key| Some(((*key).to_owned(), whole.get(key)?.clone())));
    Value::Object(pairs.collect())
}
