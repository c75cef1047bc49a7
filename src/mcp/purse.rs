//! The purse: what jobs of coding agents may cost, and what they already can cost.
//!
//! ```text
//! [purse] usd_per_day     a person writes it; read again for each launch
//! mark in the spec        written with the spec, before anything is launched
//! counted                 each marked job: the most that it can cost; until 24 h after its end
//! ```
//!
//! The mark is an environment variable of the job, so that the records alone say which jobs count,
//! also after a restart and on another workstation. If the cost of one cannot be read, nothing more
//! is started. Not here: the caps of all jobs (`policy::purchase::spending_cap`).

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde::Serialize;

use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::view::job_summary::Summary;
use crate::app::{ExitCode, Fault, record_errors};
use crate::config::{Environment, load_user};
use crate::job::{JobId, Receipt, ResolvedSpec};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::market::{CloudKind, Usd, UsdPerHour};
use crate::wire::{StoreHandle, Workstation};

/// The variable of jobs that a tool started. `LAMP_` names are not for users.
pub const MARK: &str = "LAMPLIGHTER_STARTED_BY";
pub const MARK_VALUE: &str = "mcp";

/// A day of the purse, in seconds. A calendar day would allow twice the sum around midnight.
const DAY_SECS: i64 = 86_400;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Purse {
    pub usd_per_day: Usd,
    pub counted_usd: Usd,
    pub left_usd: Usd,
    pub jobs: Vec<PurseJob>,
}

/// A job that counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PurseJob {
    pub job: String,
    /// Its cost, or the most that it can cost while it is under way.
    pub usd: Usd,
    pub ended: Option<Timestamp>,
}

/// The dollars per day that a person has allowed.
///
/// # Errors
/// Fails when the configuration has errors, or has no purse.
pub fn allowed(environment: &Environment) -> Result<Usd, Fault> {
    let file = environment
        .user_config_path()
        .map_or_else(|| "the configuration".to_owned(), |path| format!("`{}`", path.display()));
    let user = load_user(environment).map_err(|error| {
        Fault::from_error(ExitCode::FINDINGS, &error)
            .meaning("nothing was started or billed: the purse cannot be read")
            .hint("a person mends the configuration; `lamp check` lists its errors")
    })?;
    user.purse.ok_or_else(|| {
        Fault::new(ExitCode::REFUSED, "no purse is set: a person must set one first")
            .meaning("nothing was started or billed")
            .hint(format!(
                "a person writes `[purse]` and `usd_per_day = 20` into {file}; `0` allows jobs that cost nothing"
            ))
    })
}

impl Purse {
    /// Reads what counts now.
    ///
    /// # Errors
    /// Fails when the job root is unreachable, or the cost of a marked job is unknown.
    pub async fn read(
        usd_per_day: Usd,
        store: &StoreHandle,
        workstation: &Workstation,
        now: Timestamp,
    ) -> Result<Purse, Fault> {
        let ids = jobdir::jobs(store.as_ref())
            .await
            .map_err(|error| record_errors::record_fault(&error.into()))?;
        let read: Vec<Result<Option<PurseJob>, Fault>> = stream::iter(ids)
            .map(|job| counted(store, workstation, job, now))
            .buffered(READS_IN_FLIGHT)
            .collect()
            .await;
        let jobs: Vec<PurseJob> =
            read.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let counted_usd = jobs.iter().map(|job| job.usd).sum::<Usd>();
        let left_usd = (usd_per_day - counted_usd).max(Usd::ZERO);
        Ok(Purse { usd_per_day, counted_usd, left_usd, jobs })
    }

    /// # Errors
    /// Fails when the job can cost more than is left, or has no limit.
    pub fn must_hold(&self, most: Option<Usd>) -> Result<Usd, Fault> {
        let refused = |what: String| {
            Fault::new(ExitCode::REFUSED, what).meaning("nothing was started or billed")
        };
        let Some(most) = most else {
            return Err(refused("nothing limits what the whole job can cost".into())
                .hint("give `budget_usd`, or write `budget` under [limits] of the job file"));
        };
        if most > Usd::ZERO && self.counted_usd + most > self.usd_per_day {
            let what = format!(
                "the job can cost {most}, and {} of the purse of {} are left",
                self.left_usd, self.usd_per_day
            );
            return Err(refused(what).hint(
                "lower `budget_usd` or `max_runtime`, or wait: a job counts until 24 hours after its end; only a person can raise `[purse] usd_per_day`",
            ));
        }
        Ok(most)
    }
}

