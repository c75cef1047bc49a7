//! Terminates, stops and starts machines, and changes their tags.
//!
//! `terminate` looks at the machine and its spot request at once. A machine that is not ours by its
//! tags is refused. A request that would launch a new machine is cancelled first; without
//! permission, the machine is terminated anyway and a warning says so. If the machine is protected
//! against termination, the protection is removed. "Not found" means gone only after the rule of
//! `GONE_AFTER`.
//!
//! The caller repeats this until the machine has ended. Not here: whether to end it.

use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::terminate_instances::builders::TerminateInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    AttributeBooleanValue, Instance, InstanceLifecycleType, SpotInstanceState, SpotInstanceType,
    Tag,
};
use jiff::Timestamp;

use super::describe::{self, filter, state, tag_map, transition};
use super::errors::{Class, Ec2Error, RefusedCall, meaning};
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::Ec2Memory;
use crate::adapters::host::system_clock::SystemClock;
use crate::instance::{InstanceState, InstanceView, MachineRef, TAG_PREFIX, Tags, owned_by};
use crate::job::Plan;
use crate::ports::{Clock, CloudError};

/// A machine that shuts down for this long hangs; AWS then advises to force it.
const STUCK: Duration = Duration::from_secs(10 * 60);

/// EC2 may not show a new machine for some minutes. Only after this long without finding it is it
/// gone. If this is shorter, a machine that EC2 does not show yet continues to cost money.
const GONE_AFTER: Duration = Duration::from_secs(5 * 60);

/// # Errors
/// As `ec2::errors` reads them.
pub async fn terminate(session: &AwsSession, machine: &MachineRef) -> Result<(), CloudError> {
    let act = format!("terminate {machine}");
    let (seen, requests) = tokio::join!(look(session, machine), relaunching(session, machine));
    // EC2 does not answer. The caller has checked the owner's tag, and waiting for a broken API
    // costs money.
    let seen = seen.unwrap_or_default();
    if let Some(instance) = &seen {
        if state(instance).is_some_and(InstanceState::is_terminated) {
            return Ok(());
        }
        must_be_ours(session, machine, instance, &act)?;
    }
    let relaunches = match requests {
        Ok(requests) if !requests.is_empty() => match cancel(session, machine, requests).await {
            // A request of the user that we may not cancel: the machine is terminated anyway, and
            // the user must know.
            Err(error @ (CloudError::Denied { .. } | CloudError::Invalid { .. })) => {
                Err(CloudError::Relaunches { machine: machine.id.clone(), cause: Box::new(error) })
            }
            cancelled => Ok(cancelled?),
        },
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%machine, "whether a spot request would launch it again is not known: {error}");
            Ok(())
        }
    };
    finish(session, machine, &act, &seen).await?;
    relaunches
}

async fn finish(
    session: &AwsSession,
    machine: &MachineRef,
    act: &str,
    seen: &Option<Instance>,
) -> Result<(), CloudError> {
    let force = seen.as_ref().is_some_and(is_stuck);
    match end(session, machine, act, force).await {
        Err(trouble) if trouble.is(Class::Protected) => {
            tracing::warn!(%machine, "its protection against termination is cleared: it is ours, and it is to end");
            unprotect(session, machine, Protection::Termination).await?;
            end(session, machine, act, force).await.map_err(CloudError::from)
        }
        Err(trouble) if trouble.is(Class::NotFound) => {
            not_found(&session.memory, machine, trouble, seen.is_some())
        }
        Err(trouble) => Err(trouble.into()),
        Ok(()) => {
            session.memory.missing.forget(machine);
            Ok(())
        }
    }
}

