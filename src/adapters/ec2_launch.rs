//! One RunInstances with everything in it.

use super::aws_session::AwsSession;
use crate::job::Plan;
use crate::ports::CloudError;

/// # Errors
/// As `ec2_errors` reads them.
pub async fn launch(_session: &AwsSession, _plan: &Plan) -> Result<String, CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "launch yet" })
}
