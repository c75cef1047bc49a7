//! The machines that the records name.

use jiff::Timestamp;
use serde::Serialize;

use super::overview::{JobRow, Overview};
use crate::job::JobState;
use crate::market::UsdPerHour;

/// A machine of an unfinished job, by its records. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct RecordedMachine {
    pub job: String,
    pub name: String,
    pub instance: Option<String>,
    pub machine: String,
    /// The state of the job, or of a silent machine: `running`, `silent`, `lost`, `gone`.
    pub state: String,
    /// `None`: it bills nothing now, or its price is unknown.
    pub usd_per_hour: Option<UsdPerHour>,
    pub ends: Option<Timestamp>,
}

pub fn recorded(overview: &Overview) -> Vec<RecordedMachine> {
    overview.machine_rows.iter().filter_map(recorded_machine).collect()
}

fn recorded_machine(row: &JobRow) -> Option<RecordedMachine> {
    let summary = &row.summary;
    let has_machine = !matches!(summary.state, JobState::Submitted | JobState::Interrupted);
    if summary.state.is_final() || !has_machine || summary.waiting.is_some() {
        return None;
    }
    let silence = summary.silence.as_ref().map(|silence| silence.state());
    let state = silence.map_or_else(|| summary.state_told(), str::to_owned);
    Some(RecordedMachine {
        job: summary.job.clone(),
        name: summary.name.clone(),
        instance: summary.instance.clone(),
        machine: summary.machine.as_ref()?.line(),
        usd_per_hour: summary.usd_per_hour.filter(|_| silence != Some("gone")),
        state,
        ends: row.next_end.as_ref().map(|end| end.at),
    })
}
