//! What EC2 sells now that satisfies a requirement.

use super::aws_session::AwsSession;
use crate::job::MachineSpec;
use crate::market::Supply;
use crate::ports::CloudError;

/// # Errors
/// When EC2 does not answer.
pub async fn supply(_session: &AwsSession, _machine: &MachineSpec) -> Result<Supply, CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "be asked for offers yet" })
}
