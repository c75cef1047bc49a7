//! `lamp tune` on machines of a false AWS: trials as jobs with real agents, and one bill.

use std::process::{Child, Stdio};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::aws_machines::Machines;
use crate::place::{end, wait_until};
use crate::sweep::prove::Account;
use lamp_test_support::ec2::{Fault, Seen, State};

/// Its lowest value is 0, at x = 4. It saves and goes on, until the test lets it end.
const SCRIPT: &str = r#"x=${1#--x=}
n=0; [ ! -e "$LAMP_CHECKPOINT_DIR/state" ] || n=$(cat "$LAMP_CHECKPOINT_DIR/state")
echo "trial $LAMP_TRIAL begins at $n"
mkdir -p "$LAMP_CHECKPOINT_DIR"
while true; do
    n=$((n + 1)); echo $n > "$LAMP_CHECKPOINT_DIR/state.new"
    mv "$LAMP_CHECKPOINT_DIR/state.new" "$LAMP_CHECKPOINT_DIR/state"
    echo "{\"checkpoint\": \"state\", \"step\": $n}" >> "$LAMP_PROGRESS"
    [ ! -e GO ] || break
    sleep 0.2
done
echo "{\"step\": $n, \"score\": $(( (x - 4) * (x - 4) ))}" >> "$LAMP_PROGRESS"
"#;

/// `tune`: lines of [tune]. `least` to 6 are the values of x.
fn account(tune: &str, machine: &str, least: u32) -> Option<Account> {
    let account = Account::new()?;
    let go = account.place.0.path().join("go").display().to_string();
    account.place.0.write("w/job.sh", SCRIPT.replace("GO", &go));
    account.place.0.write(
        "job.toml",
        format!(
            "name = 'walks'\nworkdir = 'w'\ncommand = ['sh', 'job.sh']\n\
             [machine]\ncloud = 'aws'\nregions = ['us-east-1']\ngpus = 'none'\n\
             instance_types = ['m5.large']\n{machine}\n[limits]\nmax_runtime = '1h'\n\
             [checkpoint]\npath = 'ckpt'\ninterval = '1s'\n\
             [tune]\nmetric = 'score'\n{tune}\n\
             [tune.params.x]\ntype = 'int'\nmin = {least}\nmax = 6\n"
        ),
    );
    Some(account)
}

fn start(account: &Account, words: &[&str]) -> Child {
    let mut command = account.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lamp was built")
}

fn status(account: &Account) -> Value {
    account.json(&["tune", "status", "walks"]).1
}

/// The receipts of all trials. Each attempt has the seconds of EC2's own ledger, and all machines
/// of EC2 are on them.
fn receipts(account: &Account, view: &Value) -> Vec<Value> {
    let trials = view["trials"].as_array().expect("trials");
    let receipts: Vec<Value> = trials
        .iter()
        .map(|trial| account.json(&["receipt", trial["job"].as_str().expect("a job")]).1)
        .collect();
    let attempts: Vec<&Value> =
        receipts.iter().filter_map(|receipt| receipt["attempts"].as_array()).flatten().collect();
    for seen in account.ec2.instances() {
        assert_eq!(seen.state, State::Terminated, "{seen:?}");
        let attempt = attempts.iter().find(|attempt| attempt["instance"] == seen.id.as_str());
        let attempt = attempt.unwrap_or_else(|| panic!("{} is on no receipt", seen.id));
        let billed = attempt["billed_seconds"].as_f64().expect("seconds");
        let ledger = account.ec2.ledger(&seen.id).billed_seconds() as f64;
        // Without an exact end by EC2, the next look at the machine is the end.
        let more = if attempt["billed_estimated"] == true { 60.0 } else { 2.0 };
        assert!(
            billed >= ledger - 2.0 && billed <= ledger + more,
            "{billed} on the receipt, {ledger} on the ledger"
        );
    }
    let sum: f64 = receipts.iter().filter_map(|receipt| receipt["total_usd"].as_f64()).sum();
    let told = view["usd"].as_f64().expect("money");
    assert!((told - sum).abs() < 1e-6 && sum > 0.0, "{told} told, {sum} on the receipts");
    receipts
}

#[test]
fn trials_on_ec2_find_the_best_and_their_bills_are_summed() {
    let Some(account) = account("parallel = 2\nbudget = '$60'", "", 3) else { return };
    account.place.0.write("go", "");
    Machines::beside(&account, |machines| {
        let (code, out, err) = end(start(&account, &["tune", "job.toml"]));
        assert_eq!(code, 0, "{err}");
        assert!(out.ends_with(b"sh job.sh --x=4\n"), "{err}");
        assert!(err.contains("4 trials, 2 at a time, of at most $"), "{err}");
        let view = status(&account);
        assert_eq!(view["counts"]["complete"], 4, "{view:#}");
        assert_eq!((account.ec2.instances().len(), machines.most_at_once()), (4, 2));
        receipts(&account, &view);
    });
}

