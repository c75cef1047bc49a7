//! An error of the world, in words.

use std::error::Error;
use std::fmt::Write as _;

/// An error and its causes in one line: for logs, events and reasons, where nobody can ask back.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
