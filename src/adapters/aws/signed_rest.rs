//! A call of an AWS service without an SDK: JSON over HTTP, with the signature code of the store.
//!
//! The dozen calls that create, read and remove a sweeper use it, for three services. Their SDKs
//! would add minutes to every build (docs/decisions.md, 16). It knows the endpoint that covers all
//! services; endpoints of single services are ignored. Not here: the content of a call.

use std::time::Duration;

use aws_credential_types::provider::ProvideCredentials as _;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Method};
use serde_json::Value;

use super::ca_bundle::for_reqwest;
use super::credential_errors::why;
use super::session::AwsSession;
use crate::account::lookup::Found;
use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::store::s3::install_crypto;
use crate::market::Region;
use crate::ports::{Clock as _, chain};

/// The timeout of a small call, which is normally answered in a second.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The slowest line that should work: a program of 40 MB has seven minutes.
const BYTES_A_SECOND_MIN: u64 = 100_000;

/// Tries, with a pause that doubles, after a throttled or failed call: the user waits for the
/// setup.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);

/// One call; built, then sent by [`send`].
#[derive(Clone, Debug)]
pub(crate) struct AwsCall {
    service: &'static str,
    method: Method,
    path: String,
    target: Option<&'static str>,
    body: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("{code}: {message}")]
    Refused { status: u16, code: String, message: String },
    #[error("{0}")]
    Silent(String),
}

impl NoAnswer {
    pub fn is(&self, wanted: &str) -> bool {
        matches!(self, NoAnswer::Refused { code, .. } if code == wanted)
    }

    /// The service says that it does not exist.
    pub fn is_gone(&self) -> bool {
        matches!(self, NoAnswer::Refused { status: 404, .. })
            || self.is("ResourceNotFoundException")
    }

    /// Whether the message contains these words.
    pub fn speaks_of(&self, words: &str) -> bool {
        matches!(self, NoAnswer::Refused { message, .. } if message.contains(words))
    }

    fn may_pass(&self) -> bool {
        match self {
            NoAnswer::Refused { status, code, .. } => {
                *status == 429 || *status >= 500 || code.starts_with("Throttling")
            }
            NoAnswer::Silent(_) => false,
        }
    }
}

impl AwsCall {
    /// A call that is named by its path.
    pub fn rest(
        service: &'static str,
        method: Method,
        path: impl Into<String>,
        body: Value,
    ) -> Self {
        AwsCall { service, method, path: path.into(), target: None, body }
    }

    /// A call that is named by a header.
    pub fn named(service: &'static str, target: &'static str, body: Value) -> Self {
        AwsCall { service, method: Method::POST, path: "/".into(), target: Some(target), body }
    }
}

/// Turns an answer into found, missing or unknown.
pub(crate) fn found(answer: Result<Value, NoAnswer>) -> Found<Value> {
    match answer {
        Ok(answer) => Found::There(answer),
        Err(error) if error.is_gone() => Found::Nothing,
        Err(error) => Found::Unknown(error.to_string()),
    }
}

/// Sends it; an empty answer is `null`.
///
/// # Errors
/// If the service refuses or does not answer.
pub(crate) async fn send(
    session: &AwsSession,
    region: &Region,
    call: &AwsCall,
) -> Result<Value, NoAnswer> {
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match once(session, region, call, ANSWER_MAX).await {
            Err(error) if error.may_pass() => SystemClock.sleep(pause).await,
            answer => return answer,
        }
        pause *= 2;
    }
    once(session, region, call, ANSWER_MAX).await
}

