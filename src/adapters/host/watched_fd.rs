//! Descriptors that the runtime watches: process exits, closed pipes.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::process_tree::ProcessRef;

/// A process to wait for; `None`: it has ended.
pub(crate) fn opened(process: ProcessRef) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    process.open()?.map(watch).transpose()
}

/// Wakes us when the descriptor is readable.
#[expect(unsafe_code, reason = "the runtime's only registration that is not deprecated")]
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the `OwnedFd`, which stays open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}
