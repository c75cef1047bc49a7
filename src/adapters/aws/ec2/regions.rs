//! The regions that are on in an account.

use super::errors::meaning;
use crate::adapters::aws::session::AwsSession;
use crate::market::{Region, did_you_mean};
use crate::ports::CloudError;

/// # Errors
/// If EC2 does not answer.
pub async fn regions(session: &AwsSession) -> Result<Vec<Region>, CloudError> {
    let (home, _) = session.home().await;
    let described = session
        .ec2(&home)
        .await
        .describe_regions()
        .send()
        .await
        .map_err(|error| meaning("list the regions", error))?;
    Ok(described
        .regions()
        .iter()
        .filter_map(|region| region.region_name())
        .map(Region::new)
        .collect())
}

/// Why nothing can be bought in a region: it is off in this account, or does not exist. `None`: it
/// is on, or EC2 does not say.
pub async fn why_off(session: &AwsSession, region: &Region) -> Option<String> {
    let told = session
        .ec2(&always_on(region))
        .await
        .describe_regions()
        .all_regions(true)
        .send()
        .await
        .ok()?;
    let known = || {
        told.regions().iter().filter_map(|known| {
            Some((known.region_name()?, known.opt_in_status().unwrap_or_default()))
        })
    };
    match known().find(|(name, _)| *name == region.as_str()) {
        Some((name, "not-opted-in")) => Some(format!(
            "the region {name} is not switched on in this account: `aws account enable-region --region-name {name}` switches it on"
        )),
        Some(_) => None,
        None => {
            let meant = did_you_mean(region.as_str(), known().map(|(name, _)| name))
                .map(|meant| format!("; {meant}"))
                .unwrap_or_default();
            Some(format!("AWS has no region `{region}`{meant}"))
        }
    }
}

/// A region of the same partition that is always on.
fn always_on(region: &Region) -> Region {
    Region::new(match region.as_str() {
        name if name.starts_with("cn-") => "cn-north-1",
        name if name.starts_with("us-gov-") => "us-gov-west-1",
        _ => "us-east-1",
    })
}
