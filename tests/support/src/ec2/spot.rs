//! Spot requests as RunInstances makes them, and the history of prices.

use super::cloud::{Cloud, ec2_answer, lock, refused};
use super::describe::page;
use super::handle::FalseEc2;
use super::http::Answer;
use super::query;
use super::route::{Asked, among, passes};
use super::world::{Instance, Spot, tag_set};
use super::xml::Node;

pub(super) fn answer(cloud: &Cloud, asked: &Asked, action: &str) -> Option<Answer> {
    match action {
        "DescribeSpotInstanceRequests" => Some(requests(cloud, asked)),
        "CancelSpotInstanceRequests" => Some(cancel(cloud, asked)),
        "DescribeSpotPriceHistory" => Some(prices(cloud, asked)),
        _ => None,
    }
}

fn unknown(id: &str) -> Answer {
    refused(
        "InvalidSpotInstanceRequestID.NotFound",
        format!("The spot instance request ID '{id}' does not exist"),
    )
}

fn requests(cloud: &Cloud, asked: &Asked) -> Answer {
    let (ids, filters) =
        (query::list(&asked.params, "SpotInstanceRequestId"), query::filters(&asked.params));
    let world = cloud.world();
    let here: Vec<(&Instance, &Spot)> = world
        .instances
        .iter()
        .filter(|i| i.region == asked.region)
        .filter_map(|instance| Some((instance, instance.spot.as_ref()?)))
        .collect();
    if let Some(id) = ids.iter().find(|id| here.iter().all(|(_, spot)| spot.id != **id)) {
        return unknown(id);
    }
    let mut shown = Vec::new();
    for (instance, spot) in
        here.into_iter().filter(|(_, spot)| ids.is_empty() || ids.contains(&spot.id))
    {
        let facts = [
            ("state", spot.state.to_owned()),
            ("status-code", spot.code.to_owned()),
            ("instance-id", instance.id.clone()),
            ("spot-instance-request-id", spot.id.clone()),
            ("type", kind(spot).to_owned()),
        ];
        match passes(&filters, &tag_set(&spot.tags).children, among(&facts)) {
            Ok(true) => shown.push(request(instance, spot)),
            Ok(false) => {}
            Err(filter) => {
                return refused(
                    "InvalidParameterValue",
                    format!("The filter '{filter}' is invalid"),
                );
            }
        }
    }
    for (number, (_, kind)) in world
        .waiting
        .iter()
        .enumerate()
        .filter(|(_, (region, _))| ids.is_empty() && *region == asked.region)
    {
        if matches!(passes(&filters, &[], among(&[("state", "open".to_owned())])), Ok(true)) {
            shown.push(waits(number, kind));
        }
    }
    match page(asked, shown) {
        Ok((page, next)) => ec2_answer(
            "DescribeSpotInstanceRequests",
            [Node::with("spotInstanceRequestSet", page)].into_iter().chain(next),
        ),
        Err(no) => no,
    }
}

impl FalseEc2 {
    /// A program requests a spot machine while there is no capacity.
    pub fn wait_for_spot(&self, region: &str, kind: &str) {
        self.cloud.world().waiting.push((region.to_owned(), kind.to_owned()));
    }
}

impl FalseEc2 {
    /// The persistent spot request of this machine requests another one, because the machine has
    /// ended.
    pub fn asks_again(&self, machine: &str) {
        self.on(machine, |instance, _| {
            let spot = instance.spot.as_mut().expect("it was bought on the spot market");
            (spot.one_time, spot.state, spot.code) = (false, "open", "pending-evaluation");
        });
    }
}

fn waits(number: usize, kind: &str) -> Node {
    let launch = Node::with("launchSpecification", [Node::leaf("instanceType", kind)]);
    let id = Node::leaf("spotInstanceRequestId", format!("sir-waiting{number}"));
    Node::with("item", [id, Node::leaf("type", "persistent"), Node::leaf("state", "open"), launch])
}

fn kind(spot: &Spot) -> &'static str {
    if spot.one_time { "one-time" } else { "persistent" }
}

