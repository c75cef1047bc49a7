//! CloudWatch's newest protocol (RPC v2, CBOR in and out), told to moto as the form that it
//! understands.
//!
//! ```text
//! POST /service/GraniteServiceVersion20100801/operation/X, CBOR ──> Action=X&..., a form ──> moto ──> XML ──> CBOR
//! ```
//! It reads the part of CBOR (RFC 8949) that a Smithy client writes. A table has the type of each
//! XML text (number, time).

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::http::{Answer, Request};
use super::query::{self, Params};
use super::xml::Node;

const WHOLE: [&str; 3] = ["Period", "EvaluationPeriods", "DatapointsToAlarm"];
const NUMBERS: [&str; 6] = ["Threshold", "SampleCount", "Average", "Sum", "Minimum", "Maximum"];
const TIMES: [&str; 4] = [
    "Timestamp",
    "StateUpdatedTimestamp",
    "AlarmConfigurationUpdatedTimestamp",
    "StateTransitionedTimestamp",
];
/// Lists, also when they are empty.
const LISTS: [&str; 12] = [
    "MetricAlarms",
    "CompositeAlarms",
    "AlarmActions",
    "OKActions",
    "InsufficientDataActions",
    "Dimensions",
    "Metrics",
    "Tags",
    "Datapoints",
    "MetricDataResults",
    "Timestamps",
    "Values",
];

/// The same call as a form; `None`: it speaks another protocol.
pub(super) fn as_form(request: &Request) -> Option<Request> {
    if request.header("smithy-protocol") != "rpc-v2-cbor" {
        return None;
    }
    let action = request.path().rsplit('/').next().unwrap_or_default();
    let mut params = Params::from([
        ("Action".to_owned(), action.to_owned()),
        ("Version".to_owned(), "2010-08-01".to_owned()),
    ]);
    if !request.body.is_empty() {
        flat("", &Reader(&request.body).value(), &mut params);
    }
    let ours = ["content-type", "smithy-protocol", "accept"];
    let mut headers: Vec<_> = request
        .headers
        .iter()
        .filter(|(key, _)| !ours.contains(&key.to_lowercase().as_str()))
        .cloned()
        .collect();
    headers.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
    Some(Request {
        method: request.method.clone(),
        target: "/".into(),
        headers,
        body: query::encode(&params),
    })
}

/// As the query protocol writes it: `A.member.1.B=...`.
fn flat(name: &str, value: &Value, params: &mut Params) {
    let below =
        |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(part, value)| flat(&below(part), value, params))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, value)| flat(&below(&format!("member.{}", n + 1)), value, params)),
        Value::String(text) => drop(params.insert(name.into(), text.clone())),
        Value::Null => {}
        other => drop(params.insert(name.into(), other.to_string())),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self, width: usize) -> u64 {
        self.bytes(width).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn value(&mut self) -> Value {
        let head = self.bytes(1)[0];
        let (major, info) = (head >> 5, head & 31);
        match (major, info) {
            (7, 20 | 21) => return json!(info == 21),
            (7, 22) => return Value::Null,
            (7, 26) => return json!(f32::from_bits(self.number(4) as u32)),
            (7, 27) => return json!(f64::from_bits(self.number(8))),
            _ => {}
        }
        // `None`: until a break.
        let count = match info {
            0..=23 => Some(u64::from(info)),
            24..=27 => Some(self.number(1 << (info - 24))),
            31 => None,
            _ => panic!("no CBOR: {head:#x}"),
        };
        match (major, count) {
            (0, Some(number)) => json!(number),
            (1, Some(number)) => json!(-1 - number as i64),
            (3, Some(length)) => {
                json!(std::str::from_utf8(self.bytes(length as usize)).expect("UTF-8"))
            }
            (4, _) => self.group(count, Self::value).into(),
            (5, _) => self
                .group(count, |it| (it.value().as_str().expect("a name").to_owned(), it.value()))
                .into_iter()
                .collect::<Map<_, _>>()
                .into(),
            (6, Some(1)) => {
                let secs = self.value().as_f64().expect("seconds since 1970");
                json!(
                    Timestamp::from_millisecond((secs * 1000.0) as i64)
                        .expect("a time")
                        .to_string()
                )
            }
            _ => panic!("no client of Smithy writes that: {head:#x}"),
        }
    }

    fn group<T>(&mut self, count: Option<u64>, mut next: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut group = Vec::new();
        loop {
            match count {
                Some(count) if group.len() as u64 == count => return group,
                None if self.0[0] == 0xff => {
                    self.bytes(1);
                    return group;
                }
                _ => group.push(next(self)),
            }
        }
    }
}

/// An answer of the query protocol as CBOR.
pub(super) fn of_xml(answer: &Answer) -> Answer {
    let root = Node::parse(&answer.text());
    let mut body = Vec::new();
    if answer.status < 400 {
        let result = root.children.iter().find(|child| child.name.ends_with("Result"));
        map(result.map_or(&[], |result| &result.children), &mut body);
    } else {
        let of = |name| root.all(name).first().map_or(String::new(), |node| node.text.clone());
        let words = [
            Node::leaf("__type", format!("com.amazonaws.cloudwatch#{}", of("Code"))),
            Node::leaf("message", of("Message")),
        ];
        map(&words, &mut body);
    }
    let mut told = Answer::new(answer.status, "application/cbor", body);
    told.headers.push(("smithy-protocol".into(), "rpc-v2-cbor".into()));
    told
}

fn head(major: u8, count: usize, out: &mut Vec<u8>) {
    out.push(major << 5 | 26);
    out.extend((count as u32).to_be_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    head(3, text.len(), out);
    out.extend(text.as_bytes());
}

fn double(number: f64, out: &mut Vec<u8>) {
    out.push(0xfb);
    out.extend(number.to_be_bytes());
}

fn map(members: &[Node], out: &mut Vec<u8>) {
    head(5, members.len(), out);
    for member in members {
        text(&member.name, out);
        if LISTS.contains(&member.name.as_str()) {
            head(4, member.children.len(), out);
            // The name of a list gives the type of its plain items.
            let kind = member.name.trim_end_matches('s');
            member.children.iter().for_each(|item| {
                one(
                    if kind == "Value" && member.name == "Values" { "Sum" } else { kind },
                    item,
                    out,
                )
            });
        } else {
            one(&member.name, member, out);
        }
    }
}

fn one(name: &str, node: &Node, out: &mut Vec<u8>) {
    if !node.children.is_empty() {
        map(&node.children, out);
    } else if WHOLE.contains(&name) {
        head(0, node.text.parse().expect("a whole number"), out);
    } else if NUMBERS.contains(&name) {
        double(node.text.parse().expect("a number"), out);
    } else if TIMES.contains(&name) {
        out.push(0xc1);
        double(
            node.text.parse::<Timestamp>().expect("a time").as_millisecond() as f64 / 1000.0,
            out,
        );
    } else if name == "ActionsEnabled" {
        out.push(if node.text == "true" { 0xf5 } else { 0xf4 });
    } else {
        text(&node.text, out);
    }
}
