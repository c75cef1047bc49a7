//! The user's caps and what counts against them, for `plan` and `status`.

use serde::Serialize;

use crate::app::drive;
use crate::app::record_errors;
use crate::cli::shell::job_root;
use crate::cli::{Context, Fault};
use crate::market::{Usd, UsdPerHour};
use crate::wire::StoreHandle;

/// The field names are an interface (docs/cli-json.md).
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct CapsShown {
    pub usd_per_hour: Option<UsdPerHour>,
    pub usd_per_day: Option<Usd>,
    pub machines: usize,
    pub usd_per_hour_now: UsdPerHour,
    pub usd_last_day: Usd,
}

/// `None`: without caps the job root is not read.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn shown(context: &Context, store: &StoreHandle) -> Result<Option<CapsShown>, Fault> {
    let caps = context.config.user.caps;
    if caps.are_none() {
        return Ok(None);
    }
    let controller = drive::controller(&job_root::workstation(context)?, store)?;
    let spending =
        controller.spending().await.map_err(|error| record_errors::record_fault(&error))?;
    Ok(Some(CapsShown {
        usd_per_hour: caps.usd_per_hour,
        usd_per_day: caps.usd_per_day,
        machines: spending.machines,
        usd_per_hour_now: spending.usd_per_hour,
        usd_last_day: spending.usd_last_day,
    }))
}

impl CapsShown {
    /// `of your caps: $8.20 of $10.00 an hour, $31.00 of $50.00 in 24 hours`
    pub fn text(&self) -> String {
        let hour = self.usd_per_hour.map(|cap| {
            format!("{} of {} an hour", self.usd_per_hour_now.per_hour(), cap.per_hour())
        });
        let day = self.usd_per_day.map(|cap| format!("{} of {cap} in 24 hours", self.usd_last_day));
        format!("of your caps: {}", hour.into_iter().chain(day).collect::<Vec<_>>().join(", "))
    }
}
