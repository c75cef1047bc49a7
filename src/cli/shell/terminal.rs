//! The terminal as the face of an act: questions, notes, warnings and hints.

use std::pin::Pin;

use super::confirm::confirm;
use super::job_root;
use crate::app::session::{Face, Session, SessionLine, Told};
use crate::cli::output::progress;
use crate::cli::{Context, Fault};
use crate::wire::StoreHandle;

pub struct Terminal<'a> {
    context: &'a Context,
    /// The user has confirmed all questions beforehand.
    yes: bool,
}

impl<'a> Terminal<'a> {
    pub fn new(context: &'a Context, yes: bool) -> Self {
        Terminal { context, yes }
    }

    /// # Errors
    /// Fails when the path of the state folder is unknown.
    pub fn session(&'a self, store: &'a StoreHandle) -> Result<Session<'a>, Fault> {
        Ok(Session {
            store,
            workstation: job_root::workstation_of(self.context)?,
            clock: &self.context.clock,
            is_misread: self.context.config.is_misread,
            face: self,
        })
    }
}

impl Face for Terminal<'_> {
    fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault> {
        confirm(self.context, what, self.yes, otherwise)
    }

    fn show<'a>(&'a self, told: &'a Told<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        progress::show(self.context, told)
    }

    fn tell(&self, said: SessionLine) {
        match said {
            SessionLine::Note(text) => self.context.printer.note(text),
            SessionLine::Warning(text) => self.context.printer.warn(text),
            SessionLine::Hint(text) => self.context.printer.hint(text),
        }
    }
}
