//! A false EC2 for tests: moto's server, and before it the behaviour of EC2 that moto lacks.
//!
//! ```text
//! program under test --HTTP--> server -> faults, latency, log -> route -+-> our own answer (instances, spot, prices, ...)
//!                                                                       +-> moto (all the rest: types, subnets, S3, IAM, ...)
//! ```
//!
//! `#[path = "../support/ec2/mod.rs"] mod ec2;`, beside `mod moto;` (tests/support/moto.rs), which
//! starts the server. One port answers for every service, as moto's does; the credential scope of a
//! request says which one is meant. Tests of one process share a moto; each [`FalseEc2`] is an
//! account of its own in it, so bucket names must differ between tests ([`FalseEc2::name`]).
//!
//! Nothing of the program under test may live here: this is the world as AWS documents it, and
//! nastier where it is vague.

#![allow(
    dead_code,
    unused_imports,
    reason = "a helper that several test programs share may be used whole by one and in part by another"
)]
#![allow(clippy::disallowed_methods, reason = "a test's stand-in for the world")]

mod calls;
mod catalogue;
mod cbor;
mod cloud;
mod describe;
mod fault;
mod handle;
pub mod http;
mod images;
mod launch;
mod ledger;
mod power;
mod query;
mod route;
mod spot;
mod world;
mod xml;

pub use calls::{Call, rounds};
pub use fault::Fault;
pub use handle::{FalseEc2, Options};
pub use ledger::Ledger;
pub use query::{base64, encode_base64};
pub use world::{Seen, State};
pub use xml::Node;
