//! What jobs cost: by day, job, market, machine type, owner and tag; the rows as CSV and FOCUS.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::costs::bars_part::bars_part;
use super::layout::{Page, fault_box, fault_page};
use super::site::Site;
use crate::app::costs::day_bars::{BarParts, DayBars};
use crate::app::costs::export;
use crate::app::text::local_time;
use crate::app::view::costs::{CostGroup, CostRow, CostSum, sums, total};
use crate::market::Usd;

#[derive(Default, Deserialize)]
pub struct CostsQuery {
    /// The parts of each bar.
    #[serde(default)]
    parts: String,
}

pub async fn page(State(site): State<Arc<Site>>, Query(asked): Query<CostsQuery>) -> Response {
    let by = BarParts::of_word(&asked.parts);
    let newest = site.overview().await;
    let body = match &newest.overview {
        None => html! { p { "The records could not be read yet, so the costs are unknown." } },
        Some(overview) => {
            let rows = site.costs.rows(&site.store, overview).await;
            html! {
                (summary(&total(&rows), overview.at))
                (bars_part(&DayBars::of(&rows, by), by))
                @for group in groups(&rows) { (table(&group, &sums(&rows, &group))) }
            }
        }
    };
    let body = html! {
        @if let Some(fault) = &newest.fault { (fault_box(fault)) }
        (body)
    };
    Page::new("Costs").show(body, html! {}).into_response()
}

fn summary(all: &CostSum, at: jiff::Timestamp) -> Markup {
    html! {
        section aria-label="Total" {
            dl.money {
                div { dt { "Spent by all jobs" } dd { (all.usd) } }
                div { dt { "Idle" } dd { (known(all.idle_usd)) } }
                div { dt { "Lost to interruptions" } dd { (known(all.lost_usd)) } }
                div { dt { "The same on demand" } dd { (known(all.on_demand_usd)) } }
                div { dt { "Saved" } dd { (known(all.saved_usd)) } }
            }
            p { "All rows: " a href="/costs.csv" { "CSV" } ", " a href="/costs.focus.csv" { "FOCUS 1.2" } }
            p.muted {
                "An unfinished job counts until " (local_time(at))
                ", and its rows are estimates. Each day begins at midnight here. "
                "A sum is unknown if one of its rows is."
            }
        }
    }
}

fn known(usd: Option<Usd>) -> String {
    usd.map_or_else(|| "unknown".to_owned(), |usd| usd.to_string())
}

/// The groups that each row has, and one for each tag.
fn groups(rows: &[CostRow]) -> impl Iterator<Item = CostGroup> {
    CostGroup::ALL.into_iter().chain(CostGroup::tags(rows))
}

fn heading(group: &CostGroup) -> String {
    match group {
        CostGroup::Day => "Day".to_owned(),
        CostGroup::Job => "Job".to_owned(),
        CostGroup::Market => "Market".to_owned(),
        CostGroup::Type => "Machine type".to_owned(),
        CostGroup::Owner => "Owner".to_owned(),
        CostGroup::Tag(key) => format!("Tag {key}"),
    }
}

/// A key of a tag keeps its letters.
fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn table(group: &CostGroup, sums: &[CostSum]) -> Markup {
    let most = sums.iter().map(|sum| sum.usd.dollars()).fold(1e-6, f64::max);
    let (heading, word) = (heading(group), group.word());
    let id = format!("by-{word}");
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { "By " (lower_first(&heading)) }
            @if sums.is_empty() { p.muted { "Nothing was spent." } } @else {
                div.wide tabindex="0" role="group" aria-labelledby=(id) {
                    table {
                        thead { tr {
                            th scope="col" { (heading) }
                            @for title in ["Cost", "Share", "Idle", "Lost", "On demand", "Saved"] {
                                th scope="col" { (title) }
                            }
                        } }
                        tbody { @for sum in sums { (row(group, sum, most)) } }
                    }
                }
            }
            p.muted { "The same: " code { "lamp costs --by " (word) } }
        }
    }
}

fn row(group: &CostGroup, sum: &CostSum, most: f64) -> Markup {
    html! {
        tr {
            th scope="row" {
                @if *group == CostGroup::Job { a href=(format!("/job/{}", sum.key)) { (sum.key) } }
                @else { (sum.key) }
            }
            td.number { @if sum.estimated { "<= " } (sum.usd) }
            td { meter min="0" max=(most) value=(sum.usd.dollars().max(0.0)) aria-label={ "share of " (sum.key) } {} }
            td.number { (known(sum.idle_usd)) }
            td.number { (known(sum.lost_usd)) }
            td.number { (known(sum.on_demand_usd)) }
            td.number { (known(sum.saved_usd)) }
        }
    }
}

pub async fn csv(State(site): State<Arc<Site>>) -> Response {
    file(&site, export::csv).await
}

pub async fn focus(State(site): State<Arc<Site>>) -> Response {
    file(&site, export::focus).await
}

async fn file(site: &Arc<Site>, write: fn(&[CostRow]) -> String) -> Response {
    let newest = site.overview_for_program().await;
    match (&newest.overview, &newest.fault) {
        // Old rows would look like new ones.
        (_, Some(fault)) => fault_page(fault),
        (overview, None) => {
            let rows = match overview {
                Some(overview) => site.costs.rows(&site.store, overview).await,
                None => Vec::new(),
            };
            ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], write(&rows)).into_response()
        }
    }
}
