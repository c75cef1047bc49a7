//! The time limit of a page: a job root that does not answer must not hold a browser for ever.
//!
//! Not here: the overview, which has its own limits and shows what it knows (`site`).

use std::time::Duration;

use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;

use super::api;
use super::layout::message_page;

/// The records of a job are a few reads.
const JOB_PATIENCE: Duration = Duration::from_secs(20);

/// A file of a week of samples, or a silent region of EC2, may take a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(90);

/// Answers in words when the page takes too long. An act is never cut short: it may have happened.
pub async fn limited(request: Request, next: Next) -> Response {
    if request.method() == Method::POST {
        return next.run(request).await;
    }
    let uri = request.uri().clone();
    match tokio::time::timeout(patience(uri.path()), next.run(request)).await {
        Ok(response) => response,
        Err(_) => silent(&uri),
    }
}

/// How long an answer may take.
pub fn patience(path: &str) -> Duration {
    let is_file = ["/csv/", "/gpus", "/share", "/plot"].iter().any(|part| path.contains(part));
    if is_of_job(path) && !is_file { JOB_PATIENCE } else { LONG_PATIENCE }
}

fn is_of_job(path: &str) -> bool {
    path.starts_with("/job/") || path.starts_with("/api/v1/jobs/")
}

/// Who has not answered. Only pages of a job and the overview ask nothing of the cloud.
pub fn who_is_silent(path: &str, seconds: u64) -> String {
    if is_of_job(path) || ["/", "/live", "/api/v1/overview", "/api/v1/jobs"].contains(&path) {
        return format!("The job root has not answered for {seconds} s.");
    }
    format!("There was no answer for {seconds} s from the job root or the cloud.")
}

fn silent(uri: &Uri) -> Response {
    let seconds = patience(uri.path()).as_secs();
    let text = format!(
        "{} What runs goes on, and its machines end by their own limits. `lamp doctor` shows \
        whether the job root can be reached.",
        who_is_silent(uri.path(), seconds)
    );
    if api::is_for_programs(uri.path()) {
        return api::problem(StatusCode::GATEWAY_TIMEOUT, &text, Some("ask again later"));
    }
    message_page(StatusCode::GATEWAY_TIMEOUT, "No answer", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_answers_may_take_long() {
        for (path, patience) in [
            ("/job/a-222222", JOB_PATIENCE),
            ("/job/a-222222/table/gpu_percent", JOB_PATIENCE),
            ("/api/v1/jobs/a-222222", JOB_PATIENCE),
            ("/job/a-222222/csv/gpu_percent", LONG_PATIENCE),
            ("/job/a-222222/plot.json", LONG_PATIENCE),
            ("/job/a-222222/gpus", LONG_PATIENCE),
            ("/job/a-222222/gpus.csv", LONG_PATIENCE),
            ("/prices", LONG_PATIENCE),
        ] {
            assert_eq!(super::patience(path), patience, "{path}");
        }
    }

    #[test]
    fn job_root_is_not_blamed_for_a_silent_cloud() {
        for path in ["/", "/job/a-222222", "/api/v1/jobs/a-222222"] {
            assert_eq!(who_is_silent(path, 20), "The job root has not answered for 20 s.");
        }
        for path in ["/prices", "/machines"] {
            let text = "There was no answer for 90 s from the job root or the cloud.";
            assert_eq!(who_is_silent(path, 90), text, "{path}");
        }
    }
}