/// Stops it and keeps the disk; only on-demand machines can be stopped.
///
/// # Errors
/// As `ec2::errors` reads them.
pub async fn stop(session: &AwsSession, machine: &MachineRef) -> Result<(), CloudError> {
    let act = format!("stop {machine}");
    let seen = look(session, machine).await?;
    let Some(instance) = seen else {
        return Err(Ec2Error::ambiguous(&act, "EC2 does not show it now"));
    };
    must_be_ours(session, machine, &instance, &act)?;
    if instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot) {
        return Err(CloudError::Unstoppable {
            what: format!(
                "cannot {act}: it is a spot machine, which can only be terminated, with its disk"
            ),
        });
    }
    if matches!(
        state(&instance),
        Some(InstanceState::Stopped | InstanceState::ShuttingDown | InstanceState::Terminated)
    ) {
        return Ok(());
    }
    let force = is_stuck(&instance);
    match halt(session, machine, &act, force).await {
        Err(trouble) if trouble.is(Class::Protected) => {
            tracing::warn!(%machine, "its protection against being stopped is cleared: it is ours, and it is to stop");
            unprotect(session, machine, Protection::Stop).await?;
            halt(session, machine, &act, force).await.map_err(CloudError::from)
        }
        done => done.map_err(CloudError::from),
    }
}

/// Writes the tags of the new attempt first: a machine with old tags would end by the old cap.
///
/// # Errors
/// As `ec2::errors` reads them.
pub async fn start(
    session: &AwsSession,
    machine: &MachineRef,
    plan: &Plan,
) -> Result<(), CloudError> {
    let act = format!("start {machine}");
    let Some(instance) = look(session, machine).await? else {
        return Err(Ec2Error::ambiguous(&act, "EC2 does not show it now"));
    };
    must_be_ours(session, machine, &instance, &act)?;
    let client = session.ec2(&machine.region).await;
    let tags =
        plan.own_tags().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    let tagged = client.create_tags().resources(&machine.id).set_tags(Some(tags)).send().await;
    tagged.map_err(|error| meaning(&format!("tag {machine}"), error))?;
    let kill_at = kill_at_key();
    if !plan.tags.contains_key(&kill_at) && tag_map(&instance).contains_key(&kill_at) {
        let removed = client
            .delete_tags()
            .resources(&machine.id)
            .tags(Tag::builder().key(&kill_at).build())
            .send()
            .await;
        removed.map_err(|error| meaning(&format!("tag {machine}"), error))?;
    }
    client
        .start_instances()
        .instance_ids(&machine.id)
        .send()
        .await
        .map(drop)
        .map_err(|error| meaning(&act, error))
}

/// Never lowers it: the machine's tag may be newer than the caller's copy.
///
/// # Errors
/// As `ec2::errors` reads them.
pub async fn raise_kill_at(
    session: &AwsSession,
    machine: &MachineRef,
    kill_at: Timestamp,
) -> Result<(), CloudError> {
    let act = format!("raise the hard cap of {machine}");
    let Some(instance) = look(session, machine).await? else {
        return Err(Ec2Error::ambiguous(&act, "EC2 does not show it now"));
    };
    let tags = must_be_ours(session, machine, &instance, &act)?;
    // A machine without a cap needs no raise.
    if tags.kill_at.is_none_or(|set| set >= kill_at) {
        return Ok(());
    }
    let tag = Tag::builder().key(kill_at_key()).value(kill_at.to_string()).build();
    let client = session.ec2(&machine.region).await;
    client
        .create_tags()
        .resources(&machine.id)
        .tags(tag)
        .send()
        .await
        .map(drop)
        .map_err(|error| meaning(&act, error))
}

/// The second look of the rule: by the token of the launch, on all pages. EC2 removes the tags of a
/// terminated machine before it forgets the machine; its end is returned.
///
/// # Errors
/// If the machine still exists, or EC2 does not say.
pub async fn confirm_missing(
    session: &AwsSession,
    plan: &Plan,
) -> Result<Option<InstanceView>, CloudError> {
    let act = format!("find the machine of attempt {}", plan.attempt.number());
    let found = describe::by_token(session, plan).await?;
    match found.iter().find(|machine| !machine.state.is_terminated()) {
        Some(machine) => Err(Ec2Error::ambiguous(
            &act,
            &format!("{} is there by its token, and not by its tags", machine.id),
        )),
        None => Ok(found.into_iter().max_by_key(|machine| machine.launched)),
    }
}

