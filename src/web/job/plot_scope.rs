//! The attempts of a plot: one, or all that have worked.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::job_look::{JobLook, LookSource};
use crate::app::analysis::joined_plot::{PlotPart, spans, worked};
use crate::app::analysis::sample_cache::AttemptPlot;
use crate::app::view::timeline::{Explained, ExplainedAttempt};
use crate::app::{Fault, record_errors};
use crate::job::AttemptNo;
use crate::jobdir::JobDir;
use crate::market::elapsed;
use crate::web::site::Site;

/// The samples of a settled attempt change no more. A list of a bucket costs money.
const SETTLED_AGE: Duration = Duration::from_secs(600);

/// The query of a plot, a table or a CSV.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlotQuery {
    /// Without it, the newest.
    #[param(minimum = 1)]
    pub attempt: Option<u32>,
    /// The newest attempts that have worked, on one time axis.
    #[serde(default)]
    pub all: bool,
}

impl PlotQuery {
    /// The command that prints the same table.
    pub fn command(&self, job: &str, name: &str) -> String {
        let attempt = match (self.all, self.attempt) {
            (false, Some(number)) => format!(" --attempt {number}"),
            _ => String::new(),
        };
        format!("lamp explain {job} --samples {name}{attempt}")
    }
}

/// The attempts that are drawn, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotScope {
    pub attempts: Vec<AttemptNo>,
    /// The attempt of the log and of the figures of now.
    pub newest: AttemptNo,
    pub is_all: bool,
}

impl PlotScope {
    pub fn one(attempt: AttemptNo) -> PlotScope {
        PlotScope { attempts: vec![attempt], newest: attempt, is_all: false }
    }

    /// The page of a job shows all attempts, until a person chooses one.
    pub fn of_page(explained: &Explained, asked: Option<u32>) -> PlotScope {
        let newest = chosen(explained, asked);
        let attempts = worked(explained);
        if asked.is_some() || attempts.len() < 2 {
            return PlotScope::one(newest);
        }
        PlotScope { attempts, newest, is_all: true }
    }

    /// `None`: there is no such attempt.
    pub fn asked(explained: &Explained, asked: PlotQuery) -> Option<PlotScope> {
        let has = |number: u32| explained.attempts.iter().any(|one| one.attempt.number() == number);
        if explained.attempts.is_empty() || asked.attempt.is_some_and(|number| !has(number)) {
            return None;
        }
        Some(match asked.all {
            true => PlotScope::of_page(explained, None),
            false => PlotScope::one(chosen(explained, asked.attempt)),
        })
    }

    /// The query of an address that shows the same.
    pub fn query(&self) -> String {
        let all = if self.is_all { "&all=true" } else { "" };
        format!("attempt={}{all}", self.newest.number())
    }

    /// `attempt 2`, `attempts 1, 2 and 4`
    pub fn words(&self) -> String {
        let numbers: Vec<String> =
            self.attempts.iter().map(|one| one.number().to_string()).collect();
        match numbers.as_slice() {
            [before @ .., last] if !before.is_empty() => {
                format!("attempts {} and {last}", before.join(", "))
            }
            _ => format!("attempt {}", self.newest.number()),
        }
    }

    /// # Errors
    /// Fails when the store does not answer.
    pub async fn parts(&self, site: &Site, look: &JobLook) -> Result<Vec<PlotPart>, Fault> {
        let now = site.clock.now();
        let mut parts = Vec::with_capacity(self.attempts.len());
        for attempt in self.attempts.iter().copied() {
            let known = look.explained.attempts.iter().find(|one| one.attempt == attempt);
            let is_settled = known.is_some_and(|one| is_settled_since(one, now));
            let every = if is_settled && self.is_all { SETTLED_AGE } else { age(site) };
            let read = site.samples.read(&look.dir, attempt, now, every).await;
            let plot = read.map_err(|error| record_errors::record_fault(&error))?;
            parts.push(PlotPart { attempt, plot });
        }
        Ok(parts)
    }

    /// The attempts, and where each begins on their axis. One alone begins it, so that none of its
    /// samples is needed.
    ///
    /// # Errors
    /// Fails when the store does not answer.
    pub async fn begins(
        &self,
        site: &Site,
        look: &JobLook,
    ) -> Result<Vec<(AttemptNo, f64)>, Fault> {
        if let [only] = self.attempts[..] {
            return Ok(vec![(only, 0.0)]);
        }
        let spans = spans(&self.parts(site, look).await?);
        Ok(spans.iter().map(|span| (span.attempt, span.from_secs)).collect())
    }
}

/// The last batch comes about when the attempt ends, so that a look shortly before may lack it.
fn is_settled_since(attempt: &ExplainedAttempt, now: Timestamp) -> bool {
    let settled = attempt.settled.as_ref();
    let ended = settled.and_then(|settled| {
        settled.outcome.as_ref().map(|outcome| outcome.ended).or(settled.billed_to)
    });
    ended.is_some_and(|ended| ended <= now && elapsed(ended, now) > SETTLED_AGE)
}

/// The look at a job, and the attempts of an address. `None`: it has no such attempt.
///
/// # Errors
/// When there is no such job, or its records cannot be read.
pub async fn asked_scope(
    site: &Site,
    job: &str,
    asked: PlotQuery,
) -> Result<Option<(Arc<JobLook>, PlotScope)>, Fault> {
    let look = site.looks.of(source(site), job, age(site)).await?;
    let scope = PlotScope::asked(&look.explained, asked);
    Ok(scope.map(|scope| (look, scope)))
}

pub async fn samples_of(
    site: &Site,
    dir: &JobDir,
    attempt: AttemptNo,
) -> Result<Arc<AttemptPlot>, Fault> {
    let read = site.samples.read(dir, attempt, site.clock.now(), age(site)).await;
    read.map_err(|error| record_errors::record_fault(&error))
}

/// How old an answer may be. Each look at a bucket costs money.
pub fn age(site: &Site) -> Duration {
    if site.store.is_folder() { Duration::ZERO } else { site.every() }
}

pub fn source(site: &Site) -> LookSource<'_> {
    LookSource {
        store: &site.store,
        workstation: &site.workstation,
        clock: &site.clock,
        trends: &site.trends,
    }
}

/// The attempt that was asked for, else the newest.
pub fn chosen(explained: &Explained, asked: Option<u32>) -> AttemptNo {
    let has =
        |number: u32| explained.attempts.iter().map(|a| a.attempt).find(|no| no.number() == number);
    let newest = explained.attempts.last().map(|attempt| attempt.attempt);
    asked.and_then(has).or(newest).unwrap_or(AttemptNo::FIRST)
}
