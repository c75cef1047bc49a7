//! The machines of the records, and on request all machines that the clouds show, with their bills.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Page, fault_box, in_code};
use super::site::Site;
use crate::account::{ForeignMachine, Residue};
use crate::app::overview::found_machine::{hour, is_shown, so_far, words};
use crate::app::overview::machine_look::{self, MachineLook};
use crate::app::overview::machine_watch;
use crate::app::overview::machines::{self, RecordedMachine};
use crate::app::overview::overview::{Overview, has_aws};
use crate::app::text::local_time;
use crate::app::view::kept_machines::KeptThing;
use crate::controller::Judged;
use crate::market::{Market, Span, Usd, UsdPerHour, elapsed};

#[derive(Default, Deserialize)]
pub struct MachinesQuery {
    /// The clouds are asked: `?look=1`.
    #[serde(default)]
    look: String,
}

pub async fn page(State(site): State<Arc<Site>>, Query(asked): Query<MachinesQuery>) -> Response {
    let newest = site.overview().await;
    let now = site.clock.now();
    let looked = if asked.look == "1" {
        let look = machine_look::look(&site.store, &site.workstation, now).await;
        let jobs = newest.overview.iter().flat_map(|overview| &overview.jobs);
        let has_aws = has_aws(jobs.map(|row| &row.summary));
        Some(look.inspect(|look| machine_watch::keep_asked(&site.workstation, look, has_aws)))
    } else {
        None
    };
    let body = html! {
        @if let Some(fault) = &newest.fault { (fault_box(fault)) }
        @match &newest.overview {
            None => p { "The records could not be read yet. Which machines run is not known." },
            Some(overview) => (by_records(overview)),
        }
        @match &looked {
            None => (ask_form()),
            Some(Err(fault)) => { (fault_box(fault)) (ask_form()) },
            Some(Ok(look)) => { (by_clouds(look)) (ask_form()) },
        }
    };
    Page::new("Machines").show(body, html! {}).into_response()
}

fn ask_form() -> Markup {
    html! {
        section aria-labelledby="look" {
            h2 #look { "Ask the clouds" }
            form.filter method="get" action="/machines" {
                button name="look" value="1" { "Look in all regions" }
                span.muted { "It takes some seconds, and ends nothing." }
            }
            p.muted { "The same: " code { "lamp sweep --dry-run" } ", " code { "lamp sweep --foreign" } }
        }
    }
}

fn scroll(id: &str, headings: &[&str], rows: &Markup) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-labelledby=(id) {
            table {
                thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                tbody { (rows) }
            }
        }
    }
}

fn by_records(overview: &Overview) -> Markup {
    let recorded = machines::recorded(overview);
    let kept: Vec<(&str, &KeptThing)> = overview
        .jobs
        .iter()
        .flat_map(|row| row.summary.kept.iter().map(|thing| (row.summary.job.as_str(), thing)))
        .collect();
    let left = overview.needs.iter().filter(|need| need.command == "lamp sweep");
    let left: Vec<_> = left.collect();
    html! {
        section aria-labelledby="recorded" {
            h2 #recorded { "By the records of this job root" }
            @if recorded.is_empty() { p { "No unfinished job has a machine." } } @else {
                (scroll("recorded", &["Job", "Machine", "Id", "State", "Bills an hour", "Ends at the latest"],
                    &html! { @for machine in &recorded { (recorded_row(machine)) } }))
            }
            p.muted { "As of " (local_time(overview.at)) ". The same: " code { "lamp status" } }
        }
        @if !kept.is_empty() {
            section aria-labelledby="kept" {
                h2 #kept { "Kept on purpose" }
                (scroll("kept", &["Job", "What", "Id", "Region", "Bills a month"], &html! {
                    @for (job, thing) in &kept {
                        tr {
                            td { a href=(format!("/job/{job}")) { (job) } }
                            td { (thing.kind) ", " (thing.detail) }
                            td { (thing.id) }
                            td { (thing.region) }
                            td.number { (thing.usd_per_month) }
                        }
                    }
                }))
            }
        }
        @if !left.is_empty() {
            section.need aria-labelledby="left" {
                h2 #left { "Left behind, by the records" }
                ul {
                    @for need in &left {
                        li {
                            @if let Some(job) = &need.job { a href=(format!("/job/{job}")) { (job) } ": " }
                            (need.text) ": " code { (need.command) }
                        }
                    }
                }
            }
        }
    }
}

fn recorded_row(machine: &RecordedMachine) -> Markup {
    html! {
        tr {
            td { a href=(format!("/job/{}", machine.job)) { (machine.name) } }
            td { (machine.machine) }
            td { (machine.instance.as_deref().unwrap_or("not yet known")) }
            td { (machine.state) }
            td.number { (machine.usd_per_hour.map_or_else(|| "unknown".to_owned(), |hour| hour.to_string())) }
            td { (machine.ends.map_or_else(|| "no limit".to_owned(), local_time)) }
        }
    }
}

