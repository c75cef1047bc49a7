//! The checks of `lamp doctor`: facts in; a verdict and its fix out.
//!
//! A missing permission is a warning, because the thing may be in order. A missing answer is
//! `Unknown`. This module makes no calls.

use serde::Serialize;

use super::setup_plan::{allows, managed_key, other_root, own_key, reaches};
use crate::account::lookup::{
    BucketFound, Found, ImageFound, ProfileFound, RegionFound, RoleFound,
};
use crate::account::setup::{BOX_POLICY, GROUP, SetupNames, not_ours};
use crate::market::{Arch, Market, QuotaKind, uncounted_families};

/// How a check ended, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Ok,
    /// Not checked: an earlier check failed, or nothing here needs it.
    Skipped,
    Warning,
    /// Checked, but no answer came.
    Unknown,
    Failure,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: String,
    pub level: Level,
    pub said: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Skipped because AWS does not accept the credentials. The line `credentials` says why.
    #[serde(skip)]
    pub lacks_identity: bool,
}

/// The text of a check that is skipped because AWS does not accept the credentials.
pub const NOT_KNOWN: &str = "not asked: AWS does not know us";

impl Check {
    pub fn new(check: impl Into<String>, level: Level, said: impl Into<String>) -> Self {
        let (check, said) = (check.into(), said.into());
        Check { check, level, said, fix: None, lacks_identity: false }
    }

    /// A check that needs the caller's identity, which AWS does not accept.
    pub fn without_identity(check: impl Into<String>) -> Self {
        Check { lacks_identity: true, ..Check::new(check, Level::Skipped, NOT_KNOWN) }
    }

    pub fn ok(check: impl Into<String>, said: impl Into<String>) -> Self {
        Check::new(check, Level::Ok, said)
    }

    pub fn warning(check: impl Into<String>, said: impl Into<String>) -> Self {
        Check::new(check, Level::Warning, said)
    }

    pub fn failure(check: impl Into<String>, said: impl Into<String>) -> Self {
        Check::new(check, Level::Failure, said)
    }

    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Check { fix: Some(fix.into()), ..self }
    }

    /// A check without permission (a warning), or without an answer (unknown).
    pub fn unseen(check: impl Into<String>, why: &str) -> Self {
        let said = format!("cannot look: {why}");
        if why.contains("AccessDenied")
            || why.contains("UnauthorizedOperation")
            || why.contains("not authorized")
        {
            return Check::warning(check, said)
                .fix("`lamp iam controller` prints the policy that allows it");
        }
        Check::new(check, Level::Unknown, said).fix(NO_ANSWER)
    }
}

/// The fix for a missing answer: retry first, then check the network.
const NO_ANSWER: &str = "`lamp doctor` again; where it stays so, the network, and what the lines `credentials` and `endpoint` say";

/// The fix for checks that need the caller's identity from AWS first.
pub const AFTER_CREDENTIALS: &str = "what the line `credentials` says, then `lamp doctor` again";

const INIT: &str = "`lamp init aws`";

/// AWS refuses signatures that are five minutes off. One minute is harmless.
const SKEW_WARNS_SECS: u64 = 60;
const SKEW_FAILS_SECS: u64 = 240;

/// `ahead`: seconds by which our clock is ahead of AWS's.
pub fn judge_clock(ahead: &Result<i64, String>) -> Check {
    let name = "clock";
    let fix = "let the clock be set: `sudo timedatectl set-ntp true`";
    match ahead {
        Err(why) => Check::new(
            name,
            Level::Unknown,
            format!("AWS did not say what time it is: {why}"),
        )
        .fix(format!("{AFTER_CREDENTIALS}; `timedatectl` says whether the clock is set by itself")),
        Ok(secs) => {
            let by = secs.unsigned_abs();
            let said = match secs {
                0 => "the same as AWS's, to the second".to_owned(),
                1.. => format!("{by} s ahead of AWS's"),
                _ => format!("{by} s behind AWS's"),
            };
            match by {
                SKEW_FAILS_SECS.. => Check::failure(
                    name,
                    format!("{said}: AWS refuses what we sign, and says that we are not allowed"),
                )
                .fix(fix),
                SKEW_WARNS_SECS.. => Check::warning(name, said).fix(fix),
                _ => Check::ok(name, said),
            }
        }
    }
}

