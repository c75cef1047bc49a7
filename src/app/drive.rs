//! Who drives a job: the controller of this workstation, the daemon, or a process of its own.

use super::exit_code::ExitCode;
use super::fault::Fault;
use crate::controller::{ActError, Controller, DriveError};
use crate::job::JobId;
use crate::wire::{StoreHandle, Workstation};

/// # Errors
/// Fails when the state folder cannot be used.
pub fn controller(workstation: &Workstation, store: &StoreHandle) -> Result<Controller, Fault> {
    workstation.controller(store).map_err(|error| {
        Fault::new(
            ExitCode::UNREACHABLE,
            format!("cannot use the state folder `{}`", workstation.state.display()),
        )
        .because(&error)
        .meaning("nothing was started by this call")
        .hint("set XDG_STATE_HOME to a folder that can be written")
    })
}

pub fn drive_fault(error: &DriveError) -> Fault {
    let code = match error {
        DriveError::NoJob { .. } => ExitCode::NOT_FOUND,
        DriveError::Newer { .. } | DriveError::Alone { .. } => ExitCode::REFUSED,
    };
    Fault::from_error(code, error)
}

/// Makes sure that a process drives the job, and names it.
///
/// # Errors
/// Fails when no process can be started.
pub fn hand_over(workstation: &Workstation, job: &JobId) -> Result<String, Fault> {
    if workstation.daemon_runs() {
        return Ok("`lamp daemon` drives it".to_owned());
    }
    let log = workstation.start_driver(job.as_str()).map_err(|error| {
        Fault::new(ExitCode::INTERNAL, format!("job {job} runs, and no process could be started to drive it"))
            .because(&error)
            .meaning("its agent finishes the attempt and puts the machine out; nobody relaunches it or writes its receipt until somebody drives it")
            .hint(format!("`lamp daemon --job {job} --until-done` drives it"))
    })?;
    Ok(format!("a background process drives it (its words: {})", log.display()))
}

/// Refuses a job that would wait until the clock is set.
///
/// # Errors
/// Fails when the clock is wrong.
pub fn refuse_wrong_clock(checked: Result<(), ActError>) -> Result<(), Fault> {
    checked.map_err(|error| {
        Fault::from_error(ExitCode::REFUSED, &error)
            .meaning("nothing was started or billed")
            .hint("set this workstation's clock (`timedatectl set-ntp true`); `lamp doctor` shows how far off it is")
    })
}
