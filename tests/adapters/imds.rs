//! The metadata adapter against a small HTTP server that answers as AWS documents, and as it should
//! not.

use lamplighter::adapters::aws::imds::Imds;
use lamplighter::instance::{Notice, NoticeKind};
use lamplighter::ports::{Metadata, MetadataError};

use lamp_test_support::imds::{ACTION, FalseImds, MAINTENANCE, REBALANCE, Reply};

fn imds(endpoint: &str) -> Imds {
    Imds::new(Some(endpoint)).unwrap()
}

fn notice(kind: NoticeKind, at: &str, detail: &str) -> Notice {
    Notice { kind, at: at.parse().unwrap(), detail: detail.into() }
}

fn why(answer: Result<Vec<Notice>, MetadataError>) -> String {
    let MetadataError::Unavailable { what, cause } = answer.expect_err("nobody knows");
    format!("{what}: {cause}")
}

#[tokio::test]
async fn notices_are_empty_before_one_and_then_read_as_documented() {
    let server = FalseImds::default();
    let imds = imds(&server.listen());
    assert_eq!(imds.notices().await.unwrap(), []);
    // A time in the past stays as it is: EC2 leaves it there when it did not reclaim.
    server.says(ACTION, r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#);
    assert_eq!(
        imds.notices().await.unwrap(),
        [notice(NoticeKind::Interruption, "2017-09-18T08:22:00Z", "terminate")]
    );
    server.says(ACTION, r#"{"action": "hibernate", "time": "2017-09-18T08:22:00Z", "later": 1}"#);
    assert_eq!(imds.notices().await.unwrap()[0].detail, "hibernate");
    assert_eq!(server.asked("api/token"), 1, "one token for all requests");
}

#[tokio::test]
async fn rebalance_and_maintenance_are_read_and_what_is_over_is_not() {
    let server = FalseImds::default();
    server.says(REBALANCE, r#"{"noticeTime": "2020-10-27T08:22:00Z"}"#);
    server.says(
        MAINTENANCE,
        r#"[{"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "system-reboot", "Description": "scheduled reboot",
             "EventId": "instance-event-0d59937288b749b32", "NotAfter": "21 Jan 2019 09:17:23 GMT", "State": "active"},
            {"NotBefore": "12 Feb 2019 12:00:00 GMT", "Code": "instance-retirement", "Description": "[Canceled] x",
             "EventId": "instance-event-1", "State": "canceled"}]"#,
    );
    let expected = [
        notice(NoticeKind::Rebalance, "2020-10-27T08:22:00Z", "rebalance"),
        notice(NoticeKind::Maintenance, "2019-01-21T09:00:43Z", "system-reboot"),
    ];
    let imds = imds(&server.listen());
    assert_eq!(imds.notices().await.unwrap(), expected);
    assert_eq!(imds.notices().await.unwrap(), expected);
    assert_eq!(
        (server.asked(ACTION), server.asked(MAINTENANCE)),
        (2, 1),
        "the slow ones are not asked each time"
    );
}

#[tokio::test]
async fn expired_token_is_renewed_and_a_storm_of_401_is_an_error() {
    let server = FalseImds::default();
    let imds = imds(&server.listen());
    assert!(imds.notices().await.unwrap().is_empty());
    server.expires_tokens();
    assert!(imds.notices().await.unwrap().is_empty());
    let given = server.asked("api/token");
    server.refuses_tokens(true);
    for _ in 0..5 {
        assert!(why(imds.notices().await).contains("refuses the token"));
    }
    assert!(
        server.asked("api/token") - given <= 10,
        "a refused token is renewed once for each answer"
    );
    server.refuses_tokens(false);
    assert!(imds.notices().await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_that_is_not_an_answer_is_no_notice() {
    let server = FalseImds::default();
    let imds = imds(&server.listen());
    assert!(imds.notices().await.unwrap().is_empty());
    for (storm, said) in [
        (Reply::Text(503, "busy".into()), "status 503"),
        (Reply::Text(500, String::new()), "status 500"),
        (Reply::Text(302, String::new()), "status 302"),
        (Reply::Close, "spot/instance-action"),
        (Reply::Hang, "spot/instance-action"),
        (Reply::Text(200, "{\"action\": \"terminate\"".into()), "EOF"),
        (Reply::Text(200, "<html>captive portal</html>".into()), "expected value"),
        (
            Reply::Text(200, r#"{"action": "terminate", "time": "soon"}"#.into()),
            "`soon` is not a time",
        ),
        (Reply::Text(200, "x".repeat(300 * 1024)), "longer than"),
    ] {
        server.storm(Some(storm));
        let told = why(imds.notices().await);
        assert!(told.contains(said), "{told}");
        server.storm(None);
        assert!(imds.notices().await.unwrap().is_empty(), "it recovers");
    }
}

#[tokio::test]
async fn interruption_is_passed_on_although_the_other_answers_fail() {
    let server = FalseImds::default();
    let imds = imds(&server.listen());
    server.set(REBALANCE, Reply::Hang);
    assert!(why(imds.notices().await).starts_with("events"));
    server.says(ACTION, r#"{"action": "stop", "time": "2026-01-01T00:02:00Z"}"#);
    assert_eq!(
        imds.notices().await.unwrap(),
        [notice(NoticeKind::Interruption, "2026-01-01T00:02:00Z", "stop")]
    );
}

#[tokio::test]
async fn machine_knows_its_id_its_tags_and_when_it_was_launched() {
    let server = FalseImds::default();
    let document = r#"{"instanceId": "i-0abc", "pendingTime": "2026-01-01T00:00:07Z", "region": "eu-west-1", "accountId": "1"}"#;
    server.says("dynamic/instance-identity/document", document);
    let imds = imds(&server.listen());
    let identity = imds.identity().await.unwrap();
    assert_eq!((identity.instance.as_str(), identity.tags.len()), ("i-0abc", 0));
    server.tagged(
        &[("Name", "digits"), ("lamplighter:owner", "me")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    let identity = imds.identity().await.unwrap();
    let expected = [("Name", "digits"), ("lamplighter:owner", "me")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(identity.tags, expected.into());
    assert_eq!(identity.launched, "2026-01-01T00:00:07Z".parse().unwrap());
    server.storm(Some(Reply::Text(503, String::new())));
    assert!(imds.identity().await.is_err());
}

/// All machines of one launch have the same tags, with the job of rank 0.
#[tokio::test]
async fn machine_of_a_gang_has_the_job_of_its_place_in_the_launch() {
    let server = FalseImds::default();
    let document = r#"{"instanceId": "i-0abc", "pendingTime": "2026-01-01T00:00:07Z", "region": "eu-west-1", "accountId": "1"}"#;
    server.says("dynamic/instance-identity/document", document);
    let tags = [("lamplighter:job", "digits-222222"), ("lamplighter:ranks", "4")];
    server.tagged(&tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let imds = imds(&server.listen());
    assert!(imds.identity().await.is_err(), "its place is unknown, so its job is too");
    server.says("meta-data/ami-launch-index", "3");
    let identity = imds.identity().await.unwrap();
    assert_eq!(identity.tags["lamplighter:job"], "digits-r3-222222");
}

#[tokio::test]
async fn service_that_is_not_there_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert!(Imds::new(Some(&endpoint)).unwrap().notices().await.is_err());
}
