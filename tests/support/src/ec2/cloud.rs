//! The shared state of the threads: the world, the faults, the log and the way to moto. It serves
//! one call from arrival to answer.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::calls::Call;
use super::catalogue::Catalogue;
use super::cbor;
use super::fault::{self, Fault, Meets};
use super::http::{Answer, HTTP_DATE, NO_ANSWER, Request};
use super::query::{self, Params};
use super::route::{self, Asked};
use super::world::World;
use super::xml::Node;

pub(super) const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

/// How often moto is asked again, and the pause before the first time.
const MOTO_AGAIN: u32 = 5;
const MOTO_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Cloud {
    pub moto: String,
    pub account: String,
    pub world: Mutex<World>,
    pub catalogue: Mutex<Catalogue>,
    pub faults: Mutex<Vec<Fault>>,
    pub calls: Mutex<Vec<Call>>,
    /// Added to every call.
    pub latency: Mutex<Duration>,
    /// How far a test pushed the clock of the states.
    pub pushed: Mutex<Duration>,
    /// How far the clock of AWS is ahead of ours, in the `Date` of answers.
    pub ahead: Mutex<SignedDuration>,
    /// One launch at a time: two calls with one token are one launch.
    pub launching: Mutex<()>,
    /// Cached answers of moto: subnets and their zones.
    pub zones: Mutex<BTreeMap<String, String>>,
    /// The default key of disks; empty: AWS's own.
    pub disk_key: Mutex<String>,
    /// And the regions of buckets.
    pub buckets: Mutex<BTreeMap<String, String>>,
    pub closed: AtomicBool,
    pub began: Instant,
    pub began_at: Timestamp,
}

