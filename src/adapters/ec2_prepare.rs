//! What a launch needs beside the offer: image, network, role, disk.

use super::aws_session::AwsSession;
use crate::job::{LaunchRequest, MachineSpec};
use crate::market::Offer;
use crate::ports::CloudError;

/// # Errors
/// When EC2 does not answer, or has no such image.
pub async fn prepare(_session: &AwsSession, _machine: &MachineSpec, _offer: &Offer) -> Result<LaunchRequest, CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "prepare a launch yet" })
}