/// An endpoint that replaces AWS's own.
pub fn judge_stand_in(url: &str) -> Check {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(['/', ':']).next(),
    };
    let host = host.unwrap_or_default();
    let is_own = ["localhost", "::1"].contains(&host)
        || host.ends_with(".localhost")
        || host.starts_with("127.");
    let reach = if is_own {
        ", and no machine reaches it: this address is each computer's own"
    } else {
        ""
    };
    Check::warning("endpoint", format!("{url} stands in for AWS{reach}"))
        .fix("for the real one: unset AWS_ENDPOINT_URL, and `endpoint_url` in [aws]")
}

#[derive(Clone, Debug, PartialEq)]
pub struct GpuQuota {
    pub kind: &'static QuotaKind,
    pub vcpus: Result<f64, String>,
}

/// The smallest GPU machines have four vCPUs; eight is two of those, or one of the next size.
const VCPUS_TO_ASK_FOR: u32 = 8;

pub fn ask_for_more(region: &str, code: &str, vcpus: u32) -> String {
    format!(
        "`aws service-quotas request-service-quota-increase --region {region} --service-code ec2 --quota-code {code} --desired-value {vcpus}`, \
         or https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"
    )
}

/// One check for each market. If both are zero, no GPU machine can be bought at all.
pub fn judge_quotas(region: &str, quotas: &[GpuQuota]) -> Vec<Check> {
    let none_anywhere = quotas.iter().all(|quota| quota.vcpus == Ok(0.0));
    let of =
        |market: Market| {
            let name = format!("gpu quota, {market}, {region}");
            let these: Vec<&GpuQuota> =
                quotas.iter().filter(|quota| quota.kind.market == market).collect();
            if let Some(why) = these.iter().find_map(|quota| quota.vcpus.as_ref().err()) {
                return Check::unseen(name, why);
            }
            let word = |quota: &GpuQuota| quota.kind.gpus.unwrap_or(quota.kind.name);
            let said = these.iter().map(|quota| {
                format!("{} {} vCPUs", word(quota), quota.vcpus.as_ref().copied().unwrap_or(0.0))
            });
            let said = said.collect::<Vec<_>>().join(", ");
            if these.iter().any(|quota| quota.vcpus.as_ref().is_ok_and(|vcpus| *vcpus > 0.0)) {
                let uncounted =
                    uncounted_families(market).into_iter().collect::<Vec<_>>().join(", ");
                let unknown = if uncounted.is_empty() {
                    String::new()
                } else {
                    format!("; no quota that this version knows counts {uncounted}")
                };
                return Check::ok(name, format!("{said}{unknown}"));
            }
            let code = these.first().map_or("", |quota| quota.kind.code);
            let level = if none_anywhere { Level::Failure } else { Level::Warning };
            Check::new(name, level, format!("{said}: no such machine can be had"))
                .fix(ask_for_more(region, code, VCPUS_TO_ASK_FOR))
        };
    vec![of(Market::Spot), of(Market::OnDemand)]
}

