//! `lamp plan` for EC2: what is shown before anything is bought.

use jiff::SignedDuration;
use serde_json::Value;

use crate::account::setup::User;
use crate::sandbox::{Ended, Sandbox, limit};
use lamp_test_support::ec2::{FalseEc2, Fault, Options};

/// A market with one price for each zone, and what `lamp init aws` would have made.
pub(crate) fn market() -> Option<FalseEc2> {
    let ec2 = FalseEc2::start(Options::default())?;
    let since = SignedDuration::from_hours(24 * 20);
    ec2.spot_prices("g5.xlarge", "us-east-1a", &[(since, 0.40)]);
    ec2.spot_prices("g5.xlarge", "us-east-1b", &[(since, 0.36)]);
    ec2.spot_prices("g5.xlarge", "us-east-1c", &[(since, 0.55)]);
    ec2.ask("CreateSecurityGroup", &[("GroupName", "lamplighter"), ("GroupDescription", "x")])
        .expect("made");
    ec2.profile("lamplighter-box");
    ec2.bucket("jobs");
    Some(ec2)
}

fn plan(ec2: &FalseEc2, args: &[&str]) -> Ended {
    let sandbox = Sandbox::with_script();
    let all = ["plan", "--cloud", "aws", "--gpus", "A10G", "--instance-type", "g5.xlarge"];
    let all = [&all, args, limit(args), &["--", "python3", "train.py"]].concat();
    sandbox.end(sandbox.command(&all).envs(ec2.env()).env("LAMP_JOB_ROOT", root(ec2)))
}

pub(crate) fn root(ec2: &FalseEc2) -> String {
    format!("s3://{}/root", ec2.name("jobs"))
}

#[test]
fn job_that_saves_nothing_is_planned_on_demand_instead_of_spot() {
    let Some(ec2) = market() else { return };
    let ended = plan(&ec2, &["--spot-auto", "--max-runtime", "12h"]);
    assert!(
        ended.code == 0 && ended.out.starts_with("g5.xlarge in us-east-1a, on-demand, $1.01/h"),
        "{ended:?}"
    );
    assert!(
        ended.out.contains(
            "nothing is saved, so that each spot machine would begin anew: an hour of work costs $"
        ),
        "{}",
        ended.out
    );
}

