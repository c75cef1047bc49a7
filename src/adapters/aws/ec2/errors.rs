//! One table of EC2's error codes, and what each means for a launch or an end.
//!
//! An `SdkError` becomes an `Ec2Error` with a class and words. By its class, `launch` and
//! `terminate` adopt, wait, repeat or give up with a `CloudError`. An unknown code refuses the
//! launch for good, and the text names the code. An error without a code is no answer, so the state
//! is unknown. Not here: a call.

use std::error::Error as StdError;
use std::fmt;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use jiff::{SignedDuration, Timestamp};

use crate::adapters::aws::credential_errors::{lacking, may_come, over, wrong_clock};
use crate::adapters::host::system_clock::SystemClock;
use crate::job::Refusal;
use crate::ports::{Clock, CloudError};

/// How to react to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// This offer is not available: try the next one.
    Refused(Refusal),
    /// The subnet has no free address: another one of the zone may (`ec2::subnets`).
    SubnetFull,
    /// Repeat the call later.
    Throttled,
    /// It may have happened: repeat the call, and look for a machine by its token.
    Ambiguous,
    /// Our token was used for another request, which is a bug of ours: adopt its machine.
    Mismatch,
    /// The machine of the token has ended, and so has the attempt.
    Spent,
    /// The signature was refused: check the clock first.
    Unproven,
    /// The session has expired, or the clock makes it seem so.
    Expired,
    Denied,
    /// The account lacks the service-linked role for spot machines.
    NoSpotRole,
    /// The account is not ready.
    Account,
    /// EC2 does not know a new instance profile yet.
    ProfileUnknown,
    /// The request can never work.
    Invalid,
    /// EC2 does not show it; it may exist.
    NotFound,
    /// A user has protected the machine against this.
    Protected,
    /// This machine can only be terminated.
    CannotStop,
    /// Its state has changed meanwhile: look again.
    StateChanged,
    /// The dry run would have worked.
    WouldWork,
    Unknown,
}

/// A final star stands for any rest; a whole code has precedence.
const TABLE: &[(&[&str], Class)] = &[
    (
        &[
            "InsufficientInstanceCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientCapacityOnHost",
            "UnfulfillableCapacity",
            "ReservationCapacityExceeded",
            "InsufficientVolumeCapacity",
            "InsufficientCapacity",
            "InsufficientAddressCapacity",
        ],
        Class::Refused(Refusal::Capacity),
    ),
    (&["InsufficientFreeAddressesInSubnet"], Class::SubnetFull),
    (&["SpotMaxPriceTooLow"], Class::Refused(Refusal::Price)),
    (
        &[
            "MaxSpotInstanceCountExceeded",
            "VcpuLimitExceeded",
            "InstanceLimitExceeded",
            "MaxSpotFleetRequestCountExceeded",
        ],
        Class::Refused(Refusal::Quota),
    ),
    (&["VolumeLimitExceeded", "MaxIOPSLimitExceeded"], Class::Refused(Refusal::Disks)),
    (&["Unsupported"], Class::Refused(Refusal::NotSold)),
    (
        &[
            "RequestLimitExceeded",
            "EC2ThrottledException",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "TooManyRequestsException",
        ],
        Class::Throttled,
    ),
    (
        &[
            "InternalError",
            "InternalFailure",
            "InternalServerError",
            "Unavailable",
            "ServiceUnavailable",
            "ServerInternal",
            "RequestTimeout",
        ],
        Class::Ambiguous,
    ),
    (&["IdempotentParameterMismatch"], Class::Mismatch),
    (&["IdempotentInstanceTerminated"], Class::Spent),
    (&["AuthFailure", "SignatureDoesNotMatch", "InvalidSignatureException"], Class::Unproven),
    // EC2 answers with `RequestExpired` if the session has expired.
    (&["ExpiredToken", "ExpiredTokenException", "RequestExpired"], Class::Expired),
    (
        &[
            "UnauthorizedOperation",
            "AccessDenied",
            "AccessDeniedException",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "MissingAuthenticationToken",
        ],
        Class::Denied,
    ),
    (&["AuthFailure.ServiceLinkedRoleCreationNotPermitted"], Class::NoSpotRole),
    // AWS checks a first launch in a region for minutes, at most for four hours. Another region may
    // work meanwhile.
    (&["PendingVerification"], Class::Refused(Refusal::Verification)),
    (&["Blocked", "OptInRequired"], Class::Account),
    (
        &[
            "InvalidParameter*",
            "InvalidAMIID.*",
            "InvalidUserData.Malformed",
            "InvalidSubnetID.*",
            "InvalidGroup.*",
            "InvalidKeyPair.*",
        ],
        Class::Invalid,
    ),
    (&["InvalidInstanceID.NotFound"], Class::NotFound),
    (&["OperationNotPermitted"], Class::Protected),
    (&["UnsupportedOperation"], Class::CannotStop),
    (
        &["IncorrectInstanceState", "IncorrectSpotRequestState", "IncorrectState"],
        Class::StateChanged,
    ),
    (&["DryRunOperation"], Class::WouldWork),
];

