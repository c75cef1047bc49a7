//! The resources of an account that a launch needs, read while the plan is being made.
//!
//! It asks for the bucket, the instance profile and the role. If one is missing, it asks for the
//! networks too, so that the user sees everything at once. Not here: what is missing
//! (`policy::account::setup_plan`).

use std::sync::Arc;

use futures::future::join_all;

use super::{roles, security_group as group};
use crate::account::lookup::{Found, ProfileFound, RegionFound, RoleFound};
use crate::account::setup::BOX_POLICY;
use crate::adapters::aws::service_error::said;
use crate::adapters::aws::session::AwsSession;

/// Whether these exist: the bucket of the job root, the instance profile of the machines, and the
/// role of the same name.
pub async fn look(
    session: &AwsSession,
    bucket: Option<&str>,
    profile: &str,
) -> (Found<()>, Found<ProfileFound>, Found<RoleFound>) {
    let (home, _) = session.home().await;
    let bucket = async {
        let Some(bucket) = bucket else { return Found::Nothing };
        match session.s3(&home).await.head_bucket().bucket(bucket).send().await {
            Ok(_) => Found::There(()),
            // Only this error means that there is none: a bucket of another region or owner exists.
            Err(error)
                if error
                    .raw_response()
                    .is_some_and(|response| response.status().as_u16() == 404) =>
            {
                Found::Nothing
            }
            Err(error) => Found::Unknown(said(&error)),
        }
    };
    let iam = session.iam(&home).await;
    tokio::join!(bucket, roles::profile(&iam, profile), roles::role_with(&iam, profile, BOX_POLICY))
}

/// The networks of each region that machines use, and the security group in them.
pub async fn networks(
    session: &Arc<AwsSession>,
    name: &str,
    regions: &[String],
) -> Vec<RegionFound> {
    join_all(regions.iter().map(|region| group::look(session, name, region))).await.concat()
}
