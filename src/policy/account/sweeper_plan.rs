//! Plans the setup of the sweeper in the cloud, and judges its state.
//!
//! ```text
//!   Sweeper + SweeperFound  ->  one line for each thing, as in policy::account::setup_plan
//! ```
//! As there, another user's things are used as they are. This module makes no calls.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::doctor::{Check, Level};
use super::setup_plan::SetupLine;
use crate::account::lookup::{Found, RoleFound};
use crate::account::permissions::PolicyName;
use crate::account::setup::{InUse, SetupNames, SetupStep};
use crate::account::sweeper::{FunctionFound, ScheduleFound, Sweeper, SweeperFound, SweeperStep};
use crate::account::sweeper_visit::Visit;
use crate::market::elapsed;

fn steps(steps: impl IntoIterator<Item = SweeperStep>) -> Vec<SetupStep> {
    steps.into_iter().map(SetupStep::Sweeper).collect()
}

pub fn plan_sweeper(names: &SetupNames, wanted: &Sweeper, found: &SweeperFound) -> Vec<SetupLine> {
    let permissions = names.permissions();
    let (own, call) =
        (permissions.policy(PolicyName::Sweeper), permissions.policy(PolicyName::SweeperSchedule));
    let log = match &found.log {
        Found::Nothing => {
            SetupLine::new(log_of(wanted), "not there", steps([SweeperStep::CreateLog]))
        }
        Found::There(()) => SetupLine::new(log_of(wanted), "there", Vec::new()),
        Found::Unknown(why) => SetupLine::unknown(log_of(wanted), why),
    };
    vec![
        role(
            names,
            wanted.name.clone(),
            &own,
            &found.role,
            [SweeperStep::CreateRole, SweeperStep::WriteRolePolicy],
        ),
        role(
            names,
            Sweeper::schedule_role(&wanted.name),
            &call,
            &found.schedule_role,
            [SweeperStep::CreateScheduleRole, SweeperStep::WriteSchedulePolicy],
        ),
        log,
        function(names, wanted, &found.function),
        schedule(wanted, &found.schedule),
    ]
}

fn log_of(wanted: &Sweeper) -> String {
    format!("log {}", Sweeper::log(&wanted.name))
}

fn role(
    names: &SetupNames,
    name: String,
    policy: &Value,
    found: &Found<RoleFound>,
    [create, write]: [SweeperStep; 2],
) -> SetupLine {
    let thing = format!("role {name}");
    match found {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::Nothing => SetupLine::new(thing, "not there", steps([create, write])),
        Found::There(role) if role.policy.as_ref() == Some(policy) => {
            SetupLine::new(thing, "there, allows what it needs", Vec::new())
        }
        Found::There(role) if role.owner.as_deref() == Some(&names.owner) => {
            SetupLine::new(thing, "there, without the policy that it needs", steps([write]))
        }
        Found::There(_) => SetupLine::new(thing, "there", Vec::new())
            .remark("it was not made by `lamp init aws` for you and stays as it is"),
    }
}

fn function(names: &SetupNames, wanted: &Sweeper, found: &Found<FunctionFound>) -> SetupLine {
    let thing = format!("function {}", wanted.name);
    let without = |said: &str, why: &str| SetupLine {
        blocks: true,
        ..SetupLine::new(thing.clone(), said, Vec::new()).remark(why)
    };
    match (found, &wanted.program) {
        (Found::Unknown(why), _) => SetupLine::unknown(thing, why),
        (Found::Nothing, Err(why)) => without("not there", why),
        (Found::Nothing, Ok(_)) => {
            SetupLine::new(thing, "not there", steps([SweeperStep::CreateFunction]))
        }
        (Found::There(there), _) if there.owner.as_deref() != Some(&names.owner) => {
            SetupLine::new(thing, "there", Vec::new())
                .remark("it was not made by `lamp init aws` for you and stays as it is")
        }
        (Found::There(_), Err(why)) => without("there", why),
        (Found::There(there), Ok(program)) => {
            let program = (there.program != *program).then_some(SweeperStep::SendProgram);
            // The architecture changes together with the program.
            let set = (there.settings != wanted.settings).then_some(SweeperStep::SetFunction);
            let said = match (&program, &set) {
                (None, None) => "there, with this program",
                (Some(_), _) => "there, with another program",
                (None, Some(_)) => "there, with other settings",
            };
            SetupLine::new(thing, said, steps(program.into_iter().chain(set)))
        }
    }
}

