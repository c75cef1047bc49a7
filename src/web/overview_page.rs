//! The overview: the money, what needs a person, and each job in one sentence.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::{Html, IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Page, fault_box, form_encoded, in_code};
use super::live;
use super::site::{Newest, Site};
use super::sparkline;
use crate::app::overview::job_filter::{EXAMPLE, JobFilter};
use crate::app::overview::machine_watch::CloudLook;
use crate::app::overview::overview::{JobRow, Money, Overview};
use crate::app::overview::usage_trend::UsageTrend;
use crate::app::text::{counted, local_time};
use crate::app::view::summary_text::{money_text, progress_text};
use crate::job::JobState;
use crate::market::Span;

/// Ended jobs without a filter. More would hide the others.
const ENDED_SHOWN: usize = 20;

/// Ranks of a gang below its row. Its own page has all.
const RANKS_SHOWN: usize = 8;

/// Jobs on one page.
const SHOWN_MAX: usize = 500;

#[derive(Clone, Deserialize)]
pub struct OverviewQuery {
    #[serde(default)]
    q: String,
}

impl OverviewQuery {
    fn live_from(&self) -> String {
        let query: String = form_encoded(&self.q);
        format!("/live?q={query}")
    }
}

pub async fn page(
    State(site): State<Arc<Site>>,
    Query(asked): Query<OverviewQuery>,
) -> Html<String> {
    let shown = changing(&site, &asked, filter(&asked)).await;
    Page::new("Jobs").live(asked.live_from()).show(html! {}, shown)
}

fn filter(asked: &OverviewQuery) -> Markup {
    html! {
        form.filter role="search" method="get" action="/" {
            label for="q" { "Filter" }
            input #q type="search" name="q" value=(asked.q) placeholder=(EXAMPLE)
                autocomplete="off" spellcheck="false";
            button { "Show" }
            span.presets {
                @for (word, query) in [
                    ("all", ""),
                    ("running", "state:running"),
                    ("idle", "verdict:idle"),
                    ("stalled", "verdict:stalled"),
                    ("ended", "state:ended"),
                ] {
                    a href=(format!("/?q={}", form_encoded(query)))
                        aria-current=[(asked.q == query).then_some("page")] { (word) }
                }
            }
        }
    }
}

pub async fn events(
    State(site): State<Arc<Site>>,
    Query(asked): Query<OverviewQuery>,
    address: Uri,
) -> Response {
    live::stream(site, address, move |site| {
        let asked = asked.clone();
        // The browser keeps the filter that it has.
        async move { changing(&site, &asked, html! {}).await.into_string() }
    })
    .into_response()
}

async fn changing(site: &Arc<Site>, asked: &OverviewQuery, form: Markup) -> Markup {
    let newest = site.overview().await;
    let now = site.clock.now();
    let Some(overview) = &newest.overview else { return nothing_read(&newest) };
    let chosen = JobFilter::parse(&asked.q);
    let fits: Vec<&JobRow> = overview.jobs.iter().filter(|row| chosen.fits(&row.summary)).collect();
    let is_filtered = !asked.q.trim().is_empty();
    let mut ended = 0;
    let shown: Vec<&JobRow> = fits
        .iter()
        .copied()
        .filter(|row| {
            ended += usize::from(row.summary.state.is_final());
            is_filtered || ended <= ENDED_SHOWN || !row.summary.state.is_final()
        })
        .take(SHOWN_MAX)
        .collect();
    let trends = site.trends.of(&shown, &site.store, &site.clock).await;
    html! {
        @if let Some(fault) = &newest.fault {
            (fault_box(fault))
        }
        (money(&overview.money))
        (needs(overview))
        section aria-labelledby="jobs" {
            h2 #jobs { "Jobs" }
            div #filter data-keep { (form) }
            @for word in &chosen.unknown {
                p.warn { "The filter does not know " code { (word) } ". Known: " code { (EXAMPLE) } }
            }
            @if shown.is_empty() {
                p { (if overview.jobs.is_empty() { "There are no jobs yet." } else { "No job fits the filter." }) }
            }
            ul.jobs {
                @for (row, trend) in shown.iter().zip(&trends) { (job(row, trend.as_deref(), now)) }
            }
            @if shown.len() < fits.len() {
                p.muted {
                    (counted((fits.len() - shown.len()) as u64, "more job")) " not shown. "
                    a href="/?q=state%3Aended" { "Show ended jobs" }
                }
            }
        }
        (age(overview, &newest, site.every(), now))
    }
}

fn nothing_read(newest: &Newest) -> Markup {
    html! {
        @if let Some(fault) = &newest.fault { (fault_box(fault)) }
        p { "The records could not be read yet. Whether jobs run is not known." }
    }
}

