//! Somebody without AWS credentials: every verb says the same few words, and what to type. And
//! somebody whom nobody answers.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::sandbox::{Ended, Sandbox, soon};

const FOUND_NONE: &str = "no AWS credentials were found";

/// Verbs that ask EC2, STS or S3 for something.
const VERBS: &[&[&str]] = &[
    &["plan", "--cloud", "aws", "--max-runtime", "1h", "--", "true"],
    &["run", "--cloud", "aws", "--max-runtime", "1h", "--", "true"],
    &["prices", "--gpu", "A10G", "--region", "us-east-1"],
    &["sweep"],
    &["init", "aws", "--region", "us-east-2", "--dry-run"],
    &["status", "--job-root", "s3://nothing-of-that-name/jobs"],
    &["doctor"],
];

/// What only the authors of a library understand.
const JARGON: &[&str] = &[
    "dispatch failure",
    "credential provider",
    "in chain",
    "IMDS",
    "not allowed",
    "nobody told the time",
    "because: other",
];

fn is_kind(verb: &str, ended: &Ended) {
    let said = format!("{}{}", ended.out, ended.err);
    assert!(
        said.contains(FOUND_NONE)
            && said.contains("`aws configure`")
            && said.contains("AWS_PROFILE"),
        "{verb}: {said}"
    );
    for word in JARGON {
        assert!(!said.contains(word), "{verb}: {word}: {said}");
    }
}

#[test]
fn verbs_without_credentials_report_it_in_the_same_words() {
    let sandbox = Sandbox::with_script();
    for words in VERBS {
        let ended = sandbox.end(sandbox.command(words).env("AWS_EC2_METADATA_DISABLED", "true"));
        is_kind(words[0], &ended);
    }
    let planned = sandbox.end(sandbox.command(VERBS[0]).env("AWS_EC2_METADATA_DISABLED", "true"));
    assert_eq!(planned.code, 103, "{planned:?}");
    assert!(
        planned.err.contains("error: no AWS credentials were found\nnothing was started or billed; the catalogue that ships with `lamp` has no plan"),
        "{planned:?}"
    );
}

/// Nothing of such a job is at AWS but its records, and those may lie elsewhere.
#[test]
fn local_job_without_credentials_for_its_job_root_says_so() {
    let sandbox = Sandbox::with_script();
    sandbox.write(
        "home/.config/lamplighter/config.toml",
        "job_root = 's3://nothing-of-that-name/jobs'\n",
    );
    let ended = sandbox.end(
        sandbox
            .command(&["run", "--idle", "off", "--", "true"])
            .env("AWS_EC2_METADATA_DISABLED", "true"),
    );
    let said = format!(
        "error: the job root is s3://nothing-of-that-name/jobs (from the user config), and {FOUND_NONE}\n"
    );
    assert!(
        ended.code == 103 && ended.err.contains(&said) && ended.err.contains("--job-root FOLDER"),
        "{ended:?}"
    );
    assert!(!ended.err.contains("packed"), "before anything is packed: {ended:?}");
}

/// As `lamp run`, which starts nothing then: it would be launched unasked on the day when somebody
/// signs in.
#[test]
fn apply_without_credentials_makes_no_job_and_no_schedule() {
    let sandbox = Sandbox::with_script();
    for more in ["", "[schedule]\ncron = '0 22 * * *'\n"] {
        let job = "command = 'true'\nmachine = { cloud = 'aws', gpus = 'A10G:1' }\nlimits = { budget = '$5' }\n";
        sandbox.write("jobs/a.toml", format!("{job}{more}"));
        let apply = |more: &[&str]| {
            let words = [&["apply", "jobs", "--unproven"], more].concat();
            sandbox.end(sandbox.command(&words).env("AWS_EC2_METADATA_DISABLED", "true"))
        };
        let ended = apply(&[]);
        let why = "AWS could not be asked for the cost of `a.toml`";
        assert!(
            ended.code == 103 && ended.err.contains(FOUND_NONE) && ended.err.contains(why),
            "{ended:?}"
        );
        assert!(
            sandbox.lamp(&["status"]).out.is_empty() && sandbox.lamp(&["schedules"]).out.is_empty(),
            "nothing is made"
        );
        let dry = apply(&["--dry-run"]);
        assert!(
            dry.code == 103
                && dry.err.contains("it would be refused: no AWS credentials were found"),
            "{dry:?}"
        );
    }
}

/// The last place that is asked is the machine itself, which may be none of AWS's.
#[test]
fn machine_that_refuses_its_metadata_is_no_news() {
    let sandbox = Sandbox::with_script();
    let endpoint = refusing();
    for words in VERBS {
        let ended =
            sandbox.end(sandbox.command(words).env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint));
        is_kind(words[0], &ended);
    }
}

/// Answers 403 to everybody, as a metadata service that was switched off does; gone with the test's
/// process.
fn refusing() -> String {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it has one");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                let Ok(reader) = stream.try_clone() else { return };
                let _head = BufReader::new(reader)
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .count();
                let _sent = stream.write_all(
                    b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            });
        }
    });
    format!("http://{at}")
}

