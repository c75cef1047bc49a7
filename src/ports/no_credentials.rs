//! No credentials were found: one error with one text for every call.
//!
//! The request was never sent, so the library's messages are useless. How an adapter recognises
//! this case does not belong here.

use std::error::Error;

/// Why no request could be signed, and the command that fixes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NoCredentials {
    pub gap: CredentialsGap,
    pub what: String,
    pub fix: String,
}

/// Which credentials are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsGap {
    /// No place has any: this user seems never to have signed in.
    Nowhere,
    /// They have expired, are broken, or did not come in time.
    Unusable,
}

impl NoCredentials {
    pub fn are_nowhere(&self) -> bool {
        self.gap == CredentialsGap::Nowhere
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
