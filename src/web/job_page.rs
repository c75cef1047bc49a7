//! The page of a job: its sentence, money, samples, log, attempts, receipt and timeline.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::job::ends_part::ends_part;
use super::job::gang_part::gang_part;
use super::job::gpu_part::gpu_part;
use super::job::idle_part::{IdleAnswer, REPLAYED_WITHIN, idle_answer, idle_part};
use super::job::job_look::JobLook;
use super::job::plot_scope::{self, PlotScope};
use super::job::startup_part::startup_part;
use super::job::verdict_part::verdict_part;
use super::job_log::LogPart;
use super::layout::{Page, fact, fault_box, fault_event, fault_page, form_encoded};
use super::plots::Plots;
use super::site::Site;
use super::{job_log, live};
use crate::app::analysis::job_outlook::JobOutlook;
use crate::app::analysis::sample_cache::AttemptPlot;
use crate::app::overview::eta::Eta;
use crate::app::overview::job_sentence::job_sentence;
use crate::app::text::{in_local_time, local_time};
use crate::app::view::job_summary::Summary;
use crate::app::view::plot_data::PlotData;
use crate::app::view::summary_text::{
    at_most, loss_text, money_text, progress_text, spent_text, usage_text,
};
use crate::app::view::timeline::{self, Explained, ExplainedAttempt, TimelineEntry};
use crate::app::{ExitCode, Fault, record_errors};
use crate::job::{AttemptNo, JobState, Receipt};
use crate::market::Span;

/// The page waits so long for its plots. The samples of a week in a bucket take half a minute.
const DRAWN_WITHIN: Duration = Duration::from_secs(3);

/// Entries of the timeline. An open page gets all of it again and again, and a week has a thousand.
const ENTRIES_SHOWN: usize = 200;

type AttemptEntries = Vec<(AttemptNo, Vec<TimelineEntry>)>;

#[derive(Clone, Default, Deserialize)]
pub struct JobQuery {
    attempt: Option<u32>,
    /// Lines of the log with this text.
    #[serde(default)]
    find: String,
    /// The first error of the log, with the lines around it.
    #[serde(default)]
    jump: bool,
    /// The log around this moment.
    at: Option<Timestamp>,
    /// Another idle window, like `10m`.
    #[serde(default)]
    idle: String,
}

impl JobQuery {
    fn log_part(&self) -> LogPart<'_> {
        match (self.at, self.jump, self.find.as_str()) {
            (Some(at), ..) => LogPart::Around(at),
            (None, _, find) if !find.is_empty() => LogPart::With(find),
            (None, true, _) => LogPart::FirstError,
            (None, false, _) => LogPart::End,
        }
    }

    fn is_end_of_log(&self) -> bool {
        matches!(self.log_part(), LogPart::End)
    }
}

/// The page's content: the shared look, and the parts that only this page asked for.
struct JobPageFacts {
    look: Arc<JobLook>,
    attempt: AttemptNo,
    scope: PlotScope,
    log: Markup,
    /// `None`: the samples are still being read.
    plot: Option<Arc<AttemptPlot>>,
}

impl JobPageFacts {
    async fn read(
        site: &Arc<Site>,
        job: &str,
        asked: &JobQuery,
        age: Duration,
    ) -> Result<JobPageFacts, Fault> {
        let look = site.looks.of(plot_scope::source(site), job, age).await?;
        let scope = PlotScope::of_page(&look.explained, asked.attempt);
        let attempt = scope.newest;
        let log = job_log::part(&look.dir, attempt, asked.log_part())
            .await
            .map_err(|error| record_errors::record_fault(&error))?;
        // The pages of a job share these samples. They are read at most once a look.
        let (own_site, own_look) = (Arc::clone(site), Arc::clone(&look));
        let reading =
            async move { plot_scope::samples_of(&own_site, &own_look.dir, attempt).await };
        let plot = read_soon(site, reading).await.transpose()?;
        Ok(JobPageFacts { look, attempt, scope, log, plot })
    }
}