pub fn judge_bucket(names: &SetupNames, found: &Found<BucketFound>) -> Check {
    let name = "bucket";
    let (bucket, init) = (&names.bucket, format!("`lamp init aws --bucket {}`", names.bucket));
    let there = match found {
        Found::Unknown(why) if why.starts_with(&not_ours(bucket)) => {
            let cure = "another --bucket for `lamp init aws`, which makes it; or, where it is this account's, what `lamp iam controller` prints";
            return Check::failure(name, format!("{}: no job can be kept there", not_ours(bucket)))
                .fix(cure);
        }
        Found::Unknown(why) => return Check::unseen(name, why),
        Found::Nothing => return Check::failure(name, format!("there is no {bucket}")).fix(init),
        Found::There(there) => there,
    };
    if let Some(key) = &there.own_key {
        return Check::failure(name, own_key(bucket, key)).fix(managed_key(bucket));
    }
    if !there.private {
        return Check::failure(name, format!("{bucket} does not block public access: its jobs could be made public")).fix(format!(
            "`aws s3api put-public-access-block --bucket {bucket} --public-access-block-configuration \
             BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true`"
        ));
    }
    let lacks = [
        (there.versioned, "keeps no versions"),
        (there.encrypted, "is not encrypted by default"),
        (there.tidy, "has no lifecycle"),
    ];
    let lacks: Vec<&str> =
        lacks.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect();
    if !lacks.is_empty() {
        return Check::warning(name, format!("{bucket} {}", lacks.join(", "))).fix(init);
    }
    let elsewhere = !names.regions.contains(&there.region);
    if elsewhere {
        let said = format!(
            "{bucket} is in {}, the machines are in {}: what they upload is paid for",
            there.region,
            names.regions.join(", ")
        );
        return Check::warning(name, said)
            .fix(format!("a bucket there: `lamp init aws --region {}`", names.home()));
    }
    let others: Vec<&str> =
        names.regions.iter().map(String::as_str).filter(|region| *region != there.region).collect();
    let paid = if others.is_empty() {
        String::new()
    } else {
        format!("; what machines in {} upload is paid for by the GB", others.join(", "))
    };
    Check::ok(
        name,
        format!(
            "{bucket} in {}: versioned, private, encrypted, with a lifecycle{paid}",
            there.region
        ),
    )
}

pub fn judge_writing(bucket: &str, wrote: &Result<(), String>) -> Check {
    match wrote {
        Ok(()) => Check::ok("writing", format!("the job root in {bucket} takes an upload")),
        Err(why) => {
            Check::failure("writing", format!("the job root in {bucket} takes no upload: {why}"))
                .fix("`lamp iam controller` prints the policy that allows it")
        }
    }
}

pub fn judge_role(
    names: &SetupNames,
    role: &Found<RoleFound>,
    profile: &Found<ProfileFound>,
) -> Check {
    let name = "role of the machines";
    let it = &names.role;
    match (role, profile) {
        (_, Found::Nothing) => {
            Check::failure(name, format!("there is no instance profile {it}")).fix(INIT)
        }
        (Found::Nothing, _) => Check::failure(name, format!("there is no role {it}")).fix(INIT),
        (Found::Unknown(why), _) | (_, Found::Unknown(why)) => Check::unseen(name, why),
        (_, Found::There(profile)) if !profile.roles.contains(it) => {
            Check::failure(name, format!("the instance profile {it} does not hold the role"))
                .fix(INIT)
        }
        (Found::There(role), _) if allows(names, role.policy.as_ref()) => {
            Check::ok(name, format!("{it} may use {}, and nothing of EC2", names.job_root()))
        }
        // The wanted policy is known only once a bucket is named.
        (Found::There(_), _) if names.bucket.is_empty() => Check::warning(
            name,
            format!("{it} is there; no bucket is named yet that it should reach"),
        )
        .fix(INIT),
        (Found::There(role), _) => {
            let check = match other_root(names, role.policy.as_ref()) {
                Some(other) if !reaches(names, role.policy.as_ref()) => Check::failure(
                    name,
                    format!(
                        "{it} may use {other}, and not {}: no machine would reach its job",
                        names.job_root()
                    ),
                ),
                _ => Check::warning(
                    name,
                    format!("{it} has another policy than `lamp iam box` prints"),
                ),
            };
            // We do not change another user's role.
            match role.owner.as_deref() == Some(&names.owner) {
                true => check.fix(INIT),
                false => check.fix(format!(
                    "`lamp iam box > box.json && aws iam put-role-policy --role-name {it} --policy-name {BOX_POLICY} --policy-document file://box.json`"
                )),
            }
        }
    }
}

