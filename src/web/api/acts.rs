//! Stop, cancel, extend and keep for programs. Each needs the token in a header (`guard`).

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::answer::{body, fault, of, problem};
use crate::app::extend::More;
use crate::app::job_act::{JobAct, LaterFace, carry_out};
use crate::app::session::SessionLine;
use crate::app::{ExitCode, Fault};
use crate::market::{Span, Usd};
use crate::web::site::Site;

/// How to end a job.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EndBody {
    /// Also when the machine is of another owner, or work is lost.
    confirmed: bool,
}

/// The time or money that a job gets in addition. One of `time` and `budget` must be there.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExtendBody {
    /// More time, for example `2h`.
    #[schema(pattern = "^([0-9]+([.][0-9]+)?(ms|s|m|h|d|w))+$")]
    time: Option<String>,
    /// More dollars on its budget.
    #[schema(exclusive_minimum = 0.0, maximum = 1_000_000.0)]
    budget: Option<f64>,
    /// Also when the machine is of another owner.
    confirmed: bool,
}

/// What was recorded.
#[derive(Serialize, ToSchema)]
pub struct Recorded {
    /// The JSON that the command prints with `-o json`.
    #[schema(value_type = Object)]
    recorded: Value,
    /// The meaning for the job and its bill, and the next step.
    said: Vec<String>,
}

/// Ask a job to save a checkpoint and end: `lamp stop`
#[utoipa::path(post, path = "/api/v1/jobs/{job}/stop", params(("job" = String, Path)),
    request_body = EndBody, responses((status = 200, body = Recorded)))]
pub async fn stop(state: State<Arc<Site>>, job: Path<String>, sent: Bytes) -> Response {
    end(state, job, &sent, JobAct::Stop).await
}

/// End a job at once, without a checkpoint: `lamp cancel`
#[utoipa::path(post, path = "/api/v1/jobs/{job}/cancel", params(("job" = String, Path)),
    request_body = EndBody, responses((status = 200, body = Recorded)))]
pub async fn cancel(state: State<Arc<Site>>, job: Path<String>, sent: Bytes) -> Response {
    end(state, job, &sent, JobAct::Cancel).await
}

async fn end(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    sent: &Bytes,
    act: JobAct,
) -> Response {
    match body::<EndBody>(sent) {
        Ok(sent) => done(site, job, act, More::default(), sent.confirmed).await,
        Err(error) => fault(&error),
    }
}

/// Give a job more time or more money: `lamp extend`
#[utoipa::path(post, path = "/api/v1/jobs/{job}/extend", params(("job" = String, Path)),
    request_body = ExtendBody, responses((status = 200, body = Recorded)))]
pub async fn extend(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    sent: Bytes,
) -> Response {
    let read = body::<ExtendBody>(&sent).and_then(|sent| Ok((more(&sent)?, sent.confirmed)));
    match read {
        Ok((more, confirmed)) => done(site, job, JobAct::Extend, more, confirmed).await,
        Err(error) => fault(&error),
    }
}

/// How long to keep a job.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeepBody {
    /// The time, for example `2h`; an hour without it.
    #[schema(pattern = "^([0-9]+([.][0-9]+)?(ms|s|m|h|d|w))+$")]
    time: Option<String>,
    /// Also when the machine is of another owner.
    confirmed: bool,
}

/// Do not end a job as idle or stalled for a time: `lamp extend --keep`
#[utoipa::path(post, path = "/api/v1/jobs/{job}/keep", params(("job" = String, Path)),
    request_body = KeepBody, responses((status = 200, body = Recorded)))]
pub async fn keep(State(site): State<Arc<Site>>, Path(job): Path<String>, sent: Bytes) -> Response {
    let read = body::<KeepBody>(&sent).and_then(|sent| Ok((kept(&sent)?, sent.confirmed)));
    match read {
        Ok((more, confirmed)) => done(site, job, JobAct::Keep, more, confirmed).await,
        Err(error) => fault(&error),
    }
}

fn kept(sent: &KeepBody) -> Result<More, Fault> {
    let time = sent.time.as_ref().map(|text| text.parse::<Span>()).transpose();
    let keep = time.map_err(|error| {
        Fault::new(ExitCode::USAGE, error.to_string())
            .meaning("nothing was changed")
            .hint("send a time like \"2h\"")
    })?;
    Ok(More { keep, ..More::default() })
}

fn more(sent: &ExtendBody) -> Result<More, Fault> {
    let wrong = |what: String| {
        Fault::new(ExitCode::USAGE, what)
            .meaning("nothing was changed")
            .hint("send a time like \"2h\", or a budget like 5")
    };
    let time = sent.time.as_ref().map(|text| text.parse::<Span>());
    let budget = sent.budget.map(Usd::from_dollars);
    let more = More {
        time: time.transpose().map_err(|error| wrong(error.to_string()))?,
        budget: budget.transpose().map_err(|error| wrong(error.to_string()))?,
        ..More::default()
    };
    if more.time.is_none() && more.budget.is_none() {
        return Err(wrong("neither `time` nor `budget` was sent".to_owned()));
    }
    Ok(more)
}

async fn done(site: Arc<Site>, job: String, act: JobAct, more: More, confirmed: bool) -> Response {
    let face = Arc::new(LaterFace::new(confirmed));
    let done = carry_out(site.act_place(), Arc::clone(&face), job, act, more).await;
    site.look_again();
    if let (Err(_), Some(question)) = (&done, face.question()) {
        let hint = "send {\"confirmed\": true} if that is meant";
        return problem(StatusCode::CONFLICT, &question, Some(hint));
    }
    let said = face.said().into_iter().map(|said| match said {
        SessionLine::Note(text) | SessionLine::Warning(text) | SessionLine::Hint(text) => text,
    });
    of(done.map(|recorded| Recorded { recorded, said: said.collect() }))
}