fn schedule(wanted: &Sweeper, found: &Found<ScheduleFound>) -> SetupLine {
    let thing = format!("schedule {}", wanted.name);
    match found {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::Nothing => SetupLine::new(thing, "not there", steps([SweeperStep::CreateSchedule])),
        Found::There(there) if *there == wanted.schedule => {
            SetupLine::new(thing, format!("there, {}", there.each), Vec::new())
        }
        Found::There(there) => {
            let said = if there.enabled {
                "there, and not as it should be"
            } else {
                "there, switched off"
            };
            SetupLine::new(thing, said, steps([SweeperStep::SetSchedule]))
        }
    }
}

/// Plans the removal of a sweeper; empty if there is none. The schedule goes first, so that it does
/// not call a half-removed function.
pub fn plan_sweeper_removal(
    names: &SetupNames,
    found: &SweeperFound,
    used: &InUse,
) -> Vec<SetupLine> {
    let (name, ours) =
        (names.sweeper(), |owner: &Option<String>| owner.as_deref() == Some(&names.owner));
    let is_ours = [
        found.function.there().map(|function| ours(&function.owner)),
        found.role.there().map(|role| ours(&role.owner)),
    ];
    // Untagged parts are ours if a tagged part is. In a half-removed sweeper, the owner in the name
    // decides.
    let belongs = is_ours.contains(&Some(true))
        || (found.function == Found::Nothing && found.role == Found::Nothing);
    let lines = [
        removal(
            format!("schedule {name}"),
            &found.schedule,
            |_| belongs,
            SweeperStep::DeleteSchedule,
        ),
        removal(
            format!("function {name}"),
            &found.function,
            |function| ours(&function.owner),
            SweeperStep::DeleteFunction,
        ),
        removal(
            format!("log {}", Sweeper::log(&name)),
            &found.log,
            |()| belongs,
            SweeperStep::DeleteLog,
        ),
        removal(
            format!("role {}", Sweeper::schedule_role(&name)),
            &found.schedule_role,
            |role| ours(&role.owner),
            SweeperStep::DeleteScheduleRole,
        ),
        removal(
            format!("role {name}"),
            &found.role,
            |role| ours(&role.owner),
            SweeperStep::DeleteRole,
        ),
    ];
    let records = (used.sweeper_objects > 0).then(|| {
        let thing = format!("records of {name} in {}", names.bucket);
        SetupLine::new(
            thing,
            format!("{} objects", used.sweeper_objects),
            steps([SweeperStep::DeleteRecords]),
        )
    });
    lines.into_iter().flatten().chain(records).collect()
}

/// A user without permission for Lambda has probably not set up a sweeper, so the removal
/// continues.
fn removal<T>(
    thing: String,
    found: &Found<T>,
    ours: impl Fn(&T) -> bool,
    step: SweeperStep,
) -> Option<SetupLine> {
    match found {
        Found::Nothing => None,
        Found::Unknown(why) => Some(
            SetupLine::new(thing, "unknown", Vec::new())
                .remark(format!("it was not looked for: {why}")),
        ),
        Found::There(it) if ours(it) => Some(SetupLine::new(thing, "ours", steps([step]))),
        Found::There(_) => Some(
            SetupLine::new(thing, "not ours", Vec::new())
                .remark("it does not carry our owner tag, and stays"),
        ),
    }
}

/// Three missed visits are more than an accident.
const LATE: Duration = Duration::from_secs(16 * 60);

