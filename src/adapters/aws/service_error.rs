//! Errors of AWS services in one line for people, and whether they mean that a thing does not
//! exist.

use std::error::Error as StdError;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use super::credential_errors::lacking;
use crate::account::lookup::Found;

/// Error codes for a thing that does not exist; each service has its own words.
const GONE: &[&str] = &[
    "NoSuchEntity",
    "NoSuchEntityException",
    "NoSuchBucket",
    "NoSuchTagSet",
    "NoSuchPublicAccessBlockConfiguration",
    "ServerSideEncryptionConfigurationNotFoundError",
    "NoSuchLifecycleConfiguration",
    "InvalidGroup.NotFound",
    "NoSuchResourceException",
    "ParameterNotFound",
    "NotFound",
];

/// `AccessDenied: you may not`; if there was no answer, the innermost reason.
pub fn said<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match (error.code(), error.message()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => without_answer(error),
    }
}

fn without_answer<E: StdError + 'static>(error: &SdkError<E, HttpResponse>) -> String {
    if let Some(nobody) = lacking(error) {
        return nobody.to_string();
    }
    let status = error.raw_response().map(|response| response.status());
    if let Some(status) = status.filter(|status| !status.is_success()) {
        return format!("the answer was {}", status.as_u16());
    }
    let mut reasons: Vec<String> = Vec::new();
    let mut next: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(reason) = next {
        reasons.push(reason.to_string());
        next = reason.source();
    }
    // The outer reasons name layers of the library; the last two say what failed and why.
    let kept = reasons.len().saturating_sub(2);
    let inner = reasons.split_off(kept).join(": ");
    if inner.is_empty() { error.to_string() } else { inner }
}

/// Turns an answer into found, missing or unknown.
pub fn found<T, E>(answer: Result<T, SdkError<E, HttpResponse>>) -> Found<T>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match answer {
        Ok(thing) => Found::There(thing),
        Err(error) if is_gone(&error) => Found::Nothing,
        Err(error) => Found::Unknown(said(&error)),
    }
}

pub fn is_gone<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code().is_some_and(|code| GONE.contains(&code))
        || error.raw_response().is_some_and(|response| response.status().as_u16() == 404)
}
