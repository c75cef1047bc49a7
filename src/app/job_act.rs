//! The acts on a job that a view offers: what each would do, and doing it.
//!
//! ```text
//! foretell ─> question ─ yes ─> carry_out ─> what was recorded
//! ```
//! Not here: the question as a form or a box, which each face draws.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::extend::{KEEP, More, extend, foretell_keep, foretell_more};
use super::session::{Face, Session, SessionLine};
use super::stop::{self, How, Named, StopAnswer};
use super::{ExitCode, Fault, find_job, save_now};
use crate::job::Wish;
use crate::jobdir::JobDir;
use crate::wire::{ClockHandle, StoreHandle, Workstation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAct {
    Stop,
    Cancel,
    Extend,
    /// Save a checkpoint and go on.
    Save,
    /// Not ended as idle or stalled for an hour.
    Keep,
}

impl JobAct {
    /// The word in addresses. [`JobAct::command`] has the command.
    pub fn verb(self) -> &'static str {
        match self {
            JobAct::Stop => "stop",
            JobAct::Cancel => "cancel",
            JobAct::Extend => "extend",
            JobAct::Save => "save",
            JobAct::Keep => "keep",
        }
    }

    /// The same on the command line, without the amount of an extension. `None`: a save has no
    /// command.
    pub fn command(self, job: &str) -> Option<String> {
        match self {
            JobAct::Save => None,
            JobAct::Keep => Some(format!("lamp extend {job} --keep {KEEP}")),
            JobAct::Stop | JobAct::Cancel | JobAct::Extend => {
                Some(format!("lamp {} {job}", self.verb()))
            }
        }
    }

    pub fn of_verb(verb: &str) -> Option<JobAct> {
        [JobAct::Stop, JobAct::Cancel, JobAct::Extend, JobAct::Save, JobAct::Keep]
            .into_iter()
            .find(|act| act.verb() == verb)
    }
}

/// Where the job is, and who acts.
#[derive(Clone)]
pub struct ActPlace {
    pub store: StoreHandle,
    pub workstation: Workstation,
    pub clock: ClockHandle,
    /// The configuration has errors, so no process is started with it.
    pub is_misread: bool,
}

/// Says what an act would do to the job and to its bill. `more`: how much an extension gives, as
/// far as it is known.
///
/// # Errors
/// Fails when the job has ended, or its records cannot be read.
pub async fn foretell(
    dir: &JobDir,
    act: JobAct,
    more: &More,
    now: jiff::Timestamp,
) -> Result<String, Fault> {
    match act {
        JobAct::Stop => stop::foretell(dir, Wish::Stop, now).await,
        JobAct::Cancel => stop::foretell(dir, Wish::Cancel, now).await,
        JobAct::Save => save_now::foretell(dir).await,
        JobAct::Keep => foretell_keep(dir, KEEP, now).await,
        JobAct::Extend => foretell_more(dir, more, now).await,
    }
}

/// Carries an act out, and returns what `-o json` prints about it. An act asks its face in between,
/// so it stays on one thread of its own.
///
/// # Errors
/// Fails when the job has ended, the person was asked first, or the job root is unreachable.
pub async fn carry_out(
    place: ActPlace,
    face: Arc<LaterFace>,
    job: String,
    act: JobAct,
    more: More,
) -> Result<Value, Fault> {
    let runtime = tokio::runtime::Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        let session = Session {
            store: &place.store,
            workstation: &place.workstation,
            clock: &place.clock,
            is_misread: place.is_misread,
            face: &*face,
        };
        runtime.block_on(recorded(&session, &job, act, more))
    });
    work.await.unwrap_or_else(|error| Err(unfinished(&error)))
}

async fn recorded(
    session: &Session<'_>,
    job: &str,
    act: JobAct,
    more: More,
) -> Result<Value, Fault> {
    let wish = match act {
        JobAct::Save => {
            let dir = find_job::find_under_way(session.store, Some(job)).await?;
            return document(&save_now::save_now(session, &dir).await?);
        }
        JobAct::Extend => return document(&extend(session, job, more).await?),
        JobAct::Keep => {
            let more = More { keep: more.keep.or(Some(KEEP)), ..More::default() };
            return document(&extend(session, job, more).await?);
        }
        JobAct::Stop => Wish::Stop,
        JobAct::Cancel => Wish::Cancel,
    };
    let dir = find_job::find_under_way(session.store, Some(job)).await?;
    // A view that is open since before its end must not give up what the job keeps.
    if stop::rank_at_work(&dir).await.is_none() {
        find_job::must_be_under_way(&dir).await?;
    }
    let how = How { wish, wait: false, named: Named::All, several: false };
    Ok(match stop::ask(session, dir, how).await? {
        StopAnswer::Over(_, document) => document,
        StopAnswer::Stands(standing) => standing.document,
    })
}

fn document(done: &impl serde::Serialize) -> Result<Value, Fault> {
    serde_json::to_value(done).map_err(|error| unfinished(&error))
}

fn unfinished(error: &(dyn std::error::Error + 'static)) -> Fault {
    Fault::new(ExitCode::INTERNAL, "the act was not finished").because(error)
}

/// The face of a view that cannot wait for an answer: a question ends the act, and the view shows
/// it.
#[derive(Default)]
pub struct LaterFace {
    is_confirmed: bool,
    asked: Mutex<Option<String>>,
    said: Mutex<Vec<SessionLine>>,
}

impl LaterFace {
    /// `is_confirmed`: the person has read the question of another owner's machine.
    pub fn new(is_confirmed: bool) -> LaterFace {
        LaterFace { is_confirmed, ..LaterFace::default() }
    }

    pub fn said(&self) -> Vec<SessionLine> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn question(&self) -> Option<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Face for LaterFace {
    fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault> {
        if self.is_confirmed {
            return Ok(());
        }
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
        Err(Fault::new(ExitCode::REFUSED, what).meaning(otherwise))
    }

    fn tell(&self, said: SessionLine) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(said);
    }
}
