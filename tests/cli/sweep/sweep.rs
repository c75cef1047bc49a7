//! `lamp sweep` as a program, over all regions: what it finds, shows, ends and leaves alone.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::Tags;
use lamplighter::job::{AttemptNo, BOOT};
use lamplighter::market::Span;
use serde_json::{Value, json};

use crate::sandbox::{Ended, Sandbox};
use lamp_test_support::ec2::{FalseEc2, Fault, IMAGE, OWNER, Options, State};

const REGIONS: [&str; 2] = ["us-east-1", "us-east-2"];

fn cloud() -> Option<FalseEc2> {
    FalseEc2::start(Options {
        pending: Duration::ZERO,
        stopping: Duration::ZERO,
        ..Options::default()
    })
}

fn launch(ec2: &FalseEc2, region: &str, tags: &BTreeMap<String, String>) -> String {
    let params =
        [("ImageId", IMAGE), ("InstanceType", "g5.xlarge"), ("MinCount", "1"), ("MaxCount", "1")];
    let id = ec2.ask_in(region, "RunInstances", &params).expect("launched").all("instanceId")[0]
        .text
        .clone();
    ec2.tag(&id, tags);
    id
}

/// One of ours that should have ended an hour ago, or in an hour.
fn ours(ec2: &FalseEc2, region: &str, hours: i64) -> String {
    let kill_at = Some(Timestamp::now() + SignedDuration::from_hours(hours));
    let job = "digits-222222".parse().expect("an id");
    let tags = Tags {
        owner: OWNER.into(),
        job,
        attempt: AttemptNo::FIRST,
        lease: Span::from_secs(1800),
        boot: BOOT,
        kill_at,
    };
    launch(ec2, region, &tags.to_map())
}

fn volume(ec2: &FalseEc2, region: &str) -> String {
    let zone = format!("{region}a");
    let tag = [
        ("TagSpecification.1.ResourceType", "volume"),
        ("TagSpecification.1.Tag.1.Key", "lamplighter:owner"),
    ];
    let params = [
        &[
            ("Size", "100"),
            ("AvailabilityZone", zone.as_str()),
            ("TagSpecification.1.Tag.1.Value", OWNER),
        ][..],
        &tag,
    ]
    .concat();
    ec2.ask_in(region, "CreateVolume", &params).expect("made").all("volumeId")[0].text.clone()
}

fn sweep(ec2: &FalseEc2, args: &[&str]) -> Ended {
    sweep_in(&Sandbox::new(), ec2, args)
}

fn sweep_in(sandbox: &Sandbox, ec2: &FalseEc2, args: &[&str]) -> Ended {
    let words = [&["sweep"], args].concat();
    sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_OWNER", OWNER))
}

fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn of<'a>(list: &'a Value, id: &str) -> &'a Value {
    list.as_array()
        .expect("a list")
        .iter()
        .find(|one| one["instance"] == id || one["id"] == id)
        .unwrap_or_else(|| panic!("{id} in {list}"))
}

fn lives(ec2: &FalseEc2, id: &str) -> bool {
    ec2.instance(id).state == State::Running
}

