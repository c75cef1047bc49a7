//! One session for every AWS service: credentials, region and endpoint from the SDK's chain.
//!
//! `aws-config` reads the user's settings, the environment and `~/.aws`. The session then makes one
//! client for each service and region. `AWS_ENDPOINT_URL`, `AWS_PROFILE` and SSO need no code here,
//! so an emulator needs none. Not here: a call of a service.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::identity::IdentityCache;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{TlsContext, TrustStore};
use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::client::http::{
    HttpConnectorSettings, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use tokio::sync::OnceCell;

use super::ca_bundle;
use super::credential_cache::{AwsIdentity, EnvironmentKeyEnd};
use super::session_cache::Ec2Memory;
use super::settings::AwsSettings;
use crate::adapters::store::open::{S3Access, install_crypto};
use crate::adapters::workstation::process_env;
use crate::market::Region;

/// A connection takes at most 100 ms; after five seconds the line is dead.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// DescribeInstances of a thousand machines takes two seconds. If this is longer, a round waits for
/// an answer that will not come.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(30);

/// Tries inside one call. More tries would only hide a failure from the loops, which try again and
/// report it.
const TRIES: u32 = 3;

/// The region if nothing names one. AWS's own tools ask; `lamp doctor` reports it.
const REGION_UNKNOWN: &str = "us-east-1";

/// The session. Each client is made on first use and kept, since a client holds its connections.
pub struct AwsSession {
    pub settings: AwsSettings,
    given: Option<(Region, Credentials)>,
    base: OnceCell<(SdkConfig, Option<AwsIdentity>)>,
    ec2: Mutex<BTreeMap<Region, aws_sdk_ec2::Client>>,
    pub(crate) memory: Ec2Memory,
}

impl AwsSession {
    /// Makes a session; it reads the settings at the first call.
    pub fn new(settings: AwsSettings) -> Arc<Self> {
        Self::made(settings, None)
    }

    /// A session with a given region and key, without the chain.
    pub fn with_key(settings: AwsSettings, region: Region, id: &str, secret: &str) -> Arc<Self> {
        Self::made(settings, Some((region, Credentials::new(id, secret, None, None, "given"))))
    }

    fn made(settings: AwsSettings, given: Option<(Region, Credentials)>) -> Arc<Self> {
        Arc::new(AwsSession {
            settings,
            given,
            base: OnceCell::new(),
            ec2: Mutex::default(),
            memory: Ec2Memory::default(),
        })
    }

    /// The settings of the chain, read once. Credentials are fetched when the first call needs
    /// them.
    pub async fn base(&self) -> &SdkConfig {
        &self.loaded().await.0
    }

    /// The credentials, for calls that we sign without an SDK; `None` if the chain has no source.
    pub async fn identity(&self) -> Option<AwsIdentity> {
        self.loaded().await.1.clone()
    }

    async fn loaded(&self) -> &(SdkConfig, Option<AwsIdentity>) {
        self.base.get_or_init(|| load(&self.settings, self.given.clone())).await
    }

    /// The settings for a region.
    pub async fn config(&self, region: &Region) -> SdkConfig {
        let region = aws_config::Region::new(region.as_str().to_owned());
        self.base().await.to_builder().region(region).build()
    }

    /// The home region: the first one that the user named, else the region of the chain. `false`:
    /// none was named.
    pub async fn home(&self) -> (Region, bool) {
        if let Some(region) = self.settings.regions.first() {
            return (Region::new(region.clone()), true);
        }
        let chained = self.base().await.region().map(|region| Region::new(region.to_string()));
        let known = chained.is_some();
        (chained.unwrap_or_else(|| Region::new(REGION_UNKNOWN)), known)
    }

    /// Where machines may be bought: the job's regions, else the user's, else the home region.
    pub async fn regions(&self, asked: &[String]) -> Vec<Region> {
        let named = if asked.is_empty() { &self.settings.regions } else { asked };
        if named.is_empty() {
            vec![self.home().await.0]
        } else {
            named.iter().map(Region::new).collect()
        }
    }

    pub async fn ec2(&self, region: &Region) -> aws_sdk_ec2::Client {
        let config = self.config(region).await;
        let mut clients =
            self.ec2.lock().expect("the lock is held for a lookup alone, which cannot panic");
        clients.entry(region.clone()).or_insert_with(|| aws_sdk_ec2::Client::new(&config)).clone()
    }

    pub async fn cloudwatch(&self, region: &Region) -> aws_sdk_cloudwatch::Client {
        aws_sdk_cloudwatch::Client::new(&self.config(region).await)
    }

    pub async fn ssm(&self, region: &Region) -> aws_sdk_ssm::Client {
        aws_sdk_ssm::Client::new(&self.config(region).await)
    }

    pub async fn quotas(&self, region: &Region) -> aws_sdk_servicequotas::Client {
        aws_sdk_servicequotas::Client::new(&self.config(region).await)
    }

    /// Only a few regions serve the price list, which covers all regions.
    pub async fn pricing(&self) -> aws_sdk_pricing::Client {
        aws_sdk_pricing::Client::new(&self.config(&Region::new("us-east-1")).await)
    }

    /// IAM covers the whole account. The region of the signature selects the partition: standard,
    /// China or government.
    pub async fn iam(&self, home: &Region) -> aws_sdk_iam::Client {
        aws_sdk_iam::Client::new(&self.config(home).await)
    }

    pub async fn sts(&self) -> aws_sdk_sts::Client {
        aws_sdk_sts::Client::new(&self.config(&self.home().await.0).await)
    }

    pub async fn s3(&self, region: &Region) -> aws_sdk_s3::Client {
        // An emulator has no host name for each bucket.
        let config = aws_sdk_s3::config::Builder::from(&self.config(region).await)
            .force_path_style(self.endpoint().await.is_some())
            .build();
        aws_sdk_s3::Client::from_conf(config)
    }

    /// The endpoint that replaces AWS, if one was named.
    pub async fn endpoint(&self) -> Option<String> {
        self.base().await.endpoint_url().map(str::to_owned)
    }
}

/// HTTPS goes through the proxy that the environment names, as in the store's client and AWS's
/// tools; the SDK reads no such variable. The metadata service uses plain HTTP and no proxy.
fn http_client() -> SharedHttpClient {
    let tls = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let known = ca_bundle::certificates()
        .iter()
        .fold(TrustStore::default(), |store, pem| store.with_pem_certificate(pem.as_bytes()));
    let Ok(trusted) = TlsContext::builder().with_trust_store(known).build() else {
        return aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    };
    let direct = || {
        aws_smithy_http_client::Builder::new()
            .tls_provider(tls.clone())
            .tls_context(trusted.clone())
            .build_https()
    };
    let named = |names: &[&str]| {
        names.iter().find_map(|name| process_env::variable(name)?.into_string().ok())
    };
    let Some(address) = named(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]) else {
        return direct();
    };
    let address = if address.contains("://") { address } else { format!("http://{address}") };
    // SOCKS is not supported. The address may hold a password, so the warning leaves it out.
    let Some(Ok(proxy)) = address.starts_with("http").then(|| ProxyConfig::https(address)) else {
        tracing::warn!(
            "HTTPS_PROXY or ALL_PROXY holds no address of an HTTP proxy: AWS is asked without one"
        );
        return direct();
    };
    let proxy = proxy.no_proxy(named(&["NO_PROXY", "no_proxy"]).unwrap_or_default());
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT_WITHIN).build();
    let connector = SharedHttpConnector::new(
        Connector::builder()
            .connector_settings(settings)
            .proxy_config(proxy)
            .tls_provider(tls)
            .tls_context(trusted)
            .build(),
    );
    // One connector for all clients: each connector has its own connections.
    http_client_fn(move |_, _| connector.clone())
}

