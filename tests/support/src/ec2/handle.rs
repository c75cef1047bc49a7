//! The false EC2 as a test holds it.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::calls::Call;
use super::catalogue::Catalogue;
use super::cloud::{Cloud, lock};
use super::fault::Fault;
use super::http::{Answer, Request};
use super::ledger::Ledger;
use super::power;
use super::query::{self, Params};
use super::world::{Instance, Pace, Seen, State, World};
use super::xml::Node;
use crate::moto::moto;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// From `pending` to `running`.
    pub pending: Duration,
    /// From `stopping` to `stopped`, from `shutting-down` to `terminated`.
    pub stopping: Duration,
    /// Machines stand behind the instances, and say when a state is reached
    /// ([`FalseEc2::reached`]).
    pub managed: bool,
}

impl Default for Options {
    /// Short enough for a test to wait, long enough to be seen.
    fn default() -> Self {
        Options {
            pending: Duration::from_millis(200),
            stopping: Duration::from_millis(200),
            managed: false,
        }
    }
}

/// Ends with the test that holds it.
pub struct FalseEc2 {
    pub(super) cloud: Arc<Cloud>,
    url: String,
}

/// The moto of this process. It is asked for by a thread that never ends, and dies with the
/// process.
fn shared_moto() -> Option<String> {
    static MOTO: OnceLock<Option<String>> = OnceLock::new();
    MOTO.get_or_init(|| {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let moto = moto();
            let _heard = tell.send(moto.as_ref().map(|moto| moto.endpoint.clone()));
            loop {
                std::thread::park();
            }
        });
        told.recv().expect("moto listens")
    })
    .clone()
}

/// How many there were in this process: each is an account of its own.
static ACCOUNTS: AtomicU64 = AtomicU64::new(0);

