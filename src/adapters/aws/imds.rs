//! `ports::Metadata` on EC2: the instance metadata service, version 2.
//!
//! ```text
//!   PUT api/token ──> token ──> GET spot/instance-action                  every poll
//!       ^  401: once more          events/recommendations/rebalance       every fifth
//!       └──────────────────────    events/maintenance/scheduled           every fifth
//! ```
//! 404 means that there is no such notice. Every other failure is an error: a refused token, a
//! server error, a hanging connection, an undocumented body. Not here: what a notice means for the
//! work.

#![expect(
    clippy::disallowed_methods,
    reason = "measures the age of the token and of the slower answers"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::{Client, StatusCode};
use tokio::sync::Mutex;

use super::imds_documents;
use crate::adapters::store::s3::install_crypto;
use crate::instance::{Notice, RANKS_TAG, tags_of_rank};
use crate::ports::{Identity, Metadata, MetadataError};

/// The address on every EC2 machine. `AWS_EC2_METADATA_SERVICE_ENDPOINT` names another one, for
/// tests and IPv6.
pub const ENDPOINT: &str = "http://169.254.169.254";

/// The timeout of one request. It stays inside the host, where a healthy answer takes a
/// millisecond. If this is longer, one hanging request hides a notice in the others. If it is
/// shorter, a machine under full load raises false alarms.
const REQUEST_MAX: Duration = Duration::from_secs(1);

/// The timeout of a poll: a token, a request, and both once more. The next poll begins after it.
const POLL_MAX: Duration = Duration::from_secs(3);

/// The longest that AWS allows. A token is renewed after half of it, or when it is refused.
const TOKEN_SECS: u64 = 21_600;

/// Rebalance recommendations and maintenance come minutes to days ahead; only the interruption
/// notice must be read every second.
const SLOW_EVERY: Duration = Duration::from_secs(5);

/// No document of the service is larger than a few KB.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// A machine has at most 50 tags.
const TAGS_MAX: usize = 64;

type ImdsCause = Box<dyn Error + Send + Sync>;

/// The metadata service of this machine.
pub struct Imds {
    client: Client,
    endpoint: String,
    token: Mutex<Option<Token>>,
    slow: Mutex<Option<SlowNotices>>,
}

#[derive(Clone)]
struct Token {
    text: String,
    taken: Instant,
}

/// The answers that are asked for less often.
#[derive(Clone)]
struct SlowNotices {
    asked: Instant,
    notices: Vec<Notice>,
}

#[derive(Debug, thiserror::Error)]
enum ImdsError {
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("it refuses the token that it just gave")]
    Refused,
    #[error("its answer is longer than {BODY_BYTES_MAX} bytes")]
    TooLong,
    #[error("its answer is not text")]
    NotText,
    #[error("no answer within {} s", POLL_MAX.as_secs())]
    TooSlow,
}

impl Imds {
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(endpoint: Option<&str>) -> Result<Self, reqwest::Error> {
        install_crypto();
        let client = Client::builder()
            // The service is plain HTTP on a link-local address. Proxies, redirects and the
            // certificates of this machine would only do harm.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tls_certs_only([])
            .timeout(REQUEST_MAX)
            .connect_timeout(REQUEST_MAX)
            .pool_max_idle_per_host(2)
            .build()?;
        let endpoint = endpoint.unwrap_or(ENDPOINT).trim_end_matches('/').to_owned();
        Ok(Imds { client, endpoint, token: Mutex::default(), slow: Mutex::default() })
    }

    /// A document; `None`: it does not exist. A refused token is renewed once.
    async fn get(&self, path: &str) -> Result<Option<String>, ImdsCause> {
        let token = self.token(None).await?;
        if let ImdsAnswer::Document(document) = self.ask(path, &token.text).await? {
            return Ok(document);
        }
        let token = self.token(Some(token)).await?;
        match self.ask(path, &token.text).await? {
            ImdsAnswer::Document(document) => Ok(document),
            ImdsAnswer::BadToken => Err(ImdsError::Refused.into()),
        }
    }

    async fn ask(&self, path: &str, token: &str) -> Result<ImdsAnswer, ImdsCause> {
        let url = format!("{}/latest/{path}", self.endpoint);
        let response =
            self.client.get(url).header("X-aws-ec2-metadata-token", token).send().await?;
        match response.status() {
            StatusCode::OK => Ok(ImdsAnswer::Document(Some(text(response).await?))),
            StatusCode::NOT_FOUND => Ok(ImdsAnswer::Document(None)),
            StatusCode::UNAUTHORIZED => Ok(ImdsAnswer::BadToken),
            status => Err(ImdsError::Status(status.as_u16()).into()),
        }
    }

