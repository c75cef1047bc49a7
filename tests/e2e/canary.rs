//! Canaries: values that must turn up nowhere. They stand where people keep secrets, the real
//! programs run with them, and then everything that was written, logged, tagged, sent or said is
//! looked through.

use std::path::{Path, PathBuf};

use crate::bench::{Bench, Finish as _, kill, wait_until};
use crate::jobs::{assert_code, text};
#[cfg(feature = "aws")]
use lamp_test_support::ec2::{FalseEc2, Options};
use lamp_test_support::small_agent::small_agent;

/// Drawn by hand; in no file of ours but this one.
const CANARY: &str = "zK4nary7Qw9";

/// What stands in a user's environment.
const KEPT_IN: &[&str] = &[
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HF_TOKEN",
    "WANDB_API_KEY",
    "GITHUB_TOKEN",
    "DATABASE_URL",
    "SSH_PASSPHRASE",
    "https_proxy_password",
];

fn value(name: &str) -> String {
    format!("{CANARY}{}", name.len())
}

/// Every file below a folder that holds the canary.
fn holding(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, about) = (entry.path(), entry.metadata().expect("it is there"));
        if about.is_dir() {
            found.extend(holding(&path));
        } else if about.is_file() && holds(&std::fs::read(&path).unwrap_or_default()) {
            found.push(path);
        }
    }
    found
}

/// As it is, or packed as everything of the job directory is that is packed.
fn holds(bytes: &[u8]) -> bool {
    let found =
        |bytes: &[u8]| bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    found(bytes) || zstd::decode_all(bytes).is_ok_and(|plain| found(&plain))
}

/// The canary in the environment, in the configuration, and what every verb says with it.
fn said(bench: &Bench, words: &[&str]) -> String {
    let mut command = bench.lamp(words);
    command
        .envs(KEPT_IN.iter().map(|name| (*name, value(name))))
        .env("LAMP_LOG", "trace")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let out = command.finish();
    let all = [&out.stdout[..], &out.stderr[..]].concat();
    assert!(!holds(&all), "{words:?}: {}", String::from_utf8_lossy(&all));
    text(&all)
}

#[test]
fn what_is_secret_in_the_users_environment_turns_up_nowhere() {
    let bench = Bench::new();
    bench.write(
        "config/lamplighter/config.toml",
        &format!("[notify]\ncommand = ['sh', '-c', 'exit 3', 'https://chat.example/{CANARY}']\n"),
    );
    // It fails, and is tried again: both machines have their story.
    bench.shell(
        "echo working; [ -e \"$LAMP_CACHE_DIR/once\" ] || { touch \"$LAMP_CACHE_DIR/once\"; exit 5; }",
        "[retries]\nmax = 1\n[watch]\nidle = 'off'\n",
    );
    let told = said(&bench, &["-vv", "run", "job.toml"]);
    assert!(told.contains("notify command"), "the notifier fails, and that is said: {told}");
    let job = bench.only_job().expect("it was submitted");
    for words in [&["status"][..], &["receipt"], &["explain"], &["logs"]] {
        for shape in [&[][..], &["-o", "json"]] {
            said(&bench, &[&["-vv"], words, &[job.as_str()], shape].concat());
        }
    }
    for words in [
        &["doctor"][..],
        &["check", "job.toml"],
        &["plan", "job.toml", "-o", "json"],
        &["schedules"],
        &["run", "--cloud", "aws", "job.toml"],
    ] {
        said(&bench, &[&["-vv"], words].concat());
    }
    for url in [
        "s3://AKIAX:CANARY@bucket/jobs",
        "https://me:CANARY@host/jobs",
        "s3://bucket/x?X-Amz-Signature=CANARY",
        "postgres://u:CANARY@h/d",
    ] {
        for verb in [
            &["run", "job.toml"][..],
            &["status"],
            &["sweep"],
            &["daemon", "--until-done"],
            &["doctor"],
        ] {
            let root = url.replace("CANARY", CANARY);
            said(&bench, &[&["-vv", "--job-root", &root], verb].concat());
        }
    }
    let kept: Vec<PathBuf> = holding(bench.path())
        .into_iter()
        .filter(|path| !path.ends_with("config/lamplighter/config.toml"))
        .collect();
    assert_eq!(kept, Vec::<PathBuf>::new());
    wait_until("what drove it is gone", || bench.processes().is_empty().then_some(()));
}

