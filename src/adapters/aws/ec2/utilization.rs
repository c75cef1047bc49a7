//! How much machines are used, as CloudWatch has it: the processor of each, which EC2 measures from
//! outside, and the GPUs of those on which an agent publishes them.
//!
//! ```text
//!   ListMetrics: the GPUs of CloudWatch's own agent ──> their dimensions ─┐
//!   the processor of each machine, and the GPUs of an agent of ours ──────┴─ GetMetricData ──> the means of a day
//! ```
//! An agent of ours names its machine alone. CloudWatch's names each GPU by dimensions of the
//! machine and of its own configuration, and a metric is had only by all of them: so they are
//! listed first. What nobody publishes is unknown, and no reason to say nothing. Not here: whether
//! so little use is a waste.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{Dimension, Metric, MetricDataQuery, MetricStat, RecentlyActive};
use jiff::Timestamp;

use super::errors::meaning;
use crate::adapters::aws::cloudwatch_metrics::NAMESPACE as OURS;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::host::system_clock::SystemClock;
use crate::market::Region;
use crate::ports::Clock;

/// The means of the last day; `None`: nobody measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    pub cpu_percent: Option<f64>,
    /// Of its busiest GPU: the others of a machine may stand idle beside a job of one.
    pub gpu_percent: Option<f64>,
}

#[derive(Clone, Copy)]
enum What {
    Cpu,
    Gpu,
}

/// One metric of one machine.
struct Asked<'a> {
    machine: &'a str,
    what: What,
    metric: Metric,
}

/// What is looked back on: a day has the night in it.
const LOOK_BACK: Duration = Duration::from_secs(24 * 3600);

/// What one call of GetMetricData takes.
const QUERIES_MAX: usize = 500;

/// CloudWatch counts a period from its own round hour or day: hours begin with the last 24, a day
/// would begin at midnight.
const HOUR_SECS: i32 = 3600;

/// Where CloudWatch's own agent publishes, where its configuration says nothing else, and what it
/// calls the use of a GPU.
const AGENT: &str = "CWAgent";
const AGENT_GPU: &str = "nvidia_smi_utilization_gpu";

const INSTANCE: &str = "InstanceId";

/// Pages of 500 metrics. Of those that were published within hours a region has one for each GPU;
/// what an account has beyond five thousand GPUs that publish is not looked for.
const PAGES_MAX: usize = 10;

/// Of machines of one region, by their ids.
pub async fn of(session: &AwsSession, region: &Region, machines: &[&str]) -> BTreeMap<String, Use> {
    if machines.is_empty() {
        return BTreeMap::new();
    }
    let from_outside = machines.iter().flat_map(|id| {
        let one = |what, namespace, name| Asked {
            machine: id,
            what,
            metric: metric(namespace, name, id),
        };
        [one(What::Cpu, "AWS/EC2", "CPUUtilization"), one(What::Gpu, OURS, "GPUUtilization")]
    });
    let asked: Vec<Asked> =
        from_outside.chain(of_the_agent(session, region, machines).await).collect();
    let mut found: BTreeMap<String, Use> = BTreeMap::new();
    for batch in asked.chunks(QUERIES_MAX) {
        for (number, mean) in means(session, region, batch).await {
            let Some(one) = batch.get(number) else { continue };
            let known = found.entry(one.machine.to_owned()).or_default();
            let place = match one.what {
                What::Cpu => &mut known.cpu_percent,
                What::Gpu => &mut known.gpu_percent,
            };
            *place = Some(place.map_or(mean, |other| other.max(mean)));
        }
    }
    found
}

/// The GPUs of these machines on which CloudWatch's own agent runs.
async fn of_the_agent<'a>(
    session: &AwsSession,
    region: &Region,
    machines: &[&'a str],
) -> Vec<Asked<'a>> {
    let list =
        session.cloudwatch(region).await.list_metrics().namespace(AGENT).metric_name(AGENT_GPU);
    // Else the machines of two weeks are listed.
    let mut pages = list.recently_active(RecentlyActive::Pt3H).into_paginator().send();
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = match pages.next().await {
            Some(Ok(page)) => page,
            Some(Err(error)) => {
                tracing::warn!(
                    "what the GPUs of the machines in {region} do is not known: {}",
                    meaning("list the metrics of GPUs", error)
                );
                break;
            }
            None => break,
        };
        found.extend(page.metrics.unwrap_or_default().into_iter().filter_map(|metric| {
            let id =
                metric.dimensions().iter().find(|one| one.name() == Some(INSTANCE))?.value()?;
            let machine = machines.iter().find(|machine| **machine == id)?;
            Some(Asked { machine, what: What::Gpu, metric })
        }));
    }
    found
}

/// By their place in the batch.
async fn means(session: &AwsSession, region: &Region, batch: &[Asked<'_>]) -> Vec<(usize, f64)> {
    let now = SystemClock.now();
    let at = |time: Timestamp| DateTime::from_secs(time.as_second());
    let from = now.saturating_sub(LOOK_BACK).unwrap_or(now);
    let queries =
        batch.iter().enumerate().map(|(number, one)| query(number, &one.metric)).collect();
    let ask =
        session.cloudwatch(region).await.get_metric_data().set_metric_data_queries(Some(queries));
    let answer = match ask.start_time(at(from)).end_time(at(now)).send().await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(
                "no use of the machines in {region} is known: {}",
                meaning("ask for the use of machines", error)
            );
            return Vec::new();
        }
    };
    let mean =
        |hours: &[f64]| (!hours.is_empty()).then(|| hours.iter().sum::<f64>() / hours.len() as f64);
    let numbered = answer.metric_data_results().iter().filter_map(|result| {
        let number = result.id()?.strip_prefix('m')?.parse().ok()?;
        Some((number, mean(result.values())?))
    });
    numbered.collect()
}

/// One that names its machine alone.
fn metric(namespace: &str, name: &str, machine: &str) -> Metric {
    let dimension = Dimension::builder().name(INSTANCE).value(machine).build();
    Metric::builder().namespace(namespace).metric_name(name).dimensions(dimension).build()
}

fn query(number: usize, metric: &Metric) -> MetricDataQuery {
    let mean =
        MetricStat::builder().metric(metric.clone()).period(HOUR_SECS).stat("Average").build();
    MetricDataQuery::builder().id(format!("m{number}")).metric_stat(mean).build()
}
