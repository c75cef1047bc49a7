//! Results of look-ups in the account: what the cloud has, before the setup changes it.

use serde::Serialize;
use serde_json::Value;

use crate::market::Arch;

/// The result of a look-up. `Unknown` must never be treated as `Nothing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found<T> {
    Nothing,
    There(T),
    Unknown(String),
}

impl<T> Found<T> {
    pub fn there(&self) -> Option<&T> {
        if let Found::There(thing) = self { Some(thing) } else { None }
    }
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
    /// The group for the machines of a gang.
    pub gang_group: Found<GroupFound>,
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

/// The fix for a security group in one network while machines are bought in another.
pub fn one_network(theirs: &str, ours: &str) -> String {
    format!(
        "name a security group of {ours} as `security_group` in [aws], or subnets of {theirs} as `subnets`"
    )
}
