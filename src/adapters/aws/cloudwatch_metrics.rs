//! `ports::Meter` on CloudWatch: one PutMetricData a minute, in the namespace `Lamplighter`, by the
//! machine's id.
//!
//! It works without the AWS SDK, which would double the size of the agent: the old query protocol
//! is a form. The store's client already holds the machine's credentials and can sign. The role
//! needs only `cloudwatch:PutMetricData` on that namespace. Not here: what is measured, or when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method};

use super::ca_bundle::for_reqwest;
use crate::adapters::host::system_clock::SystemClock;
use crate::adapters::store::s3::install_crypto;
use crate::ports::{Clock as _, Datum, Meter, MeterError, Unit};

/// The namespace that the machine's role may write to, and that alarms read.
pub const NAMESPACE: &str = "Lamplighter";

/// The name of the metric that alarms watch.
const HEARTBEAT: &str = "Heartbeat";

/// The period of the alarm on the heartbeat.
const PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// The timeout of one request. Nothing else waits for it.
const REQUEST_MAX: Duration = Duration::from_secs(15);

/// A refusal is cut to this length for people.
const REFUSAL_CHARS_MAX: usize = 300;

type PutMetricCause = Box<dyn std::error::Error + Send + Sync>;

pub struct CloudWatchMeter {
    client: Client,
    credentials: AwsCredentialProvider,
    region: String,
    endpoint: String,
    /// Bytes that this process itself moved over the network.
    own_network: Arc<AtomicU64>,
    /// The first heartbeat has been published, with a copy for the minute before it.
    began: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
#[error("CloudWatch answers with status {status}: {text}")]
struct PutMetricRefused {
    status: u16,
    text: String,
}

impl CloudWatchMeter {
    /// `endpoint`: instead of the region's own.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        credentials: AwsCredentialProvider,
        region: &str,
        endpoint: Option<String>,
        own_network: Arc<AtomicU64>,
    ) -> Result<Self, reqwest::Error> {
        install_crypto();
        let client = Client::builder()
            .tls_certs_merge(for_reqwest())
            .timeout(REQUEST_MAX)
            .connect_timeout(REQUEST_MAX)
            .pool_max_idle_per_host(1)
            .build()?;
        let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
        let endpoint = endpoint
            .unwrap_or_else(|| format!("https://monitoring.{region}.amazonaws.com{suffix}"));
        Ok(CloudWatchMeter {
            client,
            credentials,
            region: region.to_owned(),
            endpoint,
            own_network,
            began: AtomicBool::new(false),
        })
    }

