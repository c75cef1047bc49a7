//! Prices: spot price history by zone and type, a bid, and how long the bid would have held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Page, fault_box, fault_page, form_encoded};
use super::plots::{HEIGHT, WIDTH};
use super::site::Site;
use crate::app::costs::export::cell;
use crate::app::costs::hours_cost::{HoursCost, hours_of_work};
use crate::app::overview::eta::Eta;
use crate::app::prices::pool_chance::{PoolChance, PoolKey, pool_chances};
use crate::app::prices::pool_prices::MARKED_MAX;
use crate::app::prices::price_row::{self, PriceRow};
use crate::app::text::{counted, local_time};
use crate::app::{ExitCode, Fault};
use crate::job::{MachineSpec, MarketChoice};
use crate::market::{
    CloudKind, GpuRequirement, Market, PriceHistory, PriceRule, Span, Supply, Usd, UsdPerHour,
};
use crate::policy::purchase::bid::back;

/// The rule `auto` looks back two weeks.
const DAYS: u32 = 14;

const DAYS_MAX: u32 = 90;

/// Plots on one page: the cheapest pools. The table has all.
const DRAWN_MAX: usize = 6;

#[derive(Clone, Default, Deserialize)]
pub struct PricesQuery {
    #[serde(default)]
    gpu: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    days: String,
    #[serde(default)]
    bid: String,
    /// Hours of work whose cost is shown.
    #[serde(default)]
    hours: String,
    /// A CSV has only this zone and this type: the one of a plot.
    #[serde(default)]
    zone: String,
    #[serde(default)]
    pool: String,
}

/// A request that is understood.
struct WantedPrices {
    machine: MachineSpec,
    days: u32,
    bid: Option<UsdPerHour>,
    hours: Option<f64>,
}

/// An answer, with its time.
struct PriceAnswer {
    wanted: WantedPrices,
    rows: Vec<PriceRow>,
    supply: Arc<Supply>,
    from: Timestamp,
    at: Timestamp,
    chances: BTreeMap<PoolKey, PoolChance>,
    jobs: Vec<PricedJob>,
}

/// A job under way, and the pool that it runs in.
#[derive(Clone)]
struct PricedJob {
    job: String,
    name: String,
    instance_type: String,
    zone: String,
    market: Market,
    hourly: Option<UsdPerHour>,
    /// The hours to its end, by its progress.
    hours_left: Option<f64>,
}

impl PricesQuery {
    fn is_empty(&self) -> bool {
        [&self.gpu, &self.kind].iter().all(|text| text.trim().is_empty())
    }

    fn days(&self) -> &str {
        if self.days.is_empty() { "14" } else { &self.days }
    }

