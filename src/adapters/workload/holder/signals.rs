//! Signals to the holder itself: they wake its loop and do nothing else.
//!
//! A holder must outlive SIGTERM, which systemd sends to the whole unit and people send by name,
//! because it is the one who writes down how the workload ends. Handlers, not "ignore": an ignored
//! signal would stay ignored in the workload.

#![expect(
    unsafe_code,
    reason = "installing a signal handler is unsafe by its nature; the handler only writes to a descriptor"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Where the handler writes; -1 before there is anything.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// Whether a SIGTERM came: systemd sends it to the whole unit when the machine is shut down.
static TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn wake(signal: libc::c_int) {
    if signal == libc::SIGTERM {
        TOLD.store(true, Ordering::Relaxed);
    }
    let one = 1_u64.to_ne_bytes();
    // SAFETY: `write` may be called in a signal handler, and the buffer lives until it returns. The
    // value of `errno` that the interrupted code may be about to read is put back.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(WAKE.load(Ordering::Relaxed), one.as_ptr().cast(), one.len());
        *errno = before;
    }
}

/// A descriptor that becomes readable when a signal came. Kept open for the rest of the process.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Takes over the end of children and everything that people and service managers send to end a
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
            // SAFETY: the handler has the right type and only does what is allowed in one.
            let before = unsafe { libc::signal(signal, wake as *const () as libc::sighandler_t) };
            if before == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Signals(descriptor))
    }

    /// Whether somebody told this process, and so most likely the whole unit, to end since this was
    /// asked last.
    pub fn take_told() -> bool {
        TOLD.swap(false, Ordering::Relaxed)
    }

    /// Forgets the signals that came so far; call before looking at what they were about.
    pub fn clear(&self) {
        // Nothing to read only means that nothing came.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
