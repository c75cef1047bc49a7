//! One CloudWatch alarm for each machine, which terminates it even if nothing else runs.
//!
//! `guard` arms it with EC2's own action once a whole minute has a heartbeat. `alarmed` tells since
//! when it is in ALARM, so that a receipt can name it as the cause. `unguard` deletes it unless it
//! is in ALARM. `release` deletes the alarms of a machine by name.
//!
//! An alarm acts only when its state changes. One that finds no data at all rings at once, so it is
//! armed when a complete minute has some. Before the first heartbeat arrives there is no alarm: it
//! would end a healthy machine. Not here: the rule itself (`job::AlarmRule`).

use aws_sdk_cloudwatch::operation::delete_alarms::DeleteAlarmsError;
use aws_sdk_cloudwatch::operation::list_tags_for_resource::ListTagsForResourceError;
use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{ComparisonOperator, Dimension, StateValue, Statistic, Tag};
use jiff::{SignedDuration, Timestamp};

use super::errors::{Ec2Error, meaning};
use crate::adapters::aws::session::AwsSession;
use crate::adapters::host::system_clock::SystemClock;
use crate::instance::{MachineRef, OWNER_TAG};
use crate::job::{AlarmRule, Plan, Shutdown};
use crate::market::{Market, Region};
use crate::ports::{Clock, CloudError};

/// The namespace and the name of the agents' heartbeats.
const NAMESPACE: &str = "Lamplighter";
const HEARTBEAT: &str = "Heartbeat";

/// The start of all our alarms' names.
pub const PREFIX: &str = "lamplighter-";

/// A first heartbeat is visible within two minutes. One from this long ago still proves that the
/// machine can publish.
const ARRIVED_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// A heartbeat must be younger than the alarm's silence by this much; otherwise the alarm rings
/// while the next one is on its way.
const NEXT_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// The period of EC2's CPU metric, in seconds.
const CPU_PERIOD_SECS: u32 = 300;

/// The largest page of CloudWatch.
const PAGE: i32 = 100;

/// An alarm of Lamplighter.
pub struct Alarm {
    pub name: String,
    arn: String,
}

/// # Errors
/// If CloudWatch does not answer, or the first heartbeat is still missing.
pub async fn guard(
    session: &AwsSession,
    plan: &Plan,
    machine: &MachineRef,
) -> Result<(), CloudError> {
    let Some(rule) =
        plan.launch.as_ref().and_then(|launch| launch.alarm).filter(|rule| *rule != AlarmRule::Off)
    else {
        return Ok(());
    };
    let act = format!("arm the alarm of {machine}");
    // Heartbeats from before a kept machine was started again do not count.
    let begun = plan.starts.as_ref().map(|_| plan.created);
    let silence = rule
        .silence(plan.lease)
        .map(|minutes| SignedDuration::from_mins(minutes.into()) - NEXT_WITHIN);
    if let Some(silence) = silence
        && !has_arrived(session, machine, (begun, silence.min(ARRIVED_WITHIN))).await?
    {
        return Err(Ec2Error::ambiguous(
            &act,
            "no whole minute with a heartbeat of it is in CloudWatch yet",
        ));
    }
    if let (AlarmRule::Cpu { minutes, .. }, Some(begun)) = (rule, begun)
        && SystemClock.now() < begun + SignedDuration::from_mins(minutes.into())
    {
        return Err(Ec2Error::ambiguous(
            &act,
            &format!(
                "the last {minutes} minutes of its CPU are partly of before it was started again"
            ),
        ));
    }
    let rule = rule.beside(plan.lease);
    let Some(watched) = watched(rule) else { return Ok(()) };
    let tags =
        plan.own_tags().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    let client = session.cloudwatch(&machine.region).await;
    let put = client.put_metric_alarm().alarm_name(format!(
        "{}{}-{}",
        prefix_of(&machine.id),
        plan.job,
        plan.attempt
    ));
    let put =
        put.alarm_description(format!("Lamplighter ends the machine of {} when: {rule}", plan.job));
    let put = put
        .namespace(watched.namespace)
        .metric_name(watched.metric)
        .dimensions(dimension(machine))
        .statistic(watched.statistic);
    let put = put
        .comparison_operator(watched.comparison)
        .threshold(watched.threshold)
        .treat_missing_data(watched.missing);
    let put = put
        .period(watched.period)
        .evaluation_periods(watched.periods)
        .datapoints_to_alarm(watched.periods);
    let put =
        put.actions_enabled(true).alarm_actions(action(plan, &machine.region)).set_tags(Some(tags));
    put.send().await.map(drop).map_err(|error| meaning(&act, error))
}