#[test]
fn plan_names_maximum_cost_fallbacks_quota_image_and_disk() {
    let Some(ec2) = market() else { return };
    let ended = plan(&ec2, &["--spot-auto", "--checkpoint", "saved", "--max-runtime", "3h"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    // Three hours, five minutes for clocks and two to power off, at the bid of 0.414 and 0.015959
    // for disk and address.
    assert!(
        ended.out.starts_with(
            "g5.xlarge in us-east-1b, spot, $0.36/h: this machine costs at most $1.35, with its disk, its address and the power-off; \
             at most $3.19 where it is not to be had and a dearer one takes its place\n\
             the whole job, which continues on another machine after an interruption or a loss, can cost that much again each time, \
             and nothing bounds it; `limits.budget` would\n"
        ),
        "{}",
        ended.out
    );
    for said in [
        "because it is the cheapest of 8 that fit, at $0.36/h, $0.38/h with its disk and address\n",
        "the bid is $0.41/h, 15% above the price now; on-demand is $1.01/h\n",
        "in us-east-1 100 GiB of disk bill $0.0800 a GiB and month (AWS's list since 2020-12-01), and a public address $0.0050 an hour",
        "quota \"All G and VT Spot Instance Requests\" in us-east-1: 64 of 64 vCPUs are free\n",
        "it has 1 x A10G of 22 GiB and 4 vCPUs\n",
        "boots Deep Learning Base OSS Nvidia Driver GPU AMI",
        "on an encrypted disk of 100 GiB; it has NVIDIA's driver and CUDA, and no PyTorch: `setup` installs it",
        "if there is none: g5.xlarge in us-east-1a, spot, $0.40/h\nthen: g5.xlarge in us-east-1c, spot, $0.55/h\n",
        // As it does: tests/controller/launch/market.rs, `without_a_deadline_it_waits_for_spot`.
        "without a spot machine it waits; with `--deadline`, or where interruptions make spot the dearer one: g5.xlarge in us-east-1a, on-demand, $1.01/h\n",
    ] {
        assert!(ended.out.contains(said), "{said:?} in\n{}", ended.out);
    }
    assert!(ended.err.contains("nothing was started"), "{}", ended.err);
    assert!(ec2.instances().is_empty());
}

#[test]
fn budget_bounds_the_plan_to_the_cent_or_is_refused() {
    let Some(ec2) = market() else { return };
    let held = plan(&ec2, &["--on-demand", "--budget", "2", "-o", "json"]);
    let document: Value =
        serde_json::from_str(&held.out).unwrap_or_else(|error| panic!("{error}: {held:?}"));
    let most = document["most_usd"].as_f64().unwrap();
    assert!((1.99..=2.0).contains(&most), "{most}");
    assert_eq!(
        (&document["offer"]["market"], &document["forbidden"]),
        (&"on-demand".into(), &Value::Null)
    );
    assert_eq!(document["fallbacks"].as_array().map(Vec::len), Some(4), "the other zones");
    assert_eq!(
        (document["most_job_usd"].as_f64(), &document["most_job_by"]),
        (Some(2.0), &"budget".into())
    );
    // Of a machine whose time ends before its money, both are said: what it costs, and what the job
    // may cost after it.
    let timed = plan(&ec2, &["--on-demand", "--budget", "20", "--max-runtime", "1h"]);
    assert!(
        timed.out.contains(": this machine costs at most $1.15, with its disk"),
        "{}",
        timed.out
    );
    let job = "the whole job, which continues on another machine after an interruption or a loss, costs at most $20.00: that is its budget\n";
    assert!(timed.out.contains(job), "{}", timed.out);
    let counted = plan(&ec2, &["--on-demand", "--interruptions", "2", "--max-runtime", "1h"]);
    assert!(
        counted.out.contains(
            ", costs at most $3.43 by what is on offer now, even if it took all the 3 machines that `interruptions.max` allows; `limits.budget`"
        ),
        "{}",
        counted.out
    );
    let both = plan(
        &ec2,
        &["--on-demand", "--interruptions", "2", "--max-runtime", "1h", "--budget", "20"],
    );
    assert!(
        both.out.contains("machines that `interruptions.max` allows\n")
            && !both.out.contains("`limits.budget` would"),
        "{}",
        both.out
    );
    let refused = plan(&ec2, &["--on-demand", "--budget", "0.1"]);
    assert_eq!(refused.code, 104, "{refused:?}");
    assert!(
        refused.err.contains(
            "costs up to $1.02/h with its disk and address: the $0.10 left of the budget buy 3m 52s"
        ),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("nothing was started or billed"), "{}", refused.err);
}

#[test]
fn full_quota_and_a_low_bid_are_named() {
    let Some(ec2) = market() else { return };
    ec2.quota("L-3819A6DF", 2.0);
    let full = plan(&ec2, &["--spot"]);
    assert_eq!(full.code, 104, "{full:?}");
    assert!(full.err.contains("needs 4 vCPUs, and the quota \"All G and VT Spot Instance Requests\" has 2 of 2 left in us-east-1"), "{}", full.err);
    ec2.quota("L-3819A6DF", 64.0);
    let low = plan(&ec2, &["--spot", "--max-price", "0.38"]);
    assert!(
        low.out.contains(
            "not g5.xlarge in us-east-1a, spot: costs $0.40/h now, more than the bid of $0.38/h"
        ),
        "{low:?}"
    );
    // What EC2 would refuse is known before anything is shipped.
    ec2.fault(Fault::code("RunInstances", "UnauthorizedOperation").always());
    let denied = plan(&ec2, &["--spot"]);
    assert!(
        denied.code == 104 && denied.err.contains("warning: the cloud would not launch it: "),
        "{denied:?}"
    );
}

/// Unknown is not no: a dry run whose answer is lost forbids nothing.
#[test]
fn dry_run_without_an_answer_is_no_refusal() {
    let Some(ec2) = market() else { return };
    ec2.fault(Fault::lost("RunInstances").always());
    let lost = plan(&ec2, &["--spot"]);
    assert!(lost.code == 0 && !lost.err.contains("would not launch it"), "{lost:?}");
    assert!(
        lost.err.contains(
            "warning: whether the cloud would launch it is not known: no answer to launch a machine"
        ),
        "{lost:?}"
    );
    let document = plan(&ec2, &["--spot", "-o", "json"]);
    let found: Value =
        serde_json::from_str(&document.out).unwrap_or_else(|error| panic!("{error}: {document:?}"));
    assert!(found["forbidden"].is_null() && found["unanswered"].is_string(), "{found}");
    ec2.mend();
    ec2.fault(Fault::code("RunInstances", "UnauthorizedOperation").always());
    let document = plan(&ec2, &["--spot", "-o", "json"]);
    let found: Value =
        serde_json::from_str(&document.out).unwrap_or_else(|error| panic!("{error}: {document:?}"));
    assert!(
        document.code == 104 && found["forbidden"].is_string() && found["unanswered"].is_null(),
        "{found}"
    );
}

/// What `lamp run` would refuse, a plan does not end with 0.
#[test]
fn plan_that_a_cap_forbids_ends_as_the_run_would() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    sandbox.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 0.1\n");
    let words = [
        "plan",
        "--cloud",
        "aws",
        "--gpus",
        "A10G",
        "--instance-type",
        "g5.xlarge",
        "--spot",
        "--max-runtime",
        "24h",
        "--",
        "python3",
        "train.py",
    ];
    let ended =
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)));
    assert!(
        ended.code == 102
            && ended.err.contains(
                "`lamp run` would refuse it: it would wait for ever for the cap of $0.10"
            ),
        "{ended:?}"
    );
}

