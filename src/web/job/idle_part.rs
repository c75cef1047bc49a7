//! "What if idle were 10 m": a form, and the answer of the idle rule on the stored samples.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};

use super::job_look::JobLook;
use crate::app::analysis::idle_replay::{IdleTrial, IdleWindowTrial};
use crate::app::text::local_time;
use crate::app::view::plot_data::{began, each_sample};
use crate::app::{Fault, record_errors};
use crate::job::AttemptNo;
use crate::market::{Span, UsdPerHour};
use crate::web::layout::in_code;

/// The page waits so long for all samples of the attempt. A longer wait ends the page itself.
pub const REPLAYED_WITHIN: Duration = Duration::from_secs(10);

/// The answer, or why there is none.
pub enum IdleAnswer {
    /// Nothing was asked.
    None,
    NotUnderstood(String),
    /// The samples took longer than [`REPLAYED_WITHIN`].
    TooLong,
    Replayed(IdleWindowTrial, Option<Timestamp>),
}

/// Replays the samples of one attempt with this window.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn idle_answer(
    look: &JobLook,
    attempt: AttemptNo,
    asked: &str,
) -> Result<IdleAnswer, Fault> {
    let asked = asked.trim();
    if asked.is_empty() {
        return Ok(IdleAnswer::None);
    }
    let window = match asked.parse::<Span>() {
        Ok(window) if window > Span::ZERO => window,
        _ => return Ok(IdleAnswer::NotUnderstood(asked.to_owned())),
    };
    let Some(spec) = &look.spec else { return Ok(IdleAnswer::None) };
    let attempts = look.explained.attempts.iter();
    let plan =
        attempts.clone().find(|one| one.attempt == attempt).and_then(|one| one.plan.as_ref());
    let hourly = plan.map_or(UsdPerHour::ZERO, |plan| plan.offer.hourly());
    let mut trial = IdleTrial::new(&spec.spec.watch.idle, window, hourly);
    let mut zero = None;
    let read = each_sample(&look.dir, attempt, usize::MAX, |rates| {
        zero = zero.or_else(|| began(&rates));
        trial.step(&rates);
    });
    read.await.map_err(|error| record_errors::record_fault(&error))?;
    Ok(IdleAnswer::Replayed(trial.end(), zero))
}

pub fn idle_part(look: &JobLook, attempt: AttemptNo, asked: &str, answer: &IdleAnswer) -> Markup {
    let id = look.dir.job();
    let window = look.spec.as_ref().map(|spec| match spec.spec.watch.idle.window {
        Some(window) => window.to_string(),
        None => "off".to_owned(),
    });
    html! {
        form.filter method="get" action=(format!("/job/{id}#idle")) {
            label for="idle-window" { "What if idle were" }
            input #idle-window name="idle" value=(asked) placeholder="10m" autocomplete="off" size="6";
            input type="hidden" name="attempt" value=(attempt.number());
            button { "Replay" }
        }
        @match answer {
            IdleAnswer::None => {}
            IdleAnswer::NotUnderstood(text) => p.warn role="alert" {
                "`" (text) "` is no time. Write it like " code { "10m" } "."
            }
            IdleAnswer::TooLong => p.warn role="alert" {
                "The samples could not be read within " (REPLAYED_WITHIN.as_secs()) " s. Their plots "
                "come when they are read; then ask again."
            }
            IdleAnswer::Replayed(trial, zero) => (told(trial, *zero)),
        }
        p.muted {
            "The idle rule of this program, on the stored samples of attempt " (attempt.number()) ". "
            @if let Some(window) = &window { "This job has " code { "idle = \"" (window) "\"" } ". " }
            "A restart of the workload is not replayed."
        }
    }
}

fn told(trial: &IdleWindowTrial, zero: Option<Timestamp>) -> Markup {
    if trial.samples == 0 {
        return html! { p #idle-answer { "There are no samples of this attempt." } };
    }
    let ended = trial.ends_at_secs.and_then(|secs| {
        let after = std::time::Duration::try_from_secs_f64(secs).ok()?;
        Some(local_time(zero?.checked_add(after).ok()?))
    });
    let sentence = trial.text(ended.as_deref());
    let mut letters = sentence.chars();
    let sentence: String =
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    html! {
        p #idle-answer class=[trial.is_wrong().then_some("warn")] { (in_code(&sentence)) "." }
        @if let Some(reason) = &trial.reason { p.muted { "Its verdict: " (reason) } }
    }
}
