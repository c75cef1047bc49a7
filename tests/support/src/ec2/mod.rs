//! A false EC2 for tests: moto's server, and before it the behaviour of EC2 that moto lacks.
//!
//! ```text
//! program under test --HTTP--> server -> faults, latency, log -> route -+-> our own answer (instances, spot, prices, ...)
//!                                                                       +-> moto (all the rest: types, subnets, S3, IAM, ...)
//! ```
//!
//! The module `moto` starts the server. One port answers for every service, as moto's does. The
//! credential scope of a request names the service. All tests of one process share a moto. Each
//! [`FalseEc2`] has its own account in it, so bucket names must differ between tests
//! ([`FalseEc2::name`]).
//!
//! Not here: code of the program under test. This is AWS as it is documented. Where the
//! documentation is vague, it does the worst.

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

/// The owner tag that tests use.
pub const OWNER: &str = "me";

/// An image that the false EC2 has.
pub const IMAGE: &str = "ami-0d15ea5e000000022";

pub use calls::{Call, rounds};
pub use fault::Fault;
pub use handle::{FalseEc2, Options};
pub use ledger::Ledger;
pub use query::{base64, encode_base64};
pub use world::{Seen, State};
pub use xml::Node;
