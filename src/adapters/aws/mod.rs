//! AWS without EC2: sessions, credentials, caches, metadata, metrics, and calls that have no SDK
//! here.
//!
//! `ec2` buys and ends instances; `account` sets an account up and looks at it.

#[cfg(feature = "aws")]
pub mod account;
pub(crate) mod ca_bundle;
pub mod cloudwatch_metrics;
#[cfg(feature = "aws")]
pub(crate) mod credential_cache;
#[cfg(feature = "aws")]
pub(crate) mod credential_errors;
#[cfg(feature = "aws")]
pub(crate) mod disk_cache;
#[cfg(feature = "aws")]
pub mod ec2;
pub mod imds;
pub mod imds_documents;
#[cfg(feature = "aws")]
pub(crate) mod profiles;
pub mod secrets;
#[cfg(feature = "aws")]
pub(crate) mod service_error;
#[cfg(feature = "aws")]
pub mod session;
#[cfg(feature = "aws")]
pub(crate) mod session_cache;
#[cfg(feature = "lamp")]
pub mod settings;
#[cfg(feature = "aws")]
pub(crate) mod signed_rest;
