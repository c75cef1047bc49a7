//! Launch turns by a lock file in the state folder. The lock is released when its process ends.

#![expect(clippy::disallowed_methods, reason = "keeps a lock file")]

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{FlockOperation, flock};

use super::driver_process::{hash, open_lock};
use crate::ports::{Turn, Turns};

/// A turn takes one look at the job root and one record. Shorter only spins.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The turns of all processes of this user here that launch jobs of one job root.
#[derive(Clone, Debug)]
pub struct LaunchTurns {
    path: PathBuf,
}

impl LaunchTurns {
    pub fn new(state: &Path, job_root: &str) -> Self {
        LaunchTurns { path: state.join(format!("launching-{}.lock", hash(job_root))) }
    }

    fn open(&self) -> Option<File> {
        let folder = self.path.parent()?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        open_lock(&self.path).ok()
    }
}

#[async_trait]
impl Turns for LaunchTurns {
    async fn take(&self, patience: Duration) -> Option<Turn> {
        let until = tokio::time::Instant::now() + patience;
        let Some(file) = self.open() else { return Some(Box::new(())) };
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(TRY_EVERY).await
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return None,
                // This home has no file locks.
                Ok(()) | Err(_) => return Some(Box::new(file)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_has_the_turn_until_it_is_given_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let turns = |root| LaunchTurns::new(&folder.path().join("state"), root);
        let first = turns("a").take(Duration::ZERO).await.expect("nobody has it");
        assert!(turns("a").take(Duration::from_millis(120)).await.is_none());
        assert!(turns("b").take(Duration::ZERO).await.is_some(), "another job root");
        let second = turns("a");
        let waits = tokio::spawn(async move { second.take(Duration::from_secs(30)).await });
        drop(first);
        assert!(waits.await.expect("it waits").is_some());
    }
}