/// Three regions in the job file, and one of them was never set up: the plan goes on without it,
/// and says so.
#[test]
fn region_that_was_never_set_up_is_passed_over_in_words() {
    let Some(ec2) = market() else { return };
    ec2.spot_prices("g5.xlarge", "us-west-2a", &[(SignedDuration::from_hours(24 * 20), 0.10)]);
    let words = ["--spot", "--region", "us-east-1", "--region", "us-west-2"];
    let ended = plan(&ec2, &words);
    assert!(
        ended.code == 0 && ended.out.starts_with("g5.xlarge in us-east-1b, spot, $0.36/h"),
        "{ended:?}"
    );
    assert!(ended.err.contains("warning: us-west-2 is passed over until it is ready: there is no security group `lamplighter`"), "{}", ended.err);
    assert!(
        !ended.out.contains("then: g5.xlarge in us-west-2")
            && !ended.out.contains("none: g5.xlarge in us-west-2"),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("hint: `lamp init aws --region"), "{}", ended.err);
    let document = plan(&ec2, &[&words[..], &["-o", "json"]].concat());
    let found: Value =
        serde_json::from_str(&document.out).unwrap_or_else(|error| panic!("{error}: {document:?}"));
    assert_eq!(found["unready"][0]["region"], "us-west-2", "{found}");
}