/// The agent alone, with its own records and its own log.
#[test]
fn what_is_secret_in_the_agents_environment_turns_up_nowhere() {
    let bench = Bench::new();
    let mut command = bench.agent();
    command.args(["run", "--", "sh", "-c", "echo working; exit 3"]).env("LAMP_LOG", "trace");
    let out = command.envs(KEPT_IN.iter().map(|name| (*name, value(name)))).finish();
    assert_code(&out, 3);
    assert!(!holds(&out.stdout) && !holds(&out.stderr), "{}", text(&out.stderr));
    assert_eq!(holding(bench.path()), Vec::<PathBuf>::new());
}

/// On EC2: the tags and the user data that the machine gets, and all that lies in the bucket.
#[cfg(feature = "aws")]
#[test]
fn what_is_secret_reaches_no_tag_no_user_data_and_no_object() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.profile("lamplighter-box");
    ec2.ask(
        "CreateSecurityGroup",
        &[("GroupName", "lamplighter"), ("GroupDescription", "no way in")],
    )
    .expect("a group");
    let (bench, bucket) = (Bench::new(), ec2.bucket("jobs"));
    let agent = small_agent(&bench.file("."));
    bench.write("w/job.sh", "true\n");
    bench.write(
        "job.toml",
        "name = 'far'\nworkdir = 'w'\ncommand = ['true']\n[machine]\ncloud = 'aws'\ngpus = 'A10G:1'\nmarket = 'spot'\n[limits]\nmax_runtime = '1h'\n",
    );
    let mut command = bench.lamp(&["-vv", "run", "job.toml"]);
    // Of temporary credentials the session token is a part of every presigned URL, which is how AWS
    // signs; without its secret key it opens nothing.
    let kept_in = KEPT_IN.iter().filter(|name| **name != "AWS_SESSION_TOKEN");
    command.envs(ec2.env()).envs(kept_in.map(|name| (*name, value(name)))).env("LAMP_LOG", "trace");
    command.env("LAMP_JOB_ROOT", format!("s3://{bucket}/root")).env("LAMP_AGENT_BINARY", agent);
    let log = std::fs::File::create(bench.file("said")).expect("writable");
    command.stdout(log.try_clone().expect("a handle can be copied")).stderr(log);
    let mut running = crate::bench::Running::start(&mut command);
    let machine = wait_until("a machine is launched", || match ec2.instances().first().cloned() {
        None if !crate::bench::alive(running.pid()) => {
            panic!("{}", std::fs::read_to_string(bench.file("said")).unwrap_or_default())
        }
        seen => seen,
    });
    wait_until("it is said", || {
        std::fs::read_to_string(bench.file("said"))
            .is_ok_and(|said| said.contains(&machine.id))
            .then_some(())
    });
    bench.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
    running.wait();
    assert!(
        !machine.tags.is_empty() && !holds(format!("{:?}", machine.tags).as_bytes()),
        "{:?}",
        machine.tags
    );
    let user_data = aws_smithy_types::base64::decode(&machine.user_data).expect("base64");
    assert!(user_data.len() > 500 && !holds(&user_data), "{}", String::from_utf8_lossy(&user_data));
    let (_, listing) = ec2.s3("GET", &format!("/{bucket}?list-type=2"), b"");
    let listing = text(&listing);
    let keys: Vec<&str> =
        listing.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()).collect();
    assert!(
        keys.iter().any(|key| key.ends_with("spec.json"))
            && keys.iter().any(|key| key.ends_with("plan.json")),
        "{keys:?}"
    );
    for key in keys {
        assert!(!holds(&ec2.s3("GET", &format!("/{bucket}/{key}"), b"").1), "{key}");
    }
    assert_eq!(holding(bench.path()), Vec::<PathBuf>::new());
}
