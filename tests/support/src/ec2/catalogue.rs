//! Prices on demand and on spot, quotas and public parameters.
//!
//! The prices are of AWS's public lists at some time in the past; a test that needs others says so.
//! Spot prices are a step series made from them: a change every six hours for ninety days, a share
//! of the on-demand price that differs by zone.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cloud::{Cloud, lock};
use super::handle::FalseEc2;
use super::http::Answer;
use super::images;
use super::route::{Asked, json_answer, refusal};

impl FalseEc2 {
    /// The price list answers, and names no machine.
    pub fn list_no_machines(&self) {
        lock(&self.cloud.catalogue).on_demand.clear();
    }
}

const ON_DEMAND: &[(&str, f64)] = &[
    ("t3.nano", 0.0052),
    ("t3.micro", 0.0104),
    ("m5.large", 0.096),
    ("g4dn.xlarge", 0.526),
    ("g4dn.12xlarge", 3.912),
    ("g5.xlarge", 1.006),
    ("g5.2xlarge", 1.212),
    ("g5.12xlarge", 5.672),
    ("g5.48xlarge", 16.288),
    ("g6.xlarge", 0.8048),
    ("g6e.xlarge", 1.861),
    ("p3.2xlarge", 3.06),
    ("p4d.24xlarge", 21.957642),
    ("p5.48xlarge", 55.04),
];

/// vCPUs of the groups of instance types: on demand and spot, of G and VT, of P, of the standard
/// ones.
const QUOTAS: &[(&str, &str, f64)] = &[
    ("L-DB2E81BA", "Running On-Demand G and VT instances", 64.0),
    ("L-3819A6DF", "All G and VT Spot Instance Requests", 64.0),
    ("L-417A185B", "Running On-Demand P instances", 192.0),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 192.0),
    ("L-C4BD4855", "All P5 Spot Instance Requests", 192.0),
    ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 256.0),
    ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 256.0),
];

/// The share of the on-demand price, by the letter of the zone.
const SHARES: [(char, f64); 3] = [('a', 0.42), ('b', 0.36), ('c', 0.55)];

const STEP: SignedDuration = SignedDuration::from_hours(6);
const STEPS: i32 = 90 * 4;

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub kind: String,
    pub zone: String,
    pub product: &'static str,
    pub usd: f64,
    pub at: Timestamp,
}

pub(super) struct Catalogue {
    pub on_demand: BTreeMap<String, f64>,
    pub quotas: BTreeMap<String, f64>,
    pub parameters: BTreeMap<String, String>,
    /// A type and zone whose series a test wrote itself.
    pub series: BTreeMap<(String, String), Vec<(Timestamp, f64)>>,
    /// The first page of prices is empty, and says where the next begins.
    pub is_first_page_empty: bool,
    began: Timestamp,
}

impl Catalogue {
    pub fn new(began: Timestamp) -> Self {
        Catalogue {
            on_demand: ON_DEMAND.iter().map(|(kind, usd)| ((*kind).into(), *usd)).collect(),
            quotas: QUOTAS.iter().map(|(code, _, value)| ((*code).into(), *value)).collect(),
            parameters: BTreeMap::new(),
            is_first_page_empty: false,
            series: BTreeMap::new(),
            began,
        }
    }

    /// The changes of one series, oldest first.
    fn changes(&self, kind: &str, zone: &str) -> Vec<(Timestamp, f64)> {
        if let Some(series) = self.series.get(&(kind.to_owned(), zone.to_owned())) {
            return series.clone();
        }
        let share =
            SHARES.iter().find(|(letter, _)| zone.ends_with(*letter)).map(|(_, share)| share);
        let (Some(usd), Some(share)) = (self.on_demand.get(kind), share) else { return Vec::new() };
        // Up and down within a tenth, the same in every run.
        let wave = |step: i32| 1.0 + f64::from((step * 7 + kind.len() as i32 * 3) % 11 - 5) / 50.0;
        (0..STEPS)
            .rev()
            .map(|step| {
                (self.began - STEP * step - SignedDuration::from_mins(5), usd * share * wave(step))
            })
            .collect()
    }

