//! The machines that the clouds show. A look asks every region, and ends nothing.

use std::time::Duration;

use jiff::Timestamp;

use crate::account::ForeignMachine;
use crate::app::{ExitCode, Fault, drive};
use crate::controller::{Controller, Everywhere, SweepFindings};
use crate::wire::{StoreHandle, Workstation};

/// Regions answer in a few seconds. A shorter wait loses slow ones, a longer one holds the page.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// The same for one region, so that the others are still shown.
const REGION_MAX: Duration = Duration::from_secs(25);

/// The answer of the clouds to one look.
#[derive(Debug)]
pub struct MachineLook {
    pub at: Timestamp,
    /// Our machines and residue, and places that did not answer.
    pub found: SweepFindings,
    /// GPU machines that `lamp` did not launch.
    pub foreign: Vec<ForeignMachine>,
    /// Places that did not answer about foreign machines.
    pub foreign_unknown: Vec<(String, String)>,
}

/// # Errors
/// Fails when the state folder cannot be used, or the clouds are silent.
pub async fn look(
    store: &StoreHandle,
    workstation: &Workstation,
    now: Timestamp,
) -> Result<MachineLook, Fault> {
    let controller = drive::controller(workstation, store)?;
    in_time(ask(&controller, now)).await
}

/// The same without residue, which costs most of the calls. A slow region is unknown alone.
///
/// # Errors
/// Fails when the state folder cannot be used, or the clouds are silent.
pub async fn machines_only(
    store: &StoreHandle,
    workstation: &Workstation,
    now: Timestamp,
) -> Result<MachineLook, Fault> {
    let controller = drive::controller(workstation, store)?;
    in_time(async {
        let Everywhere { places, unknown, .. } = controller.ask_everywhere().await;
        let foreign = tokio::time::timeout(REGION_MAX, controller.foreign(&places));
        let (mut found, foreign) =
            tokio::join!(controller.look_at_machines(&places, REGION_MAX), foreign);
        found.unknown.extend(unknown);
        let (foreign, foreign_unknown) = foreign.unwrap_or_else(|_| {
            let why = format!("nobody answered within {} s", REGION_MAX.as_secs());
            (Vec::new(), vec![("machines that `lamp` did not launch".to_owned(), why)])
        });
        MachineLook { at: now, found, foreign, foreign_unknown }
    })
    .await
}

async fn in_time(asked: impl Future<Output = MachineLook>) -> Result<MachineLook, Fault> {
    tokio::time::timeout(LOOK_MAX, asked).await.map_err(|_| {
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
