//! The only place that picks adapters for ports.
//!
//! What must never live here: a decision about a job.

pub mod agent;
mod orphaned_run;
#[cfg(feature = "lamp")]
pub mod setup;
#[cfg(feature = "lamp")]
pub mod simulator;
#[cfg(feature = "aws")]
pub mod sweeper;
#[cfg(feature = "lamp")]
mod workstation;

use std::sync::Arc;

use crate::adapters::host::system_clock::SystemClock;
use crate::ports;

// What ships, what must not, and what comes home: plain functions of one workdir, so that they need no port.
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::capacity_trace::{CapacityTrace, TraceError, read_capacity};
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::price_history::{PriceCourseError, read_prices};
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::series::{SeriesError, read_series};
#[cfg(feature = "lamp")]
pub use crate::adapters::store::upload_resume::Unsent;
#[cfg(feature = "lamp")]
pub use crate::adapters::workdir::pack::{
    PackError, PackKind, Survey, changed_since, pack as pack_workdir, show_bytes, survey as survey_workdir, tree_of,
};
#[cfg(feature = "lamp")]
pub use crate::adapters::workdir::secret_scan::{
    Secret, is_allowed as is_secret_allowed, scan as scan_for_secrets, scan_words as scan_words_for_secrets, sounds_secret,
};
pub use crate::adapters::workdir::unpack::{ArchiveError, ArchiveLimits, Unpacked, unpack as unpack_code};
#[cfg(feature = "lamp")]
pub use crate::adapters::workstation::downloaded_file::{Beside, KeptFile, date as date_file, free_bytes, make_writable};

/// An error in words, for whoever may not name a port.
#[cfg(feature = "lamp")]
pub use crate::ports::{NONE_FOUND as NO_CREDENTIALS_FOUND, NoCredentials, causes};

pub use crate::adapters::store::open::{OpenError, open as open_store};

#[cfg(feature = "lamp")]
pub use workstation::{AwsSettings, DaemonLock, DrivingLock, FileRead, Workstation, can_be_made, owner_of_folder, random_letters, remove_scratch};

/// Whether this program can drive machines of a cloud; what it was built without it refuses in words.
pub fn is_built_for(cloud: crate::market::Cloud) -> bool {
    match cloud {
        crate::market::Cloud::Local => cfg!(feature = "lamp"),
        crate::market::Cloud::Aws => cfg!(feature = "aws"),
    }
}

/// The time, for whoever may not name a port.
pub type Clock = Arc<dyn ports::Clock>;

/// A service manager, for whoever may not name a port.
pub use crate::ports::Service;

/// What a listing says of an object, for whoever may not name a port.
pub use crate::ports::{ObjectMeta, StoreError};

/// A job root, for whoever may not name a port.
pub type Store = Arc<dyn ports::Store>;

/// The machine's own clock.
pub fn clock() -> Clock {
    Arc::new(SystemClock)
}
