//! Opens a file so that reading it does not move its access time.
//!
//! A rehearsal tells from the access times which files a script has read. The agent reads the same
//! files for their upload, and its reads must not count. `open(2)`: O_NOATIME is allowed to the
//! owner of a file and with CAP_FOWNER.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens for reading, with more flags of `open(2)`. Without that right, the read moves the time as
/// usual.
///
/// # Errors
/// As `open(2)`.
pub(crate) fn open_unnoted(path: &Path, flags: i32) -> io::Result<File> {
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    match open(flags | libc::O_NOATIME) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => open(flags),
        other => other,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of the test")]
mod tests {
    use std::io::Read as _;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn read_leaves_the_access_time_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.pt");
        std::fs::write(&path, "weights").unwrap();
        let old = std::fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH);
        File::open(&path).unwrap().set_times(old).unwrap();
        let mut text = String::new();
        open_unnoted(&path, 0).unwrap().read_to_string(&mut text).unwrap();
        let accessed = std::fs::metadata(&path).unwrap().accessed().unwrap();
        assert_eq!((text.as_str(), accessed), ("weights", SystemTime::UNIX_EPOCH));
        assert_eq!(
            open_unnoted(&folder.path().join("gone"), 0).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
