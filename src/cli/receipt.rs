//! `lamp receipt`: what ran, why it ended, how long, how much.

use clap::Args as ClapArgs;

use super::status::local_time;
use super::{Context, ExitCode, Fault, job_root, render_table};
use crate::job::{Receipt, ReceiptAttempt};
use crate::market::Span;

/// Show what ran, why it ended and what it cost
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,
}

/// # Errors
/// There is no such job, or it has not ended.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open(context)?;
    let dir = job_root::find(&store, args.job.as_deref()).await?;
    let Some(receipt) = dir.receipt().await.map_err(|error| job_root::record_fault(&error))? else {
        return Err(Fault::new(ExitCode::NOT_FOUND, format!("job `{}` has no receipt: it has not ended", dir.job()))
            .hint(format!("`lamp status {0}` shows how it stands, `lamp stop {0}` ends it", dir.job())));
    };
    show(context, &receipt);
    Ok(ExitCode::SUCCESS)
}

/// Prints a receipt in the format that was asked for.
pub fn show(context: &Context, receipt: &Receipt) {
    if context.is_machine_output() {
        context.printer.json(receipt);
    } else {
        context.printer.line(text(receipt));
    }
}

/// The receipt for people.
pub fn text(receipt: &Receipt) -> String {
    let mut lines = vec![format!("receipt of {}: {}", receipt.job, receipt.outcome), format!("  {}", receipt.reason)];
    if let Some(code) = receipt.exit_code {
        lines.push(format!("  exit code {code}"));
    }
    lines.push(format!("  from {} to {}", local_time(receipt.started), local_time(receipt.ended)));
    if !receipt.attempts.is_empty() {
        let rows: Vec<Vec<String>> = receipt.attempts.iter().map(row).collect();
        let table = render_table(&["attempt", "instance", "type", "market", "billed", "cost", "ended because", "began from"], &rows, &[0, 4, 5]);
        lines.extend(table.lines().map(|line| format!("  {line}")));
    }
    let span = |secs: f64| Span::from_secs(secs.round() as u64);
    lines.push(format!(
        "  total {}; useful {}, idle {}; checkpoints {}",
        receipt.total_usd,
        span(receipt.useful_seconds),
        span(receipt.idle_seconds),
        receipt.checkpoints
    ));
    lines.extend(receipt.losses.iter().map(|loss| format!("  lost: {loss}")));
    lines.join("\n")
}

fn row(attempt: &ReceiptAttempt) -> Vec<String> {
    let from = attempt.resumed_from.as_ref().map(|checkpoint| match checkpoint.step {
        Some(step) => format!("checkpoint {} (step {step})", checkpoint.number.number()),
        None => format!("checkpoint {}", checkpoint.number.number()),
    });
    vec![
        attempt.attempt.number().to_string(),
        attempt.instance.clone().unwrap_or_else(|| "-".into()),
        attempt.instance_type.clone(),
        attempt.market.to_string(),
        Span::from_secs(attempt.billed_seconds.round() as u64).to_string(),
        attempt.usd.to_string(),
        attempt.ended_because.word().replace('_', " "),
        from.unwrap_or_else(|| "the start".into()),
    ]
}