/// Since when an alarm of the machine is in ALARM. A machine that ended in another way also gets
/// there after a while, since it is silent.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn alarmed(
    session: &AwsSession,
    machine: &MachineRef,
) -> Result<Option<Timestamp>, CloudError> {
    let client = session.cloudwatch(&machine.region).await;
    let told = client
        .describe_alarms()
        .alarm_name_prefix(prefix_of(&machine.id))
        .state_value(StateValue::Alarm)
        .send()
        .await;
    let told = told.map_err(|error| meaning(&format!("look at the alarm of {machine}"), error))?;
    let rings =
        told.metric_alarms().iter().filter(|alarm| alarm.state_value() == Some(&StateValue::Alarm));
    let since =
        rings.filter_map(|alarm| Timestamp::new(alarm.state_updated_timestamp()?.secs(), 0).ok());
    Ok(since.min())
}

/// Deletes the alarm of a machine that continues. An alarm in ALARM stays, as evidence of what
/// ended the machine.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn unguard(session: &AwsSession, machine: &MachineRef) -> Result<(), CloudError> {
    if alarmed(session, machine).await?.is_some() {
        Ok(())
    } else {
        release(session, machine).await
    }
}

/// # Errors
/// When CloudWatch does not answer.
pub async fn release(session: &AwsSession, machine: &MachineRef) -> Result<(), CloudError> {
    let names: Vec<String> = alarms(session, &machine.region, &prefix_of(&machine.id))
        .await?
        .into_iter()
        .map(|alarm| alarm.name)
        .collect();
    if names.is_empty() { Ok(()) } else { delete(session, &machine.region, &names).await }
}

/// # Errors
/// When CloudWatch does not answer.
pub async fn delete(
    session: &AwsSession,
    region: &Region,
    names: &[String],
) -> Result<(), CloudError> {
    let delete =
        session.cloudwatch(region).await.delete_alarms().set_alarm_names(Some(names.to_vec()));
    match delete.send().await {
        // The one alarm is gone. With several names, CloudWatch would delete none of them.
        Err(error)
            if names.len() == 1
                && error
                    .as_service_error()
                    .is_some_and(DeleteAlarmsError::is_resource_not_found) =>
        {
            Ok(())
        }
        told => told.map(drop).map_err(|error| meaning("delete an alarm", error)),
    }
}

/// All alarms with this prefix, from every page.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn alarms(
    session: &AwsSession,
    region: &Region,
    prefix: &str,
) -> Result<Vec<Alarm>, CloudError> {
    let mut pages = session
        .cloudwatch(region)
        .await
        .describe_alarms()
        .alarm_name_prefix(prefix)
        .max_records(PAGE)
        .into_paginator()
        .send();
    let mut alarms = Vec::new();
    while let Some(page) = pages.next().await {
        let page =
            page.map_err(|error| meaning(&format!("look at the alarms in {region}"), error))?;
        let found = page
            .metric_alarms()
            .iter()
            .filter_map(|one| Some((one.alarm_name()?.to_owned(), one.alarm_arn()?.to_owned())));
        alarms.extend(
            found
                .filter(|(name, _)| name.starts_with(prefix))
                .map(|(name, arn)| Alarm { name, arn }),
        );
    }
    Ok(alarms)
}

/// Whether an alarm carries this owner's tag; `None`: it no longer exists.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn is_of(
    session: &AwsSession,
    region: &Region,
    alarm: &Alarm,
    owner: &str,
) -> Result<Option<bool>, CloudError> {
    let told = session
        .cloudwatch(region)
        .await
        .list_tags_for_resource()
        .resource_arn(&alarm.arn)
        .send()
        .await;
    let told = match told {
        Err(error)
            if error
                .as_service_error()
                .is_some_and(ListTagsForResourceError::is_resource_not_found_exception) =>
        {
            return Ok(None);
        }
        told => told.map_err(|error| meaning("read the tags of an alarm", error))?,
    };
    Ok(Some(
        told.tags().iter().any(|tag| tag.key() == Some(OWNER_TAG) && tag.value() == Some(owner)),
    ))
}