#[test]
fn sweep_without_yes_shows_orphans_of_all_regions_and_ends_none() {
    let Some(ec2) = cloud() else { return };
    let orphans = REGIONS.map(|region| ours(&ec2, region, -1));
    let healthy = ours(&ec2, REGIONS[1], 1);
    let shown = sweep(&ec2, &["--dry-run", "-o", "json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let machines = document(&shown)["machines"].clone();
    for (id, region) in orphans.iter().zip(REGIONS) {
        let machine = of(&machines, id);
        assert_eq!((&machine["region"], &machine["verdict"]), (&region.into(), &"orphan".into()));
        assert!(
            machine["why"].as_str().is_some_and(|why| why.starts_with("its hard cap was ")),
            "{machine}"
        );
    }
    // Its job is in no job root that is known here.
    assert_eq!(of(&machines, &healthy)["verdict"], "stray");
    let text = sweep(&ec2, &["--dry-run"]);
    assert!(
        text.code == 0
            && orphans.iter().all(|id| text.out.contains(id.as_str()))
            && text.err.contains("nothing was done"),
        "{text:?}"
    );

    // Nobody can be asked here.
    for args in [&[][..], &["-o", "json"]] {
        let refused = sweep(&ec2, args);
        assert_eq!(refused.code, 102, "{refused:?}");
        assert!(
            refused.err.contains("this ends 2 machines, and this call cannot ask"),
            "{}",
            refused.err
        );
        assert!(refused.err.contains("--yes"), "{}", refused.err);
    }
    assert!(orphans.iter().chain([&healthy]).all(|id| lives(&ec2, id)), "and nothing was");
}

#[test]
fn sweep_with_yes_ends_confirmed_orphans_in_every_region() {
    let Some(ec2) = cloud() else { return };
    let orphans = REGIONS.map(|region| ours(&ec2, region, -1));
    let healthy = ours(&ec2, REGIONS[0], 1);
    let swept = sweep(&ec2, &["--yes"]);
    assert_eq!(swept.code, 0, "{swept:?}");
    assert!(
        orphans.iter().all(|id| swept
            .err
            .contains(&format!("asked the cloud to end {id} of job `digits-222222`; "))),
        "{}",
        swept.err
    );
    assert!(orphans.iter().all(|id| ec2.instance(id).state == State::Terminated));
    assert!(lives(&ec2, &healthy));
    // What is gone is kept by nobody, for people and for machines.
    let after = document(&sweep(&ec2, &["--dry-run", "-o", "json"]))["machines"].clone();
    let left: Vec<&str> = after
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["instance"].as_str())
        .collect();
    assert_eq!(left, [healthy.as_str()]);
}

/// What was done stands in the document: whoever reads it reads no prose beside it.
#[test]
fn what_was_ended_and_removed_is_told_to_programs() {
    let Some(ec2) = cloud() else { return };
    let [orphan, stubborn] = REGIONS.map(|region| ours(&ec2, region, -1));
    let stray = ours(&ec2, REGIONS[0], 1);
    let [disk, stuck] = REGIONS.map(|region| volume(&ec2, region));
    for args in [&["--residue", "--dry-run", "-o", "json"][..], &["--residue", "-o", "json"]] {
        let shown = document(&sweep(&ec2, args));
        assert!(
            of(&shown["machines"], &orphan)["done"].is_null()
                && of(&shown["residue"], &disk)["removed"].is_null(),
            "{shown:#}"
        );
    }
    ec2.fault(
        Fault::code("TerminateInstances", "UnauthorizedOperation")
            .when("region", REGIONS[1])
            .always(),
    );
    ec2.fault(
        Fault::code("DeleteVolume", "UnauthorizedOperation").when("region", REGIONS[1]).always(),
    );
    let swept = sweep(&ec2, &["--residue", "--yes", "-o", "json"]);
    assert_eq!(swept.code, 103, "{swept:?}");
    let told = document(&swept);
    for (id, done) in
        [(&orphan, Value::from("asked")), (&stubborn, "failed".into()), (&stray, Value::Null)]
    {
        let machine = of(&told["machines"], id);
        assert_eq!(machine["done"], done, "{told:#}");
        let trouble = machine["trouble"].as_str().is_some_and(|why| {
            why.starts_with("may still run and bill: ") && why.contains("UnauthorizedOperation")
        });
        assert_eq!(trouble, *id == stubborn, "{machine}");
    }
    for (id, removed) in [(&disk, true), (&stuck, false)] {
        assert_eq!(of(&told["residue"], id)["removed"], removed, "{told:#}");
    }
    let named = document(&sweep(&ec2, &["--machine", &stray, "--yes", "-o", "json"]));
    assert_eq!(
        (&named["machines"][0]["instance"], &named["machines"][0]["done"]),
        (&stray.as_str().into(), &"asked".into()),
        "{named:#}"
    );
}

/// A sweep cannot know what its disk holds: it is said each time, and the exit code is no success.
#[test]
fn sweep_reports_an_unstoppable_machine_with_price_and_remedy() {
    let Some(ec2) = cloud() else { return };
    let kept = ours(&ec2, REGIONS[0], -1);
    let sandbox = Sandbox::new();
    let at = |name: &str| format!("root/jobs/digits-222222/{name}.json");
    sandbox.write(&at("spec"), include_str!("../../data/v1/spec.json"));
    let settled = include_str!("../../data/v1/settled.json")
        .replace("\"because\": \"interrupted\",", "\"because\": \"succeeded\", \"kept\": true,");
    sandbox.write(&at("attempts/0001/settled"), settled);
    ec2.fault(Fault::code("StopInstances", "UnsupportedOperation").always());
    let sweep = |args: &[&str]| sweep_in(&sandbox, &ec2, &[&["--job-root", "root"], args].concat());
    let named = ["--machine", kept.as_str(), "--yes"];
    let (told, said, named) = std::thread::scope(|scope| {
        let (told, said) =
            (scope.spawn(|| sweep(&["--yes", "-o", "json"])), scope.spawn(|| sweep(&["--yes"])));
        let named = sweep(&named);
        (told.join().expect("it ends"), said.join().expect("it ends"), named)
    });
    for swept in [&said, &named] {
        let warned = swept.err.lines().find(|line| {
            line.starts_with(&format!(
                "warning: {kept} in us-east-1 runs on and bills $1.01/h: cannot stop"
            ))
        });
        let warned = warned.unwrap_or_else(|| panic!("{swept:?}"));
        assert!(
            swept.code == 103 && warned.ends_with("`lamp --job-root root cancel digits-222222` ends it for good, and its disk goes with it"),
            "{swept:?}"
        );
    }
    let machine = of(&document(&told)["machines"], &kept).clone();
    assert_eq!(
        (told.code, &machine["done"], &machine["job"]),
        (103, &"unstoppable".into(), &"digits-222222".into()),
        "{told:?}"
    );
    assert!(
        machine["trouble"]
            .as_str()
            .is_some_and(|why| why.contains("/h: cannot stop")
                && why.contains("`lamp cancel digits-222222`")),
        "{machine}"
    );
    assert!(lives(&ec2, &kept) && ec2.calls_of("TerminateInstances").is_empty());
}

/// Who says yes sees what the job goes on from, and what the machine has cost.
#[test]
fn sweep_shows_the_newest_checkpoint_before_it_ends_an_orphan() {
    let Some(ec2) = cloud() else { return };
    let orphan = ours(&ec2, REGIONS[0], -1);
    let sandbox = Sandbox::new();
    let sweep = |args: &[&str]| sweep_in(&sandbox, &ec2, &[&["--job-root", "root"], args].concat());
    let nothing = sweep(&["--dry-run", "-o", "json"]);
    assert_eq!(
        of(&document(&nothing)["machines"], &orphan)["checkpoint"],
        Value::Null,
        "nobody knows its job here: {nothing:?}"
    );
    assert!(!sweep(&["--dry-run"]).out.contains("checkpoint"));

    for (number, minutes, step) in [(6, 70, 1100), (7, 12, 1200)] {
        let created =
            Timestamp::now() - SignedDuration::from_mins(minutes) - SignedDuration::from_secs(5);
        let manifest = json!({"format": 1, "number": number, "attempt": 1, "created": created.to_string(), "step": step, "files": [],
            "save_secs": 0.1, "upload_secs": 0.1});
        sandbox.write(
            &format!("root/jobs/digits-222222/checkpoints/000{number}/manifest.json"),
            manifest.to_string(),
        );
    }
    let shown = sweep(&["--dry-run", "-o", "json"]);
    let newest = of(&document(&shown)["machines"], &orphan)["checkpoint"].clone();
    assert_eq!(
        (&newest["number"], &newest["step"], newest["created"].is_string()),
        (&7.into(), &1200.0.into(), true),
        "{shown:?}"
    );
    let asked = sweep(&[]);
    assert_eq!(asked.code, 102, "{asked:?}");
    assert!(
        asked
            .out
            .contains(" so far; the newest checkpoint of `digits-222222` is 7 (step 1200), 12m"),
        "{asked:?}"
    );
    assert!(asked.out.contains(&format!("{orphan}: $0.")) && lives(&ec2, &orphan), "{asked:?}");
}

/// Nobody here knows their jobs: only the one that is named ends, and only where it carries this
/// owner's tags.
#[test]
fn machine_of_an_unknown_job_ends_by_its_id_alone() {
    let Some(ec2) = cloud() else { return };
    let [named, other] = REGIONS.map(|region| ours(&ec2, region, 1));
    let theirs = launch(&ec2, REGIONS[0], &{
        let mut tags = ec2.instance(&named).tags;
        tags.insert("lamplighter:owner".into(), "bob".into());
        tags
    });
    let text = sweep(&ec2, &["--dry-run"]);
    assert!(
        text.out.contains("the job of 2 machines of yours is unknown here")
            && text.out.contains("59m")
            && text.out.contains("1.01"),
        "{text:?}"
    );
    let shown = document(&sweep(&ec2, &["--dry-run", "-o", "json"]))["machines"].clone();
    let stray = of(&shown, &named);
    assert!(
        stray["kill_at"].is_string() && stray["usd_per_hour"].as_f64().is_some_and(|usd| usd > 0.9),
        "{stray}"
    );
    for (words, code) in [
        (&["--machine", &theirs, "--yes"][..], 101),
        (&["--machine", &named], 102),
        (&["--machine", &named, "--dry-run"], 0),
    ] {
        let ended = sweep(&ec2, words);
        assert_eq!(ended.code, code, "{ended:?}");
        assert!([&named, &other, &theirs].iter().all(|id| lives(&ec2, id)), "{words:?}: {ended:?}");
    }
    let both = sweep(&ec2, &["--machine", &named, "--machine", &theirs, "--yes"]);
    assert!(
        both.code == 101 && lives(&ec2, &named),
        "none, where one of them is not ours: {both:?}"
    );
    let ended = sweep(&ec2, &["--machine", &named, "--yes"]);
    assert!(
        ended.code == 0
            && ended
                .err
                .contains(&format!("asked the cloud to end {named} of job `digits-222222`")),
        "{ended:?}"
    );
    assert_eq!(ec2.instance(&named).state, State::Terminated);
    assert!(lives(&ec2, &other) && lives(&ec2, &theirs));
    let again = sweep(&ec2, &["--machine", &named, "--yes"]);
    assert!(
        again.code == 0 && again.err.contains("is terminated: nothing of it is left to end"),
        "{again:?}"
    );
}

/// The disk of one that stands bills, and `lamp cancel` of its job finds no job.
#[test]
fn stopped_machine_of_an_unknown_job_is_told_of_and_ended_too() {
    let Some(ec2) = cloud() else { return };
    let stopped = ours(&ec2, REGIONS[0], 1);
    ec2.ask_in(REGIONS[0], "StopInstances", &[("InstanceId.1", &stopped)]).expect("stopped");
    let shown = sweep(&ec2, &["--dry-run"]);
    assert!(shown.out.contains(&stopped) && shown.out.contains("stopped"), "{shown:?}");
    let ended = sweep(&ec2, &["--machine", &stopped, "--yes"]);
    assert!(ended.code == 0 && ec2.instance(&stopped).state == State::Terminated, "{ended:?}");
}

#[test]
fn what_is_left_over_is_priced_and_removed_only_with_a_yes() {
    let Some(ec2) = cloud() else { return };
    let disks = REGIONS.map(|region| volume(&ec2, region));
    let there = |id: &str, region: &str| {
        ec2.ask_in(region, "DescribeVolumes", &[])
            .expect("told")
            .all("volumeId")
            .iter()
            .any(|one| one.text == id)
    };
    let shown = sweep(&ec2, &["--dry-run", "--residue", "-o", "json"]);
    let left = of(&document(&shown)["residue"], &disks[0]).clone();
    assert_eq!(
        (&left["kind"], &left["ours"], &left["usd_per_month"]),
        (&"volume".into(), &true.into(), &8.0.into())
    );
    let refused = sweep(&ec2, &["--residue"]);
    assert_eq!(refused.code, 102, "{refused:?}");
    assert!(
        refused
            .err
            .contains("this removes 2 things that no machine needs, and this call cannot ask"),
        "{}",
        refused.err
    );
    assert!(disks.iter().zip(REGIONS).all(|(id, region)| there(id, region)));
    let kept = sweep(&ec2, &["--yes"]);
    assert!(
        kept.code == 0 && disks.iter().zip(REGIONS).all(|(id, region)| there(id, region)),
        "only where it was asked for: {kept:?}"
    );
    let removed = sweep(&ec2, &["--residue", "--yes"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert!(!disks.iter().zip(REGIONS).any(|(id, region)| there(id, region)), "{removed:?}");
}

#[test]
fn foreign_machines_are_listed_with_age_and_cost_and_left_alone() {
    let Some(ec2) = cloud() else { return };
    let name = |name: &str| BTreeMap::from([("Name".to_owned(), name.to_owned())]);
    let foreign = REGIONS.map(|region| launch(&ec2, region, &name("notebook")));
    let mine = ours(&ec2, REGIONS[0], 1);
    let at = (Timestamp::now() - SignedDuration::from_hours(1))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let measured = |namespace: &str, name: &str, value: &str, more: &[(&str, &str)]| {
        let mut params: Vec<(String, String)> =
            [("Namespace", namespace), ("MetricData.member.1.MetricName", name)]
                .into_iter()
                .chain([
                    ("MetricData.member.1.Timestamp", at.as_str()),
                    ("MetricData.member.1.Value", value),
                ])
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
        for (number, (name, value)) in
            [("InstanceId", foreign[0].as_str())].iter().chain(more).enumerate()
        {
            let key = format!("MetricData.member.1.Dimensions.member.{}", number + 1);
            params.extend([
                (format!("{key}.Name"), (*name).to_owned()),
                (format!("{key}.Value"), (*value).to_owned()),
            ]);
        }
        let params: Vec<(&str, &str)> =
            params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        // On a busy machine moto closes a connection now and then. The same value twice changes
        // no average.
        let is_told = (0..5).any(|_| ec2.ask_cloudwatch("PutMetricData", &params).is_ok());
        assert!(is_told, "{name} is published");
    };
    measured("AWS/EC2", "CPUUtilization", "6", &[]);
    for (index, percent) in [("0", "3"), ("1", "94")] {
        measured(
            "CWAgent",
            "nvidia_smi_utilization_gpu",
            percent,
            &[("index", index), ("name", "NVIDIA A10G"), ("host", "ip-10-0-0-7")],
        );
    }
    let shown = sweep(&ec2, &["--foreign", "-o", "json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let list = document(&shown)["foreign"].clone();
    let used =
        |id: &str| (of(&list, id)["cpu_percent"].as_f64(), of(&list, id)["gpu_percent"].as_f64());
    assert_eq!(
        [used(&foreign[0]), used(&foreign[1])],
        [(Some(6.0), Some(94.0)), (None, None)],
        "{list:#}"
    );
    assert!(
        ["cpu_percent", "gpu_percent"]
            .iter()
            .all(|field| of(&list, &foreign[1]).get(field) == Some(&Value::Null)),
        "unknown, and said so"
    );
    for (id, region) in foreign.iter().zip(REGIONS) {
        let machine = of(&list, id);
        assert_eq!((&machine["region"], &machine["name"]), (&region.into(), &"notebook".into()));
        let number =
            |field: &str| machine[field].as_f64().unwrap_or_else(|| panic!("{field} of {machine}"));
        assert!((0.0..1.0).contains(&number("age_hours")), "{machine}");
        assert!(number("usd_per_hour") > 0.9, "{machine}");
        assert!(
            (number("usd_so_far") - number("age_hours") * number("usd_per_hour")).abs() < 1e-6,
            "{machine}"
        );
    }
    assert!(!list.to_string().contains(&mine));
    let text = sweep(&ec2, &["--foreign"]);
    assert!(
        text.code == 0
            && foreign.iter().all(|id| text.out.contains(id.as_str()))
            && text.out.contains("$0."),
        "{text:?}"
    );
    let cells = |row: &str| {
        text.out
            .lines()
            .find(|line| line.contains(row))
            .map(|line| line.split_whitespace().rev().take(2).collect::<Vec<_>>())
    };
    assert!(text.out.lines().next().is_some_and(|line| line.ends_with("CPU  GPU")), "{text:?}");
    assert_eq!(
        [cells(&foreign[0]), cells(&foreign[1])],
        [Some(vec!["94%", "6%"]), Some(vec!["?", "?"])],
        "{text:?}"
    );
    assert!(foreign.iter().all(|id| lives(&ec2, id)));
}

/// What nobody could look at is not said to be clean.
#[test]
fn without_credentials_no_foreign_machine_is_said_not_to_run() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["sweep", "--foreign"]);
    let looked = sandbox.end(
        command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    );
    assert_eq!(looked.code, 103, "{looked:?}");
    assert!(
        looked.out.contains("the regions that answered have no GPU machine")
            && !looked.out.contains(" runs"),
        "{looked:?}"
    );
}

/// Neither ours nor a stranger's by its tags: no other look shows it, and a set-up cannot be taken
/// away while nobody knows of it.
#[test]
fn machine_with_our_tag_that_is_no_launch_is_listed_as_odd() {
    let Some(ec2) = cloud() else { return };
    let tagged = |owner: &str| BTreeMap::from([("lamplighter:owner".to_owned(), owner.to_owned())]);
    let half = launch(&ec2, REGIONS[0], &tagged(OWNER));
    let thief = launch(&ec2, REGIONS[1], &tagged("thief"));
    let small = {
        let params =
            [("ImageId", IMAGE), ("InstanceType", "t3.nano"), ("MinCount", "1"), ("MaxCount", "1")];
        let id =
            ec2.ask_in(REGIONS[0], "RunInstances", &params).expect("launched").all("instanceId")[0]
                .text
                .clone();
        ec2.tag(&id, &tagged(OWNER));
        id
    };
    let mine = ours(&ec2, REGIONS[0], 1);
    let shown = sweep(&ec2, &["--foreign", "-o", "json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let list = document(&shown)["foreign"].clone();
    for (id, owner) in [(&half, OWNER), (&thief, "thief"), (&small, OWNER)] {
        let odd = of(&list, id)["odd"].as_str().unwrap_or_else(|| panic!("{list}"));
        assert_eq!(
            odd,
            format!(
                "it carries `lamplighter:owner` = `{owner}`, and is no launch of `lamp`: tag `lamplighter:job` is missing"
            )
        );
    }
    assert!(!list.to_string().contains(&mine));
    let text = sweep(&ec2, &["--foreign"]);
    assert!(
        text.out.contains(&half)
            && text.err.contains(&format!(
                "{thief} in us-east-2: it carries `lamplighter:owner` = `thief`"
            )),
        "{text:?}"
    );
    assert!([&half, &thief, &small].iter().all(|id| lives(&ec2, id)), "and nothing touches them");
}