    pub fn spot_price(&self, kind: &str, zone: &str, now: Timestamp) -> Option<f64> {
        self.changes(kind, zone).iter().rev().find(|(at, _)| *at <= now).map(|(_, usd)| *usd)
    }

    /// Newest first: all changes in the window, and what held at its start.
    pub fn history(
        &self,
        region: &str,
        from: Timestamp,
        to: Timestamp,
        wants: impl Fn(&Row) -> bool,
    ) -> Vec<Row> {
        let generated = self
            .on_demand
            .keys()
            .flat_map(|kind| SHARES.map(|(letter, _)| (kind.clone(), format!("{region}{letter}"))));
        let written = self.series.keys().filter(|(_, zone)| zone.starts_with(region)).cloned();
        let names: std::collections::BTreeSet<(String, String)> =
            generated.chain(written).collect();
        let mut rows = Vec::new();
        for (kind, zone) in names {
            // A decoy: who does not ask for Linux pays for Windows.
            for (product, factor) in [("Linux/UNIX", 1.0), ("Windows", 1.9)] {
                let row = |at, usd: f64| Row {
                    kind: kind.clone(),
                    zone: zone.clone(),
                    product,
                    usd: usd * factor,
                    at,
                };
                if !wants(&row(from, 0.0)) {
                    continue;
                }
                let changes = self.changes(&kind, &zone);
                let held = changes.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
                rows.extend(
                    changes[held..]
                        .iter()
                        .filter(|(at, _)| *at <= to)
                        .map(|(at, usd)| row(*at, *usd)),
                );
            }
        }
        rows.sort_by(|a, b| {
            b.at.cmp(&a.at).then_with(|| (&a.kind, &a.zone).cmp(&(&b.kind, &b.zone)))
        });
        rows
    }
}

pub(super) fn answer(cloud: &Cloud, asked: &Asked, action: &str) -> Option<Answer> {
    match action {
        "GetParameter" => parameter(cloud, &asked.region, asked.get("Name"))
            .map(|found| json_answer(&json!({ "Parameter": found }))),
        "GetParameters" => parameters(cloud, asked),
        "GetProducts" => Some(products(cloud, asked)),
        "GetServiceQuota" => {
            let code = asked.get("QuotaCode");
            let Some(value) = lock(&cloud.catalogue).quotas.get(code).copied() else {
                return Some(refusal(
                    "servicequotas",
                    "NoSuchResourceException",
                    "The specified resource does not exist.",
                    400,
                ));
            };
            Some(json_answer(&json!({ "Quota": quota(code, value) })))
        }
        "ListServiceQuotas" if asked.get("ServiceCode") == "ec2" => {
            let all: Vec<Value> = lock(&cloud.catalogue)
                .quotas
                .iter()
                .map(|(code, value)| quota(code, *value))
                .collect();
            Some(json_answer(&json!({ "Quotas": all })))
        }
        _ => None,
    }
}

fn quota(code: &str, value: f64) -> Value {
    let name = QUOTAS.iter().find(|(known, _, _)| *known == code).map_or(code, |(_, name, _)| name);
    json!({ "ServiceCode": "ec2", "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)", "QuotaCode": code, "QuotaName": name,
            "Value": value, "Unit": "None", "Adjustable": true, "GlobalQuota": false })
}

fn parameter(cloud: &Cloud, region: &str, name: &str) -> Option<Value> {
    let written = lock(&cloud.catalogue).parameters.get(name).cloned();
    let value = written.or_else(|| images::of_parameter(name).map(str::to_owned))?;
    Some(
        json!({ "Name": name, "Type": "String", "Value": value, "Version": 1, "DataType": "text", "LastModifiedDate": 1.76e9,
                 "ARN": format!("arn:aws:ssm:{region}::parameter{name}") }),
    )
}