impl Alarm {
    /// The machine that it ends, from its name.
    pub fn machine(&self) -> Option<String> {
        let id = self.name.strip_prefix(PREFIX)?.strip_prefix("i-")?.split('-').next()?;
        Some(format!("i-{id}"))
    }
}

/// The machine comes first, so that its id alone finds the alarm.
pub fn prefix_of(machine: &str) -> String {
    format!("{PREFIX}{machine}-")
}

fn dimension(machine: &MachineRef) -> Dimension {
    Dimension::builder().name("InstanceId").value(&machine.id).build()
}

/// The period of the heartbeat's alarm, in seconds.
const BEAT_PERIOD_SECS: i64 = 60;

/// Whether a complete minute has a heartbeat. Only heartbeats since `begun` and of the last
/// `within` count.
async fn has_arrived(
    session: &AwsSession,
    machine: &MachineRef,
    (begun, within): (Option<Timestamp>, SignedDuration),
) -> Result<bool, CloudError> {
    let now = SystemClock.now();
    // A minute that began before it belongs to the earlier run.
    let begun = begun.map(|begun| begun + SignedDuration::from_secs(BEAT_PERIOD_SECS - 1));
    let since = begun.map_or(now - within, |begun| begun.max(now - within));
    // In whole minutes, as the alarm counts.
    let at = |time: Timestamp| {
        DateTime::from_secs(time.as_second().div_euclid(BEAT_PERIOD_SECS) * BEAT_PERIOD_SECS)
    };
    let ask = session
        .cloudwatch(&machine.region)
        .await
        .get_metric_statistics()
        .namespace(NAMESPACE)
        .metric_name(HEARTBEAT);
    let ask = ask
        .dimensions(dimension(machine))
        .period(60)
        .statistics(Statistic::SampleCount)
        .start_time(at(since));
    // CloudWatch dates them, and its clock may be slightly ahead of ours.
    let told = ask.end_time(at(now + SignedDuration::from_mins(2))).send().await;
    let told =
        told.map_err(|error| meaning(&format!("look for the heartbeat of {machine}"), error))?;
    let is_over = |from: &DateTime| from.secs() + BEAT_PERIOD_SECS <= now.as_second();
    Ok(told.datapoints().iter().any(|point| point.timestamp().is_some_and(is_over)))
}

/// The metric of an alarm, and its limit.
struct WatchedMetric {
    namespace: &'static str,
    metric: &'static str,
    statistic: Statistic,
    comparison: ComparisonOperator,
    threshold: f64,
    /// How the alarm treats missing data.
    missing: &'static str,
    /// In seconds.
    period: i32,
    periods: i32,
}

/// `None`: there is nothing to watch. The plan has the minutes; an older plan has them from its
/// lease.
fn watched(rule: AlarmRule) -> Option<WatchedMetric> {
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    Some(match rule {
        AlarmRule::Off | AlarmRule::Heartbeat { minutes: None } => return None,
        AlarmRule::Heartbeat { minutes: Some(minutes) } => WatchedMetric {
            namespace: NAMESPACE,
            metric: HEARTBEAT,
            statistic: Statistic::SampleCount,
            comparison: ComparisonOperator::LessThanThreshold,
            threshold: 1.0,
            // Missing data is the reason for this alarm.
            missing: "breaching",
            period: 60,
            periods: count(minutes),
        },
        AlarmRule::Cpu { hundredths, minutes } => WatchedMetric {
            namespace: "AWS/EC2",
            metric: "CPUUtilization",
            statistic: Statistic::Average,
            comparison: ComparisonOperator::LessThanOrEqualToThreshold,
            threshold: f64::from(hundredths) / 100.0,
            // EC2 measures late, and a machine without data yet may be busy. After the
            // machine has ended, the alarm also stays in ALARM until the attempt is settled.
            missing: "ignore",
            period: count(CPU_PERIOD_SECS),
            periods: count(minutes * 60 / CPU_PERIOD_SECS),
        },
    })
}

/// EC2's own actions. If the job may keep its disk, the action is a stop: a termination would
/// delete the disk of a machine that has already stopped.
fn action(plan: &Plan, region: &Region) -> String {
    let keeps = plan.launch.as_ref().is_some_and(|launch| launch.shutdown == Shutdown::Stop)
        && plan.offer.market == Market::OnDemand;
    let partition = match region.as_str() {
        china if china.starts_with("cn-") => "aws-cn",
        gov if gov.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    format!("arn:{partition}:automate:{region}:ec2:{}", if keeps { "stop" } else { "terminate" })
}
