//! The tunings of a job root, driven by a daemon. It drives the jobs of their trials too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::optuna::engine;
use crate::app::Fault;
use crate::app::record_errors::record_fault;
use crate::app::tune::memory::TuneMemory;
use crate::app::tune::step::TuneDriver;
use crate::cli::Context;
use crate::controller::Controller;
use crate::jobdir;
use crate::wire::{Store, Workstation};

/// Between two looks at a folder: as the daemon looks at jobs that run.
const LOOK_HOME: Duration = Duration::from_secs(2);

/// The same for a bucket, where each listing costs money.
const LOOK_AWAY: Duration = Duration::from_secs(30);

/// Drives every tuning of this owner that has not ended. Never returns. An error is logged, and the
/// next look tries again.
pub async fn drive_tunings(
    context: &Context,
    store: &Store,
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

/// `None` in `drivers`: the tuning is over, or not ours.
async fn look<'a>(
    context: &'a Context,
    store: &Store,
    workstation: &Workstation,
    controller: &'a Controller,
    drivers: &mut BTreeMap<String, Option<TuneDriver<'a>>>,
) -> Result<(), Fault> {
    let all = jobdir::tunings(store).await.map_err(|error| record_fault(&error.into()))?;
    for dir in all {
        if drivers.contains_key(dir.name()) {
            continue;
        }
        let memory = TuneMemory::open(store, dir.name()).await?;
        let is_over = memory.end.is_some() && memory.running().next().is_none();
        let here = workstation.here().ok();
        let is_here = memory
            .tuning
            .here
            .as_ref()
            .is_none_or(|theirs| here.as_ref().is_some_and(|here| here.as_str() == theirs));
        let is_ours = is_here && memory.tuning.owner == workstation.owner;
        let driver = if is_over || !is_ours {
            None
        } else {
            let mut driver = TuneDriver {
                memory,
                controller,
                clock: &context.clock,
                engine: engine(context),
                by: workstation.name.clone(),
                earlier: Vec::new(),
            };
            driver.learn().await?;
            Some(driver)
        };
        drivers.insert(dir.name().to_owned(), driver);
    }
    let mut failed = None;
    for (name, slot) in drivers.iter_mut() {
        let Some(driver) = slot else { continue };
        match driver.step().await {
            Ok(step) => {
                step.said.iter().for_each(|said| tracing::info!(tuning = name.as_str(), "{said}"));
                if step.is_over {
                    *slot = None;
                }
            }
            Err(fault) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(()), Err)
}
