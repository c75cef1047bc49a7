//! One file of a job for other people: HTML without scripts, links or anything to fetch.
//!
//! The folders of the user's home become `~`. The log and the texts of the job are in it as they
//! are: a person decides who gets the file.

use std::sync::{Arc, LazyLock};

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use regex::Regex;

use super::layout::{fact, fault_page};
use super::plots::{HEIGHT, WIDTH, lines, title};
use super::site::Site;
use crate::app::log_tail::LogTail;
use crate::app::overview::job_sentence::job_sentence;
use crate::app::text::{in_local_time, local_time, measure, readable};
use crate::app::view::job_summary::Summary;
use crate::app::view::plot_data::{PlotData, Series};
use crate::app::view::summary_text::{at_most, loss_text, progress_text, spent_text};
use crate::app::view::timeline::{self, Explained, ExplainedAttempt};
use crate::app::{Fault, find_job, record_errors};
use crate::job::{AttemptNo, Receipt};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::Span;
use crate::wire::StoreHandle;

/// Lines of the log's end. More makes a file that mail refuses; fewer hide the cause of an end.
const LOG_LINES: usize = 500;

/// Points of a plot: more than a wide screen shows.
const POINTS: usize = 600;

const STYLE: &str = include_str!("assets/style.css");

/// The page's `lamp share`, as a file to keep.
pub async fn file(State(site): State<Arc<Site>>, Path(job): Path<String>) -> Response {
    match of(&site.store, Some(&job), site.clock.now()).await {
        Ok(shared) => {
            let name = format!("attachment; filename=\"{}.html\"", shared.job);
            let kind = "text/html; charset=utf-8".to_owned();
            ([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], shared.html)
                .into_response()
        }
        Err(fault) => fault_page(&fault),
    }
}

/// A job as one file.
pub struct SharedJob {
    pub job: String,
    pub html: String,
}

/// # Errors
/// Fails when the job is missing, or the job root is unreachable.
pub async fn of(
    store: &StoreHandle,
    job: Option<&str>,
    now: Timestamp,
) -> Result<SharedJob, Fault> {
    let dir = find_job::find(store, job).await?;
    let told = read(&dir, now).await.map_err(|error| record_errors::record_fault(&error))?;
    let page = page(&dir, &told, now).into_string();
    Ok(SharedJob { job: dir.job().to_string(), html: without_home(&page) })
}

/// All that the file shows.
struct ToldJob {
    receipt: Option<Receipt>,
    summary: Option<Summary>,
    explained: Explained,
    attempts: Vec<ToldAttempt>,
}

/// The samples and the log of an attempt.
struct ToldAttempt {
    attempt: AttemptNo,
    plots: PlotData,
    log: String,
}

async fn read(dir: &JobDir, now: Timestamp) -> Result<ToldJob, JobDirError> {
    let (summary, receipt) = Summary::with_receipt(dir, now).await?;
    let explained = timeline::of(dir, summary.as_ref()).await?;
    let mut attempts = Vec::new();
    for attempt in &explained.attempts {
        let attempt = attempt.attempt;
        let plots = PlotData::read(dir, attempt, POINTS).await?;
        let end = LogTail::last(dir, attempt, LOG_LINES).await?;
        let log = readable(&String::from_utf8_lossy(&end.bytes));
        attempts.push(ToldAttempt { attempt, plots, log });
    }
    Ok(ToldJob { receipt, summary, explained, attempts })
}

fn page(dir: &JobDir, told: &ToldJob, now: Timestamp) -> Markup {
    let name = told.summary.as_ref().map_or(dir.job().as_str(), |summary| summary.name.as_str());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (name) " · Lamplighter" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (name) }
                    p.muted { "Job " code { (dir.job()) } ", as of " (local_time(now)) ", by Lamplighter" }
                    @if let Some(summary) = &told.summary { (head(summary)) }
                    @if let Some(receipt) = &told.receipt { (receipt_part(receipt)) }
                    (attempts(&told.explained))
                    @for attempt in &told.attempts { (attempt_part(attempt)) }
                    (story(&told.explained))
                }
            }
        }
    }
}

fn head(summary: &Summary) -> Markup {
    html! {
        section aria-label="In short" {
            p { strong { (job_sentence(summary)) } }
            dl.facts {
                (fact("Spent", Some(spent_text(summary))))
                (fact("Rate", summary.usd_per_hour.map(|hour| hour.to_string())))
                (fact("Machine", summary.machine.as_ref().map(|machine| machine.line())))
                (fact("Progress", summary.progress.as_ref().and_then(progress_text)))
                (fact("Checkpoints", Some(summary.checkpoints.to_string())))
                (fact("Started", Some(local_time(summary.started))))
                (fact("Ended", summary.ended.map(local_time)))
            }
        }
    }
}