/// A budget is reckoned with the bid: whoever bids five times on-demand hears what that makes of
/// ten hours, and what mends it.
#[test]
fn budget_that_a_high_bid_eats_up_says_how_long_it_lasts() {
    let Some(ec2) = market() else { return };
    let ended =
        plan(&ec2, &["--spot", "--max-price", "5.0", "--budget", "2", "--max-runtime", "10h"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for said in [
        "the bid of $5.00/h is 5.0 times the on-demand price of $1.01/h",
        "the budget ends it after 2",
        ", not after the 10h that its limits allow: reckoned with the bid",
        "a lower `max_price` or a higher `limits.budget` would mend that",
        "most interruptions come from capacity, not from price",
    ] {
        assert_eq!(ended.out.matches(said).count(), 1, "{said:?} in\n{}", ended.out);
    }
    let near = plan(&ec2, &["--spot-auto", "--budget", "20", "--max-runtime", "10h"]);
    assert!(near.code == 0 && !near.out.contains("the budget ends it"), "{}", near.out);
}

/// `lamp plan` and `lamp run` first say that the work cannot finish in time, then what it costs.
#[test]
fn deadline_that_cannot_be_met_is_a_warning_before_all_else() {
    let Some(ec2) = market() else { return };
    let job = ["--market", "auto", "--work", "20h", "--checkpoint", "c", "--deadline", "3h30m"];
    let ended = plan(&ec2, &job);
    assert_eq!(ended.code, 102, "{ended:?}");
    let first = ended.err.lines().find(|line| line.starts_with("warning: ")).unwrap();
    assert!(first.starts_with("warning: the deadline cannot be met, even on demand: 20h of work and a start of 12m take 16h "), "{first}");
    assert!(
        first.contains("it ends the job unfinished, with about 3h ")
            && first.contains("; until then this machine costs at most $"),
        "{first}"
    );
    assert!(ended.err.contains("hint: `--deadline 21h` is enough from now on"), "{}", ended.err);
    assert!(
        ended.out.contains("in all courses the deadline ends it unfinished, after $")
            && !ended.out.contains("expected to cost"),
        "{}",
        ended.out
    );
    let document = plan(&ec2, &[&job[..], &["-o", "json"]].concat());
    let found: Value =
        serde_json::from_str(&document.out).unwrap_or_else(|error| panic!("{error}: {document:?}"));
    assert_eq!(
        (
            document.code,
            found["out_of_reach"]["enough_hours"].as_f64(),
            found["market"]["late_share"].as_f64()
        ),
        (102, Some(21.0), Some(1.0))
    );
    assert_eq!(
        (&found["market"]["usd"], &found["market"]["deadline_usd"]),
        (&Value::Null, &Value::Null)
    );
    let enough = plan(&ec2, &[&job[..6], &["--deadline", "21h"]].concat());
    assert!(
        enough.code == 0 && !enough.err.contains("cannot be met"),
        "what the hint says is enough is enough: {enough:?}"
    );
}

/// The forecast stands before the reasons; it says which zones it leaves out, and no deadline costs
/// less than nothing.
#[test]
fn forecast_comes_first_and_says_what_it_does_not_count() {
    let Some(ec2) = market() else { return };
    let auto = ["--market", "auto", "--work", "20h", "--deadline", "40h"];
    let ended = plan(&ec2, &[&auto[..], &["--checkpoint", "c"]].concat());
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(
        ended.code == 0
            && lines[2]
                .starts_with("the whole job, all its machines together, is expected to cost $"),
        "{}",
        ended.out
    );
    assert!(
        ended.out.contains("us-east-1a, on-demand, $1.01/h")
            && !ended.out.contains("without a spot machine it waits"),
        "{}",
        ended.out
    );
    assert!(
        ended.out.contains("in us-east-1b alone, 20.0 h of work")
            && ended.out.contains("also counts on the other spot pools"),
        "{}",
        ended.out
    );
    let unsaved = plan(&ec2, &[&auto[..], &["-o", "json"]].concat());
    let found: Value =
        serde_json::from_str(&unsaved.out).unwrap_or_else(|error| panic!("{error}: {unsaved:?}"));
    let (usd, costs) =
        (found["market"]["usd"]["mean"].as_f64(), found["market"]["deadline_usd"].as_f64());
    assert_eq!(
        (found["market"]["late_share"].as_f64(), &found["market"]["other_pools"]),
        (Some(0.0), &2.into()),
        "{found}"
    );
    assert!(costs.is_none_or(|costs| usd.is_some_and(|usd| costs < usd)), "{found}");
}

/// In a new account, one message names everything and the one command that mends it; after that
/// command there is nothing to say, and nothing was started before it.
#[test]
fn before_the_account_is_ready_all_of_it_is_told_at_once() {
    let Some(user) = User::new() else { return };
    let job =
        ["--cloud", "aws", "--instance-type", "t3.micro", "--max-runtime", "1h", "--", "true"];
    let with = |verb: &str, root: &[&str]| user.lamp(&[&[verb], root, &job[..]].concat());
    let group = "no security group `lamplighter` in us-east-1";
    for verb in ["run", "plan"] {
        let ended = with(verb, &[]);
        assert_eq!(ended.code, 102, "{verb}: {ended:?}");
        for words in [
            "the account is not ready for machines: no job root that machines reach",
            "no instance profile `lamplighter-box`",
            group,
        ] {
            assert!(ended.err.contains(words), "{verb}: {words} in {ended:?}");
        }
        assert!(
            ended.err.contains("`lamp init aws`") && ended.err.contains("nothing was started"),
            "{verb}: {ended:?}"
        );
    }
    let named = with("run", &["--job-root", "s3://not-there-7f3k2q/jobs"]);
    assert!(
        named.code == 102
            && named.err.contains("no bucket `not-there-7f3k2q`, no instance profile"),
        "{named:?}"
    );
    assert!(user.ec2.instances().is_empty(), "nothing is bought");

    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let planned = with("plan", &["-o", "json"]);
    let document: Value =
        serde_json::from_str(&planned.out).unwrap_or_else(|error| panic!("{error}: {planned:?}"));
    assert_eq!((planned.code, &document["lacks"]), (0, &Value::Array(Vec::new())), "{planned:?}");
}

/// The bucket lies in the first region that `lamp init aws` is given: where another one lacks
/// something, the hint names both, in that order, and what it says to type mends it.
#[test]
fn second_region_that_lacks_setup_is_mended_by_the_hinted_init() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let plan = || {
        user.lamp(&[
            "plan",
            "--region",
            "us-east-2",
            "--cloud",
            "aws",
            "--instance-type",
            "t3.micro",
            "--max-runtime",
            "1h",
            "--",
            "true",
        ])
    };
    let lacking = plan();
    assert_eq!(lacking.code, 102, "as `lamp run` would end: {lacking:?}");
    assert!(lacking.err.contains("no security group `lamplighter` in us-east-2"), "{lacking:?}");
    let hint = "`lamp init aws --region us-east-1 --region us-east-2` makes it there too";
    assert!(lacking.err.contains(hint), "{lacking:?}");
    let typed: Vec<&str> =
        hint.split('`').nth(1).expect("a command").split(' ').skip(1).chain(["--yes"]).collect();
    assert_eq!(user.lamp(&typed).code, 0);
    let ready = plan();
    assert!(
        ready.code == 0 && !ready.err.contains("not ready") && ready.out.contains("us-east-2"),
        "{ready:?}"
    );
    assert!(
        user.sandbox
            .read("home/.config/lamplighter/config.toml")
            .contains(&format!("s3://{}", user.bucket())),
        "the bucket is where it was"
    );
}

/// The same program, as a later C library would have marked it.
#[cfg(target_arch = "x86_64")]
fn of_the_future(program: &[u8]) -> Vec<u8> {
    let mut made = program.to_vec();
    let versions = program.windows(10).enumerate().filter(|(_, part)| {
        part.starts_with(b"GLIBC_2.") && part[8..].iter().all(u8::is_ascii_digit)
    });
    versions.for_each(|(at, _)| made[at + 8..at + 10].copy_from_slice(b"99"));
    made
}

/// An agent that the image cannot run is told before anything is packed or bought.
#[cfg(target_arch = "x86_64")]
#[test]
fn agent_too_new_for_the_image_is_refused_before_the_launch() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let agent = user.sandbox.path().join("agent-of-the-future");
    std::fs::write(
        &agent,
        of_the_future(&std::fs::read(env!("CARGO_BIN_EXE_lamp-agent")).expect("it was built")),
    )
    .expect("written");
    let lamp = |verb: &str| {
        let args = [
            verb,
            "--cloud",
            "aws",
            "--instance-type",
            "t3.micro",
            "--max-runtime",
            "1h",
            "--",
            "true",
        ];
        user.sandbox
            .end(user.sandbox.command(&args).envs(user.ec2.env()).env("LAMP_AGENT_BINARY", &agent))
    };
    let told = ["needs glibc 2.99", "(Ubuntu 22.04)", "has 2.35", "just agent-portable"];
    let (planned, run) = (lamp("plan"), lamp("run"));
    assert_eq!((planned.code, run.code), (104, 104), "{planned:?} {run:?}");
    assert!(
        told.iter().all(|words| planned.err.contains(words) && run.err.contains(words)),
        "{planned:?} {run:?}"
    );
    assert!(run.err.contains("nothing was started") && user.ec2.instances().is_empty(), "{run:?}");
}

