//! Names of the sweeper in the cloud: its function, schedule, roles and log. Data only.
//!
//! `policy::account::sweeper_plan` decides the steps from found to wanted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lookup::{Found, RoleFound};
use crate::market::Arch;

/// Prefix of every sweeper's name; the policies match it.
pub const SWEEPER: &str = "lamplighter-sweeper";

/// AWS Lambda, EventBridge Scheduler and IAM allow 64 characters, and we add a prefix and suffixes.
const OWNER_CHARS_MAX: usize = 26;

/// Name of an owner's sweeper; each owner has one. Invalid characters are replaced; a hash of the
/// owner then keeps the names unique.
pub fn name(owner: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String =
        owner.chars().map(|c| if allowed(c) { c } else { '-' }).take(OWNER_CHARS_MAX).collect();
    if plain == owner {
        format!("{SWEEPER}-{plain}")
    } else {
        format!("{SWEEPER}-{plain}-{:08x}", hash(owner))
    }
}

/// FNV-1a, folded to 32 bits.
fn hash(text: &str) -> u32 {
    let whole = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (whole ^ (whole >> 32)) as u32
}

/// Lambda's runtime for compiled programs: Amazon Linux 2023.
pub const RUNTIME: &str = "provided.al2023";

/// glibc version of that runtime; a program that needs a newer one does not start.
pub const RUNTIME_GLIBC: (u32, u32) = (2, 34);

/// Interval of the visits. The bound on the cost of an orphan includes it.
pub const EACH: &str = "rate(5 minutes)";

/// A visit looks twice, a minute apart, and every wait has a timeout. It must end before the next
/// visit five minutes later: two at once would only read the same data.
pub const TIMEOUT_SECS: u32 = 240;

/// The program needs about 60 MiB. Lambda gives CPU in proportion to memory, and a visit makes
/// seventeen TLS handshakes.
pub const MEMORY_MIB: u32 = 256;

/// Long enough to find out why a machine was ended last week.
pub const LOG_DAYS: u32 = 14;

/// The wanted state of an owner's sweeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweeper {
    pub name: String,
    /// SHA-256 of the program's archive in base64, as Lambda reports it; or why there is no
    /// program.
    pub program: Result<String, String>,
    pub settings: FunctionSettings,
    pub schedule: ScheduleFound,
}

impl Sweeper {
    /// The role with which the schedule calls the function.
    pub fn schedule_role(name: &str) -> String {
        format!("{name}-schedule")
    }

    /// Name of its log group.
    pub fn log(name: &str) -> String {
        format!("/aws/lambda/{name}")
    }
}

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
    /// The owner in our tag, if there is one.
    pub owner: Option<String>,
    pub program: String,
    pub settings: FunctionSettings,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScheduleFound {
    pub enabled: bool,
    pub each: String,
    /// The function that it calls, and the role it uses.
    pub function: String,
    pub role: String,
}

/// The parts of a sweeper that were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SweeperFound {
    pub role: Found<RoleFound>,
    pub schedule_role: Found<RoleFound>,
    pub log: Found<()>,
    pub function: Found<FunctionFound>,
    pub schedule: Found<ScheduleFound>,
}

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
        use SweeperStep::{
            DeleteFunction, DeleteLog, DeleteRecords, DeleteRole, DeleteSchedule,
            DeleteScheduleRole,
        };
        matches!(
            self,
            DeleteSchedule
                | DeleteFunction
                | DeleteLog
                | DeleteScheduleRole
                | DeleteRole
                | DeleteRecords
        )
    }

    pub fn words(self) -> &'static str {
        match self {
            SweeperStep::CreateRole | SweeperStep::CreateScheduleRole | SweeperStep::CreateLog => {
                "create"
            }
            SweeperStep::CreateFunction => "create, with this program",
            SweeperStep::CreateSchedule => "create, every five minutes",
            SweeperStep::WriteRolePolicy | SweeperStep::WriteSchedulePolicy => "write its policy",
            SweeperStep::SendProgram => "send this program",
            SweeperStep::SetFunction | SweeperStep::SetSchedule => "set as it should be",
            SweeperStep::DeleteSchedule
            | SweeperStep::DeleteFunction
            | SweeperStep::DeleteLog
            | SweeperStep::DeleteRecords => "delete",
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
