//! The check of a real account (`lamp_test_support::live_check`) against the false EC2: its
//! refusals, the end of what it launched, and every step but the machine itself.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command};
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use crate::place::wait_until;
use crate::sweep::prove::Account;
use lamp_test_support::ec2::State;
use lamp_test_support::live_check::{Asks, BUDGET, Check, Guard, budget, is_swept, name, within};

fn checked<T>(account: &Account, breaks: bool, then: impl FnOnce(&Check<'_>) -> T) -> T {
    checked_as(account, Asks::Emulator, breaks, then)
}

fn checked_as<T>(
    account: &Account,
    asks: Asks,
    breaks: bool,
    then: impl FnOnce(&Check<'_>) -> T,
) -> T {
    let lamp = |words: &[&str]| {
        let mut command = account.command(words);
        command.current_dir(account.place.0.path().join("empty"));
        command
    };
    account.place.0.write("empty/.lampignore", "*\n");
    then(&Check { lamp: &lamp, asks, name: name(), breaks })
}

#[test]
fn live_check_without_a_valid_budget_asks_and_launches_nothing() {
    for (said, why) in [
        (None, "is not set: this check buys a machine"),
        (Some(" "), "is not set"),
        (Some("much"), "is no amount of dollars"),
        (Some("0"), "is no amount of dollars"),
        (Some("-1"), "is no amount of dollars"),
        (Some("NaN"), "is no amount of dollars"),
        (Some("50"), "is more than $5"),
    ] {
        let refused = budget(said).expect_err("refused");
        assert!(refused.starts_with(BUDGET) && refused.contains(why), "{said:?}: {refused}");
    }
    assert_eq!((budget(Some("0.10")), budget(Some("$0.1"))), (Ok(0.1), Ok(0.1)));
    let Some(account) = Account::new() else { return };
    account.ec2.take_calls();
    assert!(checked(&account, false, |check| check.run(None)).is_err());
    assert!(account.ec2.take_calls().is_empty(), "nobody was asked anything");
}

#[test]
fn plan_that_may_cost_more_than_the_budget_launches_nothing() {
    let plan =
        |name: &str, most: Option<f64>| json!({ "source": { "name": name }, "most_job_usd": most });
    assert_eq!(within(&plan("ec2", Some(0.01)), 0.01), Ok(0.01));
    for (plan, why) in [
        (
            plan("ec2", Some(0.02)),
            "the plan can cost $0.0200, and LAMP_LIVE_BUDGET is $0.0100: nothing was launched",
        ),
        (plan("ec2", None), "nothing bounds what the plan can cost"),
        (plan("catalogue", Some(0.001)), "the plan is not AWS's own"),
    ] {
        assert!(within(&plan, 0.01).expect_err("refused").starts_with(why), "{why}");
    }
    let Some(account) = Account::new() else { return };
    let refused = checked(&account, false, |check| check.run(Some("0.0001"))).expect_err("refused");
    assert!(refused.contains("and LAMP_LIVE_BUDGET is $0.0001: nothing was launched"), "{refused}");
    assert!(
        account.ec2.instances().is_empty()
            && account
                .ec2
                .calls_of("RunInstances")
                .iter()
                .all(|call| call.code == "DryRunOperation")
    );
    assert_eq!(
        account.json(&["status"]).1["jobs"].as_array().map(Vec::len),
        Some(0),
        "no job was made"
    );
}

#[test]
fn whole_way_ends_its_own_machine_and_no_other() {
    let Some(account) = Account::new() else { return };
    let detached = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(detached.0, 0, "{detached:?}");
    let other = wait_until("another job has a machine", || {
        account.ec2.instances().first().map(|seen| seen.id.clone())
    });
    let usd = checked(&account, false, |check| check.run(Some("0.10")))
        .unwrap_or_else(|why| panic!("{why}"));
    assert!(usd < 0.01, "{usd}");
    let all = account.ec2.instances();
    let [own] = all.iter().filter(|seen| seen.id != other).collect::<Vec<_>>()[..] else {
        panic!("{all:?}")
    };
    assert_eq!((own.kind.as_str(), own.spot, own.state), ("t3.micro", false, State::Terminated));
    assert!(own.tags["lamplighter:job"].starts_with("live-check-"), "{own:?}");
    assert_eq!(
        account.ec2.instance(&other).state,
        State::Running,
        "what is another job's is left alone"
    );
}

#[test]
fn what_it_launched_is_ended_also_where_it_breaks_off() {
    let Some(account) = Account::new() else { return };
    let broken =
        checked(&account, true, |check| catch_unwind(AssertUnwindSafe(|| check.run(Some("0.10")))));
    assert!(broken.is_err(), "it was to break off");
    let all = account.ec2.instances();
    assert!(all.len() == 1 && all[0].state == State::Terminated, "{all:?}");
    let (_, status) = account.json(&["status"]);
    assert_eq!(status["jobs"][0]["state"], "cancelled", "{status:#}");
}

/// What is asked of an account of AWS, and not of an emulator.
#[test]
fn live_check_of_an_unfit_or_unswept_account_launches_nothing() {
    let shows = |checks: &[(&str, &str)]| {
        let checks: Vec<_> =
            checks.iter().map(|(check, level)| json!({ "check": check, "level": level })).collect();
        is_swept(&json!({ "checks": checks })).is_ok()
    };
    let neither: [&[(&str, &str)]; 4] = [
        &[],
        &[("sweeper", "skipped"), ("proof, us-east-1", "warning")],
        &[("sweeper", "failure"), ("proof", "ok")],
        &[("proof, us-east-1", "ok"), ("proof, us-east-2", "warning")],
    ];
    for checks in neither {
        assert!(!shows(checks), "{checks:?}");
    }
    assert!(
        shows(&[("sweeper", "ok"), ("proof, us-east-1", "warning")])
            && shows(&[("sweeper", "skipped"), ("proof, us-east-1", "ok")])
    );

    let Some(account) = Account::new() else { return };
    let refused = || {
        checked_as(&account, Asks::Account, false, |check| check.run(Some("0.0001")))
            .expect_err("refused")
    };
    let neither = refused();
    assert!(
        neither.contains("neither a sweeper that comes nor a proof")
            && neither.ends_with("nothing was launched"),
        "{neither}"
    );
    account.proven(1, true);
    account.ec2.clock_ahead(SignedDuration::from_mins(9));
    let sick = refused();
    assert!(
        sick.contains("`lamp doctor` says \"failure\"") && sick.ends_with("nothing was launched"),
        "{sick}"
    );
    account.ec2.clock_ahead(SignedDuration::ZERO);
    // Past the doctor, to its plan.
    let dear = refused();
    assert!(dear.contains("and LAMP_LIVE_BUDGET is $0.0001"), "{dear}");
    assert!(account.ec2.instances().is_empty());
    assert_eq!(
        account.json(&["status"]).1["jobs"].as_array().map(Vec::len),
        Some(0),
        "no job was made"
    );
}

/// It stands for a `lamp run` that was killed while its spec was on its way.
fn launcher() -> Child {
    Command::new("sleep").arg("600").spawn().expect("there is a sleep")
}

#[test]
fn job_made_after_its_launcher_was_killed_is_ended_by_its_id() {
    let Some(account) = Account::new() else { return };
    let looks = Cell::new(0);
    let name = name();
    account.place.0.write("late.toml", account.place.0.read("job.toml").replace("alone", &name));
    let lamp = |words: &[&str]| {
        if words.contains(&"status") {
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                let made = account.lamp(&["run", "--detach", "--unproven", "late.toml"]);
                assert_eq!(made.0, 0, "{made:?}");
            }
        }
        let ends = ["cancel", "stop"].iter().any(|verb| words.contains(verb));
        assert!(
            !ends || !words.contains(&name.as_str()),
            "an end is asked for by the id: {words:?}"
        );
        account.command(words)
    };
    let check = Check { lamp: &lamp, asks: Asks::Emulator, name: name.clone(), breaks: false };
    assert_eq!(Guard::new(&check, Some(launcher())).end(), None);
    let (_, status) = account.json(&["status"]);
    assert_eq!(
        (status["jobs"].as_array().map(Vec::len), &status["jobs"][0]["state"]),
        (Some(1), &"cancelled".into()),
        "{status:#}"
    );
    assert!(
        account.ec2.instances().iter().all(|seen| seen.state.is_gone()),
        "{:?}",
        account.ec2.instances()
    );
}

#[test]
fn of_a_job_that_does_not_come_it_is_said_that_it_may_still() {
    let Some(account) = Account::new() else { return };
    let told = checked(&account, false, |check| {
        let mut guard = Guard::new(check, Some(launcher()));
        guard.comes_within = Duration::from_secs(1);
        guard.end().expect("it is told")
    });
    for words in [
        "is not known, and a daemon of this job root would launch it",
        "`lamp status live-check-",
        "one whose kernel hangs bills on",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
