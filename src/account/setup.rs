//! The setup that our machines need: the bucket, the role, the security group. Data only.
//!
//! `policy::account::setup_plan` decides the steps from found to wanted.

use serde::Serialize;
use serde_json::Value;

use super::permissions::{Permissions, partition};
use super::sweeper::{SweeperStep, name as sweeper_name};
use crate::job::{JobId, SecretSource};
use crate::market::Arch;

/// The result of a look-up. `Unknown` must never be treated as `Nothing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found<T> {
    Nothing,
    There(T),
    Unknown(String),
}

/// A subnet that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetFound {
    pub id: String,
    /// Its machines get a public address by default.
    pub gives_address: bool,
    pub way_out: WayOut,
}

/// Target of a subnet's default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// An internet gateway, which serves only public addresses.
    Gateway,
    /// A NAT or another target. Its own routing is not known here.
    Other,
    /// The route's target no longer exists.
    Dead,
    /// There is no default route.
    Nothing,
}

/// The image that the configuration names, as a launch resolves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageFound {
    There {
        id: String,
        name: String,
        arch: Arch,
    },
    /// No launch can use it; why.
    Refused(String),
    Unknown(String),
}

/// The fix for a security group in one network while machines are bought in another.
pub fn one_network(theirs: &str, ours: &str) -> String {
    format!(
        "name a security group of {ours} as `security_group` in [aws], or subnets of {theirs} as `subnets`"
    )
}

/// S3 gives this answer for a bucket of another account, and also when we lack the permission.
pub fn not_ours(bucket: &str) -> String {
    format!("`{bucket}` is another account's, or we may not look at it")
}

