//! A wish to end, as `status` shows it.

use jiff::Timestamp;
use serde::Serialize;

use crate::policy::EndWish;

/// A wish to end that has not come true. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndAsked {
    /// `stop` or `cancel`.
    pub wish: &'static str,
    pub by: String,
    pub at: Timestamp,
}

impl From<EndWish> for EndAsked {
    fn from(wish: EndWish) -> Self {
        EndAsked { wish: if wish.cancel { "cancel" } else { "stop" }, by: wish.by, at: wish.at }
    }
}
