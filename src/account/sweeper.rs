//! The sweeper in the cloud, by name: a function of ours, its schedule, their roles and its log. Nouns.
//!
//! `policy::account::sweeper_plan` decides which steps make it out of what was found. What must never live here: a call, a decision.

use std::collections::BTreeMap;

use serde::Serialize;

use super::setup::{Found, RoleFound};
use crate::market::Arch;

/// What every name of a sweeper begins with; the policies are bound to it.
pub const SWEEPER: &str = "lamplighter-sweeper";

/// A name of AWS Lambda, of EventBridge Scheduler and of IAM has 64 characters at most, and what we add to it needs some.
const OWNER_CHARS_MAX: usize = 26;

/// The name of an owner's sweeper: each owner of an account has one of their own. What a name may not hold is replaced, and
/// then the owner's hash tells two such owners apart.
pub fn name(owner: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = owner.chars().map(|c| if allowed(c) { c } else { '-' }).take(OWNER_CHARS_MAX).collect();
    if plain == owner { format!("{SWEEPER}-{plain}") } else { format!("{SWEEPER}-{plain}-{:08x}", hash(owner)) }
}

/// FNV-1a, folded to 32 bits.
fn hash(text: &str) -> u32 {
    let whole = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (whole ^ (whole >> 32)) as u32
}

/// The machine that Lambda runs a program of its owner's on: Amazon Linux 2023.
pub const RUNTIME: &str = "provided.al2023";

/// The C library of that machine; a program that needs a newer one does not start there.
pub const RUNTIME_GLIBC: (u32, u32) = (2, 34);

/// How often it comes. The bound on what an orphan costs counts with it.
pub const EACH: &str = "rate(5 minutes)";

/// A visit has its second look a minute after the first and is bounded in every wait; five minutes later the next one comes, and
/// two at once would only read the same twice.
pub const TIMEOUT_SECS: u32 = 240;

/// The program takes some 60 MiB; with the memory Lambda gives the processor time for seventeen handshakes.
pub const MEMORY_MIB: u32 = 256;

/// Long enough to find out why a machine was ended last week.
pub const LOG_DAYS: u32 = 14;

/// What the sweeper of an owner should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweeper {
    pub name: String,
    /// Base64, as Lambda says it, of the archive that holds the program; or why there is no program.
    pub program: Result<String, String>,
    pub settings: FunctionSettings,
    pub schedule: ScheduleFound,
}

impl Sweeper {
    /// The role that its schedule calls it by.
    pub fn schedule_role(name: &str) -> String {
        format!("{name}-schedule")
    }

    /// Where its words go.
    pub fn log(name: &str) -> String {
        format!("/aws/lambda/{name}")
    }
}

/// How a function is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionSettings {
    pub runtime: String,
    pub role: String,
    pub arch: Option<Arch>,
    pub timeout_secs: u32,
    pub memory_mib: u32,
    pub environment: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionFound {
    /// Our tag, if it has one.
    pub owner: Option<String>,
    pub program: String,
    pub settings: FunctionSettings,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScheduleFound {
    pub enabled: bool,
    pub each: String,
    /// What it calls, and as whom.
    pub function: String,
    pub role: String,
}

/// What stands of a sweeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SweeperFound {
    pub role: Found<RoleFound>,
    pub schedule_role: Found<RoleFound>,
    pub log: Found<()>,
    pub function: Found<FunctionFound>,
    pub schedule: Found<ScheduleFound>,
}

/// One thing that is done for a sweeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweeperStep {
    CreateRole,
    WriteRolePolicy,
    CreateScheduleRole,
    WriteSchedulePolicy,
    CreateLog,
    CreateFunction,
    SendProgram,
    SetFunction,
    CreateSchedule,
    SetSchedule,
    DeleteSchedule,
    DeleteFunction,
    DeleteLog,
    DeleteScheduleRole,
    DeleteRole,
    DeleteRecords,
}

impl SweeperStep {
    pub fn takes_away(self) -> bool {
        use SweeperStep::{DeleteFunction, DeleteLog, DeleteRecords, DeleteRole, DeleteSchedule, DeleteScheduleRole};
        matches!(self, DeleteSchedule | DeleteFunction | DeleteLog | DeleteScheduleRole | DeleteRole | DeleteRecords)
    }

    pub fn words(self) -> &'static str {
        match self {
            SweeperStep::CreateRole | SweeperStep::CreateScheduleRole | SweeperStep::CreateLog => "create",
            SweeperStep::CreateFunction => "create, with this program",
            SweeperStep::CreateSchedule => "create, every five minutes",
            SweeperStep::WriteRolePolicy | SweeperStep::WriteSchedulePolicy => "write its policy",
            SweeperStep::SendProgram => "send this program",
            SweeperStep::SetFunction | SweeperStep::SetSchedule => "set as it should be",
            SweeperStep::DeleteSchedule | SweeperStep::DeleteFunction | SweeperStep::DeleteLog | SweeperStep::DeleteRecords => "delete",
            SweeperStep::DeleteScheduleRole | SweeperStep::DeleteRole => "delete, with its policy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_a_sweeper_of_their_own() {
        assert_eq!(name("alice"), "lamplighter-sweeper-alice");
        let (dot, dash) = (name("a.b@example.org"), name("a-b-example-org"));
        assert_eq!(dash, "lamplighter-sweeper-a-b-example-org");
        assert!(dot.starts_with(&format!("{dash}-")) && dot.len() == dash.len() + 9, "{dot}");
        let (long, other) = (name(&"x".repeat(200)), name(&"x".repeat(201)));
        assert!(long != other && format!("{long}-schedule").len() <= 64, "{long}");
    }
}
