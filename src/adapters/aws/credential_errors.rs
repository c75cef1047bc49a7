//! Recognises missing or refused AWS credentials, inside whatever error the SDK wraps them in.
//!
//! An `SdkError` of any service holds a `CredentialsError`, and the chain returns one directly.
//! Both become `NoCredentials`: one sentence, and the command to type.
//!
//! The tried sources go to the log (`-vv`): a user who must sign in needs one line, not ten. Not
//! here: a call.

use std::error::Error as StdError;

use aws_config::imds::client::error::ImdsError;
use aws_credential_types::provider::error::CredentialsError;

use super::profiles::NoSuchProfile;
use crate::ports::{CredentialsGap, NoCredentials};

const FIX: &str = "`aws configure` makes some; AWS_PROFILE names a profile that has some; with single sign-on, `aws sso login`";
const SIGN_IN: &str =
    "`aws sso login` signs in again; with a named profile, `aws sso login --profile NAME`";
const ASK: &str = "`aws sts get-caller-identity` must answer, and says more";

const OVER: &str = "`aws sso login` signs in again (with a named profile, `--profile NAME`); \
                    credentials in the environment are put there anew, and a daemon that has them \
                    from there is started again";
const CLOCK: &str = "`timedatectl set-ntp true` sets it by the network";

/// Texts of the SDK for a sign-in that has expired or never happened. Its error types are private.
const SIGNED_OUT: &[&str] =
    &["SSO token has expired", "cached SSO token", "UnauthorizedException", "sso/cache/"];

/// The SDK's text for a timeout.
const TOO_LATE: &str = "identity resolver timed out";

/// Why a call had no credentials; `None`: it failed for another reason.
pub fn lacking(error: &(dyn StdError + 'static)) -> Option<NoCredentials> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<CredentialsError>() {
            return Some(why(error));
        }
        if error.source().is_none() && error.to_string().contains(TOO_LATE) {
            return Some(too_late());
        }
        next = error.source();
    }
    None
}

/// Whether another try may succeed: the source did not answer in time.
pub fn may_come(nobody: &NoCredentials) -> bool {
    *nobody == too_late()
}

/// The error for a session that has expired.
pub fn over(what: String) -> NoCredentials {
    NoCredentials { gap: CredentialsGap::Unusable, what, fix: OVER.to_owned() }
}

/// The error for a clock that is wrong: AWS refuses every signature then.
pub fn wrong_clock(what: String) -> NoCredentials {
    NoCredentials { gap: CredentialsGap::Unusable, what, fix: CLOCK.to_owned() }
}

pub fn missing() -> NoCredentials {
    NoCredentials {
        gap: CredentialsGap::Nowhere,
        what: "no AWS credentials were found".to_owned(),
        fix: FIX.to_owned(),
    }
}

fn too_late() -> NoCredentials {
    NoCredentials {
        gap: CredentialsGap::Unusable,
        what: "no AWS credentials were found in time".to_owned(),
        fix: FIX.to_owned(),
    }
}

/// The same for an error of the chain itself.
pub fn why(error: &CredentialsError) -> NoCredentials {
    let texts = texts(error);
    tracing::debug!("AWS credentials: {}", texts.join(": "));
    let told =
        |words: &[&str]| texts.iter().any(|text| words.iter().any(|word| text.contains(word)));
    if let Some(unknown) = error.source().and_then(|source| source.downcast_ref::<NoSuchProfile>())
    {
        return unknown.nobody();
    }
    match error {
        _ if told(SIGNED_OUT) => NoCredentials {
            gap: CredentialsGap::Unusable,
            what: "the single sign-on of AWS is over, or was not begun".to_owned(),
            fix: SIGN_IN.to_owned(),
        },
        CredentialsError::ProviderTimedOut(_) => too_late(),
        CredentialsError::CredentialsNotLoaded(_) => missing(),
        // The chain asks the metadata service last: this computer has no EC2 role.
        _ if is_imds(error) => missing(),
        _ => {
            let inner = texts[texts.len().saturating_sub(2)..].join(": ");
            NoCredentials {
                gap: CredentialsGap::Unusable,
                what: format!("the AWS credentials cannot be used: {inner}"),
                fix: ASK.to_owned(),
            }
        }
    }
}

fn texts(error: &CredentialsError) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts.dedup();
    texts
}

fn is_imds(error: &CredentialsError) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        if error.is::<ImdsError>() {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{CloudError, causes};

    #[derive(Debug, thiserror::Error)]
    #[error("dispatch failure")]
    struct OuterError(#[source] CredentialsError);

    #[test]
    fn each_missing_credential_cause_has_its_text() {
        let what = |error: CredentialsError| {
            lacking(&OuterError(error)).expect("it is about credentials").what
        };
        assert_eq!(
            what(CredentialsError::not_loaded("no credentials found in chain. Attempted: ...")),
            "no AWS credentials were found"
        );
        let over = "the single sign-on of AWS is over, or was not begun";
        assert_eq!(
            what(CredentialsError::provider_error(
                "the SSO token has expired and cannot be refreshed"
            )),
            over
        );
        assert_eq!(
            what(CredentialsError::provider_error("failed to load the cached SSO token")),
            over
        );
        let broken = what(CredentialsError::invalid_configuration("profile `x` was not defined"));
        assert!(
            broken.starts_with("the AWS credentials cannot be used: ")
                && broken.ends_with("profile `x` was not defined"),
            "{broken}"
        );
        assert_eq!(lacking(&std::io::Error::other("a dead line")), None);
        let late = lacking(&std::io::Error::other("identity resolver timed out after 5s"))
            .expect("nobody came");
        assert!(may_come(&late) && !may_come(&missing()));
        assert!(missing().are_nowhere() && !late.are_nowhere());
    }

    #[test]
    fn layers_above_it_are_not_told() {
        let error =
            CloudError::Denied { act: "list the regions".into(), cause: Box::new(missing()) };
        assert_eq!(causes(&error), ["no AWS credentials were found"]);
        assert_eq!(NoCredentials::among(&error), Some(&missing()));
    }
}
