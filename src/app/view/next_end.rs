//! A job's end in advance: whether it was requested, and how long its machine is kept.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::local_time;
use crate::job::AttemptPhase;
use crate::market::{Usd, elapsed};
use crate::policy::EndWish;
use crate::policy::lifecycle::reconcile::AttemptFacts;

/// A request to end that is not carried out yet. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct EndAsked {
    /// `stop` or `cancel`.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub wish: &'static str,
    pub by: String,
    pub at: Timestamp,
}

impl From<EndWish> for EndAsked {
    fn from(wish: EndWish) -> Self {
        EndAsked { wish: if wish.cancel { "cancel" } else { "stop" }, by: wish.by, at: wish.at }
    }
}

/// A machine that is kept after the end (`[on] failure = "keep 30m"`). The field names are an
/// interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Held {
    pub until: Timestamp,
    pub usd: Usd,
    /// The folder of its work, for a local machine.
    #[cfg_attr(feature = "web", schema(value_type = Option<String>))]
    pub folder: Option<PathBuf>,
}

impl Held {
    pub fn of(attempt: &AttemptFacts, now: Timestamp) -> Option<Held> {
        let status = attempt
            .status
            .as_ref()
            .filter(|status| status.phase == AttemptPhase::Held && attempt.settled.is_none())?;
        let until = status.held_until?;
        Some(Held {
            until,
            usd: attempt.plan.offer.hourly().cost_of(elapsed(now, until)),
            folder: None,
        })
    }

    /// The text after "held".
    pub fn text(&self) -> String {
        let costs =
            if self.usd > Usd::ZERO { format!(", {} from now", self.usd) } else { String::new() };
        let folder = self
            .folder
            .as_ref()
            .map(|folder| format!("; its work is in {}", folder.display()))
            .unwrap_or_default();
        format!("until {}{costs}{folder}", local_time(self.until))
    }
}
