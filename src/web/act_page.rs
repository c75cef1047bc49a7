//! Stop, cancel, extend and save: a page that says what the act does to the job and to its bill,
//! and the form that does it.
//!
//! ```text
//! GET /job/J/stop ─> sentence and form ─POST─> app::stop ─> what was recorded
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::layout::{Page, fault_page, in_code, message_page};
use super::site::Site;
use crate::app::extend::{More, extend};
use crate::app::session::{Face, Said, Session};
use crate::app::stop::{self, Asked, How, Named};
use crate::app::{ExitCode, Fault, find_job, save_now};
use crate::job::Wish;
use crate::market::{Span, Usd};

#[derive(Clone, Default, Deserialize)]
pub struct Sent {
    #[serde(default)]
    token: String,
    /// The person has read the question of another owner's machine.
    #[serde(default)]
    confirmed: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    budget: String,
}

/// The acts that a person can ask for here.
#[derive(Clone, Copy, PartialEq)]
pub enum Act {
    Stop,
    Cancel,
    Extend,
    Save,
}

impl Act {
    pub fn of(word: &str) -> Option<Act> {
        match word {
            "stop" => Some(Act::Stop),
            "cancel" => Some(Act::Cancel),
            "extend" => Some(Act::Extend),
            "save" => Some(Act::Save),
            _ => None,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Act::Stop => "Stop this job",
            Act::Cancel => "Cancel this job",
            Act::Extend => "Give this job more",
            Act::Save => "Save a checkpoint now",
        }
    }
}

pub async fn ask(
    State(site): State<Arc<Site>>,
    Path((job, word)): Path<(String, String)>,
) -> Response {
    let Some(act) = Act::of(&word) else { return unknown() };
    let foretold = async {
        let dir = find_job::find(&site.store, Some(&job)).await?;
        let now = site.clock.now();
        match act {
            Act::Stop => stop::foretell(&dir, Wish::Stop, now).await,
            Act::Cancel => stop::foretell(&dir, Wish::Cancel, now).await,
            Act::Save => save_now::foretell(&dir).await,
            Act::Extend => {
                find_job::must_be_under_way(&dir).await?;
                Ok("The job may run longer, or spend more. Its machine bills until its new end at the latest".to_owned())
            }
        }
    };
    match foretold.await {
        Ok(sentence) => question(&site, &job, &word, act, &sentence, &Sent::default(), false),
        Err(fault) => fault_page(&fault),
    }
}

