//! Switch C: one CloudWatch alarm for each machine, which ends it with nobody's help.
//!
//! ```text
//!   guard ── has its first heartbeat arrived? ── yes ──> PutMetricAlarm with EC2's own action
//!   alarmed ── is it in ALARM, and since when?       (who settles the attempt asks whether the machine ended by it)
//!   release ── the alarms of the machine's name ──> DeleteAlarms
//! ```
//! An alarm fires when its state changes, and only then. A machine whose heartbeats never arrive is not armed: it would be
//! ended for what it cannot help. What must never live here: the rule itself (`job::AlarmRule`).

use jiff::{SignedDuration, Timestamp};

use super::aws_session::AwsSession;
use super::cloudwatch_query::{ask, texts};
use super::ec2_errors::Trouble;
use super::system_clock::SystemClock;
use crate::instance::{MachineRef, OWNER_TAG};
use crate::job::{AlarmRule, Plan, Shutdown};
use crate::market::{Market, Region};
use crate::ports::{Clock, CloudError};

/// Where agents publish, and what they call their heartbeat.
const NAMESPACE: &str = "Lamplighter";
const HEARTBEAT: &str = "Heartbeat";

/// Before the name of every alarm of ours.
pub const PREFIX: &str = "lamplighter-";

/// A first heartbeat is visible within two minutes; one of so long ago tells that the machine could publish.
const ARRIVED_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// EC2 measures CPU once in so many seconds.
const CPU_PERIOD_SECS: u32 = 300;

/// An alarm of ours.
pub struct Alarm {
    pub name: String,
    arn: String,
}

/// # Errors
/// When CloudWatch does not answer, or no heartbeat has arrived yet.
pub async fn guard(session: &AwsSession, plan: &Plan, machine: &MachineRef) -> Result<(), CloudError> {
    let Some(rule) = plan.launch.as_ref().and_then(|launch| launch.alarm).filter(|rule| *rule != AlarmRule::Off) else { return Ok(()) };
    let act = format!("arm the alarm of {machine}");
    if matches!(rule, AlarmRule::Heartbeat { .. }) && !has_arrived(session, machine).await? {
        return Err(Trouble::ambiguous(&act, "none of its heartbeats has reached CloudWatch yet"));
    }
    let mut params = with_rule(rule);
    let mut put = |name: &str, value: &str| params.push((name.to_owned(), value.to_owned()));
    put("AlarmName", &format!("{}{}-{}", of_machine(machine), plan.job, plan.attempt));
    put("AlarmDescription", &format!("Lamplighter ends the machine of {} when: {rule}", plan.job));
    put("Dimensions.member.1.Name", "InstanceId");
    put("Dimensions.member.1.Value", &machine.id);
    put("ActionsEnabled", "true");
    put("AlarmActions.member.1", &action(plan, &machine.region));
    for (n, (key, value)) in plan.tags.iter().enumerate() {
        put(&format!("Tags.member.{}.Key", n + 1), key);
        put(&format!("Tags.member.{}.Value", n + 1), value);
    }
    ask(session, &machine.region, &act, "PutMetricAlarm", &params).await.map(drop)
}

/// Since when an alarm of the machine rings. It also begins to when a machine that ended otherwise is silent for long enough.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn alarmed(session: &AwsSession, machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
    let params = [("AlarmNamePrefix", of_machine(machine)), ("StateValue", "ALARM".to_owned())].map(|(name, value)| (name.to_owned(), value));
    let told = ask(session, &machine.region, &format!("look at the alarm of {machine}"), "DescribeAlarms", &params).await?;
    let since = texts(&told, "StateUpdatedTimestamp").into_iter().zip(texts(&told, "StateValue"));
    Ok(since.filter(|(_, state)| state == "ALARM").filter_map(|(since, _)| since.parse().ok()).min())
}

/// # Errors
/// When CloudWatch does not answer.
pub async fn release(session: &AwsSession, machine: &MachineRef) -> Result<(), CloudError> {
    let names: Vec<String> = alarms(session, &machine.region, &of_machine(machine)).await?.into_iter().map(|alarm| alarm.name).collect();
    if names.is_empty() { Ok(()) } else { delete(session, &machine.region, &names).await }
}

/// # Errors
/// When CloudWatch does not answer.
pub async fn delete(session: &AwsSession, region: &Region, names: &[String]) -> Result<(), CloudError> {
    let params: Vec<_> = names.iter().enumerate().map(|(n, name)| (format!("AlarmNames.member.{}", n + 1), name.clone())).collect();
    ask(session, region, "delete an alarm", "DeleteAlarms", &params).await.map(drop)
}

