//! Keeps the files of a checkpoint unchanged during their upload, so that rotation and the next
//! save do not damage them.
//!
//! A small file or a log is copied. Other files are cloned if the file system can do that.
//! Otherwise they are hard-linked: deletes and renames do not affect a link, and a write in place
//! is detected. The next time, such a file is copied, whatever its size.
//!
//! Not here: which files belong to a checkpoint.

#![expect(clippy::disallowed_methods, reason = "this is the adapter that reads and writes files")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::noatime::open_unnoted;
use crate::adapters::workstation::hashed_file::{Unreadable, open_source};
use crate::ports::{StageFile, StagedFile};

/// A file of this size is copied in milliseconds. Larger copies would slow down the training's
/// disk.
const COPIED_MAX: u64 = 4 * 1024 * 1024;

/// The most that is copied for one checkpoint: more takes seconds, and the next save may begin.
const COPIED_SUM_MAX: u64 = 64 * 1024 * 1024;

/// A large file is copied if the disk has room for so many of it: this copy, and the next save.
const ROOM_FOR: u64 = 3;

/// Keeps each file under its own name in the first folder on the same file system.
///
/// # Errors
/// If none of the folders can be used. The caller removes the files that were made.
pub(crate) fn stage(files: &[StageFile], folders: &[PathBuf]) -> io::Result<Vec<StagedFile>> {
    let mut last = io::Error::other("no folder to hold files in");
    for folder in folders {
        match fs::create_dir_all(folder).and_then(|()| stage_in(files, folder)) {
            Ok(staged) => return Ok(staged),
            Err(error) => last = error,
        }
        let _ = fs::remove_dir_all(folder);
    }
    Err(last)
}

fn stage_in(files: &[StageFile], folder: &Path) -> io::Result<Vec<StagedFile>> {
    let mut copied = 0;
    let mut hold = |(index, file): (usize, &StageFile)| {
        // The upload reports an unreadable file. The other files are kept anyway.
        if open_source(&file.path).is_err_and(|error| Unreadable::is(&error)) {
            return Ok(StagedFile { path: file.path.clone(), is_copy: false });
        }
        let path = folder.join(index.to_string());
        let is_small = file.bytes <= COPIED_MAX && copied + file.bytes <= COPIED_SUM_MAX;
        let is_rewritten = file.is_rewritten && has_room(folder, file.bytes);
        if (is_small || file.is_log || is_rewritten) && copy(&file.path, &path).is_ok() {
            copied += if is_rewritten { 0 } else { file.bytes };
            return Ok(StagedFile { path, is_copy: true });
        }
        if clone(&file.path, &path).is_ok() {
            return Ok(StagedFile { path, is_copy: true });
        }
        let _ = fs::remove_file(&path);
        fs::hard_link(fs::canonicalize(&file.path)?, &path)?;
        Ok(StagedFile { path, is_copy: false })
    };
    files.iter().enumerate().map(&mut hold).collect()
}

fn has_room(folder: &Path, bytes: u64) -> bool {
    let free = rustix::fs::statvfs(folder).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    free.is_ok_and(|free| free / ROOM_FOR >= bytes)
}

fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    io::copy(&mut open_unnoted(from, 0)?, &mut created(to)?)
}

fn clone(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(created(to)?, File::open(from)?)?)
}

fn created(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// neptune-client#1888: two checkpoints are left, and one takes longer to upload than the time
    /// to the next but one.
    #[test]
    fn what_is_held_stays_as_it_was_when_its_source_is_rotated_away() {
        let home = tempfile::tempdir().expect("a folder");
        let (source, stage) = (home.path().join("checkpoint-20"), home.path().join("staged"));
        fs::create_dir(&source).expect("a folder");
        let large = vec![7; usize::try_from(COPIED_MAX).expect("it fits") + 1];
        for (name, body) in
            [("config.json", &b"small"[..]), ("model.pt", &large), ("train.log", b"a line")]
        {
            fs::write(source.join(name), body).expect("written");
        }
        let files = ["config.json", "model.pt", "train.log"].map(|name| {
            let path = source.join(name);
            StageFile {
                bytes: fs::metadata(&path).expect("there").len(),
                is_log: name.ends_with(".log"),
                is_rewritten: false,
                path,
            }
        });
        let staged = stage_once(&files, &stage);
        // The log is written on, the small one is written anew in place, and then all of it goes.
        fs::write(source.join("train.log"), "another").expect("written");
        fs::write(source.join("config.json"), "other").expect("written");
        fs::remove_dir_all(&source).expect("rotated away");
        let held: Vec<Vec<u8>> =
            staged.iter().map(|file| fs::read(&file.path).expect("it is held")).collect();
        assert_eq!(
            (held[0].as_slice(), held[1].len(), held[2].as_slice()),
            (&b"small"[..], large.len(), &b"a line"[..])
        );
        assert!(
            staged[0].is_copy && staged[2].is_copy,
            "what is written in place does not reach a copy"
        );
    }

    /// `torch.save(..., "last.pt")` each minute, and an upload that takes longer.
    #[test]
    fn large_file_that_was_rewritten_is_copied_the_next_time() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("last.pt");
        let bytes = COPIED_MAX + 1;
        fs::write(&path, vec![1; usize::try_from(bytes).expect("it fits")]).expect("written");
        let file = StageFile { path: path.clone(), bytes, is_log: false, is_rewritten: true };
        let staged = stage_once(&[file], &home.path().join("staged"));
        let mut source = OpenOptions::new().write(true).open(&path).expect("opened");
        io::Write::write_all(&mut source, b"the next save").expect("written in place");
        assert!(staged[0].is_copy);
        assert_eq!(fs::read(&staged[0].path).expect("it is held")[..4], [1; 4]);
        assert!(!has_room(home.path(), u64::MAX / 2), "no disk has room for it");
    }

    fn stage_once(files: &[StageFile], folder: &Path) -> Vec<StagedFile> {
        let not_a_folder = folder.with_file_name("checkpoint-20/config.json");
        stage(files, &[not_a_folder, folder.to_owned()]).expect("the second can be used")
    }
}
