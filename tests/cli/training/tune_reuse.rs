//! `lamp tune` with `reuse`: the next trial begins on the stopped machine of an ended one.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::aws_machines::Machines;
use crate::place::{Place, end, wait_until};
use crate::sweep::prove::Account;
use lamp_test_support::ec2::{Fault, State};

/// It fails on what its setup did not make, or what an earlier trial left.
const SCRIPT: &str = r#"x=${1#--x=}
[ "$(cat made-by-setup)" = whole ] || exit 7
[ ! -e left ] && [ ! -e notes/left ] && [ "$(cat code.txt)" = code ] || exit 8
mkdir -p notes; touch left notes/left; echo changed > code.txt
echo "{\"step\": 1, \"score\": $(( (x - 4) * (x - 4) ))}" >> "$LAMP_PROGRESS"
touch HERE/works-$LAMP_TRIAL
until [ -e HERE/go ] || [ -e HERE/go-$LAMP_TRIAL ]; do sleep 0.1; done
"#;

/// `most`: the values of x are 3 to that.
fn write_job(place: &Place, machine: &str, tune: &str, most: u32) {
    let here = place.0.path().display().to_string();
    place.0.write("w/job.sh", SCRIPT.replace("HERE", &here));
    place.0.write("w/code.txt", "code\n");
    place.0.write(
        "job.toml",
        format!(
            "name = 'walks'\nworkdir = 'w'\ncommand = ['sh', 'job.sh']\n\
             setup = 'echo $LAMP_TRIAL >> {here}/setups; echo whole > made-by-setup'\n\
             {machine}\n[limits]\nmax_runtime = '1h'\n\
             [tune]\nmetric = 'score'\nreuse = true\n{tune}\n\
             [tune.params.x]\ntype = 'int'\nmin = 3\nmax = {most}\n"
        ),
    );
}

fn account(tune: &str, most: u32) -> Option<Account> {
    let account = Account::new()?;
    let machine = "[machine]\ncloud = 'aws'\nregions = ['us-east-1']\ngpus = 'none'\n\
                   instance_types = ['m5.large']\nmarket = 'on-demand'";
    write_job(&account.place, machine, tune, most);
    Some(account)
}

fn start(account: &Account, words: &[&str]) -> Child {
    let mut command = account.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lamp was built")
}

fn status(account: &Account) -> Value {
    account.json(&["tune", "status", "walks"]).1
}

fn jobs(view: &Value) -> Vec<String> {
    let trials = view["trials"].as_array().expect("trials");
    trials.iter().map(|trial| trial["job"].as_str().expect("a job").to_owned()).collect()
}

fn setups(place: &Place) -> usize {
    place.0.read("setups").lines().count()
}

/// The receipts name all machines of EC2, and each machine has the seconds of its ledger.
fn bills_are_whole(account: &Account, view: &Value) {
    let receipts: Vec<Value> =
        jobs(view).iter().map(|job| account.json(&["receipt", job]).1).collect();
    let attempts: Vec<&Value> =
        receipts.iter().filter_map(|receipt| receipt["attempts"].as_array()).flatten().collect();
    for seen in account.ec2.instances() {
        assert_eq!(seen.state, State::Terminated, "{seen:?}");
        let of = attempts.iter().filter(|attempt| attempt["instance"] == seen.id.as_str());
        let billed: f64 = of.clone().filter_map(|attempt| attempt["billed_seconds"].as_f64()).sum();
        let ledger = account.ec2.ledger(&seen.id).billed_seconds() as f64;
        // Two seconds for each start: EC2 dates to the second.
        let slack = 2.0 * of.count() as f64;
        assert!((billed - ledger).abs() <= slack, "{billed} on receipts, {ledger} on the ledger");
    }
    let sum: f64 = receipts.iter().filter_map(|receipt| receipt["total_usd"].as_f64()).sum();
    let told = view["usd"].as_f64().expect("money");
    assert!((told - sum).abs() < 1e-6 && sum > 0.0, "{told} told, {sum} on the receipts");
}

#[test]
fn local_trials_share_a_machine_and_run_its_setup_once() {
    let place = Place::new("");
    write_job(&place, "", "", 5);
    place.0.write("go", "");
    let (code, out, err) = end(place.start(&["tune", "job.toml", "-o", "json"]));
    let view: Value = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!((code, &view["counts"]["complete"]), (0, &json!(3)), "{err}");
    assert_eq!(view["best"]["params"]["x"], 4);
    assert_eq!(setups(&place), 1);
    let machines: BTreeSet<String> = jobs(&view)
        .iter()
        .map(|job| place.receipt(job)["attempts"][0]["instance"].as_str().expect("one").to_owned())
        .collect();
    assert_eq!(machines.len(), 1, "{machines:?}");
    let list = place.0.lamp(&["status"]);
    assert!(!list.err.contains("keeps"), "{list:?}");
    place.nothing_is_left();
}

