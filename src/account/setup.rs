//! What stands ready in an account for machines of ours: the bucket, the role, the security group. Nouns.
//!
//! `policy::account::setup_plan` decides which steps make one out of the other. What must never live here: a call, a decision.

use serde::Serialize;
use serde_json::Value;

use super::permissions::{Permissions, partition};
use super::sweeper::{SweeperStep, name as sweeper_name};
use crate::job::{JobId, SecretSource};
use crate::market::Arch;

/// What was found when somebody looked. `Unknown` is never `Nothing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found<T> {
    Nothing,
    There(T),
    /// Why nobody could see.
    Unknown(String),
}

/// A subnet that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetFound {
    pub id: String,
    /// Its machines get a public address without asking.
    pub gives_address: bool,
    pub way_out: WayOut,
}

/// Where the default route of a subnet leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// An internet gateway, which is one for public addresses only.
    Gateway,
    /// A NAT or whatever else, behind which somebody else decides.
    Other,
    /// What it led to is gone.
    Dead,
    /// There is no default route.
    Nothing,
}

/// The image that the words of a configuration name, as a launch finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageFound {
    There {
        id: String,
        name: String,
        arch: Arch,
    },
    /// No launch can have it; why.
    Refused(String),
    /// Why nobody could see.
    Unknown(String),
}

/// What mends a security group of one network where machines are bought in another.
pub fn one_network(theirs: &str, ours: &str) -> String {
    format!("name a security group of {ours} as `security_group` in [aws], or subnets of {theirs} as `subnets`")
}

/// S3's refusal to say anything of a bucket, not even that it is there, is an answer: whoever asks whether a bucket is theirs is told so.
pub fn not_ours(bucket: &str) -> String {
    format!("`{bucket}` is another account's, or we may not look at it")
}

impl<T> Found<T> {
    pub fn there(&self) -> Option<&T> {
        if let Found::There(thing) = self { Some(thing) } else { None }
    }
}

/// What is wanted, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupNames {
    pub owner: String,
    /// Where machines may be bought; the first is home, where the bucket is.
    pub regions: Vec<String>,
    pub bucket: String,
    /// The bucket's name is the one that we give, with the account's number in it: nobody else made it.
    pub bucket_is_ours_by_name: bool,
    /// Of the job root: empty, or with a `/` at its end.
    pub prefix: String,
    /// The role of the machines, and their instance profile.
    pub role: String,
    pub group: String,
    /// Shells through Session Manager are asked for.
    pub session_manager: bool,
    /// The secrets that machines may read.
    pub secrets: Vec<SecretSource>,
}

/// The name of the role and of the instance profile.
pub const BOX_ROLE: &str = "lamplighter-box";

/// The role that goes with what the configuration calls the instance profile, which may be an ARN.
pub fn box_role(profile: Option<&str>) -> &str {
    profile.map_or(BOX_ROLE, |name| name.rsplit('/').next().unwrap_or(name))
}

/// The one policy within the role.
pub const BOX_POLICY: &str = "lamplighter-box";

/// The policy within the role that lets shells in, where that was asked for.
pub const BOX_SESSION_POLICY: &str = "lamplighter-session";

/// The name of the security group.
pub const GROUP: &str = "lamplighter";

impl SetupNames {
    pub fn home(&self) -> &str {
        self.regions.first().map_or("us-east-1", String::as_str)
    }