impl FalseEc2 {
    /// `None`, with a word, where moto is not installed.
    pub fn start(options: Options) -> Option<Self> {
        let moto = shared_moto()?;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let pace =
            Pace { pending: options.pending, stopping: options.stopping, managed: options.managed };
        let began_at = Timestamp::now();
        let cloud = Arc::new(Cloud {
            moto: moto.trim_start_matches("http://").into(),
            account: format!("{:012}", 100_000_000_000 + ACCOUNTS.fetch_add(1, Ordering::Relaxed)),
            world: Mutex::new(World::new(pace)),
            catalogue: Mutex::new(Catalogue::new(began_at)),
            faults: Mutex::default(),
            calls: Mutex::default(),
            latency: Mutex::default(),
            pushed: Mutex::default(),
            ahead: Mutex::default(),
            launching: Mutex::default(),
            zones: Mutex::default(),
            disk_key: Mutex::default(),
            buckets: Mutex::default(),
            closed: AtomicBool::new(false),
            began: Instant::now(),
            began_at,
        });
        let shared = Arc::clone(&cloud);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.closed.load(Ordering::Relaxed) {
                    break;
                }
                let cloud = Arc::clone(&shared);
                // A caller that went away has its reasons.
                std::thread::spawn(move || cloud.serve(stream).ok());
            }
        });
        Some(FalseEc2 { cloud, url })
    }

    /// The value of `AWS_ENDPOINT_URL`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn account(&self) -> &str {
        &self.cloud.account
    }

    /// The environment of a program that should believe in this cloud.
    pub fn env(&self) -> [(&'static str, String); 6] {
        let plain = |text: &str| text.to_owned();
        [
            ("AWS_ENDPOINT_URL", self.url.clone()),
            ("AWS_REGION", plain("us-east-1")),
            ("AWS_ACCESS_KEY_ID", plain("test")),
            ("AWS_SECRET_ACCESS_KEY", plain("test")),
            ("AWS_EC2_METADATA_DISABLED", plain("true")),
            ("AWS_CONFIG_FILE", plain("/dev/null")),
        ]
    }

    /// A name for a bucket that no other test has.
    pub fn name(&self, word: &str) -> String {
        format!("{word}-{}", self.cloud.account)
    }

    /// Creates a bucket, and gives its unique name.
    pub fn bucket(&self, word: &str) -> String {
        let name = self.name(word);
        let answer = self.s3("PUT", &format!("/{name}"), b"");
        assert!(answer.0 == 200, "{}", String::from_utf8_lossy(&answer.1));
        name
    }

    /// S3 without the log, the faults and the latency: the status and the body.
    pub fn s3(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let authorization = "AWS4-HMAC-SHA256 Credential=rig/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";
        let headers = [("Host", "127.0.0.1"), ("Authorization", authorization)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec();
        let request =
            Request { method: method.into(), target: path.into(), headers, body: body.into() };
        let answer = self.cloud.moto(&request);
        (answer.status, answer.body)
    }

    /// Asks EC2 as a program would, by the front door. `Err`: the status and the code (0: the
    /// connection was cut).
    pub fn ask(&self, action: &str, params: &[(&str, &str)]) -> Result<Node, (u16, String)> {
        self.ask_in("us-east-1", action, params)
    }

    pub fn ask_in(
        &self,
        region: &str,
        action: &str,
        params: &[(&str, &str)],
    ) -> Result<Node, (u16, String)> {
        self.ask_query(("ec2", "2016-11-15"), region, action, params)
    }

    /// Asks CloudWatch.
    pub fn ask_cloudwatch(
        &self,
        action: &str,
        params: &[(&str, &str)],
    ) -> Result<Node, (u16, String)> {
        self.ask_query(("monitoring", "2010-08-01"), "us-east-1", action, params)
    }

    pub fn ask_query(
        &self,
        (service, version): (&str, &str),
        region: &str,
        action: &str,
        params: &[(&str, &str)],
    ) -> Result<Node, (u16, String)> {
        let mut all: Params =
            params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        all.insert("Action".into(), action.into());
        all.insert("Version".into(), version.into());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=test/20260101/{region}/{service}/aws4_request, SignedHeaders=host, Signature=x"
        );
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        let answer = self
            .send("POST", "/", &headers, &query::encode(&all))
            .map_err(|_| (0, String::new()))?;
        if answer.status == 200 {
            Ok(Node::parse(&answer.text()))
        } else {
            Err((answer.status, super::route::code(&answer)))
        }
    }

    /// Asks a service that speaks JSON, such as `("pricing", "AWSPriceListService.GetProducts")`.
    pub fn ask_json(
        &self,
        service: &str,
        target: &str,
        body: &serde_json::Value,
    ) -> Result<serde_json::Value, (u16, String)> {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x"
        );
        let headers = [
            ("Authorization", authorization.as_str()),
            ("X-Amz-Target", target),
            ("Content-Type", "application/x-amz-json-1.1"),
        ];
        let answer = self
            .send("POST", "/", &headers, body.to_string().as_bytes())
            .map_err(|_| (0, String::new()))?;
        if answer.status == 200 {
            Ok(serde_json::from_slice(&answer.body).expect("JSON"))
        } else {
            Err((answer.status, super::route::code(&answer)))
        }
    }

    fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let headers = headers
            .iter()
            .chain(&[("Host", "127.0.0.1")])
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let request =
            Request { method: method.into(), target: target.into(), headers, body: body.into() };
        request.ask(self.url.trim_start_matches("http://"), &self.cloud.account)
    }

    /// Creates a role and an instance profile of this name.
    pub fn profile(&self, name: &str) {
        let role = ("RoleName", name);
        let profile = ("InstanceProfileName", name);
        let calls: [(&str, &[(&str, &str)]); 3] = [
            ("CreateRole", &[role, ("AssumeRolePolicyDocument", "{}")]),
            ("CreateInstanceProfile", &[profile]),
            ("AddRoleToInstanceProfile", &[role, profile]),
        ];
        for (action, params) in calls {
            let params = params
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            self.cloud
                .moto_query("us-east-1", "iam", "2010-05-08", action, &params)
                .unwrap_or_else(|no| panic!("{}", no.text()));
        }
    }

    // What goes wrong.

    pub fn fault(&self, fault: Fault) {
        lock(&self.cloud.faults).push(fault);
    }

    /// Ends all faults.
    pub fn mend(&self) {
        lock(&self.cloud.faults).clear();
    }

    /// Every call takes this much longer.
    pub fn latency(&self, latency: Duration) {
        *lock(&self.cloud.latency) = latency;
    }

    /// DescribeInstances answers as of this long ago.
    pub fn stale(&self, age: Duration) {
        self.cloud.world().stale = age;
    }

    /// `InvalidInstanceID.NotFound` for this long after a launch.
    pub fn unseen(&self, age: Duration) {
        self.cloud.world().unseen = age;
    }

    /// AWS's clock goes ahead of ours by this much, in the `Date` of every answer.
    pub fn clock_ahead(&self, by: SignedDuration) {
        *lock(&self.cloud.ahead) = by;
    }

    // What was asked.

    pub fn calls(&self) -> Vec<Call> {
        lock(&self.cloud.calls).clone()
    }

    /// The calls since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *lock(&self.cloud.calls))
    }

    /// The calls of one action.
    pub fn calls_of(&self, action: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.action == action).collect()
    }

    // Time and fate.

    /// The clock of states and prices goes ahead; nobody waits.
    pub fn advance(&self, by: Duration) {
        *lock(&self.cloud.pushed) += by;
    }

    pub fn instances(&self) -> Vec<Seen> {
        let world = self.cloud.world();
        world.instances.iter().map(|instance| instance.seen(self.cloud.now())).collect()
    }

    pub fn instance(&self, id: &str) -> Seen {
        self.on(id, |instance, now| instance.seen(now))
    }

    pub fn ledger(&self, id: &str) -> Ledger {
        self.on(id, |instance, now| instance.ledger(now))
    }

    pub(super) fn on<T>(&self, id: &str, act: impl FnOnce(&mut Instance, Duration) -> T) -> T {
        let mut world = self.cloud.world();
        let now = self.cloud.now();
        act(world.find(id).unwrap_or_else(|| panic!("no instance {id}")), now)
    }

    /// EC2 takes a spot instance back when this notice is over. The request says so at once, while
    /// the instance still runs.
    pub fn interrupt(&self, id: &str, notice: Duration) {
        self.on(id, |instance, now| {
            instance.notice = Some(now + notice);
            if let Some(spot) =
                instance.spot.as_mut().filter(|spot| spot.interruption == "terminate")
            {
                (spot.state, spot.code) = ("closed", "instance-terminated-no-capacity");
            }
        });
    }

    /// The machine switched itself off: its shutdown behaviour decides what becomes of it.
    pub fn powered_off(&self, id: &str) {
        power::powered_off(&self.cloud, id);
    }

    /// It ends for a reason of EC2's own, such as `Client.VolumeLimitExceeded` or
    /// `Server.InternalError`.
    pub fn end(&self, id: &str, code: &str) {
        self.on(id, |instance, now| {
            instance.because(code, code, "");
            instance.enter(now, State::Terminated, None);
        });
    }

    /// The machine behind a managed instance has reached this state.
    pub fn reached(&self, id: &str, state: State) {
        self.on(id, |instance, now| {
            let awaited = instance.next.is_some_and(|(_, next)| next == state);
            if awaited {
                instance.next = Some((now, state));
            }
        });
        drop(self.cloud.world());
    }

    /// The status checks fail.
    pub fn impair(&self, id: &str, impaired: bool) {
        self.on(id, |instance, _| instance.impaired = impaired);
    }

    /// EC2 shows it no more, as an hour after its end.
    pub fn forget(&self, id: &str) {
        self.on(id, |instance, _| instance.forgotten = true);
    }

    /// This many more like an instance that was launched, without moto's knowledge; gives their
    /// ids.
    pub fn multiply(&self, id: &str, times: usize) -> Vec<String> {
        let model = self.on(id, |instance, _| instance.clone());
        let mut world = self.cloud.world();
        let mut ids = Vec::new();
        for _ in 0..times {
            world.numbered += 1;
            let number = world.numbered;
            let mut copy = Instance {
                id: format!("i-{number:017x}"),
                in_moto: false,
                token: format!("copy-{number}"),
                ..model.clone()
            };
            copy.item.set(Node::leaf("instanceId", &copy.id));
            copy.reservation = format!("r-{number:017x}");
            if let Some(spot) = &mut copy.spot {
                spot.id = format!("sir-{number:08x}");
            }
            ids.push(copy.id.clone());
            world.add(copy);
        }
        ids
    }

    /// Changes tags without a call.
    pub fn tag(&self, id: &str, tags: &BTreeMap<String, String>) {
        self.on(id, |instance, _| instance.set_tags(tags));
    }

    // What things cost.

    /// The spot prices of a type in a zone: how long ago each began, and what it was. Oldest first.
    pub fn spot_prices(&self, kind: &str, zone: &str, changes: &[(SignedDuration, f64)]) {
        let now = self.cloud.wall(self.cloud.now());
        let series = changes.iter().map(|(ago, usd)| (now - *ago, *usd)).collect();
        lock(&self.cloud.catalogue).series.insert((kind.into(), zone.into()), series);
    }

    /// The first page of prices is empty, and says where the next begins.
    pub fn begins_with_an_empty_page_of_prices(&self) {
        lock(&self.cloud.catalogue).is_first_page_empty = true;
    }

    /// The account's default key for disks.
    pub fn disk_key(&self, key: &str) {
        *lock(&self.cloud.disk_key) = key.into();
    }

    /// The on-demand price of a type.
    pub fn on_demand(&self, kind: &str, usd: f64) {
        lock(&self.cloud.catalogue).on_demand.insert(kind.into(), usd);
    }

    /// How many more machines there is capacity for; `None`: for all.
    pub fn room(&self, machines: Option<u32>) {
        self.cloud.world().room = machines;
    }

    pub fn quota(&self, code: &str, value: f64) {
        lock(&self.cloud.catalogue).quotas.insert(code.into(), value);
    }

    /// A public parameter of Systems Manager.
    pub fn parameter(&self, name: &str, value: &str) {
        lock(&self.cloud.catalogue).parameters.insert(name.into(), value.into());
    }

    /// CloudWatch decides that this alarm rings: its EC2 actions are carried out on the instance of
    /// its dimension.
    pub fn ring(&self, alarm: &str) {
        let params = Params::from([("AlarmNames.member.1".to_owned(), alarm.to_owned())]);
        let found = self.cloud.moto_query(
            "us-east-1",
            "monitoring",
            "2010-08-01",
            "DescribeAlarms",
            &params,
        );
        let found = found.unwrap_or_else(|no| panic!("{}", no.text()));
        let state =
            [("AlarmName", alarm), ("StateValue", "ALARM"), ("StateReason", "a test rings it")];
        let state = state.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        if let Err(no) =
            self.cloud.moto_query("us-east-1", "monitoring", "2010-08-01", "SetAlarmState", &state)
        {
            panic!("{}", no.text());
        }
        let dimension = found
            .all("Value")
            .into_iter()
            .map(|value| value.text.clone())
            .find(|value| value.starts_with("i-"));
        let id = dimension.unwrap_or_else(|| panic!("no alarm {alarm} of an instance"));
        for action in found.all("AlarmActions").into_iter().flat_map(|actions| &actions.children) {
            let asked = match action.text.rsplit(':').next() {
                Some("terminate") => self.ask("TerminateInstances", &[("InstanceId.1", &id)]),
                // It fails on one-time spot, and CloudWatch does not care.
                Some("stop") => self.ask("StopInstances", &[("InstanceId.1", &id)]),
                _ => continue,
            };
            drop(asked);
        }
    }
}

impl Drop for FalseEc2 {
    fn drop(&mut self) {
        self.cloud.closed.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _woken = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}
