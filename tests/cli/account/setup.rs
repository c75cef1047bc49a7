//! `lamp init aws` and `lamp uninit aws` against a false AWS: what is shown, what is made, and that
//! a second time changes nothing.

#![cfg(feature = "aws")]

use serde_json::Value;

use crate::sandbox::{Ended, Sandbox};
use lamp_test_support::ec2::{FalseEc2, Fault, Options, State};

/// A user of an account of its own.
pub struct User {
    pub ec2: FalseEc2,
    pub sandbox: Sandbox,
}

impl User {
    /// `None`, in words, where moto is not installed.
    pub fn new() -> Option<Self> {
        let ec2 = FalseEc2::start(Options::default())?;
        Some(User { ec2, sandbox: Sandbox::new() })
    }

    pub fn lamp(&self, args: &[&str]) -> Ended {
        self.sandbox.end(self.sandbox.command(args).envs(self.ec2.env()))
    }

    pub fn json(&self, args: &[&str]) -> (i32, Value) {
        let ended = self.lamp(&[args, &["-o", "json"]].concat());
        (
            ended.code,
            serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}")),
        )
    }

    pub fn bucket(&self) -> String {
        format!("lamplighter-{}-us-east-1", self.ec2.account())
    }

    /// What was changed in the cloud: the calls that are neither questions nor the false EC2's own.
    pub fn changes(&self) -> Vec<String> {
        let asks = |action: &str| {
            ["Describe", "Get", "List", "HEAD", "GET"].iter().any(|verb| action.starts_with(verb))
        };
        self.ec2
            .take_calls()
            .into_iter()
            .map(|call| call.action)
            .filter(|action| !asks(action))
            .collect()
    }
}

const CONFIG: &str = "home/.config/lamplighter/config.toml";