fn receipt_part(receipt: &Receipt) -> Markup {
    let span = |secs: f64| Span::from_secs(secs.round() as u64).to_string();
    let total = format!("{}{}", at_most(receipt.is_estimated()), receipt.total_usd);
    html! {
        section aria-labelledby="receipt" {
            h2 #receipt { "Receipt" }
            p { (in_local_time(&receipt.told())) ": " (in_local_time(&receipt.reason)) }
            dl.facts {
                (fact("Total", Some(total)))
                (fact("Useful", Some(span(receipt.useful_seconds))))
                (fact("Idle", Some(span(receipt.idle_seconds))))
                (fact("Exit code", receipt.exit_code.map(|code| code.to_string())))
            }
            @for loss in &receipt.losses { p.warn { (loss_text(loss).trim_start()) } }
        }
    }
}

fn attempts(explained: &Explained) -> Markup {
    html! {
        section aria-labelledby="attempts" {
            h2 #attempts { "Attempts" }
            div.wide tabindex="0" role="group" aria-labelledby="attempts" {
                table {
                    thead { tr {
                        @for heading in ["No", "Type", "Zone", "Market", "Price", "Began", "Ended because", "Cost"] {
                            th scope="col" { (heading) }
                        }
                    } }
                    tbody { @for attempt in &explained.attempts { (attempt_row(attempt)) } }
                }
            }
        }
    }
}

fn attempt_row(attempt: &ExplainedAttempt) -> Markup {
    let (plan, settled) = (attempt.plan.as_ref(), attempt.settled.as_ref());
    let offer = plan.map(|plan| &plan.offer);
    html! {
        tr {
            td { (attempt.attempt.number()) }
            td { (offer.map(|offer| offer.instance_type.clone()).unwrap_or_default()) }
            td { (offer.map(|offer| offer.zone.to_string()).unwrap_or_default()) }
            td { (offer.map(|offer| offer.market.to_string()).unwrap_or_default()) }
            td.number { (offer.map(|offer| offer.hourly().to_string()).unwrap_or_default()) }
            td { (attempt.began().map(local_time).unwrap_or_default()) }
            td { (settled.map_or_else(|| "under way".to_owned(), |settled| settled.because.word().replace('_', " "))) }
            td.number { (settled.map(|settled| settled.usd.to_string()).unwrap_or_default()) }
        }
    }
}

fn attempt_part(told: &ToldAttempt) -> Markup {
    let no = told.attempt.number();
    html! {
        section aria-labelledby=(format!("machine-{no}")) {
            h2 id=(format!("machine-{no}")) { "Machine, attempt " (no) }
            @if told.plots.series.is_empty() { p.muted { "There are no samples." } }
            @for series in &told.plots.series { (drawing(series)) }
        }
        section aria-labelledby=(format!("log-{no}")) {
            h2 id=(format!("log-{no}")) { "Log, attempt " (no) }
            @if told.log.is_empty() { p.muted { "The log is empty." } } @else {
                pre.log tabindex="0" aria-labelledby=(format!("log-{no}")) { (told.log) }
                p.muted { "At most the last " (LOG_LINES) " lines are here." }
            }
        }
    }
}

fn label(series: &Series) -> String {
    let known = || series.values.iter().flatten().copied();
    let most = known().fold(0.0_f64, f64::max);
    let name = title(series.name);
    known().last().map_or_else(
        || format!("{name}: unknown"),
        |last| {
            let (last, most) = (measure(last, series.unit), measure(most, series.unit));
            format!("{name}: {last} at the end, at most {most}")
        },
    )
}

/// An unknown value is a gap.
fn drawing(series: &Series) -> Markup {
    let end = series.t_secs.last().copied().unwrap_or_default().max(1.0);
    let x = |secs: f64| format!("{:.1}", secs / end * WIDTH);
    html! {
        figure.plot {
            figcaption { (label(series)) span.muted { "over " (Span::from_secs(end as u64)) } }
            div.canvas {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label(series)) {
                    @for line in lines(series, x) { polyline points=(line.trim_end()) {} }
                }
            }
        }
    }
}

fn story(explained: &Explained) -> Markup {
    html! {
        section aria-labelledby="timeline" {
            h2 #timeline { "Timeline" }
            @for (attempt, entries) in timeline::story(explained, false) {
                h3 { "Attempt " (attempt.number()) }
                div.wide tabindex="0" role="group" aria-label=(format!("Timeline of attempt {}", attempt.number())) {
                    table { tbody {
                        @for entry in &entries {
                            tr { td { (local_time(entry.at)) } td { (entry.word) } td { (entry.text) } }
                        }
                    } }
                }
            }
        }
    }
}

/// `/home/ann/runs/x` becomes `~/runs/x`.
fn without_home(text: &str) -> String {
    static HOMES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#"(?m)(^|[\s"'=(:,;>\[`]|file://)(?:/home/[^/\s<>"'&]+|/Users/[^/\s<>"'&]+|/root)/"#,
        )
        .expect("a constant pattern is valid")
    });
    HOMES.replace_all(text, "$1~/").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_of_the_user_is_left_out() {
        for (text, kept) in [
            ("File \"/home/ann/runs/train.py\"", "File \"~/runs/train.py\""),
            ("file:///root/jobs", "file://~/jobs"),
            ("<pre>/Users/ann/x", "<pre>~/x"),
            ("s3://bucket/root/x and /data/home/x", "s3://bucket/root/x and /data/home/x"),
        ] {
            assert_eq!(without_home(text), kept);
        }
    }
}