pub async fn page(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<JobQuery>,
) -> Response {
    // A person who loads the page again wants what is true now.
    let facts = match JobPageFacts::read(&site, &job, &asked, Duration::ZERO).await {
        Ok(facts) => facts,
        Err(fault) => return fault_page(&fault),
    };
    let look = &*facts.look;
    let answer = async {
        tokio::select! {
            answer = idle_answer(look, facts.attempt, &asked.idle) => answer,
            () = site.clock.sleep(REPLAYED_WITHIN) => Ok(IdleAnswer::TooLong),
        }
    };
    let (drawn, answer) = tokio::join!(drawn(&site, &facts), answer);
    let idle = match answer {
        Ok(answer) => idle_part(look, facts.attempt, &asked.idle, &answer),
        Err(fault) => fault_box(&fault),
    };
    let name = look.summary.as_ref().map_or(job.as_str(), |summary| summary.name.as_str());
    let (id, attempt) = (look.dir.job(), facts.attempt.number());
    let find = form_encoded(&asked.find);
    let mut shown = Page::new(name);
    // The records of an ended job stay as they are.
    // A moment of the log does too: each look at it lists all pieces.
    let is_open = look.summary.as_ref().is_none_or(|summary| !summary.state.is_final());
    if is_open && asked.at.is_none() {
        // Without a chosen attempt the page goes on with the next one.
        let chosen = asked.attempt.map(|_| format!("&attempt={attempt}")).unwrap_or_default();
        let jump = if asked.jump { "&jump=true" } else { "" };
        shown = shown.live(format!("/job/{id}/live?find={find}{jump}{chosen}"));
    }
    shown.show(html! {}, body(&facts, &asked, drawn, idle)).into_response()
}

/// The plots, or a sentence while a long attempt is read for the first time.
async fn drawn(site: &Arc<Site>, facts: &JobPageFacts) -> Markup {
    // Who has waited for the samples once does not wait again.
    if facts.plot.is_none() {
        return still_reading();
    }
    let (own_site, own_look) = (Arc::clone(site), Arc::clone(&facts.look));
    let scope = facts.scope.clone();
    let reading = async move { Plots::read(&own_site, &own_look, &scope).await };
    match read_soon(site, reading).await {
        Some(Ok(plots)) => plots.draw(facts.look.dir.job().as_str()),
        Some(Err(fault)) => fault_box(&fault),
        None => still_reading(),
    }
}

fn still_reading() -> Markup {
    html! {
        p #reading role="status" {
            "The samples are still being read. The plots come when they are. Without a script: "
            "load the page again."
        }
    }
}

/// What is read within [`DRAWN_WITHIN`]. `None`: the reading goes on, and the cache keeps it.
async fn read_soon<T: Send + 'static>(
    site: &Site,
    reading: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Option<Result<T, Fault>> {
    let reading = tokio::spawn(reading);
    let read = tokio::select! {
        read = reading => read,
        () = site.clock.sleep(DRAWN_WITHIN) => return None,
    };
    let failed = |_| Err(Fault::new(ExitCode::INTERNAL, "the samples could not be read"));
    Some(read.unwrap_or_else(failed))
}

pub async fn events(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<JobQuery>,
    address: Uri,
) -> Response {
    live::stream(site, address, move |site| {
        let (job, asked) = (job.clone(), asked.clone());
        async move {
            // The browser keeps the plots and the replay that it has.
            match JobPageFacts::read(&site, &job, &asked, site.every()).await {
                Ok(facts) => body(&facts, &asked, html! {}, html! {}).into_string(),
                Err(fault) => fault_event(&fault),
            }
        }
    })
    .into_response()
}