    /// The current token. A new one replaces it if it is missing, old, or the `refused` one.
    async fn token(&self, refused: Option<Token>) -> Result<Token, ImdsCause> {
        let mut held = self.token.lock().await;
        let refused = refused.map(|token| token.text);
        let good = |token: &&Token| {
            token.taken.elapsed().as_secs() < TOKEN_SECS / 2
                && Some(&token.text) != refused.as_ref()
        };
        if let Some(token) = held.as_ref().filter(good) {
            return Ok(token.clone());
        }
        *held = None;
        let url = format!("{}/latest/api/token", self.endpoint);
        let request =
            self.client.put(url).header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECS);
        let response = request.send().await?;
        if response.status() != StatusCode::OK {
            return Err(ImdsError::Status(response.status().as_u16()).into());
        }
        let token = Token { text: text(response).await?, taken: Instant::now() };
        *held = Some(token.clone());
        Ok(token)
    }

    /// Limits the call to the time of a poll, and names the question in an error.
    async fn told<T>(
        &self,
        what: &str,
        asking: impl Future<Output = Result<T, ImdsCause>>,
    ) -> Result<T, MetadataError> {
        let told = tokio::time::timeout(POLL_MAX, asking)
            .await
            .unwrap_or_else(|_| Err(ImdsError::TooSlow.into()));
        told.map_err(|cause| MetadataError::Unavailable { what: what.to_owned(), cause })
    }

    async fn interruption(&self) -> Result<Option<Notice>, ImdsCause> {
        let Some(text) = self.get("meta-data/spot/instance-action").await? else { return Ok(None) };
        Ok(Some(imds_documents::interruption(&text)?))
    }

    /// Rebalance and maintenance, at most every five seconds.
    async fn slow(&self) -> Result<Vec<Notice>, ImdsCause> {
        let mut held = self.slow.lock().await;
        if let Some(slow) = held.as_ref().filter(|slow| slow.asked.elapsed() < SLOW_EVERY) {
            return Ok(slow.notices.clone());
        }
        // A failed answer is asked for again at the next poll.
        *held = None;
        let mut notices: Vec<Notice> = self.rebalance().await?.into_iter().collect();
        notices.extend(self.maintenance().await?);
        *held = Some(SlowNotices { asked: Instant::now(), notices: notices.clone() });
        Ok(notices)
    }

    async fn rebalance(&self) -> Result<Option<Notice>, ImdsCause> {
        let Some(text) = self.get("meta-data/events/recommendations/rebalance").await? else {
            return Ok(None);
        };
        Ok(Some(imds_documents::rebalance(&text)?))
    }

    async fn maintenance(&self) -> Result<Vec<Notice>, ImdsCause> {
        let Some(text) = self.get("meta-data/events/maintenance/scheduled").await? else {
            return Ok(Vec::new());
        };
        Ok(imds_documents::maintenance(&text)?)
    }

    /// The place of this machine in its launch.
    async fn launch_index(&self) -> Result<u32, ImdsCause> {
        let index = self.get("meta-data/ami-launch-index").await?.ok_or(ImdsError::Status(404))?;
        Ok(index.trim().parse()?)
    }

    async fn who(&self) -> Result<Identity, ImdsCause> {
        let document =
            self.get("dynamic/instance-identity/document").await?.ok_or(ImdsError::Status(404))?;
        let (instance, launched) = imds_documents::document(&document)?;
        let mut tags = BTreeMap::new();
        // Missing if the machine was launched without tags in its metadata.
        let keys = self.get("meta-data/tags/instance").await?.unwrap_or_default();
        for key in keys
            .lines()
            .map(|key| key.trim_end_matches('/'))
            .filter(|key| !key.is_empty())
            .take(TAGS_MAX)
        {
            if let Some(value) = self.get(&format!("meta-data/tags/instance/{key}")).await? {
                tags.insert(key.to_owned(), value);
            }
        }
        if tags.contains_key(RANKS_TAG) {
            tags = tags_of_rank(tags, self.launch_index().await?);
        }
        Ok(Identity { instance, tags, launched })
    }
}

#[async_trait]
impl Metadata for Imds {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        self.told("instance identity", self.who()).await
    }

    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        // Together, so that events that hang do not hold up the next poll.
        let (interruption, slow) = tokio::join!(
            self.told("spot/instance-action", self.interruption()),
            self.told("events", self.slow())
        );
        match (interruption?, slow) {
            (interruption, Ok(slow)) => Ok(interruption.into_iter().chain(slow).collect()),
            // The urgent notice is returned even if the others failed.
            (Some(interruption), Err(_)) => Ok(vec![interruption]),
            (None, Err(error)) => Err(error),
        }
    }
}

enum ImdsAnswer {
    Document(Option<String>),
    BadToken,
}

async fn text(mut response: reqwest::Response) -> Result<String, ImdsCause> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_BYTES_MAX {
            return Err(ImdsError::TooLong.into());
        }
    }
    String::from_utf8(body).map_err(|_| ImdsError::NotText.into())
}
