//! The ids of jobs whose code is on its way up, and that do not exist yet. Code lies under its job: what has arrived of it is of use
//! to that id alone, so whoever is cut off leaves it to the next that sends for a job of the same name.
//!
//! ```text
//!   <state>/unsent/<hash of the job root>/<name>     the id; locked while somebody sends, and gone once all is sent
//! ```
//! What must never live here: how far the code is (`object_parts`), and whether the job exists by now (whoever takes the id asks).

#![expect(clippy::disallowed_methods, reason = "keeps its files in the state folder")]

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::{driver_process, here};
use crate::job::JobId;

/// The id for a job of one name, nobody else's for as long as this lives.
#[derive(Debug)]
pub struct Unsent {
    left: Option<JobId>,
    file: File,
    path: PathBuf,
}

impl Unsent {
    /// For a job that is called as this one; `None`: another process sends for one of that name just now.
    ///
    /// # Errors
    /// When the state folder cannot be read or written.
    pub fn take(state: &Path, job_root: &str, job: &JobId) -> io::Result<Option<Unsent>> {
        let folder = state.join("unsent").join(driver_process::hash(job_root.trim_end_matches('/')));
        // An id of which the bucket has given up by now what had arrived is of no use to anybody.
        driver_process::forget_old(&folder);
        let path = folder.join(job.name());
        let Some(mut file) = here::lock(&path)? else { return Ok(None) };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let left = text.parse::<JobId>().ok().filter(|left| left.name() == job.name());
        Ok(Some(Unsent { left, file, path }))
    }

    /// The one that was left here, with some of its code perhaps.
    pub fn left(&self) -> Option<&JobId> {
        self.left.as_ref()
    }

    /// Leaves this id to whoever comes next, until [`Self::sent`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn leave(&mut self, job: &JobId) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(job.as_str().as_bytes())
    }

    /// All of the code is there. From here on the job may exist, and nobody may take its id.
    ///
    /// # Errors
    /// When it cannot be written: then the next of this name finds an id that is taken perhaps.
    pub fn sent(self) -> io::Result<()> {
        // First: whoever has opened it before it is gone reads what is in it.
        self.file.set_len(0)?;
        fs::remove_file(&self.path)
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
        let take = |root: &str, id: &str| Unsent::take(state.path(), root, &job(id)).unwrap();
        let mut first = take("s3://a/b", "digits-222222").unwrap();
        assert_eq!(first.left(), None);
        first.leave(&job("digits-222222")).unwrap();
        assert!(take("s3://a/b", "digits-333333").is_none(), "two that send at once are two jobs");
        drop(first);
        for (root, id) in [("s3://a/c", "digits-333333"), ("s3://a/b", "digit-333333")] {
            assert_eq!(take(root, id).unwrap().left(), None, "{root} {id}");
        }
        let mut second = take("s3://a/b/", "digits-333333").unwrap();
        assert_eq!(second.left(), Some(&job("digits-222222")));
        second.leave(&job("digits-444444")).unwrap();
        drop(second);
        let third = take("s3://a/b", "digits-555555").unwrap();
        assert_eq!(third.left(), Some(&job("digits-444444")));
        third.sent().unwrap();
        assert_eq!(take("s3://a/b", "digits-666666").unwrap().left(), None);
    }

    #[test]
    fn what_is_no_id_of_this_name_is_nobodys() {
        let state = tempfile::tempdir().unwrap();
        let taken = Unsent::take(state.path(), "s3://a/b", &job("digits-222222")).unwrap().unwrap();
        let path = taken.path.clone();
        drop(taken);
        for text in ["", "other-222222", "../../x", "digits 2"] {
            fs::write(&path, text).unwrap();
            assert_eq!(Unsent::take(state.path(), "s3://a/b", &job("digits-333333")).unwrap().unwrap().left(), None, "{text}");
        }
    }
}
