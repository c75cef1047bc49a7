//! Nobody knows who we are: said once and in the same words, whichever call was the first to need it.
//!
//! Nothing was sent, so the layers of the library that noticed it say nothing worth reading. What must never live here: how it
//! is recognised (an adapter's work).

use std::error::Error;

use super::chain::chain;

/// Why nothing could be signed, and what to type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NoCredentials {
    pub what: String,
    pub fix: String,
}

/// What is said where none of the places that may have credentials has any.
pub const NONE_FOUND: &str = "no AWS credentials were found";

impl NoCredentials {
    /// Nobody has ever signed in here, as far as can be seen. Credentials that are over or broken were there once, and those that did
    /// not come in time may be.
    pub fn are_nowhere(&self) -> bool {
        self.what == NONE_FOUND
    }

    /// The one below an error, if that is what it comes from.
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

    /// An error with all its causes, and what to type where it comes from this.
    pub fn with_cure(error: &dyn Error) -> String {
        NoCredentials::among(error).map_or_else(|| chain(error), NoCredentials::sentence)
    }

    /// Both in one line.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.what, self.fix)
    }
}
