//! RunInstances: what EC2 refuses and moto does not, the client token, the spot request; moto makes
//! the rest.

use super::cloud::{Cloud, ec2_answer, lock, numbered, refused};
use super::fault;
use super::http::Answer;
use super::images;
use super::query::{self, Params};
use super::route::Asked;
use super::world::{Instance, Spot, State};
use super::xml::Node;

/// The most bytes of the script, before it is encoded.
const USER_DATA_MAX: usize = 16384;

pub(super) fn run(cloud: &Cloud, asked: &Asked) -> Answer {
    // An answer that is under way is waited for, and then given again.
    let _one = lock(&cloud.launching);
    let token = asked.get("ClientToken").to_owned();
    // A token holds in its Region, or in its zone where the request names one.
    let place =
        (asked.region.clone(), token.clone(), asked.get("Placement.AvailabilityZone").to_owned());
    let before = (!token.is_empty() && !asked.is_dry())
        .then(|| cloud.world().tokens.get(&place).cloned())
        .flatten();
    if let Some((request, ids)) = before {
        return again(cloud, asked, &request, &ids);
    }
    if let Some(no) = refuses(cloud, asked) {
        return no;
    }
    if asked.is_dry() {
        return refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.");
    }
    let Some(count) = in_room(cloud, asked) else {
        return refused(
            "InsufficientInstanceCapacity",
            fault::message("InsufficientInstanceCapacity"),
        );
    };
    // moto launches the smaller number.
    let mut exact = asked.request.clone();
    let mut params = asked.params.clone();
    params.extend(["MinCount", "MaxCount"].map(|name| (name.to_owned(), count.to_string())));
    exact.body = query::encode(&params);
    let answer = cloud.moto(&exact);
    if answer.status != 200 {
        return answer;
    }
    let made = Node::parse(&answer.text());
    let ids = remember(cloud, asked, &made);
    if !token.is_empty() {
        cloud.world().tokens.insert(place, (identity(&asked.params), ids.clone()));
    }
    reservation(cloud, &ids)
}

/// How many machines EC2 launches: as many as it has, and none below the fewest that are asked
/// for.
fn in_room(cloud: &Cloud, asked: &Asked) -> Option<u32> {
    let count = |name: &str| asked.get(name).parse().unwrap_or(1_u32);
    let mut world = cloud.world();
    let count = count("MaxCount").min(world.room.unwrap_or(u32::MAX)).max(count("MinCount"));
    world.room = match world.room {
        Some(room) => Some(room.checked_sub(count)?),
        None => None,
    };
    Some(count)
}

/// Everything that makes two requests the same.
fn identity(params: &Params) -> String {
    let same: Params = params
        .iter()
        .filter(|(key, _)| *key != "ClientToken")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    String::from_utf8(query::encode(&same)).expect("it is ASCII")
}

fn again(cloud: &Cloud, asked: &Asked, request: &str, ids: &[String]) -> Answer {
    if identity(&asked.params) != request {
        let said = "The request uses the same client token as a previous, but non-identical request. Do not reuse a client token with different requests, unless the requests are identical.";
        return refused("IdempotentParameterMismatch", said);
    }
    let gone = ids
        .iter()
        .all(|id| cloud.world().find(id).is_none_or(|instance| instance.state().is_gone()));
    if gone {
        return refused(
            "IdempotentInstanceTerminated",
            "The client token was already used by an instance that has been terminated.",
        );
    }
    reservation(cloud, ids)
}

fn refuses(cloud: &Cloud, asked: &Asked) -> Option<Answer> {
    let data = asked.get("UserData");
    match query::base64(data) {
        None => {
            return Some(refused(
                "InvalidUserData.Malformed",
                "Invalid BASE64 encoding of user data",
            ));
        }
        Some(bytes) if bytes.len() > USER_DATA_MAX => {
            return Some(refused(
                "InvalidParameterValue",
                format!("User data is limited to {USER_DATA_MAX} bytes"),
            ));
        }
        Some(_) => {}
    }
    let image = asked.get("ImageId");
    if !image.is_empty() && !images::exists(cloud, &asked.region, image) {
        return Some(refused(
            "InvalidAMIID.NotFound",
            format!("The image id '[{image}]' does not exist"),
        ));
    }
    let key = asked.get("KeyName");
    if !key.is_empty()
        && cloud
            .moto_ec2(&asked.region, "DescribeKeyPairs", &numbered("KeyName", &[key.into()]))
            .is_err()
    {
        return Some(refused(
            "InvalidKeyPair.NotFound",
            format!("The key pair '{key}' does not exist"),
        ));
    }
    if asked.get("InstanceMarketOptions.MarketType") == "spot" {
        refuses_spot(cloud, asked)
    } else {
        None
    }
}