/// Which machine is the cheapest depends on how fast the work is there, and the job file may say
/// so.
#[test]
fn offers_are_ranked_by_what_an_hour_of_work_costs() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let job = |speed: &str| {
        format!(
            "command = ['python3', 'train.py']\n[machine]\ncloud = 'aws'\ngpus = 'at least 16GiB'\ninstance_types = ['g5.xlarge', 'g4dn.xlarge']\n\
             {speed}\n[limits]\nmax_runtime = '20h'\nwork = '8h'\n"
        )
    };
    let plan = |speed: &str| {
        sandbox.write("job.toml", job(speed));
        let ended = sandbox.end(
            sandbox.command(&["plan", "job.toml"]).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)),
        );
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.out
    };
    let alike = plan("");
    assert!(alike.starts_with("g4dn.xlarge in us-east-1a, on-demand, $0.53/h"), "{alike}");
    assert!(
        alike.contains("A10G, T4 are taken to be equally fast for this work; `[machine.speed]` in the job file would say otherwise\n"),
        "{alike}"
    );
    let known = plan("speed = { A10G = 1.0, T4 = 0.3 }");
    assert!(known.starts_with("g5.xlarge in us-east-1a, on-demand, $1.01/h"), "{known}");
    for said in [
        "because it is the one that is expected to finish for the least of 10 that fit, at $1.01/h",
        "the speed of this work is taken to be 0.3 on T4, 1 on A10G\n",
        // 8 h and a start of twelve minutes at 1.022.
        "expected to cost $8.38 to finish: 8h of work there, a start included\n",
        "if there is none: g5.xlarge in us-east-1b, on-demand, $1.01/h, $8.38 to finish\n",
        "then: g4dn.xlarge in us-east-1a, on-demand, $0.53/h, $14.56 to finish\n",
    ] {
        assert!(known.contains(said), "{said:?} in\n{known}");
    }
    sandbox.write("job.toml", job("speed = { T4 = 0 }"));
    let wrong = sandbox.end(sandbox.command(&["check", "job.toml"]).envs(ec2.env()));
    assert!(
        wrong.code == 100
            && wrong.out.contains("`machine.speed`: `T4` is 0: not a number from 0.001 to 1000"),
        "{wrong:?}"
    );
}

