//! Descriptors that the runtime watches: a process that dies, a pipe that closes.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::process_tree::ProcessRef;

/// A process to wait for; `None`: it is gone.
pub(crate) fn opened(process: ProcessRef) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    process.open()?.map(watch).transpose()
}

/// Has the runtime wake us when a descriptor has something to say.
#[expect(unsafe_code, reason = "the runtime's only registration that is not deprecated")]
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays the same open descriptor until it is dropped, and the `AsyncFd` owns it from here on.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}
