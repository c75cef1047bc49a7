//! The environment of a local job's commands: saved when the job is submitted, and the same in
//! every attempt.
//!
//! An attached `lamp run` or a daemon with its service's environment may start a local machine; the
//! job must not depend on that. Not here: which variables are saved
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
    /// Saves the environment and the secrets for the commands of a job. Without it, the commands
    /// inherit the agent's environment.
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

    /// Environments may hold secrets, so they are deleted with the receipt of their job.
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

    /// Deletes environments of jobs whose receipt another program has written.
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