    fn wanted(&self) -> Result<WantedPrices, Fault> {
        let wrong = |what: &str, hint: &str| {
            Fault::new(ExitCode::USAGE, format!("`{what}` is not understood"))
                .meaning("EC2 was not asked")
                .hint(hint)
        };
        let gpu = self.gpu.trim();
        let gpus = if gpu.is_empty() {
            GpuRequirement::NONE
        } else {
            gpu.parse().map_err(|_| wrong(gpu, "write GPUs like `A10G`, `H100:8` or `any`"))?
        };
        let days: u32 = self.days().trim().parse().unwrap_or(DAYS);
        let bid = self.bid.trim().trim_start_matches('$');
        let usd = || bid.parse::<f64>().ok().and_then(|usd| Usd::from_dollars(usd).ok());
        let bid = match bid {
            "" => None,
            text => Some(
                usd()
                    .filter(|usd| *usd > Usd::ZERO)
                    .ok_or_else(|| wrong(text, "write a bid in dollars an hour, like `0.65`"))?,
            ),
        };
        let hours = match self.hours.trim() {
            "" => None,
            text => Some(
                hours_of_work(text)
                    .map_err(|_| wrong(text, "write a number of hours, like `12`"))?,
            ),
        };
        let names = |text: &str| {
            text.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        Ok(WantedPrices {
            machine: MachineSpec {
                cloud: CloudKind::Aws,
                gpus,
                instance_types: names(&self.kind),
                regions: names(&self.region),
                market: MarketChoice::Auto,
                max_price: PriceRule::Auto,
                ..MachineSpec::default()
            },
            days: days.clamp(1, DAYS_MAX),
            bid: bid.map(UsdPerHour::new),
            hours,
        })
    }

    fn address(&self) -> String {
        [
            ("gpu", &self.gpu),
            ("type", &self.kind),
            ("region", &self.region),
            ("days", &self.days),
            ("bid", &self.bid),
            ("hours", &self.hours),
        ]
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", form_encoded(value)))
        .collect::<Vec<_>>()
        .join("&")
    }

    /// The command that prints the same.
    fn command(&self) -> String {
        let flag = |name: &str, value: &str| match value.trim() {
            "" => String::new(),
            value => format!(" --{name} {value}"),
        };
        format!(
            "lamp prices --zones{}{}{}{}{}{}",
            flag("gpu", &self.gpu),
            flag("type", &self.kind),
            flag("region", &self.region),
            flag("days", self.days()),
            flag("bid", &self.bid),
            flag("hours", &self.hours)
        )
    }
}

pub async fn page(State(site): State<Arc<Site>>, Query(asked): Query<PricesQuery>) -> Response {
    let jobs = priced_jobs(&site).await;
    let answer =
        if asked.is_empty() { None } else { Some(page_answer(&site, &asked, jobs.clone()).await) };
    let body = html! {
        (form(&asked))
        @match &answer {
            None => {
                p { "Name a GPU or a machine type. EC2 is then asked for the prices." }
                (types_of_jobs(&jobs))
            },
            Some(Err(fault)) => {
                (fault_box(fault))
                p { "The prices are not known. " code { "lamp doctor" } " says what keeps AWS from answering, and "
                    code { "lamp init aws" } " sets it up." }
            },
            Some(Ok(answer)) => (shown(&asked, answer)),
        }
    };
    Page::new("Prices").show(body, html! {}).into_response()
}

fn form(asked: &PricesQuery) -> Markup {
    let field = |name: &str, label: &str, value: &str, hint: &str| {
        html! {
            label { span { (label) } input name=(name) value=(value) placeholder=(hint) autocomplete="off"; }
        }
    };
    html! {
        form.act method="get" action="/prices" {
            (field("gpu", "GPU", &asked.gpu, "A10G"))
            (field("type", "Machine type", &asked.kind, "g5.xlarge"))
            (field("region", "Region", &asked.region, "us-east-1"))
            (field("days", "Days", asked.days(), "14"))
            (field("bid", "Bid, $ an hour", &asked.bid, "0.65"))
            (field("hours", "Hours of work", &asked.hours, "12"))
            button { "Show prices" }
        }
    }
}

/// The machines of EC2 that jobs run on now.
async fn priced_jobs(site: &Arc<Site>) -> Vec<PricedJob> {
    let Some(overview) = site.overview().await.overview else { return Vec::new() };
    let open = overview.machine_rows.iter().map(|row| &row.summary);
    let priced = open.filter(|summary| !summary.state.is_final()).filter_map(|summary| {
        let machine = summary.machine.as_ref().filter(|machine| !machine.is_here())?;
        machine.region.as_ref()?;
        Some(PricedJob {
            job: summary.job.clone(),
            name: summary.name.clone(),
            instance_type: machine.instance_type.clone(),
            zone: machine.zone.clone(),
            market: machine.market,
            hourly: summary.usd_per_hour,
            hours_left: Eta::of(summary, site.clock.now())
                .map(|eta| eta.at.duration_since(site.clock.now()).as_secs_f64() / 3600.0),
        })
    });
    priced.collect()
}

/// The types that jobs run on, and for each job the cost of the rest of its work elsewhere.
fn types_of_jobs(jobs: &[PricedJob]) -> Markup {
    let types: BTreeSet<&str> = jobs.iter().map(|job| job.instance_type.as_str()).collect();
    html! {
        @if !types.is_empty() {
            p { "Types of your jobs:"
                @for name in types { " " a href=(format!("/prices?type={}", form_encoded(name))) { (name) } }
            }
        }
        @for (job, hours) in jobs.iter().filter_map(|job| Some((job, job.hours_left?))) {
            p {
                (job.name) " has about " (format!("{hours:.1}")) " hours to its end: "
                a href=(format!("/prices?type={}&hours={hours:.1}", form_encoded(&job.instance_type))) { "what they cost" }
            }
        }
    }
}

async fn answer(
    site: &Site,
    asked: &PricesQuery,
    jobs: Vec<PricedJob>,
) -> Result<PriceAnswer, Fault> {
    let wanted = asked.wanted()?;
    let now = site.clock.now();
    let asked = window(wanted.days.max(DAYS));
    let kept = site.prices.supply(&site.workstation, &wanted.machine, asked, now).await?;
    let (supply, at) = (kept.supply, kept.at);
    let from = back(now, window(wanted.days));
    let rule = wanted.bid.map_or(PriceRule::Auto, |bid| PriceRule::Fixed(bid.per_hour()));
    let rows = price_row::rows(&supply, rule, from, now, false);
    if rows.is_empty() {
        let why: Vec<&str> = supply.refused.iter().take(3).map(String::as_str).collect();
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
        return Err(Fault::new(ExitCode::NOT_FOUND, format!("EC2 sells nothing that fits{why}"))
            .hint("`lamp prices` without a word shows every GPU machine"));
    }
    Ok(PriceAnswer { wanted, rows, supply, from, at, chances: BTreeMap::new(), jobs })
}

/// The answer with what the job root knows of the pools.
async fn page_answer(
    site: &Site,
    asked: &PricesQuery,
    jobs: Vec<PricedJob>,
) -> Result<PriceAnswer, Fault> {
    let mut answer = answer(site, asked, jobs).await?;
    answer.chances = pool_chances(&site.store, &answer.rows, &site.clock).await;
    Ok(answer)
}

fn window(days: u32) -> Span {
    Span::from_secs(u64::from(days) * 86_400)
}

impl PriceAnswer {
    fn history(&self, row: &PriceRow) -> Option<PriceHistory> {
        let found = self.supply.histories.iter().find(|history| row.is_of(history));
        found.map(|history| history.since(self.from))
    }

