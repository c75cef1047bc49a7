//! One way to every AWS service: credentials, region and endpoint from the ordinary chain.
//!
//! ```text
//!   settings of the user + environment + ~/.aws ──> aws-config ──> one client for each service and region
//! ```
//! `AWS_ENDPOINT_URL`, `AWS_PROFILE`, SSO and the rest are read by `aws-config` itself, so that an
//! emulator needs nothing of us. Not here: a call of a service.

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
use super::credential_cache::{Identity, Told};
use super::session_cache::Ec2Memory;
use super::settings::AwsSettings;
use crate::adapters::store::open::install_crypto;
use crate::adapters::workstation::process_env;
use crate::market::Region;

/// A connection takes 100 ms on a bad day; five seconds is a dead line.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// DescribeInstances of a thousand machines takes two seconds. Longer than this, and a tick waits
/// for an answer that will not come.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(30);

/// Tries inside one call. More only hides trouble from the loops, which try again anyway and say
/// so.
const TRIES: u32 = 3;

/// Where nothing names a region. AWS's own tools ask; we say so in `lamp doctor`.
const REGION_UNKNOWN: &str = "us-east-1";

/// Clients are made on first use and kept: a client holds its connections.
pub struct AwsSession {
    pub settings: AwsSettings,
    given: Option<(Region, Credentials)>,
    base: OnceCell<(SdkConfig, Option<Identity>)>,
    ec2: Mutex<BTreeMap<Region, aws_sdk_ec2::Client>>,
    pub(crate) memory: Ec2Memory,
}

impl AwsSession {
    /// Reads nothing yet.
    pub fn new(settings: AwsSettings) -> Arc<Self> {
        Self::made(settings, None)
    }

    /// With a region and a key at hand instead of those of the ordinary chain.
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

    /// The settings of the ordinary chain, read once. Credentials are fetched when the first call
    /// needs them.
    pub async fn base(&self) -> &SdkConfig {
        &self.loaded().await.0
    }

    /// Who we are, for what signs without an SDK; `None`: nothing can say.
    pub async fn identity(&self) -> Option<Identity> {
        self.loaded().await.1.clone()
    }

    async fn loaded(&self) -> &(SdkConfig, Option<Identity>) {
        self.base.get_or_init(|| load(&self.settings, self.given.clone())).await
    }

    /// The same for a region.
    pub async fn config(&self, region: &Region) -> SdkConfig {
        let region = aws_config::Region::new(region.as_str().to_owned());
        self.base().await.to_builder().region(region).build()
    }

    /// Where this user is at home: the first region that was named, else that of the chain.
    /// `false`: nothing named one.
    pub async fn home(&self) -> (Region, bool) {
        if let Some(region) = self.settings.regions.first() {
            return (Region::new(region.clone()), true);
        }
        let chained = self.base().await.region().map(|region| Region::new(region.to_string()));
        let known = chained.is_some();
        (chained.unwrap_or_else(|| Region::new(REGION_UNKNOWN)), known)
    }

    /// Where machines may be bought: the job's regions, else the user's, else home.
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
        let mut clients = self
            .ec2
            .lock()
            .expect("nobody panics while holding the clients: they are only looked up");
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

    /// The price list is served from a few regions only, and speaks of all.
    pub async fn pricing(&self) -> aws_sdk_pricing::Client {
        aws_sdk_pricing::Client::new(&self.config(&Region::new("us-east-1")).await)
    }

    /// The whole account; signed for a region all the same, which says whether this is China's or
    /// the government's.
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

    /// The endpoint that stands in for AWS, where one was named.
    pub async fn endpoint(&self) -> Option<String> {
        self.base().await.endpoint_url().map(str::to_owned)
    }
}

/// What goes by HTTPS goes through the proxy that the environment names, as the job root's own
/// client and AWS's tools do it; the SDK looks for none. The metadata service speaks plain HTTP,
/// and stands before any proxy.
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
    // Nobody here speaks SOCKS. It may hold a password, and is not said.
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
    // One for all: each has connections of its own.
    http_client_fn(move |_, _| connector.clone())
}

async fn load(
    settings: &AwsSettings,
    given: Option<(Region, Credentials)>,
) -> (SdkConfig, Option<Identity>) {
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
    let Some(identity) = config.credentials_provider().map(Identity::new) else {
        return (config, None);
    };
    let identity = identity.told(Told::here());
    let identity = if is_given { identity } else { identity.of_profile(settings.profile.clone()) };
    // One for all: what each client keeps for itself, each client asks for, and uses until ten
    // seconds before its end.
    let builder =
        config.to_builder().credentials_provider(SharedCredentialsProvider::new(identity.clone()));
    (builder.identity_cache(IdentityCache::no_cache()).build(), Some(identity))
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
