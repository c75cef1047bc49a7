//! `lamp receipt`: what ran, why it ended, how long, and how much.

use std::time::Duration;

use clap::Args as ClapArgs;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use crate::app::drive;
use crate::app::find_job;
use crate::app::gang::gang_report::GangReport;
use crate::app::record_errors;
use crate::app::text::in_local_time;
use crate::app::text::local_time;
use crate::app::view::discarded::DiscardedShown;
use crate::app::view::job_summary::Summary;
use crate::app::view::standalone_run::AloneRun;
use crate::app::view::{kept_machines, silent_machine, summary_text};
use crate::cli::control::outputs;
use crate::cli::output::wrap::wrap;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Give, Stream, render_table_within};
use crate::controller::Ticked;
use crate::job::terminal_safe::one_line;
use crate::job::{
    EndedBecause, JobOutcome, JobState, Leaving, LeavingFate, Receipt, ReceiptAttempt, StoredKind,
};
use crate::jobdir::JobDir;
use crate::market::Span;
use crate::wire::StoreHandle;

/// Show what ran, why it ended and what it cost
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,
}

/// # Errors
/// Fails when the job is missing or has not ended.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = find_job::find(&store, args.job.as_deref()).await?;
    let fault = |error| record_errors::record_fault(&error);
    if let Some(alone) = AloneRun::read(&dir).await.map_err(fault)? {
        return show_alone(context, &dir, &alone);
    }
    let mut receipt = dir.receipt().await.map_err(fault)?;
    if receipt.is_none() {
        receipt = settled_now(context, &store, &dir).await?;
    }
    let Some(receipt) = receipt else {
        let fault = Fault::new(
            ExitCode::NOT_FOUND,
            format!("job `{}` has no receipt: it has not ended", dir.job()),
        );
        let silent = silent(context, &store, &dir).await;
        let fault = silent.into_iter().fold(fault, Fault::meaning);
        return Err(fault.hint(format!(
            "`lamp status {0}` shows how it stands, `lamp stop {0}` ends it",
            dir.job()
        )));
    };
    show(context, &dir, &receipt).await;
    Ok(ExitCode::SUCCESS)
}

/// How long its machine has been silent, and what the cloud says about it.
async fn silent(context: &Context, store: &StoreHandle, dir: &JobDir) -> Option<String> {
    let now = context.clock.now();
    let mut summary = [Summary::read(dir, now).await.ok()??];
    let workstation = job_root::workstation(context).ok()?;
    silent_machine::ask(&workstation, store, &mut summary, now).await;
    let [summary] = summary;
    let silence = summary.silence.as_ref()?;
    let drives = format!("`lamp daemon --job {} --until-done` settles what it cost", dir.job());
    Some(format!("{}; {drives}", silence.sentence(summary.plan.as_ref())))
}

fn show_alone(context: &Context, dir: &JobDir, run: &AloneRun) -> Result<ExitCode, Fault> {
    let (Some(document), Some(text)) = (run.receipt(), run.receipt_text()) else {
        return Err(Fault::new(
            ExitCode::NOT_FOUND,
            format!("`{}` has no receipt: its agent has not written how it ended", dir.job()),
        )
        .hint(format!(
            "`lamp status {0}` shows how it stands, `lamp explain {0}` what was judged",
            dir.job()
        )));
    };
    if context.is_machine_output() {
        context.printer.json(&document)
    } else {
        context.printer.line(text)
    }
    Ok(ExitCode::SUCCESS)
}