    fn chance(&self, row: &PriceRow) -> Option<&PoolChance> {
        self.chances.get(&(row.zone.to_string(), row.instance_type.clone()))
    }

    fn jobs_in(&self, row: &PriceRow) -> impl Iterator<Item = &PricedJob> {
        let (zone, kind) = (row.zone.to_string(), row.instance_type.clone());
        self.jobs.iter().filter(move |job| job.zone == zone && job.instance_type == kind)
    }
}

fn dollars(price: Option<UsdPerHour>) -> String {
    price
        .map_or_else(|| "unknown".to_owned(), |price| format!("${:.4}", price.per_hour().dollars()))
}

/// The hours at one of the two prices.
fn cost_of(hours: f64, price: Option<UsdPerHour>) -> String {
    let cost = HoursCost::of(price.unwrap_or_default(), &[], price.map(|_| hours));
    cost.map_or_else(|| "unknown".to_owned(), |cost| cost.usd.rounded_up().to_string())
}

fn held(row: &PriceRow) -> String {
    match row.share_above {
        Some(above) => format!("{:.1} %", (1.0 - above) * 100.0),
        None => "unknown".to_owned(),
    }
}

fn shown(asked: &PricesQuery, answer: &PriceAnswer) -> Markup {
    let spot = answer.rows.iter().filter(|row| row.spot.is_some());
    let drawn: Vec<(&PriceRow, PriceHistory)> =
        spot.filter_map(|row| Some((row, answer.history(row)?))).take(DRAWN_MAX).collect();
    let named = if answer.wanted.bid.is_some() { "your bid" } else { "the bid of the rule `auto`" };
    html! {
        section aria-labelledby="history" {
            h2 #history { "Spot prices of the last " (counted(u64::from(answer.wanted.days), "day")) }
            @if drawn.is_empty() { p { "EC2 tells no spot price of these." } }
            @for (row, history) in &drawn { (drawing(row, history, asked, answer)) }
            p.muted { "The line across is " (named) ". Each mark below is a change of price. Up to " (DRAWN_MAX) " of the cheapest are drawn. "
                a href=(format!("/prices.csv?{}", asked.address())) { "All changes as CSV" } }
        }
        section aria-labelledby="pools" {
            h2 #pools { "By type and zone" }
            div.wide tabindex="0" role="group" aria-labelledby="pools" {
                table {
                    thead { tr {
                        @for heading in ["Type", "Zone", "GPUs", "On demand", "Spot", "Bid", "Would have held", "Times exceeded", "Chance to get one", "Jobs here"] {
                            th scope="col" { (heading) }
                        }
                        @if let Some(hours) = answer.wanted.hours {
                            th scope="col" { (hours) " h on demand" } th scope="col" { (hours) " h spot" }
                        }
                    } }
                    tbody { @for row in &answer.rows { (table_row(row, answer)) } }
                }
            }
            p.muted { "Asked " (local_time(answer.at)) ". A bid that held is no promise: EC2 also interrupts for lack of capacity. The chance is what your earlier jobs have seen of a pool." }
            @for note in &answer.supply.notes { p.muted { (note) } }
            p.muted { "The same: " code { (asked.command()) } }
        }
    }
}

fn table_row(row: &PriceRow, answer: &PriceAnswer) -> Markup {
    let chance = answer.chance(row).map(PoolChance::text);
    let mine = answer.jobs_in(row).next().is_some();
    html! {
        tr.mine[mine] {
            td { @if mine { strong { (row.instance_type) } } @else { (row.instance_type) } }
            td { (row.zone) }
            td { (row.gpu_text()) }
            td.number { (dollars(row.on_demand)) }
            td.number { (dollars(row.spot)) }
            td.number { (dollars(row.bid)) }
            td.number { (held(row)) }
            td.number { (row.crossings.map_or_else(|| "unknown".to_owned(), |times| times.to_string())) }
            td { (chance.unwrap_or_else(|| "not known".to_owned())) }
            td { (jobs_here(row, answer)) }
            @if let Some(hours) = answer.wanted.hours {
                td.number { (cost_of(hours, row.on_demand)) }
                td.number { (cost_of(hours, row.spot)) }
            }
        }
    }
}

/// `llama-ft (spot, $0.98/h)`
fn jobs_here(row: &PriceRow, answer: &PriceAnswer) -> Markup {
    html! {
        @for job in answer.jobs_in(row) {
            span.phase {
                a href=(format!("/job/{}", job.job)) { (job.name) } " (" (job.market)
                @if let Some(hourly) = job.hourly { ", " (hourly) } ")"
            } " "
        }
    }
}

/// The changes of one plot as a table, with the CSV and the command of the same.
fn changes(row: &PriceRow, history: &PriceHistory, asked: &PricesQuery, from: Timestamp) -> Markup {
    let pool = format!(
        "zone={}&pool={}",
        form_encoded(row.zone.as_str()),
        form_encoded(&row.instance_type)
    );
    let command = format!(
        "lamp prices --type {} --region {} --zone {} --days {} --history -o csv",
        row.instance_type,
        row.region,
        row.zone,
        asked.days()
    );
    html! {
        details {
            summary { "Table of its changes" }
            div.wide tabindex="0" role="group" aria-label=(format!("changes of {} in {}", row.instance_type, row.zone)) {
                table {
                    thead { tr { th scope="col" { "Time" } th scope="col" { "Price" } th scope="col" { "Before" } } }
                    tbody {
                        @for (before, point) in history.changes(from).take(MARKED_MAX) {
                            tr {
                                td { (local_time(point.at)) }
                                td.number { (dollars(Some(point.price))) }
                                td.number { (dollars(Some(before))) }
                            }
                        }
                    }
                }
            }
            p.muted { a href=(format!("/prices.csv?{}&{pool}", asked.address())) { "CSV" } ". The same: " code { (command) } }
        }
    }
}

/// A price holds until the next one: the line has steps.
fn drawing(
    row: &PriceRow,
    history: &PriceHistory,
    asked: &PricesQuery,
    answer: &PriceAnswer,
) -> Markup {
    let usd = |price: UsdPerHour| price.per_hour().dollars();
    let points = history.points();
    let bid = row.bid.map(usd);
    let top = points.iter().map(|point| usd(point.price)).chain(bid).fold(1e-9, f64::max) * 1.05;
    let all = answer.at.duration_since(answer.from).as_secs_f64().max(1.0);
    let x = |at: Timestamp| {
        (at.duration_since(answer.from).as_secs_f64() / all).clamp(0.0, 1.0) * WIDTH
    };
    let y = |usd: f64| HEIGHT - usd / top * HEIGHT;
    let mut line = String::new();
    for (at, point) in points.iter().enumerate() {
        let until = points.get(at + 1).map_or(answer.at, |next| next.at);
        let height = y(usd(point.price));
        line.push_str(&format!("{:.1},{height:.1} {:.1},{height:.1} ", x(point.at), x(until)));
    }
    let label = format!(
        "{} in {}: now {}, bid {}, which would have held {}",
        row.instance_type,
        row.zone,
        dollars(row.spot),
        dollars(row.bid),
        held(row)
    );
    html! {
        figure.plot {
            figcaption {
                (label)
                @if answer.jobs_in(row).next().is_some() { strong { "Here: " (jobs_here(row, answer)) } }
            }
            div.canvas {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                    @if let Some(bid) = bid {
                        line.mark x1="0" x2=(WIDTH) y1=(format!("{:.1}", y(bid))) y2=(format!("{:.1}", y(bid))) {}
                    }
                    polyline points=(line.trim_end()) {}
                    @for (_, point) in history.changes(answer.from).take(MARKED_MAX) {
                        line.change x1=(format!("{:.1}", x(point.at))) x2=(format!("{:.1}", x(point.at)))
                            y1=(HEIGHT - 8.0) y2=(HEIGHT) {
                            title { (local_time(point.at)) ": " (dollars(Some(point.price))) }
                        }
                    }
                }
            }
            (changes(row, history, asked, answer.from))
        }
    }
}

