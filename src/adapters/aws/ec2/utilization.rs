//! How much machines are used, from CloudWatch: CPU, which EC2 measures from outside, and GPUs, if
//! an agent publishes them.
//!
//! ListMetrics finds the GPU metrics of CloudWatch's own agent. GetMetricData then reads these, the
//! CPU, and the GPU metrics of Lamplighter's agent as means of one day.
//!
//! Lamplighter's agent publishes under the machine's id alone. CloudWatch's agent adds dimensions
//! for each GPU and from its configuration, and a query needs all of them, so they are listed
//! first. A metric that is not published is unknown. Not here: whether so little use is a waste.

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

/// The means of the last day; `None`: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    pub cpu_percent: Option<f64>,
    /// The busiest GPU: the other ones may be idle beside a job that uses one.
    pub gpu_percent: Option<f64>,
}

#[derive(Clone, Copy)]
enum MeasuredPart {
    Cpu,
    Gpu,
}

/// One metric of one machine.
struct MetricQuestion<'a> {
    machine: &'a str,
    what: MeasuredPart,
    metric: Metric,
}

/// The period to look at: a day includes the night.
const LOOK_BACK: Duration = Duration::from_secs(24 * 3600);

/// The most queries of one GetMetricData call.
const QUERIES_MAX: usize = 500;

/// CloudWatch aligns a period to its own round hour or day: hours cover the last 24, a day would
/// begin at midnight.
const HOUR_SECS: i32 = 3600;

/// The default namespace of CloudWatch's agent, and its name for the use of a GPU.
const AGENT: &str = "CWAgent";
const AGENT_GPU: &str = "nvidia_smi_utilization_gpu";

const INSTANCE: &str = "InstanceId";

/// Pages of 500 metrics. A region has one recent metric for each GPU; only five thousand GPUs are
/// looked at.
const PAGES_MAX: usize = 10;

/// The use of machines in one region, by their ids.
pub async fn of_machines(
    session: &AwsSession,
    region: &Region,
    machines: &[&str],
) -> BTreeMap<String, Use> {
    if machines.is_empty() {
        return BTreeMap::new();
    }
    let from_outside = machines.iter().flat_map(|id| {
        let one = |what, namespace, name| MetricQuestion {
            machine: id,
            what,
            metric: metric(namespace, name, id),
        };
        [
            one(MeasuredPart::Cpu, "AWS/EC2", "CPUUtilization"),
            one(MeasuredPart::Gpu, OURS, "GPUUtilization"),
        ]
    });
    let asked: Vec<MetricQuestion> =
        from_outside.chain(of_the_agent(session, region, machines).await).collect();
    let mut found: BTreeMap<String, Use> = BTreeMap::new();
    for batch in asked.chunks(QUERIES_MAX) {
        for (number, mean) in means(session, region, batch).await {
            let Some(one) = batch.get(number) else { continue };
            let known = found.entry(one.machine.to_owned()).or_default();
            let place = match one.what {
                MeasuredPart::Cpu => &mut known.cpu_percent,
                MeasuredPart::Gpu => &mut known.gpu_percent,
            };
            *place = Some(place.map_or(mean, |other| other.max(mean)));
        }
    }
    found
}

/// The GPU metrics that CloudWatch's own agent publishes for these machines.
async fn of_the_agent<'a>(
    session: &AwsSession,
    region: &Region,
    machines: &[&'a str],
) -> Vec<MetricQuestion<'a>> {
    let list =
        session.cloudwatch(region).await.list_metrics().namespace(AGENT).metric_name(AGENT_GPU);
    // Otherwise the list includes machines of the last two weeks.
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
            Some(MetricQuestion { machine, what: MeasuredPart::Gpu, metric })
        }));
    }
    found
}

/// By their index in the batch.
async fn means(
    session: &AwsSession,
    region: &Region,
    batch: &[MetricQuestion<'_>],
) -> Vec<(usize, f64)> {
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

/// A metric with the machine's id as its only dimension.
fn metric(namespace: &str, name: &str, machine: &str) -> Metric {
    let dimension = Dimension::builder().name(INSTANCE).value(machine).build();
    Metric::builder().namespace(namespace).metric_name(name).dimensions(dimension).build()
}

fn query(number: usize, metric: &Metric) -> MetricDataQuery {
    let mean =
        MetricStat::builder().metric(metric.clone()).period(HOUR_SECS).stat("Average").build();
    MetricDataQuery::builder().id(format!("m{number}")).metric_stat(mean).build()
}
