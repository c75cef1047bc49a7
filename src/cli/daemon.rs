//! `lamp daemon`: drives every job of the job root, in the foreground; systemd keeps it (systemd/lamp-controller.service).

use std::sync::Arc;

use clap::Args as ClapArgs;

use super::attach::TELLING_MAX;
use super::table::counted;
use super::{Context, ExitCode, Fault, job_root, run, signals};
use crate::job::JobId;
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::Store;

/// Drive all jobs of the job root: relaunch after interruptions, write receipts
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Only this job; may be repeated
    #[arg(long, value_name = "JOB")]
    pub job: Vec<JobId>,

    /// End when the jobs named have ended
    #[arg(long, requires = "job")]
    pub until_done: bool,
}

/// # Errors
/// The job root cannot be opened, or another daemon drives it.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let workstation = job_root::workstation(context)?;
    let store = job_root::open(context).await?;
    // A driver of one job is no daemon: both may drive it, the records see to that.
    let lock = if args.job.is_empty() {
        let lock =
            workstation.lock_daemon().map_err(|error| Fault::new(ExitCode::UNREACHABLE, "cannot write in the state folder").because(&error))?;
        Some(lock.ok_or_else(|| {
            Fault::new(ExitCode::REFUSED, format!("a daemon drives {} already", context.job_root))
                .hint("`systemctl --user status lamp-controller` shows it")
        })?)
    } else {
        None
    };
    for job in &args.job {
        must_be_drivable(&store, job).await?;
    }
    let controller = run::controller(&workstation, &store)?;
    let service = workstation.service();
    service.ready();
    context.printer.note(format!("driving the jobs of {}; Ctrl-C ends this, the jobs go on", context.job_root));
    let mut told = None;
    let driven = controller.drive_all(&args.job, |active| {
        service.alive();
        if told != Some(active) {
            told = Some(active);
            service.status(&format!("{} under way", counted(active as u64, "job")));
            tracing::info!("{} under way", counted(active as u64, "job"));
        }
    });
    tokio::select! {
        () = driven => {}
        // Nothing needs saving: what matters is in the job root.
        () = signals::left() => {}
    }
    service.stopping();
    // A command that tells somebody is not cut off.
    tokio::select! {
        () = controller.finish_telling() => {}
        () = context.clock.sleep(TELLING_MAX) => {}
    }
    drop(lock);
    Ok(ExitCode::SUCCESS)
}

/// A job that is named and not there, or that a newer version wrote, would be left alone in silence.
async fn must_be_drivable(store: &Store, job: &JobId) -> Result<(), Fault> {
    match JobDir::new(Arc::clone(store), job.clone()).spec().await {
        Ok(Some(_)) => Ok(()),
        // With what was meant, if something like it is there.
        Ok(None) => job_root::find(store, Some(job.as_str())).await.and_then(|dir| {
            let fault = Fault::new(ExitCode::NOT_FOUND, format!("no job `{job}` in {}", store.url()));
            Err(if dir.job() == job {
                fault.meaning("it was never submitted completely")
            } else {
                fault.hint(format!("did you mean `{}`?", dir.job()))
            })
        }),
        // Driving goes on through every failure of the job root, also one that is there at the start.
        Err(JobDirError::Store(_)) => Ok(()),
        Err(error) => Err(job_root::record_fault(&error)),
    }
}