pub fn judge_network(names: &SetupNames, found: &RegionFound) -> Check {
    let name = format!("network, {}", found.place());
    match (&found.group, &found.vpc) {
        (Found::Unknown(why), _) | (_, Found::Unknown(why)) => Check::unseen(name, why),
        (Found::There(group), _) if group.rules_in == 0 => Check::ok(name, format!("security group {} ({}), no way in", names.group, group.id)),
        (Found::There(group), _) => {
            Check::warning(name, format!("security group {} lets something in ({} rules); no port is needed", group.id, group.rules_in))
                .fix(format!("`aws ec2 describe-security-groups --region {} --group-ids {}` shows what", found.region, group.id))
        }
        (Found::Nothing, Found::Nothing) if found.by_subnets => {
            Check::warning(name, "none of `aws.subnets` lies there: no machine is bought there").fix("a subnet of that region in `subnets` of [aws]")
        }
        (Found::Nothing, Found::Nothing) => Check::failure(name, "there is no default VPC, and no subnet is named")
            .fix(format!("`aws ec2 create-default-vpc --region {}`, or `subnets` and `security_group` in [aws]", found.region)),
        (Found::Nothing, _) if let Some((theirs, ours, fix)) = found.apart() => {
            Check::failure(name, format!("the security group {} is in {theirs}, and machines are bought in {ours}", names.group)).fix(fix)
        }
        (Found::Nothing, _) if names.group != GROUP => Check::failure(name, format!("the security group {} is not there", names.group))
            .fix("one of that name, or of that id, in the network that machines are bought in; or leave `security_group` in [aws] away"),
        (Found::Nothing, _) => Check::failure(name, format!("there is no security group {}", names.group)).fix(INIT),
    }
}

pub fn judge_spot_role(found: &Found<()>) -> Check {
    let name = "spot role";
    match found {
        Found::There(()) => Check::ok(name, "the service-linked role of spot is there"),
        Found::Unknown(why) => Check::unseen(name, why),
        Found::Nothing => Check::warning(name, "the service-linked role of spot is not there: no spot machine can be had")
            .fix("`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`, or `lamp init aws`"),
    }
}

/// `armed`: whether jobs here have an alarm by default.
pub fn judge_alarm_role(armed: bool, found: &Found<()>) -> Check {
    let name = "alarm role";
    match found {
        _ if !armed => Check::new(name, Level::Skipped, "`alarm = \"off\"` in the configuration"),
        Found::There(()) => Check::ok(name, "the service-linked role of CloudWatch's alarms is there"),
        Found::Unknown(why) => Check::unseen(name, why),
        Found::Nothing => Check::warning(name, "the service-linked role of CloudWatch's alarms is not there: no alarm ends a machine that hangs")
            .fix("`aws iam create-service-linked-role --aws-service-name events.amazonaws.com`, or `lamp init aws`"),
    }
}

/// `configured`: the default image of jobs, unless it is `dlami`; `arch`: their machines'
/// architecture.
pub fn judge_image(
    region: &str,
    configured: Option<&str>,
    arch: Arch,
    found: &ImageFound,
) -> Check {
    let name = format!("image, {region}");
    let words = configured.unwrap_or("dlami");
    match found {
        ImageFound::There { id, arch: of, .. } if *of != arch => {
            Check::warning(name, format!("`{words}` is {id}, for {of}, and jobs get machines of {arch}: none starts from it"))
                .fix(format!("another `image` in [machine] of the configuration, for {arch}; or `instance_types` there that are {of}"))
        }
        ImageFound::There { id, name: called, .. } => Check::ok(name, format!("`{words}` is {id} ({called})")),
        ImageFound::Unknown(why) => Check::unseen(name, why),
        ImageFound::Refused(why) => {
            let why = why.trim_start_matches("`machine.image`: ");
            match configured {
                None => Check::failure(name, format!("`dlami`, the image of jobs that name none, cannot be had: {why}"))
                    .fix("another region in `regions` of [aws]; or `image = \"ssm:...\"` in [machine], of a job file or of the configuration"),
                Some(words) => Check::failure(name, format!("`{words}`, says the configuration, and it cannot be had: {why}")).fix(format!(
                    "another `image` in [machine] of the configuration: `aws ec2 describe-images --region {region} --owners self` shows your own, \
                     and `dlami` is the one of jobs that name none; or another region in `regions` of [aws]"
                )),
            }
        }
    }
}

