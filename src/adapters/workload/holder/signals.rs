//! Signals to the holder: they only wake its loop.
//!
//! A holder must survive SIGTERM, because it records how the workload ends. Systemd sends SIGTERM
//! to the whole unit, and users send it by name. It uses handlers, because the workload would
//! inherit an ignored signal.

#![expect(
    unsafe_code,
    reason = "installing a signal handler is unsafe by its nature; the handler only writes to a descriptor"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The descriptor of the handler; -1 before there is one.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// Whether a SIGTERM came: systemd sends it to the whole unit at shutdown.
static TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn wake(signal: libc::c_int) {
    if signal == libc::SIGTERM {
        TOLD.store(true, Ordering::Relaxed);
    }
    let one = 1_u64.to_ne_bytes();
    // SAFETY: a signal handler may call `write`, and the buffer is valid until it returns. The
    // value of `errno` is restored for the interrupted code.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(WAKE.load(Ordering::Relaxed), one.as_ptr().cast(), one.len());
        *errno = before;
    }
}

/// A descriptor that becomes readable after a signal. It stays open until the process ends.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Handles the end of children, and all signals that users and service managers send to end a
    /// program.
    pub fn install() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        WAKE.store(descriptor.as_raw_fd(), Ordering::Relaxed);
        for signal in [
            libc::SIGCHLD,
            libc::SIGTERM,
            libc::SIGINT,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ] {
            // SAFETY: the handler has the right type and only calls functions that are allowed in
            // one.
            let before = unsafe { libc::signal(signal, wake as *const () as libc::sighandler_t) };
            if before == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Signals(descriptor))
    }

    /// Whether this process, and so most likely the whole unit, was told to end since the last
    /// call.
    pub fn take_told() -> bool {
        TOLD.swap(false, Ordering::Relaxed)
    }

    /// Clears the signals so far; call it before looking for their causes.
    pub fn clear(&self) {
        // An error means that no signal came.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
