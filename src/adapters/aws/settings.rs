//! What the user says of AWS.

/// What the user says of AWS, from `[aws]` of the user configuration. Empty: the ordinary chain
/// decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsSettings {
    pub profile: Option<String>,
    /// Where machines are looked for when the job names no region; the first is home.
    pub regions: Vec<String>,
    pub endpoint_url: Option<String>,
    /// The endpoint as the machines reach it: a VPC endpoint, or an emulator behind a relay.
    pub box_endpoint_url: Option<String>,
    /// The instance profile of the machines.
    pub instance_profile: Option<String>,
    /// The security group of the machines, by name or id.
    pub security_group: Option<String>,
    /// Subnets that machines may stand in; empty: the default subnet of each zone.
    pub subnets: Vec<String>,
    pub key_name: Option<String>,
    /// Where answers that hold for a while are kept; `None`: nowhere.
    pub cache: Option<std::path::PathBuf>,
}
