//! Reports jobs in another job root than the one that a command reads.
//!
//! Not here: which job root applies (`config::job_root`).

use std::time::Duration;

use crate::app::find_job;
use crate::app::text::counted;
use crate::cli::Context;
use crate::cli::output::printer::shell_word;
use crate::cli::shell::job_root;
use crate::config::{self, Environment, UserConfig};
use crate::jobdir;

/// A job root is not waited for longer than this: its answer is only a note.
const ASKED_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lying {
    root: String,
    jobs: usize,
    under_way: usize,
}

impl Lying {
    /// `None`: there are no jobs, or the job root is silent or missing.
    async fn look(context: &Context, root: &str) -> Option<Lying> {
        let looked = async {
            let store = job_root::workstation(context).ok()?.at(root).open_root(true).await.ok()?;
            let jobs = jobdir::jobs(store.as_ref()).await.ok()?.len();
            let under_way = if jobs == 0 {
                0
            } else {
                find_job::all_that_may_be_open(&store).await.ok()?.len()
            };
            Some(Lying { root: store.url(), jobs, under_way })
        };
        let found = tokio::select! {
            found = looked => found,
            () = context.clock.sleep(ASKED_FOR) => None,
        };
        found.filter(|lying| lying.jobs > 0)
    }

    /// The jobs of the previous job root, which `next` replaces.
    #[cfg(feature = "aws")]
    pub async fn behind(context: &Context, next: &str) -> Option<Lying> {
        if context.roots.url == next {
            None
        } else {
            Lying::look(context, &context.roots.url).await
        }
    }

    #[cfg(feature = "aws")]
    pub fn has_work(&self) -> bool {
        self.under_way > 0
    }

    /// `9 jobs stay in file:///x (2 under way); ...`
    #[cfg(feature = "aws")]
    pub fn stays(&self) -> String {
        let stay = if self.jobs == 1 { "stays" } else { "stay" };
        let shows = self.shows();
        format!(
            "{} {stay} in {} ({} under way); {shows}, and a daemon that runs drives those alone",
            self.count(),
            self.root,
            self.under_way
        )
    }

    /// `9 jobs lie in file:///x, ...`
    fn lies(&self) -> String {
        let lie = if self.jobs == 1 { "lies" } else { "lie" };
        format!(
            "{} {lie} in {}, where jobs are kept unless a job root is said ({} under way); {}",
            self.count(),
            self.root,
            self.under_way,
            self.shows()
        )
    }

    fn count(&self) -> String {
        counted(self.jobs as u64, "job")
    }

    fn shows(&self) -> String {
        let them = if self.jobs == 1 { "it" } else { "them" };
        format!("`lamp --job-root {} status` shows {them}", shell_word(&self.root))
    }
}

/// Beside an empty list: reports jobs in the default folder.
pub async fn tell_of_the_default(context: &Context) {
    let unsaid = Environment { job_root: None, ..context.environment.clone() };
    let Ok(default) = config::job_root(None, &unsaid, &UserConfig::default()) else { return };
    if default.url == context.roots.url {
        return;
    }
    if let Some(lying) = Lying::look(context, &default.url).await {
        context.printer.note(lying.lies());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_jobs_are_is_said_with_what_shows_them() {
        let lying = Lying { root: "file:///home/a/x".into(), jobs: 9, under_way: 2 };
        let said = "9 jobs lie in file:///home/a/x, where jobs are kept unless a job root is said (2 under way); `lamp --job-root file:///home/a/x status` shows them";
        assert_eq!(lying.lies(), said);
        let one = Lying { jobs: 1, under_way: 0, ..lying };
        assert!(
            one.lies().starts_with("1 job lies in ") && one.lies().ends_with("shows it"),
            "{}",
            one.lies()
        );
    }
}