fn kill_at_key() -> String {
    format!("{TAG_PREFIX}kill-at")
}

async fn look(session: &AwsSession, machine: &MachineRef) -> Result<Option<Instance>, CloudError> {
    describe::one(session, &machine.region, &machine.id).await
}

/// The last check before a change: the machine must have all our tags, and the owner of its launch
/// or of the last look.
fn must_be_ours(
    session: &AwsSession,
    machine: &MachineRef,
    instance: &Instance,
    act: &str,
) -> Result<Tags, CloudError> {
    // Complete tags alone do not tell whose launch it is. The next look finds that out.
    let owner = session
        .memory
        .owners
        .get(machine, Duration::MAX)
        .ok_or_else(|| Ec2Error::ambiguous(act, "its owner is not known yet"))?;
    owned_by(&tag_map(instance), &owner)
        .map_err(|error| CloudError::Denied { act: act.to_owned(), cause: Box::new(error) })
}

fn is_stuck(instance: &Instance) -> bool {
    let going =
        matches!(state(instance), Some(InstanceState::Stopping | InstanceState::ShuttingDown));
    let since = transition(instance).map(|since| SystemClock.now().duration_since(since));
    going && since.is_some_and(|since| Duration::try_from(since).is_ok_and(|since| since > STUCK))
}

async fn end(
    session: &AwsSession,
    machine: &MachineRef,
    act: &str,
    force: bool,
) -> Result<(), Ec2Error> {
    let request = termination(&session.ec2(&machine.region).await, machine, force);
    request.send().await.map(drop).map_err(|error| Ec2Error::of(act, error))
}

/// The call, and whether it forces a shutdown that hangs.
fn termination(
    client: &Client,
    machine: &MachineRef,
    force: bool,
) -> TerminateInstancesFluentBuilder {
    let request = client.terminate_instances().instance_ids(&machine.id);
    if force { request.force(true).skip_os_shutdown(true) } else { request }
}

async fn halt(
    session: &AwsSession,
    machine: &MachineRef,
    act: &str,
    force: bool,
) -> Result<(), Ec2Error> {
    let client = session.ec2(&machine.region).await;
    let mut request = client.stop_instances().instance_ids(&machine.id);
    if force {
        request = request.force(true);
    }
    request.send().await.map(drop).map_err(|error| Ec2Error::of(act, error).on(RefusedCall::Stop))
}

enum Protection {
    Termination,
    Stop,
}

async fn unprotect(
    session: &AwsSession,
    machine: &MachineRef,
    against: Protection,
) -> Result<(), CloudError> {
    let client = session.ec2(&machine.region).await;
    let off = AttributeBooleanValue::builder().value(false).build();
    let request = client.modify_instance_attribute().instance_id(&machine.id);
    let request = match against {
        Protection::Termination => request.disable_api_termination(off),
        Protection::Stop => request.disable_api_stop(off),
    };
    request
        .send()
        .await
        .map(drop)
        .map_err(|error| meaning(&format!("clear the protection of {machine}"), error))
}

/// Spot requests that would replace this machine with a new one. Ours never do, but a user may have
/// changed that.
async fn relaunching(
    session: &AwsSession,
    machine: &MachineRef,
) -> Result<Vec<String>, CloudError> {
    let client = session.ec2(&machine.region).await;
    let asked = client
        .describe_spot_instance_requests()
        .filters(filter("instance-id", [machine.id.clone()]));
    let told = asked.send().await.map_err(|error| meaning("look at spot requests", error))?;
    let would = told.spot_instance_requests().iter().filter(|request| {
        let alive = matches!(
            request.state(),
            Some(SpotInstanceState::Active | SpotInstanceState::Open | SpotInstanceState::Disabled)
        );
        request.r#type() == Some(&SpotInstanceType::Persistent) && alive
    });
    Ok(would.filter_map(|request| request.spot_instance_request_id().map(str::to_owned)).collect())
}

