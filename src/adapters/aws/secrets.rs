//! One secret from Systems Manager or Secrets Manager, by the role of this machine.
//!
//! It works without the AWS SDK, like `cloudwatch_metrics`: one signed call of the JSON protocol.
//! The role needs only `ssm:GetParameter` or `secretsmanager:GetSecretValue` on the secrets that
//! `secrets` in `[aws]` names. Not here: where a value goes.

use std::time::Duration;

use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::ca_bundle::for_reqwest;
use crate::adapters::store::s3::install_crypto;
use crate::job::SecretSource;

/// The timeout of one request. The start of the command waits for it.
const REQUEST_MAX: Duration = Duration::from_secs(15);

/// A refusal is cut to this length for people.
const REFUSAL_CHARS_MAX: usize = 300;

const TARGET: HeaderName = HeaderName::from_static("x-amz-target");

type SecretCause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The secret is missing, or the role may not read it. Asking again gives the same answer.
    #[error("AWS says {code}: {text}")]
    Refused { code: String, text: String },
    #[error("AWS does not answer")]
    Unanswered(#[source] SecretCause),
}

pub struct AwsSecrets {
    client: Client,
    credentials: AwsCredentialProvider,
    region: String,
    /// Replaces the endpoint of the region.
    endpoint: Option<String>,
}

impl AwsSecrets {
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        credentials: AwsCredentialProvider,
        region: &str,
        endpoint: Option<String>,
    ) -> Result<Self, reqwest::Error> {
        install_crypto();
        let client = Client::builder()
            .tls_certs_merge(for_reqwest())
            .timeout(REQUEST_MAX)
            .connect_timeout(REQUEST_MAX)
            .build()?;
        Ok(AwsSecrets { client, credentials, region: region.to_owned(), endpoint })
    }

    /// # Errors
    /// AWS refuses, or does not answer.
    pub async fn value(&self, source: &SecretSource) -> Result<String, SecretError> {
        match source {
            SecretSource::Ssm(name) => {
                let said = self
                    .ask(
                        "ssm",
                        "AmazonSSM.GetParameter",
                        json!({ "Name": name, "WithDecryption": true }),
                    )
                    .await?;
                text_of(&said["Parameter"]["Value"])
            }
            SecretSource::SecretsManager { name, key } => {
                let said = self
                    .ask(
                        "secretsmanager",
                        "secretsmanager.GetSecretValue",
                        json!({ "SecretId": name }),
                    )
                    .await?;
                let whole = text_of(&said["SecretString"])?;
                key.as_ref().map_or(Ok(whole.clone()), |key| field(&whole, key))
            }
            SecretSource::Env(_) | SecretSource::File(_) => {
                Err(refused("NotHere", "it is read on the workstation alone"))
            }
        }
    }

    async fn ask(
        &self,
        service: &str,
        target: &'static str,
        body: Value,
    ) -> Result<Value, SecretError> {
        let answer = self
            .call(service, target, body.to_string().into_bytes())
            .await
            .map_err(SecretError::Unanswered)?;
        let (status, said) = answer;
        let said: Value = serde_json::from_slice(&said).unwrap_or_default();
        if (200..300).contains(&status) {
            return Ok(said);
        }
        let code = said["__type"]
            .as_str()
            .unwrap_or("an error")
            .rsplit('#')
            .next()
            .unwrap_or_default()
            .to_owned();
        let text = said["message"].as_str().or(said["Message"].as_str()).unwrap_or_default();
        let text: String =
            text.chars().filter(|letter| !letter.is_control()).take(REFUSAL_CHARS_MAX).collect();
        // A refusal is final; a busy or broken service is asked again.
        if status < 500 && !code.contains("Throttl") && !code.contains("TooManyRequests") {
            Err(SecretError::Refused { code, text })
        } else {
            Err(SecretError::Unanswered(format!("status {status}, {code}").into()))
        }
    }

    async fn call(
        &self,
        service: &str,
        target: &'static str,
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), SecretCause> {
        let suffix = if self.region.starts_with("cn-") { ".cn" } else { "" };
        let endpoint = self
            .endpoint
            .clone()
            .unwrap_or_else(|| format!("https://{service}.{}.amazonaws.com{suffix}", self.region));
        let url = format!("{}/", endpoint.trim_end_matches('/'));
        let mut request = HttpRequest::new(HttpRequestBody::from(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.parse()?;
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.1"));
        request.headers_mut().insert(TARGET, HeaderValue::from_static(target));
        let credential = self.credentials.get_credential().await?;
        AwsAuthorizer::new(&credential, service, &self.region).try_authorize(&mut request, None)?;
        let response =
            self.client.post(url).headers(request.headers().clone()).body(body).send().await?;
        let status = response.status().as_u16();
        Ok((status, response.bytes().await?.to_vec()))
    }
}

fn refused(code: &str, text: &str) -> SecretError {
    SecretError::Refused { code: code.to_owned(), text: text.to_owned() }
}

fn text_of(value: &Value) -> Result<String, SecretError> {
    match value.as_str() {
        Some(text) if text.contains('\0') => {
            Err(refused("NoText", "its value holds a zero byte, which no variable can"))
        }
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(refused("NoText", "it has no text for a value")),
    }
}

/// The console of Secrets Manager stores pairs as a JSON object.
fn field(whole: &str, key: &str) -> Result<String, SecretError> {
    let parsed: Value = serde_json::from_str(whole)
        .map_err(|_| refused("NoObject", "its value is no JSON object"))?;
    text_of(&parsed[key])
        .map_err(|_| refused("NoField", &format!("its value has no field `{key}` with a text")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_field_is_read_and_a_missing_one_hides_the_value() {
        assert_eq!(field(r#"{"WANDB_API_KEY": "abc"}"#, "WANDB_API_KEY").unwrap(), "abc");
        for (whole, key) in [(r#"{"a": "abc"}"#, "b"), ("abc", "a"), (r#"{"a": 5}"#, "a")] {
            let error = field(whole, key).unwrap_err();
            assert!(
                matches!(error, SecretError::Refused { .. }) && !error.to_string().contains("abc"),
                "{error}"
            );
        }
    }
}
