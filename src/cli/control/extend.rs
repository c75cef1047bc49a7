//! `lamp extend`: gives a job more time or money, keeps it, or allows a dearer machine.

use clap::Args as ClapArgs;

use crate::app::extend::{More, extend};
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault};
use crate::config::{Dollars, FallbackCostWord};
use crate::market::Span;

/// Give a job more time or money, or keep it while it is idle
///
/// `lamp extend JOB --keep 1h` keeps it: for an hour it does not end as idle or stalled.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name
    pub job: String,

    /// How much longer it may run, like `2h`; also keeps a held machine
    pub time: Option<Span>,

    /// Dollars on top of the budget that it has, like 5: with `lamp run --budget 20` it is $25 then
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub budget: Option<Dollars>,

    /// How many times as much as the cheapest machine one may cost that is bought in its place,
    /// like 3.5, or `any`
    #[arg(long, value_name = "TIMES", allow_negative_numbers = true)]
    pub fallback_cost: Option<FallbackCostWord>,

    /// Not ended as idle or stalled for this long, like `1h`; its limits stay as they are
    #[arg(long, value_name = "TIME", conflicts_with_all = ["time", "budget", "fallback_cost"])]
    pub keep: Option<Span>,

    /// Do not ask before more of another owner's money may be spent; without a terminal, it must be
    /// given
    #[arg(short, long)]
    pub yes: bool,
}

/// # Errors
/// Fails when nothing was asked for, the job is missing, over or cancelled, or the job root does
/// not answer.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let more = More {
        time: args.time,
        budget: args.budget.as_ref().map(|dollars| dollars.0),
        fallback_cost: args.fallback_cost.as_ref().map(|word| word.0),
        keep: args.keep,
    };
    let store = job_root::open_existing(context).await?;
    let terminal = Terminal::new(context, args.yes);
    let extended = extend(&terminal.session(&store)?, &args.job, more).await?;
    if context.is_machine_output() {
        context.printer.json(&extended);
    }
    Ok(ExitCode::SUCCESS)
}
