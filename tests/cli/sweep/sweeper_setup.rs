//! `lamp init aws --sweeper`, its look by `lamp doctor`, and `lamp uninit aws`, against a false
//! AWS.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::account::setup::User;
use crate::sandbox::Ended;
use lamp_test_support::ec2::Fault;

const NAME: &str = "lamplighter-sweeper-alice";

/// A file that looks like a program for Lambda's machines: 64 bits, little-endian, x86-64. Nobody
/// runs it here.
fn program(user: &User, last: u8) {
    let mut program = vec![0; 64];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (program[18], program[63]) = (62, last);
    program.extend(b"[the program lamp-agent of Lamplighter]");
    user.sandbox.write("lamp-small", program);
}

fn lamp_as(user: &User, owner: &str, args: &[&str]) -> Ended {
    let mut command = user.sandbox.command(args);
    let small = user.sandbox.path().join("lamp-small");
    // The agent too: the tests' own has hundreds of megabytes, whose sum a doctor would take each
    // time.
    command
        .envs(user.ec2.env())
        .env("LAMP_SWEEPER_BINARY", &small)
        .env("LAMP_AGENT_BINARY", &small)
        .env("LAMP_OWNER", owner);
    user.sandbox.end(&mut command)
}

fn lamp(user: &User, args: &[&str]) -> Ended {
    lamp_as(user, "alice", args)
}

