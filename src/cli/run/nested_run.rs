//! A `lamp` that a workload has started: whatever it starts is ended with that workload, however it was detached.
//!
//! Whoever ends a workload ends its tree, its control group and what carries its mark (`LAMP_WORKLOAD`): a driver that is told to
//! outlive its terminal does not outlive that. What must never live here: a way out of it, which would be one for every workload.

use crate::cli::Context;
use crate::market::Cloud;
use crate::wire::Workstation;

/// Before anything is launched: `--detach` says that the job goes on, and from here it goes on only so long.
pub fn warn_detached(context: &Context, workstation: &Workstation, cloud: Cloud) {
    let Some(outer) = context.environment.workload.as_deref() else { return };
    let what = match cloud {
        // A daemon out there drives a machine that is elsewhere.
        Cloud::Aws if workstation.daemon_runs() => return,
        Cloud::Aws => {
            "what would drive the new job too. Its agent then ends the attempt and puts its machine out; nobody launches another in its place or writes its receipt"
        }
        Cloud::Local => "the machine of the new job too, which is this one, and what would drive it",
    };
    context.printer.warn(format!("this runs within {outer}, and what is started here ends with that, {what}"));
    context.printer.hint(match cloud {
        Cloud::Aws => "`lamp daemon` on a machine that stays, with the same job root and owner, drives it on; or start it from there",
        Cloud::Local => "without --detach `lamp run` waits for it; or start it from outside of the workload",
    });
}

/// How long whoever drives a job that is left will do so, to be said after who it is.
pub fn until(context: &Context, workstation: &Workstation) -> String {
    let outer = context.environment.workload.as_deref().filter(|_| !workstation.daemon_runs());
    outer.map(|outer| format!(", until {outer} ends")).unwrap_or_default()
}
