//! The error of the one-time setup.

/// Why a resource could not be read, created or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {act}: {why}")]
pub struct SetupError {
    pub act: String,
    pub why: String,
    /// The command to type, if it is known here.
    pub fix: Option<String>,
    /// Another run has created it since the look, so the plan is outdated.
    pub overtaken: bool,
    /// AWS was not asked: the user's settings do not say enough.
    pub unsaid: bool,
}

impl SetupError {
    pub(crate) fn new(act: impl Into<String>, why: impl Into<String>) -> Self {
        SetupError { act: act.into(), why: why.into(), fix: None, overtaken: false, unsaid: false }
    }

    pub(crate) fn overtaken(act: impl Into<String>) -> Self {
        SetupError { overtaken: true, ..SetupError::new(act, "somebody else has just made it") }
    }
}
