//! EC2's error codes and what each class of them means for a launch or an end: one table (FAULTS §4).
//!
//! A code that nobody knows never launches anything: it is `Invalid` for a launch.

use std::error::Error as StdError;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::job::Refusal;
use crate::ports::CloudError;

/// The meaning of an error of a call that did `act` ("launch a machine").
pub fn meaning<E>(act: &str, error: SdkError<E, HttpResponse>) -> CloudError
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    let status = error.raw_response().map(|response| response.status().as_u16());
    let code = error.code().map(str::to_owned);
    let message = error.message().map(str::to_owned);
    match code {
        Some(code) => of_code(act, &code, message.as_deref().unwrap_or_default(), status),
        // No answer, or one that is none.
        None => CloudError::Ambiguous { act: act.to_owned(), cause: Box::new(error) },
    }
}

fn of_code(act: &str, code: &str, message: &str, status: Option<u16>) -> CloudError {
    let text = if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
    let cause = || -> Box<dyn StdError + Send + Sync> { text.clone().into() };
    let refused = |refusal| CloudError::NoCapacity { what: text.clone(), refusal };
    match code {
        "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity"
        | "InsufficientReservedInstanceCapacity"
        | "UnfulfillableCapacity"
        | "ReservationCapacityExceeded"
        | "InsufficientFreeAddressesInSubnet" => refused(Refusal::Capacity),
        "SpotMaxPriceTooLow" => refused(Refusal::Price),
        "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" | "InstanceLimitExceeded" => refused(Refusal::Quota),
        "Unsupported" => refused(Refusal::NotSold),
        "RequestLimitExceeded" | "EC2ThrottledException" | "Throttling" | "ThrottlingException" => CloudError::Throttled,
        "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable" => CloudError::Ambiguous { act: act.to_owned(), cause: cause() },
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AuthFailure"
        | "SignatureDoesNotMatch"
        | "RequestExpired"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidClientTokenId"
        | "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
        | "OptInRequired"
        | "PendingVerification"
        | "Blocked" => CloudError::Denied { act: act.to_owned(), cause: cause() },
        _ if status.is_some_and(|status| status >= 500) => CloudError::Ambiguous { act: act.to_owned(), cause: cause() },
        _ => CloudError::Invalid { what: format!("cannot {act}: {text}") },
    }
}
