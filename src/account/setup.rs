//! The setup that our machines need: the bucket, the role, the security group. Data only.
//!
//! `policy::account::setup_plan` decides the steps from found to wanted.

use serde::Serialize;

use super::permissions::{Permissions, partition};
use super::sweeper::{SweeperStep, name as sweeper_name};
use crate::job::{JobId, ModelName, SecretSource};

/// S3 gives this answer for a bucket of another account, and also when we lack the permission.
pub fn not_ours(bucket: &str) -> String {
    format!("`{bucket}` is another account's, or we may not look at it")
}

/// The bucket and the prefix of a job root; `None` for a folder.
pub fn bucket_of(url: &str) -> Option<(String, String)> {
    let (bucket, prefix) =
        url.strip_prefix("s3://")?.split_once('/').unwrap_or((url.strip_prefix("s3://")?, ""));
    Some((bucket.to_owned(), with_slash(prefix)))
}

pub fn with_slash(prefix: &str) -> String {
    let plain = prefix.trim_matches('/');
    if plain.is_empty() { String::new() } else { format!("{plain}/") }
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
    /// The user wants gangs, whose machines reach each other.
    pub gangs: bool,
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

/// The group through which each machine of a gang reaches the others.
pub const GANG_GROUP: &str = "lamplighter-gang";

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
        ["tunings", _, "tuning.json" | "ended.json"] => true,
        ["tunings", _, "trials", file] | ["tunings", _, "trials", _, file] => {
            file.ends_with(".json")
        }
        ["tunings", _, "code", file] => file.ends_with(".tar.zst"),
        ["sweeper", _, "suspects.json" | "visit.json"] => true,
        ["models", model, "model.json" | "default.json"] => model.parse::<ModelName>().is_ok(),
        ["models", model, "versions", file] => {
            model.parse::<ModelName>().is_ok() && file.ends_with(".json")
        }
        ["models", model, "files", version, upload, _, ..] => {
            model.parse::<ModelName>().is_ok()
                && version.parse::<ModelName>().is_ok()
                && upload.len() == 12
                && upload.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
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
        ["told", file] => file.starts_with("foreign-") && file.ends_with(".json"),
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
    /// Creates it and opens it to itself.
    CreateGangGroup {
        region: String,
        vpc: String,
    },
    OpenGangGroup {
        region: String,
        id: String,
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
            SetupStep::CreateGangGroup { .. } => "create and open to itself",
            SetupStep::OpenGangGroup { .. } => "open to itself",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_root_is_a_bucket_and_a_prefix() {
        let parts = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(bucket_of("s3://b"), parts("b", ""));
        assert_eq!(bucket_of("s3://b/a/c"), parts("b", "a/c/"));
        assert_eq!(bucket_of("file:///x"), None);
        assert_eq!((with_slash("/a/"), with_slash("/")), ("a/".to_owned(), String::new()));
    }
}
