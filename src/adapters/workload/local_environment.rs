//! What the commands of a job of this workstation inherit: kept when the job is submitted, the same
//! in every attempt.
//!
//! A local machine is started by whoever drives the job then: an attached `lamp run`, a daemon with
//! the environment of its service. What must never live here: what is kept of an environment
//! (`workload::saved_environment`).

#![expect(clippy::disallowed_methods, reason = "it is a cloud: it has a clock and a disk")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::SystemTime;

use super::saved_environment::{self, Variable};
use crate::adapters::local::cloud::{KEEP_ENDED, LocalCloud};
use crate::adapters::local::machine_folder::{ENVIRONMENTS, environment_of};
use crate::instance::Tags;
use crate::job::{JobId, SecretSource};

impl LocalCloud {
    /// Keeps what the commands of a job inherit, and its secrets. Without it they find what their
    /// agent has.
    pub(crate) fn keep_environment(&self, job: &JobId, secrets: &BTreeMap<String, SecretSource>) {
        let file = environment_of(&self.machines, job);
        let mut found: Vec<Variable> = Vec::new();
        for (name, source) in secrets {
            match saved_environment::secret(name, source) {
                Ok(value) => found.extend(value.map(|value| (name.into(), value))),
                Err(error) => tracing::warn!(
                    "the secret {name} of job `{job}` cannot be read from `{source}`: {error}"
                ),
            }
        }
        if let Err(error) = saved_environment::keep(&file, &found) {
            tracing::warn!(
                "the environment of job `{job}` is not kept in {}: {error}",
                file.display()
            );
        }
    }

    /// Environments may hold secrets: they go with the receipt of their job.
    pub(crate) fn forget_environment(&self, job: &JobId) {
        let file = environment_of(&self.machines, job);
        if let Err(error) = fs::remove_file(&file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                "the environment of job `{job}` is not removed from {}: {error}",
                file.display()
            );
        }
    }

    /// Those whose receipt somebody else has written.
    pub(crate) fn forget_environments(&self) -> io::Result<()> {
        let mut needed = Vec::new();
        for name in self.instances()? {
            let folder = self.folder(&name);
            let job = folder
                .instance()
                .ok()
                .and_then(|record| Tags::from_map(&record.tags).ok())
                .map(|tags| tags.job);
            needed.extend(job.map(|job| environment_of(&self.machines, &job)));
        }
        for entry in fs::read_dir(self.machines.join(ENVIRONMENTS))?.flatten() {
            let age = entry
                .metadata()
                .and_then(|found| found.modified())
                .ok()
                .and_then(|kept| SystemTime::now().duration_since(kept).ok());
            if age.is_some_and(|age| age > KEEP_ENDED) && !needed.contains(&entry.path()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}