/// These words tell a new instance profile from a wrong one: IAM tells EC2 about it within seconds.
const PROFILE_WORDS: &str = "invalid iam instance profile";

/// AWS refuses a signature if the clock is wrong by five minutes. Four are reported too: the next
/// call may fail.
const SKEW: SignedDuration = SignedDuration::from_mins(4);

/// The call, where EC2 has one code for what each call refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusedCall {
    Launch,
    Stop,
    #[default]
    Other,
}

/// An error of a call, with its class.
#[derive(Debug)]
pub struct Ec2Error {
    /// "launch a machine".
    pub act: String,
    pub call: RefusedCall,
    pub class: Class,
    /// `Code: message`; without an answer, what went wrong.
    text: String,
    /// How far this computer's clock is ahead of AWS's, if that is the likely cause.
    ahead: Option<SignedDuration>,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Ec2Error {
    /// The error of a call that did `act`.
    pub fn of<E>(act: &str, error: SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        let response = error.raw_response();
        let status = response.map(|response| response.status().as_u16());
        let date = response.and_then(|response| response.headers().get("date")).and_then(date);
        let Some(code) = error.code() else {
            let (class, cause): (Class, Box<dyn StdError + Send + Sync>) = match lacking(&error) {
                Some(nobody) if may_come(&nobody) => (Class::Ambiguous, Box::new(nobody)),
                // Without credentials nothing was sent, so the result is certain.
                Some(nobody) => (Class::Denied, Box::new(nobody)),
                None => (Class::Ambiguous, Box::new(error)),
            };
            return Ec2Error {
                act: act.to_owned(),
                call: RefusedCall::Other,
                class,
                text: String::new(),
                ahead: None,
                cause: Some(cause),
            };
        };
        Ec2Error::new(act, code, error.message().unwrap_or_default(), status, date)
    }

    pub(crate) fn new(
        act: &str,
        code: &str,
        message: &str,
        status: Option<u16>,
        date: Option<Timestamp>,
    ) -> Self {
        let text = if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
        let class = class(code, message, status);
        let dated = date.filter(|_| matches!(class, Class::Unproven | Class::Expired));
        let ahead = dated
            .map(|date| SystemClock.now().duration_since(date))
            .filter(|ahead| ahead.abs() > SKEW);
        Ec2Error { act: act.to_owned(), call: RefusedCall::Other, class, text, ahead, cause: None }
    }

    #[must_use]
    pub fn on(self, call: RefusedCall) -> Self {
        Ec2Error { call, ..self }
    }

    pub fn is(&self, class: Class) -> bool {
        self.class == class
    }

    /// An error without a code: we could not read the answer.
    pub fn ambiguous(act: &str, why: &str) -> CloudError {
        CloudError::Ambiguous { act: act.to_owned(), cause: why.into() }
    }

    /// The error in words, and what to do about it.
    pub(crate) fn words(&self) -> String {
        let text = &self.text;
        match (self.class, self.ahead) {
            (Class::Unproven | Class::Expired, Some(ahead)) => {
                let way = if ahead.is_negative() { "behind" } else { "ahead of" };
                format!(
                    "the clock of this computer is {} min {way} AWS's, which refuses such signatures; set it ({text})",
                    ahead.abs().as_mins()
                )
            }
            (Class::Expired, None) => format!("the AWS session is over ({text})"),
            // It follows "the role for spot machines is missing for".
            (Class::NoSpotRole, _) => format!(
                "this account, which has bought none yet: \
                 `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`, once, makes `AWSServiceRoleForEC2Spot` ({text})"
            ),
            (Class::Account, _) => {
                format!("AWS holds this account back; its console says what it wants ({text})")
            }
            // RunInstances has the same code for an image or type that cannot stop.
            (Class::CannotStop, _) if self.call == RefusedCall::Launch => {
                format!("EC2 does not do this for such a machine ({text})")
            }
            (Class::CannotStop, _) => {
                format!("this machine cannot be stopped, only terminated ({text})")
            }
            (Class::Protected, _) => format!("it is protected against that ({text})"),
            (Class::Unknown, _) => format!("an error that this version does not know ({text})"),
            _ => text.clone(),
        }
    }
}

impl From<Ec2Error> for CloudError {
    fn from(mut trouble: Ec2Error) -> Self {
        let words = trouble.words();
        let act = trouble.act;
        let cause = trouble.cause.take().unwrap_or_else(|| words.clone().into());
        match trouble.class {
            Class::Refused(refusal) => CloudError::NoCapacity { what: words, refusal },
            Class::SubnetFull => {
                CloudError::NoCapacity { what: words, refusal: Refusal::Addresses }
            }
            Class::NoSpotRole => CloudError::NoCapacity { what: words, refusal: Refusal::SpotRole },
            Class::Spent => CloudError::NoCapacity { what: words, refusal: Refusal::Spent },
            Class::Throttled => CloudError::Throttled,
            // It is uncertain whether it happened: look again first.
            Class::Mismatch => {
                CloudError::Mismatch { machine: None, what: format!("cannot {act}: {words}") }
            }
            Class::Ambiguous | Class::NotFound | Class::StateChanged | Class::ProfileUnknown => {
                CloudError::Ambiguous { act, cause }
            }
            // The user can repair both, and then the same call works: the refusal is not final.
            Class::Unproven | Class::Expired if trouble.ahead.is_some() => {
                CloudError::Denied { act, cause: Box::new(wrong_clock(words)) }
            }
            Class::Expired => CloudError::Denied { act, cause: Box::new(over(words)) },
            Class::Unproven | Class::Denied | Class::Account | Class::Protected => {
                CloudError::Denied { act, cause }
            }
            Class::CannotStop if trouble.call == RefusedCall::Stop => {
                CloudError::Unstoppable { what: format!("cannot {act}: {words}") }
            }
            Class::Invalid | Class::CannotStop | Class::WouldWork | Class::Unknown => {
                CloudError::Invalid { what: format!("cannot {act}: {words}") }
            }
        }
    }
}

impl fmt::Display for Ec2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.act, self.words())
    }
}

