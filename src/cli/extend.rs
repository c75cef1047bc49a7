//! `lamp extend`: more time or more money for a job.

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, ExitCode, Fault, job_root};
use crate::config::Dollars;
use crate::job::Wish;
use crate::market::Span;

/// Give a job more time or money
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name
    pub job: String,

    /// How much longer it may run, like `2h`; also keeps a held machine
    pub time: Option<Span>,

    /// How much more it may cost, in dollars
    #[arg(long, value_name = "USD")]
    pub budget: Option<Dollars>,
}

/// # Errors
/// Nothing was asked for, there is no such job, it has ended, or the job root does not answer.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let budget = args.budget.as_ref().map(|dollars| dollars.0);
    if args.time.is_none() && budget.is_none() {
        return Err(Fault::new(ExitCode::USAGE, "nothing to extend by").hint(format!("`lamp extend {} 2h`, or --budget 5", args.job)));
    }
    let store = job_root::open(context)?;
    let dir = job_root::find(&store, Some(&args.job)).await?;
    let fault = |error| job_root::record_fault(&error);
    job_root::must_be_under_way(&dir).await?;
    let wish = Wish::Extend { time: args.time, budget };
    let by = job_root::workstation(context)?.name;
    let request = dir.add_request(wish, &by, context.clock.now()).await.map_err(fault)?;
    if context.is_machine_output() {
        context.printer.json(&json!({ "job": dir.job(), "request": request.number, "wish": wish }));
    }
    let more = [args.time.map(|time| time.to_string()), budget.map(|budget| budget.to_string())];
    context.printer.note(format!("{} may have {} more", dir.job(), more.into_iter().flatten().collect::<Vec<_>>().join(" and ")));
    Ok(ExitCode::SUCCESS)
}
