//! Ends of machines, and what changes on those that live.

use jiff::Timestamp;

use super::aws_session::AwsSession;
use crate::instance::MachineRef;
use crate::ports::CloudError;

/// # Errors
/// As `ec2_errors` reads them.
pub async fn terminate(_session: &AwsSession, _machine: &MachineRef) -> Result<(), CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "terminate yet" })
}

/// # Errors
/// As `ec2_errors` reads them.
pub async fn stop(_session: &AwsSession, _machine: &MachineRef) -> Result<(), CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "stop yet" })
}

/// # Errors
/// As `ec2_errors` reads them.
pub async fn raise_kill_at(_session: &AwsSession, _machine: &MachineRef, _kill_at: Timestamp) -> Result<(), CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "raise the hard cap yet" })
}
