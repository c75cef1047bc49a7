//! The user's AWS settings.

/// The settings from `[aws]` of the user configuration. For an empty one the SDK's chain decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsSettings {
    pub profile: Option<String>,
    /// The regions that are searched when the job names none; the first one is the home region.
    pub regions: Vec<String>,
    pub endpoint_url: Option<String>,
    /// The endpoint as the machines reach it: a VPC endpoint, or an emulator behind a relay.
    pub box_endpoint_url: Option<String>,
    /// The instance profile of the machines.
    pub instance_profile: Option<String>,
    /// The security group of the machines, by name or id.
    pub security_group: Option<String>,
    /// Subnets that machines may use; empty: the default subnet of each zone.
    pub subnets: Vec<String>,
    pub key_name: Option<String>,
    /// The folder for cached answers; `None`: no cache.
    pub cache: Option<std::path::PathBuf>,
}