/// It takes connections and answers none: it is given up after two minutes, and somebody waits
/// before the terminal.
#[test]
fn job_root_that_is_silent_is_named_before_the_timeout() {
    let sandbox = Sandbox::with_script();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("it has one"));
    let began = [
        &["status"][..],
        &["logs", "digits"],
        &["logs", "-f", "digits"],
        &["outputs", "digits"],
        &["schedules"],
    ]
    .map(|words| {
        let mut command = sandbox.command(&[words, &["--job-root", "s3://bucket/jobs"]].concat());
        command
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x");
        (
            words,
            command
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("lamp was built for this test"),
        )
    });
    for (words, mut lamp) in began {
        let mut line = String::new();
        let read = BufReader::new(lamp.stderr.take().expect("it is piped")).read_line(&mut line);
        lamp.kill().and_then(|()| lamp.wait()).expect("it is ours");
        assert!(
            read.is_ok() && line.starts_with("the job root s3://bucket/jobs has not answered"),
            "{words:?}: {line}"
        );
    }
}

/// The SDK of AWS looks for no proxy by itself: without it, nothing could be ended behind one,
/// where the job root answers.
#[test]
fn aws_calls_go_through_the_proxy_of_the_environment() {
    let sandbox = Sandbox::new();
    for name in ["HTTPS_PROXY", "all_proxy"] {
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = proxy.local_addr().expect("it has one");
        let mut command = sandbox.command(&["sweep", "--dry-run"]);
        command
            .env("AWS_REGION", "eu-west-1")
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .env(name, format!("http://{address}"));
        let mut lamp = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("lamp was built for this test");
        let asked = soon(move || BufReader::new(proxy.accept()?.0).lines().next().transpose());
        lamp.kill().and_then(|()| lamp.wait()).expect("it is ours");
        let line = asked.expect("it asks").expect("a connection").unwrap_or_default();
        assert!(
            line.starts_with("CONNECT ") && line.contains(".amazonaws.com:443"),
            "{name}: {line}"
        );
    }
}

/// Nobody was asked, so that nobody is out of reach: a word is missing, as where `lamp iam` lacks
/// one.
#[test]
fn region_that_nobody_names_is_a_word_that_is_missing() {
    let sandbox = Sandbox::new();
    for words in [
        &["init", "aws", "--dry-run"][..],
        &["uninit", "aws", "--dry-run"],
        &["iam", "controller", "--bucket", "mine"],
    ] {
        let ended = sandbox.end(sandbox.command(words).env("AWS_EC2_METADATA_DISABLED", "true"));
        assert!(
            ended.code == 2
                && ended.err.contains("region")
                && ended.err.contains("hint: --region names"),
            "{words:?}: {ended:?}"
        );
    }
}

#[test]
fn sign_on_that_is_over_has_a_sentence_of_its_own() {
    let sandbox = Sandbox::with_script();
    sandbox.write(
        "home/.aws/config",
        "[default]\nregion = us-east-1\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = train\n\
         [sso-session work]\nsso_region = us-east-1\nsso_start_url = https://example.awsapps.com/start\n",
    );
    let plan = || sandbox.end(sandbox.command(VERBS[0]).env("AWS_EC2_METADATA_DISABLED", "true"));
    let never = plan();
    // The file's name is the SHA-1 of the session's.
    sandbox.write(
        "home/.aws/sso/cache/e274eeff768c6396088ec6eb091f4bf4d47ab1e0.json",
        r#"{"startUrl": "https://example.awsapps.com/start", "region": "us-east-1", "accessToken": "x", "expiresAt": "2020-01-01T00:00:00Z"}"#,
    );
    for ended in [never, plan()] {
        assert_eq!(ended.code, 103, "{ended:?}");
        assert!(
            ended.err.contains("error: the single sign-on of AWS is over, or was not begun\n"),
            "{ended:?}"
        );
        assert!(
            ended.err.contains("billed; the catalogue that ships with `lamp` has no plan")
                && ended.err.contains("\nhint: `aws sso login` signs in again"),
            "{ended:?}"
        );
    }
}

/// The SDK passes over a name that is no profile, and says that it found nothing; or finds
/// something else.
#[test]
fn profile_that_is_none_is_named_with_those_that_there_are() {
    let sandbox = Sandbox::with_script();
    sandbox.write(
        "home/.aws/config",
        "[profile account-1]\nregion = us-east-1\n[profile account-2]\nregion = us-east-1\n",
    );
    let command = |words: &[&str], profile: &str| {
        let mut command = sandbox.command(words);
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_PROFILE", profile);
        command
    };
    for words in VERBS.iter().filter(|words| words[0] != "status") {
        let ended = sandbox.end(&mut command(words, "acount-1"));
        let said = format!("{}{}", ended.out, ended.err);
        assert!(
            said.contains("the AWS profile `acount-1` is in none of AWS's files"),
            "{words:?}: {said}"
        );
        assert!(
            said.contains("did you mean account-1")
                && said.contains("`aws configure --profile acount-1` makes this one"),
            "{words:?}: {said}"
        );
    }
    let right = sandbox.end(&mut command(VERBS[2], "account-1"));
    assert!(!format!("{}{}", right.out, right.err).contains("AWS's files"), "{right:?}");
    // In whose account would that be? AWS's own command line refuses it too.
    let mut keyed =
        command(&["plan", "--cloud", "aws", "--max-runtime", "1h", "--", "true"], "elsewhere");
    let keyed = sandbox.end(
        keyed
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    );
    assert!(
        keyed.code == 103 && keyed.err.contains("`elsewhere` is in none of AWS's files"),
        "{keyed:?}"
    );
    let none = sandbox.end(&mut command(VERBS[2], ""));
    assert!(
        format!("{}{}", none.out, none.err).contains("AWS_PROFILE is set and names no profile"),
        "{none:?}"
    );
}
