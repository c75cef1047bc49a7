//! A bucket as the job root: the same job, with nothing of it in a folder.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::bench::{Bench, Finish as _, PATIENCE};
use crate::jobs::{SAVES, adds_up, assert_code, text};
use lamp_test_support::moto::moto;

/// Creates the bucket, which needs no more than a PUT.
fn bucket(endpoint: &str, name: &str) {
    let address = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("moto listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    write!(
        stream,
        "PUT /{name} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .expect("moto reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("moto answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn job_lives_in_a_bucket() {
    let Some(moto) = moto() else { return };
    bucket(&moto.endpoint, "lamps");
    let bench = Bench::new();
    bench.trainer(
        "STEPS = 12, SAVE_EVERY = 5",
        &format!("{SAVES}\n[limits]\nmax_runtime = '10m'\n"),
    );
    let lamp = |words: &[&str]| {
        let mut command = bench.lamp(words);
        command
            .env("LAMP_JOB_ROOT", "s3://lamps/jobs")
            .env("AWS_ENDPOINT_URL", &moto.endpoint)
            .env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.finish()
    };
    let run = lamp(&["run", "job.toml"]);
    assert_code(&run, 0);
    assert!(text(&run.stdout).contains("step 12"), "{}", text(&run.stdout));
    let receipt: serde_json::Value =
        serde_json::from_slice(&lamp(&["receipt", "-o", "json"]).stdout).expect("a receipt");
    assert!(receipt["checkpoints"].as_u64().unwrap() >= 1, "{receipt:#}");
    adds_up(&receipt);
    assert!(text(&lamp(&["logs"]).stdout).contains("step 12"));
    // What it kept is here, and comes again where it is not.
    let job = receipt["job"].as_str().unwrap();
    let model = format!("lamp-outputs/{job}/model.txt");
    assert_eq!(std::fs::read_to_string(bench.file(&model)).unwrap(), "trained 12 steps\n");
    let again = lamp(&["outputs", job]);
    assert_code(&again, 0);
    assert!(text(&again.stderr).contains("was here already"), "{}", text(&again.stderr));
    std::fs::remove_file(bench.file(&model)).unwrap();
    assert!(text(&lamp(&["outputs", job]).stdout).contains(&model));
    assert_eq!(std::fs::read_to_string(bench.file(&model)).unwrap(), "trained 12 steps\n");
    assert!(!bench.root().exists(), "nothing of it is in a folder");
    #[cfg(feature = "aws")]
    a_profile_is_enough(&bench, &moto.endpoint, job);
}

/// No key in the environment: a named profile, as the AWS tools read it, with a program that gives
/// the credentials.
#[cfg(feature = "aws")]
fn a_profile_is_enough(bench: &Bench, endpoint: &str, job: &str) {
    let credentials = r#"{"Version": 1, "AccessKeyId": "test", "SecretAccessKey": "test"}"#;
    let program = bench.write("credentials.sh", &format!("#!/bin/sh\necho '{credentials}'\n"));
    let profile = format!(
        "[profile research]\nregion = us-east-1\ncredential_process = /bin/sh {}\n",
        program.display()
    );
    let profile = bench.write("aws-config", &profile);
    let lamp = |name: &str| {
        let mut command = bench.lamp(&["receipt", job, "-o", "json"]);
        command
            .env("LAMP_JOB_ROOT", "s3://lamps/jobs")
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_CONFIG_FILE", &profile);
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_PROFILE", name).finish()
    };
    assert_code(&lamp("research"), 0);
    let nobody = lamp("nobody");
    assert_ne!(nobody.status.code(), Some(0), "{}", text(&nobody.stdout));
}

/// A secret that stands nowhere but where the user put it.
#[cfg(feature = "aws")]
const CANARY: &str = "canary/9wZk2QfVb7RtYx4LmNpE";

/// The machine and its agent, too, are whoever the profile says: the job runs to its end,
/// credentials that run out are asked for again, and they lie in no record, no log and no
/// environment of ours.
#[cfg(feature = "aws")]
#[test]
fn profile_is_enough_for_a_whole_job() {
    let Some(moto) = moto() else { return };
    bucket(&moto.endpoint, "lamps");
    let bench = Bench::new();
    bench.trainer(
        "STEPS = 12, SAVE_EVERY = 5",
        &format!("{SAVES}\n[limits]\nmax_runtime = '10m'\n"),
    );
    // Gone within a minute: whoever lives longer asks again.
    let program = format!(
        "#!/bin/sh\necho $PPID >> {asked}\nat=$(date -u -d '+1 minute' +%Y-%m-%dT%H:%M:%SZ)\n\
         echo '{{\"Version\": 1, \"AccessKeyId\": \"AKIDTEST\", \"SecretAccessKey\": \"{CANARY}\", \"Expiration\": \"'$at'\"}}'\n",
        asked = bench.file("asked").display()
    );
    let program = bench.write("aws/credentials.sh", &program);
    let profile = bench.write(
        "aws/config",
        &format!(
            "[profile research]\nregion = us-east-1\ncredential_process = /bin/sh {}\n",
            program.display()
        ),
    );
    bench.write(
        "config/lamplighter/config.toml",
        "job_root = 's3://lamps/jobs'\n[aws]\nprofile = 'research'\n",
    );
    let mut run = bench.lamp(&["run", "job.toml"]);
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_REGION",
        "LAMP_JOB_ROOT",
    ] {
        run.env_remove(name);
    }
    run.env("AWS_ENDPOINT_URL", &moto.endpoint)
        .env("AWS_CONFIG_FILE", &profile)
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let run = run.finish();
    assert_code(&run, 0);
    assert!(text(&run.stdout).contains("step 12"), "{}", text(&run.stdout));
    let asked = std::fs::read_to_string(bench.file("asked")).expect("it was asked");
    let mut who: Vec<&str> = asked.lines().collect();
    who.sort_unstable();
    who.dedup();
    assert!(who.len() >= 2, "lamp and the machine's agent each ask: {asked}");
    for path in bench.find("", "").iter().filter(|path| **path != program) {
        let held = std::fs::read(path).unwrap_or_default();
        assert!(
            !held.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()),
            "{} holds the secret",
            path.display()
        );
    }
}
