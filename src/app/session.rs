//! What an act of a person needs: where the jobs are, who asks, and how to speak with the person.

use super::Fault;
use crate::wire::{Clock, Store, Workstation};

pub struct Session<'a> {
    pub store: &'a Store,
    pub workstation: &'a Workstation,
    pub clock: &'a Clock,
    /// The configuration has errors. A driver may launch machines, so none is started with it.
    pub is_misread: bool,
    pub face: &'a dyn Face,
}

/// How an act speaks with the person who asked for it: a terminal, a page, or a program.
pub trait Face {
    /// Asks before work or money is lost. `what`: a sentence without its end. `otherwise`: what is
    /// true when the person declines.
    ///
    /// # Errors
    /// Fails when the person declines, or cannot be asked.
    fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault>;

    fn tell(&self, said: Said);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Note(String),
    Warning(String),
    /// What to type next.
    Hint(String),
}

impl Session<'_> {
    pub fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault> {
        self.face.confirm(what, otherwise)
    }

    pub fn note(&self, text: impl Into<String>) {
        self.face.tell(Said::Note(text.into()));
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.face.tell(Said::Warning(text.into()));
    }

    pub fn hint(&self, text: impl Into<String>) {
        self.face.tell(Said::Hint(text.into()));
    }
}
