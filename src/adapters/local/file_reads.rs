//! Which files of a folder were read, and when, from the access times of the file system.
//!
//! With `relatime`, the usual mount option, the first read after a write is noted. With `noatime`
//! no read is. Not here: which program read the file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::StatVfsMountFlags;

/// One file and its last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRead {
    /// Relative to the folder.
    pub path: String,
    /// Another inode means that the file was replaced.
    pub inode: u64,
    pub read_at: Timestamp,
    pub written_at: Timestamp,
}

/// The limit keeps a look quick. One file that was read is enough.
const FILES_MAX: usize = 2_000;

/// The files below the folder. `None`: the folder is missing, or its file system notes no reads.
pub fn reads(folder: &Path) -> Option<Vec<FileRead>> {
    let folder = folder.canonicalize().ok()?;
    let mount = rustix::fs::statvfs(&folder).ok()?;
    if mount.f_flag.contains(StatVfsMountFlags::NOATIME) {
        return None;
    }
    let (mut files, mut folders) = (Vec::new(), vec![folder.clone()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).ok()?.filter_map(Result::ok) {
            let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
            if found.is_dir() {
                folders.push(path);
            } else if found.is_file() && files.len() < FILES_MAX {
                let moment = |secs, nanos: i64| {
                    Timestamp::new(secs, i32::try_from(nanos).unwrap_or_default())
                };
                let (read_at, written_at) = (
                    moment(found.atime(), found.atime_nsec()),
                    moment(found.mtime(), found.mtime_nsec()),
                );
                let (Some(name), Ok(read_at), Ok(written_at)) =
                    (path.strip_prefix(&folder).ok()?.to_str(), read_at, written_at)
                else {
                    continue;
                };
                files.push(FileRead {
                    path: name.to_owned(),
                    inode: found.ino(),
                    read_at,
                    written_at,
                });
            }
        }
    }
    Some(files)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of the test")]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn read_is_noted_and_a_folder_that_is_gone_has_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("step-1")).unwrap();
        let path = folder.path().join("step-1/model.pt");
        fs::write(&path, "x").unwrap();
        // Far in the past: a read in the same clock tick would not show.
        fs::File::open(&path)
            .unwrap()
            .set_times(fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH))
            .unwrap();
        let Some(before) = reads(folder.path()) else { return };
        assert_eq!(before[0].path, "step-1/model.pt");
        fs::read(&path).unwrap();
        let after = reads(folder.path()).unwrap();
        assert!(
            after[0].read_at > before[0].read_at && after[0].inode == before[0].inode,
            "{before:?} {after:?}"
        );
        assert_eq!(reads(&folder.path().join("gone")), None);
    }
}
