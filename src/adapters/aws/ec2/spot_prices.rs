//! Spot prices: the current ones, or all changes since a given time.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_ec2::types::{InstanceType, SpotPrice};
use aws_smithy_types::DateTime;
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;

use super::errors::meaning;
use crate::adapters::aws::disk_cache::{Ec2Cache, question};
use crate::adapters::aws::session::AwsSession;
use crate::market::{Offer, PriceHistory, PricePoint, Region, Span, UsdPerHour, Zone};
use crate::ports::CloudError;

/// EC2 changes a price a few times a day.
const SPOT_HOLDS: Duration = Duration::from_secs(5 * 60);

/// Our clock may be ahead of EC2's by this much, and a question about EC2's future has no answer.
const CLOCKS_APART: Span = Span::from_secs(5 * 60);

/// EC2 keeps no more.
const KEPT: Span = Span::from_secs(90 * 86_400);

/// The Linux price. "Linux/UNIX (Amazon VPC)" is the same market under the name of an older
/// network.
const PRODUCT: &str = "Linux/UNIX";

/// Histories have many pages; this many are read at a time.
const AT_ONCE: usize = 8;

/// A series for each type and zone; its last point is the current price. `back`: also all changes
/// of that time.
///
/// # Errors
/// If EC2 does not answer.
pub async fn spot(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    types: &[String],
    back: Option<Span>,
    now: Timestamp,
) -> Result<Vec<PriceHistory>, CloudError> {
    let from = back.unwrap_or(CLOCKS_APART).duration().min(KEPT.duration());
    // One question for all current prices; one question per type for histories of up to a thousand
    // pages.
    let questions: Vec<Vec<String>> = types
        .chunks(if back.is_some() { 1 } else { types.len().max(1) })
        .map(<[String]>::to_vec)
        .collect();
    let since = now.saturating_sub(from).unwrap_or(Timestamp::MIN);
    let mut asked = Vec::new();
    for types in questions {
        let key = format!(
            "spot-{}-{}",
            back.map_or(0, |back| back.duration().as_secs()),
            question(&types)
        );
        asked.push(kept_or_asked(session, cache, region, types, key, since));
    }
    let answers: Vec<Result<Vec<PriceHistory>, CloudError>> =
        stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    let all: Result<Vec<Vec<PriceHistory>>, CloudError> = answers.into_iter().collect();
    Ok(all?.into_iter().flatten().collect())
}

async fn kept_or_asked(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    types: Vec<String>,
    key: String,
    since: Timestamp,
) -> Result<Vec<PriceHistory>, CloudError> {
    if let Some(kept) = cache.get(&key, SPOT_HOLDS) {
        return Ok(kept);
    }
    let found = series(&session.ec2(region).await, region, &types, None, since).await?;
    cache.put(&key, &found);
    Ok(found)
}

/// The price series of one offer's pool since a given time. It is not cached, because it is asked
/// for once.
///
/// # Errors
/// If EC2 does not answer, or lacks prices of this pool.
pub async fn pool_history(
    session: &AwsSession,
    offer: &Offer,
    from: Timestamp,
) -> Result<PriceHistory, CloudError> {
    let (client, types) = (session.ec2(&offer.region).await, [offer.instance_type.clone()]);
    let found = series(&client, &offer.region, &types, Some(&offer.zone), from).await?;
    let of_it = found
        .into_iter()
        .find(|series| series.zone == offer.zone && series.instance_type == offer.instance_type);
    of_it.ok_or_else(|| CloudError::Invalid {
        what: format!("EC2 knows no spot price of {} in {}", offer.instance_type, offer.zone),
    })
}

async fn series(
    client: &aws_sdk_ec2::Client,
    region: &Region,
    types: &[String],
    zone: Option<&Zone>,
    from: Timestamp,
) -> Result<Vec<PriceHistory>, CloudError> {
    let asked = client
        .describe_spot_price_history()
        .set_instance_types(Some(
            types.iter().map(|name| InstanceType::from(name.as_str())).collect(),
        ))
        .product_descriptions(PRODUCT)
        .set_availability_zone(zone.map(Zone::to_string))
        .start_time(DateTime::from_secs(from.as_second()));
    let rows: Result<Vec<SpotPrice>, _> = asked.into_paginator().items().send().collect().await;
    let rows =
        rows.map_err(|error| meaning(&format!("read the spot prices of {region}"), error))?;
    let mut pools: BTreeMap<(String, String), Vec<PricePoint>> = BTreeMap::new();
    for (pool, point) in rows.iter().filter_map(point) {
        pools.entry(pool).or_default().push(point);
    }
    let series = pools.into_iter().map(|((kind, zone), points)| {
        PriceHistory::new(region.clone(), Zone::new(zone), kind, points)
    });
    Ok(series.collect())
}

/// A row with a missing field is ignored.
fn point(row: &SpotPrice) -> Option<((String, String), PricePoint)> {
    let at = Timestamp::from_second(row.timestamp()?.secs()).ok()?;
    let price = UsdPerHour::new(row.spot_price()?.parse().ok()?);
    Some((
        (row.instance_type()?.as_str().to_owned(), row.availability_zone()?.to_owned()),
        PricePoint { at, price },
    ))
}
