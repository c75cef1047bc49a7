//! Stop, cancel, extend, save and keep: a page that says what the act does to the job and to its
//! bill, and the form that does it.
//!
//! ```text
//! GET /job/J/stop ─> sentence and form ─POST─> app::job_act ─> what was recorded
//! ```

use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Page, fault_page, in_code, message_page, nothing_page};
use super::site::Site;
use crate::app::extend::More;
use crate::app::job_act::{self, JobAct, LaterFace};
use crate::app::session::SessionLine;
use crate::app::{ExitCode, Fault, find_job};
use crate::jobdir::JobDir;
use crate::market::{Span, Usd};

#[derive(Clone, Default, Deserialize)]
pub struct ActForm {
    #[serde(default)]
    token: String,
    /// The person has read the question of another owner's machine.
    #[serde(default)]
    confirmed: String,
    /// The name of a job whose work is lost.
    #[serde(default)]
    name: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    budget: String,
}

fn title(act: JobAct) -> &'static str {
    match act {
        JobAct::Stop => "Stop this job",
        JobAct::Cancel => "Cancel this job",
        JobAct::Extend => "Give this job more",
        JobAct::Save => "Save a checkpoint now",
        JobAct::Keep => "Keep this job for an hour",
    }
}

pub async fn ask(
    State(site): State<Arc<Site>>,
    Path((job, word)): Path<(String, String)>,
) -> Response {
    let Some(act) = JobAct::of_verb(&word) else { return unknown() };
    let foretold = async {
        let dir = find_job::find(&site.store, Some(&job)).await?;
        let sentence = job_act::foretell(&dir, act, &More::default(), site.clock.now()).await?;
        let name = if act == JobAct::Cancel { name_of(&dir).await } else { String::new() };
        Ok(AskedAct { job: &job, name, word: &word, act, sentence })
    };
    match foretold.await {
        Ok(asked) => question(&site, &asked, &ActForm::default(), false),
        Err(fault) => fault_page(&fault),
    }
}

/// The question of an act.
struct AskedAct<'a> {
    job: &'a str,
    /// Empty, if it need not be typed.
    name: String,
    word: &'a str,
    act: JobAct,
    sentence: String,
}

/// The name that a person types. A run without a readable spec has its id only: it may bill, so it
/// must be possible to end it.
async fn name_of(dir: &JobDir) -> String {
    let spec = dir.spec().await.ok().flatten();
    spec.map_or_else(|| dir.job().to_string(), |spec| spec.spec.name)
}

fn question(site: &Site, asked: &AskedAct<'_>, sent: &ActForm, is_confirmation: bool) -> Response {
    let AskedAct { job, name, word, act, sentence } = asked;
    let act = *act;
    let is_wrong = act == JobAct::Cancel && !sent.name.is_empty() && !is_name(&sent.name, name);
    let body = html! {
        section.need aria-label="What it does" { p { (in_code(&capital(sentence))) "." } }
        @if is_wrong {
            p.warn role="alert" { "This is not the name of the job. Nothing was changed." }
        }
        form.act method="post" action=(format!("/job/{job}/act/{word}")) {
            input type="hidden" name="token" value=(site.form_token());
            @if is_confirmation { input type="hidden" name="confirmed" value="yes"; }
            @if act == JobAct::Cancel {
                label { span { "Type its name, " strong { (name) } ", to cancel it" }
                    input name="name" value=(sent.name) required autocomplete="off"; }
            }
            @if act == JobAct::Extend {
                label { "More time, like 2h " input name="time" value=(sent.time) autocomplete="off"; }
                label { "More dollars on its budget, like 5 " input name="budget" value=(sent.budget) inputmode="decimal" autocomplete="off"; }
            }
            button { (title(act)) }
            a href=(format!("/job/{job}")) { "Back, without a change" }
        }
        @if let Some(command) = act.command(job) {
            p.muted { "The same: " code { (command) @if act == JobAct::Extend { " 2h" } } }
        }
    };
    Page::new(title(act)).show(html! { p { (job) } (body) }, html! {}).into_response()
}

/// Blanks at the ends are no part of a name.
fn is_name(typed: &str, name: &str) -> bool {
    typed.trim() == name.trim()
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

pub async fn act(
    State(site): State<Arc<Site>>,
    Path((job, word)): Path<(String, String)>,
    Form(sent): Form<ActForm>,
) -> Response {
    let Some(act) = JobAct::of_verb(&word) else { return unknown() };
    if !site.is_form_token(&sent.token) {
        let text = "The form has no valid token. Nothing was changed. Open the page again.";
        return message_page(StatusCode::FORBIDDEN, "Unknown form", text);
    }
    let more = match more(&sent) {
        Ok(more) => more,
        Err(fault) => return fault_page(&fault),
    };
    // A cancel loses work, so a press alone does not do it.
    let named = async {
        if act != JobAct::Cancel {
            return Ok((String::new(), None));
        }
        let dir = find_job::find(&site.store, Some(&job)).await?;
        let name = name_of(&dir).await;
        if is_name(&sent.name, &name) {
            return Ok((name, None));
        }
        let foretold = job_act::foretell(&dir, act, &More::default(), site.clock.now()).await?;
        Ok((name, Some(foretold)))
    };
    let asked = |name, sentence| AskedAct { job: &job, name, word: &word, act, sentence };
    let name = match named.await {
        Ok((name, None)) => name,
        Ok((name, Some(sentence))) => {
            let again = question(&site, &asked(name, sentence), &sent, false);
            return (StatusCode::BAD_REQUEST, again).into_response();
        }
        Err(fault) => return fault_page(&fault),
    };
    let face = Arc::new(LaterFace::new(sent.confirmed == "yes"));
    let done =
        job_act::carry_out(site.act_place(), Arc::clone(&face), job.clone(), act, more).await;
    site.look_again();
    match (done, face.question()) {
        (Ok(_), _) => {
            Page::new("It is recorded").show(recorded(&job, &face.said()), html! {}).into_response()
        }
        (Err(_), Some(said)) => question(&site, &asked(name, said), &sent, true),
        (Err(fault), None) => fault_page(&fault),
    }
}

fn more(sent: &ActForm) -> Result<More, Fault> {
    let wrong = |what: &str| {
        Fault::new(ExitCode::USAGE, format!("`{what}` is not understood"))
            .meaning("nothing was changed")
            .hint("write a time like `2h`, and dollars like `5`")
    };
    let (time, budget) = (sent.time.trim(), sent.budget.trim().trim_start_matches('$'));
    let time = (!time.is_empty()).then(|| time.parse::<Span>().map_err(|_| wrong(time)));
    let usd = || budget.parse().ok().and_then(|usd| Usd::from_dollars(usd).ok());
    let budget = (!budget.is_empty()).then(|| usd().ok_or_else(|| wrong(budget)));
    Ok(More { time: time.transpose()?, budget: budget.transpose()?, ..More::default() })
}

fn recorded(job: &str, said: &[SessionLine]) -> Markup {
    html! {
        section aria-label="What was recorded" {
            @for said in said {
                @match said {
                    SessionLine::Note(text) => p { (in_code(text)) },
                    SessionLine::Warning(text) => p.warn { (in_code(text)) },
                    SessionLine::Hint(text) => p.muted { (in_code(text)) },
                }
            }
            p { a href=(format!("/job/{job}")) { "Back to the job" } }
        }
    }
}

fn unknown() -> Response {
    nothing_page("There is no page with this address.")
}
