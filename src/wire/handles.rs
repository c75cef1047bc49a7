//! The clock and the store for modules that may not import ports, and the clouds of this build.

use std::sync::Arc;

use crate::adapters::host::system_clock::SystemClock;
#[cfg(feature = "lamp")]
use crate::adapters::store::folder::FileStore;
use crate::market::CloudKind;
use crate::ports;

/// The time, for modules that may not import ports.
pub type ClockHandle = Arc<dyn ports::Clock>;

/// A job root, for modules that may not import ports.
pub type StoreHandle = Arc<dyn ports::Store>;

pub fn clock() -> ClockHandle {
    Arc::new(SystemClock)
}

/// The same job root for a program that serves others: it answers while a folder hangs.
///
/// # Errors
/// When the operating system refuses a thread.
#[cfg(feature = "lamp")]
pub fn store_of_server(store: StoreHandle) -> std::io::Result<StoreHandle> {
    match store.url().strip_prefix("file://") {
        Some(root) => Ok(Arc::new(FileStore::with_readers(root.as_ref())?)),
        None => Ok(store),
    }
}

/// Whether this program can drive machines of a cloud. Otherwise it refuses with a message.
pub fn is_built_for(cloud: CloudKind) -> bool {
    match cloud {
        CloudKind::Local => cfg!(feature = "lamp"),
        CloudKind::Aws => cfg!(feature = "aws"),
    }
}
