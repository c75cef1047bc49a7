//! No credentials were found: one error with one text for every call.
//!
//! The request was never sent, so the library's messages are useless. How an adapter recognises
//! this case does not belong here.

use std::error::Error;

/// Why no request could be signed, and the command that fixes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NoCredentials {
    pub what: String,
    pub fix: String,
}

/// The text when no place has credentials.
pub const NONE_FOUND: &str = "no AWS credentials were found";

impl NoCredentials {
    /// Whether this user seems never to have signed in. False for expired, broken or slow
    /// credentials.
    pub fn are_nowhere(&self) -> bool {
        self.what == NONE_FOUND
    }

    /// The `NoCredentials` among the causes of an error, if there is one.
    pub fn among(error: &dyn Error) -> Option<&NoCredentials> {
        let mut next = error.source();
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// The reason and the fix in one line.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.what, self.fix)
    }
}