fn body(facts: &JobPageFacts, asked: &JobQuery, drawn: Markup, idle: Markup) -> Markup {
    let (look, attempt) = (&*facts.look, facts.attempt.number());
    let id = look.dir.job().as_str();
    let plot = facts.plot.clone().unwrap_or_default();
    html! {
        @if let Some(summary) = &look.summary { (head(summary, look, &plot.data)) }
        @if let Some(gang) = &look.gang { (gang_part(gang)) }
        @if let Some(summary) = &look.summary { (gpu_part(summary, &plot.gpus)) }
        section aria-labelledby="samples" {
            h2 #samples { "Machine, " (facts.scope.words()) }
            (other_scope(facts))
            div #plots data-keep data-from=(format!("/job/{id}/plot.json?{}", facts.scope.query())) { (drawn) }
        }
        section aria-labelledby="log" {
            h2 #log { "Log, attempt " (attempt) }
            form.filter role="search" method="get" action=(format!("/job/{id}#log")) {
                label for="find" { "Find" }
                input #find type="search" name="find" value=(asked.find) autocomplete="off";
                input type="hidden" name="attempt" value=(attempt);
                button { "Find" }
                a href=(format!("/job/{id}?attempt={attempt}&jump=true#log")) { "first error" }
                @if !asked.is_end_of_log() {
                    a href=(format!("/job/{id}?attempt={attempt}#log")) { "the end of the log" }
                }
            }
            (facts.log)
            p.muted { "The same: " code { "lamp logs " (id) } }
        }
        section aria-labelledby="idle" {
            h2 #idle { "Another idle window" }
            div #idle-trial data-keep { (idle) }
        }
        (attempts(id, facts))
        (startup_part(&look.startups))
        @if let Some(receipt) = &look.receipt { (receipt_part(receipt)) }
        (story(&look.explained))
    }
}

/// From all attempts to one, and back.
fn other_scope(facts: &JobPageFacts) -> Markup {
    let (id, attempt) = (facts.look.dir.job(), facts.attempt.number());
    let has_all = PlotScope::of_page(&facts.look.explained, None).is_all;
    html! {
        @if facts.scope.is_all {
            p { a href=(format!("/job/{id}?attempt={attempt}#samples")) { "Only attempt " (attempt) } }
        } @else if has_all {
            p { a href=(format!("/job/{id}#samples")) { "The newest attempts on one time axis" } }
        }
    }
}

fn head(summary: &Summary, look: &JobLook, data: &PlotData) -> Markup {
    let outlook = JobOutlook::of(summary, look.status.as_ref(), data);
    let reason = look.status.as_ref().and_then(|status| status.reason.as_ref());
    let nearest = summary.ends.first().map(|end| local_time(end.at));
    let heard = summary.heartbeat_seconds.filter(|_| !summary.state.is_final());
    html! {
        section.now aria-label="Now" {
            p { strong { (job_sentence(summary)) } }
            dl.facts {
                (fact("Job", Some(summary.job.clone())))
                (fact("Spent", Some(spent_text(summary))))
                (fact("Cost", Some(money_text(summary))))
                (fact("Idle", look.lost.idle_text()))
                (fact("Interrupted", look.lost.interruptions_text()))
                (fact("Rate", summary.usd_per_hour.map(|hour| hour.to_string())))
                (fact("Machine", summary.machine.as_ref().map(|machine| machine.line())))
                (fact("Progress", summary.progress.as_ref().and_then(progress_text)))
                (fact("Expected", Eta::of(summary, look.at).map(|eta| eta.text())))
                @if !summary.state.is_final() {
                    (fact("To the end", outlook.to_end_text()))
                    (fact("Work at risk", outlook.at_risk_text()))
                    (fact("Memory", outlook.memory_text()))
                    (fact("Disk", outlook.disk_text()))
                    (fact("Ends alone", look.proof.clone()))
                }
                (fact("Usage", usage_text(summary).filter(|_| summary.silence.is_none())))
                (fact("Checkpoints", Some(summary.checkpoints.to_string())))
                (fact("Nearest end", nearest))
                (fact("Kept until", summary.kept_until.map(local_time)))
                (fact("Last heard", heard.map(|secs| format!("{} ago", Span::from_secs(secs as u64)))))
                (fact("Started", Some(local_time(summary.started))))
                (fact("Ended", summary.ended.map(local_time)))
            }
            (ends_part(&summary.ends, look.at))
            @if let Some(reason) = reason.filter(|_| summary.silence.is_none()) { (verdict_part(reason)) }
            @if summary.driven_here == Some(false) {
                p.warn { "No process on this workstation drives it: "
                    code { "lamp daemon --job " (summary.job) " --until-done" } }
            }
            @for attention in &summary.attention { p.warn { (attention) } }
            @if let Some(command) = shell_command(summary) {
                p { "A shell on its machine: " code { (command) } }
            }
            @if !summary.state.is_final() && !summary.alone {
                p.acts {
                    @for (word, text) in acts(look) {
                        a.button href=(format!("/job/{}/act/{word}", summary.job)) { (text) }
                    }
                }
            }
            p.muted {
                "The same: " code { "lamp status " (summary.job) } ". "
                a href=(format!("/job/{}/share", summary.job)) { "Share as one file" }
            }
        }
    }
}