fn by_clouds(look: &MachineLook) -> Markup {
    let ours: Vec<&Judged> = look.found.machines.iter().filter(|one| is_shown(one)).collect();
    let is_whole = look.found.unknown.is_empty();
    html! {
        (unanswered(look))
        section aria-labelledby="ours" {
            h2 #ours { "Yours, by the clouds" }
            @if ours.is_empty() {
                p { (if is_whole { "No machine of yours runs." } else { "The places that answered show no machine of yours." }) }
            } @else {
                (scroll("ours", &["Machine", "Type", "Region", "Job", "State", "Age", "Bills an hour", "So far", "Verdict"],
                    &html! { @for judged in &ours { (our_row(judged, look.at)) } }))
                p { "An orphan has no living job: " code { "lamp sweep" } " ends it. "
                    "A stray's job is unknown here: " code { "lamp sweep --machine ID" } " ends it." }
            }
            p.muted { "Asked " (local_time(look.at)) ". Prices are on demand: a spot machine costs less." }
        }
        section aria-labelledby="residue" {
            h2 #residue { "Residue" }
            @if look.found.residue.is_empty() {
                p { (if is_whole { "Nothing is left over." } else { "The places that answered have nothing left over." }) }
            } @else {
                (scroll("residue", &["What", "Id", "Region", "Detail", "Whose", "Bills a month"],
                    &html! { @for left in &look.found.residue { (residue_row(left)) } }))
                p { code { "lamp sweep --residue" } " removes what is yours and not kept." }
            }
        }
        section aria-labelledby="foreign" {
            h2 #foreign { "Not launched by Lamplighter" }
            @if look.foreign.is_empty() {
                p { (if look.foreign_unknown.is_empty() && is_whole { "No other GPU machine runs." } else { "The places that answered show no other GPU machine." }) }
            } @else {
                (scroll("foreign", &["Machine", "Name", "Type", "Region", "Age", "Bills an hour", "CPU", "GPU"],
                    &html! { @for machine in &look.foreign { (foreign_row(machine, look.at)) } }))
                p.muted { "Lamplighter touches none of these." }
            }
        }
    }
}

fn unanswered(look: &MachineLook) -> Markup {
    let unknown = look.found.unknown.iter().chain(&look.foreign_unknown);
    let mut unknown: Vec<&(String, String)> = unknown.collect();
    unknown.sort();
    unknown.dedup();
    html! {
        @if !unknown.is_empty() {
            section.need role="alert" {
                h2 { "Not known" }
                p { "These places did not answer. They may have machines that bill." }
                ul { @for (place, why) in unknown { li { (place) ": " (in_code(why)) } } }
                p { code { "lamp doctor" } " says what keeps them from answering." }
            }
        }
    }
}

fn price(hour: Option<UsdPerHour>) -> String {
    hour.map_or_else(|| "unknown".to_owned(), |hour| hour.to_string())
}

fn money(usd: Option<Usd>, market: Market) -> String {
    let at_most = if market == Market::Spot { "< " } else { "" };
    usd.map_or_else(|| "unknown".to_owned(), |usd| format!("{at_most}{usd}"))
}

fn age(launched: Timestamp, now: Timestamp) -> String {
    Span::from_secs(elapsed(launched, now).as_secs()).to_string()
}

fn our_row(judged: &Judged, now: Timestamp) -> Markup {
    let view = &judged.view;
    let (verdict, why) = words(&judged.verdict);
    let bills = if view.state.bills() { price(hour(view)) } else { "nothing".to_owned() };
    html! {
        tr {
            td { (view.id) }
            td { (view.instance_type) }
            td { (view.region) }
            td { (view.tags.job) }
            td { (view.state) }
            td { (age(view.launched, now)) }
            td.number { (bills) }
            td.number { (money(so_far(view, now), view.market)) }
            td { strong { (verdict) } ": " (why) }
        }
    }
}

fn residue_row(left: &Residue) -> Markup {
    let whose = match (left.ours, left.kept) {
        (true, true) => "yours, kept",
        (true, false) => "yours",
        (false, _) => "not yours",
    };
    html! {
        tr {
            td { (left.kind) }
            td { (left.id) }
            td { (left.region) }
            td { (left.detail) }
            td { (whose) }
            td.number { (left.usd_per_month) }
        }
    }
}

fn foreign_row(machine: &ForeignMachine, now: Timestamp) -> Markup {
    let percent = |value: Option<f64>| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.0} %"))
    };
    html! {
        tr {
            td { (machine.id) @if let Some(odd) = &machine.odd { " (" (odd) ")" } }
            td { (machine.name.as_deref().unwrap_or_default()) }
            td { (machine.instance_type) }
            td { (machine.region) }
            td { (age(machine.launched, now)) }
            td.number { (price(machine.usd_per_hour)) }
            td.number { (percent(machine.cpu_percent)) }
            td.number { (percent(machine.gpu_percent)) }
        }
    }
}
