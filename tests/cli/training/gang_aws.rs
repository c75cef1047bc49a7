//! A gang on machines of a false AWS: one launch for all ranks, real agents, and a bill for each.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::aws_machines::Machines;
use crate::place::{end, wait_until};
use crate::sweep::prove::Account;
use lamp_test_support::ec2::{Fault, Seen, State};
use lamp_test_support::imds::FalseImds;

/// Ranks that meet at MASTER_ADDR with the standard library alone, and count steps together.
const RANKS: &str = include_str!("../ranks.py");

/// An account with the security group for gangs.
fn account() -> Option<Account> {
    let account = Account::new()?;
    let names = [("GroupName", "lamplighter-gang"), ("GroupDescription", "gangs")];
    let made = account.ec2.ask("CreateSecurityGroup", &names).expect("made");
    let group = made.at("groupId");
    let rule = [
        ("GroupId", group),
        ("IpPermissions.1.IpProtocol", "-1"),
        ("IpPermissions.1.Groups.1.GroupId", group),
    ];
    account.ec2.ask("AuthorizeSecurityGroupIngress", &rule).expect("opened to itself");
    account.place.0.write("w/ranks.py", RANKS);
    account.place.0.write("gang.toml", job("nodes = 2", ""));
    Some(account)
}

fn job(nodes: &str, machine: &str) -> String {
    format!(
        "name = 'g'\nworkdir = 'w'\ncommand = ['python3', 'ranks.py', '5']\n{nodes}\n\
         [machine]\ncloud = 'aws'\nregions = ['us-east-1']\ngpus = 'none'\ninstance_types = ['m5.large']\n{machine}\n\
         [gang]\nengine = 'env'\n[limits]\nmax_runtime = '1h'\n"
    )
}

/// The launches that bought something.
fn launches(account: &Account) -> usize {
    let calls = account.ec2.calls_of("RunInstances");
    calls.iter().filter(|call| !call.params.contains_key("DryRun")).count()
}

fn boot(account: &Account, seen: &Seen) -> Child {
    account.boot(seen, &FalseImds::default())
}

fn start(account: &Account) -> Child {
    account
        .command(&["run", "--unproven", "gang.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lamp was built for this test")
}

/// Boots the machines, and waits until their agents have ended.
fn run_agents(account: &Account, machines: &[Seen]) {
    let agents: Vec<Child> = machines.iter().map(|seen| boot(account, seen)).collect();
    for (mut agent, seen) in agents.into_iter().zip(machines) {
        assert!(agent.wait().expect("it ends").success());
        account.ec2.powered_off(&seen.id);
    }
}

/// The ranks of the only gang.
fn ranks(account: &Account) -> Option<Vec<serde_json::Value>> {
    let (_, status) = account.json(&["status", "--all"]);
    status["jobs"][0]["gang"]["ranks"].as_array().cloned()
}

#[test]
fn ranks_of_one_launch_work_together_and_each_has_its_bill() {
    let Some(account) = account() else { return };
    // The answer of the launch is lost: there is one gang all the same.
    account.ec2.fault(Fault::lost("RunInstances").when("ClientToken", "lamp-*"));
    let run = start(&account);
    let machines = account.machines(2);
    run_agents(&account, &machines);
    let (code, out, err) = end(run);
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("rank 0 finished at step 5"), "{out}\n{err}");
    for rank in ["rank 0: succeeded, 1 attempt", "rank 1: succeeded, 1 attempt"] {
        assert!(err.contains(rank), "{err}");
    }
    assert_eq!(account.ec2.instances().len(), 2, "no machine beside them");
    let ranks = ranks(&account).expect("a gang");
    assert_eq!(ranks.len(), 2);
    for rank in &ranks {
        let job = rank["job"].as_str().expect("a name");
        let receipt = account.json(&["receipt", job]).1;
        let attempt = &receipt["attempts"][0];
        let index = if job.contains("-r1-") { "1" } else { "0" };
        let seen = machines.iter().find(|seen| seen.item.at("amiLaunchIndex") == index);
        let seen = seen.expect("a machine of this rank");
        assert_eq!(attempt["instance"], seen.id.as_str(), "{receipt:#}");
        let billed = attempt["billed_seconds"].as_f64().expect("seconds");
        let ledger = account.ec2.ledger(&seen.id).billed_seconds() as f64;
        // Without an exact end by EC2, the next look at the machine is the end.
        let more = if attempt["billed_estimated"] == true { 60.0 } else { 2.0 };
        assert!(
            billed >= ledger - 2.0 && billed <= ledger + more,
            "{billed} on the receipt, {ledger} on the ledger"
        );
    }
}