async fn load(
    settings: &AwsSettings,
    given: Option<(Region, Credentials)>,
) -> (SdkConfig, Option<AwsIdentity>) {
    install_crypto();
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_WITHIN)
        .operation_attempt_timeout(ATTEMPT_WITHIN)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(TRIES));
    let is_given = given.is_some();
    if let Some((region, key)) = given {
        loader = loader
            .region(aws_config::Region::new(region.as_str().to_owned()))
            .credentials_provider(key);
    }
    if let Some(profile) = &settings.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(endpoint) = &settings.endpoint_url {
        loader = loader.endpoint_url(endpoint);
    }
    let config = loader.load().await;
    let Some(identity) = config.credentials_provider().map(AwsIdentity::new) else {
        return (config, None);
    };
    let identity = identity.told(EnvironmentKeyEnd::here());
    let identity = if is_given { identity } else { identity.of_profile(settings.profile.clone()) };
    // One cache for all clients. A client's own cache would ask again for each client, and use a
    // key until ten seconds before its end.
    let builder =
        config.to_builder().credentials_provider(SharedCredentialsProvider::new(identity.clone()));
    (builder.identity_cache(IdentityCache::no_cache()).build(), Some(identity))
}

/// Access to a bucket through the SDK's chain: a profile, single sign-on or a credential process.
/// The store alone reads only keys in the environment and the role of a machine. It asks for
/// credentials when it first needs them.
pub async fn bucket_access(session: &AwsSession) -> S3Access {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The SDK keeps credentials until ten seconds before their end by itself: what is renewed
    /// minutes before never reached it.
    #[tokio::test]
    async fn nothing_is_kept_of_credentials_but_by_us() {
        let session =
            AwsSession::with_key(AwsSettings::default(), Region::new("us-east-1"), "key", "secret");
        for config in
            [session.base().await.clone(), session.config(&Region::new("eu-west-1")).await]
        {
            let cache = format!("{:?}", config.identity_cache());
            assert!(cache.contains("NoCache"), "{cache}");
        }
    }
}