/// Whether the spec has the mark of a tool.
pub fn is_marked(spec: &ResolvedSpec) -> bool {
    spec.spec.env.get(MARK).is_some_and(|value| value == MARK_VALUE)
}

/// The amount that a job takes from the purse. `None`: the job does not count.
async fn counted(
    store: &StoreHandle,
    workstation: &Workstation,
    job: JobId,
    now: Timestamp,
) -> Result<Option<PurseJob>, Fault> {
    let dir = JobDir::new(Arc::clone(store), job);
    let fault = |error: JobDirError| record_errors::record_fault(&error);
    let receipt = dir.receipt().await.map_err(fault)?;
    if receipt.as_ref().is_some_and(|receipt| !is_of_the_day(receipt, now)) {
        return Ok(None);
    }
    let spec = dir.spec().await.map_err(|error| unknown(&dir, fault(error)))?;
    // A folder without a spec is no job yet: nothing was launched for it.
    let Some(spec) = spec.filter(is_marked) else { return Ok(None) };
    if spec.owner().is_some_and(|owner| owner != workstation.owner) {
        return Ok(None);
    }
    if let Some(receipt) = receipt {
        let (usd, ended) = (receipt.total_usd, Some(receipt.ended));
        return Ok(Some(PurseJob { job: dir.job().to_string(), usd, ended }));
    }
    let summary = Summary::open(&dir, now).await.map_err(|error| unknown(&dir, fault(error)))?;
    let most = summary.as_ref().and_then(|summary| summary.most_job_usd);
    let usd = most
        .or_else(|| before_its_plan(&spec))
        .ok_or_else(|| unknown(&dir, Fault::new(ExitCode::REFUSED, "nothing limits its cost")))?;
    let spent = summary.map_or(Usd::ZERO, |summary| summary.usd + summary.usd_unheard);
    Ok(Some(PurseJob { job: dir.job().to_string(), usd: usd.max(spent), ended: None }))
}

fn is_of_the_day(receipt: &Receipt, now: Timestamp) -> bool {
    now.as_second() - receipt.ended.as_second() < DAY_SECS
}

/// The most that a job can cost whose first plan is not written yet.
fn before_its_plan(spec: &ResolvedSpec) -> Option<Usd> {
    let machine = &spec.spec.machine;
    let is_free = machine.cloud == CloudKind::Local && machine.usd_per_hour == UsdPerHour::ZERO;
    if is_free { Some(Usd::ZERO) } else { spec.spec.limits.budget }
}

fn unknown(dir: &JobDir, fault: Fault) -> Fault {
    fault
        .also(format!("the cost of job `{}` is unknown, so nothing more was started", dir.job()))
        .or_hint(format!("`lamp status {0}` shows the job, `lamp stop {0}` ends it", dir.job()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(dollars: f64) -> Usd {
        Usd::from_dollars(dollars).unwrap()
    }

    #[test]
    fn job_must_fit_with_all_that_counts() {
        let purse = Purse {
            usd_per_day: usd(10.0),
            counted_usd: usd(7.0),
            left_usd: usd(3.0),
            jobs: Vec::new(),
        };
        assert_eq!(purse.must_hold(Some(usd(3.0))), Ok(usd(3.0)));
        let refused = purse.must_hold(Some(usd(3.01))).unwrap_err();
        assert!(refused.what.contains("$3.00 of the purse of $10.00"), "{}", refused.what);
        assert!(purse.must_hold(None).unwrap_err().what.contains("nothing limits"));
    }

    #[test]
    fn free_job_fits_an_empty_purse() {
        let purse = Purse {
            usd_per_day: usd(1.0),
            counted_usd: usd(2.0),
            left_usd: Usd::ZERO,
            jobs: Vec::new(),
        };
        assert_eq!(purse.must_hold(Some(Usd::ZERO)), Ok(Usd::ZERO));
        assert!(purse.must_hold(Some(usd(0.01))).is_err());
    }
}