impl<T> Found<T> {
    pub fn there(&self) -> Option<&T> {
        if let Found::There(thing) = self { Some(thing) } else { None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupNames {
    pub owner: String,
    /// Where machines may be bought. The first is home, where the bucket is.
    pub regions: Vec<String>,
    pub bucket: String,
    /// The bucket has our default name with the account number, so no other user made it.
    pub bucket_is_ours_by_name: bool,
    pub prefix: String,
    /// The machines' role, and their instance profile.
    pub role: String,
    pub group: String,
    /// The user wants shells through Session Manager.
    pub session_manager: bool,
    /// The secrets that machines may read.
    pub secrets: Vec<SecretSource>,
}

pub const BOX_ROLE: &str = "lamplighter-box";

/// The role of a configured instance profile, which may be an ARN.
pub fn box_role(profile: Option<&str>) -> &str {
    profile.map_or(BOX_ROLE, |name| name.rsplit('/').next().unwrap_or(name))
}

/// Name of the inline policy of the role.
pub const BOX_POLICY: &str = "lamplighter-box";

/// Name of the inline policy that allows shells, if the user wants them.
pub const BOX_SESSION_POLICY: &str = "lamplighter-session";

pub const GROUP: &str = "lamplighter";

impl SetupNames {
    pub fn home(&self) -> &str {
        self.regions.first().map_or("us-east-1", String::as_str)
    }

    pub fn sweeper(&self) -> String {
        sweeper_name(&self.owner)
    }

    pub fn job_root(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix).trim_end_matches('/').to_owned()
    }

    pub fn permissions(&self) -> Permissions {
        Permissions {
            partition: partition(self.home()).to_owned(),
            owner: self.owner.clone(),
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            role: self.role.clone(),
            regions: self.regions.clone(),
            instance_types: vec!["*".to_owned()],
            secrets: self.secrets.clone(),
        }
    }
}

/// The settings of a bucket; `true` is as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketFound {
    /// The owner in our tag, if there is one.
    pub owner: Option<String>,
    pub region: String,
    pub versioned: bool,
    /// Public access is blocked.
    pub private: bool,
    pub encrypted: bool,
    /// The bucket's own KMS key, unless S3 or AWS manages it. Our policies name no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_key: Option<String>,
    /// Old versions and unfinished uploads expire.
    pub tidy: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoleFound {
    pub owner: Option<String>,
    /// Its policy with our name.
    pub policy: Option<Value>,
    /// Its policy for shells through Session Manager.
    pub session_policy: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProfileFound {
    pub owner: Option<String>,
    pub roles: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupFound {
    pub id: String,
    pub owner: Option<String>,
    /// Inbound rules.
    pub rules_in: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionFound {
    pub region: String,
    /// The machines' network: the one with the user's subnets, or the default one.
    pub vpc: Found<String>,
    /// The user named subnets.
    pub by_subnets: bool,
    pub group: Found<GroupFound>,
    /// Groups with our name in networks of the region that are no longer used.
    pub elsewhere: Vec<GroupFound>,
    /// The network of the group that the user named by id, if it is another network.
    pub stands_in: Option<String>,
}

impl RegionFound {
    /// The region, with the network unless it is the default one.
    pub fn place(&self) -> String {
        let network = self.vpc.there().filter(|_| self.by_subnets);
        network.map_or_else(|| self.region.clone(), |vpc| format!("{vpc} of {}", self.region))
    }

    /// The group's network, the machines' network and the fix; `None` unless they differ.
    pub fn apart(&self) -> Option<(&str, &str, String)> {
        let (theirs, ours) = (self.stands_in.as_deref()?, self.vpc.there()?);
        Some((theirs, ours, one_network(theirs, ours)))
    }

    /// The text for a launch without its security group.
    pub fn no_group(&self, group: &str) -> String {
        match self.apart() {
            Some((theirs, ours, _)) => format!(
                "no security group `{group}` in {ours} of {} (it is in {theirs})",
                self.region
            ),
            None => format!("no security group `{group}` in {}", self.region),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetupFound {
    pub bucket: Found<BucketFound>,
    pub role: Found<RoleFound>,
    pub profile: Found<ProfileFound>,
    pub regions: Vec<RegionFound>,
    pub spot_role: Found<()>,
    pub alarm_role: Found<()>,
}

/// Facts needed before a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InUse {
    /// Our machines that are not terminated.
    pub machines: Vec<String>,
    /// Machines with our owner tag that we did not launch and that still run, each with why. No job
    /// ends them.
    pub odd_machines: Vec<String>,
    /// Regions that could not be listed, each with why.
    pub unasked_regions: Vec<String>,
    pub jobs: u64,
    /// Objects of the job root in all versions, without our sweeper's records.
    pub objects: u64,
    /// The part of `objects` without a job or schedule: clock, news, programs, market data, proofs.
    pub house_objects: u64,
    pub bytes: u64,
    /// Records of our sweeper, in all versions.
    pub sweeper_objects: u64,
    /// Objects outside the job root, in all versions: of another job root, or foreign.
    pub other_objects: u64,
    /// The first places that hold other objects.
    pub others: Vec<String>,
}

/// How many places are listed. With fewer, a user who shares a bucket by prefixes may miss their
/// own. With more, the line gets too long to read; the object count gives the total.
pub const PLACES: usize = 5;

/// The names in a job's folder.
const OF_A_JOB: [&str; 14] = [
    "spec.json",
    "code",
    "code.tar.zst",
    "requests",
    "attempts",
    "checkpoints",
    "outputs",
    "told",
    "attention.json",
    "waiting.json",
    "market.json",
    "receipt.json",
    "given-up.json",
    "discarded.json",
];

/// The job that a key belongs to. A folder of a job root whose prefix begins with `jobs/` is not a
/// job.
pub fn job_of(key: &str) -> Option<&str> {
    let (job, inner) = key.strip_prefix("jobs/")?.split_once('/')?;
    let first = inner.split('/').next()?;
    (job.parse::<JobId>().is_ok() && OF_A_JOB.contains(&first)).then_some(job)
}

/// Whether a key belongs to the job root. Other keys are never deleted with it.
pub fn is_of_the_root(key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        ["schedules", _, file] | ["schedules", _, _, "runs", file] => file.ends_with(".json"),
        ["schedules", _, _, "waiting.json"] => true,
        ["schedules", _, _, "code", file] => file.ends_with(".tar.zst"),
        ["sweeper", _, "suspects.json" | "visit.json"] => true,
        _ => is_of_the_house(key) || job_of(key).is_some(),
    }
}

/// The place of a key outside the job root, for people: another job root, or the first folder.
pub fn place_of(prefix: &str, key: &str) -> String {
    let (shared, rest) = key.strip_prefix(prefix).map_or(("", key), |rest| (prefix, rest));
    let folder = rest.split_once("/jobs/").or_else(|| rest.split_once('/'));
    folder.map_or_else(|| key.to_owned(), |(folder, _)| format!("{shared}{folder}/"))
}

/// Whether a key is lamp's own data without a job, which lamp can recreate or learn again. The
/// names are those in `jobdir::layout`; a test there compares the two.
pub fn is_of_the_house(key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        ["clock" | "jobs-over.json"] => true,
        ["agents", sum, "lamp-agent" | "checked"] => {
            sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        ["news", _, word] => !word.is_empty() && !word.contains('.'),
        ["market", zone, file] => {
            zone.matches('-').count() >= 2
                && file.strip_suffix(".json").is_some_and(|model| model.contains('.'))
        }
        ["proofs", account, file] => {
            account.bytes().all(|byte| byte.is_ascii_digit()) && file.ends_with(".json")
        }
        _ => false,
    }
}

impl InUse {
    /// Whether the job root holds a job or a schedule.
    pub fn holds_anything(&self) -> bool {
        self.jobs > 0 || self.objects > self.house_objects
    }
}

/// One step, done by one or more calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetupStep {
    CreateBucket,
    TagBucket,
    VersionBucket,
    CloseBucket,
    EncryptBucket,
    TidyBucket,
    CreateRole,
    WriteRolePolicy,
    WriteSessionPolicy,
    CreateProfile,
    PutRoleInProfile,
    CreateGroup {
        region: String,
        vpc: String,
    },
    CreateSpotRole,
    CreateAlarmRole,
    /// Deletes only the job root, in all versions.
    EmptyRoot,
    /// Deletes lamp's own records without a job. If other objects have appeared, the bucket stays.
    ForgetHouse,
    DeleteBucket,
    TakeRoleFromProfile,
    DeleteProfile,
    DeleteRolePolicy,
    DeleteSessionPolicy,
    DeleteRole,
    DeleteGroup {
        region: String,
        id: String,
    },
    Sweeper(SweeperStep),
}

impl SetupStep {
    pub fn words(&self) -> &'static str {
        match self {
            SetupStep::CreateBucket
            | SetupStep::CreateRole
            | SetupStep::CreateProfile
            | SetupStep::CreateGroup { .. } => "create",
            SetupStep::CreateSpotRole | SetupStep::CreateAlarmRole => "create",
            SetupStep::TagBucket => "tag as ours",
            SetupStep::VersionBucket => "keep versions",
            SetupStep::CloseBucket => "block public access",
            SetupStep::EncryptBucket => "encrypt by default",
            SetupStep::TidyBucket => "expire old versions and broken uploads",
            SetupStep::WriteRolePolicy => "write its policy",
            SetupStep::WriteSessionPolicy => "let shells in through Session Manager",
            SetupStep::PutRoleInProfile => "put the role in",
            SetupStep::EmptyRoot => "delete all jobs of the job root",
            SetupStep::ForgetHouse => "delete lamp's own records in it",
            SetupStep::TakeRoleFromProfile => "take the role out",
            SetupStep::DeleteRolePolicy => "delete its policy",
            SetupStep::DeleteSessionPolicy => "let no shells in",
            SetupStep::Sweeper(step) => step.words(),
            SetupStep::DeleteBucket
            | SetupStep::DeleteProfile
            | SetupStep::DeleteRole
            | SetupStep::DeleteGroup { .. } => "delete",
        }
    }
}