fn refuses_spot(cloud: &Cloud, asked: &Asked) -> Option<Answer> {
    let option = |name: &str| asked.get(&format!("InstanceMarketOptions.SpotOptions.{name}"));
    let interruption = option("InstanceInterruptionBehavior");
    if option("SpotInstanceType") == "persistent" && !matches!(interruption, "stop" | "hibernate") {
        let said = "The instance interruption behavior 'terminate' is not supported for persistent Spot requests in RunInstances";
        return Some(refused("InvalidParameterCombination", said));
    }
    if option("SpotInstanceType") != "persistent" && matches!(interruption, "stop" | "hibernate") {
        return Some(refused(
            "InvalidParameterCombination",
            "A one-time Spot request can only be terminated on interruption",
        ));
    }
    let zone = cloud.zone_of(asked);
    let zone = if zone.is_empty() { format!("{}a", asked.region) } else { zone };
    let price = lock(&cloud.catalogue).spot_price(
        asked.get("InstanceType"),
        &zone,
        cloud.wall(cloud.now()),
    )?;
    let bid: f64 = option("MaxPrice").parse().ok()?;
    (bid < price).then(|| {
        let said = format!("Your Spot request price of {bid} is lower than the minimum required Spot request fulfillment price of {price}.");
        refused("SpotMaxPriceTooLow", said)
    })
}

/// Takes over from moto what it has made.
fn remember(cloud: &Cloud, asked: &Asked, made: &Node) -> Vec<String> {
    let mut world = cloud.world();
    let now = cloud.now();
    let spot = |id: String| {
        let option =
            |name: &str| asked.get(&format!("InstanceMarketOptions.SpotOptions.{name}")).to_owned();
        let interruption = option("InstanceInterruptionBehavior");
        Spot {
            id,
            one_time: option("SpotInstanceType") != "persistent",
            max_price: option("MaxPrice"),
            interruption: if interruption.is_empty() { "terminate".into() } else { interruption },
            state: "active",
            code: "fulfilled",
            tags: query::tags(&asked.params, "spot-instances-request"),
        }
    };
    let is_spot = asked.get("InstanceMarketOptions.MarketType") == "spot";
    let mut ids = Vec::new();
    for item in made.items("instancesSet") {
        world.numbered += 1;
        let request = format!("sir-{:08x}", world.numbered);
        let behaviour = asked.get("InstanceInitiatedShutdownBehavior");
        let (pending, pace) = (world.pace.pending, world.pace);
        let mut instance = Instance {
            id: item.at("instanceId").into(),
            region: asked.region.clone(),
            reservation: made.at("reservationId").into(),
            item: item.clone(),
            token: asked.get("ClientToken").into(),
            spot: is_spot.then(|| spot(request)),
            on_shutdown: if behaviour.is_empty() { "stop".into() } else { behaviour.into() },
            user_data: asked.get("UserData").into(),
            launched: cloud.wall(now),
            history: Vec::new(),
            next: None,
            reason: Some(("pending".into(), "pending".into())),
            transition: String::new(),
            notice: None,
            impaired: false,
            in_moto: true,
            forgotten: false,
        };
        instance.enter(now, State::Pending, pace.then(pending, State::Running));
        ids.push(instance.id.clone());
        world.add(instance);
    }
    ids
}

/// The answer of the first call, with the instances as they are.
fn reservation(cloud: &Cloud, ids: &[String]) -> Answer {
    let mut world = cloud.world();
    let mut reservation = String::new();
    let mut items = Vec::new();
    for id in ids {
        if let Some(instance) = world.find(id) {
            reservation.clone_from(&instance.reservation);
            items.push(instance.node(instance.state()));
        }
    }
    let head = [
        Node::leaf("reservationId", reservation),
        Node::leaf("ownerId", &cloud.account),
        Node::new("groupSet"),
    ];
    ec2_answer("RunInstances", head.into_iter().chain([Node::with("instancesSet", items)]))
}
