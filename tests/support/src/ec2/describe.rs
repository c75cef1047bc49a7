//! DescribeInstances with EC2's filters and pages, instance status, attributes and tags.
//!
//! The items are moto's; state, reason, token and spot request are ours. A call that changes an
//! instance elsewhere (an address, a type, a profile) makes moto's items be fetched again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cloud::{Cloud, ec2_answer, lock, numbered, refused};
use super::http::Answer;
use super::query::{self, Params};
use super::route::{ABSENT, Asked, among, passes};
use super::world::{Instance, Spot, State, World};
use super::xml::Node;

/// A page holds this much, whatever was asked for.
const PAGE_MAX: usize = 1000;

/// Calls that change what moto says of an instance.
const CHANGES: &[&str] = &[
    "Associate",
    "Disassociate",
    "Attach",
    "Detach",
    "Modify",
    "Replace",
    "Monitor",
    "Unmonitor",
    "Reset",
];

pub(super) fn answer(cloud: &Cloud, asked: &Asked, action: &str) -> Option<Answer> {
    match action {
        "DescribeInstances" => Some(instances(cloud, asked)),
        "DescribeInstanceStatus" => Some(statuses(cloud, asked)),
        "DescribeInstanceAttribute" => attribute(cloud, asked),
        "ModifyInstanceAttribute"
            if !asked.get("InstanceInitiatedShutdownBehavior.Value").is_empty() =>
        {
            let to = asked.get("InstanceInitiatedShutdownBehavior.Value").to_owned();
            cloud.world().find(asked.get("InstanceId"))?.on_shutdown = to;
            Some(ec2_answer(action, [Node::leaf("return", true)]))
        }
        // moto knows no such key.
        "GetEbsDefaultKmsKeyId" => {
            let key = lock(&cloud.disk_key).clone();
            Some(ec2_answer(
                action,
                [Node::leaf("kmsKeyId", if key.is_empty() { "alias/aws/ebs" } else { &key })],
            ))
        }
        "CreateTags" | "DeleteTags" => tags(cloud, asked, action),
        other if CHANGES.iter().any(|start| other.starts_with(start)) => {
            cloud.world().outdated = true;
            None
        }
        _ => None,
    }
}