    async fn put(&self, instance: &str, data: &[Datum]) -> Result<(), PutMetricCause> {
        let before = (!self.began.load(Ordering::Relaxed)).then(|| SystemClock.now() - PERIOD);
        let body = form(instance, data, before).into_bytes();
        let url = format!("{}/", self.endpoint.trim_end_matches('/'));
        let mut request = HttpRequest::new(HttpRequestBody::from(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.parse()?;
        request.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"),
        );
        let credential = self.credentials.get_credential().await?;
        AwsAuthorizer::new(&credential, "monitoring", &self.region)
            .try_authorize(&mut request, None)?;
        self.own_network.fetch_add(body.len() as u64, Ordering::Relaxed);
        let response =
            self.client.post(url).headers(request.headers().clone()).body(body).send().await?;
        let status = response.status();
        if status.is_success() {
            self.began.store(true, Ordering::Relaxed);
            return Ok(());
        }
        // Only the beginning. The timeout of the request covers this wait too.
        let text = response
            .text()
            .await
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        Err(PutMetricRefused {
            status: status.as_u16(),
            text: text.chars().take(REFUSAL_CHARS_MAX).collect(),
        }
        .into())
    }
}

#[async_trait]
impl Meter for CloudWatchMeter {
    async fn publish(&self, instance: &str, data: &[Datum]) -> Result<(), MeterError> {
        self.put(instance, data).await.map_err(MeterError)
    }
}

/// PutMetricData in CloudWatch's query protocol. Without a `Timestamp`, CloudWatch dates a data
/// point when it receives it, so an alarm sees the heartbeat even if this machine's clock is wrong.
/// A clock that is wrong by more than five minutes still publishes nothing: AWS refuses its
/// signature.
///
/// `before`: the heartbeat is published once more with this earlier time. An alarm may be armed
/// once a whole minute has data, and a machine that publishes has been up for longer.
fn form(instance: &str, data: &[Datum], before: Option<Timestamp>) -> String {
    let mut pairs = vec![
        ("Action".to_owned(), "PutMetricData".to_owned()),
        ("Version".to_owned(), "2010-08-01".to_owned()),
        ("Namespace".to_owned(), NAMESPACE.to_owned()),
    ];
    let earlier = data
        .iter()
        .filter(|datum| datum.name == HEARTBEAT)
        .zip(before)
        .map(|(datum, before)| (datum, Some(before)));
    for (at, (datum, dated)) in data.iter().map(|datum| (datum, None)).chain(earlier).enumerate() {
        let mut put = |name: &str, value: String| {
            pairs.push((format!("MetricData.member.{}.{name}", at + 1), value))
        };
        put("MetricName", datum.name.to_owned());
        put("Unit", unit(datum.unit).to_owned());
        if let Some(dated) = dated {
            put("Timestamp", dated.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        put("Dimensions.member.1.Name", "InstanceId".to_owned());
        put("Dimensions.member.1.Value", instance.to_owned());
        put("StatisticValues.SampleCount", datum.stat.count.to_string());
        put("StatisticValues.Sum", datum.stat.sum.to_string());
        put("StatisticValues.Minimum", datum.stat.least.to_string());
        put("StatisticValues.Maximum", datum.stat.most.to_string());
    }
    pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// CloudWatch knows megabytes only under this word; its console shows both as MB.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Percent => "Percent",
        Unit::Mebibytes => "Megabytes",
        Unit::Seconds => "Seconds",
        Unit::Count => "Count",
        Unit::Plain => "None",
    }
}

fn encoded(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Stat;

    #[test]
    fn form_is_what_cloudwatch_reads() {
        let datum = Datum { name: "GPUPower", unit: Unit::Plain, stat: Stat::one(1.5).and(2.5) };
        let text = form("i-0&1", &[datum.clone(), datum], None);
        let first = "MetricData.member.1.MetricName=GPUPower&MetricData.member.1.Unit=None\
                     &MetricData.member.1.Dimensions.member.1.Name=InstanceId&MetricData.member.1.Dimensions.member.1.Value=i-0%261\
                     &MetricData.member.1.StatisticValues.SampleCount=2&MetricData.member.1.StatisticValues.Sum=4\
                     &MetricData.member.1.StatisticValues.Minimum=1.5&MetricData.member.1.StatisticValues.Maximum=2.5";
        assert!(
            text.starts_with(&format!(
                "Action=PutMetricData&Version=2010-08-01&Namespace=Lamplighter&{first}&"
            )),
            "{text}"
        );
        assert!(text.contains("&MetricData.member.2.MetricName=GPUPower&"), "{text}");
        assert!(!text.contains("Timestamp"), "CloudWatch dates it by its own clock: {text}");
    }

    /// An alarm that is armed within the minute of the first heartbeat finds no period with data,
    /// and rings at once.
    #[test]
    fn first_heartbeat_counts_for_the_minute_before_too() {
        let beat = Datum { name: HEARTBEAT, unit: Unit::Count, stat: Stat::one(1.0) };
        let power = Datum { name: "GPUPower", unit: Unit::Plain, stat: Stat::one(1.5) };
        let text = form("i-0", &[power, beat], Some("2026-11-28T14:00:00Z".parse().unwrap()));
        assert!(text.contains("&MetricData.member.3.MetricName=Heartbeat&"), "{text}");
        assert!(
            text.contains("&MetricData.member.3.Timestamp=2026-11-28T14%3A00%3A00Z&"),
            "{text}"
        );
        assert_eq!(text.matches("Timestamp").count(), 1, "{text}");
    }
}
