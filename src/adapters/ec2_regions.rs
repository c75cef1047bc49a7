//! The regions that an account has switched on.

use super::aws_session::AwsSession;
use super::ec2_errors::meaning;
use crate::market::Region;
use crate::ports::CloudError;

/// # Errors
/// When EC2 does not answer.
pub async fn regions(session: &AwsSession) -> Result<Vec<Region>, CloudError> {
    let (home, _) = session.home().await;
    let described = session.ec2(&home).await.describe_regions().send().await.map_err(|error| meaning("list the regions", error))?;
    Ok(described.regions().iter().filter_map(|region| region.region_name()).map(Region::new).collect())
}
