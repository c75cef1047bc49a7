//! Access to a bucket through the SDK's credential chain: a profile, single sign-on or a credential
//! process.
//!
//! The store alone reads only keys in the environment and the role of a machine. That is enough for
//! the machine that trains; the workstation needs the chain. Not here: a key
//! (`aws::credential_cache` keeps it).

use std::sync::Arc;

use super::session::AwsSession;
use crate::adapters::store::open::S3Access;

/// The region, the endpoint and the credentials of the bucket. The store asks for credentials when
/// it first needs them.
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
