//! The ids of jobs whose code is on its way up, and that do not exist yet. Code lies under its job:
//! what has arrived of it is of use to that id alone, so whoever is cut off leaves it to the next
//! that sends for a job of the same name.
//!
//! ```text
//!   <state>/unsent/<hash of the job root>/<name>-<hash>     the id, and the hash of the code; locked while somebody sends, and gone once all is sent
//! ```
//! The second hash is of the workdir, since two projects may call their jobs alike, and of the
//! machine: a state folder that two machines share, or that was copied, has locks that may not
//! reach from one to the other. Not here: how far the code is (`store::s3_multipart`), and whether
//! the job exists by now (whoever takes the id asks).

#![expect(clippy::disallowed_methods, reason = "keeps its files in the state folder")]

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::adapters::workstation::{driver_process, process_env};
use crate::job::JobId;

/// The id for a job of one name, nobody else's for as long as this lives.
#[derive(Debug)]
pub struct Unsent {
    left: Option<(JobId, String)>,
    file: File,
    path: PathBuf,
}

impl Unsent {
    /// For a job of this workdir that is called as this one; `None`: another process sends for such
    /// a one just now.
    ///
    /// # Errors
    /// When the state folder cannot be read or written.
    pub fn take(
        state: &Path,
        job_root: &str,
        workdir: &Path,
        job: &JobId,
    ) -> io::Result<Option<Unsent>> {
        let folder =
            state.join("unsent").join(driver_process::hash(job_root.trim_end_matches('/')));
        // An id of which the bucket has given up by now what had arrived is of no use to anybody.
        driver_process::forget_old(&folder);
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let path = folder.join(format!(
            "{}-{}",
            job.name(),
            driver_process::hash(&format!("{machine}\n{}", workdir.display()))
        ));
        // Between the opening and the lock somebody may have sent all of it, or thought it old.
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

    /// The one that was left here, with some of its code perhaps, and the SHA-256 of that code.
    pub fn left(&self) -> Option<(&JobId, &str)> {
        self.left.as_ref().map(|(job, code)| (job, code.as_str()))
    }

    /// Leaves this id, whose code has this SHA-256, to whoever comes next, until [`Self::sent`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn leave(&mut self, job: &JobId, code: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{job} {code}")
    }

    /// All of the code is there. From here on the job may exist, and nobody may take its id.
    ///
    /// # Errors
    /// When it cannot be written: then the next of this name finds an id that is taken perhaps.
    pub fn sent(self) -> io::Result<()> {
        // First: whoever cannot remove it leaves nothing in it.
        self.file.set_len(0)?;
        // One that was thought old while it was held may have been made anew by somebody else.
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
    fn an_id_is_left_to_the_next_of_its_name_until_its_code_is_sent() {
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
    fn what_is_no_id_of_this_name_is_nobodys() {
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
    fn who_holds_what_is_gone_takes_nothing_from_whoever_came_after() {
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