/// Ours, where all are; else moto's.
fn parameters(cloud: &Cloud, asked: &Asked) -> Option<Answer> {
    let names =
        asked.json["Names"].as_array()?.iter().map(|name| name.as_str().unwrap_or_default());
    let found: Vec<(&str, Option<Value>)> =
        names.map(|name| (name, parameter(cloud, &asked.region, name))).collect();
    let (known, unknown): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, value)| value.is_some());
    let known: Vec<Value> = known.into_iter().filter_map(|(_, value)| value).collect();
    let unknown: Vec<&str> = unknown.into_iter().map(|(name, _)| name).collect();
    (!known.is_empty())
        .then(|| json_answer(&json!({ "Parameters": known, "InvalidParameters": unknown })))
}

/// The price list, with what else is in it: Windows, dedicated hosts, unused reservations.
fn products(cloud: &Cloud, asked: &Asked) -> Answer {
    let filters: Vec<(String, String)> = asked.json["Filters"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|filter| {
            let text = |name: &str| filter[name].as_str().unwrap_or_default().to_owned();
            (text("Field"), text("Value"))
        })
        .collect();
    let region = filters
        .iter()
        .find(|(field, _)| field == "regionCode")
        .map_or("us-east-1", |(_, value)| value)
        .to_owned();
    let decoys = [
        ("Linux", "Shared", "NA", "Used", 1.0),
        ("Windows", "Shared", "NA", "Used", 1.9),
        ("Linux", "Dedicated", "NA", "Used", 1.06),
        ("Linux", "Shared", "SQL Std", "Used", 2.5),
        ("Linux", "Shared", "NA", "UnusedCapacityReservation", 1.0),
        ("Linux", "Shared", "NA", "AllocatedCapacityReservation", 0.0),
    ];
    let mut list = Vec::new();
    for (n, (kind, usd)) in lock(&cloud.catalogue).on_demand.iter().enumerate() {
        for (m, (system, tenancy, software, status, factor)) in decoys.iter().enumerate() {
            let attributes = json!({
                "servicecode": "AmazonEC2", "servicename": "Amazon Elastic Compute Cloud", "locationType": "AWS Region",
                "instanceType": kind, "operatingSystem": system, "tenancy": tenancy, "preInstalledSw": software,
                "capacitystatus": status, "licenseModel": "No License required", "marketoption": "OnDemand",
                "regionCode": region, "location": location(&region), "operation": "RunInstances" });
            let fits = |(field, value): &(String, String)| {
                field == "ServiceCode" || attributes[field].as_str() == Some(value)
            };
            if filters.iter().all(fits) {
                list.push(product(&format!("RIG{n:09}{m}"), kind, &attributes, usd * factor));
            }
        }
    }
    let start: usize = asked.get("NextToken").parse().unwrap_or(0);
    let size = asked.get("MaxResults").parse().unwrap_or(100).min(100);
    let mut page = json!({ "FormatVersion": "aws_v1", "PriceList": list.iter().skip(start).take(size).collect::<Vec<_>>() });
    if list.len() > start + size {
        page["NextToken"] = json!((start + size).to_string());
    }
    json_answer(&page)
}

fn location(region: &str) -> &str {
    match region {
        "us-east-1" => "US East (N. Virginia)",
        "us-east-2" => "US East (Ohio)",
        "us-west-2" => "US West (Oregon)",
        "eu-west-1" => "EU (Ireland)",
        "eu-central-1" => "EU (Frankfurt)",
        other => other,
    }
}

/// A document of the price list, as text inside the answer.
fn product(sku: &str, kind: &str, attributes: &Value, usd: f64) -> String {
    let (term, rate) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
    let system = attributes["operatingSystem"].as_str().unwrap_or_default();
    let dimension = json!({ "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "rateCode": rate, "appliesTo": [],
        "description": format!("${usd} per On Demand {system} {kind} Instance Hour"), "pricePerUnit": { "USD": format!("{usd:.10}") } });
    let term_of = json!({ "sku": sku, "offerTermCode": "JRTCKXETXF", "effectiveDate": "2026-01-01T00:00:00Z",
        "termAttributes": {}, "priceDimensions": { rate: dimension } });
    json!({ "product": { "productFamily": "Compute Instance", "sku": sku, "attributes": attributes }, "serviceCode": "AmazonEC2",
            "version": "20260101000000", "publicationDate": "2026-01-01T00:00:00Z", "terms": { "OnDemand": { term: term_of } } })
    .to_string()
}
