//! The runtime API of AWS Lambda, which a function calls on its own machine.
//!
//! `GET invocation/next` waits, frozen, until there is work. Its answer has an id and a deadline.
//! The function then posts to `invocation/ID/response` or `invocation/ID/error`. `POST init/error`
//! says that the function cannot work at all.
//!
//! The crate for it brings a web framework for three plain calls, so these sixty lines replace it.
//! Not here: what the function does.

use std::fmt::Display;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::json;

use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::store::s3::install_crypto;
use crate::ports::Clock as _;

/// The only version of the API.
const VERSION: &str = "2018-06-01";

/// The timeout of a post, which a process on the same machine takes. A longer wait would not help.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("the runtime API of Lambda does not answer")]
    Silent(#[source] reqwest::Error),
    #[error("the runtime API of Lambda answers with status {0}")]
    Status(u16),
    #[error("the runtime API of Lambda does not say {0}")]
    Untold(&'static str),
}

/// One call of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub id: String,
    /// Lambda ends the function at this time.
    pub deadline: Timestamp,
}

impl Invocation {
    /// The time that is left.
    pub fn left(&self) -> Duration {
        Duration::try_from(self.deadline.duration_since(SystemClock.now())).unwrap_or_default()
    }
}

pub struct LambdaRuntime {
    client: Client,
    base: String,
}

impl LambdaRuntime {
    /// `api`: host and port, in the format of `AWS_LAMBDA_RUNTIME_API`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(api: &str) -> Result<Self, RuntimeError> {
        install_crypto();
        // A connection that was frozen for an hour is useless.
        let client = Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .map_err(RuntimeError::Silent)?;
        Ok(LambdaRuntime { client, base: format!("http://{api}/{VERSION}/runtime") })
    }

    /// Waits for the next call, without a timeout.
    ///
    /// # Errors
    /// If no more calls will come: this process must end, and Lambda starts another one.
    pub async fn next(&self) -> Result<Invocation, RuntimeError> {
        let response = sent(self.client.get(format!("{}/invocation/next", self.base))).await?;
        let header =
            |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let id = header("lambda-runtime-aws-request-id")
            .ok_or(RuntimeError::Untold("which call it is"))?
            .to_owned();
        let deadline = header("lambda-runtime-deadline-ms")
            .and_then(|ms| ms.parse().ok())
            .and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Ok(Invocation {
            id,
            deadline: deadline.ok_or(RuntimeError::Untold("how much time there is"))?,
        })
    }

    /// # Errors
    /// If Lambda does not take it.
    pub async fn answer(
        &self,
        call: &Invocation,
        answer: &serde_json::Value,
    ) -> Result<(), RuntimeError> {
        self.post(&format!("invocation/{}/response", call.id), answer).await
    }

    /// Reports that the call has failed; Lambda counts it, and may try it again.
    ///
    /// # Errors
    /// If Lambda does not take it.
    pub async fn fail(
        &self,
        call: &Invocation,
        kind: &str,
        why: impl Display,
    ) -> Result<(), RuntimeError> {
        self.post(&format!("invocation/{}/error", call.id), &failure(kind, why)).await
    }

    /// Reports that the function cannot serve any call.
    ///
    /// # Errors
    /// If Lambda does not take it.
    pub async fn cannot_begin(&self, kind: &str, why: impl Display) -> Result<(), RuntimeError> {
        self.post("init/error", &failure(kind, why)).await
    }

    async fn post(&self, path: &str, body: &serde_json::Value) -> Result<(), RuntimeError> {
        let request = self.client.post(format!("{}/{path}", self.base)).timeout(ANSWER_MAX);
        let kind = body
            .get("errorType")
            .and_then(serde_json::Value::as_str)
            .map(|kind| format!("Lamplighter.{kind}"));
        let request = kind.into_iter().fold(request, |request, kind| {
            request.header("Lambda-Runtime-Function-Error-Type", kind)
        });
        sent(request.json(body)).await.map(drop)
    }
}

fn failure(kind: &str, why: impl Display) -> serde_json::Value {
    json!({ "errorType": kind, "errorMessage": why.to_string(), "stackTrace": [] })
}

async fn sent(request: RequestBuilder) -> Result<Response, RuntimeError> {
    let response = request.send().await.map_err(RuntimeError::Silent)?;
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(RuntimeError::Status(response.status().as_u16()))
    }
}
