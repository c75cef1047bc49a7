//! The addresses for programs.

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::http::header;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};

use super::answer::problem;
use super::{acts, document, machines, metrics, reads};
use crate::web::site::Site;

/// Longer reasons of the framework are cut off.
const REASON_MAX: usize = 4096;

pub fn router() -> Router<Arc<Site>> {
    Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/openapi.json", get(document::openapi))
        .route("/api/v1/overview", get(reads::overview))
        .route("/api/v1/jobs", get(reads::jobs))
        .route("/api/v1/jobs/{job}", get(reads::job))
        .route("/api/v1/jobs/{job}/plot", get(reads::plot))
        .route("/api/v1/jobs/{job}/explain", get(reads::explain))
        .route("/api/v1/jobs/{job}/receipt", get(reads::receipt))
        .route("/api/v1/jobs/{job}/log", get(reads::log))
        .route("/api/v1/costs", get(reads::costs))
        .route("/api/v1/machines", get(machines::machines))
        .route("/api/v1/jobs/{job}/stop", post(acts::stop))
        .route("/api/v1/jobs/{job}/cancel", post(acts::cancel))
        .route("/api/v1/jobs/{job}/extend", post(acts::extend))
        .route("/api/v1/jobs/{job}/keep", post(acts::keep))
        .layer(middleware::map_response(problems_are_json))
}

/// The framework refuses in plain text, for example a number that is none.
async fn problems_are_json(response: Response) -> Response {
    let is_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !response.status().is_client_error() || is_json {
        return response;
    }
    let (parts, body) = response.into_parts();
    let reason = to_bytes(body, REASON_MAX).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let said = match reason.trim() {
        "" => parts.status.canonical_reason().unwrap_or("the request was refused"),
        reason => reason,
    };
    let mut answer = problem(parts.status, said, Some("`/api/v1/openapi.json` has each address"));
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    answer
}