/// EC2 has three machines of four, and the answer of the launch is lost. The three begin at once.
#[test]
fn elastic_gang_begins_with_the_machines_that_there_are() {
    let Some(account) = account() else { return };
    account.place.0.write("gang.toml", job("nodes = '2..4'", ""));
    account.ec2.room(Some(3));
    account.ec2.fault(Fault::lost("RunInstances").when("ClientToken", "lamp-*"));
    let run = start(&account);
    let machines = account.machines(3);
    wait_until("the rank without a machine is told so", || {
        let last = ranks(&account)?.get(3)?["job"].as_str()?.to_owned();
        let told = account.lamp(&["explain", &last]).1;
        told.contains("EC2 had machines for 3 of 4 ranks").then_some(())
    });
    run_agents(&account, &machines);
    let (code, out, err) = end(run);
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(
        out.contains("rank 0 of 3 begins") && out.contains("rank 0 finished at step 5"),
        "{out}"
    );
    assert_eq!(account.ec2.instances().len(), 3, "nothing is bought twice");
    let ranks = ranks(&account).expect("a gang");
    for rank in &ranks {
        let job = rank["job"].as_str().expect("a name");
        wait_until("its job has ended", || {
            account.json(&["receipt", job]).1["outcome"].is_string().then_some(())
        });
        let receipt = account.json(&["receipt", job]).1;
        if job.contains("-r3-") {
            assert_eq!(receipt["total_usd"], json!(0.0), "{receipt:#}");
        } else {
            assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
        }
    }
}

/// EC2 gives the machines of one spot call no order, so each rank has a call of its own.
#[test]
fn spot_machines_of_a_gang_are_bought_one_by_one_in_one_zone() {
    let Some(account) = account() else { return };
    account.place.0.write("gang.toml", job("nodes = 2", "market = 'spot'"));
    let run = start(&account);
    let machines = account.machines(2);
    let zone = |seen: &Seen| seen.item.at("placement/availabilityZone").to_owned();
    assert_eq!(zone(&machines[0]), zone(&machines[1]));
    for seen in &machines {
        assert_eq!(seen.item.at("instanceLifecycle"), "spot");
        assert_eq!(seen.item.at("amiLaunchIndex"), "0");
    }
    run_agents(&account, &machines);
    let (code, out, err) = end(run);
    assert_eq!(code, 0, "{}\n{err}", String::from_utf8_lossy(&out));
    // A call is told after its answer, and its machine is seen before.
    assert_eq!(launches(&account), 2);
    assert_eq!(account.ec2.instances().len(), 2, "no machine beside them");
    for rank in ranks(&account).expect("a gang") {
        let receipt = account.json(&["receipt", rank["job"].as_str().expect("a name")]).1;
        assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
        assert_eq!(receipt["attempts"][0]["market"], "spot", "{receipt:#}");
    }
}

