//! The only place that picks adapters for ports.
//!
//! Not here: a decision about a job.

pub mod agent;
mod handles;
mod orphaned_run;
mod rank;
#[cfg(feature = "lamp")]
pub mod setup;
#[cfg(feature = "lamp")]
pub mod simulator;
#[cfg(feature = "aws")]
pub mod sweeper;
#[cfg(feature = "lamp")]
mod workstation;

/// A channel to the user.
#[cfg(feature = "lamp")]
pub use crate::adapters::notify::Channel as NotifyChannel;

#[cfg(feature = "lamp")]
pub use crate::adapters::prediction::{
    instance_input::read_instances,
    loopback_http::{HttpAnswer, LoopbackError, LoopbackServer, free_port},
    model_folder::{FolderFile, ModelFolderError, model_files},
    scratch_folder::{ScratchFolder, forget_old_folders},
    server_process::{ServerProcess, ServerProgram, end_in_words},
};

// Functions on one workdir, which need no port: what is uploaded, what must not be, what is
// downloaded.
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::capacity_trace::{CapacityTrace, TraceError, read_capacity};
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::price_history::{PriceCourseError, read_prices};
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::series::read_series;
#[cfg(feature = "lamp")]
pub use crate::adapters::recordings::series_error::SeriesError;
#[cfg(feature = "lamp")]
pub use crate::adapters::store::upload_resume::Unsent;
#[cfg(feature = "lamp")]
pub use crate::adapters::tuner::{EngineError, TuneEngine};
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
    KeptFile, TemporaryFile, date as date_file, free_bytes, make_writable,
};

#[cfg(feature = "lamp")]
pub use crate::adapters::workstation::cache_file::{append_cached, read_cached};
#[cfg(feature = "lamp")]
pub use crate::adapters::workstation::program_probe::succeeds;

/// Error types, for modules that may not import ports.
#[cfg(feature = "lamp")]
pub use crate::ports::{CredentialsGap, NoCredentials, causes};

pub use crate::adapters::store::open::{OpenError, open as open_store};

#[cfg(feature = "lamp")]
pub use handles::store_of_server;
pub use handles::{ClockHandle, StoreHandle, clock, is_built_for};
#[cfg(feature = "lamp")]
pub use workstation::{
    AwsSettings, DaemonLock, DrivingLock, FileRead, Workstation, can_be_made, owner_of_folder,
    random_letters, random_token, remove_scratch,
};

/// A service manager, for modules that may not import ports.
pub use crate::ports::Service;

/// A listed object, for modules that may not import ports.
pub use crate::ports::{Created, ObjectMeta, StoreError};
