//! The way to a bucket for those who have a profile, single sign-on or a credential process: the
//! same chain as for EC2.
//!
//! The store reads only the plainest settings by itself, which is right for the machine that
//! trains; the workstation has more ways to be somebody. Not here: a key (`aws::credential_cache`
//! keeps it).

use std::sync::Arc;

use super::session::AwsSession;
use crate::adapters::store::open::S3Access;

/// Where the bucket is and who we are, by the ordinary chain. Credentials are asked for when the
/// store needs them first.
pub async fn access(session: &AwsSession) -> S3Access {
    let (region, known) = session.home().await;
    let identity = session.identity().await;
    S3Access {
        region: known.then(|| region.to_string()),
        endpoint: session.endpoint().await,
        credentials: identity.clone().map(|identity| Arc::new(identity) as _),
        ending: identity.map(|identity| Arc::new(identity) as _),
        uploads: None,
    }
}
