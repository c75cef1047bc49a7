//! Secrets: found before they are shipped, and read on a machine.

#[cfg(feature = "lamp")]
pub(crate) mod secret_corpus;
pub(crate) mod secret_formats;
pub(crate) mod secrets_read;
