//! A version of CUDA: a driver's newest one, or the one a job needs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `12.4`: a driver runs programs of its own version and of older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cuda {
    pub major: u32,
    pub minor: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version of CUDA, write \"12.4\"")]
pub struct CudaError(String);

impl FromStr for Cuda {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let number = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten()
        };
        let (major, minor) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        number(major)
            .zip(number(minor))
            .map(|(major, minor)| Cuda { major, minor })
            .ok_or_else(|| CudaError(text.to_owned()))
    }
}

impl Cuda {
    /// From the number that NVIDIA's driver gives: 12040 means 12.4.
    pub fn of_driver(number: i32) -> Cuda {
        let number = number.unsigned_abs();
        Cuda { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl From<Cuda> for String {
    fn from(version: Cuda) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Cuda {
    type Error = CudaError;

    fn try_from(text: String) -> Result<Self, CudaError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_two_numbers() {
        let version = |text: &str| text.parse::<Cuda>();
        assert!(
            version("12.10").unwrap() > version("12.4").unwrap()
                && version("13").unwrap() > version("12.10").unwrap()
        );
        assert_eq!(version(" 11.8 ").unwrap().to_string(), "11.8");
        for wrong in ["", "12.", ".4", "twelve", "12.4.1", "+12.4", "-1"] {
            assert_eq!(version(wrong), Err(CudaError(wrong.into())));
        }
    }
}
