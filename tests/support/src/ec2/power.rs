//! Terminate, stop, start and reboot, and every other end of an instance.

use std::time::Duration;

use super::cloud::{Cloud, ec2_answer, numbered, refused};
use super::describe::named;
use super::handle::FalseEc2;
use super::http::Answer;
use super::query;
use super::route::Asked;
use super::world::{Instance, Pace, State, World};
use super::xml::Node;

pub(super) fn answer(cloud: &Cloud, asked: &Asked, action: &str) -> Option<Answer> {
    let change: fn(&Cloud, &mut Instance, Pace) = match action {
        "TerminateInstances" => |cloud, instance, pace| {
            if !instance.state().is_gone() {
                let user = user_initiated(cloud);
                terminate(
                    cloud,
                    instance,
                    pace,
                    ("Client.UserInitiatedShutdown", "User initiated shutdown", &user),
                );
            }
        },
        "StopInstances" => |cloud, instance, pace| {
            if instance.state() == State::Running {
                let user = user_initiated(cloud);
                instance.because("Client.UserInitiatedShutdown", "User initiated shutdown", &user);
                instance.enter(
                    cloud.now(),
                    State::Stopping,
                    pace.then(pace.stopping, State::Stopped),
                );
            }
        },
        "StartInstances" => |cloud, instance, pace| {
            if instance.state() == State::Stopped {
                (instance.reason, instance.transition) = (None, String::new());
                instance.launched = cloud.wall(cloud.now());
                instance.enter(
                    cloud.now(),
                    State::Pending,
                    pace.then(pace.pending, State::Running),
                );
            }
        },
        "RebootInstances" => |_, _, _| {},
        _ => return None,
    };
    Some(changes(cloud, asked, action, change))
}

fn changes(
    cloud: &Cloud,
    asked: &Asked,
    action: &str,
    change: fn(&Cloud, &mut Instance, Pace),
) -> Answer {
    let ids = query::list(&asked.params, "InstanceId");
    let in_moto = match may(&cloud.world(), cloud, asked, action) {
        Ok(in_moto) => in_moto,
        Err(no) => return no,
    };
    if asked.is_dry() {
        return refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.");
    }
    // moto knows of protection against termination, and deletes disks.
    if !in_moto.is_empty() && action != "RebootInstances" {
        let mut params = numbered("InstanceId", &in_moto);
        params.extend(asked.params.get("Force").map(|force| ("Force".to_owned(), force.clone())));
        if let Err(no) = cloud.moto_ec2(&asked.region, action, &params) {
            return no;
        }
    }
    let mut world = cloud.world();
    let pace = world.pace;
    let mut items = Vec::new();
    for id in &ids {
        let Some(instance) = world.find(id) else { continue };
        let before = instance.state();
        change(cloud, instance, pace);
        let after = instance.state();
        instance.in_moto &= !after.is_gone();
        items.push(Node::with(
            "item",
            [
                Node::leaf("instanceId", id),
                after.node("currentState"),
                before.node("previousState"),
            ],
        ));
    }
    match action {
        "RebootInstances" => ec2_answer(action, [Node::leaf("return", true)]),
        _ => ec2_answer(action, [Node::with("instancesSet", items)]),
    }
}

/// Those that moto has to hear of, or the refusal.
fn may(world: &World, cloud: &Cloud, asked: &Asked, action: &str) -> Result<Vec<String>, Answer> {
    let chosen = named(world, asked, cloud.now())?;
    let mut in_moto = Vec::new();
    for instance in chosen.into_iter().map(|at| &world.instances[at]) {
        let (id, state) = (&instance.id, instance.state());
        let fits = match action {
            "StopInstances" => {
                !matches!(state, State::Pending | State::ShuttingDown | State::Terminated)
            }
            "StartInstances" => matches!(state, State::Stopped | State::Pending | State::Running),
            "RebootInstances" => state == State::Running,
            _ => true,
        };
        if !fits {
            let verb = if action == "StartInstances" { "started" } else { "stopped" };
            return Err(refused(
                "IncorrectInstanceState",
                format!("The instance '{id}' is not in a state from which it can be {verb}."),
            ));
        }
        if action == "StopInstances" && instance.spot.as_ref().is_some_and(|spot| spot.one_time) {
            let said = format!(
                "You can't stop the Spot Instance '{id}' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests."
            );
            return Err(refused("UnsupportedOperation", said));
        }
        if instance.in_moto {
            in_moto.push(id.clone());
        }
    }
    Ok(in_moto)
}

fn user_initiated(cloud: &Cloud) -> String {
    format!("User initiated ({} GMT)", cloud.wall(cloud.now()).strftime("%Y-%m-%d %H:%M:%S"))
}

impl FalseEc2 {
    /// Its end or its stop was asked for so long ago, and it still hangs in it: EC2 dates what it
    /// says of it.
    pub fn hangs_for(&self, id: &str, time: Duration) {
        let since = jiff::Timestamp::now() - time;
        self.on(id, |instance, _| {
            instance.transition =
                format!("User initiated ({} GMT)", since.strftime("%Y-%m-%d %H:%M:%S"))
        });
    }
}

/// A stopped one is gone at once: it has no power to switch off.
fn terminate(
    cloud: &Cloud,
    instance: &mut Instance,
    pace: Pace,
    (code, words, transition): (&str, &str, &str),
) {
    instance.because(code, words, transition);
    let now = cloud.now();
    if instance.state() == State::Stopped {
        instance.enter(now, State::Terminated, None);
    } else {
        instance.enter(now, State::ShuttingDown, pace.then(pace.stopping, State::Terminated));
    }
}

/// The machine switched itself off.
pub(super) fn powered_off(cloud: &Cloud, id: &str) {
    let mut world = cloud.world();
    let pace = world.pace;
    let Some(instance) = world
        .find(id)
        .filter(|instance| matches!(instance.state(), State::Pending | State::Running))
    else {
        return;
    };
    let reason = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown", "");
    // One-time spot cannot be stopped, whatever its shutdown behaviour says: an assumption, never
    // checked against EC2.
    if instance.on_shutdown == "terminate"
        || instance.spot.as_ref().is_some_and(|spot| spot.one_time)
    {
        terminate(cloud, instance, pace, reason);
    } else {
        instance.because(reason.0, reason.1, reason.2);
        instance.enter(cloud.now(), State::Stopping, pace.then(pace.stopping, State::Stopped));
    }
}
