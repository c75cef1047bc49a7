//! Reads a file that the user named: a regular file of at most 1 MB.

use std::io::{self, Read as _};
use std::path::Path;

use super::ConfigError;

/// The largest file that is read. A job file is smaller; a data set may be named by mistake.
const FILE_BYTES_MAX: u64 = 1_000_000;

#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user named is read here and nowhere else in config"
)]
pub fn read_file(what: &'static str, path: &Path) -> Result<String, ConfigError> {
    // Opening a pipe would wait for a writer, and some devices never end. `/dev/null` is an empty
    // file on purpose.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
        && path != Path::new("/dev/null")
    {
        return Err(ConfigError::Read {
            path: path.to_owned(),
            source: io::Error::other("it is no regular file"),
        });
    }
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ConfigError::NotFound { what, path: path.to_owned() },
        _ => ConfigError::Read { path: path.to_owned(), source },
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(refused)?;
    // The bound holds for a file that grows meanwhile too.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(refused)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { what, path: path.to_owned() });
    }
    Ok(text)
}
