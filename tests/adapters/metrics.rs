//! Measurements on CloudWatch: moto keeps them, and a server that refuses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{Timestamp, ToSpan as _};
use lamplighter::adapters::aws::cloudwatch_metrics::CloudWatchMeter;
use lamplighter::ports::{Datum, Meter, Stat, Unit};
use object_store::StaticCredentialProvider;
use object_store::aws::AwsCredential;

use lamp_test_support::moto::moto;

fn meter(endpoint: &str) -> (CloudWatchMeter, Arc<AtomicU64>) {
    let credential = AwsCredential {
        key_id: "test".into(),
        secret_key: "test".into(),
        token: Some("a token".into()),
    };
    let own = Arc::new(AtomicU64::new(0));
    let credentials = Arc::new(StaticCredentialProvider::new(credential));
    (
        CloudWatchMeter::new(credentials, "us-east-1", Some(endpoint.to_owned()), Arc::clone(&own))
            .unwrap(),
        own,
    )
}

fn batch() -> Vec<Datum> {
    let gpu = Stat::one(90.0).and(30.0).and(60.0);
    vec![
        Datum { name: "GPUUtilization", unit: Unit::Percent, stat: gpu },
        Datum { name: "Heartbeat", unit: Unit::Count, stat: Stat::one(1.0) },
    ]
}

/// What CloudWatch says of one metric of one machine, in XML.
async fn statistics(endpoint: &str, name: &str, instance: &str) -> String {
    let (from, to) = (Timestamp::now() - 10.minutes(), Timestamp::now() + 10.minutes());
    let form = format!(
        "Action=GetMetricStatistics&Version=2010-08-01&Namespace=Lamplighter&MetricName={name}&StartTime={from}&EndTime={to}&Period=3600\
         &Dimensions.member.1.Name=InstanceId&Dimensions.member.1.Value={instance}\
         &Statistics.member.1=Average&Statistics.member.2=SampleCount&Statistics.member.3=Maximum"
    );
    let request = reqwest::Client::new()
        .post(endpoint)
        .header("Content-Type", "application/x-www-form-urlencoded");
    let signed = request.header(
        "Authorization",
        "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/monitoring/aws4_request",
    );
    let answer = signed.body(form).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
    answer.text().await.unwrap()
}

#[tokio::test]
async fn cloudwatch_keeps_what_was_measured_by_the_machines_id() {
    let Some(moto) = moto() else { return };
    let (meter, own) = meter(&moto.endpoint);
    meter.publish("i-0123", &batch()).await.unwrap();
    assert!(own.load(Ordering::Relaxed) > 500, "it counts as the agent's own traffic");
    let gpu = statistics(&moto.endpoint, "GPUUtilization", "i-0123").await;
    for shown in [
        "<Average>60.0</Average>",
        "<SampleCount>3.0</SampleCount>",
        "<Maximum>90.0</Maximum>",
        "<Unit>Percent</Unit>",
    ] {
        assert!(gpu.contains(shown), "no {shown} in {gpu}");
    }
    assert!(
        statistics(&moto.endpoint, "Heartbeat", "i-0123").await.contains("<Average>1.0</Average>")
    );
    assert!(!statistics(&moto.endpoint, "Heartbeat", "i-other").await.contains("<Average>"));
}

#[tokio::test]
async fn refusal_is_told_with_its_reason_and_the_request_is_signed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&head).contains("Heartbeat") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the whole form comes");
            head.extend_from_slice(&buffer[..read]);
        }
        let body = "<Error>\n  <Code>AccessDenied</Code>\n</Error>";
        write!(
            stream,
            "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        String::from_utf8_lossy(&head).into_owned()
    });
    let refused = meter(&endpoint).0.publish("i-0123", &batch()).await.unwrap_err();
    assert_eq!(
        refused.0.to_string(),
        "CloudWatch answers with status 403: <Error> <Code>AccessDenied</Code> </Error>"
    );
    let asked = server.join().unwrap().to_lowercase();
    assert!(
        asked.contains("/us-east-1/monitoring/aws4_request")
            && asked.contains("x-amz-security-token: a token"),
        "{asked}"
    );

    // Nobody listens there any more.
    assert!(meter(&endpoint).0.publish("i-0123", &batch()).await.is_err());
}
