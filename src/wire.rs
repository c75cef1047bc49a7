//! The only place that picks adapters for ports.
//!
//! Not here: a decision about a job.

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

// Functions on one workdir, which need no port: what is uploaded, what must not be, what is
// downloaded.
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
    PackError, PackKind, Survey, changed_since, pack as pack_workdir, show_bytes,
    survey as survey_workdir, tree_of,
};
#[cfg(feature = "lamp")]
pub use crate::adapters::workdir::secret_scan::{
    Secret, is_allowed as is_secret_allowed, scan as scan_for_secrets,
    scan_words as scan_words_for_secrets, sounds_secret,
};
pub use crate::adapters::workdir::unpack::{
    ArchiveError, ArchiveLimits, Unpacked, unpack as unpack_code,
};
#[cfg(feature = "lamp")]
pub use crate::adapters::workstation::downloaded_file::{
    Beside, KeptFile, date as date_file, free_bytes, make_writable,
};

/// Error types, for modules that may not import ports.
#[cfg(feature = "lamp")]
pub use crate::ports::{NONE_FOUND as NO_CREDENTIALS_FOUND, NoCredentials, causes};

pub use crate::adapters::store::open::{OpenError, open as open_store};

#[cfg(feature = "lamp")]
pub use workstation::{
    AwsSettings, DaemonLock, DrivingLock, FileRead, Workstation, can_be_made, owner_of_folder,
    random_letters, remove_scratch,
};

/// Whether this program can drive machines of a cloud. Otherwise it refuses with a message.
pub fn is_built_for(cloud: crate::market::Cloud) -> bool {
    match cloud {
        crate::market::Cloud::Local => cfg!(feature = "lamp"),
        crate::market::Cloud::Aws => cfg!(feature = "aws"),
    }
}

/// The time, for modules that may not import ports.
pub type Clock = Arc<dyn ports::Clock>;

/// A service manager, for modules that may not import ports.
pub use crate::ports::Service;

/// A listed object, for modules that may not import ports.
pub use crate::ports::{ObjectMeta, StoreError};

/// A job root, for modules that may not import ports.
pub type Store = Arc<dyn ports::Store>;

pub fn clock() -> Clock {
    Arc::new(SystemClock)
}