fn request(instance: &Instance, spot: &Spot) -> Node {
    let time = instance.launched.strftime("%Y-%m-%dT%H:%M:%S.000Z");
    let status = Node::with(
        "status",
        [
            Node::leaf("code", spot.code),
            Node::leaf("updateTime", &time),
            Node::leaf("message", spot.code),
        ],
    );
    let of = |name: &str, path: &str| Node::leaf(name, instance.item.at(path));
    let launch = Node::with(
        "launchSpecification",
        [of("imageId", "imageId"), of("instanceType", "instanceType")],
    );
    let fields = [
        Node::leaf("spotInstanceRequestId", &spot.id),
        Node::leaf("spotPrice", &spot.max_price),
        Node::leaf("type", kind(spot)),
        Node::leaf("state", spot.state),
        status,
        Node::leaf("instanceId", &instance.id),
        Node::leaf("createTime", &time),
        Node::leaf("productDescription", "Linux/UNIX"),
        launch,
        of("launchedAvailabilityZone", "placement/availabilityZone"),
        Node::leaf("instanceInterruptionBehavior", &spot.interruption),
        tag_set(&spot.tags),
    ];
    Node::with("item", fields)
}

/// The instance goes on: cancelling a request never ended one.
fn cancel(cloud: &Cloud, asked: &Asked) -> Answer {
    let mut world = cloud.world();
    let ids = query::list(&asked.params, "SpotInstanceRequestId");
    let mut items = Vec::new();
    for id in &ids {
        let Some(instance) = world
            .instances
            .iter_mut()
            .find(|instance| instance.spot.as_ref().is_some_and(|spot| spot.id == *id))
        else {
            return unknown(id);
        };
        let running = !instance.state().is_gone();
        let spot = instance.spot.as_mut().expect("it was just found by it");
        if matches!(spot.state, "active" | "open") {
            (spot.state, spot.code) = (
                "cancelled",
                if running {
                    "request-canceled-and-instance-running"
                } else {
                    "canceled-before-fulfillment"
                },
            );
        }
        items.push(Node::with(
            "item",
            [Node::leaf("spotInstanceRequestId", id), Node::leaf("state", spot.state)],
        ));
    }
    ec2_answer("CancelSpotInstanceRequests", [Node::with("spotInstanceRequestSet", items)])
}

/// Newest first, with the price that held at the start; an empty token ends the pages, as EC2's
/// does.
fn prices(cloud: &Cloud, asked: &Asked) -> Answer {
    let filters = query::filters(&asked.params);
    let facts_wanted = |name: &str, parameter: &str| {
        let mut wanted = query::list(&asked.params, parameter);
        wanted.extend(
            filters
                .iter()
                .filter(|(filter, _)| filter == name)
                .flat_map(|(_, values)| values.clone()),
        );
        wanted
    };
    let (kinds, products) = (
        facts_wanted("instance-type", "InstanceType"),
        facts_wanted("product-description", "ProductDescription"),
    );
    let mut zones = facts_wanted("availability-zone", "-");
    zones.extend(asked.params.get("AvailabilityZone").cloned());
    let time = |name: &str| asked.get(name).parse().ok();
    let now = cloud.wall(cloud.now());
    let wants = |list: &[String], text: &str| {
        list.is_empty() || list.iter().any(|wanted| query::like(wanted, text))
    };
    let rows = lock(&cloud.catalogue).history(
        &asked.region,
        time("StartTime").unwrap_or(now),
        time("EndTime").unwrap_or(now),
        |row| wants(&kinds, &row.kind) && wants(&products, row.product) && wants(&zones, &row.zone),
    );
    let item = |row: &super::catalogue::Row| {
        let fields = [
            Node::leaf("instanceType", &row.kind),
            Node::leaf("productDescription", row.product),
            Node::leaf("spotPrice", format!("{:.6}", row.usd)),
            Node::leaf("timestamp", row.at.strftime("%Y-%m-%dT%H:%M:%S.000Z")),
            Node::leaf("availabilityZone", &row.zone),
        ];
        Node::with("item", fields)
    };
    if lock(&cloud.catalogue).is_first_page_empty && asked.get("NextToken").is_empty() {
        return ec2_answer(
            "DescribeSpotPriceHistory",
            [Node::new("spotPriceHistorySet"), Node::leaf("nextToken", "page-0")],
        );
    }
    match page(asked, rows.iter().map(item).collect()) {
        Ok((page, next)) => {
            let next = next.unwrap_or_else(|| Node::new("nextToken"));
            ec2_answer("DescribeSpotPriceHistory", [Node::with("spotPriceHistorySet", page), next])
        }
        Err(no) => no,
    }
}
