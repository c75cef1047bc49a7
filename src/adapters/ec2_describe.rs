//! Our machines in a region, all pages, by owner tag.

use super::aws_session::AwsSession;
use crate::instance::InstanceView;
use crate::market::Region;
use crate::ports::CloudError;

/// # Errors
/// When EC2 does not answer: then nothing is known.
pub async fn describe(_session: &AwsSession, _owner: &str, _region: &Region) -> Result<Vec<InstanceView>, CloudError> {
    Err(CloudError::Unsupported { cloud: "aws", act: "be described yet" })
}
