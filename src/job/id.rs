//! Names of jobs, attempts and checkpoints.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A job's name in the job directory: the user's name for it and six random letters and digits,
/// `digits-7f3k2q`.
///
/// Lower-case letters, digits and `-`, at most 64: safe as a path segment, object key and tag
/// value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(String);

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct IdError {
    text: String,
    what: &'static str,
}

/// Long enough for a telling name, short enough for a tag, a unit name and a path segment.
const JOB_ID_LEN_MAX: usize = 64;

/// Without vowels and look-alikes: people read ids aloud, and an id must not spell a word.
const LETTERS: &[u8] = b"23456789bcdfghjkmnpqrstvwxz";

impl JobId {
    /// `random`: bytes that the caller draws.
    pub fn from_name(name: &str, random: [u8; 6]) -> Self {
        let slug = JobId::slug(name);
        let suffix: String = random
            .iter()
            .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
            .collect();
        JobId(format!("{slug}-{suffix}"))
    }

    /// The part of an id that comes from the user's name.
    pub fn slug(name: &str) -> String {
        let mut slug: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        slug.truncate(JOB_ID_LEN_MAX - 7);
        let slug = slug.trim_matches('-');
        if slug.is_empty() { "job".to_owned() } else { slug.to_owned() }
    }

    /// The id without its random end.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('-').map_or(&*self.0, |(name, _)| name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let plain = !text.is_empty()
            && text.len() <= JOB_ID_LEN_MAX
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if plain {
            Ok(JobId(text.to_owned()))
        } else {
            Err(IdError { text: text.to_owned(), what: "a job id" })
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! number_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u32);

        impl $name {
            pub const FIRST: $name = $name(1);

            pub const fn new(number: u32) -> Self {
                $name(number)
            }
            pub const fn number(self) -> u32 {
                self.0
            }
            pub const fn next(self) -> Self {
                $name(self.0 + 1)
            }
        }

        /// As in keys: at least four digits, so that listings are in order.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:04}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.parse().map($name).map_err(|_| IdError { text: text.to_owned(), what: $what })
            }
        }
    };
}

number_type!(
    /// The number of an attempt, counted from 1.
    AttemptNo,
    "an attempt number"
);
number_type!(
    /// The number of a checkpoint, counted from 1 over all attempts of a job.
    CheckpointNo,
    "a checkpoint number"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_safe_everywhere_a_name_can_go() {
        for name in ["digits", "Llama FT (v2)", "../../etc", "", "---", &"x".repeat(500), "été"] {
            let id = JobId::from_name(name, [0, 1, 2, 3, 250, 255]);
            assert_eq!(id.as_str().parse(), Ok(id.clone()), "{name}");
        }
        assert_eq!(JobId::from_name("Digits", [0; 6]).as_str(), "digits-222222");
        for wrong in ["", "-x", "a/b", "A", "a b", "..", &"x".repeat(65)] {
            assert!(wrong.parse::<JobId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_sort_as_text() {
        assert_eq!(AttemptNo::FIRST.to_string(), "0001");
        assert_eq!("0012".parse::<AttemptNo>(), Ok(AttemptNo::new(12)));
        assert!("x".parse::<CheckpointNo>().is_err());
    }
}