fn question(
    site: &Site,
    job: &str,
    word: &str,
    act: Act,
    sentence: &str,
    sent: &Sent,
    is_confirmation: bool,
) -> Response {
    let body = html! {
        section.need aria-label="What it does" { p { (in_code(&capital(sentence))) "." } }
        form.act method="post" action=(format!("/job/{job}/act/{word}")) {
            input type="hidden" name="token" value=(site.form_token());
            @if is_confirmation { input type="hidden" name="confirmed" value="yes"; }
            @if act == Act::Extend {
                label { "More time, like 2h " input name="time" value=(sent.time) autocomplete="off"; }
                label { "More dollars on its budget, like 5 " input name="budget" value=(sent.budget) inputmode="decimal" autocomplete="off"; }
            }
            button { (act.title()) }
            a href=(format!("/job/{job}")) { "Back, without a change" }
        }
        @if act != Act::Save {
            p.muted { "The same: " code { "lamp " (word) " " (job) @if act == Act::Extend { " 2h" } } }
        }
    };
    Page::new(act.title()).show(html! { p { (job) } (body) }, html! {}).into_response()
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

pub async fn act(
    State(site): State<Arc<Site>>,
    Path((job, word)): Path<(String, String)>,
    Form(sent): Form<Sent>,
) -> Response {
    let Some(act) = Act::of(&word) else { return unknown() };
    if !site.is_form_token(&sent.token) {
        let text = "The form has no valid token. Nothing was changed. Open the page again.";
        return message_page(StatusCode::FORBIDDEN, "Unknown form", text);
    }
    let more = match more(&sent) {
        Ok(more) => more,
        Err(fault) => return fault_page(&fault),
    };
    let face = Arc::new(PageFace::new(sent.confirmed == "yes"));
    let done = carry_out(Arc::clone(&site), Arc::clone(&face), job.clone(), act, more).await;
    match (done, face.question()) {
        (Ok(_), _) => {
            Page::new("It is recorded").show(recorded(&job, &face.said()), html! {}).into_response()
        }
        (Err(_), Some(asked)) => question(&site, &job, &word, act, &asked, &sent, true),
        (Err(fault), None) => fault_page(&fault),
    }
}

fn more(sent: &Sent) -> Result<More, Fault> {
    let wrong = |what: &str| {
        Fault::new(ExitCode::USAGE, format!("`{what}` is not understood"))
            .meaning("nothing was changed")
            .hint("write a time like `2h`, and dollars like `5`")
    };
    let (time, budget) = (sent.time.trim(), sent.budget.trim().trim_start_matches('$'));
    let time = (!time.is_empty()).then(|| time.parse::<Span>().map_err(|_| wrong(time)));
    let usd = || budget.parse().ok().and_then(|usd| Usd::from_dollars(usd).ok());
    let budget = (!budget.is_empty()).then(|| usd().ok_or_else(|| wrong(budget)));
    Ok(More { time: time.transpose()?, budget: budget.transpose()?, fallback_cost: None })
}

/// Carries an act out, and returns what `-o json` prints about it. An act asks its face in between,
/// so it stays on one thread of its own.
///
/// # Errors
/// Fails when the job has ended, the person was asked first, or the job root is unreachable.
pub async fn carry_out(
    site: Arc<Site>,
    face: Arc<PageFace>,
    job: String,
    act: Act,
    more: More,
) -> Result<Value, Fault> {
    let runtime = tokio::runtime::Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            let session = Session {
                store: &site.store,
                workstation: &site.workstation,
                clock: &site.clock,
                is_misread: site.is_misread,
                face: &*face,
            };
            let wish = match act {
                Act::Save => {
                    let dir = find_job::find_under_way(&site.store, Some(&job)).await?;
                    let saved = save_now::save_now(&session, &dir).await?;
                    return serde_json::to_value(saved).map_err(|error| unfinished(&error));
                }
                Act::Stop => Wish::Stop,
                Act::Cancel => Wish::Cancel,
                Act::Extend => {
                    let extended = extend(&session, &job, more).await?;
                    return serde_json::to_value(extended).map_err(|error| unfinished(&error));
                }
            };
            let dir = find_job::find_under_way(&site.store, Some(&job)).await?;
            // A page that is open since before its end must not give up what the job keeps.
            find_job::must_be_under_way(&dir).await?;
            let how = How { wish, wait: false, named: Named::Itself, several: false };
            Ok(match stop::ask(&session, dir, how).await? {
                Asked::Over(_, document) => document,
                Asked::Stands(standing) => standing.document,
            })
        })
    });
    work.await.unwrap_or_else(|error| Err(unfinished(&error)))
}

fn unfinished(error: &(dyn std::error::Error + 'static)) -> Fault {
    Fault::new(ExitCode::INTERNAL, "the act was not finished").because(error)
}

fn recorded(job: &str, said: &[Said]) -> Markup {
    html! {
        section aria-label="What was recorded" {
            @for said in said {
                @match said {
                    Said::Note(text) => p { (in_code(text)) },
                    Said::Warning(text) => p.warn { (in_code(text)) },
                    Said::Hint(text) => p.muted { (in_code(text)) },
                }
            }
            p { a href=(format!("/job/{job}")) { "Back to the job" } }
        }
    }
}

fn unknown() -> Response {
    message_page(StatusCode::NOT_FOUND, "Nothing there", "There is no page with this address.")
}

/// A page cannot wait for an answer: a question ends the act, and is shown as a form.
#[derive(Default)]
pub struct PageFace {
    confirmed: bool,
    asked: Mutex<Option<String>>,
    said: Mutex<Vec<Said>>,
}

impl PageFace {
    pub fn new(confirmed: bool) -> PageFace {
        PageFace { confirmed, ..PageFace::default() }
    }

    pub fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn question(&self) -> Option<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Face for PageFace {
    fn confirm(&self, what: &str, otherwise: &str) -> Result<(), Fault> {
        if self.confirmed {
            return Ok(());
        }
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
        Err(Fault::new(ExitCode::REFUSED, what).meaning(otherwise))
    }

    fn tell(&self, said: Said) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(said);
    }
}
