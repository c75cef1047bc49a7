//! What `lamp run`, `start` and `apply` say of launches at AWS that will never be: the same words
//! and the same codes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use crate::place::{end, wait_until};
use crate::sweep::prove::Account;
use lamp_test_support::ec2::{Fault, Options, State};

/// No job is made that nobody would launch.
#[test]
fn wrong_clock_is_refused_before_there_is_a_job() {
    let Some(account) = Account::new() else { return };
    account
        .place
        .0
        .write("jobs/night.toml", account.place.0.read("job.toml").replace("'w'", "'../w'"));
    account.ec2.clock_ahead(SignedDuration::from_mins(9));
    for words in [
        &["run", "--detach", "--unproven", "job.toml"][..],
        &["run", "job.toml"],
        &["apply", "jobs", "--unproven"],
    ] {
        let (code, _, err) = account.lamp(words);
        assert_eq!(code, 102, "{words:?}: {err}");
        let means = if words[0] == "apply" {
            "nothing was changed: what runs goes on"
        } else {
            "nothing was started or billed"
        };
        for said in [
            "behind that of s3://",
            "nothing is launched until one of them is right",
            means,
            "timedatectl",
        ] {
            assert!(err.contains(said), "{words:?}: {said} in {err}");
        }
    }
    assert!(account.ec2.instances().is_empty());
    assert_eq!(account.json(&["status"]).1["jobs"].as_array().map(Vec::len), Some(0));
    account.ec2.clock_ahead(SignedDuration::ZERO);
    let (code, _, err) = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn launch_that_is_refused_for_good_ends_apply_as_it_ends_run() {
    let Some(account) = Account::new() else { return };
    account
        .place
        .0
        .write("jobs/night.toml", account.place.0.read("job.toml").replace("'w'", "'../w'"));
    account
        .ec2
        .fault(Fault::code("RunInstances", "UnauthorizedOperation").saying("you may not").always());
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(code, 104, "{out}\n{err}");
    assert!(err.contains("you may not") && err.contains("lamp iam controller"), "{err}");
    let (code, applied) = account.json(&["apply", "jobs", "--unproven"]);
    let change = &applied["changes"][0];
    assert_eq!(
        (code, change["refused"].as_str().is_some_and(|why| why.contains("you may not"))),
        (104, true),
        "{applied:#}"
    );
    assert!(change["made"].as_str().is_some_and(|job| job.starts_with("alone-")), "{applied:#}");
    // Once: what has ended is not made again by the same words.
    assert_eq!(account.json(&["apply", "jobs", "--unproven"]).0, 0);
}

/// From its checkpoint: what refused the first job refuses the one that goes on, and nobody is left
/// to wait for it.
#[test]
fn launch_refused_for_good_ends_a_detached_start_as_failed() {
    let Some(account) = Account::new() else { return };
    let job = account.ended_with_a_checkpoint("job.toml");
    let (code, out, err) = account.lamp(&["start", &job, "--detach", "--unproven"]);
    assert_eq!(code, 104, "{out}\n{err}");
    assert!(err.contains("you may not") && err.contains(&format!("{job} goes on as ")), "{err}");
    let (_, status) = account.json(&["status"]);
    let states: Vec<_> =
        status["jobs"].as_array().expect("jobs").iter().map(|job| job["state"].clone()).collect();
    assert_eq!(states, ["failed", "failed"], "{status:#}");
    assert!(account.ec2.instances().is_empty());
}

/// It is bought anew: with what `lamp run` needs, and with nothing less.
#[test]
fn start_that_buys_a_machine_in_an_unready_account_is_refused() {
    let Some(account) = Account::new() else { return };
    let job = account.ended_with_a_checkpoint("job.toml");
    let config = "home/.config/lamplighter/config.toml";
    let said = account
        .place
        .0
        .read(config)
        .replace("instance_profile = \"lamplighter-box\"", "instance_profile = \"another\"");
    account.place.0.write(config, said);
    let refused = account.lamp(&["start", &job, "--detach", "--unproven"]);
    assert!(
        refused.0 == 102
            && refused
                .2
                .contains("the account is not ready for machines: no instance profile `another`"),
        "{refused:?}"
    );
    let (_, status) = account.json(&["status"]);
    assert_eq!(status["jobs"].as_array().map(Vec::len), Some(1), "{status:#}");
}

#[test]
fn dry_run_of_apply_says_what_each_new_job_would_cost_at_most() {
    let Some(account) = Account::new() else { return };
    let job = account.place.0.read("job.toml").replace("'w'", "'../w'");
    account.place.0.write("jobs/day.toml", job.replace("'1h'", "'2h'"));
    account.place.0.write("jobs/night.toml", &job);
    let (code, applied) = account.json(&["apply", "jobs", "--dry-run"]);
    assert_eq!(code, 111, "as it would be refused: {applied:#}");
    let most = |n: usize| {
        applied["changes"][n]["most_job_usd"].as_f64().unwrap_or_else(|| panic!("{applied:#}"))
    };
    let (_, plan) = account.json(&["plan", "job.toml"]);
    assert!(
        most(0) > most(1)
            && (most(1) - plan["most_job_usd"].as_f64().expect("a figure")).abs() < 1e-9,
        "{applied:#}\n{plan:#}"
    );
    assert_eq!(applied["changes"][0]["offer"]["instance_type"], "m5.large");
    let (_, out, err) = account.lamp(&["apply", "jobs", "--dry-run"]);
    assert!(out.contains("AT MOST") && out.contains(&format!("${:.2}", most(1))), "{out}");
    assert!(
        err.contains(
            "together, once each and with every machine that may follow, they cost at most $"
        ),
        "{err}"
    );
    // Nobody knows what a machine costs that is not sold: that is said, and nothing else is hidden
    // by it.
    account.place.0.write("jobs/odd.toml", job.replace("m5.large", "m5.nolarge"));
    let (code, applied) = account.json(&["apply", "jobs", "--dry-run", "--unproven"]);
    let odd = &applied["changes"][2];
    assert_eq!(
        (code, odd["most_usd"].is_null(), odd["no_plan"].is_string()),
        (0, true, true),
        "{applied:#}"
    );
    assert!(account.ec2.instances().is_empty());
}

/// Before its agent has said a word: what machine it is, that its end is asked for, and an end that
/// waits for nobody.
#[test]
fn job_that_boots_shows_its_machine_and_cancel_ends_it_at_once() {
    let Some(account) = Account::new() else { return };
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(code, 0, "{err}");
    let job = out.trim();
    let machine = account.machines(1).remove(0);
    let (_, status) = account.json(&["status", job]);
    let shown = &status["jobs"][0];
    let said = |key: &str| {
        shown["machine"][key].as_str().unwrap_or_else(|| panic!("{key} in {status:#}")).to_owned()
    };
    assert_eq!(
        (said("instance_type"), said("zone"), said("region")),
        (machine.kind.clone(), machine.zone.clone(), "us-east-1".to_owned())
    );
    assert!(
        shown["machine"]["usd_per_hour"].as_f64().is_some_and(|price| price > 0.0)
            && shown["end_asked"].is_null(),
        "{status:#}"
    );
    let table = account.lamp(&["status"]).1;
    assert!(
        table.contains(&format!("{} on-demand {} $", machine.kind, machine.zone))
            && table.contains(" UTC"),
        "{table}"
    );
    let explained = account.lamp(&["explain", job]).1;
    assert!(
        explained.contains("its agent has not said a word yet")
            && explained.contains(&machine.zone),
        "{explained}"
    );
    let one = account.lamp(&["status", job]).1;
    assert!(
        one.contains("its agent   has not said a word yet; without one by about ")
            && one.contains("`limits.boot`"),
        "{one}"
    );

    let (code, _, err) = account.lamp(&["cancel", "--wait", job]);
    assert_eq!(code, 0, "{err}");
    let (_, receipt) = account.json(&["receipt", job]);
    assert_eq!(receipt["outcome"], "cancelled", "{receipt:#}");
    // Its agent would have had half a minute: that nobody waited for it is in why it ended.
    let explained = account.lamp(&["explain", job]).1;
    assert!(
        explained.contains("somebody asked it to end the machine (Client.UserInitiatedShutdown"),
        "{explained}"
    );
}

/// All that may be bought has no capacity, and five times as dear there is some: nobody pays for
/// that who was not asked.
#[test]
fn job_without_capacity_at_its_price_waits_for_fallback_cost() {
    let Some(account) = Account::new() else { return };
    let job = account
        .place
        .0
        .read("job.toml")
        .replace("gpus = 'none'\ninstance_types = ['m5.large']", "gpus = 'A10G:1'");
    account.place.0.write("job.toml", job);
    for kind in ["g5.xlarge", "g5.2xlarge"] {
        account.ec2.fault(
            Fault::code("RunInstances", "InsufficientInstanceCapacity")
                .when("InstanceType", kind)
                .always(),
        );
    }
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(code, 0, "{err}");
    let job = out.trim();
    let said = wait_until("it waits for a word", || {
        let (_, status) = account.json(&["status", job]);
        Some(status["jobs"][0].clone()).filter(|job| {
            job["waiting"].as_str().is_some_and(|why| why.contains("--fallback-cost"))
        })
    });
    let why = said["waiting"].as_str().expect("it waits");
    assert!(why.starts_with("a machine within its `fallback_cost`: no capacity in "), "{why}");
    assert!(
        why.contains("; g5.12xlarge in ")
            && why.ends_with(&format!("`lamp extend {job} --fallback-cost 5.6` allows it")),
        "{why}"
    );
    // An hour, five minutes for clocks and two for the power-off, at 1.212 and some cents for disk
    // and address.
    assert!((1.36..1.38).contains(&said["most_usd"].as_f64().expect("a figure")), "{said:#}");
    let (_, shown, _) = account.lamp(&["status", job]);
    assert!(shown.contains("nothing yet, at most $1.38"), "{shown}");
    assert!(account.ec2.instances().is_empty(), "nothing was bought");
    let (code, _, err) = account.lamp(&["extend", job, "--fallback-cost", "5.6"]);
    assert!(
        code == 0 && err.contains("is up to 5.6 times as dear instead of up to 2 times as dear"),
        "{err}"
    );
    let refused = account.lamp(&["extend", job, "--fallback-cost", "1.5"]);
    assert!(
        refused.0 == 102 && refused.2.contains("has no narrower `fallback_cost`"),
        "{refused:?}"
    );
}

/// EC2 takes a launch, and then finds that it has no disk for it: nothing of the work has failed,
/// and whoever waits reads why.
#[test]
fn machine_that_ends_while_pending_fails_the_job_with_its_cause() {
    let Some(account) =
        Account::with(Options { pending: Duration::from_secs(3600), ..Options::default() })
    else {
        return;
    };
    let run = account
        .command(&["run", "job.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    let machine = account.machines(1).remove(0);
    assert_eq!(machine.state, State::Pending);
    account.ec2.end(&machine.id, "Client.VolumeLimitExceeded");
    let ended = Instant::now();
    let (code, _, err) = end(run);
    // A look of fifteen seconds, and what a busy computer adds.
    assert!(ended.elapsed() < Duration::from_secs(60), "it took {:?}", ended.elapsed());
    assert_eq!(code, 104, "{err}");
    assert!(
        err.contains("the account's limit for disks is reached (Client.VolumeLimitExceeded"),
        "{err}"
    );
    let (_, status) = account.json(&["status"]);
    let job = status["jobs"][0]["job"].as_str().expect("a job");
    let (_, receipt) = account.json(&["receipt", job]);
    let attempts = receipt["attempts"].as_array().expect("attempts");
    assert_eq!(
        (attempts.len(), &attempts[0]["ended_because"]),
        (1, &"launch_failed".into()),
        "{receipt:#}"
    );
    // EC2 bills nothing of it, and does not say so: a minute at the most, and called that.
    assert!(
        attempts[0]["billed_estimated"] == true
            && receipt["total_usd"].as_f64().is_some_and(|usd| usd < 0.01),
        "{receipt:#}"
    );
    assert!(receipt.to_string().contains("Client.VolumeLimitExceeded"), "{receipt:#}");
    let explained = account.lamp(&["explain", job]).1;
    assert!(explained.contains("the account's limit for disks is reached"), "{explained}");
    assert_eq!(account.ec2.instances().len(), 1, "no second one");
}
