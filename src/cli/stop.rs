//! `lamp stop` and `lamp cancel`: a wish to end, left in the job directory.

use clap::Args as ClapArgs;
use serde_json::json;

use super::attach::Attached;
use super::{Context, ExitCode, Fault, job_root, receipt, run};
use crate::job::{Spec, Wish};
use crate::jobdir::JobDir;

/// End a job: save a checkpoint, keep the outputs, put the machine out
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Wait until it has ended, and show its receipt
    #[arg(short, long)]
    pub wait: bool,
}

/// # Errors
/// There is no such job, it has ended, or the job root does not answer.
pub async fn run(args: &Args, wish: Wish, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = job_root::find(&store, args.job.as_deref()).await?;
    let workstation = job_root::workstation(context)?;
    let fault = |error| job_root::record_fault(&error);
    let spec = job_root::must_be_under_way(&dir).await?;
    let request = dir.add_request(wish, &workstation.name, context.clock.now()).await.map_err(fault)?;
    let (verb, saved) = (if wish == Wish::Stop { "stop" } else { "cancel" }, what_is_kept(wish, &spec));
    if !args.wait {
        // Whoever began the job may be gone; the receipt must be written all the same.
        if !workstation.daemon_runs()
            && let Err(error) = workstation.start_driver(dir.job().as_str())
        {
            context.printer.warn(format!("no process could be started that writes the receipt ({error}); `lamp stop --wait` does"));
        }
        if context.is_machine_output() {
            context.printer.json(&json!({ "job": dir.job(), "request": request.number, "wish": wish }));
        }
        context.printer.note(format!("asked {} to {verb}; {saved}", dir.job()));
        context.printer.hint(format!("`lamp status {0}` shows when the machine is gone, `lamp {verb} --wait {0}` waits for it", dir.job()));
        if spec.checkpoint.is_some() {
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
        None => return Ok(ExitCode::CTRL_C),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person finds afterwards, in a sentence.
fn what_is_kept(wish: Wish, spec: &Spec) -> &'static str {
    match (wish, &spec.checkpoint) {
        (Wish::Stop, Some(checkpoint)) if checkpoint.signal.is_some() => "it saves a checkpoint first, and its checkpoints and outputs are kept",
        (Wish::Stop, Some(_)) => "what its script has saved is kept, and its outputs",
        (Wish::Stop, None) => "it has no [checkpoint], so only its outputs are kept",
        (_, Some(_)) => "it does not save a checkpoint; the earlier ones are kept",
        (_, None) => "it does not save a checkpoint",
    }
}

fn how_to_go_on(dir: &JobDir) -> String {
    format!("`lamp start {}` goes on from its last checkpoint", dir.job())
}