fn json(user: &User, args: &[&str]) -> Value {
    let ended = lamp(user, &[args, &["-o", "json"]].concat());
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// How many steps each line has.
fn steps(document: &Value) -> Vec<usize> {
    document["lines"]
        .as_array()
        .expect("lines")
        .iter()
        .map(|line| line["steps"].as_array().map_or(0, Vec::len))
        .collect()
}

fn sweeper_check(user: &User) -> (String, String) {
    let found = json(user, &["doctor"]);
    let check = found["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .find(|check| check["check"] == "sweeper")
        .expect("it is looked at");
    let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
    (text("level"), text("said"))
}

#[test]
fn sweeper_is_made_once_updated_with_lamp_and_removed_whole() {
    let Some(user) = User::new() else { return };
    program(&user, 0);
    let dry = lamp(&user, &["init", "aws", "--sweeper", "--dry-run"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    for words in [
        &format!("function {NAME}"),
        &format!("schedule {NAME}"),
        &format!("role {NAME}-schedule"),
        "create, every five minutes",
    ] {
        assert!(dry.out.contains(words), "{words}: {}", dry.out);
    }
    assert_eq!(user.changes(), Vec::<String>::new(), "--dry-run only looks");

    let made = lamp(&user, &["init", "aws", "--sweeper", "--yes"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("lamp-small") && made.err.contains("cents a month"), "{made:?}");
    let changes = user.changes();
    for action in [
        "POST /2015-03-31/functions",
        &format!("POST /schedules/{NAME}"),
        "CreateLogGroup",
        "PutRetentionPolicy",
    ] {
        assert_eq!(
            changes.iter().filter(|change| *change == action).count(),
            1,
            "{action} in {changes:?}"
        );
    }
    assert_eq!(changes.iter().filter(|change| *change == "CreateRole").count(), 3, "{changes:?}");

    let again = json(&user, &["init", "aws", "--sweeper", "--yes"]);
    assert_eq!(
        (steps(&again), user.changes()),
        (vec![0; 11], vec![]),
        "a second time changes nothing: {again}"
    );
    // Whoever does not ask for it does not lose it.
    assert_eq!(steps(&json(&user, &["init", "aws", "--yes"])), [0; 6]);

    // A new version of the program.
    program(&user, 1);
    let updated = lamp(&user, &["init", "aws", "--sweeper", "--yes"]);
    assert!(
        updated.code == 0 && updated.out.contains("there, with another program"),
        "{updated:?}"
    );
    assert_eq!(user.changes(), [format!("PUT /2015-03-31/functions/{NAME}/code")]);
    assert_eq!(steps(&json(&user, &["init", "aws", "--sweeper", "--yes"])), [0; 11]);

    // Somebody else of this account has one of their own, and takes none away.
    let other = lamp_as(&user, "bob", &["uninit", "aws", "--yes"]);
    assert!(
        other.code == 0 && other.err.contains("there is nothing of ours to take away"),
        "{other:?}"
    );
    let visit = format!("/{}/sweeper/{NAME}/visit.json", user.bucket());
    assert_eq!(user.ec2.s3("PUT", &visit, b"{}").0, 200);
    let gone = lamp(&user, &["uninit", "aws", "--yes"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    let after = json(&user, &["init", "aws", "--sweeper", "--dry-run"]);
    assert_eq!(
        steps(&after),
        [6, 2, 2, 1, 0, 0, 2, 2, 1, 1, 1],
        "all is gone, its records too: {after}"
    );
}

#[test]
fn doctor_says_whether_it_comes() {
    let Some(user) = User::new() else { return };
    program(&user, 0);
    assert_eq!(lamp(&user, &["init", "aws", "--yes"]).code, 0);
    let (level, said) = sweeper_check(&user);
    assert!(level == "skipped" && said.contains("there is none"), "{level}: {said}");
    assert_eq!(lamp(&user, &["init", "aws", "--sweeper", "--yes"]).code, 0);
    let (level, said) = sweeper_check(&user);
    assert!(level == "warning" && said.contains("has not come yet"), "{level}: {said}");
    let put = |regions: u32| {
        let visit = json!({
            "format": 1, "at": Timestamp::now(), "version": "0", "owner": "alice", "regions": regions, "machines": 2,
            "suspects": [], "ended": [], "trouble": [], "unknown": [{ "what": "eu-north-1", "why": "nobody answered" }],
        });
        let key = format!("/{}/sweeper/{NAME}/visit.json", user.bucket());
        assert_eq!(user.ec2.s3("PUT", &key, visit.to_string().as_bytes()).0, 200);
    };
    put(17);
    let (level, said) = sweeper_check(&user);
    assert!(
        level == "warning" && said.contains(" min ago: eu-north-1: nobody answered"),
        "{level}: {said}"
    );
    put(0);
    let (level, said) = sweeper_check(&user);
    assert!(
        level == "failure" && said.contains("nobody answered"),
        "a sweeper that sees no region sweeps nothing: {level}: {said}"
    );
    user.ec2.fault(
        Fault::code("GET /2015-03-31/functions/*", "AccessDeniedException")
            .saying("you may not look")
            .always(),
    );
    let (level, said) = sweeper_check(&user);
    assert!(level == "warning" && said.contains("you may not look"), "{level}: {said}");
}

#[test]
fn without_a_program_for_its_machines_nothing_is_made() {
    let Some(user) = User::new() else { return };
    user.sandbox.write("lamp-small", "#!/bin/sh\n");
    let ended = lamp(&user, &["init", "aws", "--sweeper", "--yes"]);
    assert_eq!(ended.code, 102, "{ended:?}");
    assert!(
        ended.err.contains("is no program for Linux machines")
            && ended.err.contains("nothing was changed"),
        "{ended:?}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());
    // And whoever asks for none needs none.
    assert_eq!(lamp(&user, &["init", "aws", "--yes"]).code, 0);
}

/// A role that was just made is not believed at once.
#[test]
fn role_that_is_not_believed_yet_is_waited_for() {
    let Some(user) = User::new() else { return };
    program(&user, 0);
    let no = "The role defined for the function cannot be assumed by Lambda.";
    user.ec2.fault(
        Fault::code("POST /2015-03-31/functions", "InvalidParameterValueException")
            .status(400)
            .saying(no)
            .times(1),
    );
    let made = lamp(&user, &["init", "aws", "--sweeper", "--yes"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(steps(&json(&user, &["init", "aws", "--sweeper", "--yes"])), [0; 11]);
}