#[derive(Clone, Debug)]
pub struct SweeperSeen {
    pub name: String,
    pub function: Found<FunctionFound>,
    pub schedule: Found<ScheduleFound>,
    /// The newest visit, and when its record was written, by the store's clock.
    pub visit: Result<Option<(Visit, Timestamp)>, String>,
}

/// Whether it exists, is enabled, visits, and has the same `version` as this program.
pub fn judge_sweeper(job_root: &str, version: &str, seen: &SweeperSeen, now: Timestamp) -> Check {
    let (check, name) = ("sweeper", &seen.name);
    let again = "`lamp init aws --sweeper` makes it as it should be";
    let (function, schedule) = match (&seen.function, &seen.schedule) {
        (Found::Unknown(why), _) | (_, Found::Unknown(why)) => return Check::unseen(check, why),
        (Found::Nothing, Found::Nothing) => {
            let said = "there is none in the cloud: while every workstation sleeps, a machine that hangs is ended by its alarm alone";
            return Check::new(check, Level::Skipped, said)
                .fix("`lamp init aws --sweeper` makes one, for cents a month");
        }
        (Found::Nothing, _) => {
            return Check::failure(check, format!("{name} has a schedule and no function"))
                .fix(again);
        }
        (_, Found::Nothing) => {
            return Check::failure(check, format!("{name} has no schedule: nobody calls it"))
                .fix(again);
        }
        (Found::There(function), Found::There(schedule)) => (function, schedule),
    };
    if !schedule.enabled {
        return Check::failure(check, format!("{name} is switched off")).fix(again);
    }
    let root = function
        .settings
        .environment
        .get("LAMP_JOB_ROOT")
        .map_or("", |root| root.trim_end_matches('/'));
    if root != job_root {
        return Check::warning(
            check,
            format!("{name} looks after {root}, and not after {job_root}"),
        )
        .fix(again);
    }
    let log = format!("`aws logs tail {}` shows what it says", Sweeper::log(name));
    match &seen.visit {
        Err(why) => Check::unseen(check, why),
        Ok(None) => Check::warning(
            check,
            format!("{name} is there, and has not come yet: it comes every five minutes"),
        )
        .fix(log),
        Ok(Some((visit, at))) => {
            let ago = elapsed(*at, now);
            let came = format!("{name} came {} min ago", ago.as_secs() / 60);
            let first = visit
                .trouble
                .first()
                .or(visit.unknown.first())
                .map(|trouble| format!("{}: {}", trouble.what, trouble.why));
            let kept = visit.kept.first();
            match first {
                _ if ago > LATE => {
                    Check::failure(check, format!("{came}, and should come every five minutes"))
                        .fix(log)
                }
                Some(first) if visit.is_sick() => {
                    Check::failure(check, format!("{came}: {first}")).fix(log)
                }
                Some(first) => Check::warning(check, format!("{came}: {first}")).fix(log),
                None if let Some(kept) = kept => {
                    let (id, job, days) =
                        (&kept.machine, &kept.job, elapsed(kept.since, now).as_secs() / 86_400);
                    let more = if visit.kept.len() > 1 {
                        format!(", and {} more", visit.kept.len() - 1)
                    } else {
                        String::new()
                    };
                    Check::warning(check, format!("{came}: {id} of job {job} has been stopped for {days} days{more}, and its disk bills"))
                        .fix(format!("`lamp cancel {job}` gives it up, `lamp start {job}` goes on with it"))
                }
                // The sweeper decides with its own version, so later fixes do not protect its
                // machines.
                None if visit.version != version => {
                    let said =
                        format!("{came}, as Lamplighter {}, and this is {version}", visit.version);
                    Check::warning(check, said)
                        .fix("`lamp init aws --sweeper`, typed with the newer of the two, sends it")
                }
                None => {
                    let s = |count: u32| if count == 1 { "" } else { "s" };
                    let (regions, machines) = (visit.regions, visit.machines);
                    let words = format!(
                        "{came}: {regions} region{}, {machines} machine{}, {} ended",
                        s(regions),
                        s(machines),
                        visit.ended.len()
                    );
                    Check::ok(check, words)
                }
            }
        }
    }
}
