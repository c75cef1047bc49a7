//! What programs read: the overview, jobs, their plots, logs and receipts, and costs.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{fault, json, of};
use crate::app::log_tail::LogTail;
use crate::app::overview::job_filter::{EXAMPLE, JobFilter};
use crate::app::overview::overview::{JobRow, Overview};
use crate::app::view::costs::CostRow;
use crate::app::view::timeline::{self, Explained};
use crate::app::{ExitCode, Fault, find_job, record_errors};
use crate::job::{AttemptNo, Receipt};
use crate::web::job::plot_scope::{self, PlotQuery, PlotScope};
use crate::web::plots::Plots;
use crate::web::site::Site;

/// Lines of a log, when no number was asked for.
const LINES: u32 = 200;

/// More lines are read by `lamp logs`.
const LINES_MAX: u32 = 20_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WhichJobs {
    /// Terms that all must fit, for example `state:running cost>5`.
    filter: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WhichLines {
    /// Lines from the end.
    #[param(minimum = 1, maximum = 20_000, default = 200)]
    lines: Option<u32>,
    /// Without it, the newest.
    #[param(minimum = 1)]
    attempt: Option<u32>,
}

/// The jobs that fit, and when they were read.
#[derive(Serialize, ToSchema)]
pub struct Jobs<'a> {
    at: Timestamp,
    jobs: Vec<&'a JobRow>,
}

/// The cost of each attempt on each day, and when it was read.
#[derive(Serialize, ToSchema)]
pub struct CostList<'a> {
    at: Timestamp,
    rows: &'a [CostRow],
}

/// # Errors
/// Fails when the records cannot be read now: a program must not take old values for new ones.
pub async fn newest(site: &Arc<Site>) -> Result<Arc<Overview>, Fault> {
    let newest = site.overview_for_program().await;
    match (newest.fault, newest.overview) {
        (None, Some(overview)) => Ok(overview),
        (Some(fault), _) => Err(fault),
        (None, None) => Err(Fault::new(ExitCode::INTERNAL, "the records were not read yet")),
    }
}

/// All jobs, the money, and what needs a person
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview)))]
pub async fn overview(State(site): State<Arc<Site>>) -> Response {
    of(newest(&site).await)
}

/// The jobs that fit a filter, unfinished ones first
#[utoipa::path(get, path = "/api/v1/jobs", params(WhichJobs), responses((status = 200, body = Jobs)))]
pub async fn jobs(State(site): State<Arc<Site>>, Query(which): Query<WhichJobs>) -> Response {
    let filter = JobFilter::parse(which.filter.as_deref().unwrap_or_default());
    if !filter.unknown.is_empty() {
        let what = format!("the filter has unknown terms: {}", filter.unknown.join(" "));
        let wrong = Fault::new(ExitCode::USAGE, what);
        return fault(&wrong.hint(format!("terms are like `{EXAMPLE}`")));
    }
    match newest(&site).await {
        Ok(overview) => {
            let fits = |row: &&JobRow| filter.fits(&row.summary);
            json(&Jobs { at: overview.at, jobs: overview.jobs.iter().filter(fits).collect() })
        }
        Err(error) => fault(&error),
    }
}

/// One job, by its id, the beginning of it, or its name
#[utoipa::path(get, path = "/api/v1/jobs/{job}", params(("job" = String, Path)),
    responses((status = 200, body = JobRow)))]
pub async fn job(State(site): State<Arc<Site>>, Path(job): Path<String>) -> Response {
    let read = async {
        let dir = find_job::find(&site.store, Some(&job)).await?;
        let overview = newest(&site).await?;
        let row = overview.jobs.iter().find(|row| row.summary.job == dir.job().as_str());
        row.cloned().ok_or_else(|| unreadable(dir.job().as_str()))
    };
    of(read.await)
}

fn unreadable(job: &str) -> Fault {
    Fault::new(ExitCode::NOT_FOUND, format!("job `{job}` has no readable records yet"))
        .hint("`/api/v1/overview` says in `needs` what is wrong with it, if anything is")
}

/// The measurements of an attempt as series, and what happened beside them
#[utoipa::path(get, path = "/api/v1/jobs/{job}/plot", params(("job" = String, Path), PlotQuery),
    responses((status = 200, body = Plots)))]
