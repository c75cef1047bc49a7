//! The metadata adapter against a small HTTP server that answers as AWS documents, and as it should not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lamplighter::adapters::imds::Imds;
use lamplighter::instance::{Notice, NoticeKind};
use lamplighter::ports::{Metadata, MetadataError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ACTION: &str = "meta-data/spot/instance-action";
const REBALANCE: &str = "meta-data/events/recommendations/rebalance";
const MAINTENANCE: &str = "meta-data/events/maintenance/scheduled";

#[derive(Clone)]
enum Reply {
    Text(u16, String),
    Hang,
    /// The connection is closed without an answer.
    Close,
}

#[derive(Default)]
struct State {
    documents: BTreeMap<String, Reply>,
    /// The token that is good now, and how many were given.
    tokens: u32,
    /// No token is good, whatever was given.
    refuses: bool,
    /// Every request meets this instead.
    storm: Option<Reply>,
    asked: BTreeMap<String, u32>,
}

/// Ends with the runtime of its test.
struct Server {
    state: Arc<Mutex<State>>,
    endpoint: String,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Server { state, endpoint }
    }

    fn imds(&self) -> Imds {
        Imds::new(Some(&self.endpoint)).unwrap()
    }

    fn set(&self, path: &str, reply: Reply) {
        self.state.lock().unwrap().documents.insert(path.into(), reply);
    }

    fn says(&self, path: &str, body: &str) {
        self.set(path, Reply::Text(200, body.into()));
    }

    fn storm(&self, reply: Option<Reply>) {
        self.state.lock().unwrap().storm = reply;
    }

    fn asked(&self, path: &str) -> u32 {
        self.state.lock().unwrap().asked.get(path).copied().unwrap_or_default()
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            let mut chunk = [0; 1024];
            match stream.read(&mut chunk).await {
                Ok(read) if read > 0 => buffer.extend_from_slice(&chunk[..read]),
                _ => return,
            }
        };
        let head: Vec<u8> = buffer.drain(..end).collect();
        let reply = state.lock().unwrap().reply(&String::from_utf8(head).unwrap());
        let (status, body) = match reply {
            Reply::Text(status, body) => (status, body),
            Reply::Hang => std::future::pending().await,
            Reply::Close => return,
        };
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl State {
    /// As IMDSv2 does: a token by PUT, and nothing without one.
    fn reply(&mut self, head: &str) -> Reply {
        let headers = head.to_ascii_lowercase();
        let path = head.split(' ').nth(1).unwrap().trim_start_matches("/latest/").to_owned();
        *self.asked.entry(path.clone()).or_default() += 1;
        if let Some(storm) = &self.storm {
            return storm.clone();
        }
        if path == "api/token" {
            let asks_well = head.starts_with("PUT ") && headers.contains("\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
            self.tokens += 1;
            return if asks_well { Reply::Text(200, format!("token-{}", self.tokens)) } else { Reply::Text(400, String::new()) };
        }
        if self.refuses || !headers.contains(&format!("\r\nx-aws-ec2-metadata-token: token-{}\r\n", self.tokens)) {
            return Reply::Text(401, String::new());
        }
        self.documents.get(&path).cloned().unwrap_or_else(|| Reply::Text(404, "<html>Not Found</html>".into()))
    }
}

fn notice(kind: NoticeKind, at: &str, detail: &str) -> Notice {
    Notice { kind, at: at.parse().unwrap(), detail: detail.into() }
}

fn why(answer: Result<Vec<Notice>, MetadataError>) -> String {
    let MetadataError::Unavailable { what, cause } = answer.expect_err("nobody knows");
    format!("{what}: {cause}")
}

#[tokio::test]
async fn before_a_notice_there_is_none_and_then_it_is_read_as_documented() {
    let server = Server::start().await;
    let imds = server.imds();
    assert_eq!(imds.notices().await.unwrap(), []);
    // A time in the past stays as it is: EC2 leaves it there when it did not reclaim.
    server.says(ACTION, r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#);
    assert_eq!(imds.notices().await.unwrap(), [notice(NoticeKind::Interruption, "2017-09-18T08:22:00Z", "terminate")]);
    server.says(ACTION, r#"{"action": "hibernate", "time": "2017-09-18T08:22:00Z", "later": 1}"#);
    assert_eq!(imds.notices().await.unwrap()[0].detail, "hibernate");
    assert_eq!(server.asked("api/token"), 1, "one token for all requests");
}

#[tokio::test]
async fn rebalance_and_maintenance_are_read_and_what_is_over_is_not() {
    let server = Server::start().await;
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
    let imds = server.imds();
    assert_eq!(imds.notices().await.unwrap(), expected);
    assert_eq!(imds.notices().await.unwrap(), expected);
    assert_eq!((server.asked(ACTION), server.asked(MAINTENANCE)), (2, 1), "the slow ones are not asked each time");
}

#[tokio::test]
async fn a_token_that_expired_is_renewed_and_a_storm_of_401_is_an_error() {
    let server = Server::start().await;
    let imds = server.imds();
    assert!(imds.notices().await.unwrap().is_empty());
    server.state.lock().unwrap().tokens += 1;
    assert!(imds.notices().await.unwrap().is_empty());
    let given = server.asked("api/token");
    server.state.lock().unwrap().refuses = true;
    for _ in 0..5 {
        assert!(why(imds.notices().await).contains("refuses the token"));
    }
    assert!(server.asked("api/token") - given <= 10, "a refused token is renewed once for each answer");
    server.state.lock().unwrap().refuses = false;
    assert!(imds.notices().await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_that_is_not_an_answer_is_no_notice() {
    let server = Server::start().await;
    let imds = server.imds();
    assert!(imds.notices().await.unwrap().is_empty());
    for (storm, said) in [
        (Reply::Text(503, "busy".into()), "status 503"),
        (Reply::Text(500, String::new()), "status 500"),
        (Reply::Text(302, String::new()), "status 302"),
        (Reply::Close, "spot/instance-action"),
        (Reply::Hang, "spot/instance-action"),
        (Reply::Text(200, "{\"action\": \"terminate\"".into()), "EOF"),
        (Reply::Text(200, "<html>captive portal</html>".into()), "expected value"),
        (Reply::Text(200, r#"{"action": "terminate", "time": "soon"}"#.into()), "`soon` is not a time"),
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
async fn an_interruption_is_passed_on_although_the_other_answers_fail() {
    let server = Server::start().await;
    let imds = server.imds();
    server.set(REBALANCE, Reply::Hang);
    assert!(why(imds.notices().await).starts_with("events"));
    server.says(ACTION, r#"{"action": "stop", "time": "2026-01-01T00:02:00Z"}"#);
    assert_eq!(imds.notices().await.unwrap(), [notice(NoticeKind::Interruption, "2026-01-01T00:02:00Z", "stop")]);
}

#[tokio::test]
async fn the_machine_knows_its_id_its_tags_and_when_it_was_launched() {
    let server = Server::start().await;
    let document = r#"{"instanceId": "i-0abc", "pendingTime": "2026-01-01T00:00:07Z", "region": "eu-west-1", "accountId": "1"}"#;
    server.says("dynamic/instance-identity/document", document);
    let imds = server.imds();
    let identity = imds.identity().await.unwrap();
    assert_eq!((identity.instance.as_str(), identity.tags.len()), ("i-0abc", 0));
    server.says("meta-data/tags/instance", "Name\nlamplighter:owner");
    server.says("meta-data/tags/instance/Name", "digits");
    server.says("meta-data/tags/instance/lamplighter:owner", "me");
    let identity = imds.identity().await.unwrap();
    let expected = [("Name", "digits"), ("lamplighter:owner", "me")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(identity.tags, expected.into());
    assert_eq!(identity.launched, "2026-01-01T00:00:07Z".parse().unwrap());
    server.storm(Some(Reply::Text(503, String::new())));
    assert!(imds.identity().await.is_err());
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert!(Imds::new(Some(&endpoint)).unwrap().notices().await.is_err());
}