#[test]
fn account_is_made_ready_once() {
    let Some(user) = User::new() else { return };
    user.sandbox.write(CONFIG, "# mine\n[watch]\nidle = \"10m\"\n");
    let dry = user.lamp(&["init", "aws", "--dry-run"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    for words in [
        "create, tag as ours, keep versions, block public access, encrypt by default",
        "role lamplighter-box",
        "THING",
    ] {
        assert!(dry.out.contains(words), "{words}: {}", dry.out);
    }
    assert_eq!(user.changes(), Vec::<String>::new(), "--dry-run only looks");
    assert_eq!(user.sandbox.read(CONFIG), "# mine\n[watch]\nidle = \"10m\"\n");

    let refused = user.lamp(&["init", "aws"]);
    assert_eq!((refused.code, refused.err.contains("--yes")), (102, true), "{refused:?}");
    assert_eq!(user.changes(), Vec::<String>::new());

    let made = user.lamp(&["init", "aws", "--yes"]);
    assert_eq!(made.code, 0, "{made:?}");
    let changes = user.changes();
    for action in [
        "CreateRole",
        "PutRolePolicy",
        "CreateInstanceProfile",
        "AddRoleToInstanceProfile",
        "CreateSecurityGroup",
        "CreateServiceLinkedRole",
    ] {
        assert!(changes.iter().any(|change| change == action), "{action} in {changes:?}");
    }
    let config = user.sandbox.read(CONFIG);
    for line in [
        "# mine",
        "idle = \"10m\"",
        &format!("job_root = \"s3://{}\"", user.bucket()),
        "security_group = \"lamplighter\"",
    ] {
        assert!(config.contains(line), "{line} in\n{config}");
    }

    let (code, again) = user.json(&["init", "aws", "--yes"]);
    assert_eq!((code, again["done"].as_bool()), (0, Some(true)));
    for line in again["lines"].as_array().expect("lines") {
        assert_eq!(
            (line["steps"].as_array().map(Vec::len), &line["remark"]),
            (Some(0), &Value::Null),
            "{line}"
        );
    }
    assert_eq!(user.changes(), Vec::<String>::new(), "a second time changes nothing");
    assert_eq!(user.sandbox.read(CONFIG), config);
}

/// Whatever broke it off: the same words go on.
#[test]
fn what_was_broken_off_is_finished() {
    let Some(user) = User::new() else { return };
    user.ec2
        .fault(Fault::code("CreateInstanceProfile", "AccessDenied").saying("you may not").always());
    let ended = user.lamp(&["init", "aws", "--yes"]);
    assert_eq!(ended.code, 103, "{ended:?}");
    assert!(
        ended.err.contains("cannot create the instance profile: AccessDenied: you may not")
            && ended.err.contains("goes on"),
        "{ended:?}"
    );
    user.ec2.mend();
    let ended = user.lamp(&["init", "aws", "--yes"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.out.contains("there, versioned, private, encrypted, with a lifecycle"),
        "{}",
        ended.out
    );
}

/// Shells cost permissions: they are let in where that is asked for, and taken back with all the
/// rest.
#[test]
fn shells_are_let_in_when_asked_for() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    assert_eq!(user.changes().iter().filter(|change| *change == "PutRolePolicy").count(), 1);
    let made = user.lamp(&["init", "aws", "--yes", "--session-manager"]);
    assert!(
        made.code == 0 && made.out.contains("let shells in through Session Manager"),
        "{made:?}"
    );
    assert_eq!(user.changes(), ["PutRolePolicy"]);
    // Both ways of asking find nothing to do now.
    for args in [&["init", "aws", "--yes", "--session-manager"][..], &["init", "aws", "--yes"]] {
        let again = user.lamp(args);
        assert!(
            again.code == 0 && again.out.contains("there, allows what a machine needs, and shells"),
            "{again:?}"
        );
        assert_eq!(user.changes(), Vec::<String>::new());
    }
    assert_eq!(user.lamp(&["uninit", "aws", "--yes"]).code, 0);
    let removed = user.changes();
    assert_eq!(
        removed.iter().filter(|change| *change == "DeleteRolePolicy").count(),
        2,
        "{removed:?}"
    );
    assert!(removed.iter().any(|change| change == "DeleteRole"), "{removed:?}");
}

/// Only who asks for it gets a group that lets anything in.
#[test]
fn group_for_gangs_is_made_when_asked_for() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    user.changes();
    let made = user.lamp(&["init", "aws", "--yes", "--gangs"]);
    assert!(made.code == 0 && made.out.contains("create and open to itself"), "{made:?}");
    assert_eq!(user.changes(), ["CreateSecurityGroup", "AuthorizeSecurityGroupIngress"]);
    let again = user.lamp(&["init", "aws", "--yes", "--gangs"]);
    assert!(again.code == 0 && again.out.contains("with a way in"), "{again:?}");
    assert_eq!(user.changes(), Vec::<String>::new());
    assert_eq!(user.lamp(&["uninit", "aws", "--yes"]).code, 0);
    let removed = user.changes();
    let groups = removed.iter().filter(|change| *change == "DeleteSecurityGroup");
    assert_eq!(groups.count(), 2, "{removed:?}");
}

/// Nobody can look: nothing is made twice, nothing is taken for absent.
#[test]
fn what_cannot_be_seen_is_not_made() {
    let Some(user) = User::new() else { return };
    user.ec2.fault(Fault::code("GetRole", "AccessDenied").saying("you may not look").always());
    let ended = user.lamp(&["init", "aws", "--yes"]);
    assert_eq!(ended.code, 102, "{ended:?}");
    assert!(
        ended.err.contains("you may not look") && ended.err.contains("nothing was changed"),
        "{ended:?}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());
}

#[test]
fn without_credentials_or_region_it_says_what_to_do() {
    let sandbox = Sandbox::new();
    let without = |more: &[(&str, &str)]| {
        let mut command = sandbox.command(&["init", "aws", "--dry-run"]);
        command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_CONFIG_FILE", "/dev/null")
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
        sandbox.end(command.envs(more.iter().copied()))
    };
    // What was typed is not enough, and nobody was asked.
    let ended = without(&[]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("nothing names one") && ended.err.contains("--region"), "{ended:?}");
    let ended = without(&[("AWS_REGION", "us-east-2")]);
    assert_eq!(ended.code, 103, "{ended:?}");
    assert!(
        ended.err.contains("no AWS credentials were found")
            && ended.err.contains("hint: `aws configure`"),
        "{ended:?}"
    );
}

#[test]
fn it_goes_again_and_leaves_what_is_not_ours() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    // Somebody else of the same account has nothing to take away.
    let other = user.sandbox.end(
        user.sandbox
            .command(&["uninit", "aws", "--yes"])
            .envs(user.ec2.env())
            .env("LAMP_OWNER", "bob"),
    );
    assert_eq!(other.code, 0, "{other:?}");
    assert!(other.err.contains("there is nothing of ours to take away"), "{other:?}");

    user.ec2.s3("PUT", &format!("/{}/jobs/digits-222222/spec.json", user.bucket()), b"{}");
    user.ec2.s3("PUT", &format!("/{}/jobs/digits-222222/spec.json", user.bucket()), b"{ }");
    user.ec2.take_calls();
    let (code, dry) = user.json(&["uninit", "aws", "--dry-run", "--delete-jobs"]);
    assert_eq!(
        (code, &dry["in_use"]["jobs"], &dry["in_use"]["objects"]),
        (0, &1.into(), &2.into()),
        "{dry}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());
    // `--yes` is not enough for jobs, and a wrong number is none.
    for (count, code) in [(&[][..], 102), (&["--count", "2"], 102)] {
        let ended = user.lamp(&[&["uninit", "aws", "--yes", "--delete-jobs"], count].concat());
        assert_eq!(ended.code, code, "{ended:?}");
    }
    assert_eq!(user.changes(), Vec::<String>::new());

    // A schedule and a tuning outlive the set-up, and are named.
    user.ec2.s3("PUT", &format!("/{}/schedules/jobs/nightly.json", user.bucket()), b"{}");
    user.ec2.s3("PUT", &format!("/{}/tunings/rate-222222/tuning.json", user.bucket()), b"{}");
    let kept = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    assert!(
        kept.err.contains("left in the job root, where a daemon goes on with them: 1 schedule")
            && kept.err.contains("jobs/nightly"),
        "{kept:?}"
    );
    assert!(kept.err.contains("1 tuning, rate-222222"), "{kept:?}");
    assert!(kept.err.contains("hint: `lamp tune stop rate-222222` ends it;"), "{kept:?}");
    assert!(kept.err.contains("it holds jobs, and stays"), "{kept:?}");
    let config = user.sandbox.read(CONFIG);
    assert!(config.contains("job_root") && !config.contains("instance_profile"), "{config}");
    let gone = user.lamp(&["uninit", "aws", "--yes", "--delete-jobs", "--count", "1"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    let (_, after) = user.json(&["init", "aws", "--dry-run"]);
    let steps = |line: &Value| line["steps"].as_array().map_or(0, Vec::len);
    let made: Vec<usize> = after["lines"].as_array().expect("lines").iter().map(steps).collect();
    assert_eq!(made, [6, 2, 2, 1, 0, 0], "all is gone but what the whole account has: {after}");
}

/// A look writes the clock. A bucket with that object alone counts as empty; a bucket with a file of
/// the user is never emptied.
#[test]
fn uninit_keeps_a_bucket_that_holds_a_file_of_the_user() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let put = |keys: &[&str]| {
        keys.iter()
            .for_each(|key| drop(user.ec2.s3("PUT", &format!("/{}/{key}", user.bucket()), b"{}")))
    };
    put(&["clock", "clock", "news/digits-222222/made", "market/us-east-1a/g5.xlarge.json"]);
    let gone = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    let (_, after) = user.json(&["init", "aws", "--dry-run"]);
    assert!(after["lines"].to_string().contains("create-bucket"), "it is gone: {after}");

    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    put(&["clock", "market/prices.parquet"]);
    let (_, dry) = user.json(&["uninit", "aws", "--dry-run"]);
    assert_eq!(
        (&dry["in_use"]["objects"], &dry["in_use"]["other_objects"]),
        (&1.into(), &1.into()),
        "{dry}"
    );
    let kept = user.lamp(&["uninit", "aws", "--yes"]);
    assert!(
        kept.code == 0 && kept.err.contains("stays, and keeps it: 1 object (market/)"),
        "{kept:?}"
    );
    let config = user.sandbox.read(CONFIG);
    assert!(
        config.contains("job_root") && config.contains("regions"),
        "what stays is read by these: {config}"
    );
}

#[test]
fn machine_that_runs_keeps_its_role() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let params = [
        ("ImageId", "ami-0d15ea5e000000022"),
        ("InstanceType", "t3.micro"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    let id =
        user.ec2.ask("RunInstances", &params).expect("launched").all("instanceId")[0].text.clone();
    let whole =
        [("owner", "alice"), ("job", "digits-222222"), ("attempt", "1"), ("lease-s", "1800")];
    let tags = |words: &[(&str, &str)]| {
        words
            .iter()
            .map(|(key, value)| (format!("lamplighter:{key}"), (*value).to_owned()))
            .collect()
    };
    user.ec2.tag(&id, &tags(&whole));
    user.ec2.take_calls();
    let ended = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(ended.code, 102, "{ended:?}");
    assert!(
        ended.err.contains(&format!("{id} and what else runs")) && ended.err.contains("lamp stop"),
        "{ended:?}"
    );
    assert!(
        ended.err.contains("the permissions stay as long as this is so: 1 machine: not terminated"),
        "{ended:?}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());
}

/// One that was launched when another region was in the configuration loses its rights as well.
#[test]
fn machine_in_a_region_that_nobody_named_keeps_its_role_too() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let params = [
        ("ImageId", "ami-0d15ea5e000000022"),
        ("InstanceType", "t3.micro"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    let id =
        user.ec2.ask_in("us-east-2", "RunInstances", &params).expect("launched").all("instanceId")
            [0]
        .text
        .clone();
    let whole =
        [("owner", "alice"), ("job", "digits-222222"), ("attempt", "1"), ("lease-s", "1800")];
    user.ec2.tag(
        &id,
        &whole
            .iter()
            .map(|(key, value)| (format!("lamplighter:{key}"), (*value).to_owned()))
            .collect(),
    );
    user.ec2.take_calls();
    let ended = user.lamp(&["uninit", "aws", "--yes"]);
    assert!(
        ended.code == 102 && ended.err.contains(&format!("{id} and what else runs")),
        "{ended:?}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());
}

/// S3 says of a bucket that is elsewhere no more than that, and of a name that it does not allow
/// nothing that helps.
#[test]
fn bucket_of_another_region_or_of_a_bad_name_is_explained() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    user.ec2.take_calls();
    let elsewhere = user.lamp(&[
        "uninit",
        "aws",
        "--region",
        "us-west-2",
        "--dry-run",
        "--bucket",
        &user.bucket(),
    ]);
    assert!(
        elsewhere.code == 102
            && elsewhere.err.contains("is in us-east-1, which is not the first region"),
        "{elsewhere:?}"
    );
    assert!(
        elsewhere.err.contains("`lamp uninit aws --region us-east-1,us-west-2 --bucket"),
        "{elsewhere:?}"
    );
    for (name, why) in [
        ("My Bucket", "capitals, blanks"),
        ("ab", "fewer than 3"),
        ("-jobs", "begins or ends"),
        ("10.0.0.1", "an address"),
    ] {
        let refused = user.lamp(&["init", "aws", "--dry-run", &format!("--bucket={name}")]);
        assert!(
            refused.code == 2 && refused.err.contains(why) && !refused.out.contains("create"),
            "{name}: {refused:?}"
        );
    }
    assert_eq!(user.changes(), Vec::<String>::new());
}

/// No job ends it, so that nobody is sent to look for one.
#[test]
fn machine_with_our_owner_tag_alone_is_named_apart() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let params = [
        ("ImageId", "ami-0d15ea5e000000022"),
        ("InstanceType", "t3.micro"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    let id =
        user.ec2.ask("RunInstances", &params).expect("launched").all("instanceId")[0].text.clone();
    user.ec2.tag(&id, &[("lamplighter:owner".to_owned(), "alice".to_owned())].into());
    user.ec2.take_calls();
    let ended = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(ended.code, 102, "{ended:?}");
    assert!(
        ended.err.contains(&format!("{id} in us-east-1 (tag `lamplighter:job` is missing)")),
        "{ended:?}"
    );
    assert!(
        ended.err.contains("in the console, or take the tag off it")
            && !ended.err.contains("lamp stop"),
        "{ended:?}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());
    let (_, dry) = user.json(&["uninit", "aws", "--dry-run"]);
    assert_eq!(
        (&dry["in_use"]["machines"], dry["in_use"]["odd_machines"].as_array().map(Vec::len)),
        (&serde_json::json!([]), Some(1)),
        "{dry}"
    );
}

/// A second region is used as soon as it is ready, and those that were there stay.
#[test]
fn region_that_is_set_up_later_is_added_to_the_configuration() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let second = user.lamp(&["init", "aws", "--yes", "--region", "us-east-1,us-east-2"]);
    assert_eq!(second.code, 0, "{second:?}");
    assert!(!second.err.contains("says otherwise"), "{second:?}");
    let config = user.sandbox.read(CONFIG);
    assert!(config.contains("regions = [\"us-east-1\", \"us-east-2\"]"), "{config}");
}

/// The global services have no region of their own, and are signed for one all the same.
#[test]
fn flag_alone_names_the_region() {
    let Some(user) = User::new() else { return };
    let lamp = |args: &[&str]| {
        user.sandbox.end(user.sandbox.command(args).envs(user.ec2.env()).env_remove("AWS_REGION"))
    };
    let made = lamp(&["init", "aws", "--yes", "--region", "us-east-2"]);
    assert_eq!(made.code, 0, "{made:?}");
    // The configuration, then nothing at all, names the region for those that look.
    for config in [user.sandbox.read(CONFIG), String::new()] {
        user.sandbox.write(CONFIG, config);
        let looked = lamp(&["doctor"]);
        assert!(looked.out.contains("service-linked role of spot is there"), "{looked:?}");
        assert!(!looked.out.contains("signing region"), "{looked:?}");
    }
    let gone = lamp(&["uninit", "aws", "--yes", "--region", "us-east-2"]);
    assert!(gone.code == 0 && gone.err.contains("role lamplighter-box: done"), "{gone:?}");
}

/// The role and the configuration name one bucket, or nothing is changed.
#[test]
fn another_bucket_is_taken_in_both_places_or_in_none() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let bucket = user.ec2.bucket("other");
    let config = user.sandbox.read(CONFIG);
    user.changes();
    let refused = user.lamp(&["init", "aws", "--yes", "--bucket", &bucket]);
    assert_eq!(refused.code, 102, "{refused:?}");
    assert!(
        refused.err.contains(&format!("`lamp init aws --bucket {bucket} --instead` changes both")),
        "{refused:?}"
    );
    assert_eq!((user.changes(), user.sandbox.read(CONFIG)), (vec![], config.clone()));
    // Another workstation has no configuration yet: the role says whose it is.
    user.sandbox.write(CONFIG, "");
    let refused = user.lamp(&["init", "aws", "--yes", "--bucket", &bucket]);
    assert!(
        refused.code == 102
            && refused.err.contains("is asked for: machines of jobs there would reach nothing"),
        "{refused:?}"
    );
    assert_eq!(user.changes(), Vec::<String>::new());

    user.sandbox.write(CONFIG, &config);
    let params = [
        ("ImageId", "ami-0d15ea5e000000022"),
        ("InstanceType", "t3.micro"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    let id =
        user.ec2.ask("RunInstances", &params).expect("launched").all("instanceId")[0].text.clone();
    let whole =
        [("owner", "alice"), ("job", "digits-222222"), ("attempt", "1"), ("lease-s", "1800")];
    user.ec2.tag(
        &id,
        &whole
            .iter()
            .map(|(key, value)| (format!("lamplighter:{key}"), (*value).to_owned()))
            .collect(),
    );
    user.changes();
    let runs = user.lamp(&["init", "aws", "--yes", "--bucket", &bucket, "--instead"]);
    assert!(runs.code == 102 && runs.err.contains(&format!("{id} is not terminated")), "{runs:?}");
    assert_eq!(user.changes(), Vec::<String>::new());
    user.ec2.powered_off(&id);
    user.ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).expect("ended");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while user.ec2.instances().iter().any(|seen| seen.state != State::Terminated) {
        assert!(std::time::Instant::now() < until, "it is not terminated");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    user.changes();
    let moved = user.lamp(&["init", "aws", "--yes", "--bucket", &bucket, "--instead"]);
    assert_eq!(moved.code, 0, "{moved:?}");
    assert!(
        moved.err.contains(&format!("the configuration will say job_root = \"s3://{bucket}\"")),
        "{moved:?}"
    );
    assert_eq!(user.changes(), ["PutRolePolicy"]);
    assert!(user.sandbox.read(CONFIG).contains(&format!("job_root = \"s3://{bucket}\"")));
    // What is ready but for a warning is not called so.
    let again = user.lamp(&["init", "aws", "--yes", "--bucket", &bucket]);
    assert!(
        again.code == 0
            && again.err.contains("stays as it is")
            && !again.err.contains("everything is ready"),
        "{again:?}"
    );
}

#[test]
fn bucket_of_somebodys_own_is_used_as_it_is() {
    let Some(user) = User::new() else { return };
    let bucket = user.ec2.bucket("theirs");
    let made = user.lamp(&["init", "aws", "--yes", "--bucket", &bucket, "--prefix", "team/a"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("stays as it is; it is not versioned, not private"), "{made:?}");
    assert!(
        user.changes().iter().all(|change| !change.starts_with("PUT")),
        "its settings are not ours to change"
    );
    assert!(user.sandbox.read(CONFIG).contains(&format!("job_root = \"s3://{bucket}/team/a\"")));
    // What the machines may touch is below the prefix, and nothing else.
    let policy = user.lamp(&["iam", "box"]);
    assert!(policy.out.contains(&format!("arn:aws:s3:::{bucket}/team/a/jobs/*")), "{policy:?}");
    assert_eq!(user.lamp(&["uninit", "aws", "--yes"]).code, 0);
    assert_eq!(user.ec2.s3("HEAD", &format!("/{bucket}"), b"").0, 200, "it stays");
}

/// A slip is told before anything is asked, and a further region without the first says the line
/// that works.
#[test]
fn region_that_is_none_or_comes_alone_says_what_to_type() {
    let Some(user) = User::new() else { return };
    let slip = user.lamp(&["init", "aws", "--dry-run", "--region", "us-eats-2"]);
    assert!(
        slip.err.contains(
            "`us-eats-2` is no region that this version knows (did you mean `us-east-2`?)"
        ),
        "{slip:?}"
    );
    assert!(!slip.err.contains("what a disk costs"), "that is said once: {slip:?}");
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let alone = user.lamp(&["init", "aws", "--yes", "--region", "us-west-2"]);
    assert!(
        alone.code == 102
            && alone.err.contains(
                "`lamp init aws --region us-east-1 --region us-west-2` makes what machines need"
            ),
        "{alone:?}"
    );
    let both =
        user.lamp(&["init", "aws", "--yes", "--region", "us-east-1", "--region", "us-west-2"]);
    assert!(
        both.code == 0 && both.err.contains("written into ") && both.err.contains("us-west-2"),
        "{both:?}"
    );
    let gone = user.lamp(&["uninit", "aws", "--yes"]);
    assert!(
        gone.code == 0 && gone.err.contains("taken out of ") && !gone.err.contains("written into"),
        "{gone:?}"
    );
    assert!(gone.err.contains("the configuration will no longer say "), "{gone:?}");
}
