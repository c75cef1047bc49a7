//! How an error and its causes become text.

use std::error::Error;
use std::fmt::Write as _;

use super::NoCredentials;

/// An error and its causes in one line, for logs, events and reasons.
pub fn chain(error: &dyn Error) -> String {
    if let Some(missing) = NoCredentials::among(error) {
        return missing.to_string();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// The same, with the fix if credentials were missing.
pub fn chain_with_cure(error: &dyn Error) -> String {
    NoCredentials::among(error).map_or_else(|| chain(error), NoCredentials::sentence)
}

/// An error and its causes, each once: some libraries repeat the cause in their own text.
pub fn causes(error: &dyn Error) -> Vec<String> {
    if let Some(missing) = NoCredentials::among(error) {
        return vec![missing.to_string()];
    }
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        causes.push(error.to_string());
        next = error.source();
    }
    causes.dedup_by(|inner, outer| outer.contains(inner.as_str()));
    causes
}