#[test]
fn trials_on_ec2_share_a_machine_and_split_its_bill() {
    let Some(account) = account("budget = '$60'", 6) else { return };
    account.place.0.write("go", "");
    Machines::beside(&account, |_| {
        let (code, _, err) = end(start(&account, &["tune", "job.toml"]));
        assert_eq!(code, 0, "{err}");
        let view = status(&account);
        assert_eq!(view["counts"]["complete"], 4, "{view:#}");
        assert_eq!((account.ec2.instances().len(), setups(&account.place)), (1, 1), "{err}");
        assert_eq!(account.ec2.calls_of("RunInstances").len(), 1);
        bills_are_whole(&account, &view);
        let list = account.lamp(&["status"]);
        assert!(!list.2.contains("keeps"), "{list:?}");
    });
}

/// EC2 has no room for the stopped machine. It stays stopped until the tuning gives it up.
#[test]
fn trial_whose_machine_cannot_start_runs_on_a_new_one() {
    let Some(account) = account("", 4) else { return };
    account.place.0.write("go", "");
    account.ec2.fault(Fault::code("StartInstances", "InsufficientInstanceCapacity").always());
    Machines::beside(&account, |_| {
        let (code, _, err) = end(start(&account, &["tune", "job.toml"]));
        assert_eq!(code, 0, "{err}");
        let view = status(&account);
        assert_eq!(view["counts"]["complete"], 2, "{view:#}");
        assert_eq!((account.ec2.instances().len(), setups(&account.place)), (2, 2), "{err}");
        bills_are_whole(&account, &view);
    });
}

/// Trial 2 ends while trial 3, the last one, runs on the machine of trial 1.
#[test]
fn machine_that_no_trial_begins_on_is_given_up_at_once() {
    let Some(account) = account("parallel = 2", 5) else { return };
    Machines::beside(&account, |_| {
        let tuning = start(&account, &["tune", "job.toml"]);
        let works = |trial: u32| {
            let file = account.place.0.path().join(format!("works-{trial}"));
            wait_until("the trial works", || file.exists().then_some(()));
        };
        works(1);
        works(2);
        account.place.0.write("go-1", "");
        works(3);
        account.place.0.write("go-2", "");
        wait_until("its machine is gone", || {
            let all = account.ec2.instances();
            let gone = all.iter().filter(|seen| seen.state == State::Terminated).count();
            (gone == 1).then_some(())
        });
        assert_eq!(status(&account)["counts"]["running"], 1);
        account.place.0.write("go", "");
        let (code, _, err) = end(tuning);
        assert_eq!(code, 0, "{err}");
        assert_eq!(account.ec2.instances().len(), 2, "trial 3 began on one of them");
        bills_are_whole(&account, &status(&account));
    });
}

/// The first driver is killed while the machine stands between two trials, the second one before
/// the machine is given up.
#[test]
fn killed_drivers_leave_the_machine_to_the_next_driver() {
    let Some(account) = account("", 4) else { return };
    Machines::beside(&account, |_| {
        let mut first = start(&account, &["tune", "job.toml"]);
        let is = |state: State| {
            wait_until("the machine is in this state", || {
                account.ec2.instances().first().filter(|seen| seen.state == state).map(drop)
            });
        };
        account.ec2.fault(Fault::code("StartInstances", "Unavailable").always());
        account.place.0.write("go", "");
        wait_until("the second trial is decided", || {
            let asked = account.lamp(&["tune", "status", "walks", "-o", "json"]);
            let view: Value = serde_json::from_str(&asked.1).ok()?;
            (view["trials"].as_array().map(Vec::len) == Some(2)).then_some(())
        });
        is(State::Stopped);
        first.kill().expect("it runs");
        first.wait().expect("it runs");
        let before: BTreeSet<String> = jobs(&status(&account)).into_iter().collect();
        account.ec2.mend();
        account.ec2.fault(Fault::code("TerminateInstances", "Unavailable").always());
        let mut second = start(&account, &["tune", "drive", "walks"]);
        wait_until("both trials have ended", || {
            (status(&account)["counts"]["complete"] == 2).then_some(())
        });
        is(State::Stopped);
        std::thread::sleep(Duration::from_secs(1));
        second.kill().expect("it runs");
        second.wait().expect("it runs");
        account.ec2.mend();
        let (code, _, err) = end(start(&account, &["tune", "drive", "walks"]));
        assert_eq!(code, 0, "{err}");
        is(State::Terminated);
        let view = status(&account);
        assert_eq!(jobs(&view).into_iter().collect::<BTreeSet<String>>(), before);
        assert_eq!((account.ec2.instances().len(), setups(&account.place)), (1, 1), "{err}");
        bills_are_whole(&account, &view);
    });
}