/// While a machine of a cloud runs. A person on this workstation needs no shell.
fn shell_command(summary: &Summary) -> Option<String> {
    use JobState::{Draining, Held, Preparing, Running};
    let runs = matches!(summary.state, Preparing | Running | Draining | Held);
    let is_away = summary.machine.as_ref().is_some_and(|machine| !machine.is_here());
    (runs && is_away && summary.instance.is_some()).then(|| format!("lamp ssh {}", summary.job))
}

/// A job that cannot be asked to save has no button for it.
fn acts(look: &JobLook) -> Vec<(&'static str, &'static str)> {
    let checkpoint = look.spec.as_ref().and_then(|spec| spec.spec.checkpoint.as_ref());
    let can_save = checkpoint.is_some_and(|checkpoint| checkpoint.signal.is_some());
    let is_running = look.summary.as_ref().is_some_and(|one| one.state == JobState::Running);
    let save = (can_save && is_running).then_some(("save", "Save now"));
    let acts = [("stop", "Stop"), ("extend", "Extend"), ("keep", "Keep 1h"), ("cancel", "Cancel")];
    save.into_iter().chain(acts).collect()
}

fn attempts(id: &str, facts: &JobPageFacts) -> Markup {
    let row = |attempt: &ExplainedAttempt| {
        let (plan, settled) = (attempt.plan.as_ref(), attempt.settled.as_ref());
        let no = attempt.attempt.number();
        let from = attempt.resumed_from().map(|from| from.told());
        html! {
            tr {
                td { a href=(format!("/job/{id}?attempt={no}")) aria-current=[(attempt.attempt == facts.attempt).then_some("page")] { (no) } }
                td { (plan.map(|plan| plan.offer.instance_type.clone()).unwrap_or_default()) }
                td { (plan.map(|plan| plan.offer.zone.to_string()).unwrap_or_default()) }
                td { (plan.map(|plan| plan.offer.market.to_string()).unwrap_or_default()) }
                td.number { (plan.map(|plan| plan.offer.hourly().to_string()).unwrap_or_default()) }
                td { (attempt.began().map(local_time).unwrap_or_default()) }
                td { (from.unwrap_or_else(|| "the beginning".to_owned())) }
                td { (settled.map_or_else(|| "under way".to_owned(), |settled| settled.because.word().replace('_', " "))) }
                td.number { (settled.map(|settled| settled.usd.to_string()).unwrap_or_default()) }
            }
        }
    };
    html! {
        section aria-labelledby="attempts" {
            h2 #attempts { "Attempts" }
            div.wide tabindex="0" role="group" aria-labelledby="attempts" {
                table {
                    thead { tr {
                        @for heading in ["No", "Type", "Zone", "Market", "Price", "Began", "From", "Ended because", "Cost"] { th { (heading) } }
                    } }
                    tbody { @for attempt in &facts.look.explained.attempts { (row(attempt)) } }
                }
            }
        }
    }
}

