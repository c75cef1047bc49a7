//! What we need from the world, as traits with their errors. `adapters` implement them, `sim` will too.
//!
//! An error says what any implementation can say (not found, denied, try again) apart from everything else. What must
//! never live here: a decision, or the name of a particular cloud.

mod clock;
mod cloud;
mod metadata;
mod power;
mod sensors;
mod service;
mod store;
mod workload;

pub use clock::Clock;
pub use cloud::{Cloud, CloudError};
pub use metadata::{Identity, Metadata, MetadataError};
pub use power::{Power, PowerError, PowerOff};
pub use sensors::{Scope, SensorFeed, Sensors};
pub use service::Service;
pub use store::{Created, ObjectMeta, Store, StoreError};
pub use workload::{Ended, Launch, Signal, Workload, WorkloadError, Workloads};