pub async fn csv(State(site): State<Arc<Site>>, Query(asked): Query<PricesQuery>) -> Response {
    let answer = match answer(&site, &asked, Vec::new()).await {
        Ok(answer) => answer,
        Err(fault) => return fault_page(&fault),
    };
    let mut text = "instance_type,region,zone,at,price\n".to_owned();
    let is_wanted = |row: &&PriceRow| {
        (asked.zone.is_empty() || row.zone.as_str() == asked.zone)
            && (asked.pool.is_empty() || row.instance_type == asked.pool)
    };
    for history in answer.rows.iter().filter(is_wanted).filter_map(|row| answer.history(row)) {
        for point in history.points() {
            text.push_str(&format!(
                "{},{},{},{},{}\n",
                cell(&history.instance_type),
                cell(history.region.as_str()),
                cell(history.zone.as_str()),
                point.at,
                point.price.per_hour().dollars()
            ));
        }
    }
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(gpu: &str, bid: &str) -> PricesQuery {
        PricesQuery { gpu: gpu.into(), bid: bid.into(), ..PricesQuery::default() }
    }

    #[test]
    fn bid_is_dollars_or_refused_before_ec2_is_asked() {
        let bid = |text: &str| asked("A10G", text).wanted().map(|wanted| wanted.bid);
        let usd = |usd: f64| Usd::from_dollars(usd).ok().map(UsdPerHour::new);
        assert_eq!(bid("$0.65").ok(), Some(usd(0.65)));
        assert_eq!(bid("").ok(), Some(None));
        for wrong in ["soon", "-1", "0", "NaN"] {
            assert_eq!(bid(wrong).map_err(|fault| fault.code), Err(ExitCode::USAGE), "{wrong}");
        }
    }

    #[test]
    fn command_and_address_say_the_same_request() {
        let asked = asked("A10G", "0.65");
        assert_eq!(asked.address(), "gpu=A10G&bid=0.65");
        assert_eq!(asked.command(), "lamp prices --zones --gpu A10G --days 14 --bid 0.65");
    }
}