/// The meaning of an error of a call that did `act` ("launch a machine").
pub fn meaning<E>(act: &str, error: SdkError<E, HttpResponse>) -> CloudError
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    Ec2Error::of(act, error).into()
}

fn class(code: &str, message: &str, status: Option<u16>) -> Class {
    let listed = |wanted: &dyn Fn(&str) -> bool| {
        TABLE
            .iter()
            .find(|(codes, _)| codes.iter().any(|known| wanted(known)))
            .map(|(_, class)| *class)
    };
    let whole = listed(&|known| known == code);
    let class = whole.or_else(|| {
        listed(&|known| known.strip_suffix('*').is_some_and(|start| code.starts_with(start)))
    });
    match class {
        Some(Class::Invalid) if message.to_ascii_lowercase().contains(PROFILE_WORDS) => {
            Class::ProfileUnknown
        }
        Some(class) => class,
        // EC2 failed; it did not refuse the request.
        None if status.is_some_and(|status| status >= 500) => Class::Ambiguous,
        None => Class::Unknown,
    }
}

fn date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::chain_with_cure;

    fn trouble(code: &str, message: &str, status: Option<u16>) -> Ec2Error {
        let text = if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
        Ec2Error {
            act: "launch a machine".into(),
            call: RefusedCall::Launch,
            class: class(code, message, status),
            text,
            ahead: None,
            cause: None,
        }
    }

    /// The reaction of the controller, which sees only these.
    fn reaction(code: &str, message: &str, status: Option<u16>) -> String {
        match CloudError::from(trouble(code, message, status)) {
            CloudError::NoCapacity { refusal, .. } => format!("next: {refusal}"),
            CloudError::Throttled => "again".into(),
            CloudError::Ambiguous { .. } => "look".into(),
            CloudError::Mismatch { .. } => "adopt".into(),
            CloudError::Denied { .. } => "denied".into(),
            CloudError::Relaunches { .. } => "ended".into(),
            CloudError::Unstoppable { .. } => "ended, or left".into(),
            CloudError::Invalid { .. } | CloudError::NoImage { .. } => "never".into(),
            CloudError::Unsupported { .. } => "unsupported".into(),
        }
    }

    #[test]
    fn every_row_has_its_reaction() {
        let rows: &[(&[&str], &str)] = &[
            (
                &[
                    "InsufficientInstanceCapacity",
                    "InsufficientHostCapacity",
                    "InsufficientReservedInstanceCapacity",
                    "UnfulfillableCapacity",
                    "ReservationCapacityExceeded",
                    "InsufficientVolumeCapacity",
                    "InsufficientCapacity",
                    "InsufficientAddressCapacity",
                ],
                "next: no capacity",
            ),
            (&["InsufficientFreeAddressesInSubnet"], "next: no free address in the zone"),
            (&["SpotMaxPriceTooLow"], "next: the bid is below the price"),
            (
                &["MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"],
                "next: the quota is used up",
            ),
            (
                &["VolumeLimitExceeded", "MaxIOPSLimitExceeded"],
                "next: the limit of disks is reached",
            ),
            (&["Unsupported"], "next: not sold there"),
            (&["RequestLimitExceeded", "EC2ThrottledException", "Throttling"], "again"),
            (&["InternalError", "Unavailable"], "look"),
            (&["IdempotentParameterMismatch"], "adopt"),
            (&["IdempotentInstanceTerminated"], "next: its machine has ended"),
            (&["AuthFailure", "SignatureDoesNotMatch", "RequestExpired"], "denied"),
            (&["UnauthorizedOperation", "ExpiredToken", "InvalidClientTokenId"], "denied"),
            (
                &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
                "next: the role for spot machines is missing",
            ),
            (
                &[
                    "InvalidParameterValue",
                    "InvalidParameterCombination",
                    "InvalidAMIID.NotFound",
                    "InvalidAMIID.Malformed",
                ],
                "never",
            ),
            (&["InvalidUserData.Malformed"], "never"),
            (&["PendingVerification"], "next: the account is still being verified for the region"),
            (&["Blocked", "OptInRequired"], "denied"),
            (&["InvalidInstanceID.NotFound"], "look"),
            (&["OperationNotPermitted"], "denied"),
            (&["UnsupportedOperation"], "never"),
            (&["IncorrectInstanceState", "IncorrectSpotRequestState"], "look"),
            (&["SomethingNew"], "never"),
        ];
        for (codes, expected) in rows {
            for code in *codes {
                assert_eq!(reaction(code, "", Some(400)), *expected, "{code}");
            }
        }
        // Capacity errors come with 500, and unknown ones may.
        assert_eq!(reaction("InsufficientInstanceCapacity", "", Some(500)), "next: no capacity");
        assert_eq!(reaction("SomethingNew", "", Some(503)), "look");
    }

    #[test]
    fn profile_that_iam_has_just_made_is_waited_for() {
        let said = "Value (lamplighter-box) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
        assert_eq!(class("InvalidParameterValue", said, Some(400)), Class::ProfileUnknown);
        assert_eq!(
            class("InvalidParameterValue", "User data is limited to 16384 bytes", Some(400)),
            Class::Invalid
        );
    }

    #[test]
    fn words_say_what_to_do() {
        let role = trouble(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission",
            Some(403),
        );
        let text = role.to_string();
        assert!(
            text.contains("create-service-linked-role --aws-service-name spot.amazonaws.com")
                && !text.contains("capacity"),
            "{text}"
        );
        let late = Ec2Error {
            ahead: Some(SignedDuration::from_mins(-12)),
            ..trouble("AuthFailure", "not validated", Some(401))
        };
        assert!(
            late.to_string().contains("the clock of this computer is 12 min behind AWS's"),
            "{late}"
        );
        let text = trouble("SomethingNew", "what", Some(400)).to_string();
        assert!(text.contains("does not know (SomethingNew: what)"), "{text}");
    }

    #[test]
    fn expired_session_and_wrong_clock_name_a_cure_and_are_retried() {
        for code in ["ExpiredToken", "ExpiredTokenException", "RequestExpired"] {
            let error = CloudError::from(trouble(
                code,
                "The security token included in the request is expired",
                Some(400),
            ));
            assert!(error.is_unsigned(), "{code}");
            let text = chain_with_cure(&error);
            assert!(
                text.contains(code)
                    && text.contains("the AWS session is over")
                    && text.contains("`aws sso login`"),
                "{text}"
            );
        }
        let late = Ec2Error {
            ahead: Some(SignedDuration::from_mins(-12)),
            ..trouble("RequestExpired", "Request has expired", Some(400))
        };
        let text = chain_with_cure(&CloudError::from(late));
        assert!(
            text.contains("12 min behind AWS's")
                && text.contains("timedatectl")
                && !text.contains("sso login"),
            "{text}"
        );
        for code in
            ["UnauthorizedOperation", "AuthFailure", "InvalidClientTokenId", "OptInRequired"]
        {
            assert!(
                !CloudError::from(trouble(code, "", Some(403))).is_unsigned(),
                "{code}: no other moment mends it"
            );
        }
    }

    #[test]
    fn date_of_an_answer_is_read() {
        assert_eq!(
            date("Sat, 21 Nov 2026 00:00:00 GMT"),
            Some("2026-11-21T00:00:00Z".parse().unwrap())
        );
        assert_eq!(date("yesterday"), None);
    }

    #[test]
    fn no_code_is_in_two_rows() {
        let mut codes: Vec<&str> =
            TABLE.iter().flat_map(|(codes, _)| codes.iter().copied()).collect();
        let rows = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), rows);
    }
}