fn money(money: &Money) -> Markup {
    let about = if money.estimated { "about " } else { "" };
    let most = money.more_at_most.map(|more| (money.spent + more).rounded_up().to_string());
    html! {
        section aria-labelledby="money" {
            h2 #money { "Money" }
            dl.money {
                div { dt { "Spent" } dd { (about) (money.spent) } }
                div { dt { "Most it can cost" } dd { (most.unwrap_or_else(|| "no limit".to_owned())) } }
                div { dt { "Rate now" } dd { (money.per_hour_now) } }
                div { dt { "Useful now" } dd { (money.useful_per_hour) } }
                div { dt { "Today" } dd { (about) (money.today) } }
                div { dt { "This month" } dd { (about) (money.month) } }
            }
            @if let Some(by) = &money.most_by { p.muted { (in_code(&by.sentence())) } }
            @if let Some(counted) = &money.counted {
                dl.caps {
                    @if let Some(cap) = money.caps.usd_per_hour {
                        (cap_bar("Cap per hour", counted.usd_per_hour.per_hour(), cap.per_hour()))
                    }
                    @if let Some(cap) = money.caps.usd_per_day {
                        (cap_bar("Cap in 24 hours", counted.usd_last_day, cap))
                    }
                }
            } @else if !money.caps.are_none() {
                p.warn { "The use of the caps is unknown." }
            } @else {
                p.muted { "No cap is set. " code { "[caps]" } " in the configuration sets one." }
            }
        }
    }
}

fn cap_bar(name: &str, used: crate::market::Usd, cap: crate::market::Usd) -> Markup {
    html! {
        div {
            dt { (name) }
            dd {
                meter min="0" max=(cap.dollars().max(1e-6)) value=(used.dollars())
                    high=(cap.dollars() * 0.8) aria-label=(name) {}
                " " (used) " of " (cap)
            }
        }
    }
}

fn needs(overview: &Overview) -> Markup {
    let needs = &overview.needs;
    if needs.is_empty() {
        return html! { p.fine { (in_code(overview.calm_text())) } };
    }
    html! {
        section.need aria-labelledby="needs" {
            h2 #needs { "Needs a person (" (needs.len()) ")" }
            ul {
                @for need in needs {
                    li {
                        @if let Some(job) = &need.job { a href=(format!("/job/{job}")) { (job) } ": " }
                        (in_code(&need.text)) ". "
                        code { (need.command) }
                    }
                }
            }
        }
    }
}

fn job(row: &JobRow, trend: Option<&UsageTrend>, now: Timestamp) -> Markup {
    let summary = &row.summary;
    html! {
        li.job data-job=(summary.job) data-tone=(colour(row)) {
            div.head {
                span class={ "state " (colour(row)) } { (summary.state_told()) }
                a.name href=(format!("/job/{}", summary.job)) { strong { (summary.name) } }
                code.id { (summary.job) }
            }
            p { (row.sentence) }
            @if let Some(gang) = &summary.gang {
                ul.ranks {
                    @for rank in gang.ranks.iter().take(RANKS_SHOWN) {
                        li { a href=(format!("/job/{}", rank.job)) { (rank.line()) } }
                    }
                    @if gang.ranks.len() > RANKS_SHOWN {
                        li { (counted((gang.ranks.len() - RANKS_SHOWN) as u64, "more rank")) }
                    }
                }
            }
            div.figures {
                span { (money_text(summary)) }
                @if let Some(progress) = summary.progress.as_ref() {
                    @if let Some(fraction) = progress.fraction() {
                        progress max="1" value=(format!("{fraction:.4}")) aria-label="progress" {}
                    }
                    @if let Some(text) = progress_text(progress) { span { (text) } }
                }
                @if let Some(eta) = row.eta_text() { span { (eta) } }
                @if let Some(end) = &row.next_end {
                    span title=(local_time(end.at)) { "nearest end " (end.countdown(now)) }
                }
                @if let Some(machine) = &summary.machine { span.muted { (machine.line()) } }
                @if let Some(seconds) = summary.heartbeat_seconds.filter(|_| !summary.state.is_final()) {
                    span.muted { "heard " (Span::from_secs(seconds as u64)) " ago" }
                }
            }
            @if let Some(trend) = trend { div.trend { (sparkline::draw(trend)) } }
        }
    }
}

fn colour(row: &JobRow) -> &'static str {
    match row.summary.state {
        _ if row.summary.silence.is_some() => "warn",
        JobState::Failed => "bad",
        JobState::Succeeded => "good",
        JobState::Running if row.summary.verdict.as_deref() == Some("stalled") => "bad",
        JobState::Running if row.summary.verdict.as_deref() == Some("idle") => "warn",
        JobState::Running | JobState::Draining => "good",
        JobState::Interrupted
        | JobState::Held
        | JobState::Stopped
        | JobState::Cancelled
        | JobState::Ended => "warn",
        _ => "plain",
    }
}

/// What is old says how old it is, by a clock that never jumps.
fn age(overview: &Overview, newest: &Newest, every: Duration, now: Timestamp) -> Markup {
    let is_stale = newest.fault.is_some() || newest.age > every * 3;
    html! {
        p.muted {
            "Read from the records at " (local_time(overview.at))
            @if is_stale { ", " strong { (Span::from_secs(newest.age.as_secs())) " ago" } }
            ". " (CloudLook::age_text(overview.look.as_ref(), now)) " The same: " code { "lamp status" }
        }
    }
}
