//! The sweeper in the cloud as AWS Lambda runs it: the real program, without a word, asked by a
//! runtime API of our own.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::Tags;
use lamplighter::job::{AttemptNo, BOOT};
use lamplighter::market::Span;
use serde_json::Value;

use crate::place::{Running, wait_until};
use crate::sandbox::{Sandbox, repository};
use lamp_test_support::ec2::{Call, FalseEc2, Fault, IMAGE, OWNER, Options, State};

/// A visit asks seventeen regions and reads a dozen objects: two seconds, and a minute where
/// everything is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Too little for a second look in the same visit.
const SHORT: SignedDuration = SignedDuration::from_secs(100);

/// What the function said: `response` or `error`, and the body.
type Said = (String, Value);

/// The runtime API, and the function that asks it. Ends with the test.
struct Lambda {
    calls: Option<Sender<SignedDuration>>,
    said: Receiver<Said>,
    function: Running,
}

impl Lambda {
    fn start(mut command: Command) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it listens").to_string();
        let (calls, waiting) = channel();
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                if serve(stream, number, &waiting, &tell).is_err() {
                    break;
                }
            }
        });
        let function = command
            .env("AWS_LAMBDA_RUNTIME_API", &address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        Lambda {
            calls: Some(calls),
            said,
            function: Running(function.spawn().expect("lamp was built for this test")),
        }
    }

    /// A call with so much time.
    fn call(&self, time: SignedDuration) -> Said {
        self.calls.as_ref().expect("it still calls").send(time).expect("the API lives");
        self.said.recv_timeout(PATIENCE).expect("the function answers")
    }

    /// A call that is answered well.
    fn visit(&self, time: SignedDuration) -> Value {
        let (kind, visit) = self.call(time);
        assert_eq!(kind, "response", "{visit}");
        visit
    }
}

