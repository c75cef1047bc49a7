//! `lamp extend`: more time or more money for a job.

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, ExitCode, Fault, job_root};
use crate::config::Dollars;
use crate::job::{Reaction, Spec, Wish};
use crate::market::{Span, Usd};

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
    // A limit that is made shorter would end the job at a moment that nobody has seen: `lamp stop` ends it.
    if args.time.is_some_and(|time| time == Span::ZERO) || budget.is_some_and(|budget| budget <= Usd::ZERO) {
        return Err(Fault::new(ExitCode::USAGE, "a limit can only be raised: the time and the budget must be more than zero")
            .hint(format!("`lamp stop {}` ends it", args.job)));
    }
    let store = job_root::open_existing(context).await?;
    let dir = job_root::find(&store, Some(&args.job)).await?;
    let fault = |error| job_root::record_fault(&error);
    let spec = job_root::must_be_under_way(&dir).await?;
    if let Some(missing) = no_such_limit(&spec, args.time, budget) {
        return Err(Fault::new(ExitCode::REFUSED, format!("job `{}` has {missing}: there is nothing to raise", dir.job()))
            .meaning("nothing was changed")
            .hint(format!("`lamp status {}` shows how it stands", dir.job())));
    }
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

/// What the job would need to have for this to change anything.
fn no_such_limit(spec: &Spec, time: Option<Span>, budget: Option<Usd>) -> Option<&'static str> {
    let (on, limits) = (&spec.on, &spec.limits);
    // More time also keeps a machine that is held after the end.
    let is_held = [on.success, on.failure, on.idle, on.stall].iter().any(|reaction| matches!(reaction, Reaction::Keep(_)));
    let is_timed = limits.max_runtime.is_some() || limits.deadline.is_some() || is_held;
    match (time.is_some() && !is_timed, budget.is_some() && limits.budget.is_none()) {
        (true, _) => Some("no limit of its time"),
        (_, true) => Some("no budget"),
        _ => None,
    }
}
