//! The key `t` beside the live line of an attached job: it opens the view of `lamp top` for this
//! job.
//!
//! ```text
//!   live line ─ t ─> view of the job ─ q, Esc ─> live line
//! ```
//! The terminal gives single keys meanwhile, and is restored at the end. Ctrl-C and Ctrl-Z act as
//! before.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};

use crate::app::job_act::ActPlace;
use crate::app::overview::machine_watch::CloudAsking;
use crate::cli::shell::job_root;
use crate::cli::{Context, Fault};
use crate::jobdir::JobDir;
use crate::top::{Palette, TopSource, live};

/// Between two looks at the keys. A person notices more than a fifth of a second.
pub const KEYS_EVERY: Duration = Duration::from_millis(150);

/// The words of the live line about the key.
pub const HINT: &str = "t: view";

/// Keys of this terminal, without Enter and without an echo, until it is dropped.
pub struct ViewKey {
    before: Termios,
}

impl ViewKey {
    /// `None`: the keys come from no terminal, or belong to another program of it.
    pub fn listen() -> Option<ViewKey> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        // A program in the background that asks for keys is stopped.
        if tcgetpgrp(&stdin).ok()? != getpgrp() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let key = ViewKey { before };
        key.take().ok()?;
        Some(key)
    }

    fn take(&self) -> rustix::io::Result<()> {
        let mut modes = self.before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)
    }

    /// Whether `t` was pressed since the last call. Other keys mean nothing here.
    pub fn is_pressed(&self) -> bool {
        let mut keys = [0; 64];
        let mut is_pressed = false;
        while has_input() {
            match rustix::io::read(io::stdin(), &mut keys) {
                Ok(read @ 1..) => is_pressed |= keys[..read].contains(&b't'),
                _ => break,
            }
        }
        is_pressed
    }

    /// Shows the job until the person leaves the view.
    ///
    /// # Errors
    /// Fails when the terminal cannot show it.
    pub async fn show(&self, context: &Context, dir: &JobDir) -> Result<(), Fault> {
        let place = ActPlace {
            store: dir.store().clone(),
            workstation: job_root::workstation(context)?,
            clock: context.clock.clone(),
            is_misread: context.config.is_misread,
        };
        let source = TopSource::new(place, CloudAsking::Beside);
        let palette = Palette { is_colored: context.printer.is_colored() };
        // The caller hears the signals, and then drops this.
        let shown = live(source, palette, Some(dir.job().to_string()), std::future::pending());
        let shown = shown.await.map_err(|error| {
            Fault::new(crate::cli::ExitCode::UNREACHABLE, "this terminal cannot show the view")
                .because(&error)
                .meaning("the job goes on")
        });
        // The view has left the terminal as it was before the view.
        let _ = self.take();
        shown
    }
}

impl Drop for ViewKey {
    fn drop(&mut self) {
        // A program in the background must not change the terminal.
        if tcgetpgrp(io::stdin()).ok() == Some(getpgrp()) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        }
    }
}

fn has_input() -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut polled, Some(&now)), Ok(1..)) && polled[0].revents().contains(PollFlags::IN)
}
