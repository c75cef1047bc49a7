//! The tunings of a job root, driven by a daemon. It drives the jobs of their trials too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::drive::{engine, runs_here};
use crate::app::Fault;
use crate::app::record_errors::record_fault;
use crate::app::tune::memory::TuneMemory;
use crate::app::tune::step::TuneDriver;
use crate::cli::Context;
use crate::controller::Controller;
use crate::jobdir::{self, TuningDir};
use crate::wire::{StoreHandle, Workstation};

/// Between two looks at a folder: as the daemon looks at jobs that run.
const LOOK_HOME: Duration = Duration::from_secs(2);

/// The same for a bucket, where each listing costs money.
const LOOK_AWAY: Duration = Duration::from_secs(30);

/// Drives every tuning of this owner that has not ended. Never returns. An error is logged, and the
/// next look tries again.
pub async fn drive_tunings(
    context: &Context,
    store: &StoreHandle,
    workstation: &Workstation,
    controller: &Controller,
) {
    let pause = if store.is_folder() { LOOK_HOME } else { LOOK_AWAY };
    let mut drivers: BTreeMap<String, Option<TuneDriver<'_>>> = BTreeMap::new();
    let mut trouble = String::new();
    loop {
        let looked = look(context, store, workstation, controller, &mut drivers).await;
        let text = looked.err().map(|fault| fault.sentence()).unwrap_or_default();
        if !text.is_empty() && text != trouble {
            tracing::warn!("a tuning is not driven now, trying again: {text}");
        }
        trouble = text;
        context.clock.sleep(pause).await;
    }
}

/// Looks at all tunings, and drives ours by one step. A failure of one leaves the others alone.
/// `None` in `drivers`: the tuning is over, or not ours.
async fn look<'a>(
    context: &'a Context,
    store: &StoreHandle,
    workstation: &Workstation,
    controller: &'a Controller,
    drivers: &mut BTreeMap<String, Option<TuneDriver<'a>>>,
) -> Result<(), Fault> {
    let all = jobdir::tunings(store).await.map_err(|error| record_fault(&error.into()))?;
    let mut failed = None;
    for dir in all {
        if drivers.contains_key(dir.name()) {
            continue;
        }
        match driver_of(context, &dir, store, workstation, controller).await {
            Ok(driver) => {
                drivers.insert(dir.name().to_owned(), driver);
            }
            Err(fault) => failed = Some(fault),
        }
    }
    for (name, slot) in drivers.iter_mut() {
        let Some(driver) = slot else { continue };
        match driver.step().await {
            Ok(step) => {
                step.said.iter().for_each(|said| tracing::info!(tuning = name.as_str(), "{said}"));
                if step.is_over {
                    *slot = None;
                }
                failed = step.trouble.or(failed);
            }
            Err(fault) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The driver of a tuning. Only one of ours is read to its end.
async fn driver_of<'a>(
    context: &'a Context,
    dir: &TuningDir,
    store: &StoreHandle,
    workstation: &Workstation,
    controller: &'a Controller,
) -> Result<Option<TuneDriver<'a>>, Fault> {
    let tuning = dir.record().await.map_err(|error| record_fault(&error))?;
    let Some(tuning) = tuning.filter(|tuning| tuning.owner == workstation.owner) else {
        return Ok(None);
    };
    if !runs_here(workstation, &tuning)? {
        return Ok(None);
    }
    let memory = TuneMemory::open(store, dir.name()).await?;
    if memory.is_over() {
        return Ok(None);
    }
    let mut driver = TuneDriver {
        memory,
        controller,
        clock: &context.clock,
        engine: engine(context),
        by: workstation.name.clone(),
        earlier: Vec::new(),
    };
    driver.learn().await?;
    Ok(Some(driver))
}
