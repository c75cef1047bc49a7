//! What an act of a person needs: where the jobs are, who asks, and how to speak with the person.

use std::pin::Pin;
use std::time::Duration;

use super::Fault;
use crate::job::JobId;
use crate::wire::{ClockHandle, StoreHandle, Workstation};

pub struct Session<'a> {
    pub store: &'a StoreHandle,
    pub workstation: &'a Workstation,
    pub clock: &'a ClockHandle,
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

    fn tell(&self, said: SessionLine);

    /// Shows what work does, until this future is dropped. It never ends.
    fn show<'a>(&'a self, _told: &'a Told<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(std::future::pending())
    }
}

/// The work that goes on now, with its bytes once these are known.
pub type Told<'a> = dyn Fn() -> (String, Option<Bytes>) + 'a;

/// Bytes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// There now.
    pub come: u64,
    /// There before this try: these do not count for the rate.
    pub before: u64,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionLine {
    Note(String),
    Warning(String),
    /// What to type next.
    Hint(String),
}

/// After this time a person wonders whether anything happens.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs `work`, and says what is going on after a second.
pub async fn saying<T>(
    clock: &ClockHandle,
    face: &dyn Face,
    what: impl std::fmt::Display,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = clock.sleep(PATIENCE) => face.tell(SessionLine::Note(format!("{what} ..."))),
    }
    work.await
}

impl Session<'_> {
    /// Asks before the machine of another owner ends, whose controller obeys every wish in the
    /// records of the job. `owner`: of the job; `None`: unknown, or it must not be asked.
    ///
    /// # Errors
    /// Fails when the person declines, or cannot be asked.
    pub fn confirm_owner(&self, job: &JobId, owner: Option<String>) -> Result<(), Fault> {
        let mine = &self.workstation.owner;
        let Some(theirs) = owner.filter(|owner| owner != mine) else { return Ok(()) };
        let what = format!(
            "the machine of `{job}` is of the owner `{theirs}`, and you are `{mine}`: this ends it"
        );
        self.confirm(&what, "nothing was asked of it")
    }

    pub fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault> {
        self.face.confirm(what, otherwise)
    }

    /// Runs `work`, and shows what it does.
    pub async fn with_progress<T>(
        &self,
        told: impl Fn() -> String,
        work: impl Future<Output = T>,
    ) -> T {
        self.with_bytes(|| (told(), None), work).await
    }

    /// Runs `work`, and shows what it does, with its bytes once these are known.
    pub async fn with_bytes<T>(
        &self,
        told: impl Fn() -> (String, Option<Bytes>),
        work: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            done = work => done,
            () = self.face.show(&told) => unreachable!("it is shown until the work is done"),
        }
    }

    pub fn note(&self, text: impl Into<String>) {
        self.face.tell(SessionLine::Note(text.into()));
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.face.tell(SessionLine::Warning(text.into()));
    }

    pub fn hint(&self, text: impl Into<String>) {
        self.face.tell(SessionLine::Hint(text.into()));
    }
}
