//! Why a recorded series could not be read: the file, or a line of it.

use std::path::{Path, PathBuf};

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    #[error("`{}` could not be read", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{}`, line {line}: {message}", path.display())]
    Line { path: PathBuf, line: usize, message: String },
    #[error("`{}` holds no samples", path.display())]
    Empty { path: PathBuf },
}

/// The fault in a line. The caller adds the path.
#[derive(Debug)]
pub(crate) struct LineError {
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl LineError {
    pub(crate) fn at(self, path: &Path) -> SeriesError {
        SeriesError::Line { path: path.to_owned(), line: self.line, message: self.message }
    }
}
