//! Plans the setup of an account: from found to wanted.
//!
//! ```text
//!   SetupNames + SetupFound -> one line for each thing: found, to do, blocked by
//! ```
//! A thing without our owner tag is never changed: it is used as it is, or refused. This module
//! makes no calls.

use serde::Serialize;
use serde_json::Value;

use crate::account::lookup::{
    BucketFound, Found, GroupFound, ProfileFound, RegionFound, RoleFound, SetupFound,
};
use crate::account::permissions::PolicyName;
use crate::account::setup::{
    BOX_POLICY, BOX_ROLE, BOX_SESSION_POLICY, GANG_GROUP, GROUP, InUse, PLACES, SetupNames,
    SetupStep,
};
use crate::job::JobId;

/// One thing: a row of the plan that the user sees first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetupLine {
    pub thing: String,
    pub found: String,
    pub steps: Vec<SetupStep>,
    pub remark: Option<String>,
    /// It blocks the whole setup.
    pub blocks: bool,
    /// No machine can be bought here, and `lamp init aws` cannot change that.
    pub lacks: bool,
}

impl SetupLine {
    pub(crate) fn new(
        thing: impl Into<String>,
        found: impl Into<String>,
        steps: Vec<SetupStep>,
    ) -> Self {
        SetupLine {
            thing: thing.into(),
            found: found.into(),
            steps,
            remark: None,
            blocks: false,
            lacks: false,
        }
    }

    pub(crate) fn remark(self, remark: impl Into<String>) -> Self {
        SetupLine { remark: Some(remark.into()), ..self }
    }

    pub(crate) fn unknown(thing: impl Into<String>, why: &str) -> Self {
        SetupLine { blocks: true, ..SetupLine::new(thing, "unknown", Vec::new()).remark(why) }
    }

