//! The clock and the store for modules that may not import ports, and the clouds of this build.

use std::sync::Arc;

use crate::adapters::host::system_clock::SystemClock;
#[cfg(feature = "lamp")]
use crate::adapters::store::folder::FileStore;
use crate::market::Cloud;
use crate::ports;

/// The time, for modules that may not import ports.
pub type Clock = Arc<dyn ports::Clock>;

/// A job root, for modules that may not import ports.
pub type Store = Arc<dyn ports::Store>;

pub fn clock() -> Clock {
    Arc::new(SystemClock)
}

/// The same job root for a program that serves others: it answers while a folder hangs.
///
/// # Errors
/// When the operating system refuses a thread.
#[cfg(feature = "lamp")]
pub fn store_of_server(store: Store) -> std::io::Result<Store> {
    match store.url().strip_prefix("file://") {
        Some(root) => Ok(Arc::new(FileStore::with_readers(root.as_ref())?)),
        None => Ok(store),
    }
}

/// Whether this program can drive machines of a cloud. Otherwise it refuses with a message.
pub fn is_built_for(cloud: Cloud) -> bool {
    match cloud {
        Cloud::Local => cfg!(feature = "lamp"),
        Cloud::Aws => cfg!(feature = "aws"),
    }
}
