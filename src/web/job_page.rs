//! The page of a job: its sentence, money, samples, log, attempts, receipt and timeline.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Page, fault_box, fault_page, form_encoded};
use super::plots::{self, Plots};
use super::site::Site;
use super::{job_log, live};
use crate::app::overview::driven_here::seen_from_here;
use crate::app::overview::job_sentence::{NextEnd, job_sentence};
use crate::app::text::{in_local_time, local_time};
use crate::app::view::job_summary::Summary;
use crate::app::view::receipt_text::{at_most, loss_text};
use crate::app::view::summary_text::{money_text, progress_text, spent_text, usage_text};
use crate::app::view::timeline::{self, Entry, Explained, ExplainedAttempt};
use crate::app::{Fault, find_job, record_errors};
use crate::job::{AttemptNo, Receipt};
use crate::jobdir::JobDir;
use crate::market::Span;

#[derive(Clone, Default, Deserialize)]
pub struct Asked {
    attempt: Option<u32>,
    /// Lines of the log with this text.
    #[serde(default)]
    find: String,
}

/// All records of a job that its page shows.
struct Facts {
    dir: JobDir,
    summary: Option<Summary>,
    explained: Explained,
    receipt: Option<Receipt>,
    attempt: AttemptNo,
    log: Markup,
}

impl Facts {
    async fn read(site: &Site, job: &str, asked: &Asked) -> Result<Facts, Fault> {
        let dir = find_job::find(&site.store, Some(job)).await?;
        let fault = |error| record_errors::record_fault(&error);
        let receipt = dir.receipt().await.map_err(fault)?;
        let summary = match receipt.clone() {
            Some(receipt) => Summary::ended(&dir, receipt).await.map(Some),
            None => Summary::open(&dir, site.clock.now()).await,
        };
        let summary = summary.map_err(fault)?;
        let explained = timeline::of(&dir, summary.as_ref()).await.map_err(fault)?;
        let summary = summary.map(|summary| seen_from_here(&site.workstation, &mut None, summary));
        let attempt = plots::chosen(&explained, asked.attempt);
        let log = job_log::tail(&dir, attempt, &asked.find).await.map_err(fault)?;
        Ok(Facts { dir, summary, explained, receipt, attempt, log })
    }
}

pub async fn page(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    let facts = match Facts::read(&site, &job, &asked).await {
        Ok(facts) => facts,
        Err(fault) => return fault_page(&fault),
    };
    let drawn = match Plots::read(&facts.dir, &facts.explained, facts.attempt).await {
        Ok(plots) => plots.draw(facts.dir.job().as_str()),
        Err(fault) => fault_box(&fault),
    };
    let name = facts.summary.as_ref().map_or(job.as_str(), |summary| summary.name.as_str());
    let (id, attempt) = (facts.dir.job(), facts.attempt.number());
    let find = form_encoded(&asked.find);
    Page::new(name)
        .live(format!("/job/{id}/live?attempt={attempt}&find={find}"))
        .show(html! {}, body(&facts, &asked, drawn))
        .into_response()
}

pub async fn events(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    live::stream(site, move |site| {
        let (job, asked) = (job.clone(), asked.clone());
        async move {
            // The browser keeps the plots that it has.
            let drawn = match Facts::read(&site, &job, &asked).await {
                Ok(facts) => body(&facts, &asked, html! {}),
                Err(fault) => fault_box(&fault),
            };
            drawn.into_string()
        }
    })
    .into_response()
}