/// A local machine is gone within half a second of its outcome; others may take minutes.
const DARK_LOOKS: u32 = 15;
const DARK_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Settles an attempt that is over, if no controller wrote the receipt.
async fn settled_now(
    context: &Context,
    store: &StoreHandle,
    dir: &JobDir,
) -> Result<Option<Receipt>, Fault> {
    let fault = |error| record_errors::record_fault(&error);
    let summary = Summary::read(dir, context.clock.now()).await.map_err(fault)?;
    // Only then: for a running job, a look might launch the next machine.
    if summary.is_none_or(|summary| summary.state != JobState::Terminating) {
        return Ok(None);
    }
    let controller = drive::controller(&job_root::workstation(context)?, store)?;
    for _ in 0..DARK_LOOKS {
        match controller.look(dir.job()).await.map_err(|error| drive::drive_fault(&error))? {
            Ticked::Final(receipt) => return Ok(Some(*receipt)),
            Ticked::Active | Ticked::Elsewhere(_) | Ticked::Unknown(_) => {
                context.clock.sleep(DARK_LOOK_EVERY).await
            }
        }
    }
    Ok(None)
}

/// The receipt of a rank, with all ranks beside it.
struct GangReceipt<'a> {
    receipt: &'a Receipt,
    gang: GangReport,
}

impl Serialize for GangReceipt<'_> {
    /// The fields of the receipt, and `gang`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serde_json::to_value(self.receipt).map_err(S::Error::custom)?;
        document["gang"] = serde_json::to_value(&self.gang).map_err(S::Error::custom)?;
        document.serialize(serializer)
    }
}

pub async fn show(context: &Context, dir: &JobDir, receipt: &Receipt) {
    let gang = GangReport::with_output(dir, context.clock.now()).await.ok().flatten();
    if context.is_machine_output() {
        return match gang {
            Some(gang) => context.printer.json(&GangReceipt { receipt, gang }),
            None => context.printer.json(receipt),
        };
    }
    context.printer.line(text(receipt, context.printer.columns(Stream::Out)));
    if dir.spec().await.is_ok_and(|spec| spec.is_some_and(|spec| spec.trial.is_some())) {
        let said = "  a trial of `lamp doctor --prove`: its machine gets no agent and does nothing; `lamp doctor` says what was proven";
        context.printer.prose(4, said);
    }
    if let Some(report) = &gang {
        report.lines().into_iter().for_each(|line| context.printer.prose(4, format!("  {line}")));
    }
    let gone = dir.discarded().await.ok().flatten();
    let has = |kind| gone.as_ref().is_none_or(|gone| !gone.kinds.contains(&kind));
    let (has_outputs, has_checkpoints) = (has(StoredKind::Outputs), has(StoredKind::Checkpoints));
    if has_outputs && let Some(outputs) = outputs::line_of_receipt(dir).await {
        context.printer.line(format!("  {outputs}"));
    }
    if let Some(gone) = gone {
        context.printer.line(format!("  discarded {}", DiscardedShown::from(gone).text()));
    }
    if kept_machines::kept_of(dir, receipt).await.is_ok_and(|kept| !kept.is_empty()) {
        context.printer.hint(kept_machines::hint(dir.job().as_str()));
    } else if let Some(hint) = way_on(receipt).filter(|_| has_checkpoints) {
        context.printer.hint(hint);
    }
}

/// The receipt on stderr, beside the data.
pub fn note(context: &Context, receipt: &Receipt) {
    text(receipt, context.printer.columns(Stream::Err))
        .lines()
        .for_each(|line| context.printer.note(line));
    if receipt.left.iter().any(|left| left.fate == LeavingFate::Kept) {
        context.printer.hint(kept_machines::hint(receipt.job.as_str()));
    } else if let Some(hint) = way_on(receipt) {
        context.printer.hint(hint);
    }
}

fn way_on(receipt: &Receipt) -> Option<String> {
    let (job, last) = (&receipt.job, receipt.last_checkpoint.as_ref()?.told());
    let start = |words: &str| format!("`lamp start {job}{words}` goes on from checkpoint {last}");
    match receipt.because.or_else(|| Some(receipt.attempts.last()?.ended_because))? {
        // A spent limit stops the next start too.
        EndedBecause::Budget => Some(start(" --budget USD")),
        EndedBecause::Deadline => Some(start(" --deadline MOMENT")),
        EndedBecause::Failed
        | EndedBecause::SetupFailed
        | EndedBecause::OutOfMemory
        | EndedBecause::Stalled => {
            Some(format!("{}, with the folder as it is now", start(" --code")))
        }
        _ => match receipt.outcome {
            JobOutcome::Failed | JobOutcome::Stopped | JobOutcome::Ended => Some(start("")),
            JobOutcome::Succeeded | JobOutcome::Cancelled => None,
        },
    }
}

