//! Answers for programs: a value as JSON, or a problem with its hint.

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use crate::app::{ExitCode, Fault};
use crate::web::layout::status_of;

/// Why a request had no result.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// The fault, and its meaning for the job and its bill.
    pub error: String,
    /// The next step.
    pub hint: Option<String>,
}

/// The path belongs to programs, so problems are JSON.
pub fn is_for_programs(path: &str) -> bool {
    path == "/metrics" || path == "/api" || path.starts_with("/api/")
}

pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => answer(StatusCode::OK, text),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), None),
    }
}

pub fn problem(status: StatusCode, error: &str, hint: Option<&str>) -> Response {
    let problem = Problem { error: error.to_owned(), hint: hint.map(str::to_owned) };
    answer(status, serde_json::to_vec(&problem).unwrap_or_default())
}

fn answer(status: StatusCode, text: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// A fault with the status that its code means.
pub fn fault(fault: &Fault) -> Response {
    let meaning = fault.meaning.iter().map(|meaning| format!("; {meaning}"));
    let error: String = std::iter::once(fault.sentence()).chain(meaning).collect();
    problem(status_of(fault), &error, fault.hint.as_deref())
}

pub fn of<T: Serialize>(result: Result<T, Fault>) -> Response {
    match result {
        Ok(value) => json(&value),
        Err(error) => fault(&error),
    }
}

/// An empty body is the default.
///
/// # Errors
/// Fails when the body is not this JSON.
pub fn body<T: Default + for<'de> Deserialize<'de>>(sent: &Bytes) -> Result<T, Fault> {
    if sent.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(sent).map_err(|error| {
        Fault::new(ExitCode::USAGE, "the body is not understood")
            .because(&error)
            .meaning("nothing was changed")
            .hint("`/api/v1/openapi.json` describes each body")
    })
}