/// One sentence, and what would do instead.
#[test]
fn bid_below_every_price_says_the_lowest_that_would_do() {
    let Some(ec2) = market() else { return };
    let low = plan(&ec2, &["--spot", "--max-price", "0.02"]);
    assert_eq!(low.code, 104, "{low:?}");
    for said in [
        "no offer fits: each of the 3 spot offers that would do costs more than the bid of $0.0200/h now, the cheapest $0.36/h (g5.xlarge in us-east-1b)\n",
        "hint: g5.xlarge in us-east-1b, spot costs $0.36/h now: `--max-price 0.36` would take it, and `--max-price auto` bids 15 % above the price\n",
    ] {
        assert!(low.err.contains(said), "{said:?} in\n{}", low.err);
    }
    // Where nothing presses, it is waited for, and the plan says for what.
    let waits = plan(
        &ec2,
        &["--spot-auto", "--checkpoint", "saved", "--max-price", "0.02", "--max-runtime", "3h"],
    );
    assert_eq!(waits.code, 0, "{waits:?}");
    assert!(waits.out.contains("it would wait for a cheaper machine"), "{}", waits.out);
    assert!(
        waits.out.starts_with("not now; with `--deadline`: g5.xlarge in us-east-1a, on-demand, "),
        "{}",
        waits.out
    );
    assert!(
        waits.out.contains("g5.xlarge in us-east-1b, spot costs $0.36/h now, more than its bid"),
        "{}",
        waits.out
    );
}

