//! Which service is meant, who answers, and how each says no.

use serde_json::{Value, json};

use super::cloud::{Cloud, lock};
use super::http::{Answer, NO_ANSWER, Request};
use super::query::{self, Params};
use super::xml::Node;
use super::{catalogue, describe, images, launch, power, spot};

/// A call, understood.
pub(super) struct Asked<'a> {
    pub request: &'a Request,
    pub service: String,
    pub region: String,
    pub key: String,
    pub action: String,
    pub params: Params,
    pub json: Value,
}

impl<'a> Asked<'a> {
    pub fn new(request: &'a Request) -> Self {
        let scope = scope(request);
        let part = |n: usize, default: &str| {
            scope.split('/').nth(n).filter(|part| !part.is_empty()).unwrap_or(default).to_owned()
        };
        let service = part(3, "s3").replace("monitoring", "cloudwatch");
        let mut asked = Asked {
            request,
            service,
            region: part(2, "us-east-1"),
            key: part(0, ""),
            action: String::new(),
            params: Params::new(),
            json: Value::Null,
        };
        let target = request.header("x-amz-target");
        if asked.service != "s3" && !target.is_empty() {
            asked.json = serde_json::from_slice(&request.body).unwrap_or_default();
            (asked.action, asked.params) =
                (target.rsplit('.').next().unwrap_or_default().into(), query::of_json(&asked.json));
        } else if asked.service != "s3" && request.method == "POST" {
            asked.params = query::form(&request.body);
            asked.action = asked.params.get("Action").cloned().unwrap_or_default();
        }
        if asked.service == "s3" {
            asked.params = query::form(
                request.target.split_once('?').map_or("", |(_, query)| query).as_bytes(),
            );
        }
        if asked.action.is_empty() {
            asked.action = format!("{} {}", request.method, request.path());
        }
        asked
    }

