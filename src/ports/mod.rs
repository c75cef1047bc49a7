//! What we need from the world, as traits with their errors. `adapters` implement them, and `sim` does too.
//!
//! An error says what any implementation can say (not found, denied, try again) apart from everything else. What must
//! never live here: a decision, or the name of a particular cloud.

mod agents;
mod chain;
mod clock;
mod cloud;
mod files;
mod metadata;
mod meter;
mod no_credentials;
mod notifier;
mod people;
mod power;
mod sensors;
mod service;
mod stacks;
mod store;
mod turns;
mod workload;

pub use agents::{AgentFile, Agents, AgentsError, Glibc};
pub use chain::{causes, chain};
pub use clock::Clock;
pub use cloud::{Cloud, CloudError};
pub use files::{FileStamp, Files, StageFile, StagedFile, Tree, TreeFile, TreeLink};
pub use metadata::{Identity, Metadata, MetadataError};
pub use meter::{Datum, Meter, MeterError, Stat, Unit};
pub use no_credentials::{NONE_FOUND, NoCredentials};
pub use notifier::{Notification, Notifier, NotifierError};
pub use people::{Nobody, People};
pub use power::{Power, PowerError, PowerOff};
pub use sensors::{Scope, SensorFeed, Sensors};
pub use service::Service;
pub use stacks::Stacks;
pub use store::{Arrival, Created, Lives, OBJECT_BYTES_MAX, ObjectMeta, SignedUrl, Store, StoreError};
pub use turns::{Turn, Turns};
pub use workload::{Ended, Launch, Signal, Workload, WorkloadError, Workloads};
