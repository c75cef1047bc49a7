//! Switch C: one CloudWatch alarm for each machine, which ends it with nobody's help.
//!
//! ```text
//!   guard ── has a whole minute a heartbeat? ── yes ──> PutMetricAlarm with EC2's own action
//!   alarmed ── is it in ALARM, and since when?       (who settles the attempt asks whether the machine ended by it)
//!   unguard ── does it ring? ── no ──> as release, of a machine that goes on
//!   release ── the alarms of the machine's name ──> DeleteAlarms
//! ```
//! An alarm fires when its state changes, and only then. One that finds no period with data rings
//! at once, so that it is armed once a minute that is over has some. A machine gets no alarm before
//! its heartbeats arrive: the alarm would end it for a silence that is not its own. Not here: the
//! rule itself (`job::AlarmRule`).

use aws_sdk_cloudwatch::operation::delete_alarms::DeleteAlarmsError;
use aws_sdk_cloudwatch::operation::list_tags_for_resource::ListTagsForResourceError;
use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{ComparisonOperator, Dimension, StateValue, Statistic, Tag};
use jiff::{SignedDuration, Timestamp};

use super::errors::{Trouble, meaning};
use crate::adapters::aws::session::AwsSession;
use crate::adapters::host::system_clock::SystemClock;
use crate::instance::{MachineRef, OWNER_TAG};
use crate::job::{AlarmRule, Plan, Shutdown};
use crate::market::{Market, Region};
use crate::ports::{Clock, CloudError};

/// Where agents publish, and what they call their heartbeat.
const NAMESPACE: &str = "Lamplighter";
const HEARTBEAT: &str = "Heartbeat";

/// Before the name of every alarm of ours.
pub const PREFIX: &str = "lamplighter-";

/// A first heartbeat is visible within two minutes; one of so long ago tells that the machine could
/// publish.
const ARRIVED_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// By so much it must be younger than the silence at which the alarm rings, or that rings while the
/// next is on its way.
const NEXT_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// EC2 measures CPU once in so many seconds.
const CPU_PERIOD_SECS: u32 = 300;

/// The most that CloudWatch gives at once.
const PAGE: i32 = 100;

/// An alarm of ours.
pub struct Alarm {
    pub name: String,
    arn: String,
}

/// # Errors
/// When CloudWatch does not answer, or no heartbeat has arrived yet.
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
    // What was measured of a kept machine before it was started again says nothing of this life of
    // it.
    let begun = plan.starts.as_ref().map(|_| plan.created);
    let silence = rule
        .silence(plan.lease)
        .map(|minutes| SignedDuration::from_mins(minutes.into()) - NEXT_WITHIN);
    if let Some(silence) = silence
        && !has_arrived(session, machine, (begun, silence.min(ARRIVED_WITHIN))).await?
    {
        return Err(Trouble::ambiguous(
            &act,
            "no whole minute with a heartbeat of it is in CloudWatch yet",
        ));
    }
    if let (AlarmRule::Cpu { minutes, .. }, Some(begun)) = (rule, begun)
        && SystemClock.now() < begun + SignedDuration::from_mins(minutes.into())
    {
        return Err(Trouble::ambiguous(
            &act,
            &format!(
                "the last {minutes} minutes of its CPU are partly of before it was started again"
            ),
        ));
    }
    let rule = rule.beside(plan.lease);
    let Some(watched) = watched(rule) else { return Ok(()) };
    let tags =
        plan.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
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

/// Since when an alarm of the machine rings. It also begins to when a machine that ended otherwise
/// is silent for long enough.
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

/// Takes the alarm of a machine off that goes on. One that rings has done what it does, and stays:
/// it tells who ended the machine.
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
        // The one that was meant is gone. Of several, CloudWatch then deletes none.
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

/// All alarms whose names begin so, every page.
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

/// Whether an alarm carries this owner's tag; `None`: it is gone.
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
    /// The machine that it ends, as its name has it.
    pub fn machine(&self) -> Option<String> {
        let id = self.name.strip_prefix(PREFIX)?.strip_prefix("i-")?.split('-').next()?;
        Some(format!("i-{id}"))
    }
}

/// The machine first: who knows nothing but its id finds the alarm.
pub fn prefix_of(machine: &str) -> String {
    format!("{PREFIX}{machine}-")
}

fn dimension(machine: &MachineRef) -> Dimension {
    Dimension::builder().name("InstanceId").value(&machine.id).build()
}

/// The period of the heartbeat's alarm, seconds.
const BEAT_PERIOD_SECS: i64 = 60;

/// Whether a minute that is over has a heartbeat. Only heartbeats since `begun`, and of the last
/// `within`, count.
async fn has_arrived(
    session: &AwsSession,
    machine: &MachineRef,
    (begun, within): (Option<Timestamp>, SignedDuration),
) -> Result<bool, CloudError> {
    let now = SystemClock.now();
    // A minute that had begun before it is not its own.
    let begun = begun.map(|begun| begun + SignedDuration::from_secs(BEAT_PERIOD_SECS - 1));
    let since = begun.map_or(now - within, |begun| begun.max(now - within));
    // Whole minutes, as the alarm counts them.
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
    // CloudWatch dates them, and its clock may be a little ahead of ours.
    let told = ask.end_time(at(now + SignedDuration::from_mins(2))).send().await;
    let told =
        told.map_err(|error| meaning(&format!("look for the heartbeat of {machine}"), error))?;
    let is_over = |from: &DateTime| from.secs() + BEAT_PERIOD_SECS <= now.as_second();
    Ok(told.datapoints().iter().any(|point| point.timestamp().is_some_and(is_over)))
}

/// What an alarm looks at, and when it rings.
struct Watched {
    namespace: &'static str,
    metric: &'static str,
    statistic: Statistic,
    comparison: ComparisonOperator,
    threshold: f64,
    /// What silence means.
    missing: &'static str,
    /// In seconds.
    period: i32,
    periods: i32,
}

/// `None`: nothing is to be watched. A plan of today says its minutes, and one that does not got
/// them from its lease.
fn watched(rule: AlarmRule) -> Option<Watched> {
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    Some(match rule {
        AlarmRule::Off | AlarmRule::Heartbeat { minutes: None } => return None,
        AlarmRule::Heartbeat { minutes: Some(minutes) } => Watched {
            namespace: NAMESPACE,
            metric: HEARTBEAT,
            statistic: Statistic::SampleCount,
            comparison: ComparisonOperator::LessThanThreshold,
            threshold: 1.0,
            // Silence is the alarm.
            missing: "breaching",
            period: 60,
            periods: count(minutes),
        },
        AlarmRule::Cpu { hundredths, minutes } => Watched {
            namespace: "AWS/EC2",
            metric: "CPUUtilization",
            statistic: Statistic::Average,
            comparison: ComparisonOperator::LessThanOrEqualToThreshold,
            threshold: f64::from(hundredths) / 100.0,
            // EC2 measures late, and not at all at first: unknown is not idle. And an alarm that
            // has ended its machine, of which nothing is measured any more, goes on saying so until
            // the attempt is settled.
            missing: "ignore",
            period: count(CPU_PERIOD_SECS),
            periods: count(minutes * 60 / CPU_PERIOD_SECS),
        },
    })
}

/// EC2's own actions. Where the job may keep its disk, a stop: a machine that has stopped already
/// would lose it.
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