    /// A parameter; empty where it is not given.
    pub fn get(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    pub fn is_dry(&self) -> bool {
        self.get("DryRun") == "true"
    }
}

/// `KEY/DATE/REGION/SERVICE/aws4_request`, of the header or of a presigned address.
fn scope(request: &Request) -> String {
    let header = request.header("authorization");
    if let Some((_, rest)) = header.split_once("Credential=") {
        return rest.split([',', ' ']).next().unwrap_or_default().into();
    }
    let presigned =
        request.target.split(['?', '&']).find_map(|pair| pair.strip_prefix("X-Amz-Credential="));
    presigned.map(query::decode).unwrap_or_default()
}

pub(super) fn answer(cloud: &Cloud, asked: &Asked) -> Answer {
    let own = match (asked.service.as_str(), asked.action.as_str()) {
        ("ec2", "RunInstances") => Some(launch::run(cloud, asked)),
        ("ec2", action) => power::answer(cloud, asked, action)
            .or_else(|| describe::answer(cloud, asked, action))
            .or_else(|| spot::answer(cloud, asked, action))
            .or_else(|| images::answer(cloud, asked, action)),
        ("iam", "CreateServiceLinkedRole") => linked_role(cloud, asked),
        ("ssm" | "pricing" | "servicequotas", action) => catalogue::answer(cloud, asked, action),
        ("s3", _) => elsewhere(cloud, asked),
        _ => None,
    };
    own.unwrap_or_else(|| mended(asked, cloud.moto(asked.request)))
}

/// S3 of one region does not answer for the buckets of another: it says where they are in a header,
/// and gives no `Location` (moto answers for them all).
fn elsewhere(cloud: &Cloud, asked: &Asked) -> Option<Answer> {
    let mut parts = asked.request.path().trim_start_matches('/').splitn(2, '/');
    let (bucket, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let made_or_gone = key.is_empty()
        && !asked.request.target.contains('?')
        && ["PUT", "DELETE"].contains(&asked.request.method.as_str());
    if made_or_gone {
        lock(&cloud.buckets).remove(bucket);
    }
    if bucket.is_empty() || made_or_gone || asked.request.target.ends_with("?location") {
        return None;
    }
    let region = cloud.region_of(bucket)?;
    (region != asked.region).then(|| {
        let mut answer =
            refusal("s3", "PermanentRedirect", "The bucket you are attempting to access must be addressed using the specified endpoint.", 301);
        answer.headers.push(("x-amz-bucket-region".into(), region));
        answer
    })
}

/// moto gives these two a name that AWS does not. Its own answer is right but for that.
fn linked_role(cloud: &Cloud, asked: &Asked) -> Option<Answer> {
    let service = asked.get("AWSServiceName");
    let name = match service {
        "spot.amazonaws.com" => "AWSServiceRoleForEC2Spot",
        "events.amazonaws.com" => "AWSServiceRoleForCloudWatchEvents",
        _ => return None,
    };
    let path = format!("/aws-service-role/{service}/");
    let params = [
        ("RoleName", name),
        ("Path", &path),
        ("AssumeRolePolicyDocument", "{\"Version\":\"2012-10-17\",\"Statement\":[]}"),
    ];
    let params = params.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let taken = format!(
        "Service role name {name} has been taken in this account, please try a different suffix."
    );
    cloud
        .moto_query("us-east-1", "iam", "2010-05-08", "CreateRole", &params)
        .is_err()
        .then(|| refusal("iam", "InvalidInput", &taken, 400))
}

/// Mends answers of moto that differ from the documentation of S3.
fn mended(asked: &Asked, mut answer: Answer) -> Answer {
    if asked.service == "s3"
        && asked.request.method == "GET"
        && asked.request.target.ends_with("?versioning")
    {
        answer.body = answer
            .text()
            .replace("GetBucketVersioningResponse", "VersioningConfiguration")
            .into_bytes();
    }
    answer
}

/// No, as this service says it.
pub(super) fn refusal(service: &str, code: &str, message: &str, status: u16) -> Answer {
    let words = || [Node::leaf("Code", code), Node::leaf("Message", message)];
    let id = || Node::leaf("RequestId", "00000000-0000-4000-8000-000000000000");
    let root = match service {
        "ec2" => Node::with(
            "Response",
            [
                Node::with("Errors", [Node::with("Error", words())]),
                Node::leaf("RequestID", "00000000-0000-4000-8000-000000000000"),
            ],
        ),
        "s3" => Node::with("Error", words().into_iter().chain([id()])),
        "iam" | "sts" | "cloudwatch" => {
            let kind = Node::leaf("Type", if status < 500 { "Sender" } else { "Receiver" });
            Node::with(
                "ErrorResponse",
                [Node::with("Error", [kind].into_iter().chain(words())), id()],
            )
        }
        _ => {
            let mut answer = Answer::new(
                status,
                "application/x-amz-json-1.1",
                json!({ "__type": code, "message": message }).to_string(),
            );
            answer.headers.push(("x-amzn-ErrorType".into(), code.into()));
            return answer;
        }
    };
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    root.write(&mut body);
    Answer::new(status, "text/xml;charset=UTF-8", body)
}

/// The code of a refusal; empty for anything else.
pub(super) fn code(answer: &Answer) -> String {
    if answer.status < 400 {
        return String::new();
    }
    let text = answer.text();
    if answer.status == NO_ANSWER {
        return text;
    }
    if let Ok(Value::Object(document)) = serde_json::from_str(&text) {
        return document.get("__type").and_then(Value::as_str).unwrap_or_default().into();
    }
    text.split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map_or(String::new(), |(code, _)| code.into())
}

pub(super) fn json_answer(document: &Value) -> Answer {
    Answer::new(200, "application/x-amz-json-1.1", document.to_string())
}

/// A fact that a thing of its kind may have, and this one has not: no value matches it.
pub(super) const ABSENT: &str = "\0";

/// Does a thing with these facts pass all filters? `Err`: the name of a filter that EC2 does not
/// know. Facts are asked for one by one: there may be ten thousand things.
pub(super) fn passes(
    filters: &[(String, Vec<String>)],
    tags: &[Node],
    fact: impl Fn(&str) -> Option<Vec<String>>,
) -> Result<bool, String> {
    for (name, values) in filters {
        let any =
            |text: &str| text != ABSENT && values.iter().any(|value| query::like(value, text));
        let passes = match name.strip_prefix("tag:") {
            Some(tag) => tags.iter().any(|pair| pair.at("key") == tag && any(pair.at("value"))),
            None if name == "tag-key" => tags.iter().any(|pair| any(pair.at("key"))),
            None => fact(name).ok_or_else(|| name.clone())?.iter().any(|text| any(text)),
        };
        if !passes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The same facts, where all of them are at hand.
pub(super) fn among<'a>(facts: &'a [(&str, String)]) -> impl Fn(&str) -> Option<Vec<String>> + 'a {
    |name| {
        let known: Vec<String> =
            facts.iter().filter(|(fact, _)| *fact == name).map(|(_, text)| text.clone()).collect();
        (!known.is_empty()).then_some(known)
    }
}
