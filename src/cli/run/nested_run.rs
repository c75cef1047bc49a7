//! A `lamp` inside a workload: everything it starts ends with that workload, even when detached.
//!
//! The end of a workload ends its process tree, its control group, and all processes with its mark
//! (`LAMP_WORKLOAD`). A detached driver ends too. This module must not offer a way around that:
//! every workload could use it.

use crate::cli::Context;
use crate::market::CloudKind;
use crate::wire::Workstation;

/// Warns before a launch that the job runs only as long as the workload around it.
pub fn warn_detached(context: &Context, workstation: &Workstation, cloud: CloudKind) {
    let Some(outer) = context.environment.workload.as_deref() else { return };
    let what = match cloud {
        // A daemon outside of the workload drives a cloud machine on.
        CloudKind::Aws if workstation.daemon_runs() => return,
        CloudKind::Aws => {
            "what would drive the new job too. Its agent then ends the attempt and terminates its machine; the job gets no other machine and no receipt"
        }
        CloudKind::Local => {
            "the machine of the new job too, which is this one, and what would drive it"
        }
    };
    context
        .printer
        .warn(format!("this runs within {outer}, and what is started here ends with that, {what}"));
    context.printer.hint(match cloud {
        CloudKind::Aws => "`lamp daemon` on a machine that stays, with the same job root and owner, drives it on; or start it from there",
        CloudKind::Local => "without --detach `lamp run` waits for it; or start it from outside of the workload",
    });
}

/// How long the new driver will run, to follow its name.
pub fn until(context: &Context, workstation: &Workstation) -> String {
    let outer = context.environment.workload.as_deref().filter(|_| !workstation.daemon_runs());
    outer.map(|outer| format!(", until {outer} ends")).unwrap_or_default()
}