/// EC2 takes the spot machine of a trial back. The trial does not fail. It runs on another machine.
#[test]
fn interrupted_trial_on_ec2_goes_on_from_its_checkpoint() {
    let Some(account) = account("", "market = 'spot'", 6) else { return };
    Machines::beside(&account, |machines| {
        let tuning = start(&account, &["tune", "job.toml", "-o", "json"]);
        let first: Seen = account.machines(1).remove(0);
        let job = wait_until("the trial has a job", || {
            Some(status(&account)["trials"][0]["job"].as_str()?.to_owned())
        });
        // A number is skipped if its files change during the upload.
        let checkpoints = format!("jobs/{job}/checkpoints/");
        wait_until("a checkpoint is complete", || {
            account.has_object(&checkpoints, "manifest.json").then_some(())
        });
        let notice = Duration::from_secs(15);
        let at = Timestamp::now() + SignedDuration::try_from(notice).expect("short");
        machines.imds(&first.id).interrupts("terminate", at);
        account.ec2.interrupt(&first.id, notice);
        account.machines(2);
        account.place.0.write("go", "");
        let (code, out, err) = end(tuning);
        assert_eq!(code, 0, "{err}");
        let view: Value = serde_json::from_slice(&out).expect("a document");
        let counts = &view["counts"];
        assert_eq!(
            (&counts["complete"], &counts["interrupted"], &counts["failed"]),
            (&json!(1), &json!(0), &json!(0)),
            "{view:#}"
        );
        let receipt = receipts(&account, &view).remove(0);
        let ends: Vec<&Value> = receipt["attempts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|attempt| &attempt["ended_because"])
            .collect();
        assert_eq!(ends, ["interrupted", "succeeded"], "{receipt:#}");
        let log = account.lamp(&["logs", &job]).1;
        let begins = log.lines().filter_map(|line| line.strip_prefix("trial 1 begins at "));
        let begins: Vec<u32> = begins.filter_map(|step| step.trim().parse().ok()).collect();
        assert!(begins.last().is_some_and(|step| *step > 0), "{log}");
    });
}

#[test]
fn cancelled_tuning_on_ec2_leaves_no_machine_and_starts_none() {
    let Some(account) = account("parallel = 2", "", 3) else { return };
    let words = ["tune", "job.toml", "--detach", "--unproven"];
    let (code, _, err) = account.lamp(&words);
    assert_eq!(code, 0, "{err}");
    account.machines(2);
    let (code, _, err) = account.lamp(&["tune", "cancel", "walks"]);
    assert!(code == 0 && err.contains("to cancel"), "{err}");
    let is_over = || {
        let view = status(&account);
        (view["ended"]["because"] == "user_stopped" && view["counts"]["running"] == 0)
            .then_some(view)
    };
    let view = wait_until("all trials have ended", is_over);
    assert_eq!(view["counts"]["stopped"], 2, "{view:#}");
    receipts(&account, &view);
    // Another driver has nothing to do.
    assert_eq!(account.lamp(&["tune", "drive", "walks"]).0, 108);
    assert_eq!(account.ec2.instances().len(), 2, "no third machine");
}

#[test]
fn plan_counts_all_trials_and_what_cannot_start_is_refused() {
    let Some(account) = account("parallel = 2", "", 3) else { return };
    let (_, plan) = account.json(&["plan", "job.toml"]);
    let most = plan["most_job_usd"].as_f64().expect("a figure");
    let tuning = &plan["tuning"];
    assert_eq!((&tuning["trials"], &tuning["parallel"]), (&json!(4), &json!(2)), "{plan:#}");
    assert!((tuning["most_usd"].as_f64().expect("a figure") - 4.0 * most).abs() < 1e-6);
    let shown = account.lamp(&["plan", "job.toml"]).1;
    assert!(shown.contains("`lamp tune`: 4 trials, 2 at a time, of at most $"), "{shown}");
    // Nothing here drives it while this workstation is off.
    let (code, _, err) = account.lamp(&["tune", "job.toml", "--detach"]);
    assert!(code == 111 && err.contains("has no proof"), "{code} {err}");
    let small = account.place.0.read("job.toml").replace("parallel = 2", "budget = '$0.05'");
    account.place.0.write("small.toml", small);
    let (code, _, err) = account.lamp(&["tune", "small.toml"]);
    assert!(code == 102 && err.contains("starts no trial: one can cost up to $"), "{code} {err}");
    assert_eq!(account.lamp(&["tune", "status", "walks"]).0, 101, "nothing is written");
    assert!(account.ec2.instances().is_empty());
}

/// A plan that EC2 does not answer ended a tuning with a budget for good.
#[test]
fn ec2_that_does_not_answer_delays_a_tuning_and_does_not_end_it() {
    let Some(account) = account("budget = '$60'", "market = 'spot'", 5) else { return };
    Machines::beside(&account, |_| {
        let tuning = start(&account, &["tune", "job.toml"]);
        account.machines(1);
        account.ec2.fault(Fault::code("DescribeSpotPriceHistory", "Unavailable").always());
        // Its answers of before would do.
        let cache = account.place.0.path().join("home/.cache/lamplighter/aws");
        std::fs::remove_dir_all(cache).expect("answers are kept");
        account.place.0.write("go", "");
        wait_until("the first trial has ended", || {
            (status(&account)["counts"]["complete"] == 1).then_some(())
        });
        // A step of the driver, and what a busy computer needs.
        std::thread::sleep(Duration::from_secs(25));
        let view = status(&account);
        assert!(view["ended"].is_null(), "{view:#}");
        account.ec2.mend();
        let (code, _, err) = end(tuning);
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("trying again: "), "{err}");
        assert_eq!(status(&account)["counts"]["complete"], 2);
    });
}