fn body(facts: &Facts, asked: &Asked, drawn: Markup) -> Markup {
    let (id, attempt) = (facts.dir.job().as_str(), facts.attempt.number());
    html! {
        @if let Some(summary) = &facts.summary { (head(summary)) }
        section aria-labelledby="samples" {
            h2 #samples { "Machine, attempt " (attempt) }
            div #plots data-keep data-from=(format!("/job/{id}/plot.json?attempt={attempt}")) { (drawn) }
        }
        section aria-labelledby="log" {
            h2 #log { "Log, attempt " (attempt) }
            form.filter role="search" method="get" action=(format!("/job/{id}#log")) {
                label for="find" { "Find" }
                input #find type="search" name="find" value=(asked.find) autocomplete="off";
                input type="hidden" name="attempt" value=(attempt);
                button { "Find" }
                a href=(format!("/job/{id}?attempt={attempt}&find=error#log")) { "errors" }
                @if !asked.find.is_empty() {
                    a href=(format!("/job/{id}?attempt={attempt}#log")) { "the end of the log" }
                }
            }
            (facts.log)
            p.muted { "The same: " code { "lamp logs " (id) } }
        }
        (attempts(id, facts))
        @if let Some(receipt) = &facts.receipt { (receipt_part(receipt)) }
        (story(facts))
    }
}

fn head(summary: &Summary) -> Markup {
    let line = |key: &str, value: Option<String>| {
        html! { @if let Some(value) = value { div { dt { (key) } dd { (value) } } } }
    };
    let end = NextEnd::of(summary).map(|end| local_time(end.at));
    let heard = summary.heartbeat_seconds.filter(|_| !summary.state.is_final());
    html! {
        section aria-label="Now" {
            p { strong { (job_sentence(summary)) } }
            dl.facts {
                (line("Job", Some(summary.job.clone())))
                (line("Spent", Some(spent_text(summary))))
                (line("Cost", Some(money_text(summary))))
                (line("Rate", summary.usd_per_hour.map(|hour| hour.to_string())))
                (line("Machine", summary.machine.as_ref().map(|machine| machine.line())))
                (line("Progress", summary.progress.as_ref().and_then(progress_text)))
                (line("Usage", usage_text(summary).filter(|_| summary.silence.is_none())))
                (line("Checkpoints", Some(summary.checkpoints.to_string())))
                (line("Nearest end", end))
                (line("Last heard", heard.map(|secs| format!("{} ago", Span::from_secs(secs as u64)))))
                (line("Started", Some(local_time(summary.started))))
                (line("Ended", summary.ended.map(local_time)))
            }
            @if summary.driven_here == Some(false) {
                p.warn { "No process on this workstation drives it: "
                    code { "lamp daemon --job " (summary.job) " --until-done" } }
            }
            @for attention in &summary.attention { p.warn { (attention) } }
            @if !summary.state.is_final() && !summary.alone {
                p.acts {
                    @for (word, text) in [("stop", "Stop"), ("extend", "Extend"), ("cancel", "Cancel")] {
                        a.button href=(format!("/job/{}/act/{word}", summary.job)) { (text) }
                    }
                }
            }
            p.muted { "The same: " code { "lamp status " (summary.job) } }
        }
    }
}

fn attempts(id: &str, facts: &Facts) -> Markup {
    let row = |attempt: &ExplainedAttempt| {
        let (plan, settled) = (attempt.plan.as_ref(), attempt.settled.as_ref());
        let no = attempt.attempt.number();
        let from = settled
            .and_then(|settled| settled.outcome.as_ref()?.resumed_from.as_ref())
            .map(|from| from.told());
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
            div.wide {
                table {
                    thead { tr {
                        @for heading in ["No", "Type", "Zone", "Market", "Price", "Began", "From", "Ended because", "Cost"] { th { (heading) } }
                    } }
                    tbody { @for attempt in &facts.explained.attempts { (row(attempt)) } }
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

fn story(facts: &Facts) -> Markup {
    let line = |entry: &Entry| {
        html! { tr { td { (local_time(entry.at)) } td { (entry.word) } td { (entry.text) } } }
    };
    html! {
        section aria-labelledby="timeline" {
            h2 #timeline { "Timeline" }
            @for (attempt, entries) in timeline::story(&facts.explained, false) {
                h3 { "Attempt " (attempt.number()) }
                div.wide { table { tbody { @for entry in &entries { (line(entry)) } } } }
            }
            p.muted { "The same: " code { "lamp explain " (facts.dir.job()) } }
        }
    }
}