/// Before the termination, since a persistent request would launch another machine.
async fn cancel(
    session: &AwsSession,
    machine: &MachineRef,
    requests: Vec<String>,
) -> Result<(), CloudError> {
    tracing::warn!(%machine, "its spot request is persistent and would launch it again: it is cancelled ({})", requests.join(", "));
    let client = session.ec2(&machine.region).await;
    let cancelled = client
        .cancel_spot_instance_requests()
        .set_spot_instance_request_ids(Some(requests))
        .send()
        .await;
    cancelled
        .map(drop)
        .map_err(|error| meaning(&format!("cancel the persistent spot request of {machine}, which may launch another machine in its place"), error))
}

/// The machine is gone once EC2 has said "not found" for the time of `GONE_AFTER`.
fn not_found(
    memory: &Ec2Memory,
    machine: &MachineRef,
    trouble: Ec2Error,
    shown: bool,
) -> Result<(), CloudError> {
    if shown {
        memory.missing.forget(machine);
        return Err(trouble.into());
    }
    if memory.missing.since(machine, ()) >= GONE_AFTER { Ok(()) } else { Err(trouble.into()) }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{InstanceState as Sdk, InstanceStateName};

    use super::*;
    use crate::market::{CloudKind, Region};

    #[test]
    fn only_what_goes_down_for_too_long_is_forced() {
        let instance = |name: InstanceStateName, since: Timestamp| {
            let reason = format!("User initiated ({} GMT)", since.strftime("%Y-%m-%d %H:%M:%S"));
            Instance::builder()
                .state(Sdk::builder().name(name).build())
                .state_transition_reason(reason)
                .build()
        };
        let ago = |minutes: i64| SystemClock.now() - jiff::SignedDuration::from_mins(minutes);
        assert!(
            is_stuck(&instance(InstanceStateName::ShuttingDown, ago(11)))
                && is_stuck(&instance(InstanceStateName::Stopping, ago(11)))
        );
        for (name, since) in [
            (InstanceStateName::ShuttingDown, 9),
            (InstanceStateName::Running, 60),
            (InstanceStateName::ShuttingDown, -60),
        ] {
            assert!(!is_stuck(&instance(name.clone(), ago(since))), "{name:?} since {since} min");
        }
        assert!(!is_stuck(&Instance::builder().build()), "nobody says since when");
    }

    fn machine() -> MachineRef {
        MachineRef { cloud: CloudKind::Aws, region: Region::new("us-east-1"), id: "i-1".into() }
    }

    #[test]
    fn shutdown_that_hangs_is_forced_and_an_ordinary_end_is_not() {
        let settings = aws_sdk_ec2::Config::builder()
            .behavior_version(aws_sdk_ec2::config::BehaviorVersion::latest())
            .build();
        let client = Client::from_conf(settings);
        let asked = |force: bool| {
            let request = termination(&client, &machine(), force);
            let input = request.as_input();
            (input.get_instance_ids().clone(), *input.get_force(), *input.get_skip_os_shutdown())
        };
        let ids = Some(vec!["i-1".to_owned()]);
        assert_eq!(asked(true), (ids.clone(), Some(true), Some(true)));
        assert_eq!(asked(false), (ids, None, None));
    }

    /// The rule's positive end: what was not found for five minutes, again and again, is gone.
    #[test]
    fn what_is_not_found_for_long_enough_is_gone() {
        let memory = Ec2Memory::default();
        let ask = |shown: bool| {
            not_found(
                &memory,
                &machine(),
                Ec2Error::new("terminate i-1", "InvalidInstanceID.NotFound", "", Some(400), None),
                shown,
            )
        };
        let since = |secs: u64| {
            memory.missing.put_at(
                machine(),
                (),
                SystemClock.mono().saturating_sub(Duration::from_secs(secs)),
            )
        };
        assert!(matches!(ask(false), Err(CloudError::Ambiguous { .. })), "once is nothing");
        since(299);
        assert!(ask(false).is_err());
        since(301);
        assert!(ask(false).is_ok());
        assert!(ask(true).is_err(), "it is shown, so it is not gone, and the time begins anew");
        assert!(ask(false).is_err());
    }
}