/// A parameter server needs no machine of the workers.
#[test]
fn roles_of_a_gang_have_machines_of_their_own() {
    let Some(account) = account() else { return };
    account.ec2.on_demand("m5.xlarge", 0.192);
    let roles = "[gang.chief]\n[gang.ps]\ninstance_types = ['m5.xlarge']\n[limits]";
    account.place.0.write("gang.toml", job("", "").replace("[limits]", roles));
    let (code, out, err) = account.lamp(&["plan", "gang.toml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("all cost at most 1 x $") && out.contains(" + 1 x $"), "{out}");
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "gang.toml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    let machines = account.machines(2);
    let kind = |seen: &Seen| seen.item.at("instanceType").to_owned();
    let kinds: Vec<String> = machines.iter().map(kind).collect();
    assert_eq!(kinds, ["m5.large", "m5.xlarge"], "rank 0 is first");
    let zone = |seen: &Seen| seen.item.at("placement/availabilityZone").to_owned();
    assert_eq!(zone(&machines[0]), zone(&machines[1]));
    let (code, out, err) = account.lamp(&["cancel", "--yes", "g"]);
    assert_eq!(code, 0, "{out}\n{err}");
}

#[test]
fn roles_with_different_processors_are_refused_before_a_launch() {
    let Some(account) = account() else { return };
    account.ec2.on_demand("m6g.large", 0.077);
    account.ec2.on_demand("m6g.xlarge", 9.0);
    let roles = "[gang.chief]\n[gang.ps]\ninstance_types = ['m6g.large']\n[limits]";
    let names = job("", "").replace("[limits]", roles);
    account.place.0.write("named.toml", &names);
    for verb in ["check", "run"] {
        let (code, out, err) = account.lamp(&[verb, "named.toml"]);
        let words = "have arm64 processors, and [gang.chief] has x86_64";
        assert!(code == 100 && format!("{out}{err}").contains(words), "{out}\n{err}");
    }
    // Only the price says which of the two rank 0 gets.
    let one_of_two = names.replace("['m5.large']", "['m5.large', 'm6g.xlarge']");
    account.place.0.write("gang.toml", one_of_two);
    for args in [&["plan", "gang.toml"][..], &["run", "--detach", "--unproven", "gang.toml"]] {
        let (code, _, err) = account.lamp(args);
        let words = "m5.large has x86_64, and m6g.large of [gang.ps] has arm64";
        assert!(code == 102 && err.contains(words) && err.contains("nothing was started"), "{err}");
    }
    assert!(account.ec2.instances().is_empty());
}

/// The other ranks are bought in the zone of rank 0 alone.
#[test]
fn spot_gang_without_room_for_all_ends_within_join() {
    let Some(account) = account() else { return };
    let short = job("nodes = 2", "market = 'spot'")
        .replace("engine = 'env'", "engine = 'env'\njoin = '10s'");
    account.place.0.write("gang.toml", short);
    let rank_1 = Fault::code("RunInstances", "InsufficientInstanceCapacity")
        .saying("We currently do not have sufficient capacity")
        .when("TagSpecification.1.Tag.1.Value", "lamp g-r1-*")
        .always();
    account.ec2.fault(rank_1);
    let run = start(&account);
    let first = account.machines(1).remove(0);
    let mut agent = boot(&account, &first);
    assert!(agent.wait().expect("it ends").success());
    account.ec2.powered_off(&first.id);
    let (code, out, err) = end(run);
    assert_ne!(code, 0, "{}\n{err}", String::from_utf8_lossy(&out));
    assert!(err.contains("over: rank 1"), "{err}");
    assert_eq!(account.ec2.instances().len(), 1, "nothing is bought in another zone");
}

/// A rank that does not come ends the gang within `join`. No machine waits for its time to boot.
#[test]
fn rank_that_never_joins_ends_the_machines_of_all() {
    let Some(account) = account() else { return };
    let short = job("nodes = 2", "").replace("engine = 'env'", "engine = 'env'\njoin = '10s'");
    account.place.0.write("gang.toml", short);
    let run = start(&account);
    let machines = account.machines(2);
    let first = machines.iter().find(|seen| seen.item.at("amiLaunchIndex") == "0");
    let first = first.expect("the machine of rank 0");
    let mut agent = boot(&account, first);
    assert!(agent.wait().expect("it ends").success());
    account.ec2.powered_off(&first.id);
    let (code, out, err) = end(run);
    assert_ne!(code, 0, "{}\n{err}", String::from_utf8_lossy(&out));
    assert!(err.contains("over: rank 1"), "{err}");
    let ended = |seen: &Seen| account.ec2.instance(&seen.id).state == State::Terminated;
    wait_until("all machines are terminated", || machines.iter().all(ended).then_some(()));
}

/// Nothing is launched, and the jobs of all ranks end.
#[test]
fn gang_that_is_refused_buys_nothing_for_any_rank() {
    let Some(account) = account() else { return };
    account
        .ec2
        .fault(Fault::code("RunInstances", "UnauthorizedOperation").saying("you may not").always());
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "gang.toml"]);
    assert_eq!(code, 104, "{out}\n{err}");
    assert!(err.contains("you may not"), "{err}");
    wait_until("the jobs of all ranks have ended", || {
        let over = |rank: &serde_json::Value| {
            matches!(rank["state"].as_str(), Some("failed" | "cancelled" | "aborted"))
        };
        let ranks = ranks(&account)?;
        (ranks.len() == 2 && ranks.iter().all(over)).then_some(())
    });
    assert!(account.ec2.instances().is_empty());
}

