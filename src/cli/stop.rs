//! `lamp stop` and `lamp cancel`: a wish to end, left in the job directory. Of a job that has ended, `give_up` has the word.

use clap::Args as ClapArgs;
use jiff::Timestamp;
use serde_json::json;

use super::attach::Attached;
use super::confirm::confirm;
use super::{Context, ExitCode, Fault, give_up, job_root, receipt, run, spec_gone};
use crate::job::{CheckpointSpec, CheckpointSummary, NEVER_RESTS, Wish};
use crate::jobdir::{Event, JobDir, JobDirError, What};
use crate::market::{Span, elapsed};
use crate::policy::Wishes;
use crate::wire::Workstation;

/// End a job: save a checkpoint, keep the outputs, put the machine out
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the one that is under way]
    pub job: Option<String>,

    /// Wait until it has ended, and show its receipt
    #[arg(short, long)]
    pub wait: bool,

    /// Do not ask before a job that is not named is ended without a checkpoint, before the machine of another owner is ended, or
    /// before the machine that an ended job keeps is given up; where nobody can be asked, it must be said
    #[arg(short, long)]
    pub yes: bool,
}

/// # Errors
/// There is no such job, it has ended and keeps nothing, or the job root does not answer.
pub async fn run(args: &Args, wish: Wish, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = job_root::find_under_way(&store, args.job.as_deref()).await?;
    let workstation = job_root::workstation(context)?;
    let fault = |error| job_root::record_fault(&error);
    if let Some(ended) = dir.receipt().await.map_err(fault)? {
        if args.job.is_none() {
            // Nobody gives a disk up by a job that they have not named.
            return Err(job_root::has_ended(&dir, &ended).hint(format!("`lamp cancel {}` gives up what it may keep", dir.job())));
        }
        return give_up::run(context, &store, &workstation, &dir, &ended, (wish, args.yes)).await;
    }
    if let Some(code) = spec_gone::end(context, &dir, wish, (args.yes, args.wait)).await? {
        return Ok(code);
    }
    let spec = job_root::spec_under_way(&dir).await?;
    let now = context.clock.now();
    let requests = dir.requests().await.map_err(fault)?;
    // A cancel wins, and a stop after it changes nothing.
    let cancelled = Wishes::of(&requests).end.filter(|end| end.cancel && wish == Wish::Stop).map(|end| end.at);
    let before = requests.into_iter().rev().find(|request| request.wish == wish);
    // What cannot be read keeps nobody from ending a job.
    let owner = if before.is_none() { job_root::owner_of(&dir).await.ok().flatten() } else { None };
    if let Some(theirs) = owner.filter(|owner| *owner != workstation.owner) {
        // Their controller does what this job's records wish, whoever wished it.
        let what = format!("the machine of `{}` is of the owner `{theirs}`, and you are `{}`: this ends it", dir.job(), workstation.owner);
        confirm(context, &what, args.yes, "nothing was asked of it")?;
    }
    if (wish == Wish::Cancel || spec.checkpoint.is_none()) && args.job.is_none() && before.is_none() {
        // Nobody loses work by a job that they have not named.
        let how = if wish == Wish::Cancel { "ends it at once, without a checkpoint" } else { "ends it, and it saves no checkpoint" };
        let what = format!("job `{}` is the one that is under way: this {how}", dir.job());
        confirm(context, &what, args.yes, "nothing more was asked of it")?;
    }
    let again = before.is_some();
    let request = match before {
        Some(request) => request,
        None => dir.insist_on(wish, &workstation.name, &*context.clock).await.map_err(|error| job_root::wish_fault(&error, dir.job()))?,
    };
    let verb = if wish == Wish::Stop { "stop" } else { "cancel" };
    let otherwise = format!("`lamp {verb} --wait {}` does", dir.job());
    // The wish is left: nothing that is only said may stand between it and the process that sees it through.
    if !args.wait {
        see_it_through(context, &workstation, &dir, &otherwise);
    }
    let known = if spec.checkpoint.is_some() { newest_events(&dir).await.ok() } else { None };
    let has_begun = known.as_ref().is_none_or(|(begun, _)| *begun);
    let events = known.map(|(_, events)| events).unwrap_or_default();
    let has_one = events.iter().any(|event| matches!(event.what, What::Checkpoint { .. } | What::Resumed { .. }));
    let cancelled = cancelled.map(|at| format!("it was asked to cancel {} ago, and that stands: it saves nothing more", elapsed_since(at, now)));
    let cancelled = cancelled.or_else(|| (!has_begun).then(|| "its work has not begun, so there is nothing to keep".to_owned()));
    let saves = spec.checkpoint.as_ref().is_some_and(|spec| spec.signal.is_some()) && wish == Wish::Stop && cancelled.is_none();
    let saved = cancelled.unwrap_or_else(|| match (wish, &spec.checkpoint) {
        (Wish::Stop, Some(checkpoint)) => what_is_kept(checkpoint, &events),
        (Wish::Stop, None) => "it has no [checkpoint], so only what `outputs` names and what is in $LAMP_OUTPUT_DIR is kept".to_owned(),
        (_, Some(_)) => "it does not save a checkpoint; the earlier ones are kept".to_owned(),
        (_, None) => "it does not save a checkpoint".to_owned(),
    });
    if !args.wait {
        if context.is_machine_output() {
            context.printer.json(&json!({ "job": dir.job(), "request": request.number, "wish": wish }));
        }
        context.printer.note(match again {
            true => format!("{} was asked to {verb} {} ago, and once is enough; {saved}", dir.job(), elapsed_since(request.at, now)),
            false => format!("asked {} to {verb}; {saved}", dir.job()),
        });
        context.printer.hint(format!("`lamp status {0}` shows when it is over, `lamp {verb} --wait {0}` waits for it", dir.job()));
        if has_one || saves {
            context.printer.hint(how_to_go_on(&dir));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let controller = run::controller(&workstation, &store)?;
    match Attached::new(context, &dir).without_log().follow_and_drive(&controller).await? {
        Some(ended) => {
            receipt::show(context, &dir, &ended).await;
            if ended.last_checkpoint.is_some() {
                context.printer.hint(how_to_go_on(&dir));
            }
        }
        None => {
            // The wish stands, and somebody must carry it out.
            see_it_through(context, &workstation, &dir, &otherwise);
            context.printer.note(format!("the {verb} stands"));
            context.printer.hint(format!("`lamp status {}` shows when it is over", dir.job()));
            return Ok(ExitCode::CTRL_C);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whoever began the job may be gone; its machine must be seen off all the same, and its receipt be written.
fn see_it_through(context: &Context, workstation: &Workstation, dir: &JobDir, otherwise: &str) {
    if !workstation.is_driven_anew(dir.job().as_str()) {
        let_it_be_driven(context, workstation, dir, otherwise);
    }
}

/// What was asked for needs somebody who does it: a process is started for that where no daemon runs. `otherwise` says what does it
/// where none can be started.
pub(super) fn let_it_be_driven(context: &Context, workstation: &Workstation, dir: &JobDir, otherwise: &str) {
    let job = dir.job().as_str();
    if workstation.daemon_runs() {
        return;
    }
    // A driver may launch, so it forgives a configuration nothing.
    let why = match context.is_misread {
        true => "the configuration has errors".to_owned(),
        false => match workstation.start_driver(job) {
            Ok(_) => return,
            Err(error) => error.to_string(),
        },
    };
    if !workstation.is_driven(job) {
        context.printer.warn(format!("no process could be started that sees it through ({why}); {otherwise}"));
    }
}

fn elapsed_since(at: Timestamp, now: Timestamp) -> Span {
    Span::from_secs(elapsed(at, now).as_secs())
}

fn how_to_go_on(dir: &JobDir) -> String {
    format!("`lamp start {}` goes on from its last complete checkpoint", dir.job())
}

/// Whether the work has begun, as far as anybody can say, or goes on from another job's; and what happened in the last attempt.
async fn newest_events(dir: &JobDir) -> Result<(bool, Vec<Event>), JobDirError> {
    let goes_on = dir.spec().await?.is_some_and(|spec| spec.inherited().is_some());
    let attempts = dir.attempts().await?;
    let events = match attempts.last() {
        Some(attempt) => dir.events(*attempt).await?,
        None => Vec::new(),
    };
    Ok((goes_on || attempts.len() > 1 || events.iter().any(|event| matches!(event.what, What::WorkloadStarted { .. })), events))
}

/// What becomes of the work, no more than is known of it.
fn what_is_kept(spec: &CheckpointSpec, events: &[Event]) -> String {
    let mut last: Option<&CheckpointSummary> = None;
    let mut restless = false;
    for event in events {
        match &event.what {
            What::Checkpoint { checkpoint, .. } | What::Resumed { checkpoint } => (last, restless) = (Some(checkpoint), false),
            What::Attention { text } if text == NEVER_RESTS => restless = true,
            _ => {}
        }
    }
    if restless {
        let stands = match last {
            Some(checkpoint) => format!("checkpoint {} is the newest that is complete", checkpoint.number.number()),
            None => "no checkpoint is complete".to_owned(),
        };
        return format!("{stands}, and what its script has saved since is lost unless its folder comes to rest (`{}` never did)", spec.path);
    }
    match &spec.signal {
        Some(signal) => format!("it is asked for a checkpoint first, by {signal}, and its checkpoints and outputs are kept"),
        None => format!("what is complete in `{}` is kept, and its outputs", spec.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AttemptNo, CheckpointNo};
    use crate::market::Span;

    #[test]
    fn nobody_is_promised_what_cannot_be_kept() {
        let spec = |signal: Option<&str>| CheckpointSpec {
            path: "ckpt".into(),
            interval: Span::from_secs(600),
            signal: signal.map(str::to_owned),
            grace: Span::from_secs(30),
        };
        let event = |what| Event { seq: 1, at: jiff::Timestamp::UNIX_EPOCH, what };
        let never = event(What::Attention { text: NEVER_RESTS.into() });
        let checkpoint =
            CheckpointSummary { number: CheckpointNo::new(4), attempt: AttemptNo::FIRST, created: jiff::Timestamp::UNIX_EPOCH, step: None, bytes: 1 };
        let kept = event(What::Checkpoint { checkpoint, save_secs: 1.0, upload_secs: 1.0, asked_by: None });
        assert_eq!(what_is_kept(&spec(None), &[]), "what is complete in `ckpt` is kept, and its outputs");
        assert_eq!(
            what_is_kept(&spec(Some("SIGUSR1")), &[]),
            "it is asked for a checkpoint first, by SIGUSR1, and its checkpoints and outputs are kept"
        );
        let lost = what_is_kept(&spec(None), std::slice::from_ref(&never));
        assert!(lost.starts_with("no checkpoint is complete, and what its script has saved since is lost"), "{lost}");
        let older = what_is_kept(&spec(Some("SIGUSR1")), &[kept.clone(), never.clone()]);
        assert!(older.starts_with("checkpoint 4 is the newest that is complete"), "{older}");
        assert_eq!(what_is_kept(&spec(None), &[never, kept]), "what is complete in `ckpt` is kept, and its outputs");
    }
}