/// One request a connection. `Err`: there is nothing more to do.
fn serve(
    stream: TcpStream,
    number: usize,
    calls: &Receiver<SignedDuration>,
    tell: &Sender<Said>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((_, value)) =
            line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut stream = reader.into_inner();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = path.strip_prefix("/2018-06-01/runtime/").unwrap_or_default();
    if path == "invocation/next" {
        let Ok(time) = calls.recv() else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
        let until = (Timestamp::now() + time).as_millisecond();
        let head = format!(
            "Lambda-Runtime-Aws-Request-Id: call-{number}\r\nLambda-Runtime-Deadline-Ms: {until}\r\n"
        );
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\n{head}Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
    }
    write!(stream, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
    // Nobody listens to a test that has failed already.
    let _ = tell.send((kind, serde_json::from_slice(&body).unwrap_or_default()));
    Ok(())
}

struct Account {
    ec2: FalseEc2,
    sandbox: Sandbox,
    bucket: String,
}

impl Account {
    fn new() -> Option<Self> {
        let ec2 = FalseEc2::start(Options {
            pending: Duration::ZERO,
            stopping: Duration::ZERO,
            ..Options::default()
        })?;
        let bucket = ec2.bucket("jobs");
        Some(Account { sandbox: Sandbox::new(), bucket, ec2 })
    }

    fn function(&self) -> Lambda {
        let mut command = self.sandbox.command(&[]);
        // As AWS starts it: there is no home.
        command.env_remove("HOME").env_remove("USER").envs(self.ec2.env());
        command.env("LAMP_OWNER", OWNER).env("LAMP_JOB_ROOT", format!("s3://{}/team", self.bucket));
        Lambda::start(command)
    }

    fn key(&self, key: &str) -> String {
        format!("/{}/team/{key}", self.bucket)
    }

    /// The records of a job under way, whose agent has said a word just now.
    fn job(&self) {
        let record = |name: &str| {
            std::fs::read(repository().join("tests/data/v1").join(name)).expect("it is there")
        };
        for (name, key) in
            [("spec.json", "spec.json"), ("status.json", "attempts/0001/status.json")]
        {
            let (status, _) =
                self.ec2.s3("PUT", &self.key(&format!("jobs/{JOB}/{key}")), &record(name));
            assert_eq!(status, 200);
        }
    }

    fn launch(&self, region: &str, tags: &BTreeMap<String, String>) -> String {
        let params = [
            ("ImageId", IMAGE),
            ("InstanceType", "g5.xlarge"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
        ];
        let id =
            self.ec2.ask_in(region, "RunInstances", &params).expect("launched").all("instanceId")
                [0]
            .text
            .clone();
        self.ec2.tag(&id, tags);
        id
    }

    fn lives(&self, id: &str) -> bool {
        self.ec2.instance(id).state == State::Running
    }

    fn sweepers(&self, name: &str) -> String {
        self.key(&format!("sweeper/lamplighter-sweeper-{OWNER}/{name}"))
    }
}

const JOB: &str = "digits-7f3k2q";

fn tags(owner: &str, lease_secs: u64, cap_hours: i64) -> BTreeMap<String, String> {
    let kill_at = Some(Timestamp::now() + SignedDuration::from_hours(cap_hours));
    let job = JOB.parse().expect("an id");
    Tags {
        owner: owner.into(),
        job,
        attempt: AttemptNo::FIRST,
        lease: Span::from_secs(lease_secs),
        boot: BOOT,
        kill_at,
    }
    .to_map()
}

fn ended(visit: &Value) -> Vec<&str> {
    visit["ended"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["machine"]["id"].as_str())
        .collect()
}

/// And whatever looks like one of ours and is none is not touched.
#[test]
fn an_orphan_is_marked_by_one_call_and_ended_by_the_next() {
    let Some(account) = Account::new() else { return };
    account.job();
    let orphan = account.launch("us-east-2", &tags(OWNER, 1, 5));
    let healthy = account.launch("us-east-1", &tags(OWNER, 3600, 5));
    let foreign = account.launch("us-east-2", &tags("somebody-else", 1, -5));
    let mut half = tags(OWNER, 1, -5);
    half.remove("lamplighter:lease-s");
    let half = account.launch("us-east-1", &half);
    let lambda = account.function();

    // Its lease lapses when it does, by the store's clock.
    let until = Instant::now() + PATIENCE;
    let marked = loop {
        let visit = lambda.visit(SHORT);
        assert_eq!(ended(&visit), Vec::<&str>::new(), "{visit}");
        if visit["suspects"] != serde_json::json!([]) {
            break visit;
        }
        assert!(Instant::now() < until, "never marked: {visit}");
    };
    assert_eq!(
        (&marked["suspects"][0]["machine"]["id"], &marked["machines"]),
        (&orphan.as_str().into(), &2.into()),
        "{marked}"
    );
    assert!(account.lives(&orphan));

    // A minute later.
    let (_, kept) = account.ec2.s3("GET", &account.sweepers("suspects.json"), b"");
    let mut kept: Value = serde_json::from_slice(&kept).expect("a record");
    let since: Timestamp =
        kept["suspects"][0]["since"].as_str().expect("a time").parse().expect("a time");
    kept["suspects"][0]["since"] = (since - SignedDuration::from_secs(61)).to_string().into();
    assert_eq!(
        account.ec2.s3("PUT", &account.sweepers("suspects.json"), kept.to_string().as_bytes()).0,
        200
    );
    let visit = lambda.visit(SHORT);
    assert_eq!(ended(&visit), [orphan.as_str()], "{visit}");
    assert!([&healthy, &foreign, &half].into_iter().all(|id| account.lives(id)), "{visit}");
    assert!(!account.lives(&orphan));
    // What it leaves is what it said, and the receipt will say whose end it was.
    let (_, told) = account.ec2.s3("GET", &account.sweepers("visit.json"), b"");
    assert_eq!(serde_json::from_slice::<Value>(&told).expect("a record"), visit);
    assert_eq!(ended(&lambda.visit(SHORT)), Vec::<&str>::new(), "once is enough");
    let touched = |call: &&Call| call.action == "TerminateInstances";
    assert_eq!(account.ec2.calls().iter().filter(touched).count(), 1);
}

#[test]
fn sweeper_with_an_unreadable_bucket_enforces_only_the_hard_cap() {
    let Some(account) = Account::new() else { return };
    account.job();
    let lapsed = account.launch("us-east-1", &tags(OWNER, 1, 5));
    let past = account.launch("us-east-2", &tags(OWNER, 3600, -5));
    let foreign = account.launch("us-east-2", &tags("somebody-else", 1, -5));
    account.ec2.fault(Fault::code(&format!("* /{}*", account.bucket), "AccessDenied").always());
    let lambda = account.function();
    let visit = lambda.visit(SHORT);
    assert_eq!(ended(&visit), [past.as_str()], "{visit}");
    assert!(visit["unknown"].to_string().contains("no lease was judged"), "{visit}");
    // And then it can judge nobody: whoever watches the function hears of it.
    let (kind, said) = lambda.call(SHORT);
    assert_eq!((kind.as_str(), &said["errorType"]), ("error", &"Sick".into()), "{said}");
    assert!(said["errorMessage"].to_string().contains("no lease was judged"), "{said}");
    assert!(account.lives(&lapsed) && account.lives(&foreign) && !account.lives(&past));
}

/// Lambda counts errors, and an alarm on them is how somebody hears of a sweeper that is blind.
#[test]
fn sweeper_that_is_blind_or_cannot_end_an_orphan_fails_its_call() {
    let Some(account) = Account::new() else { return };
    let past = account.launch("us-east-1", &tags(OWNER, 3600, -5));
    account.ec2.fault(
        Fault::code("TerminateInstances", "UnauthorizedOperation").saying("you may not").always(),
    );
    let lambda = account.function();
    let (kind, said) = lambda.call(SHORT);
    assert_eq!((kind.as_str(), &said["errorType"]), ("error", &"Sick".into()), "{said}");
    let why = said["errorMessage"].as_str().expect("words");
    assert!(why.contains(&past) && why.contains("may still run and bill"), "{why}");
    account.ec2.mend();
    assert_eq!(ended(&lambda.visit(SHORT)), [past.as_str()], "and it tries again");
    account.ec2.fault(
        Fault::code("Describe*", "UnauthorizedOperation").saying("you may not look").always(),
    );
    let (kind, said) = lambda.call(SHORT);
    assert!(kind == "error" && said.to_string().contains("you may not look"), "{said}");
}

#[test]
fn without_its_settings_it_says_so_and_ends() {
    let sandbox = Sandbox::new();
    let mut lambda = Lambda::start(sandbox.command(&[]));
    let (kind, said) = lambda.said.recv_timeout(PATIENCE).expect("the function says why");
    assert!(kind == "error" && said.to_string().contains("LAMP_JOB_ROOT"), "{kind}: {said}");
    lambda.calls = None;
    let ended =
        wait_until("it ends", || lambda.function.0.try_wait().expect("it was started here"));
    assert_eq!(ended.code(), Some(103));
}
