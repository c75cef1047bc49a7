//! What a new user stumbled over because nobody said it: what runs on, what is kept and until when, and that nothing was done.

use super::place::{Place, end, signal, wait_until};
use super::sandbox::Sandbox;

/// Other jobs of the account may bill.
#[test]
fn no_fault_of_apply_says_that_nothing_bills() {
    let place = Place::new("");
    place.0.write("jobs/a.toml", "comand = 'x'\n");
    place.0.write("jobs/b.toml", "name = ['x'\n");
    for format in ["text", "json"] {
        let ended = place.0.lamp(&["apply", "jobs", "-o", format]);
        assert!(ended.code == 100 && !ended.err.contains("nothing bills"), "{ended:?}");
        assert_eq!(ended.err.matches("nothing was changed: what runs goes on").count(), 2, "{ended:?}");
    }
}

#[test]
fn all_that_is_wrong_with_a_schedule_is_told_at_once() {
    let sandbox = Sandbox::with_script();
    sandbox.write("a.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = ['26:00', '06:00']\n");
    sandbox.write("b.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = '22-06'\n");
    for file in ["a.toml", "b.toml"] {
        let ended = sandbox.lamp(&["check", file]);
        for key in ["`schedule.timezone`", "`schedule.cron`", "`schedule.only_between`"] {
            assert_eq!(ended.out.matches(key).count(), 1, "{key}: {ended:?}");
        }
    }
}

#[test]
fn a_name_that_is_no_part_of_an_id_is_told_and_an_empty_one_is_refused() {
    let sandbox = Sandbox::with_script();
    let check = |name: &str| sandbox.lamp(&["check", "--name", name, "--", "sh", "train.py"]);
    let odd = check("Bad Name/../x");
    assert!(odd.code == 0 && odd.out.contains("warning: `name`: the id of each of its jobs begins with `bad-name----x-`"), "{odd:?}");
    for plain in ["digits", "My Job", "train_v2.1"] {
        assert!(!check(plain).out.contains("`name`"), "{plain}");
    }
    for empty in ["", " "] {
        let refused = check(empty);
        assert!(refused.code == 100 && refused.out.contains("error: `name`: is empty"), "{refused:?}");
    }
    // What is taken all the same is not told to whoever wants to hear of nothing but faults.
    let quiet = sandbox.lamp(&["run", "-q", "--name", "Bad Name/../x", "--", "true"]);
    assert_eq!((quiet.code, quiet.err.contains("warning")), (0, false), "{quiet:?}");
}

#[test]
fn a_daemon_takes_a_name_and_says_what_it_does() {
    let place = Place::new("exit 0");
    place.0.write("jobs/soon.toml", "command = 'true'\nwatch.idle = 'off'\n[schedule]\n");
    assert_eq!(place.0.lamp(&["apply", "jobs"]).code, 0);
    let daemon = place.start(&["daemon"]);
    let ended = || {
        let (_, listing) = place.0.json(&["status", "-o", "json"]);
        listing["jobs"].as_array().unwrap().iter().any(|job| job["state"] == "succeeded").then_some(())
    };
    wait_until("it has run", ended);
    signal(daemon.id(), "INT");
    let (_, _, err) = end(daemon);
    for told in [" INFO ", "run: ", "launched", "settled", "outcome=succeeded"] {
        assert!(err.contains(told), "{told}: {err}");
    }
    assert_eq!(place.0.lamp(&["run", "-d", "--name", "My Job", "--", "sh", "job.sh"]).code, 0);
    let (code, _, err) = end(place.start(&["daemon", "--job", "My Job", "--until-done"]));
    assert_eq!(code, 0, "{err}");
    place.until("My Job", "succeeded");
    place.nothing_is_left();
}

/// Nobody answers a plan here, and somebody leaves meanwhile.
#[test]
#[cfg(feature = "aws")]
fn ctrl_c_before_a_job_is_made_says_that_nothing_was_started() {
    let sandbox = Sandbox::with_script();
    sandbox.write("jobs/a.toml", "command = 'true'\nmachine.cloud = 'aws'\n");
    for (words, said) in [
        (&["run", "--cloud", "aws", "--", "true"][..], "left before the job was made\nnothing was started"),
        (&["apply", "jobs"], "left before anything was done\nnothing was changed"),
    ] {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", silent.local_addr().expect("it has one"));
        let mut command = sandbox.command(words);
        command.env("AWS_ENDPOINT_URL", &endpoint).env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", "x").env("AWS_SECRET_ACCESS_KEY", "x");
        let lamp = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("lamp was built for this test");
        let (_held, _) = silent.accept().expect("it asks");
        signal(lamp.id(), "INT");
        let (code, _, err) = end(lamp);
        assert!(code == 130 && err.contains(said), "{words:?}: {code}: {err}");
    }
}
