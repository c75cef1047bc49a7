//! A pseudo-terminal for the workload's output: a program that writes to a terminal shows each line
//! when it prints it.
//!
//! The workload's stdout and stderr are the terminal, write-only, and its stdin is `/dev/null`. The
//! holder reads the other end in raw mode: without echo and ^D, and `\n` stays `\n`.
//!
//! It is not a controlling terminal: it sends no signals, and `/dev/tty` cannot be opened. A
//! program that waits for a key gets an error, since the terminal is write-only. Not here: the
//! meaning of the text.

#![expect(
    clippy::disallowed_methods,
    reason = "the variables of the terminal depend on those that the holder has"
)]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    OptionalActions, Winsize, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

use crate::ports::Launch;

/// As wide as logs are read, and high enough for a few progress bars. Programs draw their bars to
/// fit; without a size some draw none.
const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };

/// For a log that is read later: colours are off, and pagers continue without a key. With
/// `TERM=dumb`, rich shows no bar.
const VARIABLES: [(&str, &str); 6] = [
    ("TERM", "xterm"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("AWS_PAGER", "cat"),
];

/// Both ends.
pub struct PseudoTerminal {
    pub reader: File,
    /// The workload's end. The holder closes its copy; otherwise it would not see that the workload
    /// has closed its own.
    pub writer: OwnedFd,
}

impl PseudoTerminal {
    /// # Errors
    /// If the system has no pseudo-terminal left.
    pub fn open() -> io::Result<Self> {
        // Without NOCTTY it would become the holder's controlling terminal, and a hang-up would
        // send a signal to the workload.
        let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&reader)?;
        let write_only = OpenptFlags::from_bits_retain(rustix::fs::OFlags::WRONLY.bits());
        let writer =
            ioctl_tiocgptpeer(&reader, write_only | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        let mut modes = tcgetattr(&writer)?;
        modes.make_raw();
        tcsetattr(&writer, OptionalActions::Now, &modes)?;
        tcsetwinsize(&writer, size())?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(PseudoTerminal { reader: File::from(reader), writer })
    }
}

/// The size of the terminal that shows the copy, if there is one.
fn size() -> Winsize {
    tcgetwinsize(io::stdout())
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .unwrap_or(SIZE)
}

/// The variables of the terminal. If the user's terminal shows the copy, its `TERM` and colours
/// stay. `[env]` overrides all of them.
pub fn variables(launch: &Launch) -> Vec<(&'static str, &'static str)> {
    chosen(
        launch.echo && isatty(io::stdout()),
        std::env::var_os("FORCE_COLOR").is_some() || launch.env.contains_key("FORCE_COLOR"),
    )
}

fn chosen(seen: bool, forced: bool) -> Vec<(&'static str, &'static str)> {
    let is_left = |name: &str| {
        (seen && matches!(name, "TERM" | "NO_COLOR")) || (forced && name == "NO_COLOR")
    };
    VARIABLES.into_iter().filter(|(name, _)| !is_left(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_with_a_terminal_keeps_its_colours() {
        let names = |seen, forced| {
            chosen(seen, forced).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(true, false), ["PAGER", "GIT_PAGER", "SYSTEMD_PAGER", "AWS_PAGER"]);
        assert_eq!(names(false, true)[..2], ["TERM", "PAGER"]);
        assert_eq!(names(false, false).len(), VARIABLES.len());
    }
}