/// A region that does not exist has no address; whatever stands there instead is not asked to know
/// that.
#[test]
fn region_that_nobody_knows_is_named_beside_the_failure() {
    let sandbox = Sandbox::with_script();
    let mut command = sandbox.command(&[
        "plan",
        "--cloud",
        "aws",
        "--gpus",
        "A10G",
        "--region",
        "us-east-9",
        "--max-runtime",
        "24h",
        "--",
        "python3",
        "train.py",
    ]);
    let keys = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ];
    // Nobody listens there.
    command
        .envs(keys)
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let ended = sandbox.end(&mut command);
    assert_eq!(ended.code, 103, "{ended:?}");
    let hint = "hint: `us-east-9` is no region that this version knows (did you mean `us-east-1` or `us-east-2`?); --region names another";
    assert!(ended.err.contains(hint), "{}", ended.err);
}

/// The plan that docs/aws.md shows is what the program prints.
#[test]
fn plan_on_the_page_is_the_programs_own() {
    let Some(ec2) = market() else { return };
    let page = std::fs::read_to_string(crate::sandbox::repository().join("docs/aws.md"))
        .expect("it ships");
    let (_, rest) = page.split_once("```text\nt3.micro in ").expect("the page shows a plan");
    let shown = format!("t3.micro in {}", rest.split("```").next().unwrap_or_default());
    let command = page
        .lines()
        .find(|line| line.starts_with("lamp plan --cloud aws --instance-type t3.micro"))
        .expect("and how it is asked for");
    let image =
        page.lines().find_map(|line| line.strip_prefix("IMAGE=")).expect("and of which image");
    let (words, script) = command.split_once(" -- sh -c ").expect("a command");
    let words = words.replace("$IMAGE", image);
    let mut args: Vec<&str> = words.split(' ').skip(1).collect();
    args.extend(["--", "sh", "-c", script.trim_matches('\'')]);
    let sandbox = Sandbox::new();
    let first = sandbox.path().join("first");
    std::fs::create_dir(&first).expect("writable");
    // As the page has it: the account is ready by then, and a plan that `lamp run` would refuse
    // ends otherwise.
    let made = sandbox.end(sandbox.command(&["init", "aws", "--yes"]).envs(ec2.env()));
    assert_eq!(made.code, 0, "{made:?}");
    let ended = sandbox.end(sandbox.command(&args).envs(ec2.env()).current_dir(&first));
    assert_eq!(ended.code, 0, "{ended:?}");
    let timeless = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with("the machine ends at "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(timeless(&ended.out), timeless(&shown), "docs/aws.md shows another plan");
}
