//! `lamp plan` where AWS does not answer: the shipped catalogue, and never with the exit code of a
//! plan that can be launched.

use serde_json::Value;

use crate::plan::plan_aws::{market, root};
use crate::sandbox::{Ended, Sandbox, limit};

const A10G: [&str; 4] = ["--cloud", "aws", "--gpus", "A10G"];

/// Nobody has ever signed in here.
const NOBODY: [(&str, &str); 2] =
    [("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_REGION", "us-east-1")];

fn lamp(sandbox: &Sandbox, verb: &[&str], more: &[&str]) -> Ended {
    let all = [verb, &A10G, more, limit(more), &["--", "python3", "train.py"]].concat();
    sandbox.end(sandbox.command(&all).envs(NOBODY))
}

#[test]
fn plan_without_credentials_uses_the_shipped_catalogue() {
    let sandbox = Sandbox::with_script();
    for verb in [&["plan"][..], &["run", "--dry-run", "--detach"]] {
        let ended = lamp(&sandbox, verb, &["--max-runtime", "3h"]);
        assert_eq!(ended.code, 103, "{ended:?}");
        for said in [
            "by the catalogue that ships with `lamp`, not by AWS: on-demand prices of 2026-07-20, types and zones of 2026-10-27",
            "TYPE        REGION     GPUS      VCPUS  ON-DEMAND  ALL IN  TO FINISH\ng5.xlarge   us-east-1  1 x A10G      4      $1.01   $1.02          -\n",
            // Three hours, five minutes to save and two to power off, as a plan of EC2's prices
            // reckons them.
            "g5.xlarge in use1-az1, on-demand, $1.01/h: this machine costs at most $3.19, with its disk, its address and the power-off",
            "the whole job, which continues on another machine after an interruption or a loss, costs at most $516.24 by the catalogue, ",
            "because it is the cheapest of 15 that fit, at $1.01/h, $1.02/h with its disk and address\n",
            "launched now, its machine would end at ",
            "nothing of it was checked at AWS: not its quota, capacity, permission or image\n",
        ] {
            assert!(ended.out.contains(said), "{said:?} in\n{}", ended.out);
        }
        assert!(ended.err.contains("warning: this is not from EC2: no AWS credentials were found\nhint: `aws configure` makes some; "), "{ended:?}");
        assert!(
            ended
                .err
                .contains("nothing was started, and a launch waits until there are credentials\n"),
            "{ended:?}"
        );
        assert!(!ended.out.contains("spot bid") && !ended.err.contains("error:"), "{ended:?}");
    }
    let work = lamp(&sandbox, &["plan"], &["--work", "20h", "--max-runtime", "30h"]);
    assert!(
        work.out.contains("4      $1.01   $1.02     $20.64\n")
            && work.out.contains("expected to cost $20.64 to finish: 20h of work there"),
        "{work:?}"
    );
}

/// What is sold as 24 GB has 22 GiB, and whoever asked for 24 wonders.
#[test]
fn gpu_of_less_memory_than_was_asked_for_says_why_it_will_do() {
    let sandbox = Sandbox::with_script();
    let of = |gpus: &str| {
        let words = [
            "plan",
            "--cloud",
            "aws",
            "--gpus",
            gpus,
            "--max-runtime",
            "3h",
            "--",
            "python3",
            "train.py",
        ];
        sandbox.end(sandbox.command(&words).envs(NOBODY)).out
    };
    let why = "; up to a tenth less than 24 GiB will do, since makers count in billions of bytes\n";
    let asked = of("at least 24GiB");
    assert!(asked.contains(&format!("it has 1 x L4 of 22 GiB and 4 vCPUs{why}")), "{asked}");
    assert!(!of("at least 22GiB").contains(why) && !of("L4").contains("a tenth less"));
}

#[test]
fn spot_job_without_a_higher_bid_is_capped_by_on_demand_price() {
    let sandbox = Sandbox::with_script();
    let spot =
        lamp(&sandbox, &["plan"], &["--spot", "--checkpoint", "saved", "--max-runtime", "3h"]);
    let ceiling = "`market = \"spot\"`: the figures are those on demand; for the same machine no spot bid of this job is higher\n";
    assert!(
        spot.code == 103
            && spot.out.contains(ceiling)
            && spot.out.contains(", on-demand, $1.01/h: "),
        "{spot:?}"
    );
    let high = lamp(
        &sandbox,
        &["plan"],
        &["--spot", "--checkpoint", "saved", "--max-runtime", "3h", "--max-price", "3"],
    );
    let no_ceiling = "lets an hour of a spot machine cost up to $3.00/h, more than on demand: for that the figures above are no ceiling\n";
    assert!(high.out.contains(no_ceiling) && !high.out.contains(ceiling), "{high:?}");
    // Who chooses the market anew each time is not counted by the number of interruptions.
    let auto = lamp(
        &sandbox,
        &["plan"],
        &["--spot-auto", "--checkpoint", "saved", "--max-runtime", "3h", "--interruptions", "2"],
    );
    assert!(
        auto.out.contains("`market = \"auto\"`: ")
            && auto.out.contains("can cost that much again each time, and nothing bounds it"),
        "{auto:?}"
    );
}