/// Columns that a narrow terminal cuts or drops; the reason of the end is cut last.
const GIVE: Give<'_> = Give { cut: &[7, 6], go: &[3, 7, 2] };

fn text(receipt: &Receipt, width: Option<usize>) -> String {
    let text = whole_text(receipt, width);
    width.map_or_else(|| text.clone(), |width| wrap(&text, width, 4))
}

fn whole_text(receipt: &Receipt, width: Option<usize>) -> String {
    let mut lines = vec![
        format!("receipt of {}: {}", receipt.job, receipt.told()),
        format!("  {}", receipt.reason),
    ];
    if let Some(code) = receipt.exit_code {
        let line = format!("exit code {code}");
        // If the work ended by itself, the reason has it already.
        if !receipt.reason.ends_with(&line) {
            lines.push(format!("  {line}"));
        }
    }
    lines.push(format!("  from {} to {}", local_time(receipt.started), local_time(receipt.ended)));
    if !receipt.attempts.is_empty() {
        let rows: Vec<Vec<String>> = receipt.attempts.iter().map(row).collect();
        let headings = [
            "attempt",
            "instance",
            "type",
            "market",
            "billed",
            "cost",
            "ended because",
            "began from",
        ];
        // Two columns are the indent.
        let table =
            render_table_within(width.map(|width| width - 2), &headings, &rows, &[0, 4, 5], GIVE);
        lines.extend(table.lines().map(|line| format!("  {line}")));
    }
    lines.extend(receipt.attempts.iter().filter_map(went_back));
    let span = |secs: f64| Span::from_secs(secs.round() as u64);
    lines.push(format!(
        "  total {}{}; useful {}, idle {}; checkpoints {}",
        summary_text::at_most(receipt.is_estimated()),
        receipt.total_usd,
        span(receipt.useful_seconds),
        span(receipt.idle_seconds),
        receipt.checkpoints
    ));
    lines.extend(neither(receipt));
    if receipt.is_estimated() {
        lines.push(
            "  <=: the most that it can be; the cloud does not tell the exact end or the exact prices of its bill".into(),
        );
    }
    lines.extend(receipt.losses.iter().map(|loss| summary_text::loss_text(loss)));
    lines.extend(receipt.left.iter().map(left));
    lines.extend(receipt.left_unasked.iter().map(|region| {
        format!("  what it left in {region} is not known; `lamp sweep --residue` looks")
    }));
    // Each is one line, whatever a name in it contains.
    let text = lines.iter().map(|line| one_line(line)).collect::<Vec<_>>().join("\n");
    in_local_time(&text).into_owned()
}

/// Smaller rests are not worth a line.
const NEITHER_SECS: f64 = 60.0;
const NEITHER_SHARE: f64 = 0.05;

/// Billed time that is neither useful nor idle: a kept machine, a long boot or a lost attempt.
fn neither(receipt: &Receipt) -> Option<String> {
    let billed: f64 = receipt.attempts.iter().map(|attempt| attempt.billed_seconds).sum();
    let rest = billed - receipt.useful_seconds - receipt.idle_seconds;
    let span = |secs: f64| Span::from_secs(secs.round() as u64);
    let text = || {
        format!(
            "  {} of the {} billed is neither: boots, set-up, restores, ends, and machines kept for a look or lost",
            span(rest),
            span(billed)
        )
    };
    (rest >= NEITHER_SECS && rest >= NEITHER_SHARE * billed).then(text)
}

fn went_back(attempt: &ReceiptAttempt) -> Option<String> {
    let (from, why) = attempt.resumed_from.as_ref().zip(attempt.went_back.as_ref())?;
    Some(format!(
        "  attempt {} began from checkpoint {}, because {why}",
        attempt.attempt.number(),
        from.number.number()
    ))
}

