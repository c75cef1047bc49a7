//! On-demand prices of machines and disks, from the Price List API.
//!
//! Each type is asked for alone: the list of a whole region has a hundred times as many rows. A
//! type without a price is remembered as such.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_pricing::types::{Filter, FilterType};
use futures::StreamExt as _;
use futures::stream;
use serde_json::Value;

use super::errors::meaning;
use crate::adapters::aws::disk_cache::Ec2Cache;
use crate::adapters::aws::session::AwsSession;
use crate::market::{Region, Usd, UsdPerHour};
use crate::ports::CloudError;

/// On-demand prices change rarely, and have risen only twice in ten years.
const PRICES_HOLD: Duration = Duration::from_secs(24 * 3600);

/// The Price List answers ten calls a second and throttles the rest.
const AT_ONCE: usize = 8;

/// The known prices, and an error if some may be missing.
#[derive(Debug, Default)]
pub struct Listed {
    pub by_type: BTreeMap<String, UsdPerHour>,
    /// A GiB of gp3 for a month.
    pub disk: Option<Usd>,
    pub trouble: Option<CloudError>,
}

/// The question for the disk, beside the names of types.
const DISK: &str = "gp3";

pub async fn on_demand(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    types: &[String],
) -> Listed {
    let mut listed = Listed::default();
    let mut missing = Vec::new();
    for what in types.iter().map(String::as_str).chain([DISK]) {
        match cache.get::<Option<Usd>>(&format!("list-{what}"), PRICES_HOLD) {
            Some(price) => listed.take(what, price),
            None => missing.push(what.to_owned()),
        }
    }
    if missing.is_empty() {
        return listed;
    }
    let client = session.pricing().await;
    let mut asked = Vec::new();
    for what in missing {
        asked.push(price(client.clone(), region.clone(), what));
    }
    let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    while let Some((what, answer)) = answers.next().await {
        match answer {
            Ok(price) => {
                cache.put(&format!("list-{what}"), &price);
                listed.take(&what, price);
            }
            Err(error) => {
                let is_final =
                    matches!(error, CloudError::Denied { .. } | CloudError::Ambiguous { .. });
                listed.trouble = Some(error);
                // Without permission for one price there is none for any. If the service does not
                // answer, a hundred more calls only cost time.
                if is_final {
                    break;
                }
            }
        }
    }
    listed
}

impl Listed {
    fn take(&mut self, what: &str, price: Option<Usd>) {
        let Some(price) = price else { return };
        if what == DISK {
            self.disk = Some(price);
        } else {
            self.by_type.insert(what.to_owned(), UsdPerHour::new(price));
        }
    }
}

/// The question and its price in the list; `None`: it has none.
async fn price(
    client: aws_sdk_pricing::Client,
    region: Region,
    what: String,
) -> (String, Result<Option<Usd>, CloudError>) {
    let answer = ask(&client, &region, &what).await;
    (what, answer)
}

async fn ask(
    client: &aws_sdk_pricing::Client,
    region: &Region,
    what: &str,
) -> Result<Option<Usd>, CloudError> {
    let machine = [
        ("instanceType", what),
        ("operatingSystem", "Linux"),
        ("tenancy", "Shared"),
        ("preInstalledSw", "NA"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
    ];
    let disk = [("productFamily", "Storage"), ("volumeApiName", what)];
    let fields = if what == DISK { &disk[..] } else { &machine[..] };
    let filter = |(field, value): &(&str, &str)| {
        let filter =
            Filter::builder().field(*field).value(*value).r#type(FilterType::TermMatch).build();
        filter.expect("field, value and type are given")
    };
    let filters = fields.iter().chain(&[("regionCode", region.as_str())]).map(filter).collect();
    let asked = client.get_products().service_code("AmazonEC2").set_filters(Some(filters));
    let products: Result<Vec<String>, _> = asked.into_paginator().items().send().collect().await;
    let products = products.map_err(|error| meaning("read AWS's price list", error))?;
    // If the list has two, the dearer one is the safe one.
    Ok(products.iter().filter_map(|product| price_of(product)).max())
}

/// The price of a product in the list: a JSON document in a JSON string.
fn price_of(product: &str) -> Option<Usd> {
    let document: Value = serde_json::from_str(product).ok()?;
    let terms = document["terms"]["OnDemand"].as_object()?.values();
    let rates = terms
        .filter_map(|term| term["priceDimensions"].as_object())
        .flat_map(|rates| rates.values());
    let prices = rates
        .filter(|rate| matches!(rate["unit"].as_str(), Some("Hrs" | "GB-Mo")))
        .filter_map(|rate| rate["pricePerUnit"]["USD"].as_str());
    prices.filter_map(|price| price.parse::<Usd>().ok()).filter(|price| *price > Usd::ZERO).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_has_the_price_of_its_hour_in_dollars() {
        let product = |unit: &str, price: &str| {
            format!(
                r#"{{"terms":{{"OnDemand":{{"A.B":{{"priceDimensions":{{"A.B.C":{{"unit":"{unit}","pricePerUnit":{{{price}}}}}}}}}}}}}}}"#
            )
        };
        assert_eq!(
            price_of(&product("Hrs", r#""USD":"1.0060000000""#)),
            Some("1.006".parse().unwrap())
        );
        assert_eq!(
            price_of(&product("GB-Mo", r#""USD":"0.0800000000""#)),
            Some("0.08".parse().unwrap())
        );
        assert_eq!(
            price_of(&product("Hrs", r#""USD":"0.0000000000""#)),
            None,
            "a reservation that is paid for elsewhere"
        );
        assert_eq!(price_of(&product("Hrs", r#""CNY":"7.0""#)), None, "not a price in dollars");
        assert_eq!(price_of(&product("Quantity", r#""USD":"9000""#)), None, "an upfront payment");
        assert_eq!(price_of("no document"), None);
    }
}