/// `in_dollars`: the default bid is a price in dollars, which needs no on-demand price.
pub fn judge_price_list(region: &str, in_dollars: bool, found: &Found<()>) -> Check {
    let name = format!("price list, {region}");
    match found {
        Found::There(()) => Check::ok(name, "readable"),
        Found::Unknown(why) => Check::unseen(name, why),
        Found::Nothing => {
            let level = if in_dollars { Level::Warning } else { Level::Failure };
            let said = "AWS's price list names no machine here: none is bought on demand, and spot only with a bid in dollars";
            let fix = "another region in `regions` of [aws]; or `market = \"spot\"` and `max_price = 0.65`, or what it may cost, in [machine]";
            Check::new(name, level, said).fix(fix)
        }
    }
}

/// Sources of the disk price in a region. Without a price nothing is bought there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPrice {
    pub region: String,
    /// The shipped catalogue has one.
    pub shipped: bool,
    /// Whether AWS's price list has one, or why that is unknown.
    pub listed: Result<bool, String>,
}

impl DiskPrice {
    fn is_known(&self) -> bool {
        self.shipped || self.listed == Ok(true)
    }
}

/// A machine needs a known disk price; checks where that exists.
pub fn judge_disk_prices(prices: &[DiskPrice]) -> Check {
    let name = "disk price";
    let names = |known: bool| {
        prices
            .iter()
            .filter(|price| price.is_known() == known)
            .map(|price| price.region.as_str())
            .collect::<Vec<_>>()
    };
    let (known, unknown) = (names(true), names(false));
    let Some(first) = prices.iter().find(|price| !price.is_known()) else {
        return Check::ok(name, format!("known in {}", known.join(", ")));
    };
    let why = match &first.listed {
        Err(why) => format!("AWS's price list cannot be read: {why}"),
        Ok(_) => "AWS's price list does not name it".to_owned(),
    };
    let said = format!(
        "not known in {}, so that no machine is bought there: the shipped catalogue has none, and {why}",
        unknown.join(", ")
    );
    let level = if known.is_empty() { Level::Failure } else { Level::Warning };
    let fix = "`lamp iam controller` prints the policy that allows `pricing:GetProducts`; or another region in `regions` of [aws]";
    Check::new(name, level, said).fix(fix)
}

/// The remark of `lamp init aws` about regions without a disk price in the catalogue.
pub fn unpriced_disks(regions: &[String]) -> String {
    format!(
        "the shipped catalogue does not know what a disk costs in {}: machines are bought there only where AWS's price list can be read \
         (`pricing:GetProducts`, which `lamp iam controller` allows); `lamp doctor` says whether it can",
        regions.join(", ")
    )
}

pub fn worst(checks: &[Check]) -> Level {
    checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_without_a_disk_price_is_told_and_a_listed_one_is_ok() {
        let price = |region: &str, shipped, listed: Result<bool, &str>| DiskPrice {
            region: region.into(),
            shipped,
            listed: listed.map_err(Into::into),
        };
        let (east, far) =
            (price("us-east-1", true, Err("denied")), price("ap-south-2", false, Err("denied")));
        assert_eq!(
            judge_disk_prices(&[east.clone(), price("ap-south-2", false, Ok(true))]),
            Check::ok("disk price", "known in us-east-1, ap-south-2")
        );
        let one = judge_disk_prices(&[east, far.clone()]);
        assert_eq!(one.level, Level::Warning, "{one:?}");
        assert!(
            one.said.starts_with("not known in ap-south-2, so that no machine is bought there")
                && one.said.ends_with("cannot be read: denied")
        );
        let all = judge_disk_prices(&[price("ap-south-2", false, Ok(false))]);
        assert!(
            all.level == Level::Failure && all.said.ends_with("AWS's price list does not name it"),
            "{all:?}"
        );
    }
}