#[test]
fn region_the_catalogue_lacks_has_no_plan_and_run_is_refused() {
    let sandbox = Sandbox::with_script();
    let elsewhere = lamp(&sandbox, &["plan"], &["--region", "eu-west-1"]);
    assert!(elsewhere.code == 103 && elsewhere.out.is_empty(), "{elsewhere:?}");
    assert!(
        elsewhere.err.contains("error: no AWS credentials were found\nnothing was started or billed; the catalogue that ships with `lamp` has no plan"),
        "{elsewhere:?}"
    );
    let why = "the catalogue that ships with `lamp` has no plan: it lacks prices of eu-west-1 and has only us-east-1\n";
    assert!(elsewhere.err.contains(why), "{elsewhere:?}");
    let run = lamp(&sandbox, &["run"], &["--max-runtime", "3h"]);
    assert!(
        run.code == 103
            && run.out.is_empty()
            && run.err.contains("error: no AWS credentials were found"),
        "{run:?}"
    );
    assert_eq!(sandbox.lamp(&["status", "-o", "json"]).out.matches("\"job\"").count(), 0);
}

#[test]
fn plan_refused_without_asking_aws_ends_with_its_own_code() {
    let sandbox = Sandbox::with_script();
    let late = lamp(&sandbox, &["plan"], &["--work", "20h", "--deadline", "4h"]);
    assert!(
        late.code == 102 && late.err.contains("the deadline cannot be met, even on demand"),
        "{late:?}"
    );
    let poor = lamp(&sandbox, &["plan"], &["--budget", "0.01", "--market", "on-demand"]);
    let said = "that is by the catalogue's prices of 2026-07-20: no AWS credentials were found\n";
    assert!(
        poor.code == 104
            && poor
                .err
                .contains("error: no offer fits: each of the 40 offers that would do is too dear")
            && poor.err.contains(said),
        "{poor:?}"
    );
    assert!(
        poor.err.contains("hint: `--budget 0.2") && !poor.err.contains("error: no AWS"),
        "{poor:?}"
    );
    let document =
        lamp(&sandbox, &["-o", "json", "plan"], &["--budget", "0.01", "--market", "on-demand"]);
    let said: Value = serde_json::from_str(document.err.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {document:?}"));
    assert!(
        document.code == 104 && document.out.is_empty() && said["error"]["code"] == 104,
        "{document:?}"
    );
    sandbox.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 0.1\n");
    let capped = lamp(&sandbox, &["plan"], &["--max-runtime", "3h"]);
    assert!(
        capped.code == 102 && capped.err.contains("it would wait for ever for the cap of $0.10"),
        "{capped:?}"
    );
    sandbox.write("home/.config/lamplighter/config.toml", "");
    // On the spot market it may buy one: nobody knows.
    let perhaps =
        lamp(&sandbox, &["plan"], &["--budget", "0.01", "--market", "spot", "--max-price", "auto"]);
    assert!(
        perhaps.code == 103
            && perhaps.err.contains("error: no AWS credentials were found\nnothing was started or billed; the catalogue that ships with `lamp` has no plan"),
        "{perhaps:?}"
    );
}

#[test]
fn name_that_nobody_knows_is_the_first_hint() {
    let sandbox = Sandbox::with_script();
    let typed = |flag: &str, name: &str| lamp(&sandbox, &["plan"], &[flag, name]).err;
    let region = typed("--region", "us-esat-1");
    assert!(
        region
            .contains("hint: `machine.regions`: `us-esat-1` is no region that this version knows"),
        "{region}"
    );
    let kind = typed("--instance-type", "g5.xlrage");
    assert!(
        kind.contains("hint: `machine.instance_types`: ")
            && kind.contains("; `aws configure` makes some"),
        "{kind}"
    );
}

/// Somebody with keys, and no line.
#[test]
fn where_aws_does_not_answer_the_catalogue_plans_too() {
    let sandbox = Sandbox::with_script();
    let words =
        [&["plan"], &A10G[..], &["--max-runtime", "3h", "--", "python3", "train.py"]].concat();
    let mut command = sandbox.command(&words);
    command.envs(NOBODY).envs([
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ]);
    let ended = sandbox.end(&mut command);
    assert!(
        ended.code == 103 && ended.out.contains("by the catalogue that ships with `lamp`"),
        "{ended:?}"
    );
    assert!(ended.err.contains("a launch waits until AWS answers, and allows it\n"), "{ended:?}");
}

/// Who reads one document reads the other, and is told which it is.
#[test]
fn plan_json_of_the_catalogue_has_all_fields_and_its_source() {
    let sandbox = Sandbox::with_script();
    let ended = lamp(&sandbox, &["plan"], &["--max-runtime", "3h", "-o", "json"]);
    assert!(ended.code == 103 && ended.err.is_empty(), "{ended:?}");
    let shipped: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let source = &shipped["source"];
    assert_eq!((&source["name"], &source["as_of"]), (&"catalogue".into(), &"2026-07-20".into()));
    assert_eq!(
        (&source["because"], &shipped["unanswered"]),
        (&"no AWS credentials were found".into(), &"no AWS credentials were found".into())
    );
    assert!((3.18..3.19).contains(&shipped["most_usd_offer"].as_f64().unwrap()), "{shipped}");
    let local = sandbox.lamp(&["plan", "-o", "json", "--", "python3", "train.py"]);
    let local: Value =
        serde_json::from_str(&local.out).unwrap_or_else(|error| panic!("{error}: {local:?}"));
    assert_eq!(local["source"]["name"], "local");
    let names = |document: &Value| {
        document.as_object().expect("an object").keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&shipped), names(&local));
    let Some(ec2) = market() else { return };
    let words = [
        &["plan"],
        &A10G[..],
        &[
            "--instance-type",
            "g5.xlarge",
            "--max-runtime",
            "3h",
            "-o",
            "json",
            "--",
            "python3",
            "train.py",
        ],
    ]
    .concat();
    let asked =
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)));
    let asked: Value =
        serde_json::from_str(&asked.out).unwrap_or_else(|error| panic!("{error}: {asked:?}"));
    assert_eq!((&asked["source"]["name"], names(&asked)), (&"ec2".into(), names(&shipped)));
}