/// A test that failed while it held the lock has failed already.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cloud {
    pub fn now(&self) -> Duration {
        self.began.elapsed() + *lock(&self.pushed)
    }

    pub fn wall(&self, at: Duration) -> Timestamp {
        self.began_at + SignedDuration::try_from(at).expect("a test is short")
    }

    /// The world as it is now.
    pub fn world(&self) -> MutexGuard<'_, World> {
        let mut world = lock(&self.world);
        let ended = world.settle(self.now());
        if ended.is_empty() {
            return world;
        }
        drop(world);
        // moto deletes their disks and interfaces.
        let regions: BTreeMap<String, Vec<String>> =
            ended.into_iter().fold(BTreeMap::new(), |mut regions, id| {
                let region = lock(&self.world)
                    .find(&id)
                    .map(|instance| instance.region.clone())
                    .unwrap_or_default();
                regions.entry(region).or_default().push(id);
                regions
            });
        for (region, ids) in regions {
            let _gone = self.moto_ec2(&region, "TerminateInstances", &numbered("InstanceId", &ids));
        }
        lock(&self.world)
    }

    /// Asks moto's EC2 on our own account.
    pub fn moto_ec2(&self, region: &str, action: &str, params: &Params) -> Result<Node, Answer> {
        self.moto_query(region, "ec2", "2016-11-15", action, params)
    }

    pub fn moto_query(
        &self,
        region: &str,
        service: &str,
        version: &str,
        action: &str,
        params: &Params,
    ) -> Result<Node, Answer> {
        let mut params = params.clone();
        params.insert("Action".into(), action.into());
        params.insert("Version".into(), version.into());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=rig/20260101/{region}/{service}/aws4_request, SignedHeaders=host, Signature=x"
        );
        let headers = [
            ("Host", format!("{service}.{region}.amazonaws.com")),
            ("Authorization", authorization),
            ("Content-Type", "application/x-www-form-urlencoded".into()),
        ];
        let headers = headers.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let request = Request {
            method: "POST".into(),
            target: "/".into(),
            headers,
            body: query::encode(&params),
        };
        let answer = self.moto(&request);
        if answer.status == 200 { Ok(Node::parse(&answer.text())) } else { Err(answer) }
    }

    /// Under load moto closes a connection now and then without a word: what may be is asked once
    /// more.
    pub fn moto(&self, request: &Request) -> Answer {
        let ask = || request.ask(&self.moto, &self.account);
        let mut answer = ask();
        // On a busy machine moto closes some connections of a burst without an answer.
        for again in 1..=MOTO_AGAIN {
            if answer.is_ok() || !request.may_be_asked_again() {
                break;
            }
            std::thread::sleep(MOTO_PAUSE * again);
            answer = ask();
        }
        answer
            .unwrap_or_else(|error| Answer::new(NO_ANSWER, "text/plain", format!("moto: {error}")))
    }

    /// Where a bucket is, if there is one.
    pub fn region_of(&self, bucket: &str) -> Option<String> {
        if let Some(region) = lock(&self.buckets).get(bucket) {
            return Some(region.clone());
        }
        let authorization = "AWS4-HMAC-SHA256 Credential=rig/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";
        let headers = [("Host", "s3.amazonaws.com"), ("Authorization", authorization)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec();
        let answer = self.moto(&Request {
            method: "GET".into(),
            target: format!("/{bucket}?location"),
            headers,
            body: Vec::new(),
        });
        if answer.status != 200 {
            return None;
        }
        let said = answer.text();
        let region = said
            .split_once("</LocationConstraint>")
            .and_then(|(before, _)| before.rsplit_once('>'))
            .map_or("us-east-1", |(_, region)| region);
        lock(&self.buckets).insert(bucket.to_owned(), region.to_owned());
        Some(region.to_owned())
    }

    /// Serves one connection until either side ends it.
    pub fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = Request::read(&mut reader)? {
            if self.closed.load(Ordering::Relaxed) {
                break;
            }
            let answer = self.call(&request);
            let ahead = *lock(&self.ahead);
            let date = Timestamp::now() + ahead;
            let stream = reader.get_mut();
            match answer {
                Some(mut answer) => {
                    answer.shift_last_modified(ahead);
                    answer.write(
                        stream,
                        request.method == "HEAD",
                        &date.strftime(HTTP_DATE).to_string(),
                    )?;
                }
                None => return stream.shutdown(Shutdown::Both),
            }
        }
        Ok(())
    }

    /// `None`: the caller never hears.
    fn call(&self, request: &Request) -> Option<Answer> {
        match cbor::as_form(request) {
            Some(form) => self.answered(&form).map(|answer| cbor::of_xml(&answer)),
            None => self.answered(request),
        }
    }

    fn answered(&self, request: &Request) -> Option<Answer> {
        let began = self.began.elapsed();
        let asked = Asked::new(request);
        let answer = self.through_faults(&asked);
        let code = answer.as_ref().map(route::code).unwrap_or_default();
        lock(&self.calls).push(Call {
            service: asked.service.clone(),
            region: asked.region.clone(),
            action: asked.action.clone(),
            params: asked.params.clone(),
            status: answer.as_ref().map_or(0, |answer| answer.status),
            code,
            began,
            ended: self.began.elapsed(),
            key: asked.key.clone(),
            agent: request.header("user-agent").into(),
        });
        answer
    }

    fn through_faults(&self, asked: &Asked) -> Option<Answer> {
        let fault = self.fault(asked);
        // Not within the call of `sleep`: the lock would be held until it ends, and calls that are
        // made at once would wait in turn.
        let delay =
            *lock(&self.latency) + fault.as_ref().map(|fault| fault.delay).unwrap_or_default();
        std::thread::sleep(delay);
        let Some(fault) = fault else { return Some(route::answer(self, asked)) };
        if fault.after || matches!(fault.meets, Meets::Nothing) {
            let answer = route::answer(self, asked);
            if matches!(fault.meets, Meets::Nothing) {
                return Some(answer);
            }
        }
        match fault.meets {
            Meets::Code(code, status, message) => {
                Some(route::refusal(&asked.service, &code, &message, status))
            }
            Meets::Cut | Meets::Nothing => None,
        }
    }

    fn fault(&self, asked: &Asked) -> Option<Fault> {
        let by_zone = lock(&self.faults).iter().any(Fault::asks_for_the_zone);
        let zone = if by_zone { self.zone_of(asked) } else { String::new() };
        let market = if asked.get("InstanceMarketOptions.MarketType") == "spot" {
            "spot"
        } else {
            "on-demand"
        };
        let facts = [
            ("zone", zone.as_str()),
            ("market", market),
            ("region", &asked.region),
            ("key", &asked.key),
        ];
        let mut faults = lock(&self.faults);
        faults.iter_mut().find_map(|fault| {
            fault.takes(&asked.action, &asked.params, &facts).then(|| fault.clone())
        })
    }

    /// Where a launch would be placed; empty where it does not say.
    pub fn zone_of(&self, asked: &Asked) -> String {
        let named = asked.get("Placement.AvailabilityZone");
        let subnet = [asked.get("SubnetId"), asked.get("NetworkInterface.1.SubnetId")]
            .into_iter()
            .find(|subnet| !subnet.is_empty());
        match subnet {
            Some(subnet) if named.is_empty() => self.zone_of_subnet(&asked.region, subnet),
            _ => named.into(),
        }
    }

    fn zone_of_subnet(&self, region: &str, subnet: &str) -> String {
        if let Some(zone) = lock(&self.zones).get(subnet) {
            return zone.clone();
        }
        let subnets = self.moto_ec2(region, "DescribeSubnets", &Params::new()).unwrap_or_default();
        let mut zones = lock(&self.zones);
        zones.extend(
            subnets
                .items("subnetSet")
                .iter()
                .map(|subnet| (subnet.at("subnetId").into(), subnet.at("availabilityZone").into())),
        );
        zones.get(subnet).cloned().unwrap_or_default()
    }
}

/// `NAME.1=...&NAME.2=...`.
pub(super) fn numbered(name: &str, values: &[String]) -> Params {
    values
        .iter()
        .enumerate()
        .map(|(n, value)| (format!("{name}.{}", n + 1), value.clone()))
        .collect()
}

/// An answer of EC2 with this content.
pub(super) fn ec2_answer(action: &str, content: impl IntoIterator<Item = Node>) -> Answer {
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let id = Node::leaf("requestId", "00000000-0000-4000-8000-000000000000");
    let root = Node::with(&format!("{action}Response"), std::iter::once(id).chain(content));
    root.write(&mut body);
    // The root alone names the name space.
    let body = body.replacen(
        &format!("<{action}Response>"),
        &format!("<{action}Response xmlns=\"{NAMESPACE}\">"),
        1,
    );
    Answer::new(200, "text/xml;charset=UTF-8", body)
}

pub(super) fn refused(code: &str, message: impl Into<String>) -> Answer {
    route::refusal("ec2", code, &message.into(), fault::status(code))
}
