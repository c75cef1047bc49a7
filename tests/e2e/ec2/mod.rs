//! Real machines behind the false EC2: what it says runs is a systemd machine that runs its user
//! data, reads its metadata, reaches the API through a relay, and is really switched off.
//!
//! ```text
//! lamp --HTTP--> false EC2 <--state-- machines --boots, cuts--> systemd-nspawn, in a network of its own:
//!                    ^                                           169.254.169.254:80    its metadata
//!                    └───────────────── relay ────────────────── 169.254.169.253:5000  the API
//! ```
//! It takes root, systemd-nspawn and `ip`; elsewhere these tests are skipped, with a word. Those of
//! `kernels` have a machine with a kernel of its own in the place of systemd-nspawn's.

#[cfg(feature = "aws")]
mod asleep;
#[cfg(feature = "aws")]
mod bounds;
#[cfg(feature = "aws")]
mod cloud_init;
#[cfg(feature = "aws")]
pub(crate) mod desk;
#[cfg(feature = "aws")]
mod gang;
mod hardware;
#[cfg(feature = "aws")]
mod journey;
#[cfg(feature = "aws")]
mod kernels;
#[cfg(feature = "aws")]
mod keys;
pub(crate) mod machines;
pub mod network;
mod proof;
#[cfg(feature = "aws")]
mod proves;
#[cfg(feature = "aws")]
mod restart;
#[cfg(feature = "aws")]
mod stories;
#[cfg(feature = "aws")]
mod story;
#[cfg(feature = "aws")]
mod submit;
#[cfg(feature = "aws")]
mod waiting;
#[cfg(feature = "aws")]
mod wishes;
