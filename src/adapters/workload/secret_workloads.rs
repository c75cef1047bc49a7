//! Workloads with secrets: each start reads them from AWS first, with the machine's own role.
//!
//! A start reads each secret (once per process), writes them into the file that the holder reads,
//! starts the holder, and writes the file again without them. They go only to the command's
//! environment: the file belongs to root, and holds them during a start only. Not here: which
//! secrets there are (`job::SecretSource`).

#![expect(clippy::disallowed_methods, reason = "waits between two questions, and bounds them")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::saved_environment::{self, Variable};
use crate::adapters::aws::secrets::{AwsSecrets, SecretError};
use crate::job::SecretSource;
use crate::ports::{Launch, Workload, WorkloadError, Workloads, chain};

/// How long a service that does not answer is asked again. The agent allows two minutes for a
/// start, and the holder needs some of them.
const ASKED_FOR: Duration = Duration::from_secs(75);

/// The pause between two calls.
const AGAIN: Duration = Duration::from_secs(5);

pub struct SecretWorkloads {
    inner: Arc<dyn Workloads>,
    wanted: BTreeMap<String, SecretSource>,
    /// `None`: this machine has no AWS credentials.
    secrets: Option<AwsSecrets>,
    /// The file with the environment for the holder's command (`workload::saved_environment`).
    environment: PathBuf,
    read: Mutex<Option<Vec<Variable>>>,
}

impl SecretWorkloads {
    pub fn new(
        inner: Arc<dyn Workloads>,
        wanted: BTreeMap<String, SecretSource>,
        secrets: Option<AwsSecrets>,
        environment: PathBuf,
    ) -> Self {
        SecretWorkloads { inner, wanted, secrets, environment, read: Mutex::new(None) }
    }

    async fn secrets(&self) -> Result<Vec<Variable>, WorkloadError> {
        let mut read = self.read.lock().await;
        if let Some(read) = &*read {
            return Ok(read.clone());
        }
        let until = Instant::now() + ASKED_FOR;
        let mut found = Vec::new();
        for (name, source) in &self.wanted {
            let value =
                self.one(source, until).await.map_err(|why| not_read(name, source, &why))?;
            found.push((name.into(), value.into()));
        }
        *read = Some(found.clone());
        Ok(found)
    }

    async fn one(&self, source: &SecretSource, until: Instant) -> Result<String, String> {
        let Some(secrets) = &self.secrets else {
            return Err("this machine has no credentials of AWS".into());
        };
        loop {
            match secrets.value(source).await {
                Ok(value) => return Ok(value),
                Err(error @ SecretError::Refused { .. }) => return Err(error.to_string()),
                Err(error) if Instant::now() >= until => return Err(chain(&error)),
                Err(error) => {
                    tracing::warn!("`{source}` is not read yet, trying again: {}", chain(&error))
                }
            }
            sleep(AGAIN).await;
        }
    }
}

fn not_read(name: &str, source: &SecretSource, why: &str) -> WorkloadError {
    let text = format!("the secret {name} cannot be read from `{source}`: {why}");
    WorkloadError::NotStarted { cause: io::Error::other(text) }
}

/// The environment of the command without the secrets.
fn base(file: &Path, wanted: &BTreeMap<String, SecretSource>) -> Vec<Variable> {
    let kept = saved_environment::read(file).unwrap_or_else(|_| saved_environment::inherited());
    kept.into_iter()
        .filter(|(name, _)| name.to_str().is_none_or(|name| !wanted.contains_key(name)))
        .collect()
}

#[async_trait]
impl Workloads for SecretWorkloads {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let secrets = self.secrets().await?;
        let base = base(&self.environment, &self.wanted);
        let failed = |cause| WorkloadError::NotStarted { cause };
        saved_environment::write(&self.environment, base.iter().cloned().chain(secrets))
            .map_err(failed)?;
        let started = self.inner.start(launch).await;
        // The holder has read it, or will not read it any more.
        if let Err(error) = saved_environment::write(&self.environment, base) {
            tracing::warn!(
                "the secrets stay in {} until this machine ends: {error}",
                self.environment.display()
            );
        }
        started
    }

    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        self.inner.attach(dir).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Plain;

    use super::*;

    /// Notes what the holder would read, and starts nothing.
    struct Reads(PathBuf, Plain<Vec<Variable>>);

    #[async_trait]
    impl Workloads for Reads {
        async fn start(&self, _: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
            *self.1.lock().unwrap() = saved_environment::read(&self.0).unwrap();
            Err(WorkloadError::NotStarted { cause: io::Error::other("a test starts nothing") })
        }

        async fn attach(&self, _: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
            Ok(None)
        }
    }

    fn launch(dir: &Path) -> Launch {
        Launch {
            name: "t".into(),
            argv: vec!["true".into()],
            cwd: dir.to_owned(),
            env: BTreeMap::new(),
            dir: dir.to_owned(),
            log_bytes_max: 1,
            echo: false,
            terminal: false,
        }
    }

    fn wanted() -> BTreeMap<String, SecretSource> {
        [("HF_TOKEN".to_owned(), "ssm:/secrets/HF_TOKEN".parse().unwrap())].into()
    }

    #[tokio::test]
    async fn secrets_are_in_the_environment_of_a_start_and_gone_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("environment");
        saved_environment::write(
            &file,
            [("PATH".into(), "/bin".into()), ("HF_TOKEN".into(), "old".into())],
        )
        .unwrap();
        let inner = Arc::new(Reads(file.clone(), Plain::default()));
        let workloads = SecretWorkloads::new(
            Arc::clone(&inner) as Arc<dyn Workloads>,
            wanted(),
            None,
            file.clone(),
        );
        *workloads.read.lock().await = Some(vec![("HF_TOKEN".into(), "hf_value".into())]);
        assert!(workloads.start(&launch(folder.path())).await.is_err());
        let seen = inner.1.lock().unwrap().clone();
        assert_eq!(seen, [("PATH".into(), "/bin".into()), ("HF_TOKEN".into(), "hf_value".into())]);
        assert_eq!(
            saved_environment::read(&file).unwrap(),
            [("PATH".into(), "/bin".into())],
            "it lies there no longer"
        );
    }

    #[tokio::test]
    async fn start_without_its_secret_is_refused_and_says_which() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("environment");
        let inner = Arc::new(Reads(file.clone(), Plain::default()));
        let workloads = SecretWorkloads::new(inner, wanted(), None, file);
        let Err(error) = workloads.start(&launch(folder.path())).await else {
            panic!("it must be refused")
        };
        assert!(error.is_final(), "{error}");
        let text = chain(&error);
        assert!(
            text.contains("the secret HF_TOKEN cannot be read from `ssm:/secrets/HF_TOKEN`"),
            "{text}"
        );
    }
}
