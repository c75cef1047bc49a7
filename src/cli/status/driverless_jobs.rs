//! The last message of a daemon that is stopped: which jobs are under way without a driver here.
//!
//! Their agents still end their machines, but an interrupted job stays interrupted, and no receipt
//! is written. Not here: the end of a daemon.

use std::time::Duration;

use futures::stream::{self, StreamExt};

use crate::app::find_job;
use crate::app::text::{counted, some_of};
use crate::app::view::job_summary::Summary;
use crate::cli::Context;
use crate::job::JobId;
use crate::jobdir::JobDir;
use crate::policy::lifecycle::reconcile::{belongs_elsewhere, is_of_another};
use crate::wire::{StoreHandle, Workstation};

/// A user or service manager that stops the daemon waits at most this long.
const LOOKED_FOR: Duration = Duration::from_secs(5);

/// Jobs that are named; the rest is a number.
const NAMED: usize = 3;

pub struct Undriven<'a> {
    pub workstation: &'a Workstation,
    pub store: &'a StoreHandle,
    pub jobs: &'a [JobId],
}

impl Undriven<'_> {
    pub async fn tell(&self, context: &Context) {
        let found = tokio::select! {
            found = self.found(context) => found,
            () = context.clock.sleep(LOOKED_FOR) => Vec::new(),
        };
        // With several roots, a command must name its root.
        let root = if context.roots.more.is_empty() {
            None
        } else {
            Some(self.workstation.job_root.as_str())
        };
        if let Some(said) = sentence(&found, root) {
            context.printer.note(said);
        }
    }

    async fn found(&self, context: &Context) -> Vec<String> {
        // Another daemon has taken over and drives them all.
        if self.workstation.daemon_runs() {
            return Vec::new();
        }
        let (Ok(open), Ok(here)) =
            (find_job::all_under_way(self.store).await, self.workstation.here())
        else {
            return Vec::new();
        };
        // An unreadable job's driver is unknown.
        let ours = open
            .into_iter()
            .filter_map(Result::ok)
            .filter(|dir| self.jobs.is_empty() || self.jobs.contains(dir.job()));
        let (owner, here, now) =
            (context.config.user.owner.as_str(), here.as_str(), context.clock.now());
        let read = stream::iter(ours).map(|dir: JobDir| async move {
            let summary = Summary::read(&dir, now).await.ok().flatten()?;
            let is_elsewhere = match &summary.plan {
                Some(plan) => belongs_elsewhere(plan, owner, here).is_some(),
                None => is_of_another(summary.owner.as_deref(), owner).is_some(),
            };
            (!is_elsewhere
                && !summary.state.is_final()
                && !self.workstation.is_driven(&summary.job))
            .then_some(summary.job)
        });
        read.buffered(find_job::READS_IN_FLIGHT).filter_map(std::future::ready).collect().await
    }
}

/// `None`: there are no such jobs. `root`: the job root that the command must name.
fn sentence(jobs: &[String], root: Option<&str>) -> Option<String> {
    let first = jobs.first()?;
    let lamp = root.map_or_else(
        || "lamp".to_owned(),
        |root| format!("lamp --job-root {}", crate::cli::output::printer::shell_word(root)),
    );
    let place = root.map(|root| format!(" in {root}")).unwrap_or_default();
    let names: Vec<&str> = jobs.iter().map(String::as_str).collect();
    let are = if jobs.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{}{place} {are} under way that no process on this workstation drives now: {}; `{lamp} daemon --job {first} --until-done` drives that one, `{lamp} daemon` all of them",
        counted(jobs.len() as u64, "job"),
        some_of(&names, NAMED)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named_with_what_drives_it() {
        let jobs = |count: usize| (1..=count).map(|at| format!("job-{at}")).collect::<Vec<_>>();
        assert_eq!(sentence(&[], None), None);
        let one = "1 job is under way that no process on this workstation drives now: job-1; `lamp daemon --job job-1 --until-done` drives that one, `lamp daemon` all of them";
        assert_eq!(sentence(&jobs(1), None).as_deref(), Some(one));
        let many = sentence(&jobs(5), Some("s3://b/x")).expect("there is something to say");
        assert!(
            many.starts_with("5 jobs in s3://b/x are under way")
                && many.contains(
                    "job-1, job-2, job-3 and 2 more; `lamp --job-root s3://b/x daemon --job job-1"
                ),
            "{many}"
        );
        assert!(sentence(&jobs(3), None).is_some_and(|said| !said.contains("more")));
    }
}
