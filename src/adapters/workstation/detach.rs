//! A process that outlives us: in a session of its own, with nothing of our caller's left open.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The process will hear none of our terminal's signals, and will hold none of the pipes that our caller's shell left
/// open: whoever waits for their end would wait for ever.
pub fn detach(command: &mut Command) {
    // SAFETY: two system calls; between fork and exec they touch nothing of ours.
    #[expect(unsafe_code, reason = "the session must be new before the program starts")]
    unsafe {
        command.pre_exec(|| {
            // An old kernel cannot, and then nothing is lost but that.
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(rustix::process::setsid().map(drop)?)
        });
    }
}
