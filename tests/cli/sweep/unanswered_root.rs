//! A job root that does what it is asked and whose answers nobody can read: what a verb says then,
//! and who drives what was made.

use std::process::Command;

use crate::place::wait_until;
use crate::sandbox::Sandbox;
use crate::sweep::prove::Account;
use lamp_test_support::ec2::Fault;
use lamp_test_support::moto::moto_with;
use lamp_test_support::skipped;

/// It is done, and what comes back is no HTTP. An S3 that resets the connection is met in the same
/// way: the client does not ask again by itself, as it would where the connection just ends.
pub(crate) fn torn(call: &str) -> Fault {
    Fault::code(call, "Torn").status(0).after()
}

const MAKES_THE_JOB: &str = "PUT /*/spec.json";

/// No plan is made beside a spec that is lost: whoever comes after launches at once, and does not
/// wait until the plan of another is a minute old.
pub(crate) fn lose_the_spec(account: &Account, tries: u32) {
    account.ec2.fault(torn(MAKES_THE_JOB).times(tries));
    account.ec2.fault(Fault::code("PUT /*/plan.json", "AccessDenied"));
}

/// As often as it is asked for before it is given up.
pub(crate) const ALL_TRIES: u32 = 5;

#[test]
fn run_without_an_answer_names_the_job_and_how_to_cancel_it() {
    let Some(account) = Account::new() else { return };
    lose_the_spec(&account, ALL_TRIES);
    let (code, _, err) = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert!(
        code == 103 && err.contains("error: nobody has answered whether job `alone-"),
        "{code}: {err}"
    );
    for said in [
        "whether job `alone-",
        "was made is not known: if it was, it may be launched, and bill",
        "hint: `lamp status alone-",
        "`lamp cancel alone-",
    ] {
        assert!(err.contains(said), "{said}: {err}");
    }
    assert!(!err.contains("or billed") && !err.contains("no job was made"), "{err}");
    let (_, listed) = account.json(&["status"]);
    let job = listed["jobs"][0]["job"].as_str().expect("it is there").to_owned();
    assert!(err.contains(&format!("`lamp cancel {job}` ends it")), "{err}");

    account.ec2.fault(torn("PUT /*/requests/*").times(ALL_TRIES));
    let (code, _, err) = account.lamp(&["cancel", &job]);
    assert!(
        code == 103
            && err.contains("whether it was written is not known: if it was, it is carried out")
            && !err.contains("nothing was"),
        "{err}"
    );
    assert!(err.contains(&format!("`lamp status {job}` shows how it stands")), "{err}");
    let (_, explained) = account.json(&["explain", &job]);
    assert_eq!(explained["requests"].as_array().map(Vec::len), Some(1), "{explained:#}");
    let (code, _, err) = account.lamp(&["cancel", &job]);
    assert!(code == 0 && err.contains("once is enough"), "{code}: {err}");
    assert!(account.ec2.instances().is_empty());
}

#[test]
fn answer_lost_once_is_not_shown() {
    let Some(account) = Account::new() else { return };
    account.ec2.fault(torn(MAKES_THE_JOB));
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(account.machines(1)[0].tags["lamplighter:job"], out.trim(), "{err}");
    account.ec2.fault(torn("PUT /*/requests/*"));
    let (code, _, err) = account.lamp(&["extend", out.trim(), "2h"]);
    assert!(code == 0 && err.contains("3h instead of 1h"), "{code}: {err}");
}

/// Nobody else has made it: who finds it there has it driven.
#[test]
fn job_that_apply_finds_there_is_driven_to_its_end() {
    let Some(account) = Account::new() else { return };
    account
        .place
        .0
        .write("jobs/night.toml", account.place.0.read("job.toml").replace("'w'", "'../w'"));
    lose_the_spec(&account, ALL_TRIES);
    let (code, _, err) = account.lamp(&["apply", "jobs", "--unproven"]);
    let is_told = err.contains("is there already; a background process drives it")
        && !err.contains("another `lamp apply`");
    assert!(code == 0 && is_told, "{code}: {err}");
    let job = account.machines(1)[0].tags["lamplighter:job"].clone();
    assert_eq!(account.json(&["status", &job]).1["jobs"][0]["driven_here"], true);
    let (code, _, err) = account.lamp(&["cancel", &job]);
    assert_eq!(code, 0, "{err}");
    wait_until("it has its receipt", || (account.lamp(&["receipt", &job]).0 == 0).then_some(()));
    assert!(account.ec2.instances().iter().all(|seen| seen.state.is_gone()));
}

/// A certificate for 127.0.0.1, signed by an authority of its own.
const CERTIFICATES: &str = "
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 3 -subj '/CN=trial'
    openssl req -newkey rsa:2048 -nodes -keyout srv.key -out srv.csr -subj '/CN=localhost'
    printf 'subjectAltName=IP:127.0.0.1' > ext
    openssl x509 -req -in srv.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3 -out srv.pem -extfile ext
";

/// taws#66, s3-connector-for-pytorch#409: AWS's own tools read `AWS_CA_BUNDLE`.
#[test]
fn ca_bundle_of_aws_is_trusted_by_the_store() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skipped("openssl", "openssl is needed");
    }
    let sandbox = Sandbox::new();
    let mut shell = Command::new("sh");
    let made = shell.args(["-ec", CERTIFICATES]).current_dir(sandbox.path()).output();
    let made = made.expect("a shell");
    assert!(made.status.success(), "{made:?}");
    let file = |name: &str| sandbox.path().join(name).display().to_string();
    let Some(moto) = moto_with(&["-c", &file("srv.pem"), "-k", &file("srv.key")]) else { return };
    let status = |bundle: Option<String>| {
        let mut command = sandbox.command(&["--job-root", "s3://trial/x", "status"]);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT_URL", &moto.endpoint);
        sandbox.end(command.envs(bundle.map(|path| ("AWS_CA_BUNDLE", path))))
    };
    let refused = status(None);
    assert!(refused.code == 103 && refused.err.contains("UnknownIssuer"), "{refused:?}");
    let answered = status(Some(file("ca.pem")));
    assert!(answered.err.contains("there is no bucket `trial`"), "{answered:?}");
}
