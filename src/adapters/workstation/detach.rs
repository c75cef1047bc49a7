//! Starts a process that outlives this one: own session, no inherited descriptors.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The process gets no signals of our terminal. It closes pipes of our caller's shell: a reader
/// would wait for their end for ever.
pub fn detach(command: &mut Command) {
    // SAFETY: two system calls; they touch no memory of ours between fork and exec.
    #[expect(unsafe_code, reason = "the session must be new before the program starts")]
    unsafe {
        command.pre_exec(|| {
            // An old kernel lacks this call; then only those pipes stay open.
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(rustix::process::setsid().map(drop)?)
        });
    }
}