pub(super) fn not_found(id: &str) -> Answer {
    refused("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
}

/// Is it hidden from those who ask: too young, or long gone?
pub(super) fn hidden(world: &World, instance: &Instance, now: Duration) -> bool {
    let born = instance.history.first().expect("it begins as pending").0;
    instance.forgotten || (!world.unseen.is_zero() && now < born + world.unseen)
}

/// The instances that a call names and this Region shows, or the refusal.
pub(super) fn named(world: &World, asked: &Asked, now: Duration) -> Result<Vec<usize>, Answer> {
    let ids = query::list(&asked.params, "InstanceId");
    let at = |id: &String| {
        let at =
            world.by_id.get(id).copied().filter(|at| world.instances[*at].region == asked.region);
        at.filter(|at| !hidden(world, &world.instances[*at], now)).ok_or_else(|| not_found(id))
    };
    ids.iter().map(at).collect()
}

fn instances(cloud: &Cloud, asked: &Asked) -> Answer {
    refresh(cloud, &asked.region);
    let world = cloud.world();
    let now = cloud.now();
    let then = now.saturating_sub(world.stale);
    let filters = query::filters(&asked.params);
    let chosen = match named(&world, asked, now) {
        Err(no) => return no,
        Ok(_) if !asked.get("InstanceId.1").is_empty() && !asked.get("MaxResults").is_empty() => {
            return refused(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            );
        }
        Ok(chosen) if !chosen.is_empty() => chosen,
        Ok(_) => (0..world.instances.len())
            .filter(|at| world.instances[*at].region == asked.region)
            .collect(),
    };
    let mut shown = Vec::new();
    for instance in chosen
        .into_iter()
        .map(|at| &world.instances[at])
        .filter(|instance| !hidden(&world, instance, now))
    {
        // A stale read does not show newer instances.
        let Some(state) = instance.state_at(then) else { continue };
        match passes(&filters, instance.item.items("tagSet"), |name| instance.fact(name, state)) {
            Ok(true) => shown.push((instance, state)),
            Ok(false) => {}
            Err(filter) => {
                return refused(
                    "InvalidParameterValue",
                    format!("The filter '{filter}' is invalid"),
                );
            }
        }
    }
    let (page, next) = match page(asked, shown) {
        Ok(page) => page,
        Err(no) => return no,
    };
    let reservations = page.iter().map(|(instance, state)| {
        let head = [
            Node::leaf("reservationId", &instance.reservation),
            Node::leaf("ownerId", &cloud.account),
            Node::new("groupSet"),
        ];
        Node::with(
            "item",
            head.into_iter().chain([Node::with("instancesSet", [instance.node(*state)])]),
        )
    });
    ec2_answer(
        "DescribeInstances",
        [Node::with("reservationSet", reservations)].into_iter().chain(next),
    )
}

/// The part of a list that was asked for, and the token of the next one.
pub(super) fn page<T>(asked: &Asked, list: Vec<T>) -> Result<(Vec<T>, Option<Node>), Answer> {
    let start: usize = match asked.get("NextToken") {
        "" => 0,
        token => match token.strip_prefix("page-").and_then(|start| start.parse().ok()) {
            Some(start) => start,
            None => return Err(refused("InvalidNextToken", "The specified token is not valid")),
        },
    };
    let size = asked.get("MaxResults").parse().unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let next = (list.len() > start + size)
        .then(|| Node::leaf("nextToken", format!("page-{}", start + size)));
    Ok((list.into_iter().skip(start).take(size).collect(), next))
}

/// Fetches moto's items anew, if a call changed them.
fn refresh(cloud: &Cloud, region: &str) {
    if !std::mem::take(&mut cloud.world().outdated) {
        return;
    }
    let Ok(all) = cloud.moto_ec2(region, "DescribeInstances", &Params::new()) else { return };
    let mut world = cloud.world();
    for set in all.all("instancesSet") {
        for item in &set.children {
            if let Some(instance) =
                world.find(item.at("instanceId")).filter(|instance| instance.in_moto)
            {
                let tags = instance.tags();
                instance.item = item.clone();
                instance.set_tags(&tags);
            }
        }
    }
}

fn statuses(cloud: &Cloud, asked: &Asked) -> Answer {
    let world = cloud.world();
    let now = cloud.now();
    let chosen = match named(&world, asked, now) {
        Err(no) => return no,
        Ok(chosen) if !chosen.is_empty() => chosen,
        Ok(_) => (0..world.instances.len()).collect(),
    };
    let all = asked.get("IncludeAllInstances") == "true";
    let shown = chosen
        .into_iter()
        .map(|at| &world.instances[at])
        .filter(|instance| instance.region == asked.region && !hidden(&world, instance, now));
    let item = |instance: &Instance| {
        let state = instance.state();
        let word = match (state, instance.impaired) {
            (State::Running, true) => ("impaired", "failed"),
            (State::Running, false) => ("ok", "passed"),
            _ => ("not-applicable", ""),
        };
        let detail = Node::with(
            "details",
            [Node::with(
                "item",
                [Node::leaf("name", "reachability"), Node::leaf("status", word.1)],
            )],
        );
        let check = |name: &str| Node::with(name, [Node::leaf("status", word.0), detail.clone()]);
        let head = [
            Node::leaf("instanceId", &instance.id),
            Node::leaf("availabilityZone", instance.item.at("placement/availabilityZone")),
            state.node("instanceState"),
        ];
        Node::with("item", head.into_iter().chain([check("systemStatus"), check("instanceStatus")]))
    };
    let filters = query::filters(&asked.params);
    let facts = |item: &Node| [("system-status.status", item.at("systemStatus/status").to_owned())];
    let wanted = |item: &Node| passes(&filters, &[], among(&facts(item)));
    let shown: Vec<Node> =
        shown.filter(|instance| all || instance.state() == State::Running).map(item).collect();
    let shown = match shown
        .into_iter()
        .filter_map(|item| wanted(&item).map(|wanted| wanted.then_some(item)).transpose())
        .collect()
    {
        Ok(shown) => shown,
        Err(name) => {
            return refused("InvalidParameterValue", format!("The filter '{name}' is invalid"));
        }
    };
    match page(asked, shown) {
        Ok((page, next)) => ec2_answer(
            "DescribeInstanceStatus",
            [Node::with("instanceStatusSet", page)].into_iter().chain(next),
        ),
        Err(no) => no,
    }
}

fn attribute(cloud: &Cloud, asked: &Asked) -> Option<Answer> {
    let mut world = cloud.world();
    let id = asked.get("InstanceId");
    let Some(instance) = world.find(id) else { return Some(not_found(id)) };
    let value = |name: &str, value: &str| {
        Some(Node::with(name, (!value.is_empty()).then(|| Node::leaf("value", value))))
    };
    let node = match asked.get("Attribute") {
        "userData" => value("userData", &instance.user_data),
        "instanceInitiatedShutdownBehavior" => {
            value("instanceInitiatedShutdownBehavior", &instance.on_shutdown)
        }
        _ => None,
    }?;
    Some(ec2_answer("DescribeInstanceAttribute", [Node::leaf("instanceId", id), node]))
}

/// The tags of instances are here. moto has all other tags.
fn tags(cloud: &Cloud, asked: &Asked, action: &str) -> Option<Answer> {
    let mut world = cloud.world();
    let now = cloud.now();
    let resources = query::list(&asked.params, "ResourceId");
    let hidden_one = resources.iter().find(|id| {
        world.by_id.get(*id).is_some_and(|at| hidden(&world, &world.instances[*at], now))
    });
    if let Some(id) = hidden_one {
        return Some(not_found(id));
    }
    if asked.is_dry() {
        return None;
    }
    let changed = query::pairs(&asked.params, "Tag");
    let mut moto = Vec::new();
    for id in resources {
        let spot = world
            .instances
            .iter_mut()
            .filter_map(|instance| instance.spot.as_mut())
            .find(|spot| spot.id == id);
        if let Some(spot) = spot {
            change(&mut spot.tags, action, &changed);
            continue;
        }
        let Some(instance) = world.find(&id) else {
            moto.push(id);
            continue;
        };
        let mut tags = instance.tags();
        change(&mut tags, action, &changed);
        instance.set_tags(&tags);
        if instance.in_moto {
            moto.push(id);
        }
    }
    drop(world);
    if !moto.is_empty() {
        let mut params: Params = asked
            .params
            .iter()
            .filter(|(key, _)| !key.starts_with("ResourceId"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        params.extend(numbered("ResourceId", &moto));
        if let Err(no) = cloud.moto_ec2(&asked.region, action, &params) {
            return Some(no);
        }
    }
    Some(ec2_answer(action, [Node::leaf("return", true)]))
}

fn change(tags: &mut BTreeMap<String, String>, action: &str, changed: &[(String, String)]) {
    for (key, value) in changed {
        if action == "CreateTags" {
            tags.insert(key.clone(), value.clone());
        } else {
            tags.remove(key);
        }
    }
}

impl Instance {
    /// The facts that filters may use.
    fn fact(&self, name: &str, state: State) -> Option<Vec<String>> {
        let text = |path: &str| self.item.at(path).to_owned();
        let of_spot =
            |text: fn(&Spot) -> String| self.spot.as_ref().map_or(ABSENT.to_owned(), text);
        let fact = match name {
            "instance-id" => self.id.clone(),
            "instance-state-name" => state.name().into(),
            "instance-state-code" => state.code().to_string(),
            "client-token" => self.token.clone(),
            // On-demand instances have none.
            "instance-lifecycle" => of_spot(|_| "spot".into()),
            "spot-instance-request-id" => of_spot(|spot| spot.id.clone()),
            "availability-zone" => text("placement/availabilityZone"),
            "instance-type" => text("instanceType"),
            "image-id" => text("imageId"),
            "subnet-id" => text("subnetId"),
            "vpc-id" => text("vpcId"),
            "key-name" => text("keyName"),
            "architecture" => text("architecture"),
            "reservation-id" => self.reservation.clone(),
            "launch-time" => self.launched.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string(),
            "iam-instance-profile.arn" => text("iamInstanceProfile/arn"),
            "metadata-options.http-tokens" => text("metadataOptions/httpTokens"),
            "instance.group-id" => {
                return Some(
                    self.item.all("groupId").into_iter().map(|group| group.text.clone()).collect(),
                );
            }
            _ => return None,
        };
        Some(vec![fact])
    }

    /// As EC2 shows it in this state.
    pub(super) fn node(&self, state: State) -> Node {
        let mut item = self.item.clone();
        item.set(state.node("instanceState"));
        item.set(Node::leaf("launchTime", self.launched.strftime("%Y-%m-%dT%H:%M:%S.000Z")));
        item.set(Node::leaf("clientToken", &self.token));
        item.set(Node::leaf("reason", &self.transition));
        // moto does not know our images, and believes in the oldest kind.
        item.set(Node::leaf("virtualizationType", "hvm"));
        ["stateReason", "kernelId"].iter().for_each(|name| item.remove(name));
        match &self.reason {
            Some((code, words)) if state != State::Running => {
                item.set(Node::with(
                    "stateReason",
                    [Node::leaf("code", code), Node::leaf("message", words)],
                ));
            }
            _ => {}
        }
        if let Some(spot) = &self.spot {
            item.set(Node::leaf("spotInstanceRequestId", &spot.id));
            item.set(Node::leaf("instanceLifecycle", "spot"));
        }
        if matches!(state, State::Terminated | State::Stopped) {
            ["ipAddress", "dnsName"].iter().for_each(|name| item.remove(name));
        }
        if state == State::Terminated {
            ["privateIpAddress", "privateDnsName", "subnetId", "vpcId"]
                .iter()
                .for_each(|name| item.remove(name));
            ["networkInterfaceSet", "blockDeviceMapping", "groupSet"]
                .iter()
                .for_each(|name| item.set(Node::new(name)));
        }
        item
    }
}
