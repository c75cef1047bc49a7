//! The profiles in AWS's own files, and an error for a name that is missing there: the SDK would
//! only say that it found no credentials.
//!
//! Not here: their secrets; only names are read.

use std::borrow::Cow;

use aws_config::profile;
use aws_types::os_shim_internal::{Env, Fs};

use crate::market::did_you_mean;
use crate::ports::{CredentialsGap, NoCredentials};

/// At most this many names are listed.
const NAMES_MAX: usize = 8;

/// A profile was named that none of the files has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct NoSuchProfile {
    name: String,
    /// The names of the profiles that exist.
    there: Vec<String>,
}

impl NoSuchProfile {
    /// Returns the error if `named`, or else `AWS_PROFILE`, is missing in the files. `None`: it
    /// exists, no profile is named, or the files cannot be read.
    pub async fn look(named: Option<&str>) -> Option<Self> {
        let named = named.map(|name| Cow::Owned(name.to_owned()));
        let set =
            profile::load(&Fs::real(), &Env::real(), &Default::default(), named).await.ok()?;
        let name = set.selected_profile();
        if name == "default" || set.get_profile(name).is_some() {
            return None;
        }
        let mut there: Vec<String> = set.profiles().map(str::to_owned).collect();
        there.sort_unstable();
        Some(NoSuchProfile { name: name.to_owned(), there })
    }

    fn words(&self) -> String {
        if self.name.is_empty() {
            return "AWS_PROFILE is set and names no profile".to_owned();
        }
        let files = "`~/.aws/config` and `~/.aws/credentials`, or where AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE say";
        format!("the AWS profile `{}` is in none of AWS's files ({files})", self.name)
    }

    /// What to type.
    pub fn nobody(&self) -> NoCredentials {
        let mut names: Vec<String> =
            self.there.iter().take(NAMES_MAX).map(|name| format!("`{name}`")).collect();
        names.extend(
            (self.there.len() > NAMES_MAX)
                .then(|| format!("{} more", self.there.len() - NAMES_MAX)),
        );
        let there = if names.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        if self.name.is_empty() {
            let fix = format!(
                "`unset AWS_PROFILE` asks for the default one, `export AWS_PROFILE=NAME` for another; {there}"
            );
            return NoCredentials { gap: CredentialsGap::Unusable, what: self.to_string(), fix };
        }
        let meant =
            did_you_mean(&self.name, self.there.iter().map(String::as_str)).unwrap_or(there);
        NoCredentials {
            gap: CredentialsGap::Unusable,
            what: self.to_string(),
            fix: format!(
                "{meant}; `export AWS_PROFILE=NAME`, or `profile` in [aws] of the configuration, takes one; `aws configure --profile {}` makes this one",
                self.name
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_was_meant_is_said_or_those_that_there_are() {
        let of = |name: &str, there: &[&str]| {
            let there = there.iter().map(|name| (*name).to_owned()).collect();
            NoSuchProfile { name: name.into(), there }.nobody()
        };
        let slip = of("wrk", &["default", "work"]);
        assert!(
            slip.what.starts_with("the AWS profile `wrk` is in none")
                && slip.fix.starts_with("did you mean work?"),
            "{slip:?}"
        );
        assert!(!slip.are_nowhere(), "a profile exists, so this user has signed in or means to");
        let empty = of("", &["work"]);
        assert!(
            empty.what.starts_with("AWS_PROFILE is set") && empty.fix.ends_with("there are `work`"),
            "{empty:?}"
        );
        assert!(of("x", &[]).fix.starts_with("there is none; "));
        let many: Vec<String> = (0..10).map(|number| format!("account-{number}")).collect();
        let many = of("elsewhere", &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(
            many.fix.starts_with("there are `account-0`, ")
                && many.fix.contains("`account-7`, 2 more; "),
            "{many:?}"
        );
    }
}