/// Sends it once, with this timeout for the connection and for the answer.
///
/// # Errors
/// The service refuses, or does not answer in time.
pub(crate) async fn once(
    session: &AwsSession,
    region: &Region,
    call: &AwsCall,
    answer_max: Duration,
) -> Result<Value, NoAnswer> {
    install_crypto();
    let silent = |error: &dyn std::error::Error| NoAnswer::Silent(chain(error));
    let provider = session
        .base()
        .await
        .credentials_provider()
        .ok_or_else(|| NoAnswer::Silent("no AWS credentials were found".into()))?;
    let known = provider
        .provide_credentials()
        .await
        .map_err(|error| NoAnswer::Silent(why(&error).to_string()))?;
    let credential = AwsCredential {
        key_id: known.access_key_id().to_owned(),
        secret_key: known.secret_access_key().to_owned(),
        token: known.session_token().map(str::to_owned),
    };
    let suffix = if region.as_str().starts_with("cn-") { ".cn" } else { "" };
    let own = || format!("https://{}.{region}.amazonaws.com{suffix}", call.service);
    let endpoint = session.endpoint().await.unwrap_or_else(own);
    let url = format!("{}{}", endpoint.trim_end_matches('/'), call.path);
    let body = if call.body.is_null() { Vec::new() } else { call.body.to_string().into_bytes() };
    let time = answer_max + Duration::from_secs(body.len() as u64 / BYTES_A_SECOND_MIN);
    let mut request = HttpRequest::new(HttpRequestBody::from(body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() =
        url.parse().map_err(|_| NoAnswer::Silent(format!("`{url}` is no address")))?;
    let kind =
        if call.target.is_some() { "application/x-amz-json-1.1" } else { "application/json" };
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(target) = call.target {
        request
            .headers_mut()
            .insert(HeaderName::from_static("x-amz-target"), HeaderValue::from_static(target));
    }
    AwsAuthorizer::new(&credential, call.service, region.as_str())
        .try_authorize(&mut request, None)
        .map_err(|error| silent(&error))?;
    let client = Client::builder()
        .tls_certs_merge(for_reqwest())
        .timeout(time)
        .connect_timeout(answer_max)
        .build()
        .map_err(|error| silent(&error))?;
    let sent = client
        .request(call.method.clone(), url)
        .headers(request.headers().clone())
        .body(body)
        .send()
        .await;
    let answer = sent.map_err(|error| silent(&error))?;
    let status = answer.status().as_u16();
    let named = answer
        .headers()
        .get("x-amzn-errortype")
        .and_then(|name| name.to_str().ok())
        .map(str::to_owned);
    let text = answer.text().await.map_err(|error| silent(&error))?;
    let said: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if (200..300).contains(&status) { Ok(said) } else { Err(refusal(status, named, &said)) }
}

/// Each of the three services formats a refusal in its own way.
fn refusal(status: u16, named: Option<String>, said: &Value) -> NoAnswer {
    let text =
        |names: [&str; 2]| names.iter().find_map(|name| said[*name].as_str()).map(str::to_owned);
    let code = named
        .or_else(|| text(["__type", "code"]))
        .unwrap_or_else(|| format!("the answer was {status}"));
    // `Name:http://...` in a header, `prefix#Name` in a body.
    let code = code
        .split(':')
        .next()
        .unwrap_or_default()
        .rsplit('#')
        .next()
        .unwrap_or_default()
        .to_owned();
    NoAnswer::Refused { status, code, message: text(["message", "Message"]).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_of_saying_no_is_understood() {
        let lambda = refusal(
            404,
            Some("ResourceNotFoundException:http://internal.amazon.com/".into()),
            &json!({ "Message": "Function not found: x" }),
        );
        assert_eq!(
            (lambda.is_gone(), lambda.to_string().as_str()),
            (true, "ResourceNotFoundException: Function not found: x")
        );
        let logs = refusal(
            400,
            None,
            &json!({ "__type": "com.amazonaws.logs#ResourceNotFoundException", "message": "no" }),
        );
        assert!(logs.is_gone() && !logs.may_pass(), "{logs}");
        let role = refusal(
            400,
            Some("InvalidParameterValueException".into()),
            &json!({ "message": "The role cannot be assumed by Lambda." }),
        );
        assert!(
            role.is("InvalidParameterValueException") && role.speaks_of("cannot be assumed"),
            "{role}"
        );
        assert!(
            refusal(503, None, &Value::Null).may_pass()
                && refusal(429, None, &Value::Null).may_pass()
        );
        assert_eq!(
            found(Err(refusal(
                403,
                Some("AccessDeniedException".into()),
                &json!({ "Message": "no" })
            ))),
            Found::Unknown("AccessDeniedException: no".into())
        );
    }
}
