//! The place of a machine: cloud, region and zone.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The cloud that sells the machine. `Local` is this workstation, which is free unless a price is
/// set.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CloudKind {
    #[default]
    Local,
    Aws,
}

impl CloudKind {
    pub fn word(self) -> &'static str {
        match self {
            CloudKind::Local => "local",
            CloudKind::Aws => "aws",
        }
    }
}

impl fmt::Display for CloudKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// A region of the cloud, such as `us-east-1`. The local cloud has one, `local`.
    Region
);
name_type!(
    /// An availability zone, such as `us-east-1a`. On the local cloud each workstation is one,
    /// `ws-3f2a9c1b`.
    Zone
);

/// Prefix of a workstation's zone; no zone of a cloud has it.
const WORKSTATION: &str = "ws-";

impl Zone {
    /// The zone of a workstation, from its random id.
    pub fn of_workstation(drawn: &str) -> Zone {
        Zone::new(format!("{WORKSTATION}{drawn}"))
    }

    pub fn is_workstation(name: &str) -> bool {
        name.starts_with(WORKSTATION)
    }
}