/// All alarms whose names begin so, every page.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn alarms(session: &AwsSession, region: &Region, prefix: &str) -> Result<Vec<Alarm>, CloudError> {
    let mut params = vec![("AlarmNamePrefix".to_owned(), prefix.to_owned()), ("MaxRecords".to_owned(), "100".to_owned())];
    let mut alarms = Vec::new();
    loop {
        let page = ask(session, region, &format!("look at the alarms in {region}"), "DescribeAlarms", &params).await?;
        let (names, arns) = (texts(&page, "AlarmName"), texts(&page, "AlarmArn"));
        let ours = names.into_iter().zip(arns).filter(|(name, _)| name.starts_with(prefix));
        alarms.extend(ours.map(|(name, arn)| Alarm { name, arn }));
        let Some(next) = texts(&page, "NextToken").into_iter().next().filter(|token| !token.is_empty()) else { return Ok(alarms) };
        params.retain(|(name, _)| name != "NextToken");
        params.push(("NextToken".into(), next));
    }
}

/// Whether an alarm carries this owner's tag.
///
/// # Errors
/// When CloudWatch does not answer.
pub async fn is_of(session: &AwsSession, region: &Region, alarm: &Alarm, owner: &str) -> Result<bool, CloudError> {
    let params = [("ResourceARN".to_owned(), alarm.arn.clone())];
    let told = ask(session, region, "read the tags of an alarm", "ListTagsForResource", &params).await?;
    Ok(texts(&told, "Key").iter().zip(texts(&told, "Value")).any(|(key, value)| key == OWNER_TAG && value == owner))
}

impl Alarm {
    /// The machine that it ends, as its name has it.
    pub fn machine(&self) -> Option<String> {
        let id = self.name.strip_prefix(PREFIX)?.strip_prefix("i-")?.split('-').next()?;
        Some(format!("i-{id}"))
    }
}

/// The machine first: who knows nothing but its id finds the alarm.
fn of_machine(machine: &MachineRef) -> String {
    format!("{PREFIX}{}-", machine.id)
}

async fn has_arrived(session: &AwsSession, machine: &MachineRef) -> Result<bool, CloudError> {
    let now = SystemClock.now();
    let at = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let params = [
        ("Namespace", NAMESPACE.to_owned()),
        ("MetricName", HEARTBEAT.to_owned()),
        ("Dimensions.member.1.Name", "InstanceId".to_owned()),
        ("Dimensions.member.1.Value", machine.id.clone()),
        ("StartTime", at(now - ARRIVED_WITHIN)),
        // Its clock may be a little ahead of ours.
        ("EndTime", at(now + SignedDuration::from_mins(1))),
        ("Period", "60".to_owned()),
        ("Statistics.member.1", "SampleCount".to_owned()),
    ];
    let params = params.map(|(name, value)| (name.to_owned(), value));
    let told = ask(session, &machine.region, &format!("look for the heartbeat of {machine}"), "GetMetricStatistics", &params).await?;
    Ok(!texts(&told, "Timestamp").is_empty())
}

fn with_rule(rule: AlarmRule) -> Vec<(String, String)> {
    let (words, numbers) = match rule {
        AlarmRule::Off => return Vec::new(),
        AlarmRule::Heartbeat { minutes } => (
            // Silence is the alarm.
            [NAMESPACE, HEARTBEAT, "SampleCount", "LessThanThreshold", "breaching"],
            [60, minutes, minutes, 100],
        ),
        AlarmRule::Cpu { hundredths, minutes } => {
            let periods = minutes * 60 / CPU_PERIOD_SECS;
            // EC2 measures late, and not at all at first: unknown is not idle. And an alarm that has ended its machine, of
            // which nothing is measured any more, goes on saying so until the attempt is settled.
            (["AWS/EC2", "CPUUtilization", "Average", "LessThanOrEqualToThreshold", "ignore"], [CPU_PERIOD_SECS, periods, periods, hundredths])
        }
    };
    let names = ["Namespace", "MetricName", "Statistic", "ComparisonOperator", "TreatMissingData"];
    let [period, evaluated, alarming, hundredths] = numbers;
    let counts = [("Period", period), ("EvaluationPeriods", evaluated), ("DatapointsToAlarm", alarming)];
    let threshold = ("Threshold".to_owned(), (f64::from(hundredths) / 100.0).to_string());
    let words = names.into_iter().zip(words).map(|(name, word)| (name.to_owned(), word.to_owned()));
    words.chain(counts.map(|(name, count)| (name.to_owned(), count.to_string()))).chain([threshold]).collect()
}

/// EC2's own actions. Where the job may keep its disk, a stop: a machine that has stopped already would lose it.
fn action(plan: &Plan, region: &Region) -> String {
    let keeps = plan.launch.as_ref().is_some_and(|launch| launch.shutdown == Shutdown::Stop) && plan.offer.market == Market::OnDemand;
    let partition = match region.as_str() {
        china if china.starts_with("cn-") => "aws-cn",
        gov if gov.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    format!("arn:{partition}:automate:{region}:ec2:{}", if keeps { "stop" } else { "terminate" })
}
