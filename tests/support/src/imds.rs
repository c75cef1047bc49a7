//! An instance metadata service, version 2, for tests.
//!
//! A document is a path below `/latest/` and its text. Folders are listed from the documents below
//! them. Every request needs a token. A notice is missing (404) until the test sets it. The service
//! ends with the process of its test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

pub const ACTION: &str = "meta-data/spot/instance-action";
pub const REBALANCE: &str = "meta-data/events/recommendations/rebalance";
pub const MAINTENANCE: &str = "meta-data/events/maintenance/scheduled";

const TAGS: &str = "meta-data/tags/instance";

/// The longest that a token may live.
const TTL_MAX: u32 = 21_600;

/// A reply.
#[derive(Clone, Debug)]
pub enum Reply {
    Text(u16, String),
    Hang,
    /// The connection is closed without an answer.
    Close,
}

#[derive(Default)]
struct State {
    documents: BTreeMap<String, Reply>,
    tokens: BTreeSet<String>,
    given: u32,
    /// No token is good, whatever was given.
    refuses: bool,
    /// Every request meets this instead.
    storm: Option<Reply>,
    /// For each document one of `every` requests succeeds, and the others get these replies in
    /// turn. With the count of requests for each document.
    gusts: Option<(Vec<Reply>, u32, BTreeMap<String, u32>)>,
    asked: BTreeMap<String, u32>,
}

/// The service of one machine.
#[derive(Clone, Default)]
pub struct FalseImds {
    state: Arc<Mutex<State>>,
}

