//! The way to a bucket for those who have a profile, single sign-on or a credential process: the same chain as for EC2.
//!
//! The store reads only the plainest settings by itself, which is right for the machine that trains; the workstation has
//! more ways to be somebody. What must never live here: a key kept longer than the chain keeps it.

use std::sync::Arc;

use async_trait::async_trait;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error};

use super::aws_credentials::why;
use super::aws_session::AwsSession;
use super::objects::S3Access;

/// Where the bucket is and who we are, by the ordinary chain. Credentials are fetched when the store needs them, and again
/// when they have run out: the chain keeps them until then.
pub async fn access(session: &AwsSession) -> S3Access {
    let (region, known) = session.home().await;
    let chain = session.base().await.credentials_provider();
    S3Access {
        region: known.then(|| region.to_string()),
        endpoint: session.endpoint().await,
        credentials: chain.map(|chain| Arc::new(Chain(chain)) as _),
    }
}

#[derive(Debug)]
struct Chain(SharedCredentialsProvider);

#[async_trait]
impl CredentialProvider for Chain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let nobody = |error: CredentialsError| Error::Unauthenticated { path: "credentials".into(), source: why(&error).into() };
        let found = self.0.provide_credentials().await.map_err(nobody)?;
        Ok(Arc::new(AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(str::to_owned),
        }))
    }
}
