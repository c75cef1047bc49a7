//! Why a message did not come through a channel.

/// Its texts hold no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ChannelError {
    pub what: String,
    /// The step by which the user mends it.
    pub cure: String,
    /// Another try may succeed: there was no answer, or the service is busy.
    pub may_pass: bool,
}

impl ChannelError {
    pub fn lasting(what: impl Into<String>, cure: impl Into<String>) -> Self {
        ChannelError { what: what.into(), cure: cure.into(), may_pass: false }
    }

    pub fn passing(what: impl Into<String>, cure: impl Into<String>) -> Self {
        ChannelError { what: what.into(), cure: cure.into(), may_pass: true }
    }
}