impl FalseImds {
    /// On this machine, for a program that is told where; gives its address.
    pub fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it listens"));
        self.serve(listener);
        endpoint
    }

    /// Serves until the process ends.
    pub fn serve(&self, listener: TcpListener) {
        let state = Arc::clone(&self.state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                // A client that went away has its reasons.
                std::thread::spawn(move || answer(stream, &state).ok());
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At this path below `/latest/`.
    pub fn set(&self, path: &str, reply: Reply) {
        self.state().documents.insert(path.into(), reply);
    }

    pub fn says(&self, path: &str, body: &str) {
        self.set(path, Reply::Text(200, body.into()));
    }

    pub fn forgets(&self, path: &str) {
        self.state().documents.remove(path);
    }

    /// Sets the identity of the machine.
    pub fn is(&self, instance: &str, kind: &str, zone: &str, launched: Timestamp) {
        let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        let launched = launched.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let identity = serde_json::json!({ "accountId": "123456789012", "architecture": "x86_64", "availabilityZone": zone,
            "imageId": "ami-0d15ea5e000000022", "instanceId": instance, "instanceType": kind, "pendingTime": launched,
            "privateIp": "172.31.0.10", "region": region, "version": "2017-09-30" });
        self.says("dynamic/instance-identity/document", &identity.to_string());
        let facts = [
            ("instance-id", instance),
            ("instance-type", kind),
            ("placement/availability-zone", zone),
            ("placement/region", region),
        ];
        facts.iter().for_each(|(path, text)| self.says(&format!("meta-data/{path}"), text));
        let more = [
            ("ami-id", "ami-0d15ea5e000000022"),
            ("local-ipv4", "172.31.0.10"),
            ("hostname", "ip-172-31-0-10.ec2.internal"),
        ];
        more.iter().for_each(|(path, text)| self.says(&format!("meta-data/{path}"), text));
        self.says("meta-data/services/domain", "amazonaws.com");
    }

    /// As with `InstanceMetadataTags=enabled`.
    pub fn tagged(&self, tags: &BTreeMap<String, String>) {
        let mut state = self.state();
        state.documents.retain(|path, _| !path.starts_with(TAGS));
        state.documents.extend(
            tags.iter()
                .map(|(key, value)| (format!("{TAGS}/{key}"), Reply::Text(200, value.clone()))),
        );
    }

    /// An instance profile with this role.
    pub fn role(&self, role: &str) {
        let text = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (now, later) =
            (Timestamp::now(), Timestamp::now() + jiff::SignedDuration::from_hours(6));
        let credentials = serde_json::json!({ "Code": "Success", "LastUpdated": text(now), "Type": "AWS-HMAC", "AccessKeyId": "ASIAMACHINE",
            "SecretAccessKey": "testing", "Token": "testing", "Expiration": text(later) });
        self.says(&format!("meta-data/iam/security-credentials/{role}"), &credentials.to_string());
    }

    /// `terminate`, `stop` or `hibernate`, at this time.
    pub fn interrupts(&self, action: &str, at: Timestamp) {
        let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self.says(ACTION, &serde_json::json!({ "action": action, "time": time }).to_string());
        self.says("meta-data/spot/termination-time", &time);
    }

    /// Every request meets this, until `None`.
    pub fn storm(&self, reply: Option<Reply>) {
        self.state().storm = reply;
    }

    /// From now on every so many-th request for each document (and for a token) gets through; the
    /// others meet these in turn.
    pub fn gusts(&self, replies: &[Reply], every: u32) {
        self.state().gusts = Some((replies.to_vec(), every, BTreeMap::new()));
    }

    /// All tokens that were given are no longer good.
    pub fn expires_tokens(&self) {
        self.state().tokens.clear();
    }

    pub fn refuses_tokens(&self, refuses: bool) {
        self.state().refuses = refuses;
    }

    /// How often this path was asked for.
    pub fn asked(&self, path: &str) -> u32 {
        self.state().asked.get(path).copied().unwrap_or_default()
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let head: Vec<String> = reader
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty())
            .collect();
        if head.is_empty() {
            return Ok(());
        }
        let reply = state.lock().unwrap_or_else(PoisonError::into_inner).reply(&head);
        let (status, body) = match reply {
            Reply::Text(status, body) => (status, body),
            Reply::Close => return Ok(()),
            Reply::Hang => loop {
                std::thread::park();
            },
        };
        let text = format!(
            "HTTP/1.1 {status} x\r\nServer: EC2ws\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        reader.get_mut().write_all(text.as_bytes())?;
    }
}

impl State {
    /// As IMDSv2 does: PUT gives a token, and all other requests need one.
    fn reply(&mut self, head: &[String]) -> Reply {
        let mut words = head[0].split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let header = |name: &str| {
            let lines = head.iter().filter_map(|line| line.split_once(':'));
            lines
                .filter(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim())
                .next()
        };
        let path = path(target);
        *self.asked.entry(path.clone()).or_default() += 1;
        if let Some(reply) = self.storm.clone().or_else(|| self.gusty(&path)) {
            return reply;
        }
        if method == "PUT" {
            // Never through a proxy.
            if header("x-forwarded-for").is_some() {
                return refusal(403);
            }
            let ttl =
                header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|ttl| ttl.parse().ok());
            if path != "api/token" || !ttl.is_some_and(|ttl: u32| (1..=TTL_MAX).contains(&ttl)) {
                return refusal(400);
            }
            self.given += 1;
            let token = format!("token-{}", self.given);
            self.tokens.insert(token.clone());
            return Reply::Text(200, token);
        }
        if self.refuses
            || !header("x-aws-ec2-metadata-token").is_some_and(|token| self.tokens.contains(token))
        {
            return refusal(401);
        }
        self.documents
            .get(&path)
            .cloned()
            .or_else(|| self.listing(&path))
            .unwrap_or_else(|| refusal(404))
    }

    fn gusty(&mut self, path: &str) -> Option<Reply> {
        let (replies, every, met) = self.gusts.as_mut()?;
        let times = met.entry(path.to_owned()).or_default();
        *times += 1;
        (*times % *every != 0).then(|| replies[*times as usize % replies.len()].clone())
    }

    /// The names below a folder, a slash after those that are folders.
    fn listing(&self, path: &str) -> Option<Reply> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let below = self.documents.keys().filter_map(|document| document.strip_prefix(&prefix));
        let names: BTreeSet<String> = below
            .map(|rest| rest.split_inclusive('/').next().unwrap_or_default().to_owned())
            .collect();
        (!names.is_empty())
            .then(|| Reply::Text(200, names.into_iter().collect::<Vec<_>>().join("\n")))
    }
}

/// The path after the version.
fn path(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default().trim_matches('/');
    path.split_once('/').map_or("", |(_, rest)| rest).trim_matches('/').to_owned()
}

fn refusal(status: u16) -> Reply {
    Reply::Text(status, format!("<html><head><title>{status}</title></head></html>"))
}
