//! The one place where "we are nobody to AWS" is recognised, whatever the SDK wraps it in.
//!
//! ```text
//!   SdkError (EC2, STS, S3, ...) ─┐
//!   the chain, asked directly ────┴─ CredentialsError ──> NoCredentials: one sentence, and what to type
//! ```
//! What was tried goes to the log (`-vv`): ten lines of it help nobody who has not signed in yet.
//! What must never live here: a call.

use std::error::Error as StdError;

use aws_config::imds::client::error::ImdsError;
use aws_credential_types::provider::error::CredentialsError;

use super::profiles::NoSuchProfile;
use crate::ports::{NONE_FOUND, NoCredentials};

const FIX: &str = "`aws configure` makes some; AWS_PROFILE names a profile that has some; with single sign-on, `aws sso login`";
const SIGN_IN: &str =
    "`aws sso login` signs in again; with a named profile, `aws sso login --profile NAME`";
const ASK: &str = "`aws sts get-caller-identity` must answer, and says more";

const OVER: &str = "`aws sso login` signs in again (with a named profile, `--profile NAME`); credentials in the environment are put there \
                    anew, and a daemon that has them from there is started again";
const CLOCK: &str = "`timedatectl set-ntp true` sets it by the network";

/// What the SDK writes of a sign-on that is over, or never was: the kept token has expired or is
/// not there, or the sign-on service takes it no longer. Its types are private.
const SIGNED_OUT: &[&str] =
    &["SSO token has expired", "cached SSO token", "UnauthorizedException", "sso/cache/"];

/// What it writes when no place answered in time.
const TOO_LATE: &str = "identity resolver timed out";

/// Why a call had no credentials; `None`: that was not its trouble.
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

/// Whether another try may find some: who did not answer in time may answer later.
pub fn may_come(nobody: &NoCredentials) -> bool {
    *nobody == too_late()
}

/// AWS says that the session is over.
pub fn over(what: String) -> NoCredentials {
    NoCredentials { what, fix: OVER.to_owned() }
}

/// The clock of this computer spoils every signature.
pub fn wrong_clock(what: String) -> NoCredentials {
    NoCredentials { what, fix: CLOCK.to_owned() }
}

pub fn missing() -> NoCredentials {
    NoCredentials { what: NONE_FOUND.to_owned(), fix: FIX.to_owned() }
}

fn too_late() -> NoCredentials {
    NoCredentials { what: "no AWS credentials were found in time".to_owned(), fix: FIX.to_owned() }
}

/// The same of an error of the chain itself.
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
            what: "the single sign-on of AWS is over, or was not begun".to_owned(),
            fix: SIGN_IN.to_owned(),
        },
        CredentialsError::ProviderTimedOut(_) => too_late(),
        CredentialsError::CredentialsNotLoaded(_) => missing(),
        // The last place that is asked: this is no machine of AWS, or one without a role.
        _ if is_imds(error) => missing(),
        _ => {
            let inner = texts[texts.len().saturating_sub(2)..].join(": ");
            NoCredentials {
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
    struct Outer(#[source] CredentialsError);

    #[test]
    fn each_way_to_be_nobody_has_its_sentence() {
        let what =
            |error: CredentialsError| lacking(&Outer(error)).expect("it is about credentials").what;
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
    fn the_layers_above_it_are_not_told() {
        let error =
            CloudError::Denied { act: "list the regions".into(), cause: Box::new(missing()) };
        assert_eq!(causes(&error), ["no AWS credentials were found"]);
        assert_eq!(NoCredentials::among(&error), Some(&missing()));
    }
}