fn left(left: &Leaving) -> String {
    let Leaving { kind, id, region, detail, usd_per_month, fate } = left;
    match fate {
        LeavingFate::Removed => format!("  removed: the {kind} {id} in {region} ({detail})"),
        LeavingFate::Kept => format!(
            "  kept: the {kind} {id} in {region} ({detail}){}",
            kept_machines::a_month(*usd_per_month)
        ),
        LeavingFate::Left => format!(
            "  left: the {kind} {id} in {region} ({detail}), {usd_per_month} a month; `lamp sweep --residue` looks again"
        ),
    }
}

fn row(attempt: &ReceiptAttempt) -> Vec<String> {
    let from =
        attempt.resumed_from.as_ref().map(|checkpoint| format!("checkpoint {}", checkpoint.told()));
    let at_most = summary_text::at_most(attempt.billed_estimated);
    vec![
        attempt.attempt.number().to_string(),
        attempt.instance.clone().unwrap_or_else(|| "-".into()),
        attempt.instance_type.clone(),
        attempt.market.to_string(),
        format!("{}{}", at_most, Span::from_secs(attempt.billed_seconds.round() as u64)),
        format!("{}{}", at_most, attempt.usd),
        attempt.ended_because.word().replace('_', " "),
        from.unwrap_or_else(|| "the start".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_what_is_at_most_that_is_at_most_that_too() {
        let mut receipt: Receipt =
            serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
                .expect("a receipt");
        assert!(whole_text(&receipt, None).contains("\n  total $0.46; "));
        receipt.attempts[0].billed_estimated = true;
        let said = whole_text(&receipt, None);
        assert!(
            said.contains("  <= $0.46  ")
                && said.contains("\n  total <= $0.46; ")
                && said.contains("\n  <=: the most that it can be; "),
            "{said}"
        );
    }

    #[test]
    fn next_step_after_an_end_is_one_that_is_not_refused() {
        let mut receipt: Receipt =
            serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
                .expect("a receipt");
        receipt.last_checkpoint = serde_json::from_str(
            r#"{"number":3,"attempt":1,"created":"2026-01-01T00:00:00Z","bytes":1}"#,
        )
        .expect("a checkpoint");
        let mut hint = |outcome, because| {
            (receipt.outcome, receipt.because) = (outcome, Some(because));
            way_on(&receipt).map(|hint| {
                hint.split('`').nth(1).unwrap_or_default().replace(receipt.job.as_str(), "JOB")
            })
        };
        let cases = [
            (JobOutcome::Failed, EndedBecause::Failed, Some("lamp start JOB --code")),
            (JobOutcome::Ended, EndedBecause::Budget, Some("lamp start JOB --budget USD")),
            (JobOutcome::Ended, EndedBecause::Deadline, Some("lamp start JOB --deadline MOMENT")),
            (JobOutcome::Ended, EndedBecause::MaxRuntime, Some("lamp start JOB")),
            (JobOutcome::Failed, EndedBecause::Lost, Some("lamp start JOB")),
            (JobOutcome::Succeeded, EndedBecause::Succeeded, None),
        ];
        for (outcome, because, expected) in cases {
            assert_eq!(hint(outcome, because).as_deref(), expected, "{because:?}");
        }
        receipt.last_checkpoint = None;
        assert_eq!(way_on(&receipt), None);
    }

    #[test]
    fn receipt_shows_time_neither_useful_nor_idle_if_there_is_some() {
        let mut receipt: Receipt =
            serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
                .expect("a receipt");
        assert_eq!(neither(&receipt), None, "2m 40s of an hour are a boot and an end");
        receipt.useful_seconds = 1500.0;
        let said = "  32m 40s of the 1h billed is neither: boots, set-up, restores, ends, and machines kept for a look or lost";
        assert_eq!(neither(&receipt).as_deref(), Some(said));
        assert!(whole_text(&receipt, None).contains(said));
        receipt.attempts.clear();
        assert_eq!(neither(&receipt), None);
    }
}