    /// The sweeper of this owner.
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

/// Which settings of a bucket are as they should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketFound {
    /// Our tag, if it has one.
    pub owner: Option<String>,
    pub region: String,
    pub versioned: bool,
    /// Nothing in it can be made public.
    pub private: bool,
    pub encrypted: bool,
    /// The KMS key that it encrypts with, where that is neither S3's nor AWS's: our policies name no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_key: Option<String>,
    /// Unfinished uploads and old versions go by themselves.
    pub tidy: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoleFound {
    pub owner: Option<String>,
    /// Its policy of our name.
    pub policy: Option<Value>,
    /// That for shells through Session Manager.
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
    /// Ways in.
    pub rules_in: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionFound {
    pub region: String,
    /// The network that machines stand in there: that of the user's subnets, of which a region may have several; else the default one.
    pub vpc: Found<String>,
    /// Whether the user names subnets.
    pub by_subnets: bool,
    pub group: Found<GroupFound>,
    /// Groups of the same name in networks of the region where no machine is bought any more.
    pub elsewhere: Vec<GroupFound>,
    /// The network that the group stands in which the user names by its id, where it is another one.
    pub stands_in: Option<String>,
}

impl RegionFound {
    /// The region; the network with it where it is not the default one.
    pub fn place(&self) -> String {
        let network = self.vpc.there().filter(|_| self.by_subnets);
        network.map_or_else(|| self.region.clone(), |vpc| format!("{vpc} of {}", self.region))
    }

    /// The network of the group, that of the machines, and what brings them together; `None`: the group is in no other.
    pub fn apart(&self) -> Option<(&str, &str, String)> {
        let (theirs, ours) = (self.stands_in.as_deref()?, self.vpc.there()?);
        Some((theirs, ours, one_network(theirs, ours)))
    }

    /// What a launch lacks where the group is not there.
    pub fn no_group(&self, group: &str) -> String {
        match self.apart() {
            Some((theirs, ours, _)) => format!("no security group `{group}` in {ours} of {} (it is in {theirs})", self.region),
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

/// What must be known before anything is taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InUse {
    /// Our machines that are not terminated.
    pub machines: Vec<String>,
    /// Machines with our owner tag that are not terminated and no launch of ours, each with why: no job ends them.
    pub odd_machines: Vec<String>,
    /// Regions that did not say which machines are there, each with why.
    pub unasked_regions: Vec<String>,
    pub jobs: u64,
    /// Objects of the job root with all their versions, without the records of our own sweeper.
    pub objects: u64,
    /// Those of them that are of no job and no schedule: the clock, news, programs, what was learned of markets, proofs.
    pub house_objects: u64,
    pub bytes: u64,
    /// The records of our own sweeper, with all their versions.
    pub sweeper_objects: u64,
    /// Objects in the bucket that are not of the job root, with all their versions: another job root's, or what is not lamp's.
    pub other_objects: u64,
    /// Where those are; the first places.
    pub others: Vec<String>,
}

/// So many places are told. With fewer, whoever shares a bucket by prefixes might miss his own; with more, the line that holds
/// them is no longer read, and the number of objects says how much there is.
pub const PLACES: usize = 5;

/// What a job's folder holds.
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

/// The job that a key of the job root is of. A folder of another job root whose prefix begins with `jobs/` is no job.
pub fn job_of(key: &str) -> Option<&str> {
    let (job, inner) = key.strip_prefix("jobs/")?.split_once('/')?;
    let first = inner.split('/').next()?;
    (job.parse::<JobId>().is_ok() && OF_A_JOB.contains(&first)).then_some(job)
}

/// Whether a key is of the job root at all. What is not goes with no job root: it is another's, or somebody's own.
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

/// Where a key lies that is not of the job root, as people call it: another job root, or the first folder.
pub fn place_of(prefix: &str, key: &str) -> String {
    let (shared, rest) = key.strip_prefix(prefix).map_or(("", key), |rest| (prefix, rest));
    let folder = rest.split_once("/jobs/").or_else(|| rest.split_once('/'));
    folder.map_or_else(|| key.to_owned(), |(folder, _)| format!("{shared}{folder}/"))
}

/// Whether a key of the job root is lamp's own and of no job: it is made anew where it is missed, or was only learned. (The names
/// are `jobdir::layout`'s; a test there holds the two together.)
pub fn is_of_the_house(key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        ["clock" | "jobs-over.json"] => true,
        ["agents", sum, "lamp-agent" | "checked"] => sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()),
        ["news", _, word] => !word.is_empty() && !word.contains('.'),
        ["market", zone, file] => zone.matches('-').count() >= 2 && file.strip_suffix(".json").is_some_and(|model| model.contains('.')),
        ["proofs", account, file] => account.bytes().all(|byte| byte.is_ascii_digit()) && file.ends_with(".json"),
        _ => false,
    }
}

impl InUse {
    /// Whether the job root holds anything that somebody may want: a job or a schedule.
    pub fn holds_anything(&self) -> bool {
        self.jobs > 0 || self.objects > self.house_objects
    }
}

/// One thing that is done, in a call.
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
    /// Deletes the job root, in all versions, and nothing beside it.
    EmptyRoot,
    /// The same of what is lamp's own and of no job; whatever else came meanwhile keeps the bucket.
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
            SetupStep::CreateBucket | SetupStep::CreateRole | SetupStep::CreateProfile | SetupStep::CreateGroup { .. } => "create",
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
            SetupStep::DeleteBucket | SetupStep::DeleteProfile | SetupStep::DeleteRole | SetupStep::DeleteGroup { .. } => "delete",
        }
    }
}