pub async fn plot(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(which): Query<PlotQuery>,
) -> Response {
    let read = async {
        let look = site.looks.of(plot_scope::source(&site), &job, plot_scope::age(&site)).await?;
        let explained = &look.explained;
        let scope = match (PlotScope::asked(explained, which), which.attempt) {
            (Some(scope), _) => scope,
            (None, Some(number)) => return Err(no_attempt(&job, number)),
            // A job without an attempt has empty plots.
            (None, None) => PlotScope::one(AttemptNo::FIRST),
        };
        Plots::read(&site, &look, &scope).await
    };
    of(read.await)
}

fn no_attempt(job: &str, number: u32) -> Fault {
    Fault::new(ExitCode::NOT_FOUND, format!("job `{job}` has no attempt {number}"))
        .hint(format!("`/api/v1/jobs/{job}/explain` lists its attempts"))
}

/// Every verdict on a job with its numbers, and each attempt: what `lamp explain -o json` prints
#[utoipa::path(get, path = "/api/v1/jobs/{job}/explain", params(("job" = String, Path)),
    responses((status = 200, body = Explained)))]
pub async fn explain(State(site): State<Arc<Site>>, Path(job): Path<String>) -> Response {
    let read = async {
        let dir = find_job::find(&site.store, Some(&job)).await?;
        timeline::read(&dir, site.clock.now())
            .await
            .map_err(|error| record_errors::record_fault(&error))
    };
    of(read.await)
}

/// The cost of an ended job: what `lamp receipt -o json` prints
#[utoipa::path(get, path = "/api/v1/jobs/{job}/receipt", params(("job" = String, Path)),
    responses((status = 200, body = Receipt)))]
pub async fn receipt(State(site): State<Arc<Site>>, Path(job): Path<String>) -> Response {
    let read = async {
        let dir = find_job::find(&site.store, Some(&job)).await?;
        let receipt = dir.receipt().await.map_err(|error| record_errors::record_fault(&error))?;
        receipt.ok_or_else(|| {
            let what = format!("job `{}` has no receipt: it has not ended", dir.job());
            let hint = format!("`/api/v1/jobs/{}` has its cost so far", dir.job());
            Fault::new(ExitCode::NOT_FOUND, what).hint(hint)
        })
    };
    of(read.await)
}

/// The last lines of a log as text
#[utoipa::path(get, path = "/api/v1/jobs/{job}/log", params(("job" = String, Path), WhichLines),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn log(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(which): Query<WhichLines>,
) -> Response {
    match log_text(&site, &job, &which).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response(),
        Err(error) => fault(&error),
    }
}

async fn log_text(site: &Site, job: &str, which: &WhichLines) -> Result<String, Fault> {
    let lines = which.lines.unwrap_or(LINES);
    if !(1..=LINES_MAX).contains(&lines) {
        return Err(Fault::new(ExitCode::USAGE, format!("`lines` is not from 1 to {LINES_MAX}"))
            .hint("`lamp logs` prints a whole log"));
    }
    let dir = find_job::find(&site.store, Some(job)).await?;
    let unread = |error| record_errors::record_fault(&error);
    let attempts = dir.attempts().await.map_err(unread)?;
    let attempt = match which.attempt {
        Some(number) => attempts.iter().copied().find(|one| one.number() == number),
        None => Some(attempts.last().copied().unwrap_or(AttemptNo::FIRST)),
    };
    let Some(attempt) = attempt else {
        return Err(no_attempt(job, which.attempt.unwrap_or_default()));
    };
    let end = LogTail::last(&dir, attempt, lines as usize).await.map_err(unread)?;
    Ok(String::from_utf8_lossy(&end.bytes).into_owned())
}

/// What jobs cost: a row for each attempt and day
#[utoipa::path(get, path = "/api/v1/costs", responses((status = 200, body = CostList)))]
pub async fn costs(State(site): State<Arc<Site>>) -> Response {
    match newest(&site).await {
        Ok(overview) => {
            let rows = site.costs.rows(&site.store, &overview).await;
            json(&CostList { at: overview.at, rows: &rows })
        }
        Err(error) => fault(&error),
    }
}
