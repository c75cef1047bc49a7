//! The machines that the records name, and on request the machines that the clouds show.
//!
//! The records are read often. A look asks every region, and ends nothing.

use std::time::Duration;

use jiff::Timestamp;

use super::overview::{JobRow, Overview};
use crate::account::ForeignMachine;
use crate::app::{ExitCode, Fault, drive};
use crate::controller::{Controller, Everywhere, Found};
use crate::job::JobState;
use crate::market::UsdPerHour;
use crate::wire::{Store, Workstation};

/// Regions answer in a few seconds. A shorter wait loses slow ones, a longer one holds the page.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// A machine of an unfinished job, by its records.
#[derive(Clone, Debug, PartialEq)]
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
    overview.jobs.iter().filter_map(recorded_machine).collect()
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

/// The answer of the clouds to one look.
#[derive(Debug)]
pub struct MachineLook {
    pub at: Timestamp,
    /// Our machines and residue, and places that did not answer.
    pub found: Found,
    /// GPU machines that `lamp` did not launch.
    pub foreign: Vec<ForeignMachine>,
    /// Places that did not answer about foreign machines.
    pub foreign_unknown: Vec<(String, String)>,
}

/// # Errors
/// Fails when the state folder cannot be used, or the clouds are silent.
pub async fn look(
    store: &Store,
    workstation: &Workstation,
    now: Timestamp,
) -> Result<MachineLook, Fault> {
    let controller = drive::controller(workstation, store)?;
    tokio::time::timeout(LOOK_MAX, ask(&controller, now)).await.map_err(|_| {
        Fault::new(
            ExitCode::UNREACHABLE,
            format!("the clouds did not answer within {} s", LOOK_MAX.as_secs()),
        )
        .meaning("which machines exist is unknown")
        .hint("`lamp sweep --dry-run` looks without this limit")
    })
}

async fn ask(controller: &Controller, now: Timestamp) -> MachineLook {
    let Everywhere { places, unknown, .. } = controller.ask_everywhere().await;
    let (mut found, (foreign, foreign_unknown)) =
        tokio::join!(controller.look_for_orphans(&places), controller.foreign(&places));
    found.unknown.extend(unknown);
    MachineLook { at: now, found, foreign, foreign_unknown }
}