/// A stop before any agent began ends the machines of all ranks.
#[test]
fn gang_that_is_stopped_leaves_no_machine() {
    let Some(account) = account() else { return };
    let (code, out, err) = account.lamp(&["run", "--detach", "--unproven", "gang.toml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert_eq!((account.machines(2).len(), launches(&account)), (2, 1));
    let (code, out, err) = account.lamp(&["cancel", "--yes", "g"]);
    assert_eq!(code, 0, "{out}\n{err}");
    wait_until("all machines are terminated", || {
        let machines = account.ec2.instances();
        machines.iter().all(|seen| seen.state == State::Terminated).then_some(())
    });
}

#[test]
fn plan_counts_the_price_of_all_machines() {
    let Some(account) = account() else { return };
    let (code, out, err) = account.lamp(&["plan", "gang.toml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("one call launches all 2 machines in one zone, or none of them"), "{out}");
    assert!(out.contains("all cost at most 2 x $"), "{out}");
    account.place.0.write("spot.toml", job("nodes = 2", "market = 'spot'"));
    let (code, out, err) = account.lamp(&["plan", "spot.toml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(
        out.contains("the machines of the other ranks are bought one by one in its zone"),
        "{out}"
    );
    assert!(out.contains("all cost at most 2 x $"), "{out}");
    assert_eq!(launches(&account), 0);
}

/// Two machines of two vCPUs each.
#[test]
fn quota_must_have_room_for_all_machines() {
    let Some(account) = account() else { return };
    account.ec2.quota("L-1216C47A", 3.0);
    let (code, _, err) = account.lamp(&["plan", "gang.toml"]);
    assert_ne!(code, 0, "{err}");
    assert!(err.contains("needs 4 vCPUs, and the quota"), "{err}");
    assert_eq!(launches(&account), 0);
}

/// Each trial is a gang of its own. The machines of both count for the budget.
#[test]
fn trials_of_a_tuning_are_gangs_and_their_machines_are_summed() {
    let Some(account) = account() else { return };
    let report = "score=${1#--x=}; test $LAMP_RANK = 0 || score=0\n\
        echo \"{\\\"score\\\": $score}\" >> \"$LAMP_PROGRESS\"\n";
    account.place.0.write("w/job.sh", report);
    let tune = |budget: &str| {
        job("nodes = 2", "").replace("'python3', 'ranks.py', '5'", "'sh', 'job.sh'")
            + &format!(
                "[tune]\nmetric = 'score'\nbudget = '{budget}'\n\
                 [tune.params.x]\ntype = 'int'\nmin = 1\nmax = 2\n"
            )
    };
    account.place.0.write("tune.toml", tune("$60"));
    let (_, plan) = account.json(&["plan", "tune.toml"]);
    let most = |value: &Value| value.as_f64().expect("a figure");
    let gang = most(&plan["gang"]["most_usd"]);
    assert!((gang - 2.0 * most(&plan["most_job_usd"])).abs() < 1e-6, "{plan:#}");
    assert!((most(&plan["tuning"]["trial_usd"]) - gang).abs() < 1e-6, "{plan:#}");
    // There is room for one machine, and not for both.
    let small = format!("${:.2}", gang * 0.75);
    account.place.0.write("small.toml", tune(&small));
    let (code, _, err) = account.lamp(&["tune", "small.toml"]);
    assert!(code == 102 && err.contains("starts no trial: one can cost up to $"), "{code} {err}");
    assert!(account.ec2.instances().is_empty());
    Machines::beside(&account, |machines| {
        let words = ["tune", "tune.toml", "-o", "json"];
        let mut tuning = account.command(&words);
        let tuning = tuning.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("built");
        let (code, out, err) = end(tuning);
        assert_eq!(code, 0, "{err}");
        let view: Value = serde_json::from_slice(&out).expect("a document");
        assert_eq!((&view["counts"]["complete"], &view["best"]["value"]), (&json!(2), &json!(1.0)));
        assert_eq!((account.ec2.instances().len(), machines.most_at_once()), (4, 2));
        assert_eq!(launches(&account), 2, "one call launches both machines of a trial");
        let usd = |job: String| most(&account.json(&["receipt", &job]).1["total_usd"]);
        let jobs = view["trials"].as_array().into_iter().flatten().filter_map(|trial| {
            let job = trial["job"].as_str()?;
            let (name, letters) = job.rsplit_once('-')?;
            Some([job.to_owned(), format!("{name}-r1-{letters}")])
        });
        let sum: f64 = jobs.flatten().map(usd).sum();
        assert!((most(&view["usd"]) - sum).abs() < 1e-6, "{view:#} {sum}");
        let ended = |seen: &Seen| seen.state == State::Terminated;
        assert!(account.ec2.instances().iter().all(ended));
    });
}