fn receipt_part(receipt: &Receipt) -> Markup {
    let span = |secs: f64| Span::from_secs(secs.round() as u64).to_string();
    html! {
        section aria-labelledby="receipt" {
            h2 #receipt { "Receipt" }
            p { (in_local_time(&receipt.told())) ": " (in_local_time(&receipt.reason)) }
            dl.facts {
                div { dt { "Total" } dd { (at_most(receipt.is_estimated())) (receipt.total_usd) } }
                div { dt { "Useful" } dd { (span(receipt.useful_seconds)) } }
                div { dt { "Idle" } dd { (span(receipt.idle_seconds)) } }
                div { dt { "Checkpoints" } dd { (receipt.checkpoints) } }
                @if let Some(code) = receipt.exit_code { div { dt { "Exit code" } dd { (code) } } }
            }
            @for loss in &receipt.losses { p.warn { (loss_text(loss).trim_start()) } }
            p.muted { "The same: " code { "lamp receipt " (receipt.job) } }
        }
    }
}

/// The newest entries of all attempts, and the number of those left out.
fn newest(mut story: AttemptEntries, most: usize) -> (AttemptEntries, usize) {
    let all: usize = story.iter().map(|(_, entries)| entries.len()).sum();
    let older = all.saturating_sub(most);
    let mut left = older;
    for (_, entries) in &mut story {
        let gone = left.min(entries.len());
        entries.drain(..gone);
        left -= gone;
    }
    (story, older)
}

fn story(explained: &Explained) -> Markup {
    let line = |attempt: &AttemptNo, entry: &TimelineEntry| {
        let log = format!("?attempt={}&at={}#log", attempt.number(), entry.at);
        html! { tr {
            td { (local_time(entry.at)) } td { (entry.word) } td { (entry.text) }
            td { a href=(log) aria-label=(format!("Log at {}", local_time(entry.at))) { "log" } }
        } }
    };
    let (shown, older) = newest(timeline::story(explained, false), ENTRIES_SHOWN);
    html! {
        section aria-labelledby="timeline" {
            h2 #timeline { "Timeline" }
            @if older > 0 {
                p.muted { "Older entries not shown: " (older) ". All of them: "
                    code { "lamp explain " (explained.job) } }
            }
            @for (attempt, entries) in shown.iter().filter(|(_, entries)| !entries.is_empty()) {
                h3 { "Attempt " (attempt.number()) }
                div.wide tabindex="0" role="group" aria-label=(format!("Timeline of attempt {}", attempt.number())) {
                    table { tbody { @for entry in entries { (line(attempt, entry)) } } }
                }
            }
            p.muted { "The same: " code { "lamp explain " (explained.job) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_command_is_shown_while_a_cloud_machine_runs() {
        let text = include_str!("../../tests/data/v1/plan.json");
        let mut plan: crate::job::Plan = serde_json::from_str(text).expect("a plan");
        let of = |plan: &crate::job::Plan, state: JobState| {
            let summary = Summary {
                machine: Some(plan.into()),
                instance: Some("i-1".into()),
                ..Summary::example(state)
            };
            shell_command(&summary)
        };
        plan.offer.cloud = crate::market::CloudKind::Aws;
        let command = Some("lamp ssh example-222222".to_owned());
        assert_eq!(of(&plan, JobState::Running), command);
        assert_eq!(of(&plan, JobState::Succeeded), None);
        plan.offer.cloud = crate::market::CloudKind::Local;
        assert_eq!(of(&plan, JobState::Running), None);
    }

    #[test]
    fn newest_entries_of_all_attempts_are_kept() {
        let entry = |at: i64| TimelineEntry {
            at: Timestamp::from_second(at).expect("a moment"),
            word: "checkpoint",
            text: at.to_string(),
        };
        let story = || -> AttemptEntries {
            let attempt = |number: u32, from: i64| {
                (AttemptNo::new(number), (from..from + 3).map(entry).collect())
            };
            vec![attempt(1, 0), attempt(2, 3)]
        };
        let (shown, older) = newest(story(), 2);
        let texts: Vec<&str> =
            shown.iter().flat_map(|(_, entries)| entries).map(|one| one.text.as_str()).collect();
        assert_eq!((texts, older), (vec!["4", "5"], 4));
        assert_eq!(newest(story(), 200), (story(), 0));
    }
}
