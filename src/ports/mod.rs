//! The traits for everything outside lamp, with their errors. `adapters` and `sim` implement
//! them.
//!
//! An error separates what any implementation can say (not found, denied, try again) from the rest.
//! Not here: a decision, or the name of a particular cloud.

mod chain;
mod clock;
mod cloud;
mod files;
mod launch_lock;
mod logins;
mod machine;
mod metadata;
mod metrics;
mod no_credentials;
mod notifier;
mod rank_host;
mod sensors;
mod service_manager;
mod stacks;
mod store;
mod workload;
mod workstation;

pub use chain::{causes, chain, chain_with_cure};
pub use clock::Clock;
pub use cloud::{Cloud, CloudError};
pub use files::{ClockLead, FileStamp, Files, StageFile, StagedFile, Tree, TreeFile, TreeLink};
pub use launch_lock::{Turn, Turns};
pub use logins::{Nobody, People};
pub use machine::{Power, PowerError, PowerOff};
pub use metadata::{Identity, Metadata, MetadataError};
pub use metrics::{Datum, Meter, MeterError, Stat, Unit};
pub use no_credentials::{CredentialsGap, NoCredentials};
pub use notifier::{Notification, Notifier, NotifierError};
pub use rank_host::{RankAddress, RankHost, RankLaunch, RankProcess};
pub use sensors::{Scope, SensorFeed, Sensors};
pub use service_manager::Service;
pub use stacks::Stacks;
pub use store::{
    Arrival, Created, Lives, OBJECT_BYTES_MAX, ObjectMeta, SignedUrl, Store, StoreError,
};
pub use workload::{Ended, Launch, Signal, Workload, WorkloadError, Workloads};
pub use workstation::{AgentFile, Agents, AgentsError, Glibc};
