//! Reports what a sweep did, in one document at the end.
//!
//! Not here: which machines end (`policy::lifecycle::orphan`), and questions (sweep.rs,
//! unknown_job_machines.rs).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::stop_cost::AtStake;
use crate::account::Residue;
use crate::app::overview::found_machine::{figures, is_shown, is_stray, words};
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Controller, EndAnswer, Judged, SECOND_LOOK, SweepFindings};
use crate::instance::MachineRef;
use crate::market::Region;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Done {
    /// The cloud accepted the request. Within minutes the machine ends, or stops if its disk must
    /// stay.
    Asked,
    /// The second look found that it need not end.
    Left,
    /// The cloud refused, or the outcome is unknown: it may still run.
    Failed,
    /// The cloud cannot stop it, and its disk must stay: it runs on.
    Unstoppable,
}

/// The outcome, and why the machine was not ended. The text follows the machine's name.
#[derive(Debug)]
struct MachineEnd {
    done: Done,
    trouble: Option<String>,
}

/// A piece of residue; an id is unique within its kind and region.
type SweptResidue = (Region, String, String);

/// All that was done; everything else was left alone.
#[derive(Debug, Default)]
pub struct Swept {
    machines: BTreeMap<MachineRef, MachineEnd>,
    residue: BTreeMap<SweptResidue, bool>,
}

impl Swept {
    pub fn is_whole(&self) -> bool {
        self.machines.values().all(|end| end.trouble.is_none())
            && self.residue.values().all(|removed| *removed)
    }

    /// Ends machines that the user named at once, and orphans after a second look.
    pub async fn end(&mut self, context: &Context, controller: &Controller, machines: &[&Judged]) {
        let (named, orphans): (Vec<&Judged>, Vec<&Judged>) =
            machines.iter().partition(|judged| is_stray(judged));
        for stray in named {
            self.end_one(context, controller, stray).await;
        }
        if orphans.is_empty() {
            return;
        }
        context.printer.note(format!(
            "looking again in {} s, before anything is ended",
            SECOND_LOOK.as_secs()
        ));
        context.clock.sleep(SECOND_LOOK).await;
        for orphan in orphans {
            self.end_one(context, controller, orphan).await;
        }
    }

    async fn end_one(&mut self, context: &Context, controller: &Controller, judged: &Judged) {
        let (machine, job) = (judged.view.machine(), &judged.view.tags.job);
        let (ended, otherwise) = if is_stray(judged) {
            (controller.end_stray(&machine).await, "it is gone by now, or its job is known here")
        } else {
            (controller.end_orphan(judged).await, "it is no orphan any more")
        };
        let printer = &context.printer;
        let (done, trouble) = match ended {
            Ok(Some(EndAnswer::Ends)) => {
                printer.note(format!("asked the cloud to end {machine} of job `{job}`; `lamp sweep` shows when it is gone"));
                (Done::Asked, None)
            }
            Ok(Some(EndAnswer::Stops)) => {
                printer.note(format!("asked the cloud to stop {machine}, and its disk stays; `lamp cancel {job}` gives it up"));
                (Done::Asked, None)
            }
            Ok(Some(EndAnswer::RunsOn(why))) => {
                printer.warn(format!("{machine} in {} {why}", machine.region));
                (Done::Unstoppable, Some(why))
            }
            Ok(None) => {
                printer.note(format!("{machine} is left alone: {otherwise}"));
                (Done::Left, None)
            }
            Err(error) => {
                let trouble = format!(
                    "may still run and bill: {}",
                    Fault::from_error(ExitCode::UNREACHABLE, &error).sentence()
                );
                printer.warn(format!(
                    "{machine} in {} {trouble}; type the same again",
                    machine.region
                ));
                (Done::Failed, Some(trouble))
            }
        };
        self.machines.insert(machine, MachineEnd { done, trouble });
    }

    pub async fn clear(
        &mut self,
        context: &Context,
        controller: &Controller,
        residue: &[&Residue],
    ) {
        for left in residue {
            let removed = match controller.clear(left).await {
                Ok(()) => {
                    context.printer.note(format!("removed {} {}", left.kind, left.id));
                    true
                }
                Err(error) => {
                    context
                        .printer
                        .warn(format!("{} {} is still there: {error}", left.kind, left.id));
                    false
                }
            };
            self.residue.insert(key(left), removed);
        }
    }

    /// For programs, at the end. People have read it line by line.
    pub fn tell(&self, context: &Context, found: &SweepFindings, at_stake: &AtStake) {
        if context.is_machine_output() {
            context.printer.json(&self.document(found, at_stake, context.clock.now()));
        }
    }

    fn document(&self, found: &SweepFindings, at_stake: &AtStake, now: Timestamp) -> Value {
        let machines = found.machines.iter().filter(|judged| is_shown(judged)).map(|judged| {
            let (verdict, why) = words(&judged.verdict);
            let view = &judged.view;
            let mut machine = json!({
                "instance": view.id, "instance_type": view.instance_type, "region": view.region, "market": view.market, "state": view.state,
                "job": view.tags.job, "attempt": view.tags.attempt, "launched": view.launched, "verdict": verdict, "why": why,
            });
            for (field, value) in figures(view, now) {
                machine[field] = value;
            }
            machine["checkpoint"] = at_stake.figure(judged);
            let end = self.machines.get(&view.machine());
            machine["done"] = json!(end.map(|end| end.done));
            machine["trouble"] = json!(end.and_then(|end| end.trouble.as_ref()));
            machine
        });
        let residue = found.residue.iter().map(|left| {
            let mut piece = json!(left);
            piece["removed"] = json!(self.residue.get(&key(left)));
            piece
        });
        json!({
            "machines": machines.collect::<Vec<_>>(),
            "residue": residue.collect::<Vec<_>>(),
            "unknown": places(&found.unknown),
            "unasked": places(&found.unasked),
        })
    }
}

fn key(left: &Residue) -> SweptResidue {
    (left.region.clone(), left.kind.clone(), left.id.clone())
}

fn places(list: &[(String, String)]) -> Vec<Value> {
    list.iter().map(|(place, why)| json!({ "place": place, "why": why })).collect()
}