    pub fn will(&self) -> String {
        if self.steps.is_empty() {
            "nothing".to_owned()
        } else {
            self.steps.iter().map(SetupStep::words).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Whether the machines' role may be bound to another job root than now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebind {
    Refused,
    /// The user asked for it, and no machine runs.
    Asked,
}

pub fn plan_setup(names: &SetupNames, found: &SetupFound, rebind: Rebind) -> Vec<SetupLine> {
    let mut lines = vec![
        bucket(names, &found.bucket),
        role(names, &found.role, rebind),
        profile(names, &found.profile),
    ];
    lines.extend(found.regions.iter().map(|region| group(names, region)));
    if names.gangs {
        lines.extend(found.regions.iter().filter_map(|region| gang_group(names, region)));
    }
    let shared = [
        ("spot", &found.spot_role, SetupStep::CreateSpotRole),
        ("CloudWatch alarms", &found.alarm_role, SetupStep::CreateAlarmRole),
    ];
    lines.extend(shared.map(|(of, found, step)| service_role(of, found, step)));
    lines
}

fn bucket(names: &SetupNames, found: &Found<BucketFound>) -> SetupLine {
    let thing = format!("bucket {}", names.bucket);
    let settings = |bucket: &BucketFound| {
        [
            (bucket.versioned, "versioned", SetupStep::VersionBucket),
            (bucket.private, "private", SetupStep::CloseBucket),
            (bucket.encrypted, "encrypted", SetupStep::EncryptBucket),
            (bucket.tidy, "with a lifecycle", SetupStep::TidyBucket),
        ]
    };
    let bucket = match found {
        Found::Unknown(why) => return SetupLine::unknown(thing, why),
        Found::Nothing => {
            let steps = settings(&BucketFound::default()).map(|(_, _, step)| step);
            return SetupLine::new(
                thing,
                "not there",
                [SetupStep::CreateBucket, SetupStep::TagBucket].into_iter().chain(steps).collect(),
            );
        }
        Found::There(bucket) => bucket,
    };
    let words = |is: bool| {
        settings(bucket)
            .into_iter()
            .filter(move |(has, _, _)| *has == is)
            .map(|(_, word, _)| word)
            .collect::<Vec<_>>()
    };
    let said = if words(true).is_empty() {
        "there".to_owned()
    } else {
        format!("there, {}", words(true).join(", "))
    };
    if bucket.region != names.home() {
        let home = &bucket.region;
        let asked: Vec<String> = names
            .regions
            .iter()
            .filter(|region| *region != home)
            .map(|region| format!(" --region {region}"))
            .collect();
        let remark = format!(
            "it is in {home}, and stays there; `lamp init aws --region {home}{}` makes what machines need in {} too, and `--bucket NAME` takes another bucket",
            asked.concat(),
            names.regions.join(", ")
        );
        return SetupLine {
            blocks: true,
            ..SetupLine::new(thing, said, Vec::new()).remark(remark)
        };
    }
    if let Some(key) = &bucket.own_key {
        let remark = format!(
            "{}: name another bucket, or {} before there are jobs in it",
            own_key(&names.bucket, key),
            managed_key(&names.bucket)
        );
        return SetupLine {
            blocks: true,
            ..SetupLine::new(thing, said, Vec::new()).remark(remark)
        };
    }
    let is_new = bucket.owner.is_none() && names.bucket_is_ours_by_name;
    if bucket.owner.as_deref() != Some(&names.owner) && !is_new {
        let whose = bucket
            .owner
            .as_ref()
            .map_or("it was not made by `lamp init aws`".to_owned(), |owner| {
                format!("it is {owner}'s")
            });
        let missing = words(false);
        let lacks = if missing.is_empty() {
            String::new()
        } else {
            format!("; it is not {}", missing.join(", not "))
        };
        return SetupLine::new(thing, said, Vec::new())
            .remark(format!("{whose} and stays as it is{lacks}"));
    }
    let tag = is_new.then_some(SetupStep::TagBucket);
    SetupLine::new(
        thing,
        said,
        tag.into_iter()
            .chain(settings(bucket).into_iter().filter(|(is, _, _)| !is).map(|(_, _, step)| step))
            .collect(),
    )
}

/// Why a bucket with the owner's own KMS key cannot hold jobs.
pub fn own_key(bucket: &str, key: &str) -> String {
    format!(
        "{bucket} encrypts with a KMS key of your own ({key}), which the role of the machines may not use: none would reach its job"
    )
}

/// The command that fixes it.
pub fn managed_key(bucket: &str) -> String {
    format!(
        "`aws s3api put-bucket-encryption --bucket {bucket} --server-side-encryption-configuration \
         '{{\"Rules\":[{{\"ApplyServerSideEncryptionByDefault\":{{\"SSEAlgorithm\":\"AES256\"}}}}]}}'`"
    )
}

/// Whether a role's policy is exactly the one that this job root's machines need.
pub fn allows(names: &SetupNames, policy: Option<&Value>) -> bool {
    policy == Some(&names.permissions().policy(PolicyName::Box))
}

/// The first S3 resource in a policy, without its final star: `bucket/prefix/jobs/`, or
/// `bucket/prefix/` in older versions of `lamp`.
fn root_of(policy: Option<&Value>) -> Option<String> {
    let root = |statement: &Value| {
        Some(statement["Resource"].as_str()?.split_once(":s3:::")?.1.strip_suffix('*')?.to_owned())
    };
    policy?["Statement"].as_array()?.iter().find_map(root)
}

/// The other job root in a role's policy; `None`: it is this one, or cannot be read.
pub fn other_root(names: &SetupNames, policy: Option<&Value>) -> Option<String> {
    let (root, ours) = (root_of(policy)?, format!("{}/{}", names.bucket, names.prefix));
    let other = root.strip_suffix("jobs/").unwrap_or(&root).trim_end_matches('/');
    (root != ours && root != format!("{ours}jobs/")).then(|| format!("s3://{other}"))
}

/// Whether machines can reach this root's jobs with it. A wider policy reaches them too.
pub fn reaches(names: &SetupNames, policy: Option<&Value>) -> bool {
    root_of(policy)
        .is_some_and(|root| format!("{}/{}jobs/", names.bucket, names.prefix).starts_with(&root))
}

fn lets_shells_in(names: &SetupNames, role: &RoleFound) -> bool {
    role.session_policy.as_ref() == Some(&names.permissions().policy(PolicyName::BoxSession))
}

fn role(names: &SetupNames, found: &Found<RoleFound>, rebind: Rebind) -> SetupLine {
    let thing = format!("role {}", names.role);
    let shells = names.session_manager.then_some(SetupStep::WriteSessionPolicy);
    match found {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::Nothing => SetupLine::new(
            thing,
            "not there",
            [SetupStep::CreateRole, SetupStep::WriteRolePolicy].into_iter().chain(shells).collect(),
        ),
        Found::There(role) if role.owner.as_deref() == Some(&names.owner) => {
            let (said, write) = match &role.policy {
                policy if allows(names, policy.as_ref()) => {
                    ("there, allows what a machine needs", None)
                }
                Some(_) => ("there, with another policy", Some(SetupStep::WriteRolePolicy)),
                None => ("there, without its policy", Some(SetupStep::WriteRolePolicy)),
            };
            let shells = shells.filter(|_| !lets_shells_in(names, role));
            let said = if role.session_policy.is_some() {
                format!("{said}, and shells")
            } else {
                said.to_owned()
            };
            let line = |said: String| {
                SetupLine::new(&thing, said, write.into_iter().chain(shells).collect())
            };
            match (other_root(names, role.policy.as_ref()), rebind) {
                (None, _) => line(said),
                (Some(other), Rebind::Asked) => {
                    line(format!("there, for {other}")).remark(format!(
                        "it will be for {}; machines of jobs in {other} will reach nothing",
                        names.job_root()
                    ))
                }
                (Some(other), Rebind::Refused) => {
                    let remark = format!(
                        "it is for the job root {other}, and {} is asked for: machines of jobs there would reach nothing (`--instead` does it all the same)",
                        names.job_root()
                    );
                    SetupLine {
                        blocks: true,
                        ..SetupLine::new(&thing, format!("there, for {other}"), Vec::new())
                            .remark(remark)
                    }
                }
            }
        }
        Found::There(role) if allows(names, role.policy.as_ref()) => {
            let line = SetupLine::new(thing, "there, allows what a machine needs", Vec::new());
            if shells.is_none() || lets_shells_in(names, role) {
                return line;
            }
            line.remark(format!(
                "it was not made by `lamp init aws` for you and stays as it is: give it `lamp iam box-session` as `{BOX_SESSION_POLICY}`"
            ))
        }
        Found::There(role) => {
            let whose = role
                .owner
                .as_ref()
                .map_or("not made by `lamp init aws`".to_owned(), |owner| format!("{owner}'s"));
            let remark = format!(
                "it is {whose} and stays as it is; its policy `{BOX_POLICY}` is not what `lamp iam box` prints"
            );
            SetupLine::new(thing, "there", Vec::new()).remark(remark)
        }
    }
}

fn profile(names: &SetupNames, found: &Found<ProfileFound>) -> SetupLine {
    let thing = format!("instance profile {}", names.role);
    match found {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::Nothing => SetupLine::new(
            thing,
            "not there",
            vec![SetupStep::CreateProfile, SetupStep::PutRoleInProfile],
        ),
        Found::There(profile) if profile.roles.contains(&names.role) => {
            SetupLine::new(thing, "there, with the role", Vec::new())
        }
        Found::There(profile)
            if profile.roles.is_empty() && profile.owner.as_deref() == Some(&names.owner) =>
        {
            SetupLine::new(thing, "there, without a role", vec![SetupStep::PutRoleInProfile])
        }
        Found::There(profile) => {
            let held = profile.roles.first().map_or("no role", String::as_str);
            SetupLine {
                blocks: true,
                ..SetupLine::new(thing, format!("there, with {held}"), Vec::new())
                    .remark("it is not ours to change")
            }
        }
    }
}

fn group(names: &SetupNames, region: &RegionFound) -> SetupLine {
    let thing = format!("security group {} in {}", names.group, region.place());
    match (&region.group, &region.vpc) {
        (Found::Unknown(why), _) | (_, Found::Unknown(why)) => SetupLine::unknown(thing, why),
        (Found::There(group), _) => {
            let line =
                |found: &str| SetupLine::new(thing, format!("{}, {found}", group.id), Vec::new());
            match group.rules_in {
                0 => line("no way in"),
                rules => line(&format!("{rules} ways in")).remark("no port needs to be open, and rules that somebody added stay: see `lamp doctor`"),
            }
        }
        (Found::Nothing, Found::Nothing) if region.by_subnets => {
            SetupLine::new(thing, "no subnet", Vec::new())
                .remark("none of `aws.subnets` lies there: no machine is bought there")
        }
        (Found::Nothing, Found::Nothing) => {
            let make = format!("`aws ec2 create-default-vpc --region {}`", region.region);
            let line = SetupLine::new(thing, "no default VPC", Vec::new());
            SetupLine {
                lacks: true,
                ..line.remark(format!(
                    "name `subnets` and `security_group` in [aws], or make one: {make}"
                ))
            }
        }
        (Found::Nothing, Found::There(vpc)) => {
            let step = SetupStep::CreateGroup { region: region.region.clone(), vpc: vpc.clone() };
            SetupLine::new(thing, "not there", vec![step])
        }
    }
}

/// `None`: no machine is bought in this region, as the line of the other group says.
fn gang_group(names: &SetupNames, region: &RegionFound) -> Option<SetupLine> {
    let (thing, place) = (gang_thing(region), region.region.clone());
    let vpc = match &region.vpc {
        Found::There(vpc) => vpc.clone(),
        Found::Nothing | Found::Unknown(_) => return None,
    };
    Some(match &region.gang_group {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::Nothing => {
            let step = SetupStep::CreateGangGroup { region: place, vpc };
            SetupLine::new(thing, "not there", vec![step])
        }
        Found::There(group) if group.rules_in > 0 => {
            SetupLine::new(thing, format!("{}, with a way in", group.id), Vec::new())
        }
        Found::There(group) if group.owner.as_deref() == Some(&names.owner) => {
            let step = SetupStep::OpenGangGroup { region: place, id: group.id.clone() };
            SetupLine::new(thing, format!("{}, closed", group.id), vec![step])
        }
        Found::There(group) => SetupLine::new(thing, format!("{}, closed", group.id), Vec::new())
            .remark("it is not ours to change: it must let in all traffic of its own machines"),
    })
}

fn gang_thing(region: &RegionFound) -> String {
    format!("security group {GANG_GROUP} in {}", region.place())
}

fn service_role(of: &str, found: &Found<()>, step: SetupStep) -> SetupLine {
    let thing = format!("service-linked role of {of}");
    match found {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::There(()) => SetupLine::new(thing, "there", Vec::new()),
        Found::Nothing => SetupLine::new(thing, "not there", vec![step]),
    }
}

/// Plans the removal of exactly what `plan_setup` made.
pub fn plan_removal(
    names: &SetupNames,
    found: &SetupFound,
    used: &InUse,
    delete_jobs: bool,
) -> Vec<SetupLine> {
    let ours = |owner: &Option<String>| owner.as_deref() == Some(&names.owner);
    let mut lines = Vec::new();
    for region in &found.regions {
        let thing = format!("security group {} in {}", names.group, region.place());
        let delete = |group: &GroupFound| {
            vec![SetupStep::DeleteGroup { region: region.region.clone(), id: group.id.clone() }]
        };
        lines.push(removal(thing, &region.group, |group| ours(&group.owner), delete));
        if matches!(region.gang_group, Found::There(_)) {
            let (thing, found) = (gang_thing(region), &region.gang_group);
            lines.push(removal(thing, found, |group| ours(&group.owner), delete));
        }
        // Groups made before `aws.subnets` named another network.
        let of_before = region.elsewhere.iter().filter(|group| ours(&group.owner));
        lines.extend(of_before.map(|group| {
            SetupLine::new(
                format!("security group {} in {}", group.id, region.region),
                "ours",
                delete(group),
            )
        }));
    }
    let profile = |_: &ProfileFound| vec![SetupStep::TakeRoleFromProfile, SetupStep::DeleteProfile];
    lines.push(removal(
        format!("instance profile {}", names.role),
        &found.profile,
        |profile| ours(&profile.owner),
        profile,
    ));
    let role = |role: &RoleFound| {
        let shells = role.session_policy.as_ref().map(|_| SetupStep::DeleteSessionPolicy);
        [SetupStep::DeleteRolePolicy]
            .into_iter()
            .chain(shells)
            .chain([SetupStep::DeleteRole])
            .collect()
    };
    lines.push(removal(
        format!("role {}", names.role),
        &found.role,
        |role| ours(&role.owner),
        role,
    ));
    lines.push(bucket_removal(names, &found.bucket, used, delete_jobs));
    lines.push(SetupLine::new("service-linked roles", "of the whole account, free", Vec::new()));
    if !used.unasked_regions.is_empty() {
        let line = SetupLine::new("machines elsewhere", "not known", Vec::new());
        lines.insert(
            0,
            line.remark(format!(
                "whether one of yours runs there, nobody said: {}",
                used.unasked_regions.join("; ")
            )),
        );
    }
    if !used.odd_machines.is_empty() {
        let number = used.odd_machines.len();
        let line =
            SetupLine::new(format!("{number} with our owner tag"), "no launch of ours", Vec::new());
        let which = used.odd_machines.join("; ");
        let remark = format!(
            "{which} would lose what rights it has from here, and no job of yours ends it: end it in the console, or take the tag off it"
        );
        lines.insert(0, SetupLine { blocks: true, ..line.remark(remark) });
    }
    if let Some(first) = used.machines.first() {
        let number = used.machines.len();
        let line = SetupLine::new(counted(number as u64, "machine"), "not terminated", Vec::new());
        let remark = format!(
            "{first} and what else runs would lose its rights: end the jobs first, with `lamp stop`, and what an ended one keeps with `lamp cancel`"
        );
        lines.insert(0, SetupLine { blocks: true, ..line.remark(remark) });
    }
    lines
}

/// A waiting job blocks the removal: its controller would launch a machine without permissions or
/// group.
pub fn jobs_without_an_end(jobs: &[JobId]) -> Option<SetupLine> {
    let first = jobs.first()?;
    let line = SetupLine::new(counted(jobs.len() as u64, "job"), "without an end", Vec::new());
    let all = jobs.iter().take(5).map(JobId::as_str).collect::<Vec<_>>().join(", ");
    let more = if jobs.len() > 5 { format!(" and {} more", jobs.len() - 5) } else { String::new() };
    Some(SetupLine {
        blocks: true,
        ..line.remark(format!(
            "{all}{more} may still be launched: end each of them first: `lamp cancel {first}`"
        ))
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyFound {
    /// The job root is a folder of this workstation.
    pub root_is_folder: bool,
    pub bucket: Found<()>,
    pub profile: Found<ProfileFound>,
    /// The role with the same name.
    pub role: Found<RoleFound>,
    /// Empty if not looked up, or if the user named subnets of another network.
    pub regions: Vec<RegionFound>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Lack {
    pub what: String,
    /// The command to type, unless it is `lamp init aws`.
    pub cure: Option<String>,
    /// Without it there is not even a plan.
    pub blocks_plan: bool,
}

/// All that a launch would miss. A failed look-up does not count as missing: the launch will tell.
pub fn lacking(names: &SetupNames, found: &ReadyFound) -> Vec<Lack> {
    let by_init = |what: String| Lack { what, cure: None, blocks_plan: false };
    let mut lacks = Vec::new();
    if found.root_is_folder {
        lacks.push(by_init(
            "no job root that machines reach (it is a folder of this workstation)".to_owned(),
        ));
    } else if found.bucket == Found::Nothing {
        lacks.push(by_init(format!("no bucket `{}`", names.bucket)));
    }
    let profile = match &found.profile {
        Found::Nothing => Some(format!("no instance profile `{}`", names.role)),
        Found::There(profile) if profile.roles.is_empty() => {
            Some(format!("no role in the instance profile `{}`", names.role))
        }
        Found::There(_) | Found::Unknown(_) => None,
    };
    // `lamp init aws` makes things only under its own names. An id (`sg-...`) comes from AWS, so
    // the user cannot make it.
    let make = if names.group.starts_with("sg-") { "name one that is there" } else { "make it" };
    let cure = |ours: bool, make: &str, key: &str| {
        (!ours).then(|| format!("{make}, or take `{key}` out of [aws] in the configuration"))
    };
    lacks.extend(profile.map(|what| Lack {
        cure: cure(names.role == BOX_ROLE, "make it", "instance_profile"),
        ..by_init(what)
    }));
    lacks.extend(bound_elsewhere(names, found));
    for found @ RegionFound { region, vpc, group, .. } in &found.regions {
        match (vpc, group) {
            (Found::Nothing, _) => lacks.push(Lack {
                what: format!("no default network in {region}"),
                cure: Some(format!("`aws ec2 create-default-vpc --region {region}`, or name `subnets` in [aws] of the configuration")),
                blocks_plan: true,
            }),
            (_, Found::Nothing) => {
                let cure = found.apart().map(|(_, _, fix)| fix).or_else(|| cure(names.group == GROUP, make, "security_group"));
                lacks.push(Lack { what: found.no_group(&names.group), cure, blocks_plan: true });
            }
            _ => {}
        }
    }
    lacks
}

/// The role of an earlier version cannot write the records of a gang, or the requests of its ranks.
/// Then ranks wait in vain and bill, or do not save on a notice. Another policy may allow both in
/// other words.
pub fn lacking_for_gang(names: &SetupNames, found: &ReadyFound) -> Option<Lack> {
    let policy = found.role.there()?.policy.as_ref()?.to_string();
    let lacks_one = ["jobs/*/gang/*", "jobs/*/requests/*"].iter().any(|key| !policy.contains(key));
    (policy.contains("jobs/*/checkpoints/*") && lacks_one).then(|| Lack {
        what: format!("the role `{}` may not write the records of a gang", names.role),
        cure: None,
        blocks_plan: false,
    })
}

/// The machines' role is for another job root: each machine would boot, reach no job, and bill.
fn bound_elsewhere(names: &SetupNames, found: &ReadyFound) -> Option<Lack> {
    let (role, profile) = (found.role.there()?, found.profile.there()?);
    let policy = role.policy.as_ref();
    if found.root_is_folder || !profile.roles.contains(&names.role) || reaches(names, policy) {
        return None;
    }
    let other = other_root(names, policy)?;
    let what = format!(
        "the role `{}` may use {other}, and not {}: no machine would reach its job",
        names.role,
        names.job_root()
    );
    let rebinds = role.owner.as_deref() == Some(&names.owner) && names.role == BOX_ROLE;
    let cure = match rebinds {
        true => {
            let prefix = names.prefix.trim_end_matches('/');
            let prefix =
                if prefix.is_empty() { String::new() } else { format!(" --prefix {prefix}") };
            format!(
                "`lamp init aws --bucket {}{prefix} --instead` binds it to this one, or `--job-root {other}` uses the other",
                names.bucket
            )
        }
        false => format!(
            "`--job-root {other}` uses that one, or take `instance_profile` out of [aws] in the configuration"
        ),
    };
    Some(Lack { what, cure: Some(cure), blocks_plan: false })
}

fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn removal<T>(
    thing: String,
    found: &Found<T>,
    ours: impl Fn(&T) -> bool,
    steps: impl Fn(&T) -> Vec<SetupStep>,
) -> SetupLine {
    match found {
        Found::Unknown(why) => SetupLine::unknown(thing, why),
        Found::Nothing => SetupLine::new(thing, "not there", Vec::new()),
        Found::There(it) if ours(it) => SetupLine::new(thing, "ours", steps(it)),
        Found::There(_) => SetupLine::new(thing, "not ours", Vec::new())
            .remark("it does not carry our owner tag, and stays"),
    }
}

/// Deletes only the job root. If the bucket holds other objects, they and the bucket stay.
fn bucket_removal(
    names: &SetupNames,
    found: &Found<BucketFound>,
    used: &InUse,
    delete_jobs: bool,
) -> SetupLine {
    let ours = |bucket: &BucketFound| bucket.owner.as_deref() == Some(&names.owner);
    let mut line =
        removal(format!("bucket {}", names.bucket), found, ours, |_| vec![SetupStep::DeleteBucket]);
    if line.steps.is_empty() || used.objects + used.other_objects == 0 {
        return line;
    }
    let (holds, others) = (used.holds_anything(), used.other_objects > 0);
    line.found =
        format!("ours, {}, {}", counted(used.jobs, "job"), counted(used.objects, "object"));
    line.found.push_str(if holds || used.objects == 0 { "" } else { " of lamp's own" });
    if others {
        line.found.push_str(&format!(", {} not of this job root", used.other_objects));
    }
    let empties = [(holds, SetupStep::EmptyRoot), (used.objects > 0, SetupStep::ForgetHouse)];
    let empties = empties.into_iter().find_map(|(is, step)| is.then_some(step));
    line.steps = match others {
        false if delete_jobs || !holds => {
            empties.into_iter().chain([SetupStep::DeleteBucket]).collect()
        }
        true if delete_jobs => empties.into_iter().collect(),
        _ => Vec::new(),
    };
    let kept = (holds && !delete_jobs).then(|| match used.jobs {
        0 => format!(
            "it holds {} of no job (schedules)",
            counted(used.objects - used.house_objects, "object")
        ),
        _ => "it holds jobs".to_owned(),
    });
    let kept = kept.map(|kept| {
        format!(
            "{kept}, and stays; `--delete-jobs` deletes {}",
            if others { "them" } else { "it with all of them" }
        )
    });
    let keeps = others.then(|| {
        let places = used.others.join(", ") + if used.others.len() < PLACES { "" } else { ", ..." };
        format!(
            "what is not of {} stays, and keeps it: {} ({places})",
            names.job_root(),
            counted(used.other_objects, "object")
        )
    });
    line.remark =
        [kept, keeps].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
    line
}
