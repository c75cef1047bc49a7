//! Parses the documents of the metadata service. The parsing is pure, because a test gives it any
//! text.
//!
//! An undocumented text is an error, so that it cannot hide a notice. Not here: a request.

use jiff::Timestamp;
use serde::Deserialize;

use crate::instance::{Notice, NoticeKind};

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SaidError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("`{0}` is not a time")]
    Time(String),
}

/// `spot/instance-action`.
///
/// # Errors
/// If AWS does not document such a text.
pub fn interruption(text: &str) -> Result<Notice, SaidError> {
    #[derive(Deserialize)]
    struct Action {
        action: String,
        time: String,
    }
    let Action { action, time } = serde_json::from_str(text)?;
    Ok(Notice { kind: NoticeKind::Interruption, at: rfc3339(&time)?, detail: action })
}

/// `events/recommendations/rebalance`.
///
/// # Errors
/// If AWS does not document such a text.
pub fn rebalance(text: &str) -> Result<Notice, SaidError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rebalance {
        notice_time: String,
    }
    let Rebalance { notice_time } = serde_json::from_str(text)?;
    Ok(Notice {
        kind: NoticeKind::Rebalance,
        at: rfc3339(&notice_time)?,
        detail: "rebalance".into(),
    })
}

/// `events/maintenance/scheduled`: the events that are still planned.
///
/// # Errors
/// If AWS does not document such a text.
pub fn maintenance(text: &str) -> Result<Vec<Notice>, SaidError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct MaintenanceEvent {
        not_before: String,
        code: String,
        #[serde(default)]
        state: Option<String>,
    }
    let events: Vec<MaintenanceEvent> = serde_json::from_str(text)?;
    // Events that are over stay listed for a week as `completed` or `canceled`.
    let stands =
        |event: &MaintenanceEvent| event.state.as_deref().is_none_or(|state| state == "active");
    let notice = |event: MaintenanceEvent| {
        Ok(Notice {
            kind: NoticeKind::Maintenance,
            at: maintenance_time(&event.not_before)?,
            detail: event.code,
        })
    };
    events.into_iter().filter(stands).map(notice).collect()
}

/// `instance-identity/document`: the machine's id, and when it was launched.
///
/// # Errors
/// If AWS does not document such a text.
pub fn document(text: &str) -> Result<(String, Timestamp), SaidError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        instance_id: String,
        pending_time: String,
    }
    let Document { instance_id, pending_time } = serde_json::from_str(text)?;
    Ok((instance_id, rfc3339(&pending_time)?))
}

fn rfc3339(text: &str) -> Result<Timestamp, SaidError> {
    text.parse().map_err(|_| SaidError::Time(text.to_owned()))
}

/// `21 Jan 2019 09:00:43 GMT`, as maintenance events have it, or RFC 3339, as all others do.
fn maintenance_time(text: &str) -> Result<Timestamp, SaidError> {
    let gmt = jiff::civil::DateTime::strptime("%d %b %Y %H:%M:%S GMT", text)
        .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC));
    gmt.map(|time| time.timestamp()).or_else(|_| rfc3339(text))
}
