//! The ids of jobs whose code is being uploaded, before the job exists. Code is stored under the
//! job's id, so a later run for the same job name takes over the id of an interrupted one.
//!
//! `<state>/unsent/<hash of the job root>/<name>-<hash>` has the id and the hash of the code. It is
//! locked during the upload, and removed after it.
//!
//! The second hash covers the workdir, since two projects may use one job name. It also covers the
//! machine, because locks may not reach across machines that share or copied a state folder. Not
//! here: the progress of the upload (`store::s3_multipart`), and whether the job exists already
//! (the caller checks).

#![expect(clippy::disallowed_methods, reason = "keeps its files in the state folder")]

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::adapters::workstation::{driver_process, process_env};
use crate::job::JobId;

/// The id for a job of one name, locked against other processes until it is dropped.
#[derive(Debug)]
pub struct Unsent {
    left: Option<(JobId, String)>,
    file: File,
    path: PathBuf,
}

impl Unsent {
    /// The id for a job of this name and workdir; `None`: another process is uploading for it now.
    ///
    /// # Errors
    /// If the state folder cannot be read or written.
    pub fn take(
        state: &Path,
        job_root: &str,
        workdir: &Path,
        job: &JobId,
    ) -> io::Result<Option<Unsent>> {
        let folder =
            state.join("unsent").join(driver_process::hash(job_root.trim_end_matches('/')));
        // The bucket has deleted the parts of old uploads, so their ids are useless.
        driver_process::forget_old(&folder);
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let path = folder.join(format!(
            "{}-{}",
            job.name(),
            driver_process::hash(&format!("{machine}\n{}", workdir.display()))
        ));
        // Before the lock, another process may have finished the upload, or removed the file as
        // old.
        for _ in 0..3 {
            let Some(mut file) = process_env::lock(&path)? else { return Ok(None) };
            if file.metadata()?.nlink() == 0 {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let is_alike = |left: &JobId| {
                left.name() == job.name() && left.as_str().len() == job.as_str().len()
            };
            let left = text.split_once(' ').and_then(|(left, code)| {
                Some((left.parse().ok().filter(is_alike)?, code.to_owned()))
            });
            return Ok(Some(Unsent { left, file, path }));
        }
        Ok(None)
    }

    /// The id of an interrupted upload, and the SHA-256 of its code.
    pub fn left(&self) -> Option<(&JobId, &str)> {
        self.left.as_ref().map(|(job, code)| (job, code.as_str()))
    }

    /// Keeps this id, with the SHA-256 of its code, for the next run, until [`Self::sent`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn leave(&mut self, job: &JobId, code: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{job} {code}")
    }

    /// All of the code has arrived. From now on the job may exist, so its id must not be used
    /// again.
    ///
    /// # Errors
    /// If it cannot be written: the next run of this name may then find a used id.
    pub fn sent(self) -> io::Result<()> {
        // First: if the removal fails, the file is empty.
        self.file.set_len(0)?;
        // If it was removed as old, another process may have made a new one.
        if self.file.metadata()?.nlink() > 0 { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str) -> JobId {
        id.parse().unwrap()
    }

    #[test]
    fn id_is_left_to_the_next_of_its_name_until_its_code_is_sent() {
        let state = tempfile::tempdir().unwrap();
        let take = |root: &str, id: &str| {
            Unsent::take(state.path(), root, Path::new("/a"), &job(id)).unwrap()
        };
        let mut first = take("s3://a/b", "digits-222222").unwrap();
        assert_eq!(first.left(), None);
        first.leave(&job("digits-222222"), "a1").unwrap();
        assert!(take("s3://a/b", "digits-333333").is_none(), "two that send at once are two jobs");
        drop(first);
        for (root, id) in [("s3://a/c", "digits-333333"), ("s3://a/b", "digit-333333")] {
            assert_eq!(take(root, id).unwrap().left(), None, "{root} {id}");
        }
        let other = Unsent::take(state.path(), "s3://a/b", Path::new("/b"), &job("digits-333333"))
            .unwrap()
            .unwrap();
        assert_eq!(other.left(), None, "another project has another code");
        let mut second = take("s3://a/b/", "digits-333333").unwrap();
        assert_eq!(second.left(), Some((&job("digits-222222"), "a1")));
        second.leave(&job("digits-444444"), "b2").unwrap();
        drop(second);
        let third = take("s3://a/b", "digits-555555").unwrap();
        assert_eq!(third.left(), Some((&job("digits-444444"), "b2")));
        third.sent().unwrap();
        assert_eq!(take("s3://a/b", "digits-666666").unwrap().left(), None);
    }

    #[test]
    fn foreign_upload_id_is_ignored() {
        let state = tempfile::tempdir().unwrap();
        let take = || {
            Unsent::take(state.path(), "s3://a/b", Path::new("/a"), &job("digits-333333"))
                .unwrap()
                .unwrap()
        };
        let path = take().path.clone();
        for text in [
            "",
            "digits-222222",
            "other-222222 a",
            "../../x a",
            "digits 2",
            "digits a",
            "digits-2 a",
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(take().left(), None, "{text}");
        }
    }

    /// It was thought old, and another process has begun anew.
    #[test]
    fn stale_holder_keeps_newer_upload() {
        let state = tempfile::tempdir().unwrap();
        let take = || {
            Unsent::take(state.path(), "s3://a/b", Path::new("/a"), &job("digits-222222"))
                .unwrap()
                .unwrap()
        };
        let first = take();
        fs::remove_file(&first.path).unwrap();
        let mut second = take();
        second.leave(&job("digits-333333"), "c3").unwrap();
        first.sent().unwrap();
        drop(second);
        assert_eq!(take().left(), Some((&job("digits-333333"), "c3")));
    }
}
