//! Uploads the rest of an ended workload: its last checkpoint, outputs, log and samples. Also names
//! the files that are not kept.
//!
//! One deadline for everything, and limits for a hung file system. Not here: the end of the
//! workload, the outcome.

use std::time::Duration;

use tokio::sync::Notify;

use super::outputs::{self, WantedOutputs};
use super::shutdown_deadline::{FLUSH_MIN, ShutdownDeadline, TIME_WAS_UP};
use super::unsaved_files;
use crate::agent::agent::Agent;
use crate::agent::checkpoint::save_request::Saved;

use crate::agent::startup::attempt::Mode;
use crate::jobdir::EventDetail;
use crate::market::Span;
use crate::policy::WorkloadStage;

/// Naming unkept files is a courtesy: a hung or huge folder must not delay the end of a machine.
pub(crate) const UNKEPT_WITHIN: Duration = Duration::from_secs(10);

/// How long the checkpoint folder may take to answer after the workload's end. A network disk with
/// as many files as allowed answers in seconds. A slower one hangs, and a longer wait costs money.
const FOLDER_ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// The outputs get this part of the time for the end of a job. Larger may cut off a last checkpoint
/// of many gigabytes; smaller may cut off the outputs.
const OUTPUTS_SHARE: u32 = 4;

/// Uploads the last checkpoint, outputs, and the rest of the log, samples and events.
pub(crate) async fn upload_rest(
    agent: &mut Agent,
    ahead: &ShutdownDeadline,
    until: Duration,
    asked_by: &str,
) -> Vec<String> {
    let mut losses = Vec::new();
    let out = agent.out.clone();
    agent.saves.forget();
    if let Some(checkpoints) =
        agent.checkpoints.clone().filter(|_| agent.state.stage == WorkloadStage::Main)
    {
        // A hung folder leaves the time to the outputs and the log.
        let answers = FOLDER_ANSWERS_WITHIN.min(ahead.left(agent, until).max(FLUSH_MIN));
        let saved = match ahead
            .in_time(agent, until, out.within(answers, checkpoints.ask()))
            .await
            .flatten()
        {
            Some(_) => {
                let left = ahead.left(agent, until).max(FLUSH_MIN);
                // The outputs have their own share. A job that continues elsewhere uploads them
                // again.
                let share = if has_outputs(agent) && !ahead.is_left_to_cloud() {
                    left / OUTPUTS_SHARE
                } else {
                    Duration::ZERO
                };
                let saving =
                    checkpoints.save(checkpoints.as_is(), asked_by, (left - share).max(FLUSH_MIN));
                ahead
                    .in_time(agent, until, saving)
                    .await
                    .unwrap_or_else(|| Saved::Failed(TIME_WAS_UP.into()))
            }
            None => {
                Saved::Failed(format!("it did not answer within {}", Span::from_duration(answers)))
            }
        };
        if let Saved::Failed(why) = saved {
            losses.push(format!("what the checkpoint folder held at the end is not kept: {why}"));
        }
        losses.extend(checkpoints.left_out());
    }
    if has_outputs(agent) {
        losses.extend(upload_outputs(agent, ahead, until).await);
    }
    let (logs, samples, journal) = (
        agent.reporter.logs.clone(),
        agent.reporter.samples.clone(),
        agent.reporter.journal.clone(),
    );
    let left = ahead.left(agent, until).max(FLUSH_MIN);
    let log_losses = ahead.in_time(agent, until, logs.finish(left)).await;
    let left = ahead.left(agent, until).max(FLUSH_MIN);
    let sample_losses = ahead.in_time(agent, until, samples.finish(left)).await;
    losses.extend(
        log_losses
            .unwrap_or_else(|| vec![format!("the end of the log was not kept: {TIME_WAS_UP}")]),
    );
    if let Some((_, dropped)) = agent.printed.filter(|(_, dropped)| *dropped > 0) {
        losses.push(format!(
            "{dropped} bytes of output were not kept: they came faster than they could be shipped"
        ));
    }
    losses
        .extend(sample_losses.unwrap_or_else(|| {
            vec![format!("the last measurements were not kept: {TIME_WAS_UP}")]
        }));
    for text in &losses {
        journal.record(EventDetail::Loss { text: text.clone() });
    }
    losses
}

/// A stand-alone run leaves its files where they are.
fn has_outputs(agent: &Agent) -> bool {
    agent.attempt.mode == Mode::Launched && agent.state.stage == WorkloadStage::Main
}

/// Time may end sooner than it seems now: then the upload is told, and names what is missing.
async fn upload_outputs(
    agent: &mut Agent,
    ahead: &ShutdownDeadline,
    until: Duration,
) -> Vec<String> {
    let (out, workdir, named) = (
        agent.out.clone(),
        agent.attempt.folders.work.clone(),
        agent.attempt.resolved.spec.outputs.clone(),
    );
    let time_is_up = Notify::new();
    let mut uploading =
        Box::pin(outputs::upload(&out, &workdir, wanted(&named), time_is_up.notified()));
    let least = out.clock.mono() + FLUSH_MIN;
    loop {
        tokio::select! {
            biased;
            kept = &mut uploading => return kept.losses,
            () = out.clock.sleep(Duration::from_secs(1)) => {}
        }
        agent.ports.service.alive();
        agent.report();
        if ahead.left(agent, until).is_zero() && out.clock.mono() >= least {
            time_is_up.notify_one();
        }
    }
}

/// Files that are deleted with the machine and that the user did not ask to keep.
pub(crate) async fn unkept(agent: &Agent, within: Duration) -> Option<String> {
    let since = agent.state.main_since.filter(|_| agent.attempt.mode == Mode::Launched)?;
    let spec = &agent.attempt.resolved.spec;
    let apart = [
        spec.checkpoint.as_ref().map(|spec| spec.path.as_str()),
        spec.watch.done_marker.as_deref(),
    ];
    let apart: Vec<&str> = apart.into_iter().flatten().collect();
    let looking = unsaved_files::left_behind(
        &agent.out,
        &agent.attempt.folders.work,
        wanted(&spec.outputs),
        &apart,
        since,
    );
    agent.alive_while(agent.out.within(within, looking)).await.flatten()
}

/// The named outputs, and the default output folder.
fn wanted(named: &[String]) -> WantedOutputs<'_> {
    WantedOutputs { named, if_any: &["lamp-output/**"] }
}
